"""What only the kernel of the CPU promises: threads, denormal numbers, memory, machine code kept on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kernel_cases import case, check

import engramma
from engramma.experiment import read
from engramma.interactions import LeakyRectifiedPolynomial, RectifiedPolynomial
from engramma.kernels import kernel_for, reference
from engramma.kernels.numba import cpu as numba_cpu
from engramma.kernels.numba import mixed as numba_mixed
from engramma.kernels.reference import Descent
from engramma.methods import METHODS, Moments
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.runs.setup import build


def test_denormal_numbers_are_flushed_in_float32() -> None:
    c = case(items=40, neurons=799, spread=0.1, dtype=torch.float32)
    f, tiny = RectifiedPolynomial(20), torch.finfo(torch.float32).tiny
    expected = reference.slopes(c.h, c.a, c.g, f)[0]
    assert int(((expected != 0) & (expected.abs() < tiny)).sum()) > 0  # there is something to flush
    for found in numba_cpu.slopes(c.h, c.a, c.g, f):
        assert not bool(((found != 0) & (found.abs() < tiny)).any())


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_threads_and_replicas_change_no_bit() -> None:
    c, f = case(items=700, memories=300, replicas=3, rows=1), LeakyRectifiedPolynomial(3)
    net = DenseMemory(23, 3, f, kernel=numba_cpu)
    items = Items(c.probe, c.target, torch.ones_like(c.share), torch.arange(700)[None])
    torch.set_num_threads(1)
    one, rule = net.gradient(c.theta, items), Descent(0.1, 0.6, 20, 1.0)
    moved = numba_cpu.step(c.theta, one, c.theta, rule)
    alone = torch.cat([net.gradient(c.theta[r : r + 1], items) for r in range(3)])
    torch.set_num_threads(3)
    assert torch.equal(one, alone)
    assert torch.equal(one, net.gradient(c.theta, items))
    for x, y in zip(moved, numba_cpu.step(c.theta, one, c.theta, rule), strict=True):
        assert torch.equal(x, y)


STEP = """
import resource, sys, torch
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
torch.set_num_threads(1)
kernel = kernel_for("cpu", sys.argv[1])
def train(B, M, N=799, C=10):
    net, optimiser = DenseMemory(N, C, LeakyRectifiedPolynomial(20), kernel=kernel), Optimiser()
    probe = torch.where(torch.rand(1, B, N) < 0.5, -1.0, 1.0)
    probe[..., -C:] = -1
    target = -torch.ones(1, B, C)
    items = Items(probe, target, torch.ones(1, B), torch.arange(B)[None])
    theta = torch.randn(1, M, N) / 10
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    optimiser.step(theta, net.gradient(theta, items), optimiser.start(theta), 1, net)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
train(300, 16)
print(train(8000, 512))
"""


@pytest.mark.parametrize("name", ["reference", "numba"])
def test_a_step_never_holds_items_by_memories_by_classes(name: str) -> None:
    """What a step adds to the process, measured from outside: (B,M,C) in float32 would be 164 MB."""
    done = subprocess.run([sys.executable, "-c", STEP, name], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8000 * 512 * 10 * 4 * (0.75 if name == "reference" else 0.4)


CACHE = """
import torch
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels.numba import cpu as numba_cpu, loops as numba_loops
from engramma.kernels.reference import Aim
from engramma.losses import SQUARED
h, g = torch.rand(1, 4, 3), torch.rand(1, 4, 2)
aim = Aim(g, g[..., 0], SQUARED, LeakyRectifiedPolynomial(4))
numba_cpu.pull(h, h.mT[..., :2].contiguous(), aim)
print(sum(numba_loops.pull.stats.cache_misses.values()), sum(numba_loops.pull.stats.cache_hits.values()))
"""


def test_machine_code_is_kept_on_disk(tmp_path: object) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-c", CACHE]
    first, second = (
        subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert first == ["1", "0"]
    assert second == ["0", "1"]


def test_kernels_are_found_by_name() -> None:
    assert kernel_for("cpu") is numba_cpu
    assert kernel_for("cpu", "numba") is numba_cpu
    assert kernel_for("cpu", "reference") is reference
    for device, name in (("cpu", "triton"), ("cpu", "fast"), ("cuda", "numba")):
        with pytest.raises(ValueError, match="kernel must be"):
            kernel_for(device, name)
    assert kernel_for("cpu", mixed=True) is kernel_for("cpu", "numba", mixed=True) is numba_mixed
    for device, name in (("cpu", "triton"), ("cpu", "reference"), ("cuda", "numba"), ("meta", "auto")):
        with pytest.raises(ValueError, match=f"dtype mixed needs .* not kernel {name} on {device}"):
            kernel_for(device, name, mixed=True)


def test_without_its_compiler_a_kernel_is_missed_only_if_it_was_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "engramma.kernels.numba.cpu", None)
    assert kernel_for("cpu") is reference
    with pytest.raises(ImportError):
        kernel_for("cpu", "numba")


@pytest.mark.parametrize("n", [2, 20])
def test_a_saturated_neuron_still_pulls_in_mixed_precision(n: float) -> None:
    """Near |o| = 12 the slope of tanh is 1.5e-10, which 1 - tanh^2 has in float64 and not in float32."""
    c = case(items=40, memories=8, neurons=100, scored=1)
    theta, probe = torch.zeros_like(c.theta), c.probe.clone()
    theta[..., -1], probe[..., -1] = 100 * (12 / 8) ** (1 / n), -1
    one = torch.ones_like(c.share)
    items = Items(probe, -torch.ones_like(c.target), one, one.long())
    slow, fast, single = (
        DenseMemory(100, 1, LeakyRectifiedPolynomial(n), kernel=kernel)
        for kernel in (reference, numba_mixed, numba_cpu)
    )
    o = slow.scores(theta, probe)
    assert bool(((o > 12) & (o < 12.2)).all())
    expected = slow.gradient(theta, items)
    assert bool((expected[..., -1] > 0).all())
    check(fast.gradient(theta, items), expected, 2, 1e-4)
    plain = Items(*(part.float() for part in items[:3]), items.ids)
    assert not bool(single.gradient(theta.float(), plain).any())


@pytest.mark.parametrize("n", [2, 20])
@pytest.mark.parametrize("method", METHODS)
def test_training_in_mixed_precision_follows_float64(method: str, n: float) -> None:
    """References, importances, paths and pseudo-items of every method included."""
    told = {"data": "digits", "items": 60, "tasks": 2, "memories": 8, "epochs": 3, "vertex": n}
    told |= {"strength": 1.0} if issubclass(METHODS[method], Moments) else {}  # the paper has no lambda
    found = {}
    for dtype in ("float64", "mixed"):
        *_, last = build([read({**told, "method": method, "dtype": dtype})]).train()
        found[dtype] = last.theta
    assert found["mixed"].dtype == torch.float64
    torch.testing.assert_close(found["mixed"], found["float64"], rtol=0, atol=2e-3)
    assert not torch.equal(found["mixed"], found["float64"])


def test_the_network_says_which_kernel_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    c, asked = case(), []
    monkeypatch.setattr(numba_cpu, "step", lambda *given: asked.append(given) or reference.step(*given))
    for kernel in (reference, numba_cpu):
        net = DenseMemory(23, 3, LeakyRectifiedPolynomial(3), kernel=kernel)
        Optimiser().step(c.theta, c.theta, c.theta, 3, net)
    assert len(asked) == 1


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_openmp_sleep_unless_told_otherwise(given: str | None, found: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    run = [sys.executable, "-c", "import os, engramma; print(os.environ['OMP_WAIT_POLICY'])"]
    env |= {} if given is None else {"OMP_WAIT_POLICY": given}
    assert subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout.strip() == found


COMPILED = """
import numpy
from engramma.kernels.numba import loops as numba_loops, signs as numba_signs
assert len(numba_signs._scratch(5, numpy.zeros(1))) >= 5
print(numba_loops.__file__, numba_loops.LOOP["cache"], numba_signs._scratch.stats.cache_path, sep="\\n")
"""


@pytest.mark.skipif(os.name == "nt", reason="users are told apart by number")
@pytest.mark.parametrize("foreign", [False, True])
def test_an_installation_that_cannot_be_written(foreign: bool, tmp_path: Path) -> None:
    """Machine code is kept in a temporary folder, or nowhere if others can write to that. Not even root
    can make a folder in a file, nor a home in a device."""
    package, temporary = tmp_path / "package", tmp_path / "temporary"
    shutil.copytree(Path(engramma.__file__).parent, package / "engramma", ignore=lambda *_: ["__pycache__"])
    (package / "engramma" / "kernels" / "__pycache__").write_text("")
    temporary.mkdir()
    own = temporary / f"engramma-{os.getuid()}"
    if foreign:
        own.mkdir()
        own.chmod(0o777)
    gone = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    place = {"HOME": "/dev/null/home", "TMPDIR": str(temporary), "PYTHONPATH": str(package)}
    told = subprocess.run(
        [sys.executable, "-c", COMPILED],
        env={**{k: v for k, v in os.environ.items() if k not in gone}, **place},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    where, kept, cache = told.stdout.splitlines()
    assert Path(where).is_relative_to(package)
    assert kept == str(not foreign)
    assert cache.startswith(str(own)) != foreign
    assert bool(list(own.rglob("*.nbi"))) != foreign
