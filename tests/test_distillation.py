"""DER and LwF against their losses, written out item by item from the paper's rule of update."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import DER, Awake, LwF, Now
from engramma.network import Items
from engramma.replicas import Replicas

REPLICAS = Replicas((4, 9))
N, LEAK, BETA = 3, 0.01, 4.0


@pytest.fixture
def world(make_stream, make_network, device, dtype):
    """A stream of three tasks of 10 items (8 to train on), a network, and memories before and after."""
    stream = make_stream(REPLICAS, tasks=3, items=10)
    network = make_network(stream, LeakyRectifiedPolynomial(N, LEAK), beta=BETA)
    place = {"device": device, "dtype": dtype}
    theta = REPLICAS.memories(6, stream.neurons, 1.0, **place)
    return stream, network, theta, 0.5 * theta.flip(1)


def answer(theta: Tensor, x: Tensor, classes: int) -> Tensor:
    """(C,): tanh of what memories (M,N) score each class neuron of one item, clamped on and off."""

    def energy(state: Tensor) -> Tensor:
        h = BETA / theta.shape[1] * theta @ state
        return torch.where(h > 0, h**N, LEAK * h).sum()

    found = []
    for k in range(classes):
        on, off = x.clone(), x.clone()
        on[len(x) - classes + k], off[len(x) - classes + k] = 1.0, -1.0
        found.append(energy(on) - energy(off))
    return torch.tanh(torch.stack(found))


def slope(theta: Tensor, cost) -> Tensor:
    """By autograd, replica by replica, of a cost (terms, how much they count together) of memories (M,N)."""
    found = []
    for r in range(len(theta)):
        one = theta[r].clone().requires_grad_()
        terms, count = cost(r, one)
        found.append(torch.autograd.grad(terms / count, one)[0])
    return torch.stack(found)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.3, 0.0), (0.5, 2.0)])
def test_der(alpha: float, beta: float, world, near) -> None:
    """alpha (answer then - answer)^2 + beta (label - answer)^2 of a kept item, (label - answer)^2 of one of
    the task's, each by how much it counts."""
    stream, network, before, theta = world
    method, classes = DER(0.25, alpha=alpha, beta=beta), network.classes
    first, second = stream[0].train, stream[1].train
    state = method.consolidate(method.start(before), Now(network, stream[0], 1, 0, REPLICAS), before)
    kept = method.rehearse(state, Now(network, stream[1], 1, 0, REPLICAS))
    assert kept is not None
    found = network.gradient(theta, Items.join(second, kept))

    def cost(r: int, one: Tensor) -> tuple[Tensor, float]:
        total = one.new_zeros(())
        for x, y in zip(second.probe[r], second.target[r], strict=True):
            total = total + ((y - answer(one, x, classes)) ** 2).mean()
        for x, y in zip(first.probe[r, :2], first.target[r, :2], strict=True):  # a quarter of 8
            then, now = answer(before[r], x, classes), answer(one, x, classes)
            total = total + alpha * ((then - now) ** 2).mean() + beta * ((y - now) ** 2).mean()
        return total, len(second.probe[r]) + 2 * (alpha + beta)

    torch.testing.assert_close(found, slope(theta, cost), **near)


@pytest.mark.parametrize("task_id", [True, False])
def test_lwf(task_id: bool, make_stream, make_network, world, near) -> None:
    """(label - answer)^2 of every item of the third task, and strength times (answer then - answer)^2 of it
    as an item of the first or second task, in turn; without task-id neurons as it is."""
    stream = make_stream(REPLICAS, tasks=3, items=10, task_id=task_id)
    network = make_network(stream, LeakyRectifiedPolynomial(N, LEAK), beta=BETA)
    classes, visible = network.classes, network.visible
    before = world[2][..., -stream.neurons :].contiguous()
    theta, strengths = 0.5 * before.flip(1), (0.5, 2.0)
    now = Now(network, stream[2], 1, 0, REPLICAS, 3)
    method = LwF(strengths)
    awake = method.awaken(method.start(before), now, before)
    assert isinstance(awake, Awake)
    assert torch.equal(awake.theta, before)
    extra = method.rehearse(awake.state, now)
    assert extra is not None
    assert torch.equal(extra.ids, stream[2].train.ids + 2**30)  # by which they are shuffled: it must stay
    found = network.gradient(theta, Items.join(stream[2].train, extra))

    def cost(r: int, one: Tensor) -> tuple[Tensor, float]:
        total, train = one.new_zeros(()), stream[2].train
        for number, (x, y) in enumerate(zip(train.probe[r], train.target[r], strict=True)):
            total = total + ((y - answer(one, x, classes)) ** 2).mean()
            shown = x.clone()
            if task_id:
                assert shown[visible - 3 : visible].tolist() == [-1, -1, 1]
                shown[visible - 3 : visible] = torch.tensor([[1, -1, -1], [-1, 1, -1]][number % 2])
            then = answer(before[r], shown, classes)
            total = total + strengths[r] * ((then - answer(one, shown, classes)) ** 2).mean()
        return total, len(train.probe[r]) * (1 + strengths[r])

    torch.testing.assert_close(found, slope(theta, cost), **near)
    assert method.consolidate(awake.state, now, theta).items is None  # nothing is kept of the task


def test_lwf_has_nothing_to_say_in_the_first_task(world) -> None:
    stream, network, theta, _ = world
    now = Now(network, stream[0], 1, 0, REPLICAS, 3)
    for method in (LwF(1.0), LwF((0.0, 0.0))):
        assert method.rehearse(method.awaken(method.start(theta), now, theta).state, now) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DER(alpha=-1), "alpha must be 0 or more"),
        (lambda: DER(beta=float("inf")), "beta must be 0 or more"),
        (lambda: DER(beta=-1), "beta must be 0 or more"),
        (lambda: DER(alpha=0), "alpha or beta must be above 0"),
        (lambda: DER(1.5), "proportion must be between 0 and 1"),
        (lambda: LwF(-1), "strength must be 0 or more"),
        (lambda: LwF((1.0, float("inf"))), "strength must be 0 or more"),
    ],
)
def test_settings_that_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
