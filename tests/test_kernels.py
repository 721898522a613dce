"""Every kernel computes what `kernels.reference` computes, on odd shapes as on even ones.

On the CPU numba is tested, in every precision; `--device cuda` tests Triton instead, and needs no more than
pytest, torch, triton and numpy. TRITON_INTERPRET=1 adds Triton's programs here (slow).
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

import pytest
import torch
from kernel_cases import (
    FEW,
    INTERACTIONS,
    MIXED,
    SHAPES,
    SMOOTH,
    TOLERANCE,
    agree,
    case,
    check,
    network_agrees,
)

from engramma.interactions import Interaction, LeakyRectifiedPolynomial, RectifiedPolynomial
from engramma.kernels import reference
from engramma.kernels.reference import Aim, Descent
from engramma.losses import SQUARED
from engramma.optimiser import ORDERS

MODULES = {
    "numba": "numba.cpu",
    "numba-mixed": "numba.mixed",
    "triton": "triton.gpu",
    "triton-mixed": "triton.mixed",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cuda = str(metafunc.config.getoption("--device", default="cpu")).startswith("cuda")
    names = [] if cuda else ["numba"]
    if cuda or os.environ.get("TRITON_INTERPRET") == "1":
        names.append("triton")
    if "kernel" in metafunc.fixturenames:
        metafunc.parametrize("kernel", names, indirect=True)
    if "precision" in metafunc.fixturenames:
        both = [(name, dtype, most) for name in names for dtype, most in TOLERANCE.items()]
        both += [(f"{name}-mixed", torch.float64, MIXED[name]) for name in names]
        ids = [f"{name}-{str(dtype)[6:]}" for name, dtype, _ in both]
        metafunc.parametrize("precision", both, ids=ids, indirect=True)


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"engramma.kernels.{MODULES[request.param]}")


@pytest.fixture
def precision(request: pytest.FixtureRequest) -> tuple[ModuleType, torch.dtype, float]:
    """A kernel, the dtype of the memories, and how far it may be from the specification in float64."""
    name, dtype, most = request.param
    return import_module(f"engramma.kernels.{MODULES[name]}"), dtype, most


@pytest.fixture
def place(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(str(request.config.getoption("--device", default="cpu")))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s.values())))
@pytest.mark.parametrize("signed", [False, True], ids=["off", "signed"])
@pytest.mark.parametrize("f", FEW, ids=str)
def test_odd_shapes(
    kernel: ModuleType, shape: dict, signed: bool, f: Interaction, dtype: torch.dtype, place: torch.device
) -> None:
    c = case(**shape, signed=signed, dtype=dtype, device=place)
    agree(kernel, "scores", (c.h, c.a, f, c.u), (1,))
    agree(kernel, "slopes", (c.h, c.a, c.g, f, c.u), (1, 2))
    agree(kernel, "pull", (c.h, c.a, Aim(c.target, c.share, SQUARED, f, c.u)), (1, 2))
    own = c.probe[..., -c.a.shape[-1] :]
    agree(kernel, "moments", (c.h, c.a, c.g, f, c.u, own, 1), (1, 2))
    agree(kernel, "moments", (c.h, c.a, c.g, f, c.u, own, 2), (1, 2))


@pytest.mark.parametrize("f", INTERACTIONS, ids=str)
@pytest.mark.parametrize("signed", [False, True], ids=["off", "signed"])
def test_every_interaction(kernel: ModuleType, f: Interaction, signed: bool, place: torch.device) -> None:
    c = case(signed=signed, device=place)
    agree(kernel, "scores", (c.h, c.a, f, c.u), (1,))
    agree(kernel, "pull", (c.h, c.a, Aim(c.target, c.share, SQUARED, f, c.u)), (1, 2))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s.values())))
def test_products(kernel: ModuleType, shape: dict, dtype: torch.dtype, place: torch.device) -> None:
    c = case(**shape, dtype=dtype, device=place)
    probe = kernel.prepare(c.probe, dtype)
    check(kernel.product(probe, c.theta), reference.product(c.probe, c.theta), 1)
    back = kernel.product_back(c.h, probe, c.theta.shape[2])
    check(back, reference.product_back(c.h, c.probe, c.theta.shape[2]), 2)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("visible", [0, 20, 23])
@pytest.mark.parametrize("clamp", [None, 0.5])
@pytest.mark.parametrize("rate", [0.08, (0.5, 0.1, 0.0, 2.0)], ids=["one rate", "four"])
def test_step(
    kernel: ModuleType,
    dtype: torch.dtype,
    visible: int,
    clamp: float | None,
    rate: float,
    place: torch.device,
) -> None:
    c = case(dtype=dtype, device=place)
    grad, velocity = c.theta.flip(1).contiguous(), c.theta.flip(2).contiguous()
    grad[1, 2] = velocity[1, 2] = 0  # a memory that nothing pulls at
    rates = (
        rate if isinstance(rate, float) else torch.tensor(rate, dtype=dtype, device=place).reshape(-1, 1, 1)
    )
    before = c.theta.clone(), grad.clone(), velocity.clone()
    agree(kernel, "step", (c.theta, grad, velocity, Descent(rates, 0.6, visible, clamp)), (2, 2))
    assert all(torch.equal(x, y) for x, y in zip(before, (c.theta, grad, velocity), strict=True))


def test_the_slopes_of_untrained_memories_survive_in_float64(kernel: ModuleType, place: torch.device) -> None:
    """At n = 20 they are near 1e-45, and each memory's step is scaled by its own largest."""
    c = case(items=40, neurons=799, spread=0.1, device=place)
    dh, _ = kernel.pull(c.h, c.a, Aim(c.target, c.share, SQUARED, RectifiedPolynomial(20)))
    assert 0 < float(dh.abs().amax((0, 1)).max()) < 1e-35
    agree(kernel, "pull", (c.h, c.a, Aim(c.target, c.share, SQUARED, RectifiedPolynomial(20))), (1, 2))


@pytest.mark.parametrize("f", FEW, ids=str)
def test_a_neuron_without_weight_has_no_score_and_no_slope(
    kernel: ModuleType, f: Interaction, place: torch.device
) -> None:
    """Exactly: whatever rounding left behind would be scaled to a full step."""
    c = case(memories=600, device=place)
    a = torch.zeros_like(c.a)
    assert not bool(kernel.scores(c.h, a, f).any())
    assert not bool(kernel.slopes(c.h, a, c.g, f)[0].any())
    assert not bool(kernel.pull(c.h, a, Aim(c.target, c.share, SQUARED, f))[0].any())


def test_what_is_not_a_number_stays_where_it_is(kernel: ModuleType, place: torch.device) -> None:
    c, f = case(device=place), LeakyRectifiedPolynomial(2)
    h = c.h.clone()
    h[1, 5, 7] = torch.nan
    o = kernel.scores(h, c.a, f)
    assert torch.equal(o.isnan(), reference.scores(h, c.a, f).isnan())
    grad = c.theta.clone()
    grad[2, 3, 4] = torch.nan
    for order in ORDERS[1:]:  # a mean is a sum at a smaller rate
        moved, _ = kernel.step(c.theta, grad, c.theta, Descent(0.1, 0.6, 20, 1.0, order))
        expected, _ = reference.step(c.theta, grad, c.theta, Descent(0.1, 0.6, 20, 1.0, order))
        torch.testing.assert_close(moved, expected, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s.values())))
@pytest.mark.parametrize("autoassociative", [False, True], ids=["classifier", "autoassociative"])
@pytest.mark.parametrize("f", SMOOTH, ids=str)
def test_network(
    precision: tuple[ModuleType, torch.dtype, float],
    shape: dict,
    autoassociative: bool,
    f: Interaction,
    place: torch.device,
) -> None:
    kernel, dtype, most = precision
    c = case(**shape, device=place)
    network_agrees(kernel, c, f, dtype, most, autoassociative=autoassociative)


def test_untrained_memories_learn(
    precision: tuple[ModuleType, torch.dtype, float], place: torch.device
) -> None:
    """At n = 20 their slopes are near 1e-45: float64 keeps them, and so must mixed precision."""
    kernel, dtype, most = precision
    if dtype == torch.float32:
        pytest.skip("float32 cannot hold them")
    c = case(items=40, neurons=799, spread=0.1, device=place)
    dh, _ = reference.pull(c.h, c.a, Aim(c.target, c.share, SQUARED, RectifiedPolynomial(20)))
    assert float(dh.abs().max()) < 1e-35
    network_agrees(kernel, c, RectifiedPolynomial(20), dtype, most)


def test_rows_that_are_not_in_order(kernel: ModuleType, place: torch.device) -> None:
    c, f = case(items=30, device=place), LeakyRectifiedPolynomial(3)
    part = slice(3, 25)
    cut = c._replace(probe=c.probe[:, part], target=c.target[:, part], share=c.share[:, part])
    assert not cut.probe.is_contiguous()
    network_agrees(kernel, cut, f, torch.float64, TOLERANCE[torch.float64])


def test_items_may_be_prepared_for_another_kernel(
    precision: tuple[ModuleType, torch.dtype, float], place: torch.device
) -> None:
    """So whoever makes items need not know who reads them: it costs time alone."""
    kernel, dtype, most = precision
    c, f = case(items=40, device=place), LeakyRectifiedPolynomial(3)
    padded = torch.nn.functional.pad(c.probe.to(torch.bfloat16), (0, -c.probe.shape[-1] % 16))
    theta, scored = c.theta.to(dtype), slice(c.theta.shape[2] - c.a.shape[2], c.theta.shape[2])
    aim = Aim(c.target, c.share, SQUARED, f)
    expected = reference.gradient(c.theta, c.probe, 0.01, scored, aim)
    for probe in (c.probe, c.probe.float(), padded):
        found = kernel.gradient(theta, probe, 0.01, scored, aim)
        check(found.double(), expected, 2, most, dtype == torch.float32)
        h = kernel.product(probe, 0.01 * theta)
        check(h.double(), reference.product(c.probe, 0.01 * c.theta), 1, most, dtype == torch.float32)
