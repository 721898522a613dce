"""Diagnostics on networks made by hand, where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engramma import diagnostics
from engramma.diagnostics import Basins
from engramma.interactions import LeakyRectifiedPolynomial, Polynomial
from engramma.methods import METHODS, Now
from engramma.network import DenseMemory, Items, Relaxed
from engramma.replicas import Replicas
from engramma.streams import StateStream


def items_of(states: np.ndarray, labels: list[int], classes: int, task: int = 0) -> Items:
    """Class items: visible states (B,V), class neurons at -1."""
    probe = np.concatenate([states, -np.ones((len(states), classes))], 1)
    target = -np.ones((len(states), classes))
    target[np.arange(len(states)), labels] = 1
    ids = (task << 32) + torch.arange(len(states))[None]
    return Items(*(torch.as_tensor(x)[None] for x in (probe, target, np.ones(len(states)))), ids)


def stored(states: np.ndarray, labels: list[int], classes: int) -> np.ndarray:
    """One memory an item: the item itself, its class weights 3 for its own class and -3 elsewhere."""
    weights = -3 * np.ones((len(states), classes))
    weights[np.arange(len(states)), labels] = 3
    return np.concatenate([states, weights], 1)


@pytest.fixture
def patterns() -> np.ndarray:
    """Eight orthogonal states of 64 neurons."""
    walsh = np.array([[1.0]])
    for _ in range(6):
        walsh = np.block([[walsh, walsh], [walsh, -walsh]])
    return walsh[[3, 5, 6, 9, 10, 12, 17, 18]]


@pytest.fixture
def two_tasks(patterns):
    """Memories 0-3 store task 0, 4-7 task 1, and memory 8 is blank."""
    labels = [0, 1, 2, 3]
    tasks = [items_of(patterns[:4], labels, 4), items_of(patterns[4:], labels, 4, task=1)]
    theta = np.concatenate([stored(patterns, labels * 2, 4), np.zeros((1, 68))])
    network = DenseMemory(68, 4, LeakyRectifiedPolynomial(8, leak=0.0))
    return network, torch.as_tensor(theta)[None], tasks


def test_supports_add_up_to_the_margin(two_tasks):
    network, theta, tasks = two_tasks
    theta = theta + torch.randn(2, *theta.shape[1:], dtype=theta.dtype, generator=torch.manual_seed(1)) * 0.2
    network = DenseMemory(68, 4, LeakyRectifiedPolynomial(3))
    scores, target = network.scores(theta, tasks[0].probe), tasks[0].target
    mine = (scores * (target > 0)).sum(-1)
    others = (scores * (target < 0)).sum(-1) / 3
    torch.testing.assert_close(diagnostics.support(network, theta, tasks[0]).sum(-1), mine - others)


def test_supports_of_an_autoassociative_memory_add_up_to_target_times_score():
    stream = StateStream(Replicas((4,)), tasks=1, items=5, size=20)
    network = DenseMemory(20, 0, Polynomial(3), autoassociative=True)
    theta = torch.randn(2, 6, 20, dtype=torch.float64, generator=torch.manual_seed(2))
    items = stream[0].train
    expected = (network.scores(theta, items.probe) * items.target).mean(-1)
    torch.testing.assert_close(diagnostics.support(network, theta, items).sum(-1), expected)


def test_every_memory_is_owned_by_the_task_it_stores(two_tasks):
    network, theta, tasks = two_tasks
    owned = diagnostics.ownership(network, theta, tasks)
    assert owned.owner[0].tolist() == [0] * 4 + [1] * 4 + [-1]
    assert owned.favourite[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, -1]
    torch.testing.assert_close(owned.share[0, :8].sum(-1), torch.ones(8, dtype=theta.dtype))
    assert owned.share[0, 8].sum() == 0
    torch.testing.assert_close(owned.strength.sum(-1), torch.ones(1, dtype=theta.dtype))


def test_shares_are_of_mean_supports_and_favourites_of_summed_ones(two_tasks, patterns):
    """By their definition, of memories that serve everybody a little, and tasks of unequal numbers of items,
    one of which is padding."""
    network, theta, (first, second) = two_tasks
    network = DenseMemory(68, 4, LeakyRectifiedPolynomial(2))
    theta = theta + torch.randn(2, *theta.shape[1:], dtype=theta.dtype, generator=torch.manual_seed(3)) * 0.5
    second = second.row(slice(0, 3))
    second = second._replace(weight=torch.tensor([[1.0, 1.0, 0.0]], dtype=theta.dtype))
    owned = diagnostics.ownership(network, theta, [first, second])
    means = [diagnostics.support(network, theta, first).clamp(min=0).sum(1) / 4]
    means.append(diagnostics.support(network, theta, second).clamp(min=0).sum(1) / 2)
    by_task = torch.stack(means, -1)
    torch.testing.assert_close(owned.share, by_task / by_task.sum(-1, keepdim=True))
    assert torch.equal(owned.owner, by_task.argmax(-1))
    torch.testing.assert_close(owned.strength, by_task.sum(-1) / by_task.sum((1, 2))[:, None])
    by_class = sum(
        torch.einsum("rbm,rbc->rmc", diagnostics.support(network, theta, items).clamp(min=0) / count,
                     (items.expand(2).target > 0).double())
        for items, count in ((first, 4), (second, 2))
    )  # fmt: skip
    assert torch.equal(owned.favourite, torch.as_tensor(by_class).argmax(-1))


def test_an_overwritten_memory_changes_owner(two_tasks):
    network, theta, tasks = two_tasks
    theta[0, 0] = theta[0, 4]
    assert diagnostics.ownership(network, theta, tasks).owner[0, :5].tolist() == [1, 0, 0, 0, 1]


def test_padding_supports_nothing(two_tasks):
    network, theta, tasks = two_tasks
    nothing = [t._replace(weight=torch.zeros_like(t.weight)) for t in tasks]
    assert (diagnostics.ownership(network, theta, nothing).owner == -1).all()


def test_stored_items_are_prototypes(two_tasks):
    network, theta, tasks = two_tasks
    found = diagnostics.prototypes(network, theta, tasks[0])
    torch.testing.assert_close(found.index, torch.ones(1, dtype=theta.dtype), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.participation, torch.ones(1, dtype=theta.dtype), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.likeness[0, :4], torch.ones(4, dtype=theta.dtype))
    assert found.likeness[0, 4:].abs().max() < 1e-9  # orthogonal to every item of this task


def test_equal_shares_are_features(patterns):
    items = items_of(patterns[:1], [0], 4)
    theta = torch.as_tensor(np.repeat(stored(patterns[:1], [0], 4), 10, 0))[None]
    network = DenseMemory(68, 4, LeakyRectifiedPolynomial(2))
    found = diagnostics.prototypes(network, theta, items)
    assert found.index.item() == pytest.approx(0.1)
    assert found.participation.item() == pytest.approx(10)


def test_a_larger_vertex_is_nearer_to_prototypes(patterns):
    """Two memories of one class, each a little like the other's item: the power alone tells them apart."""
    items = items_of(patterns[:2], [0, 0], 4)
    theta = torch.as_tensor(stored(patterns[:2] + 0.6 * patterns[[1, 0]], [0, 0], 4))[None]
    index = [
        diagnostics.prototypes(
            DenseMemory(68, 4, LeakyRectifiedPolynomial(n, 0.0)), theta, items
        ).index.item()
        for n in (2, 5, 10, 20)
    ]
    assert index == sorted(index)
    assert index[0] == pytest.approx(1 / 1.6, abs=0.05)  # nearly proportional to the similarity itself
    assert index[-1] > 0.99


def hopfield(states: np.ndarray) -> tuple[DenseMemory, torch.Tensor, list[Items]]:
    network = DenseMemory(states.shape[1], 0, Polynomial(2), autoassociative=True)
    replicas = Replicas((0,))
    stream = StateStream(replicas, states=states[None].astype(int))
    return network, torch.as_tensor(states)[None], [stream[0].train]


def random_states(count: int, size: int) -> np.ndarray:
    return np.random.default_rng(5).choice([-1.0, 1.0], (count, size))


def test_census_tells_true_from_mixed_from_spurious():
    """Hopfield 1982: the states, the majority of three of them, and every state's mirror image."""
    states = random_states(3, 200)
    network, theta, tasks = hopfield(states)
    mixture = np.sign(states.sum(0))
    probes = torch.as_tensor(np.stack([*states, mixture, -states[0]]))[None]
    found = diagnostics.census(network, theta, probes, tasks, near=0.02)[0]
    assert found.converged == found.probes == 5
    kinds = {tuple(s): k for s, k in zip(found.states.tolist(), found.kind.tolist(), strict=True)}
    for state in states:
        assert kinds[tuple(state.astype(int).tolist())] == "true"
    assert kinds[tuple(mixture.astype(int).tolist())] == "mixed"
    assert kinds[tuple((-states[0]).astype(int).tolist())] == "spurious"
    columns = found.columns()
    assert (columns["true"], columns["mixed"], columns["spurious"]) == (0.6, 0.2, 0.2)
    assert columns["unsettled"] == 0
    attractors = [columns[f"{kind}_attractors"] for kind in diagnostics.KINDS]
    assert attractors == [3, 1, 1]
    assert columns["basin"] is None  # nobody asked


def test_census_names_the_task_of_an_attractor(two_tasks):
    network, theta, tasks = two_tasks
    probes = torch.as_tensor(diagnostics.whole(network, Items.join(*tasks))).double()
    found = diagnostics.census(network, theta, probes, tasks, near=0.0)[0]
    assert sorted(found.task.tolist()) == [0] * 4 + [1] * 4
    assert set(found.kind) == {"true"}


def test_probes_that_never_settle_are_unsettled():
    """Two neurons that each copy the negative of the other: synchronously they blink for ever."""
    network = DenseMemory(2, 0, Polynomial(2), autoassociative=True)
    theta = torch.tensor([[[1.0, -1.0]]], dtype=torch.float64)
    items = StateStream(Replicas((0,)), states=np.array([[[1, -1]]]), flips=0)[0].train
    probes = torch.tensor([[[1.0, 1.0], [1.0, -1.0]]], dtype=torch.float64)
    found = diagnostics.census(network, theta, probes, [items], steps=7)[0]
    assert (found.probes, found.converged) == (2, 1)
    assert found.columns()["unsettled"] == 0.5


def test_basin_of_a_lone_memory_is_half_the_states():
    """With one memory and n = 2 a probe returns exactly if fewer than half its neurons are turned."""
    network, theta, tasks = hopfield(random_states(1, 41))
    shares = [0.1, 0.3, 0.45, 0.55, 0.7]
    found = diagnostics.census(network, theta, theta.clone(), tasks, basins=Basins(shares, trials=5))[0]
    assert found.basin.tolist() == [0.45]


def test_half_of_the_probes_are_enough_for_a_basin():
    class Fickle(DenseMemory):
        """Of several probes every `loyal`th returns; the others end elsewhere."""

        loyal = 1

        def relax(self, *args: Any, **options: Any) -> Relaxed:
            rest = super().relax(*args, **options)
            for probe in range(1, rest.state.shape[1]):
                if probe % self.loyal:
                    rest.state[:, probe] *= -1
            return rest

    _, theta, tasks = hopfield(random_states(1, 41))
    network = Fickle(41, 0, Polynomial(2), autoassociative=True)
    for Fickle.loyal, basin in ((1, 0.3), (2, 0.3), (4, 0.0)):  # four of four, two, one
        found = diagnostics.census(network, theta, theta.clone(), tasks, basins=Basins([0.3, 0.1], trials=4))
        assert found[0].basin.tolist() == [basin]
        assert found[0].columns()["basin"] == basin


def test_a_census_has_each_replica_at_its_own_temperature():
    states = random_states(4, 40)
    _, theta, tasks = hopfield(states)
    betas = torch.tensor([0.5, 3.0], dtype=torch.float64)
    network = DenseMemory(40, 0, LeakyRectifiedPolynomial(3), autoassociative=True)
    probes, shares = diagnostics.random_probes(network, 20, np.random.default_rng(1)), [0.1, 0.3]
    both = theta.expand(2, -1, -1).contiguous()
    together = diagnostics.census(
        network.at(betas), both, probes, tasks, basins=Basins(shares, rng=np.random.default_rng(2))
    )
    rng = np.random.default_rng(2)
    for beta, found in zip(betas, together, strict=True):
        one = network.at(float(beta))
        (alone,) = diagnostics.census(one, theta, probes, tasks, basins=Basins(shares, rng=rng))
        for a, b in zip(found, alone, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_crowded_network_has_smaller_basins():
    few, many = random_states(2, 100), random_states(9, 100)
    basins = []
    for states in (few, many):
        network, theta, tasks = hopfield(states)
        probes = torch.as_tensor(few)[None]
        asked = Basins(np.linspace(0.05, 0.45, 9).tolist(), trials=20)
        found = diagnostics.census(network, theta, probes, tasks, basins=asked)
        basins.append(np.nanmax(found[0].basin))
    assert basins[0] > basins[1]


def test_census_of_each_replica_is_its_own():
    first, second = random_states(2, 60), -random_states(4, 60)[2:]
    network, _, tasks = hopfield(first)
    theta = torch.as_tensor(np.stack([first, second]))
    together = diagnostics.census(network, theta, torch.as_tensor(first)[None], tasks, near=0.0)
    alone = diagnostics.census(network, theta[1:], torch.as_tensor(first)[None], tasks, near=0.0)
    assert set(together[0].kind) == {"true"}
    assert "true" not in together[1].kind
    for a, b in zip(together[1], alone[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_coverage_counts_classes_and_finds_the_kept_items(two_tasks, patterns):
    network, _, tasks = two_tasks
    kept = Items.join(tasks[0].row(slice(0, 2)), tasks[1].row(slice(1, 2)))
    found = diagnostics.coverage(network, kept, tasks)
    assert found.count[0].tolist() == [[1, 1, 0, 0], [0, 1, 0, 0]]
    assert found.overlap[0, 0, :2].tolist() == [1, 1]  # the items themselves were kept
    assert found.overlap[0, 1, 1] == 1
    assert found.overlap[0, 1, 0] == pytest.approx(0, abs=1e-9)  # kept of task 0 only, orthogonal to task 1's
    assert found.overlap[0, :, 2:].isnan().all()


def test_coverage_leaves_out_what_carries_no_weight(two_tasks):
    network, _, tasks = two_tasks
    kept = tasks[0]._replace(weight=torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64))
    assert diagnostics.coverage(network, kept, tasks).count[0, 0].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_kept_items_of_every_method(name, two_tasks):
    network, theta, tasks = two_tasks
    method = METHODS[name]()
    if method.strength_name == "proportion":
        method = METHODS[name](proportion=0.5)  # type: ignore[call-arg]
    from engramma.streams import Task

    now = Now(network, Task(0, tasks[0], tasks[0]), 1, 0, Replicas((3,)))
    state, _, theta = method.awaken(method.start(theta), now, theta)
    kept = diagnostics.kept_items(method.consolidate(state, now, theta))
    if method.strength_name == "proportion" and name != "dreams":  # made up for each task anew, not kept
        assert kept is not None
        assert kept.probe.shape[1] == 2
    else:
        assert kept is None
