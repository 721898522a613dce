"""XdG: which memories are awake, what holds those that tasks share, and who answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import Gated, Now, Vanilla, XdG
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas, generator
from engramma.train import Moment, train

REPLICAS = Replicas((4, 9))


@pytest.fixture
def world(make_stream, make_network, device, dtype):
    """A stream of three tasks of 20 items, a network, and ten memories."""
    stream = make_stream(REPLICAS, tasks=3, items=20)
    network = make_network(stream, LeakyRectifiedPolynomial(3), beta=4.0)
    return stream, network, REPLICAS.memories(10, stream.neurons, 1.0, device=device, dtype=dtype)


def drawn(share: float, count: int, tasks: int) -> list[list[set[int]]]:
    """The memories of each task for each seed, as their definition has them."""
    many = round(share * count)
    return [
        [{int(m) for m in generator(seed, "gates", task).permutation(count)[:many]} for task in range(tasks)]
        for seed in REPLICAS.seeds
    ]


def trained(method, world) -> list[Moment]:
    stream, network, theta = world
    optimiser = Optimiser(0.3, epochs=5)
    return [m for m in train(network, stream, method, optimiser, REPLICAS, theta) if m.ends_task]


def test_a_task_is_learned_as_if_its_memories_were_all_there_are(world) -> None:
    """Bit for bit; and those of no task so far are as they were drawn."""
    stream, network, theta = world
    awake, moments = drawn(0.4, 10, 3), trained(XdG(share=0.4), world)
    assert len({frozenset(places) for seed in awake for places in seed}) == 6  # all differ
    for task, moment in enumerate(moments):
        before = theta if task == 0 else moments[task - 1].theta
        for r, seed in enumerate(REPLICAS.seeds):
            mine = sorted(awake[r][task])
            rest = [m for m in range(10) if m not in mine]
            assert torch.equal(moment.theta[r, rest], before[r, rest])
            one = Replicas((seed,))
            small = before[r : r + 1, mine]
            view = type(stream)(
                stream.dataset, one, tasks=3, items=20, device=theta.device, dtype=theta.dtype
            )
            *_, last = train(network, Only(view, task), Vanilla(), Optimiser(0.3, epochs=5), one, small)  # type: ignore[arg-type]
            torch.testing.assert_close(moment.theta[r : r + 1, mine], last.theta, rtol=0, atol=1e-12)


class Only:
    """One task of a stream."""

    def __init__(self, stream, task: int) -> None:
        self.stream, self.task = stream, task

    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int):
        return self.stream[self.task]


@pytest.mark.parametrize("beside", ["l2", "ewc", "ewc_moments"])
def test_what_tasks_share_is_held_where_each_of_them_left_it(beside: str, world, near) -> None:
    """lambda half sum_tasks sum over the task's memories of omega (theta - theta*)^2, by autograd; with
    second moments F times the mean square of the overlap with the task's items for the visible weights."""
    stream, network, theta = world
    strengths, places = (0.5, 30.0), drawn(0.6, 10, 3)
    method = XdG(strengths, share=0.6, beside=beside)
    state, ends = method.start(theta), []
    for task in range(2):
        now = Now(network, stream[task], 1, 0, REPLICAS, 3)
        awake = method.awaken(state, now, theta)
        moved = (0.3 + 0.2 * task) * awake.theta.flip(2)
        state = method.consolidate(awake.state, now, moved)
        ends.append(moved)
    now = Now(network, stream[2], 1, 0, REPLICAS, 3)
    awake = method.awaken(state, now, theta)
    found = method.steer(awake.state, now, awake.theta, torch.zeros_like(awake.theta))
    visible = network.visible
    for r in range(2):
        order = [sorted(p) for p in places[r]]
        whole = theta[r].clone().requires_grad_()
        penalty = whole.new_zeros(())
        for task in range(2):
            at, train_ = ends[task][r : r + 1], stream[task].train
            items = type(train_)(*(p[r : r + 1] for p in train_))
            omega = torch.ones_like(at) if beside == "l2" else network.per_item(at, items, "loss", 2)
            away = whole[order[task]] - at[0]
            square = omega[0] * away**2
            if beside == "ewc_moments":
                overlap = (away[:, :visible] @ items.probe[0, :, :visible].T) ** 2
                penalty = penalty + (omega[0, :, 0] * overlap.mean(1)).sum() + square[:, visible:].sum()
            else:
                penalty = penalty + square.sum()
        (slope,) = torch.autograd.grad((1.0 if beside == "l2" else 0.5) * strengths[r] * penalty, whole)
        torch.testing.assert_close(found[r], slope[order[2]], **near)
        assert slope[order[2]].abs().max() > 1e-7


def test_the_memories_of_a_task_answer_its_items_alone(world) -> None:
    stream, network, _ = world
    moment = trained(XdG(share=0.3), world)[-1]
    told, probe = moment.network, stream[0].test.probe
    assert isinstance(told, Gated)
    for task in range(3):
        for r, places in enumerate(drawn(0.3, 10, 3)):
            one = moment.theta[r : r + 1, sorted(places[task])]
            own = network.at(told.beta).predict(one, probe[r : r + 1])
            assert torch.equal(told.predict(moment.theta, probe, task)[r : r + 1], own)
    assert torch.equal(told.predict(moment.theta, probe), network.at(told.beta).predict(moment.theta, probe))


def test_as_many_memories_learn_as_the_class_says(world) -> None:
    """By it the temperature is found."""
    theta: Tensor = world[2]
    for share in (0.01, 0.25, 1.0):
        count, awake = XdG.memories({"share": share}, 10, 3)
        assert (count, awake) == (10, max(1, round(10 * share)))
        now = Now(world[1], world[0][0], 1, 0, REPLICAS, 3)
        method = XdG(share=share)
        assert method.awaken(method.start(theta), now, theta).theta.shape[1] == awake
    assert XdG.memories({}, 512, 5) == (512, round(0.2 * 512))
    assert np.isclose(XdG().share, 0.2)


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_a_run_that_learned_its_first_tasks_without_it_is_refused(strength: float, world) -> None:
    """A fork to it has tasks behind it that all memories learned."""
    stream, network, theta = world
    method = XdG(strength)
    with pytest.raises(ValueError, match="xdg must be there from the first task on"):
        method.consolidate(method.start(theta), Now(network, stream[0], 1, 0, REPLICAS, 3), theta)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.0}, "share must be above 0 and at most 1, not 0"),
        ({"share": 1.5}, "share must be above 0 and at most 1, not 1.5"),
        ({"share": -0.5}, "share must be above 0 and at most 1, not -0.5"),
        ({"beside": "gem"}, "beside must be one of l2, ewc, mas, si, ewc_moments, not 'gem'"),
        ({"strength": -1.0}, "strength must be 0 or more"),
    ],
)
def test_settings_that_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        XdG(**settings)
