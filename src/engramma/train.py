"""The loop, the only one: it trains on the tasks in turn and yields where it stands after every epoch.

Evaluation, progress, checkpoints and plots belong to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engramma.methods.method import Method, Now
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import Stream


class Moment(NamedTuple):
    """Where training stands: after `epoch` (from 1) of `task` (from 0)."""

    task: int
    epoch: int
    state: Any  # the method's
    now: Now
    method: Method
    memories: Tensor  # (R,M,N) as they were when the task began
    awake: slice | Tensor  # which of them learn it: one slice for all replicas, or the places (R,K) of each
    moving: Tensor  # (R,K,N) these, as they are now
    ends_task: bool  # the task is learned and consolidated: a place to evaluate and to resume from

    @property
    def theta(self) -> Tensor:
        """(R,M,N): all memories as they are now."""
        return placed(self.memories, self.awake, self.moving)

    @property
    def network(self) -> DenseMemory:
        """What answers now, at the present temperature."""
        return self.method.recall(self.state, self.now, self.theta, self.ends_task)


def placed(memories: Tensor, awake: slice | Tensor, moving: Tensor) -> Tensor:
    """(R,M,N): `memories` with `moving` in the place of those `awake`."""
    if isinstance(awake, Tensor):
        return memories.scatter(1, awake[..., None].expand_as(moving), moving)
    if awake == slice(None):
        return moving
    memories = memories.clone()
    memories[:, awake] = moving
    return memories


def train(
    network: DenseMemory,
    stream: Stream,
    method: Method,
    optimiser: Optimiser,
    replicas: Replicas,
    theta: Tensor,
    batch_size: int | str | None = "all",
    resume: tuple[int, Any] | None = None,
) -> Iterator[Moment]:
    """Train `theta` (R,M,N) on every task of the stream.

    `batch_size` "all" takes everything at once, with what is rehearsed; None as many items as a task has.
    `resume` is (tasks already learned, method state).
    """
    done, state = resume if resume is not None else (0, method.start(theta))
    for index in range(done, len(stream)):
        task = stream[index]
        size = task.train.probe.shape[1] if batch_size is None else batch_size
        now = Now(network.at(optimiser.beta(0, theta)), task, 0, 0, replicas, len(stream))
        memories = theta
        state, awake, theta = method.awaken(state, now, memories)  # what sleeps is not even looked at
        velocity = optimiser.start(theta)
        rehearsed, batches = None, Batches(task.train, size, replicas)
        for epoch in range(1, optimiser.epochs + 1):
            now = now._replace(network=network.at(optimiser.beta(epoch, theta)), epoch=epoch, step=0)
            extra = method.rehearse(state, now)
            if extra is not rehearsed:
                joined = task.train if extra is None else Items.join(task.train, extra)
                rehearsed, batches = extra, Batches(joined, size, replicas)
            for number, (batch, active) in enumerate(batches.epoch(index, epoch)):
                now = now._replace(step=number)
                grad = now.network.gradient(theta, batch)
                step = method.steer(state, now, theta, grad)
                where = epoch, network, active
                moved, velocity = optimiser.step(theta, step, velocity, *where)
                if seen := method.watches:
                    move = optimiser.meant(theta, velocity, *where) if seen == "meant" else moved - theta
                    state = method.observe(state, now, grad, step, move)
                theta = moved
            if epoch < optimiser.epochs:
                yield Moment(index, epoch, state, now, method, memories, awake, theta, False)
        state = method.consolidate(state, now, theta)
        yield Moment(index, optimiser.epochs, state, now, method, memories, awake, theta, True)
        theta = placed(memories, awake, theta)


class Batches:
    """The items of a task and what is rehearsed beside it, shuffled and cut anew every epoch.

    Every batch but the last is full. Where everything fits in one batch nothing is shuffled: the order would
    change nothing but rounding.
    """

    def __init__(self, items: Items, size: int | str, replicas: Replicas) -> None:
        size = items.probe.shape[1] if isinstance(size, str) else size  # "all"
        if size < 1:
            raise ValueError(f"batch_size must be at least 1, not {size}")
        self.items, self.replicas = items, replicas
        counts = (items.weight > 0).sum(1)
        self.count = counts.tolist()
        self.size, self.whole = size, items.probe.shape[1] <= size
        self.most = max(-(-n // size) for n in self.count)
        self.equal = len(set(self.count)) == 1

    def epoch(self, task: int, epoch: int) -> Iterator[tuple[Items, Tensor | None]]:
        """(batch, which replicas have items in it: None for all)."""
        if self.whole:
            yield self.items, None
            return
        keys = self.replicas.shuffle_keys(self.items.ids, task, epoch)
        keys = keys.masked_fill(self.items.weight == 0, torch.iinfo(keys.dtype).max)
        order = keys.argsort(1)
        for place, there, active in self._cuts:
            spot = (order.gather(1, place) + self._row * order.shape[1]).flatten()
            # Whole rows of a flat array: several times faster than two indices at once.
            batch = Items(
                *(p.flatten(0, 1).index_select(0, spot).unflatten(0, place.shape) for p in self.items)
            )
            yield batch._replace(weight=batch.weight * there), active

    @cached_property
    def _cuts(self) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Of every batch: its places in the order, which of them are filled, and the replicas with items."""
        device, cuts = self.items.weight.device, []
        for number in range(self.most):
            spans = [self._span(n, number) for n in self.count]
            column = torch.arange(max(last - first for first, last in spans))
            first, last = torch.tensor(spans).unbind(1)
            place = first[:, None] + column
            there = place < last[:, None]
            active = None
            if not self.equal:
                active = (last > first).repeat_interleave(len(self.replicas) // len(spans)).to(device)
            place = place.clamp(max=self.items.weight.shape[1] - 1)
            cuts.append((place.to(device), there.to(device), active))
        return cuts

    @cached_property
    def _row(self) -> Tensor:
        return torch.arange(len(self.count), device=self.items.weight.device)[:, None]

    def _span(self, count: int, number: int) -> tuple[int, int]:
        return min(count, number * self.size), min(count, (number + 1) * self.size)
