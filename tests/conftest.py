"""The suite runs anywhere: `pytest --device cuda --dtype float32` repeats it on a GPU in single precision."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from engramma.interactions import Interaction, LeakyRectifiedPolynomial
from engramma.network import DenseMemory
from engramma.replicas import Replicas
from engramma.streams import ClassStream
from engramma.streams.datasets import Dataset, Missing, digits, mnist

if TYPE_CHECKING:
    from engramma.store.records import Record

DTYPES = {"float64": torch.float64, "float32": torch.float32}

with suppress(ImportError):  # a machine that only runs the tests of kernels need not have it
    from hypothesis import Phase, settings

    # No test passes or fails by the clock, and the same inputs are tried every time.
    settings.register_profile("engramma", deadline=None, derandomize=True, max_examples=30)
    settings.load_profile("engramma")
    # benchmarks/mutants.py wants to know that a test fails, and not the simplest input on which it does.
    found = settings.get_profile("engramma")
    settings.register_profile("mutants", found, phases=(Phase.explicit, Phase.generate))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.addoption("--dtype", default="float64", choices=sorted(DTYPES), help="precision (default float64)")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # the networks are small, and pytest-xdist has the other cores
    os.fsync = lambda handle: None  # thousands of files that nobody will miss: no waiting for the disk
    name = str(config.getoption("--device"))
    if name != "cpu" and not name.startswith("cuda"):
        raise pytest.UsageError(f"--device must be cpu or cuda, not {name!r}")
    if name != "cpu" and not torch.cuda.is_available():
        raise pytest.UsageError(f"--device {name}: PyTorch finds no CUDA device here")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # Started in the background of a script: processes that tests start would not hear Ctrl-C either.
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return DTYPES[request.config.getoption("--dtype")]


@pytest.fixture(scope="session")
def near(dtype: torch.dtype) -> dict[str, float]:
    """Tolerances of `torch.testing.assert_close` for sums of some hundred rounded terms."""
    return {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-5}


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    return digits()


@pytest.fixture
def mnist_there() -> Dataset:
    """MNIST, for tests that are skipped where it is not there. Where it is there and damaged, they fail."""
    try:
        return mnist()
    except Missing as error:
        pytest.skip(str(error))


MakeStream = Callable[..., ClassStream]


@pytest.fixture(scope="session")
def make_stream(dataset: Dataset, device: torch.device, dtype: torch.dtype) -> MakeStream:
    """A small stream of permuted digits: three tasks of 60 items, two seeds."""

    def make(replicas: Replicas | None = None, **changes: object) -> ClassStream:
        given: dict[str, object] = {"tasks": 3, "items": 60, "device": device, "dtype": dtype, **changes}
        return ClassStream(dataset, replicas or Replicas((0, 1)), **given)  # type: ignore[arg-type]

    return make


MakeNetwork = Callable[..., DenseMemory]


@pytest.fixture(scope="session")
def make_network() -> MakeNetwork:
    """The network that fits a stream."""

    def make(stream: ClassStream, f: Interaction | None = None, **changes: object) -> DenseMemory:
        chosen = f or LeakyRectifiedPolynomial(2)
        return DenseMemory(stream.neurons, stream.classes, chosen, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """A small study with its memories, once for all tests of the report."""
    from reported import small_study

    return small_study(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Runs of allocation with their memories."""
    from reported import groups_study

    return groups_study(tmp_path_factory.mktemp("grouped"))


@pytest.fixture(scope="session")
def page_file(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from engramma.show.report.write import report

    return report(records, tmp_path_factory.mktemp("page") / "report.html")
