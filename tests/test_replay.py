"""Rehearsal and pseudorehearsal: what is kept, and what is trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial, Polynomial, RectifiedPolynomial
from engramma.methods import Now, Pseudorehearsal, Rehearsal
from engramma.network import DenseMemory
from engramma.replicas import Replicas
from engramma.streams import StateStream
from engramma.train import Batches

REPLICAS = Replicas((4, 9))


@pytest.fixture
def world(make_stream, make_network, device, dtype):
    """A stream of five tasks of 40 items (32 to train on), a network and memories."""
    stream = make_stream(REPLICAS, tasks=5, items=40)
    network = make_network(stream, LeakyRectifiedPolynomial(3))
    return stream, network, REPLICAS.memories(6, stream.neurons, 1.0, device=device, dtype=dtype)


def lived(method, world, tasks: int, epoch: int = 1) -> tuple:
    """The state after some tasks, and where the loop stands in the next."""
    stream, network, theta = world
    state = method.start(theta)
    for index in range(tasks):
        state = method.consolidate(state, Now(network, stream[index], 1, 0, REPLICAS), theta)
    return state, Now(network, stream[tasks], epoch, 0, REPLICAS)


def test_rehearsal_keeps_the_first_share_of_every_task(world) -> None:
    stream = world[0]
    state, now = lived(Rehearsal(0.25), world, 3)
    found = Rehearsal(0.25).rehearse(state, now)
    assert found is state.items  # one and the same all through a task, so that batches are made once
    assert state.sizes.tolist() == [8, 8, 8]
    for index in range(3):
        kept, train = found.row(slice(8 * index, 8 * index + 8)), stream[index].train
        assert torch.equal(kept.probe, train.probe[:, :8])
        assert torch.equal(kept.target, train.target[:, :8])
        assert torch.equal(kept.ids, train.ids[:, :8])


def test_proportion_one_is_everything(world) -> None:
    state, _ = lived(Rehearsal(1.0), world, 2)
    assert torch.equal(state.items.ids[:, :32], world[0][0].train.ids)
    assert torch.equal(state.items.probe[:, 32:], world[0][1].train.probe)


def test_proportions_of_replicas(world) -> None:
    state, _ = lived(Rehearsal((0.25, 0.5)), world, 2)
    assert state.items.weight.sum(1).tolist() == [16, 32]
    alone, _ = lived(Rehearsal(0.25), world, 2)
    mine = state.items.weight[0] > 0
    assert torch.equal(state.items.ids[0, mine], alone.items.ids[0])


def test_buffer_and_task_are_shuffled_together_and_seen_once(world) -> None:
    state, now = lived(Rehearsal(0.25), world, 2)
    joined = type(state.items).join(now.task.train, state.items)
    batches = list(Batches(joined, 32, REPLICAS).epoch(2, 1))
    assert [batch.probe.shape[1] for batch, _ in batches] == [32, 16]
    ids = torch.cat([batch.ids for batch, _ in batches], 1)
    assert torch.equal(ids.sort(1).values, joined.ids.sort(1).values)
    old = [int((batch.ids >> 32 < 2).sum()) for batch, _ in batches]
    assert min(old) > 0  # old items in both batches


@pytest.mark.parametrize("method", [Rehearsal(capacity=20), Pseudorehearsal(capacity=20)], ids=repr)
def test_a_fixed_total_is_shared_by_the_tasks_so_far(method, world) -> None:
    for tasks, each in ((1, 20), (2, 10), (3, 6), (4, 5)):
        state, now = lived(method, world, tasks)
        found = method.rehearse(state, now)
        assert state.sizes.tolist() == [each] * tasks
        assert found.probe.shape[1] == each * tasks <= 20
        of_task = [int((found.ids[0] >> 32 == index).sum()) for index in range(tasks)]
        assert of_task == [each] * tasks
    if isinstance(method, Rehearsal):
        assert torch.equal(found.ids[:, 5:10], world[0][1].train.ids[:, :5])


def test_sweep_is_a_new_sample_every_epoch(world) -> None:
    method = Rehearsal(0.5, sweep=10)
    drawn = []
    for epoch in range(1, 9):
        state, now = lived(method, world, 2, epoch)
        found = method.rehearse(state, now)
        assert found.probe.shape[1] == 10
        for row, all_ids in zip(found.ids.tolist(), state.items.ids.tolist(), strict=True):
            assert len(set(row)) == 10
            assert set(row) <= set(all_ids)
        place = {number: i for i, number in enumerate(state.items.ids[0].tolist())}
        first = [place[number] for number in found.ids[0].tolist()]
        assert torch.equal(found.probe[0], state.items.probe[0, first])  # parts stay together
        again = method.rehearse(*lived(method, world, 2, epoch))
        assert torch.equal(found.ids, again.ids)
        drawn.append(found.ids)
    assert len(torch.stack(drawn).flatten(1).unique(dim=0)) == 8
    assert len(torch.cat(drawn, 1)[0].unique()) > 28  # in time, nearly all of the 32 are swept
    all_of_it = Rehearsal(0.5, sweep=1_000)
    assert all_of_it.rehearse(*lived(all_of_it, world, 2)).probe.shape[1] == 32


def transcribed(network: DenseMemory, theta: Tensor, count: int, task: int, steps: int = 10) -> tuple:
    """Random bipolar states of every seed, and what they relax to, neuron by neuron."""
    probes = REPLICAS.draw(
        lambda g: g.integers(0, 2, (count, network.neurons), dtype=np.int8) * 2 - 1, "probes", task
    )
    state = torch.as_tensor(probes).to(theta)
    begin = state.clone()
    for _ in range(steps):
        o = torch.cat([network.scores(theta, state, slice(i, i + 1)) for i in range(network.neurons)], -1)
        state = torch.where(o == 0, state, o.sign())
    return begin, state


@pytest.mark.parametrize("label", ["strongest", "relaxed"])
@pytest.mark.parametrize("pairs", ["homogeneous", "heterogeneous"])
def test_pseudo_items(pairs: str, label: str, world) -> None:
    """Homogeneous: the relaxed state. Heterogeneous: the random one, with the label it relaxed to. As probes,
    neither knows its class."""
    _, network, theta = world
    state, _ = lived(Pseudorehearsal(0.5, pairs=pairs, label=label), world, 2)
    for task in range(2):
        begin, rest = transcribed(network, theta, 16, task)
        found = state.items.row(slice(16 * task, 16 * task + 16))
        expected = rest if pairs == "homogeneous" else begin
        assert torch.equal(found.probe[..., :-10], expected[..., :-10])
        assert (found.probe[..., -10:] == -1).all()
        if label == "relaxed":
            assert torch.equal(found.target, rest[..., -10:])
        else:
            best = network.scores(theta, rest, slice(network.visible, network.neurons)).argmax(-1)
            assert torch.equal(found.target.argmax(-1), best)
            assert (found.target.sum(-1) == -8).all()
    assert (state.items.weight == 1).all()
    assert len(state.items.ids[0].unique()) == 32
    if label == "relaxed":
        assert (state.items.target > 0).any()


def test_pseudo_items_say_their_task_and_are_nobody_elses(world) -> None:
    state, _ = lived(Pseudorehearsal(0.25), world, 3)
    task = state.items.ids[0] >> 32
    assert task.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    ids = torch.cat([state.items.ids[0], *(world[0][t].train.ids[0] for t in range(3))])
    assert len(ids.unique()) == len(ids)


def test_probes_relax_as_the_network_recalls(world) -> None:
    stream, network, theta = world
    rectified = RectifiedPolynomial(3)
    found, _ = lived(Pseudorehearsal(0.5), (stream, replace(network, recall=rectified), theta), 1)
    expected, _ = lived(Pseudorehearsal(0.5), (stream, replace(network, interaction=rectified), theta), 1)
    leaking, _ = lived(Pseudorehearsal(0.5), world, 1)
    assert all(torch.equal(a, b) for a, b in zip(found.items, expected.items, strict=True))
    assert not torch.equal(found.items.probe, leaking.items.probe)


def test_probes_relax_at_a_temperature_of_their_own(world) -> None:
    stream, network, theta = world
    found, _ = lived(Pseudorehearsal(0.5, temperature=0.5), world, 1)
    expected, _ = lived(Pseudorehearsal(0.5), (stream, network.at(2.0), theta), 1)
    as_trained, _ = lived(Pseudorehearsal(0.5), world, 1)
    assert all(torch.equal(a, b) for a, b in zip(found.items, expected.items, strict=True))
    assert not torch.equal(found.items.probe, as_trained.items.probe)


def test_pseudo_items_of_an_auto_associative_memory() -> None:
    stream = StateStream(REPLICAS, tasks=2, items=4, size=20, flips=1)
    network = DenseMemory(20, 0, Polynomial(2), autoassociative=True)
    theta = stream[0].train.target
    now = Now(network, stream[0], 1, 0, REPLICAS)
    for pairs in ("homogeneous", "heterogeneous"):
        method = Pseudorehearsal(2.0, pairs=pairs, steps=30)
        items = method.consolidate(method.start(theta), now, theta).items
        begin, rest = transcribed(network, theta, 8, 0, 30)
        assert items is not None
        assert torch.equal(items.target, rest)
        assert torch.equal(items.probe, rest if pairs == "homogeneous" else begin)


def test_probes_do_not_depend_on_how_many_are_asked_for(world) -> None:
    few, _ = lived(Pseudorehearsal(0.25), world, 1)
    many, _ = lived(Pseudorehearsal(1.0), world, 1)
    assert torch.equal(many.items.probe[:, :8], few.items.probe)
    beyond, _ = lived(Pseudorehearsal(2.5), world, 1)
    assert beyond.items.probe.shape[1] == 80  # more than the task had


def test_the_report_is_a_census(world) -> None:
    """Converged, distinct and claimed, counted again from the relaxed states."""
    _, network, theta = world
    for pairs in ("homogeneous", "heterogeneous"):
        method = Pseudorehearsal(1.0, pairs=pairs, steps=3)
        state, _ = lived(method, world, 2)
        report = method.report(state)
        for task in range(2):
            rest = transcribed(network, theta, 32, task, 3)[1]
            before = transcribed(network, theta, 32, task, 2)[1]
            for r in range(2):
                assert report["converged"][r][task] == int((rest[r] == before[r]).all(-1).sum())
                assert report["distinct"][r][task] == len({tuple(s) for s in rest[r].tolist()})
                claims = [(s[64:69] > 0).nonzero().flatten().tolist() for s in rest[r]]
                expected = [sum(c == [t] for c in claims) for t in range(5)]
                assert report["claims"][r][task] == [*expected, 32 - sum(expected)]
                assert sum(report["claims"][r][task]) == 32


def test_the_report_of_stored_patterns() -> None:
    """One pattern stored at n = 2: every probe comes to rest at it or at its negative at once."""
    stream = StateStream(REPLICAS, tasks=1, items=1, size=21, flips=1)
    network = DenseMemory(21, 0, Polynomial(2), autoassociative=True)
    theta = stream[0].train.target
    method = Pseudorehearsal(50.0)
    now = Now(network, stream[0], 1, 0, REPLICAS)
    report = method.report(method.consolidate(method.start(theta), now, theta))
    assert report["converged"] == [[50], [50]]
    assert report["distinct"] == [[2], [2]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rehearsal(1.5), "proportion must be between 0 and 1"),
        (lambda: Rehearsal(capacity=0), "capacity must be at least 1"),
        (lambda: Rehearsal(sweep=0), "sweep must be at least 1"),
        (lambda: Pseudorehearsal(pairs="mixed"), "pairs must be homogeneous or heterogeneous"),
        (lambda: Pseudorehearsal(temperature=0), "temperature must be above 0"),
        (lambda: Pseudorehearsal(label="none"), "label must be strongest or relaxed"),
    ],
)
def test_settings_that_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
