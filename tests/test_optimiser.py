from __future__ import annotations

from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for, reference
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser, per_replica, temperature


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(visible: int, kernel: ModuleType = reference) -> DenseMemory:
    """Of eight neurons, so many of them visible."""
    return DenseMemory(8, 8 - visible, LeakyRectifiedPolynomial(2), kernel=kernel)


def transcribed(theta, grads, visible: int, rates, momentum: float, clamp: float | None):
    """The step of the authors' package, one memory at a time."""
    theta, velocity = theta.clone(), torch.zeros_like(theta)
    for epoch, grad in enumerate(grads):
        for r in range(len(theta)):
            for m in range(theta.shape[1]):
                velocity[r, m] = momentum * velocity[r, m] + grad[r, m]
                for part in (slice(0, visible), slice(visible, None)):
                    v = velocity[r, m, part]
                    if len(v):
                        theta[r, m, part] -= rates[r][epoch] * v / v.abs().max()
                if clamp is not None:
                    theta[r, m, :visible].clamp_(-clamp, clamp)
    return theta


@pytest.mark.parametrize("visible", [5, 8])  # 8: no class neurons, one part
@pytest.mark.parametrize("clamp", [None, 0.4])
def test_step(visible: int, clamp: float | None, device, dtype, near) -> None:
    theta, grads = 0.3 * random(2, 3, 8), random(4, 2, 3, 8, seed=1)
    optimiser = Optimiser((0.1, 0.2), decay=0.9, momentum=0.6, clamp=clamp, normalise="velocity")
    at, velocity = theta.to(device, dtype), optimiser.start(theta.to(device, dtype))
    for epoch, grad in enumerate(grads, 1):
        at, velocity = optimiser.step(at, grad.to(device, dtype), velocity, epoch, network(visible))
    rates = [[rate * 0.9**epoch for epoch in range(1, 5)] for rate in (0.1, 0.2)]
    expected = transcribed(theta, grads, visible, rates, 0.6, clamp)
    torch.testing.assert_close(at, expected.to(device, dtype), **near)
    if clamp is not None and visible < 8:
        assert at[..., visible:].abs().max() > clamp  # class weights are free


@pytest.mark.parametrize("kernel", ["reference", "auto"])
@pytest.mark.parametrize("order", ["mean", "gradient"])
def test_gradients_can_be_scaled_before_they_enter_the_velocity(
    order: str, kernel: str, device, dtype, near
) -> None:
    theta, grads, visible = 0.3 * random(2, 3, 8), random(4, 2, 3, 8, seed=1), 5
    rule = {"decay": 0.9, "momentum": 0.6, "clamp": 0.4}
    optimiser = Optimiser(0.1, **rule, normalise=order)
    at, velocity = theta.to(device, dtype), optimiser.start(theta.to(device, dtype))
    expected, v = theta.clone(), torch.zeros_like(theta)
    for epoch, grad in enumerate(grads, 1):
        at, velocity = optimiser.step(
            at, grad.to(device, dtype), velocity, epoch, network(visible, kernel_for(device, kernel))
        )
        for r, m in [(r, m) for r in range(2) for m in range(3)]:
            v[r, m] = 0.6 * v[r, m] + (0.4 if order == "mean" else 1) * over_largest(grad[r, m], visible)
            expected[r, m] -= 0.1 * 0.9**epoch * v[r, m]
        expected[..., :visible].clamp_(-0.4, 0.4)
    torch.testing.assert_close(at, expected.to(device, dtype), **near)


def over_largest(row: Tensor, visible: int) -> Tensor:
    return torch.cat([part / part.abs().max() for part in (row[:visible], row[visible:])])


@pytest.mark.parametrize("order", ["mean", "velocity", "gradient"])
def test_what_a_step_meant_is_what_it_did_but_for_the_clamp(order: str) -> None:
    theta, grads = 0.3 * random(2, 3, 8), random(4, 2, 3, 8, seed=1)
    optimiser, active = Optimiser((0.1, 0.4), clamp=0.4, normalise=order), torch.tensor([True, False])
    velocity, pressed = optimiser.start(theta), 0
    for epoch, grad in enumerate(grads, 1):
        where = epoch, network(5), active if epoch == 3 else None
        moved, velocity = optimiser.step(theta, grad, velocity, *where)
        there = theta + optimiser.meant(theta, velocity, *where)
        pressed += int((there[..., :5].abs() > 0.4).sum())
        torch.testing.assert_close(torch.cat([there[..., :5].clamp(-0.4, 0.4), there[..., 5:]], -1), moved)
        theta = moved
    assert pressed > 0


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ValueError, match="normalise must be one of mean, velocity, gradient, not 'neither'"):
        Optimiser(normalise="neither")


@given(seed=st.integers(0, 999), scale=st.floats(1e-40, 1e40))
def test_the_step_forgives_scale(seed: int, scale: float) -> None:
    theta, grad = 0.1 * random(2, 3, 8, seed=seed), random(2, 3, 8, seed=seed + 1)
    plain, scaled = (
        Optimiser().step(theta, g, torch.zeros_like(theta), 1, network(5))[0] for g in (grad, scale * grad)
    )
    torch.testing.assert_close(plain, scaled)


def test_memories_that_nothing_pulls_at_rest() -> None:
    theta, grad = 0.1 * random(1, 3, 8), random(1, 3, 8, seed=1)
    grad[:, 1] = 0
    grad[:, 2, :5] = 0
    moved, _ = Optimiser().step(theta, grad, torch.zeros_like(theta), 1, network(5))
    assert torch.equal(moved[:, 1], theta[:, 1])
    assert torch.equal(moved[:, 2, :5], theta[:, 2, :5])
    assert (moved[:, 0] != theta[:, 0]).any()
    assert (moved[:, 2, 5:] != theta[:, 2, 5:]).any()


def test_a_gradient_that_is_no_number_is_not_hidden() -> None:
    theta, grad = random(1, 2, 8), random(1, 2, 8, seed=1)
    grad[0, 0, 3] = float("nan")
    moved, _ = Optimiser().step(theta, grad, torch.zeros_like(theta), 1, network(5))
    assert moved[0, 0].isnan().any()
    assert moved[0, 1].isfinite().all()


def test_schedules_are_algorithm_ones() -> None:
    theta = torch.zeros(2, 1, 1, dtype=torch.float64)
    optimiser = Optimiser(0.08, 0.999, initial_temperature=(0.9, 0.5), final_temperature=(0.5, 0.5), epochs=8)
    assert optimiser.rate(1, theta) == 0.08 * 0.999
    assert optimiser.rate(8, theta) == 0.08 * 0.999**8
    for epoch in (1, 4, 8):
        expected = [1 / (0.9 + (0.5 - 0.9) * epoch / 8), 2.0]
        assert optimiser.beta(epoch, theta).flatten().tolist() == pytest.approx(expected)  # type: ignore[union-attr]
    constant = Optimiser(initial_temperature=0.95, final_temperature=0.95)
    assert constant.beta(77, theta) == pytest.approx(1 / 0.95)


def test_replicas_without_items_rest() -> None:
    theta, grad, velocity = random(2, 3, 8), random(2, 3, 8, seed=1), random(2, 3, 8, seed=2)
    active = torch.tensor([True, False])
    moved, fresh = Optimiser().step(theta, grad, velocity, 1, network(5), active)
    assert torch.equal(moved[1], theta[1])
    assert torch.equal(fresh[1], velocity[1])
    both, _ = Optimiser().step(theta, grad, velocity, 1, network(5))
    assert torch.equal(moved[0], both[0])


def test_nothing_is_changed_in_place() -> None:
    given = [0.1 * random(2, 3, 8, seed=s) for s in range(3)]
    before = [t.clone() for t in given]
    Optimiser(clamp=0.01).step(given[0], given[1], given[2], 1, network(5))
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


def test_one_value_a_replica() -> None:
    theta = torch.zeros(3, 2, 2)
    assert per_replica(2, theta) == 2.0
    assert per_replica((1.0, 2.0, 3.0), theta).shape == (3, 1, 1)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="2 values given for 3 replicas"):
        per_replica((1.0, 2.0), theta)


@pytest.mark.parametrize("n", [2.0, 5.0, 30.0])
@pytest.mark.parametrize("decay", [0.999, 0.9])
def test_the_law_of_temperature_is_its_equation(n: float, decay: float) -> None:
    """T^n is 0.73^n n/4 K/512 (W + 7)/W_0 794/N, and W = rate sum_e decay^e a geometric series."""

    def reach(rate: float, decay: float, epochs: int) -> float:
        return rate * decay * (1 - decay**epochs) / (1 - decay)

    for memories, neurons, rate, epochs in [(512, 794, 0.1, 500), (20, 74, 0.03, 60), (1000, 1, 1.0, 1)]:
        share = (reach(rate, decay, epochs) + 7) / reach(0.1, 0.999, 500)
        to_the_n = 0.73**n * n / 4 * memories / 512 * share * 794 / neurons
        assert temperature(n, memories, neurons, rate, decay, epochs) ** n == pytest.approx(to_the_n)
