"""A stream, an interaction and a loss of one's own, named by their file: run, kept, and read without them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engramma import checks
from engramma.experiment import Experiment, read
from engramma.interactions import INTERACTIONS
from engramma.losses import LOSSES
from engramma.methods import METHODS
from engramma.models.associative import AssociativeMemory
from engramma.models.layer import DenseMemoryLayer
from engramma.replicas import Replicas
from engramma.runs import planning, study
from engramma.runs.options import Options
from engramma.runs.setup import build
from engramma.show.report.portraits import portrait
from engramma.store.records import OWN, Record, Store
from engramma.streams import STREAMS, ClassStream, Stream
from engramma.streams.datasets import DataError

FILE = """
from dataclasses import dataclass

import torch

from engramma.interactions import Interaction, LeakyRectifiedPolynomial
from engramma.losses import Loss
from engramma.replicas import Replicas, generator
from engramma.streams import ClassStream, Stream, Task, labelled


@dataclass(frozen=True)
class Exponential(Interaction):
    width: float = 0.5

    def value(self, x):
        return torch.exp(self.width * self.n * x)

    def slope(self, x):
        return self.width * self.n * self.value(x)


class Narrow(LeakyRectifiedPolynomial):
    def value(self, x):
        return 3 * super().value(x)

    def slope(self, x):
        return 3 * super().slope(x)


@dataclass(frozen=True)
class Needy(Interaction):
    width: float

    def value(self, x):
        return x

    def slope(self, x):
        return x


class Half(Interaction):
    def value(self, x):
        return x


class Absolute(Loss):
    def value(self, o, t):
        return (t - o).abs()

    def slope(self, o, t):
        return (o - t).sign()


@dataclass(frozen=True)
class Corners(Stream):
    "Two classes of every task: noisy copies of two states."
    replicas: Replicas
    tasks: int = 2
    items: int = 20
    size: int = 12
    noise: float = 0.1

    @property
    def neurons(self):
        return self.size + 2

    @property
    def classes(self):
        return 2

    def __getitem__(self, task):
        if not 0 <= task < self.tasks:
            raise IndexError(task)
        made = [self._made(seed, task) for seed in self.replicas.rows]
        states, y = (torch.stack(part) for part in zip(*made))
        parts = [slice(0, self.items // 2), slice(self.items // 2, None)]
        return Task(task, *(labelled(states[:, p], y[:, p], 2, task, torch.float64) for p in parts))

    def _made(self, seed, task):
        draw = generator(seed, "corners", task)
        corners = draw.choice([-1, 1], (2, self.size))
        y = draw.integers(0, 2, self.items)
        turned = 1 - 2 * (draw.random((self.items, self.size)) < self.noise)
        states = torch.full((self.items, self.neurons), -1.0)
        states[:, :self.size] = torch.as_tensor(corners[y] * turned)
        return states, torch.as_tensor(y)


@dataclass(frozen=True)
class Mirrored(ClassStream):
    def view(self, seed, task):
        return super().view(seed, 0)


@dataclass(frozen=True, kw_only=True)
class Strange(Corners):
    colour: str


class Plain(Stream):
    neurons, classes, __getitem__ = 3, 2, None


class Empty(Stream):
    neurons = 3
"""
SMALL: dict[str, Any] = {"memories": 6, "epochs": 30, "tasks": 2, "items": 40}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    yield "./own.py"
    sys.modules.pop(checks.module_name("./own.py"), None)


def forget() -> None:
    """As in a process that has not imported it."""
    sys.modules.pop(checks.module_name("./own.py"), None)


def test_a_stream_of_ones_own(file: str) -> None:
    """It has the settings of a run that it has fields for, and its own defaults; two seeds have two rows."""
    runs = [read(SMALL, {"stream": f"{file}:Corners", "size": 16, "seed": s}) for s in (3, 4)]
    assert runs[0].data == "own"
    setup = build(runs)
    stream: Any = setup.stream
    assert (stream.tasks, stream.items, stream.size, stream.noise) == (2, 40, 16, 0.1)
    assert setup.stream[1].train.probe.shape == (2, 20, 18)
    alone = build(runs[1:]).stream[1].train
    assert torch.equal(alone.probe[0], setup.stream[1].train.probe[1])
    accuracy = torch.stack(
        [setup.stream.evaluate(m.network, m.theta)["accuracy"] for m in setup.train() if m.ends_task], 1
    )
    assert accuracy.shape == (2, 2, 2)
    assert accuracy[:, 0, 0].min() > 0.9  # the first task, after it
    assert alone.probe.shape[-1] == planning.sizes(runs[0])[0]
    assert planning.sizes(runs[0]) == (18, 2, 20)


def test_a_list_among_settings_is_one_that_nobody_changes(file: str) -> None:
    run = read(SMALL, {"stream": f"{file}:Corners"})
    cls: Any = checks.stream_class(run.stream)
    several = {**dict(run), "noise": [0.1, 0.2]}
    assert cls.made(several, replicas=Replicas((0,))).noise == (0.1, 0.2)
    assert hash(cls.made(several, replicas=Replicas((0,))))


def test_a_class_stream_of_ones_own(file: str) -> None:
    """Derived from ours it is made of a data set too: here every task is the first."""
    run = read(SMALL, {"stream": f"{file}:Mirrored", "data": "digits"})
    built = build([run])
    assert isinstance(built.stream, ClassStream)
    assert torch.equal(built.stream[0].train.target, built.stream[1].train.target)
    assert planning.sizes(run) == planning.sizes(run.but(stream="permuted"))
    assert read({"stream": f"{file}:Mirrored"}).data == "mnist"


def test_everything_of_ones_own_is_run_once_and_read_without_its_code(
    file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"stream": "Corners", "interaction": "Exponential", "loss": "Absolute"}
    own = {what: f"{file}:{name}" for what, name in names.items()}
    run, store = read(SMALL, own), Store(tmp_path / "runs")
    assert study.run([run], store, Options(keep_memories=True)).ran == 1
    assert study.run([run], store).ran == 0
    assert build([run]).network.interaction.n == 2
    (record,) = store
    assert record.experiment == run
    with pytest.raises(DataError, match="cannot recall by an interaction of one's own, Exponential"):
        portrait(record)
    forget()
    (record,) = store
    assert record.scores["accuracy"].shape == (2, 2)
    with pytest.raises(ValueError, match=r"a stream of one's own: name it \(--stream ./own.py:\.\.\.\)"):
        _ = record.experiment
    assert checks.module_name("./own.py") not in sys.modules
    assert read(SMALL, own) == record.experiment
    assert not [m for m in caplog.messages if "left out" in m]


@pytest.mark.parametrize("what", list(OWN))
def test_a_record_has_no_class_imported(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("raise RuntimeError('imported')")
    told = {**read({"data": "digits"}).describe(), what: "./trap.py:Thing"}
    tables = np.zeros((5, 5))
    store = Store(tmp_path / "runs")
    store.write(Record(told, {"accuracy": tables}, {"epoch": np.arange(1), "accuracy": tables[:1]}))
    (found,) = store
    with pytest.raises(ValueError, match=f"is of a {what} of one's own: name it"):
        _ = found.experiment
    with pytest.raises(RuntimeError, match="imported"):
        read(told)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (
            {"stream": "{}:Strange"},
            "must have fields that are settings of a run or have a default, not colour",
        ),
        ({"stream": "{}:Plain"}, "own.py:Plain must be a dataclass with the fields replicas and tasks"),
        ({"stream": "{}:Empty"}, "stream .*own.py:Empty must say what its __getitem__, classes is"),
        (
            {"stream": "{}:Corners", "data": "digits"},
            "data must be own, an .npz file or a folder .* for the stream",
        ),
        ({"stream": "{}:Corners", "autoassociative": True}, "autoassociative must be false for the stream"),
        ({"stream": "{}:Exponential"}, "must be a class derived from engramma.Stream"),
        ({"interaction": "{}:Half"}, "interaction .*own.py:Half must say what its slope is"),
        ({"interaction": "{}:Needy"}, "interaction .*own.py:Needy must have a default for width"),
        ({"interaction": "{}:Gone"}, "own.py has no Gone"),
        ({"interaction": "{}:Narrow", "recall_leak": 0.0}, "recall_leak must be left out"),
        ({"loss": "{}:Corners"}, "must be a class derived from engramma.Loss"),
    ],
)
def test_what_is_wrong_is_one_line(told: dict[str, str], says: str, file: str) -> None:
    given = {k: v.format(file) if isinstance(v, str) else v for k, v in told.items()}
    with pytest.raises(ValueError, match=says) as caught:
        build([read(SMALL, {"data": "digits"} if "stream" not in told else {}, given)])
    assert "\n" not in str(caught.value)


def test_they_are_computed_as_they_say(file: str) -> None:
    """One derived from ours is another function, and no kernel takes it for ours."""
    base = {"data": "digits", **SMALL, "clamp": None}
    networks = [build([read(base, told)], kernel="auto").network for told in (
        {"interaction": f"{file}:Narrow"}, {"interaction": "leaky"})]  # fmt: skip
    x = torch.tensor([-1.0, 0.5], dtype=torch.float64)
    narrow, leaky = (n.interaction.value(x) for n in networks)
    torch.testing.assert_close(narrow, 3 * leaky)
    assert [n.arithmetic.name for n in networks] == ["reference", networks[1].kernel.name]


def test_on_the_command_line(file: str, tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "engramma", "run", "--stream", f"{file}:Corners", "--interaction",
         f"{file}:Exponential", "--loss", f"{file}:Absolute", "--tasks", "2", "--items", "20",
         "--memories", "4", "--epochs", "2", "--seeds", "2", "--kernel", "reference"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    (one, _) = Store(tmp_path / "runs")
    assert one.description["stream"] == f"{file}:Corners"
    wrong = subprocess.run(
        [sys.executable, "-m", "engramma", "run", "--stream", f"{file}:Cornes"],
        capture_output=True,
        text=True,
    )
    assert wrong.returncode == 2
    assert wrong.stderr == "engramma: stream ./own.py:Cornes: ./own.py has no Cornes\n"


def test_interactions_of_ones_own_in_models(file: str) -> None:
    layer = DenseMemoryLayer(4, 2, memories=3, interaction=f"{file}:Exponential")
    found = layer(torch.ones(2, 4))
    assert found.shape == (2, 2)
    assert not torch.allclose(found, DenseMemoryLayer(4, 2, memories=3)(torch.ones(2, 4)))
    assert type(AssociativeMemory(3, f"{file}:Exponential").interaction).__name__ == "Exponential"


def test_settings_name_what_there_is() -> None:
    """Descriptions are read without PyTorch, so they cannot ask the dictionaries; nothing is left out."""
    fields = Experiment.model_fields
    for what, known in (("stream", STREAMS), ("interaction", INTERACTIONS), ("loss", LOSSES)):
        told = str(fields[what].description)
        for name in known:
            assert name in told, f"--{what} does not speak of {name}"
        assert fields[what].default in known
    assert fields["method"].default in METHODS


@pytest.mark.parametrize("name", STREAMS)
def test_sizes_are_told_before_anything_is_built(name: str) -> None:
    """What costs are reckoned from is what is built; a class that says nothing is made to see."""
    told = {"stream": name, "tasks": 3, **({} if name == "states" else {"data": "digits", "items": 60})}
    run = read(told)
    assert isinstance(run.autoassociative, bool)
    stream = build([run]).stream
    assert isinstance(stream, Stream)
    items = stream[0].train
    assert planning.sizes(run) == (stream.neurons, items.target.shape[2], items.probe.shape[1])
    assert Stream.sizes.__func__(STREAMS[name], dict(run)) == planning.sizes(run)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_is_one(name: str) -> None:
    told = {} if name == "states" else {"data": "digits"}
    run = read(told, {"stream": name, "tasks": 2, "items": 10})
    stream: Any = build([run]).stream
    assert len(stream) == 2
    assert stream.test(1).ids.shape == stream[1].test.ids.shape
    assert torch.equal(torch.as_tensor(stream.test(1).target), stream[1].test.target)
    with pytest.raises(IndexError):
        stream[2]
    other = dataclasses.replace(stream, replicas=Replicas((7,)))
    for words in (type(stream).hash, Stream.hash):
        assert len(words(stream)) == 64
        assert words(stream) == words(dataclasses.replace(stream)) != words(other)
