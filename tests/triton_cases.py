"""Run under TRITON_INTERPRET=1 by test_triton.py: Triton's programs against the specification."""

from __future__ import annotations

import itertools
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from engramma.interactions import Interaction, LeakyRectifiedPolynomial, Polynomial, RectifiedPolynomial
from engramma.kernels import reference
from engramma.kernels.reference import Descent
from engramma.kernels.triton import gpu as triton_gpu
from engramma.kernels.triton import mixed as triton_mixed
from engramma.losses import SQUARED
from engramma.network import DenseMemory, Items
from engramma.optimiser import ORDERS

# Relative to the largest entry of each memory: what float64 rounds to; what 16 bits of similarity leave
# of a gradient at n = 20, where the power multiplies a relative error by twenty.
TOLERANCE = {triton_gpu: 1e-10, triton_mixed: 2e-2}


def apart(found: Tensor, expected: Tensor) -> float:
    return float(((found - expected).abs().amax(-1) / expected.abs().amax(-1).clamp(min=1e-300)).max())


def check(
    rows: int, times: int, items: int, memories: int, neurons: int, classes: int, f: Interaction, auto: bool
):
    g = torch.Generator().manual_seed(items)
    theta = torch.rand(rows * times, memories, neurons, dtype=torch.float64, generator=g) * 2 - 1
    state = torch.randint(0, 2, (rows, items, neurons), generator=g).double() * 2 - 1
    target = (
        state.clone() if auto else torch.randint(0, 2, (rows, items, classes), generator=g).double() * 2 - 1
    )
    if not auto:
        state[..., -classes:] = -1
    weight = torch.ones(rows, items, dtype=torch.float64)
    weight[:, -1] = 0
    found = {}
    for kernel in (reference, triton_gpu, triton_mixed):
        batch = Items(kernel.prepare(state, theta.dtype), target, weight, torch.zeros(rows, items).long())
        net = DenseMemory(neurons, classes, f, SQUARED, auto, beta=2.0, kernel=kernel)
        found[kernel] = net.gradient(theta, batch), net.scores(theta, batch.probe).double()
    for kernel, most in TOLERANCE.items():
        for what, got, expected in zip(("gradient", "scores"), found[kernel], found[reference], strict=True):
            far = apart(got, expected)
            assert far < most, (
                kernel.name,
                what,
                f,
                auto,
                (rows, times, items, memories, neurons, classes),
                far,
            )
    grad, velocity = found[reference][0], torch.randn(theta.shape, dtype=torch.float64, generator=g)
    grad[0, 0] = velocity[0, 0] = 0  # a memory that nothing pulls at
    for order in ORDERS[1:]:  # a mean is a sum at a smaller rate
        given = theta, grad, velocity, Descent(0.1, 0.6, neurons - classes, 0.5, order)
        for got, want in zip(triton_gpu.step(*given), reference.step(*given), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def untrained() -> None:
    """At n = 20 the slopes of fresh memories are near 1e-45 and must survive, in mixed precision too."""
    g = torch.Generator().manual_seed(0)
    theta = torch.randn(1, 6, 799, dtype=torch.float64, generator=g) * 0.1
    state = torch.randint(0, 2, (1, 20, 799), generator=g).double() * 2 - 1
    state[..., -10:] = -1
    target = torch.randint(0, 2, (1, 20, 10), generator=g).double() * 2 - 1
    found = {}
    for kernel in (reference, triton_gpu, triton_mixed):
        net = DenseMemory(799, 10, RectifiedPolynomial(20), kernel=kernel)
        batch = Items(
            kernel.prepare(state, theta.dtype), target, torch.ones(1, 20).double(), torch.zeros(1, 20).long()
        )
        found[kernel] = net.gradient(theta, batch)
    assert found[reference].abs().max() < 1e-38, "the case does not test what it should"
    assert found[reference].abs().amax(-1).min() > 0
    assert apart(found[triton_gpu], found[reference]) < 1e-10
    assert apart(found[triton_mixed], found[reference]) < 2e-3


if __name__ == "__main__":
    shapes = ((2, 1, 5, 4, 24, 3), (2, 2, 9, 17, 40, 10), (1, 2, 3, 5, 50, 1))
    forms = [LeakyRectifiedPolynomial(2), LeakyRectifiedPolynomial(20, -0.01), LeakyRectifiedPolynomial(1.5)]
    forms += [RectifiedPolynomial(3), Polynomial(3), Polynomial(2.5)]
    for shape, f, auto in itertools.product(shapes, forms, (False, True)):
        if not (auto and shape[2] == 9):  # the interpreter is slow
            check(*shape, f, auto)
    untrained()
    print("all cases agree")
