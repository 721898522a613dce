from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engramma.models.energies import ENERGIES, Energy, Entmax, Epanechnikov, LogSumExp, Seen, entmax

EACH = [
    LogSumExp(0.7),
    Entmax(0.7),
    Entmax(0.7, alpha=2.0),
    Entmax(0.4, alpha=1.2),
    Entmax(0.4, alpha=3.0),
    Entmax(0.5, alpha=2.0, subset=3),
    Epanechnikov(0.15),
]


def drawn(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("energy", EACH, ids=str)
def test_slope_is_the_derivative(energy: Energy) -> None:
    memories, state = drawn(0, 9, 6), drawn(1, 20, 6).requires_grad_()
    (expected,) = torch.autograd.grad(energy.value(state, memories).sum(), state)
    torch.testing.assert_close(energy.slope(state.detach(), memories), expected)


@pytest.mark.parametrize("energy", EACH, ids=str)
def test_slope_is_the_difference(energy: Energy) -> None:
    """Without autograd, to which the weights of the update are constants."""
    memories, state, step = drawn(0, 9, 6), drawn(1, 20, 6), 1e-5
    for i in range(6):
        aside = step * torch.eye(6, dtype=torch.float64)[i]
        rise = energy.value(state + aside, memories) - energy.value(state - aside, memories)
        found = energy.slope(state, memories)[:, i]
        torch.testing.assert_close(found, rise / (2 * step), rtol=1e-5, atol=1e-5)


def test_log_sum_exp_is_attention() -> None:
    """PyTorch's own, with the memories as keys and values; and softmax by hand; to 1e-12."""
    memories, state = drawn(0, 40, 16), drawn(1, 7, 16)
    for beta in (0.25, 1.0, 8.0):
        ours = LogSumExp(beta).update(state, memories)
        theirs = torch.nn.functional.scaled_dot_product_attention(
            state[None], memories[None], memories[None], scale=beta
        )[0]
        weight = np.exp(beta * (state @ memories.mT).numpy())
        by_hand = (weight / weight.sum(1, keepdims=True)) @ memories.numpy()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        torch.testing.assert_close(ours, torch.as_tensor(by_hand), rtol=0, atol=1e-12)


def test_log_sum_exp_bears_any_similarity() -> None:
    memories = torch.ones(3, 1000, dtype=torch.float64)
    memories[1:] *= -1
    found = LogSumExp(10.0)
    torch.testing.assert_close(found.update(memories, memories), memories)
    assert found.value(memories, memories).isfinite().all()


@settings(deadline=None, max_examples=60)
@given(
    which=st.integers(0, len(EACH) - 1),
    seed=st.integers(0, 10**6),
    spread=st.floats(0.05, 4),
    rate=st.floats(0.05, 1),
)
def test_no_update_raises_the_energy(which: int, seed: int, spread: float, rate: float) -> None:
    """A theorem (each energy lies below a parabola that the update minimises), for part of the way too."""
    energy = EACH[which]
    memories, state = drawn(seed, 8, 5, scale=spread), drawn(seed + 1, 10, 5, scale=spread)
    for _ in range(6):
        before = energy.value(state, memories)
        state = state + rate * (energy.update(state, memories) - state)
        assert (energy.value(state, memories) <= before + 1e-9 * (1 + before.abs())).all()


def plain_entmax(z: np.ndarray, alpha: float, subset: int) -> np.ndarray:
    """One row, by a root of the sum of weights in t."""
    from scipy.optimize import brentq

    def p(t: float) -> np.ndarray:
        return np.clip((alpha - 1) * z - t, 0, 1) ** (1 / (alpha - 1))

    top = (alpha - 1) * np.sort(z)[::-1]
    t = brentq(lambda t: p(t).sum() - subset, top[subset - 1] - 1.5, top[0], xtol=1e-15, rtol=1e-15)
    return p(t)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([1.1, 1.5, 2.0, 2.5]),
    subset=st.integers(1, 4),
    scale=st.floats(0.01, 100),
)
def test_entmax_is_the_root(seed: int, alpha: float, subset: int, scale: float) -> None:
    z = scale * np.random.default_rng(seed).normal(size=(5, 12))
    found = entmax(torch.as_tensor(z), alpha, subset)
    expected = np.stack([plain_entmax(row, alpha, subset) for row in z])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-7)
    np.testing.assert_allclose(found.sum(1).numpy(), subset, rtol=1e-7)


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    """By sorting, as Martins and Astudillo (2016) have it."""
    z = drawn(0, 30, 12)
    for row, found in zip(z.numpy(), entmax(z, 2.0).numpy(), strict=True):
        falling = np.sort(row)[::-1]
        size = np.arange(1, 13)
        k = size[1 + size * falling > falling.cumsum()].max()
        np.testing.assert_allclose(found, np.maximum(row - (falling[:k].sum() - 1) / k, 0), atol=1e-12)


def test_entmax_approaches_the_softmax_and_bears_any_similarity() -> None:
    z = drawn(0, 6, 9)
    torch.testing.assert_close(entmax(z, 1.01), torch.softmax(z, -1), rtol=0.05, atol=0.02)
    for kind in (torch.float32, torch.float64):
        found = entmax((1e6 * z).to(kind))
        torch.testing.assert_close(found, torch.nn.functional.one_hot(z.argmax(1), 9).to(kind))


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("subset", [1, 3])
def test_autograd_goes_through_entmax(alpha: float, subset: int) -> None:
    z = drawn(3, 4, 7).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: entmax(z, alpha, subset), z)


def test_sparse_energies_recall_exactly_and_softmax_does_not() -> None:
    """At the same beta and from the same probes."""
    memories = drawn(0, 10, 30).sign()
    probe = memories + drawn(1, 10, 30, scale=0.5)
    for energy in (Entmax(0.2), Entmax(0.2, alpha=2.0), Epanechnikov(0.1)):
        torch.testing.assert_close(energy.update(probe, memories), memories, rtol=0, atol=1e-12)
    assert (LogSumExp(0.2).update(probe, memories) - memories).abs().max() > 1e-4


def test_a_subset_is_recalled_together() -> None:
    memories = drawn(0, 8, 60).sign()
    both = (memories[2] + memories[5]) / 2
    found = Entmax(1.0, alpha=2.0, subset=2).update(both[None] + drawn(1, 1, 60, scale=0.1), memories)
    torch.testing.assert_close(found[0], both, rtol=0, atol=1e-12)


def test_what_is_out_of_reach_stays() -> None:
    """Epanechnikov's is flat there, and a memory that is alone in reach is recalled from anywhere in it."""
    memories = torch.tensor([[0.0, 0.0], [10.0, 0.0]], dtype=torch.float64)
    energy = Epanechnikov(2.0)  # a reach of 1
    far, near = torch.tensor([[5.0, 3.0]]).double(), torch.tensor([[9.5, 0.8]]).double()
    assert torch.equal(energy.update(far, memories), far)
    assert torch.equal(energy.slope(far, memories), torch.zeros(1, 2).double())
    assert torch.equal(energy.update(near, memories), memories[1:])
    assert not energy.weights(Seen.of(far, memories)).any()
    assert energy.value(far, memories) > energy.value(near, memories)


@pytest.mark.parametrize("name", ENERGIES)
def test_bad_settings_are_named(name: str) -> None:
    for beta in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="beta must be a number above 0"):
            ENERGIES[name](beta)
    with pytest.raises(ValueError, match=r"alpha must be from 1.01 to 10, not 1; at 1 it is"):
        Entmax(1.0, alpha=1)
    with pytest.raises(ValueError, match="subset must be a whole number of at least 1"):
        Entmax(1.0, subset=0)
    with pytest.raises(ValueError, match="subset must be at most the number of memories, 3, not 4"):
        Entmax(1.0, subset=4).update(torch.ones(1, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="eps must lie between 0 and 1"):
        Epanechnikov(1.0, eps=0.0)
