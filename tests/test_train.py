from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import Method, Vanilla
from engramma.network import Items
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.train import Batches, train


def numbered(counts: list[int], padded: int) -> Items:
    """Items whose only neuron holds their number; row r has counts[r] of them and padding up to `padded`."""
    ids = torch.arange(padded).expand(len(counts), -1)
    weight = (ids < torch.tensor(counts)[:, None]).double()
    return Items(ids[..., None].double(), ids[..., None].double(), weight, ids)


def seen(batches: Batches, rows: int, epoch: int = 1) -> list[list[list[int]]]:
    """[row][batch]: the items in it, padding left out."""
    found: list[list[list[int]]] = [[] for _ in range(rows)]
    for batch, active in batches.epoch(0, epoch):
        for r in range(rows):
            here = batch.ids[r][batch.weight[r] > 0].tolist()
            assert batch.probe[r, batch.weight[r] > 0, 0].tolist() == here  # parts stay together
            assert bool(here) == (active is None or bool(active[r]))
            if here:
                found[r].append(here)
    return found


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    extra=st.integers(0, 5),
    size=st.integers(1, 45),
    seed=st.integers(0, 999),
)
def test_every_item_once_an_epoch(counts: list[int], extra: int, size: int, seed: int) -> None:
    replicas = Replicas(tuple(range(seed, seed + len(counts))))
    items = numbered(counts, max(counts) + extra)
    for r, row in enumerate(seen(Batches(items, size, replicas), len(counts))):
        assert sorted(number for batch in row for number in batch) == list(range(counts[r]))
        lengths = [len(batch) for batch in row]
        assert len(lengths) == -(-counts[r] // size)
        assert lengths[:-1] == [size] * (len(lengths) - 1)


def test_batches_do_not_depend_on_neighbours() -> None:
    together = seen(Batches(numbered([17, 30], 30), 8, Replicas((0, 1))), 2)
    assert together[0] == seen(Batches(numbered([17], 17), 8, Replicas((0,))), 1)[0]
    assert together[1] == seen(Batches(numbered([30], 30), 8, Replicas((1,))), 1)[0]


def test_epochs_and_seeds_shuffle_anew() -> None:
    batches = Batches(numbered([30, 30], 30), 8, Replicas((0, 1)))
    first, second = seen(batches, 2, 1), seen(batches, 2, 2)
    assert first[0] != second[0]
    assert first[0] != first[1]
    assert first == seen(batches, 2, 1)


@pytest.mark.parametrize("size", [5, 9, "all"])
def test_what_fits_in_one_batch_is_left_as_it_is(size: int | str) -> None:
    items = numbered([5], 5)
    ((batch, active),) = Batches(items, size, Replicas((0,))).epoch(0, 1)
    assert active is None
    assert batch is items


def test_settings_that_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        Batches(numbered([5], 5), 0, Replicas((0,)))


def test_the_loop_is_the_designs(make_stream, make_network, device, dtype, near) -> None:
    """Written out with autograd: momentum, rate and temperature start afresh with every task."""
    replicas = Replicas((0, 1))
    stream = make_stream(replicas)
    network = make_network(stream, LeakyRectifiedPolynomial(3))
    theta = replicas.memories(6, stream.neurons, device=device, dtype=dtype)
    heat = {"initial_temperature": 0.8, "final_temperature": 0.6}
    optimiser = Optimiser(0.05, 0.9, 0.5, **heat, epochs=4)
    moments = list(train(network, stream, Vanilla(), optimiser, replicas, theta))
    assert [(m.task, m.epoch, m.ends_task) for m in moments] == [
        (task, epoch, epoch == 4) for task in range(3) for epoch in range(1, 5)
    ]
    visible = stream.neurons - 10
    at = theta.clone()
    for task in range(3):
        velocity = torch.zeros_like(at)
        for epoch in range(1, 5):
            beta = 1 / (0.8 + (0.6 - 0.8) * epoch / 4)
            variable = at.clone().requires_grad_()
            loss = network.at(beta).loss(variable, stream[task].train).sum()
            grad = torch.autograd.grad(loss, variable)[0]
            for part in (grad[..., :visible], grad[..., visible:]):
                largest = part.abs().amax(-1, keepdim=True)
                # What pulls at a memory without items cancels to 0, and in autograd to some 1e-20.
                part[:] = torch.where(largest > 1e-15, part / largest, 0.0)
            velocity = 0.5 * velocity + 0.5 * grad
            at = at - 0.05 * 0.9**epoch * velocity
            at[..., :visible] = at[..., :visible].clamp(-1, 1)
            torch.testing.assert_close(moments[4 * task + epoch - 1].theta, at, **near)


@pytest.mark.parametrize("batch_size", [None, 20])
def test_together_equals_alone(
    batch_size: int | None, make_stream, make_network, device, dtype, near
) -> None:
    """Rates and temperatures that differ between replicas, two of which share a seed."""
    seeds, rates, first, last = (4, 4, 9), (0.02, 0.08, 0.05), (0.9, 0.8, 0.9), (0.7, 0.8, 0.9)

    def last_of(replicas: Replicas, optimiser: Optimiser) -> Tensor:
        stream = make_stream(replicas)
        theta = replicas.memories(8, stream.neurons, device=device, dtype=dtype)
        network = make_network(stream, LeakyRectifiedPolynomial(10))
        return list(train(network, stream, Vanilla(), optimiser, replicas, theta, batch_size))[-1].theta

    together = last_of(
        Replicas(seeds),
        Optimiser(rates, initial_temperature=first, final_temperature=last, epochs=6),
    )
    for r in range(3):
        optimiser = Optimiser(rates[r], initial_temperature=first[r], final_temperature=last[r], epochs=6)
        torch.testing.assert_close(together[r : r + 1], last_of(Replicas((seeds[r],)), optimiser), **near)


def test_training_learns(make_stream, make_network, device, dtype) -> None:
    replicas = Replicas((0, 1))
    stream = make_stream(replicas, tasks=1, items=300)
    network = make_network(stream)
    theta = replicas.memories(48, stream.neurons, device=device, dtype=dtype)
    *_, end = train(network, stream, Vanilla(), Optimiser(0.2, 0.99, epochs=60), replicas, theta)
    assert (stream.evaluate(end.network, end.theta)["accuracy"] > 0.35).all()
    assert (stream.evaluate(network, theta)["accuracy"] < 0.25).all()


def test_a_method_is_called_in_the_papers_order(make_stream, make_network, device, dtype) -> None:
    calls: list[tuple] = []

    class Spy(Method):
        def start(self, theta):
            calls.append(("start",))
            return 0

        def rehearse(self, state, now):
            calls.append(("rehearse", now.task.index, now.epoch))

        def steer(self, state, now, theta, grad):
            calls.append(("steer", now.task.index, now.epoch, now.step, state))
            return grad

        def observe(self, state, now, grad, step, move):
            calls.append(("observe", now.task.index, now.epoch, now.step))
            assert not torch.equal(move, torch.zeros_like(move))
            return state + 1

        def consolidate(self, state, now, theta):
            calls.append(("consolidate", now.task.index))
            return state

    replicas = Replicas((0,))
    stream = make_stream(replicas, tasks=2, items=20)
    theta = replicas.memories(3, stream.neurons, device=device, dtype=dtype)
    list(train(make_network(stream), stream, Spy(), Optimiser(epochs=2), replicas, theta, 8))
    expected: list[tuple] = [("start",)]
    steps = 0
    for task in range(2):
        for epoch in (1, 2):
            expected.append(("rehearse", task, epoch))
            for number in range(2):
                expected += [("steer", task, epoch, number, steps), ("observe", task, epoch, number)]
                steps += 1
        expected.append(("consolidate", task))
    assert calls == expected
