from __future__ import annotations

import numpy as np
import pytest
import torch

from engramma.models.associative import AssociativeMemory
from engramma.models.hopfield import RULES, Hopfield


def patterns(count: int, neurons: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array([-1, 1]), (count, neurons))


def test_hebbian_is_the_dense_memory_at_n_2() -> None:
    """W = sum x x' / N without its diagonal: scores are 4/N fields, energies differ by scale and M/N, and
    both come to the same states, in either order, also beyond capacity."""
    neurons, count = 40, 9
    states, probes = patterns(count, neurons), patterns(25, neurons, seed=1)
    dense, classical = AssociativeMemory(2, "polynomial"), Hopfield()
    dense.store(states)
    classical.store(states)
    torch.testing.assert_close(dense.scores(probes), 4 / neurons * classical.scores(probes))
    torch.testing.assert_close(dense.energy(probes), 2 / neurons * classical.energy(probes) - count / neurons)
    for order in ("synchronous", "asynchronous"):
        ours, theirs = dense.recall(probes, order=order), classical.recall(probes, order=order)
        assert torch.equal(ours.state, theirs.state)
        assert torch.equal(ours.steps, theirs.steps)
        assert torch.equal(ours.converged, theirs.converged)
    assert torch.equal(dense.is_stable(states), classical.is_stable(states))


def test_storkeys_rule_by_its_definition() -> None:
    neurons = 7
    states = patterns(3, neurons)
    weights = np.zeros((neurons, neurons))
    for x in states:
        fresh = weights.copy()
        for i in range(neurons):
            for j in range(neurons):
                if i != j:
                    others = [k for k in range(neurons) if k not in (i, j)]
                    hij = sum(weights[i, k] * x[k] for k in others)
                    hji = sum(weights[j, k] * x[k] for k in others)
                    fresh[i, j] += (x[i] * x[j] - x[i] * hji - hij * x[j]) / neurons
        weights = fresh
    network = Hopfield("storkey")
    network.store(states)
    torch.testing.assert_close(network.weights, torch.as_tensor(weights))
    torch.testing.assert_close(network.weights, torch.as_tensor(network.weights).mT)


def test_delta_presentation_moves_fields_to_the_pattern() -> None:
    """At a rate of N / (N - 1) one presentation makes the fields the pattern itself."""
    x = patterns(2, 20)
    network = Hopfield("delta", rate=20 / 19)
    network.store(x)
    torch.testing.assert_close(network.scores(x[1]), torch.as_tensor(x[1]).double())


def test_thermal_steps_only_where_wrong_and_less_where_far() -> None:
    states = patterns(30, 25)
    network = Hopfield("thermal", rate=0.5, temperature=0.7)
    network.store(states[:20])
    for x in states[20:]:
        before, field = torch.as_tensor(network.weights).clone(), network.scores(x)
        network.store(x)
        change = torch.as_tensor(network.weights) - before
        wrong = torch.as_tensor(x) * field <= 0
        assert bool(wrong.any())
        assert not bool(change[~wrong].any())
        size = 0.5 * torch.exp(-field.abs() / 0.7) / 25
        for i in wrong.nonzero()[:, 0].tolist():
            there = size[i] * x[i] * torch.as_tensor(x).double()
            there[i] = 0
            torch.testing.assert_close(change[i], there)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_stores_and_recalls(rule: str) -> None:
    states = patterns(4, 100)
    network = Hopfield(rule)
    network.learn(states)
    assert bool(network.is_stable(states).all())
    assert not bool(torch.as_tensor(network.weights).diagonal().any())
    probe, rng = states.copy(), np.random.default_rng(1)
    for row in probe:
        row[rng.permutation(100)[:4]] *= -1
    for order in ("synchronous", "asynchronous"):
        np.testing.assert_array_equal(network.recall(probe, order=order).state.numpy(), states)
    assert network.recall(probe[0]).state.shape == (100,)
    assert (network.energy(states) < network.energy(probe)).all()


def test_error_correcting_rules_hold_more_than_hebb() -> None:
    """At 0.4 N, where Hebbian weights have nothing left to recall."""
    states = patterns(40, 100)
    stable = {}
    for rule in ("hebbian", "delta", "thermal"):
        network = Hopfield(rule)
        network.learn(states, epochs=200)
        stable[rule] = float(network.is_stable(states).double().mean())
    print(stable)
    assert stable["hebbian"] < 0.1
    assert stable["delta"] == 1
    assert stable["thermal"] == 1


def test_storkey_holds_more_than_hebb() -> None:
    """At 0.3 N, one presentation each."""
    states = patterns(30, 100)
    stable = {}
    for rule in ("hebbian", "storkey"):
        network = Hopfield(rule)
        network.store(states)
        stable[rule] = float(network.is_stable(states).double().mean())
    assert stable["hebbian"] < 0.3
    assert stable["storkey"] > 0.9


def recalled(load: float, neurons: int, seeds: range) -> tuple[float, float]:
    """Share of patterns that recall leaves at an overlap of at least 0.9, and the mean overlap."""
    overlaps = []
    for seed in seeds:
        states = patterns(round(load * neurons), neurons, seed)
        network = Hopfield()
        network.store(states)
        end = network.recall(states, steps=100).state.numpy()
        overlaps.append((end * states).mean(1))
    found = np.concatenate(overlaps)
    return float((found >= 0.9).mean()), float(found.mean())


def test_hebbian_recall_breaks_down_at_the_classical_capacity() -> None:
    """N = 500. A load is held where nine patterns in ten are recalled, and where the mean overlap is at
    least 0.967, the theory's value at its critical load of 0.138 N (Amit et al. 1985): 0.12 N is held
    by both measures, 0.16 N by neither."""
    share, overlap = recalled(0.12, 500, range(5))
    assert share > 0.9
    assert overlap > 0.967
    share, overlap = recalled(0.16, 500, range(5))
    assert share < 0.9
    assert overlap < 0.967
    assert Hopfield.capacity(500) == pytest.approx(70)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="rule must be one of hebbian, storkey"):
        Hopfield("oja")
    with pytest.raises(ValueError, match="rate must be above 0"):
        Hopfield(rate=0)
    with pytest.raises(RuntimeError, match="the network is empty"):
        Hopfield().recall(patterns(1, 5))
    network = Hopfield()
    network.store(patterns(2, 10))
    with pytest.raises(ValueError, match="order must be"):
        network.recall(patterns(1, 10), order="random")
    with pytest.raises(ValueError, match="patterns must have 10 neurons"):
        network.store(patterns(2, 11))
    with pytest.raises(ValueError, match="epochs must be at least 1"):
        network.learn(patterns(2, 10), epochs=0)


def test_the_pseudo_inverse_stores_all_that_are_independent() -> None:
    """Exactly, at loads where Hebb's rule has nothing left; correlated ones too; in whatever portions."""
    states = patterns(90, 100)
    states[45:] = np.where(np.random.default_rng(2).random((45, 100)) < 0.3, -states[:45], states[:45])
    network = Hopfield("pseudo-inverse")
    network.store(states[:30])
    network.store(states[30:])
    network.store(states[:5])  # again: nothing changes
    assert bool(network.is_stable(states).all())
    x = states.astype(float).T
    projection = x @ np.linalg.pinv(x)
    np.testing.assert_allclose(network.weights, projection - np.diag(projection.diagonal()), atol=1e-9)
    hebb = Hopfield()
    hebb.store(states)
    assert not bool(hebb.is_stable(states).any())


def test_bounded_weights_stay_within_and_forget_the_oldest() -> None:
    """Parisi's palimpsest: 2 N patterns, where Hebb's rule recalls none; the last ones are kept."""
    neurons, states = 200, patterns(400, 200)
    network, hebb = Hopfield("bounded", bound=0.35), Hopfield()
    for part in np.split(states, 8):
        network.store(part)
        assert float(torch.as_tensor(network.weights).abs().max()) <= 0.35 / neurons**0.5 + 1e-15
    hebb.store(states)

    def overlap(net: Hopfield, some: np.ndarray) -> float:
        return float((net.recall(some).state.numpy() * some).mean())

    assert overlap(network, states[-4:]) > 0.95
    assert overlap(network, states[:200]) < 0.6
    assert overlap(hebb, states[-4:]) < 0.6


def test_unlearning_holds_more() -> None:
    """Hopfield, Feinstein and Palmer (1983): at 0.25 N, where Hebb's rule recalls little."""
    states = patterns(20, 80)
    network = Hopfield()
    network.store(states)
    before = network.recall(states).state.numpy()
    network.unlearn(dreams=60, rate=0.03)
    after = network.recall(states).state.numpy()
    assert (after * states).mean() > (before * states).mean() + 0.15
    weights = torch.as_tensor(network.weights)
    torch.testing.assert_close(weights, weights.mT)
    assert not weights.diagonal().any()


def test_dreaming_goes_from_hebb_to_the_pseudo_inverse() -> None:
    states = patterns(30, 80)
    found = {}
    for time in (0.0, 1.0, 1e9):
        network = Hopfield()
        network.store(states)
        network.dream(time)
        found[time] = torch.as_tensor(network.weights)
    hebb, projection = Hopfield(), Hopfield("pseudo-inverse")
    for network in (hebb, projection):
        network.store(states)
    torch.testing.assert_close(found[0.0], hebb.weights)
    torch.testing.assert_close(found[1e9], projection.weights, rtol=0, atol=1e-6)
    x = states.astype(float)  # as it is published: by the patterns' correlations
    kernel = 2 * np.linalg.inv(np.eye(30) + x @ x.T / 80)
    whole = x.T @ kernel @ x / 80
    np.testing.assert_allclose(found[1.0], whole - np.diag(whole.diagonal()), atol=1e-9)


def test_what_sleep_refuses() -> None:
    with pytest.raises(RuntimeError, match="the network is empty"):
        Hopfield().dream(1.0)
    network = Hopfield("storkey")
    network.store(patterns(2, 10))
    with pytest.raises(ValueError, match="rule must be hebbian for dream, not storkey"):
        network.dream(1.0)
    with pytest.raises(ValueError, match="rate must be above 0"):
        network.unlearn(3, rate=0)
    with pytest.raises(ValueError, match="bound must be above 0"):
        Hopfield("bounded", bound=0)
