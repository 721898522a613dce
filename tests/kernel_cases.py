"""What the kernels are tested on, and how far they may be from the specification."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from engramma.interactions import Interaction, LeakyRectifiedPolynomial, Polynomial, RectifiedPolynomial
from engramma.kernels import reference
from engramma.network import DenseMemory, Items

VERTICES = (1, 1.5, 2, 3, 10, 20, 30)
INTERACTIONS: list[Interaction] = [
    *(LeakyRectifiedPolynomial(n) for n in VERTICES),
    *(Polynomial(n) for n in VERTICES),
    LeakyRectifiedPolynomial(3, leak=-0.3),
    RectifiedPolynomial(2),
    RectifiedPolynomial(1.5),
]
FEW: list[Interaction] = [LeakyRectifiedPolynomial(2), LeakyRectifiedPolynomial(20), Polynomial(1.5)]
# Of a whole network, whose similarities each precision rounds in its own way: at n = 20 the leak's step at 0
# outweighs everything else there is here, and which side of it a similarity falls on is chance.
SMOOTH: list[Interaction] = [LeakyRectifiedPolynomial(2), RectifiedPolynomial(20), Polynomial(1.5)]

SHAPES = [
    {"items": 1, "memories": 1, "scored": 1, "replicas": 1, "rows": 1},
    {"items": 3, "memories": 5, "scored": 3, "replicas": 3, "rows": 3},
    {"items": 17, "memories": 33, "scored": 10, "replicas": 6, "rows": 2},
    {"items": 17, "memories": 5, "scored": 1, "replicas": 4, "rows": 1},
    {"items": 3, "memories": 33, "scored": 10, "replicas": 1, "rows": 1},
    {"items": 300, "memories": 600, "scored": 3, "replicas": 2, "rows": 1},  # several blocks and chunks
]

# How far a kernel may be from the reference, as a part of the largest entry that belongs to the same
# memory (or item, for scores): sums are taken in another order, and x^n loses n roundings. In float32, as a
# part of the largest of the network: its memories' gradients differ by more orders of magnitude than
# float32 has, and 1 - tanh^2 of a neuron that is nearly right has few digits left.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-3}
# Mixed precision has 24 bits of a similarity on the CPU and 16 on a GPU, and the power multiplies its
# relative error by n.
MIXED = {"numba": 1e-4, "triton": 2e-2}


class Case(NamedTuple):
    probe: Tensor  # (S,B,N)
    theta: Tensor  # (R,M,N)
    h: Tensor  # (R,B,M)
    a: Tensor  # (R,M,K)
    g: Tensor  # (R,B,K)
    target: Tensor  # (S,B,K)
    share: Tensor  # (S,B)
    u: Tensor | None  # (S,B,K)


def case(
    items: int = 17,
    memories: int = 33,
    scored: int = 3,
    replicas: int = 4,
    rows: int = 2,
    signed: bool = False,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    neurons: int = 23,
    spread: float = 1.0,
) -> Case:
    draw = torch.Generator().manual_seed(items + 100 * memories + 10000 * scored)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    probe = normal(rows, items, neurons).sign()
    theta = spread * normal(replicas, memories, neurons)
    h = reference.product(probe, theta) / neurons
    a = theta[..., -scored:] / neurons
    g, target = normal(replicas, items, scored), normal(rows, items, scored).clamp(-1, 1)
    share = normal(rows, items).abs() / items
    u = -probe[..., -scored:] if signed else None
    made = (probe, theta, h, a, g, target, share, u)
    return Case(*(t if t is None else t.to(device, dtype).contiguous() for t in made))  # type: ignore[arg-type]


def check(
    found: Tensor, expected: Tensor, over: int, tolerance: float | None = None, single: bool = False
) -> None:
    """Each entry against the largest of `expected` along the axis `over`, or of the replica."""
    assert found.shape == expected.shape
    if tolerance is None:
        assert found.dtype == expected.dtype
        tolerance = TOLERANCE[expected.dtype]
    single = single or expected.dtype == torch.float32
    size = expected.double().abs().amax((1, 2) if single else over, keepdim=True)
    # Below this both are as good as zero: the reference keeps denormal numbers, the kernels need not.
    floor = torch.finfo(found.dtype).tiny * 1e3
    wrong = (found.double() - expected.double()).abs() / (size + floor)
    assert float(wrong.max()) <= tolerance


def agree(kernel: ModuleType, function: str, arguments: tuple[object, ...], over: tuple[int, ...]) -> None:
    found, expected = getattr(kernel, function)(*arguments), getattr(reference, function)(*arguments)
    pairs = ((found, expected),) if isinstance(found, Tensor) else tuple(zip(found, expected, strict=True))
    for (one, other), axis in zip(pairs, over, strict=True):
        check(one, other, axis)


def network_agrees(
    kernel: ModuleType, c: Case, f: Interaction, dtype: torch.dtype, tolerance: float, **settings: object
) -> None:
    """Scores, gradient and importances of a whole network with memories in `dtype`, against the
    specification in float64. The last item of every row is padding."""
    betas = torch.linspace(0.5, 1.2, len(c.theta), dtype=torch.float64, device=c.theta.device)
    weight = torch.ones_like(c.share)
    weight[:, -1] = 0 if weight.shape[1] > 1 else 1
    target = c.probe.flip(1) if settings.get("autoassociative") else c.target
    batch = Items(c.probe, target, weight, torch.zeros_like(weight).long())
    slow = DenseMemory(c.theta.shape[2], c.a.shape[2], f, beta=betas, **settings)  # type: ignore[arg-type]
    theta, probe = c.theta.to(dtype), kernel.prepare(c.probe.to(dtype), dtype)
    fast = DenseMemory(slow.neurons, slow.classes, f, beta=betas.to(dtype), kernel=kernel, **settings)  # type: ignore[arg-type]
    ours = Items(probe, target.to(dtype), weight.to(dtype), batch.ids)
    single = dtype == torch.float32
    check(fast.scores(theta, probe), slow.scores(c.theta, c.probe), 1, tolerance, single)
    check(fast.gradient(theta, ours), slow.gradient(c.theta, batch), 2, tolerance, single)
    squares = fast.per_item(theta, ours, "loss", 2), slow.per_item(c.theta, batch, "loss", 2)
    check(*squares, 2, 2 * tolerance, single)
