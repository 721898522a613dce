"""Dreams: what is kept of a task, what is made of it, and what the network is to answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from test_distillation import BETA, LEAK, N, answer

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import Dreams, Now
from engramma.replicas import Replicas, generator

REPLICAS = Replicas((4, 9))


@pytest.fixture
def world(make_stream, make_network, device, dtype):
    """A stream of three tasks of 20 items (16 to train on), a network, and memories at three times."""
    stream = make_stream(REPLICAS, tasks=3, items=20)
    network = make_network(stream, LeakyRectifiedPolynomial(N, LEAK), beta=BETA)
    theta = REPLICAS.memories(6, stream.neurons, 1.0, device=device, dtype=dtype)
    return stream, network, [theta, theta.flip(1) / 2, theta.flip(2) / 3]


def lived(method: Dreams, world) -> tuple:
    """The state as the third task begins, and where the loop stands."""
    stream, network, thetas = world
    state = method.start(thetas[0])
    for task in range(2):
        now = Now(network, stream[task], 1, 0, REPLICAS, 3)
        state = method.awaken(state, now, thetas[task]).state
        state = method.consolidate(state, now, thetas[task])
        assert state.items is None
    now = Now(network, stream[2], 0, 0, REPLICAS, 3)
    return method.awaken(state, now, thetas[2]).state, now


def clusters(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres of items and how many items each has, by Lloyd's algorithm from the first items on."""
    centres, sizes = x[np.arange(count) % len(x)], np.zeros(count)
    for _ in range(8):
        near = ((x[:, None] - centres) ** 2).sum(2).argmin(1)
        sizes = np.bincount(near, minlength=count)
        centres = np.stack([x[near == k].mean(0) if sizes[k] else centres[k] for k in range(count)])
    return centres, sizes


@pytest.mark.parametrize(("of", "centres"), [("classes", 1), ("classes", 2), ("memories", 1)])
def test_dreams_are_what_their_definition_says(of: str, centres: int, world, near) -> None:
    """Drawn, named and answered one by one, by the network as it is before the third task."""
    stream, network, thetas = world
    method = Dreams(0.5, of=of, centres=centres, label=0.25, noise=0.7)
    state, now = lived(method, world)
    found = method.rehearse(state, now)
    assert found is not None
    assert found.probe.shape == (2, 2 * 8, stream.neurons)
    classes, visible = network.classes, network.visible
    for r, seed in enumerate(REPLICAS.seeds):
        for task in range(2):
            train, theta = stream[task].train, thetas[2][r].double()
            x, label = train.probe[r].double().cpu().numpy(), train.target[r].argmax(-1).cpu().numpy()
            if of == "classes":
                none = np.zeros((centres, visible)), np.zeros(centres)  # such a class is never dreamt of
                kinds = [
                    clusters(x[label == c, :visible], centres) if c in label else none for c in range(classes)
                ]
                means, share = (np.concatenate(part) for part in zip(*kinds, strict=True))
                means = np.round(127 * means) / 127  # a byte each
            else:
                h = BETA / stream.neurons * (x @ thetas[task][r].double().cpu().numpy().T)
                share = np.where(h > 0, h**N, 0.0).sum(0)
                rows = theta.tolist()
                means = [[math.erf(w / (0.7 * math.sqrt(2))) for w in row[:visible]] for row in rows]
            luck = generator(seed, "dreamt of", 2, task).random(8)
            pixels = generator(seed, "pixels of dreams", 2, task).random((8, visible), dtype=np.float32)
            for b in range(8):
                which = int((np.cumsum(share) / share.sum() < luck[b]).sum())
                dream = np.full(stream.neurons, -1.0)
                dream[:visible] = np.where(pixels[b] < (1 + np.asarray(means[which])) / 2, 1.0, -1.0)
                dream[visible - 3 : visible] = np.where(np.arange(3) == task, 1.0, -1.0)
                own = found.probe[r, 8 * task + b, : stream.neurons].cpu()
                assert own.tolist() == dream.tolist()
                then = answer(theta, torch.as_tensor(dream).to(theta), classes)
                name = -torch.ones_like(then)
                name[which // centres if of == "classes" else int(then.argmax())] = 1.0
                target = 0.75 * then + 0.25 * name
                torch.testing.assert_close(found.target[r, 8 * task + b].to(target), target, **near)


def test_pixels_are_on_as_often_as_those_of_the_class(world, make_network) -> None:
    """5,000 dreams of a task of 16 items: within five deviations of a share of as many."""
    stream, _, thetas = world
    method = Dreams(5000 / 16)
    state, now = lived(method, world)
    found = method.rehearse(state, now)
    assert found is not None
    assert thetas[0].shape[0] == 2
    train, pixels = stream[0].train, slice(0, stream.neurons - 13)
    seen = found.probe[:, :5000, pixels].mean(1)
    torch.testing.assert_close(seen, train.probe[..., pixels].mean(1), rtol=0, atol=5 * 2 * 0.5 / 5000**0.5)


def test_only_a_few_numbers_are_kept(world) -> None:
    """A mean a class and task, which replicas of a seed share; or a number a memory."""
    stream, network, thetas = world
    classes, _ = lived(Dreams(centres=1), world)
    assert [m.shape for m in classes.mean] == 2 * [(2, stream.classes, network.visible)]
    assert {m.dtype for m in classes.mean} == {torch.int8}
    assert [s.shape for s in classes.share] == 2 * [(2, stream.classes)]
    memories, _ = lived(Dreams(of="memories"), world)
    assert not memories.mean
    assert [s.shape for s in memories.share] == 2 * [thetas[0].shape[:2]]


def test_unequal_proportions_and_none(world) -> None:
    some, now = lived(Dreams((0.25, 0.5)), world)
    assert some.items is not None
    assert some.items.weight.sum(1).tolist() == [8, 16]
    one, _ = lived(Dreams(0.25), world)
    assert one.items is not None
    assert torch.equal(some.items.probe[0][some.items.weight[0] > 0], one.items.probe[0])
    none, _ = lived(Dreams(0.0), world)
    assert Dreams(0.0).rehearse(none, now) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"of": "items"}, "of must be classes or memories, not 'items'"),
        ({"centres": 0}, "centres must be at least 1, not 0"),
        ({"label": 1.5}, "label must be between 0 and 1, not 1.5"),
        ({"label": -0.5}, "label must be between 0 and 1, not -0.5"),
        ({"noise": 0.0}, "noise must be above 0"),
        ({"noise": -0.5}, "noise must be above 0"),
        ({"noise": float("inf")}, "noise must be above 0"),
        ({"proportion": -1.0}, "proportion must be 0 or more"),
    ],
)
def test_settings_that_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dreams(**settings)
