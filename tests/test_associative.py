from __future__ import annotations

import runpy
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch

from engramma.models.associative import AssociativeMemory, capacity

EXAMPLE = Path(__file__).parents[1] / "examples" / "recall_against_load.py"


def patterns(count: int, neurons: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array([-1, 1]), (count, neurons))


def flipped(states: np.ndarray, flips: int, seed: int = 0) -> np.ndarray:
    rng, out = np.random.default_rng((seed, 7)), states.copy()
    for row in out:
        row[rng.permutation(states.shape[1])[:flips]] *= -1
    return out


def stored(count: int, neurons: int, vertex: float, interaction: str = "polynomial", seed: int = 0):
    memory, states = AssociativeMemory(vertex, interaction), patterns(count, neurons, seed)
    memory.store(states)
    return memory, states


def test_capacity_is_the_papers_formula() -> None:
    for n, odd in ((2, 1), (3, 3), (4, 15), (5, 105)):
        assert capacity(100, n) == pytest.approx(100 ** (n - 1) / (2 * odd * log(100)))
        assert AssociativeMemory.capacity(100, n) == capacity(100, n)
    with pytest.raises(ValueError, match="capacity needs"):
        capacity(100, 1)


def test_scores_and_energy_by_their_definition() -> None:
    """Every neuron clamped on and off, one at a time: its score is the energy it saves."""
    memory, states = stored(6, 12, 3, "leaky")
    probe = flipped(states, 3)
    for i in range(12):
        on, off = probe.copy(), probe.copy()
        on[:, i], off[:, i] = 1, -1
        torch.testing.assert_close(memory.scores(probe)[:, i], memory.energy(off) - memory.energy(on))
    overlap = torch.as_tensor(probe @ states.T).double() / 12
    there = -memory.interaction.value(overlap).sum(1)
    torch.testing.assert_close(memory.energy(probe), there)


@pytest.mark.parametrize("order", ["synchronous", "asynchronous"])
@pytest.mark.parametrize(("n", "interaction"), [(2, "polynomial"), (3, "rectified"), (4, "leaky")])
def test_stored_patterns_are_recalled_from_parts(order: str, n: int, interaction: str) -> None:
    memory, states = stored(5, 80, n, interaction)
    assert bool(memory.is_stable(states).all())
    probe = flipped(states, 8)
    assert not bool(memory.is_stable(probe).any())
    end = memory.recall(probe, order=order)
    np.testing.assert_array_equal(end.state.numpy(), states)
    assert bool(end.converged.all())
    single = memory.recall(probe[2], order=order)
    np.testing.assert_array_equal(single.state.numpy(), states[2])
    assert single.converged.shape == memory.energy(probe[2]).shape == memory.is_stable(probe[2]).shape == ()


@pytest.mark.parametrize(("n", "interaction"), [(2, "polynomial"), (3, "polynomial"), (3, "leaky")])
def test_asynchronous_recall_never_raises_the_energy(n: int, interaction: str) -> None:
    memory, _ = stored(30, 24, n, interaction)  # far beyond capacity, so that there is somewhere to fall
    state = torch.as_tensor(patterns(20, 24, seed=5))
    before = memory.energy(state)
    first = before.clone()
    for _ in range(20):
        state = memory.recall(state, steps=1, order="asynchronous").state
        assert (memory.energy(state) <= before + 1e-12).all()
        before = memory.energy(state)
    assert (before < first - 1e-6).all()
    assert bool(memory.is_stable(state).all())


def test_storing_adds() -> None:
    together, states = stored(6, 40, 3)
    apart = AssociativeMemory(3)
    apart.store(states[:4])
    apart.store(torch.as_tensor(states[4:]))
    torch.testing.assert_close(apart.energy(states), together.energy(states))


def test_learning_makes_patterns_attractors() -> None:
    """Algorithm 1: probes find back to what was learned. Learning a second set forgets the first."""
    memory, states = AssociativeMemory(3, "leaky", temperature=0.5), patterns(12, 40)
    memory.learn(states[:6], memories=24, epochs=150)
    assert bool(memory.is_stable(states[:6]).all())
    recalled = memory.recall(flipped(states[:6], 3)).state.numpy()
    assert (recalled == states[:6]).all(1).mean() > 0.8
    old = memory.memories
    memory.learn(states[6:], epochs=150)
    assert torch.as_tensor(memory.memories).shape == torch.as_tensor(old).shape == (24, 40)
    assert memory.is_stable(states[6:]).double().mean() > 0.6
    assert memory.is_stable(states[:6]).double().mean() < 0.3


def stable_share(count: int, neurons: int, vertex: int, tested: int, seed: int) -> float:
    memory, states = stored(count, neurons, vertex, seed=seed)
    return float(memory.is_stable(states[:tested]).double().mean())


def measured_capacity(
    neurons: int, vertex: int, tested: int = 80, seeds: int = 4, halvings: int = 7
) -> float:
    """The number of random patterns at which half of them are stable: every neuron, after an update."""
    low, high = 0.5 * capacity(neurons, vertex), 4 * capacity(neurons, vertex)
    for _ in range(halvings):
        middle = (low * high) ** 0.5
        shares = [stable_share(round(middle), neurons, vertex, tested, seed) for seed in range(seeds)]
        low, high = (middle, high) if np.mean(shares) >= 0.5 else (low, middle)
    return (low * high) ** 0.5


def test_three_body_capacity_grows_as_its_theory() -> None:
    """K ln N / N^2 is the same within 30 % at N = 40 and at N = 80; K / N, as of a network with n = 2,
    would differ by more."""
    small, large = measured_capacity(40, 3), measured_capacity(80, 3)
    scaled = [k * log(n) / n**2 for k, n in ((small, 40), (large, 80))]
    assert max(scaled) / min(scaled) < 1.3
    assert (large / 80) / (small / 40) > 1.4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_body_capacity_from_50_to_200_neurons() -> None:
    found = {n: measured_capacity(n, 3, tested=150) for n in (50, 100, 200)}
    scaled = {n: k * log(n) / n**2 for n, k in found.items()}
    print(found, scaled)
    assert max(scaled.values()) / min(scaled.values()) < 1.3


def test_bad_input_is_named() -> None:
    memory, states = stored(3, 20, 2)
    with pytest.raises(ValueError, match="patterns must be -1 and \\+1"):
        memory.store(np.zeros((2, 20)))
    with pytest.raises(ValueError, match="state must have 20 neurons, not 19"):
        memory.recall(states[:, 1:])
    with pytest.raises(ValueError, match="patterns must have 20 neurons, not 19"):
        memory.store(states[:, 1:])
    with pytest.raises(ValueError, match="order must be synchronous or asynchronous"):
        memory.recall(states, order="random")
    with pytest.raises(ValueError, match="interaction must be one of leaky"):
        AssociativeMemory(2, "cubic")
    with pytest.raises(RuntimeError, match="the memory is empty"):
        AssociativeMemory().energy(states)


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    """At half the theory's capacity nearly all are recalled, at five times it hardly any."""
    example = runpy.run_path(str(EXAMPLE))
    curves = {n: example["curve"](n, 40, np.array([0.5, 5.0]), 20, 3) for n in (2, 3)}
    for low, high in curves.values():
        assert low.exact > 0.9
        assert high.exact < 0.2
    example["draw"](curves, 40, tmp_path / "deep" / "figure.png")
    assert (tmp_path / "deep" / "figure.png").read_bytes()[:4] == b"\x89PNG"
