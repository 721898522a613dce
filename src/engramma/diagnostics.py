"""What the memories are doing: whom they serve, what they look like, where probes come to rest.

All of it starts from what one memory alone adds to the margin of an item (`support`):

    c_bmk = f(h_bm + 2 u_bk a_mk) - f(h_bm), times u_bk        (the scores are its sum over memories)
    s_bm  = c of the item's own class - mean of c over the other classes

so a memory supports an item where s > 0. An auto-associative memory has no classes: there s is the mean
over neurons of target times c. Axes: R replicas, S rows of items, B items, M memories, N neurons, T tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma.network import DenseMemory, Items

KINDS = ("true", "mixed", "spurious")


def support(network: DenseMemory, theta: Tensor, items: Items) -> Tensor:
    """(R,B,M): what each memory alone adds to the margin of each item, padding as 0."""
    network, items = network.recalling, items.expand(len(theta))
    h = network.similarity(theta, items.probe)
    base = network.interaction.value(h)
    neurons = range(network.first_scored, network.neurons)
    wanted = items.target
    if not network.autoassociative:
        wanted = torch.where(wanted > 0, 1.0, -1.0 / max(len(neurons) - 1, 1))
    total = torch.zeros_like(h)
    for k, neuron in enumerate(neurons):
        u = -items.probe[..., neuron].to(theta.dtype)[..., None] if network.autoassociative else 1.0
        moved = h + 2 * u * (network.scale * theta[..., neuron : neuron + 1]).mT
        total += wanted[..., k, None] * u * (network.interaction.value(moved) - base)
    if network.autoassociative:
        total /= len(neurons)
    return total * items.weight[..., None]


class Ownership(NamedTuple):
    share: Tensor  # (R,M,T) of a memory's support, how much goes to each task; rows sum to 1, or are 0
    owner: Tensor  # (R,M) the task with the largest share; -1 for a memory that supports nothing
    strength: Tensor  # (R,M) the memory's support of all tasks, as a share of its replica's
    favourite: Tensor  # (R,M) the class it supports most; -1 for none


def ownership(network: DenseMemory, theta: Tensor, tasks: Sequence[Items]) -> Ownership:
    """Which task each memory serves: the one whose items it supports most, on average over items.

    Supports are not scaled to the task: what has been overwritten supports little and owns little.
    """
    drive, classes = [], theta.new_zeros(*theta.shape[:2], max(network.classes, 1))
    for items in tasks:
        helped = support(network, theta, items).clamp(min=0)
        items = items.expand(len(theta))
        count = items.weight.sum(-1).clamp(min=1)[:, None]
        drive.append(helped.sum(1) / count)
        if network.classes and not network.autoassociative:
            classes += helped.mT @ (items.target > 0).to(theta.dtype) / count[..., None]
    by_task = torch.stack(drive, -1)
    total = by_task.sum(-1)
    share = by_task / torch.where(total > 0, total, 1.0)[..., None]
    served = total > 0
    owner = torch.where(served, share.argmax(-1), -1)
    favourite = torch.where(served & (classes.sum(-1) > 0), classes.argmax(-1), -1)
    whole = total.sum(-1, keepdim=True)
    return Ownership(share, owner, total / torch.where(whole > 0, whole, 1.0), favourite)


class Prototypes(NamedTuple):
    index: Tensor  # (R,) share of an item's support that its strongest memory gives: 1/M to 1
    participation: Tensor  # (R,) memories that take part in an item, (sum s)^2 / sum s^2
    likeness: Tensor  # (R,M) correlation of a memory's visible weights with the item nearest to it


def prototypes(network: DenseMemory, theta: Tensor, items: Items) -> Prototypes:
    """Features or prototypes? Few memories an item, each like an item, are prototypes (n large);
    many memories an item, each like none, are features (n small). Items nobody supports are left out."""
    helped = support(network, theta, items).clamp(min=0)
    total = helped.sum(-1)
    there = total > 0
    safe = torch.where(there, total, 1.0)
    number = there.sum(-1).clamp(min=1)
    index = (helped.amax(-1) / safe * there).sum(-1) / number
    squares = helped.square().sum(-1)
    ratio = total.square() / torch.where(there, squares, 1.0)
    return Prototypes(index, (ratio * there).sum(-1) / number, likeness(network, theta, items).amax(1))


def likeness(network: DenseMemory, theta: Tensor, items: Items) -> Tensor:
    """(R,B,M): Pearson correlation of every item with every memory over the visible neurons."""
    visible = slice(0, network.visible)
    x = _unit(items.expand(len(theta)).probe[..., visible].to(theta.dtype))
    return x @ _unit(theta[..., visible]).mT


def _unit(x: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)


class Census(NamedTuple):
    """The states in which one replica's probes came to rest, the most often reached first."""

    states: np.ndarray  # (A,N) int8
    count: np.ndarray  # (A,) probes that ended there
    kind: np.ndarray  # (A,) "true", "mixed" or "spurious"
    task: np.ndarray  # (A,) of the nearest item
    distance: np.ndarray  # (A,) to it, as a share of the neurons
    basin: np.ndarray  # (A,) share of flipped neurons up to which most probes return; nan: unmeasured
    probes: int
    converged: int

    def columns(self) -> dict[str, Any]:
        """Plain numbers: shares of the probes that ended in each kind, distinct attractors, mean basin."""
        shares: dict[str, Any] = {
            kind: float(self.count[self.kind == kind].sum()) / self.probes for kind in KINDS
        }
        found = {f"{kind}_attractors": int((self.kind == kind).sum()) for kind in KINDS}
        measured = self.basin[np.isfinite(self.basin)]
        basin = float(measured.mean()) if len(measured) else None
        return {**shares, "unsettled": 1 - self.converged / self.probes, **found, "basin": basin}


class Basins(NamedTuple):
    """How basins are measured: by probes with shares of the neurons turned over."""

    flips: Sequence[float]  # the shares
    largest: int = 8  # of so many attractors, the most often reached
    trials: int = 8  # probes a share
    rng: np.random.Generator | None = None  # which neurons


def census(
    network: DenseMemory,
    theta: Tensor,
    probes: Tensor,
    tasks: Sequence[Items],
    near: float = 0.1,
    steps: int = 50,
    basins: Basins | None = None,
) -> list[Census]:
    """Where `probes` (S,B,N) come to rest, one census a replica.

    An attractor is *true* if it differs from some item of the `tasks` (its class neurons set) in at
    most `near` of the neurons; *mixed* if it does so from the majority of its 3 or 5 nearest items;
    else *spurious*. Probes still moving after `steps` updates are unsettled and no attractor.
    Basins are measured where `basins` says how.
    """
    rest = network.relax(theta, probes, steps)
    if basins is not None and basins.rng is None:
        basins = basins._replace(rng=np.random.default_rng(0))
    found = []
    for r in range(len(theta)):
        end = rest.state[r][rest.converged[r]].sign().to(torch.int8).cpu().numpy()
        states, count = np.unique(end, axis=0, return_counts=True) if len(end) else (end, np.zeros(0, int))
        first = np.argsort(-count, kind="stable")
        states, count = states[first], count[first]
        known = [whole(network, items.expand(len(theta)))[r] for items in tasks]
        owner = np.repeat(np.arange(len(known)), [len(k) for k in known])
        kind, task, distance = _judge(states, np.concatenate(known), owner, near)
        basin = np.full(len(states), np.nan)
        net = network if isinstance(network.beta, float | int) else network.at(network.beta.reshape(-1)[r])
        if basins is not None and len(states):
            most = slice(basins.largest)
            basin[most] = _basins(net, theta[r : r + 1], states[most], basins, steps)
        found.append(
            Census(states, count, kind, task, distance, basin, rest.state.shape[1], int(count.sum()))
        )
    return found


def whole(network: DenseMemory, items: Items) -> np.ndarray:
    """(S,B,N) int8: the items with their class neurons as they should become, padding left out of row 0."""
    states = items.probe[..., : network.neurons].clone()
    states[..., network.first_scored :] = items.target.to(states.dtype)
    kept = states[:, items.weight[0] > 0]
    return torch.where(kept > 0, 1, -1).to(torch.int8).cpu().numpy()


def _judge(
    states: np.ndarray, items: np.ndarray, task: np.ndarray, near: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = items.shape[1]
    overlap = states.astype(np.float32) @ items.T.astype(np.float32)  # exact: whole numbers below 2^24
    rank = np.argsort(-overlap, axis=1, kind="stable")[:, :5]
    best = rank[:, :1]
    distance = (size - np.take_along_axis(overlap, best, 1)[:, 0]) / (2 * size)
    kind = np.full(len(states), "spurious", dtype="<U8")
    for a, nearest in enumerate(rank):
        for several in (3, 5):
            if len(nearest) >= several:
                majority = np.sign(items[nearest[:several]].sum(0, dtype=np.int64))
                if (majority != states[a]).mean() <= near:
                    kind[a] = "mixed"
    kind[distance <= near] = "true"
    return kind, task[best[:, 0]], distance


def _basins(network: DenseMemory, theta: Tensor, states: np.ndarray, asked: Basins, steps: int) -> np.ndarray:
    """(A,): the largest share at which, as at each smaller one, at least half of the probes return."""
    assert asked.rng is not None
    shares, size = np.sort(np.asarray(asked.flips)), states.shape[1]
    begin = np.tile(states[:, None, None], (1, len(shares), asked.trials, 1))
    for attractor, share, trial in np.ndindex(begin.shape[:3]):
        turned = asked.rng.permutation(size)[: round(shares[share] * size)]
        begin[attractor, share, trial, turned] *= -1
    probes = torch.as_tensor(begin.reshape(1, -1, size)).to(theta)
    end = network.relax(theta, probes, steps).state[0].cpu().numpy().reshape(begin.shape)
    back = (end == states[:, None, None]).all(-1).mean(-1) >= 0.5
    return np.concatenate([[0.0], shares])[np.cumprod(back, 1).sum(1)]


def random_probes(network: DenseMemory, count: int, rng: np.random.Generator) -> Tensor:
    """(1,count,N) of -1 and +1, the same for every replica."""
    return torch.as_tensor(rng.integers(0, 2, (1, count, network.neurons)) * 2.0 - 1)


class Coverage(NamedTuple):
    count: Tensor  # (R,T,C) items of each class that were kept after each task
    overlap: Tensor  # (R,T,C) of the task's items with the nearest kept item of their class; nan: none kept


def coverage(network: DenseMemory, kept: Items, tasks: Sequence[Items]) -> Coverage:
    """How well a buffer, or pseudo-items, stand for each class of each task.

    `overlap` is 1 - 2 * share of differing visible neurons: 1 where every item is in the buffer itself,
    near 0 where what was kept looks like nothing of the task.
    """
    rows = max(kept.probe.shape[0], *(items.probe.shape[0] for items in tasks))
    kept, classes = kept.expand(rows), kept.target.shape[-1]
    visible = slice(0, network.visible)
    x = kept.probe[..., visible].to(kept.target.dtype)
    label, task = kept.target.argmax(-1), kept.ids >> 32
    count = torch.zeros(rows, len(tasks), classes, dtype=kept.target.dtype)
    overlap = torch.full_like(count, float("nan"))
    for t, items in enumerate(tasks):
        items = items.expand(rows)
        similar = items.probe[..., visible].to(x.dtype) @ x.mT / network.visible
        truth = items.target.argmax(-1)
        for c in range(classes):
            count[:, t, c] = (kept.weight * (label == c) * (task == t)).sum(-1)
            usable = (label == c) & (kept.weight > 0)
            asked = (truth == c) & (items.weight > 0)
            for r in range(rows):
                if usable[r].any() and asked[r].any():
                    overlap[r, t, c] = similar[r][asked[r]][:, usable[r]].amax(-1).mean()
    return Coverage(count, overlap)


def kept_items(state: Any) -> Items | None:
    """The buffer in a method's state, or None for a method that keeps no items."""
    state = getattr(state, "buffer", state)
    items = getattr(state, "items", None)
    return items if isinstance(items, Items) else None
