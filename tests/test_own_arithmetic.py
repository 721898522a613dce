"""An interaction and a loss of one's own are computed as they say, whichever kernel was asked for."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from engramma import kernels
from engramma.interactions import Interaction, LeakyRectifiedPolynomial, Polynomial
from engramma.kernels import reference
from engramma.kernels.compiled import written_out
from engramma.losses import SQUARED, Squared
from engramma.methods import GEM, Pseudorehearsal
from engramma.models.associative import AssociativeMemory
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import ClassStream
from engramma.streams.datasets import digits
from engramma.train import train

numba_cpu = pytest.importorskip("engramma.kernels.numba.cpu")
numba_mixed = pytest.importorskip("engramma.kernels.numba.mixed")


@dataclass(frozen=True)
class Exponential(Interaction):
    def value(self, x: Tensor) -> Tensor:
        return torch.exp(self.n * x)

    def slope(self, x: Tensor) -> Tensor:
        return self.n * torch.exp(self.n * x)


@dataclass(frozen=True)
class Steeper(LeakyRectifiedPolynomial):
    """Derived from one that kernels know, and yet another function."""

    def value(self, x: Tensor) -> Tensor:
        return 3 * super().value(x)

    def slope(self, x: Tensor) -> Tensor:
        return 3 * super().slope(x)


@dataclass(frozen=True)
class Absolute(Squared):
    def value(self, o: Tensor, t: Tensor) -> Tensor:
        return (t - o).abs()

    def slope(self, o: Tensor, t: Tensor) -> Tensor:
        return (o - t).sign()


class Padded:
    """Stands for `triton_mixed`, which cannot run here: its items, and arithmetic that must not be asked."""

    name = "padded"
    knows = staticmethod(written_out)

    @staticmethod
    def prepare(probe: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.nn.functional.pad(probe.to(torch.bfloat16), (0, -probe.shape[-1] % 16))


OWN = [(Exponential(2.0), SQUARED), (Steeper(2.0), SQUARED), (Polynomial(2.0), Absolute())]
KERNELS: list[Any] = [numba_cpu, numba_mixed, Padded]


def parts(
    kernel: Any, f: Interaction, loss: Any, autoassociative: bool = False
) -> tuple[DenseMemory, Any, Any]:
    """Two replicas of a network, a row of items for both, and the same by the specification."""
    draw = torch.Generator().manual_seed(0)
    theta = torch.randn(2, 5, 21, generator=draw, dtype=torch.float64)
    state = torch.randn(1, 9, 21, generator=draw, dtype=torch.float64).sign()
    network = DenseMemory(21, 3, f, loss, autoassociative, kernel=kernel)
    if not autoassociative:
        state[..., 18:] = -1
    target = torch.randn(1, 9, 21 if autoassociative else 3, generator=draw, dtype=torch.float64).sign()
    weight, ids = torch.ones(1, 9, dtype=torch.float64), torch.arange(9)[None]
    return network, theta, Items(kernel.prepare(state, torch.float64), target, weight, ids)


@pytest.mark.parametrize("autoassociative", [False, True], ids=["classifier", "autoassociative"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize(("f", "loss"), OWN, ids=lambda x: type(x).__name__)
def test_every_answer_is_the_specifications(
    kernel: ModuleType, f: Interaction, loss: Any, autoassociative: bool
) -> None:
    network, theta, items = parts(kernel, f, loss, autoassociative)
    exact, _, there = parts(reference, f, loss, autoassociative)
    for name in ("scores", "energy", "similarity"):
        ours, theirs = getattr(network, name)(theta, items.probe), getattr(exact, name)(theta, there.probe)
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(network.loss(theta, items), exact.loss(theta, there), rtol=1e-12, atol=0)
    ours, theirs = network.gradient(theta, items), exact.gradient(theta, there)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
    for what, power in (("loss", 2), ("predicted", 2), ("output", 1), ("norm", 1)):
        ours, theirs = (n.per_item(theta, i, what, power) for n, i in ((network, items), (exact, there)))
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
    start = reference.prepare(there.probe, torch.float64)
    assert torch.equal(network.relax(theta, start, 5).state, exact.relax(theta, start, 5).state)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_autograd_agrees(kernel: ModuleType) -> None:
    """The gradient is that of the loss as the classes say it, and of no other."""
    network, theta, items = parts(kernel, Exponential(2.0), Absolute())
    theta.requires_grad_()
    network.loss(theta, items).sum().backward()
    torch.testing.assert_close(network.gradient(theta.detach(), items), theta.grad)


def test_recalling_by_an_interaction_of_ones_own() -> None:
    """What learns is known to the kernel, what recalls is not."""
    network, theta, items = parts(numba_cpu, Polynomial(2.0), SQUARED)
    network = replace(network, recall=Exponential(2.0))
    assert network.arithmetic is numba_cpu
    assert network.recalling.arithmetic is reference
    exact = replace(network, kernel=reference)
    assert torch.equal(network.predict(theta, items.probe), exact.predict(theta, items.probe))
    start = items.probe.repeat(2, 1, 1)
    assert torch.equal(network.relax(theta, start, 5).state, exact.relax(theta, start, 5).state)


@pytest.mark.parametrize("kernel", [numba_cpu, numba_mixed], ids=lambda k: k.name)
@pytest.mark.parametrize(
    "method", [GEM(proportion=0.5), Pseudorehearsal(proportion=0.5)], ids=["gem", "pseudo"]
)
def test_a_whole_run(kernel: ModuleType, method: Any) -> None:
    """With items that methods keep, join to others and make themselves."""
    ends = []
    for asked in (kernel, reference):
        replicas = Replicas((0, 1))
        stream = ClassStream(digits(), replicas, tasks=2, items=40, kernel=asked)
        network = DenseMemory(stream.neurons, stream.classes, Exponential(1.0), kernel=asked)
        theta = replicas.memories(4, stream.neurons)
        optimiser = Optimiser(epochs=3)
        *_, end = train(network, stream, method, optimiser, replicas, theta, 20)
        ends.append(end.theta)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-11)


def test_in_the_associative_memory() -> None:
    """By hand. (It was a square by default.)"""
    patterns = torch.tensor([[1.0, 1, -1, 1], [-1, 1, 1, 1]])
    found = []
    for kernel in ("auto", "reference"):
        memory = AssociativeMemory(interaction=Exponential(2.0), kernel=kernel)
        memory.store(patterns)
        found.append(memory.scores(patterns))
    torch.testing.assert_close(found[0], found[1])
    whole, half, none = Exponential(2.0).value(torch.tensor([1.0, 0.5, 0.0])).tolist()
    # With its first neuron off the state is half as similar to the first memory, and half to the second.
    assert float(found[0][0, 0]) == pytest.approx((whole + none) - (half + half))


def test_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    kernels._say.cache_clear()
    with caplog.at_level(logging.WARNING, "engramma"):
        for _ in range(3):
            network, theta, items = parts(numba_cpu, Exponential(2.0), Absolute())
            network.gradient(theta, items)
        network, theta, items = parts(numba_cpu, Polynomial(2.0), SQUARED)
        network.gradient(theta, items)
    assert [r.getMessage() for r in caplog.records] == [
        "kernel numba does not know Exponential and Absolute: plain PyTorch computes it, more slowly"
    ]


def test_the_papers_own_stay_with_the_kernel() -> None:
    for f in (LeakyRectifiedPolynomial(3), Polynomial(2.5)):
        for loss in (SQUARED, Squared()):
            assert parts(numba_cpu, f, loss)[0].arithmetic is numba_cpu
