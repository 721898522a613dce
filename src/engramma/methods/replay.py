"""Rehearsal: items of earlier tasks, or the network's own, are learned again beside the new ones."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma.methods.method import Method, Now, Size
from engramma.network import Items


class Buffer(NamedTuple):
    items: Items | None
    sizes: Tensor  # (tasks,) how many items each task left in it, padding included
    facts: Tensor  # (tasks, R, ...) what `keep` reports, empty where it reports nothing


@dataclass(frozen=True)
class Replay(Method):
    """Keeps `proportion` of every task, and trains on task and buffer together.

    `capacity`: a fixed total instead, shared equally by the tasks so far. `sweep`: a new sample of
    that many buffer items every epoch instead of the whole buffer.
    """

    strength_name: ClassVar[str | None] = "proportion"
    strength_kind: ClassVar[str] = "proportion"

    proportion: float | tuple[float, ...] = 0.05
    capacity: int | None = None
    sweep: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_proportion(self.proportion)
        for name in ("capacity", "sweep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        kept = settings.get("capacity") if task else 0
        count = kept if kept is not None else (strength or 0) * items * task
        sweep = settings.get("sweep")
        guarded = super().rehearsed(settings, strength, items, task)[1]
        return (min(count, sweep) if sweep else count), guarded

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        return 0  # the buffer is items

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        capacity, own = settings.get("capacity"), round((strength or 0) * size.items)
        each = own if capacity is None else min(size.items, capacity // size.tasks)
        return size.tasks * each * cls.item(size)

    @classmethod
    def item(cls, size: Size) -> float:
        """Bytes of an item as it is kept."""
        return size.item

    @abstractmethod
    def keep(self, now: Now, theta: Tensor, count: int) -> tuple[Items, Tensor]:
        """`count` items that stand for the task just learned, and facts (R, ...) about them."""

    def start(self, theta: Tensor) -> Buffer:
        return empty_buffer(theta)

    def rehearse(self, state: Buffer, now: Now) -> Items | None:
        if state.items is None or self.sweep is None:
            return state.items
        keys = now.rng.shuffle_keys(state.items.ids ^ 1, now.task.index, now.epoch)
        keys = keys.masked_fill(state.items.weight == 0, torch.iinfo(keys.dtype).max)
        pick = keys.argsort(1)[:, : self.sweep]
        rows = torch.arange(len(pick), device=pick.device)[:, None]
        return Items(*(part[rows, pick] for part in state.items))

    def consolidate(self, state: Buffer, now: Now, theta: Tensor) -> Buffer:
        size = now.task.train.probe.shape[1]
        if self.capacity is not None:
            counts = [min(size, self.capacity // (len(state.sizes) + 1))]
        else:
            counts = proportion_counts(self.proportion, size)
        if max(counts) == 0:
            return state
        kept, facts = self.keep(now, theta, max(counts))
        kept = limit(kept, counts, len(theta))
        if self.capacity is not None and state.items is not None:
            state = shrink(state, counts[0])
        return grow(state, kept, facts)


@dataclass(frozen=True)
class Rehearsal(Replay):
    """Naive rehearsal: the first items of the (already random) training set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_proportion(self.proportion, most=1)

    def keep(self, now: Now, theta: Tensor, count: int) -> tuple[Items, Tensor]:
        return now.task.train.row(slice(0, count)), theta.new_zeros(0)


@dataclass(frozen=True)
class Pseudorehearsal(Replay):
    """Pseudo-items: random bipolar states relaxed by the network itself.

    `pairs` "homogeneous" learns the relaxed state, "heterogeneous" the random probe with the label of
    the state it relaxed to. `label` "strongest": the class neuron with the highest score is on;
    "relaxed": the class neurons are learned as they came to rest. `temperature`: at which they relax; None:
    that of training.
    """

    pairs: Literal["homogeneous", "heterogeneous"] = "homogeneous"
    label: Literal["strongest", "relaxed"] = "strongest"
    steps: int = 100
    temperature: float | None = None

    @classmethod
    def item(cls, size: Size) -> float:
        return size._replace(pixel=1).item  # a state of -1 and +1, whatever the items are

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be above 0, not {self.temperature}")

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        capacity = settings.get("capacity")
        made = (strength or 0) * size.items if capacity is None else min(size.items, capacity)
        return 6 * made * (size.neurons + size.memories)  # while they relax

    def keep(self, now: Now, theta: Tensor, count: int) -> tuple[Items, Tensor]:
        net, task = now.network, now.task.index
        net = net if self.temperature is None else net.at(1 / self.temperature)
        drawn = now.rng.draw(
            lambda g: g.integers(0, 2, (count, net.neurons), dtype=np.int8) * 2 - 1, "probes", task
        )
        probes = torch.as_tensor(drawn).to(theta)
        rest = net.relax(theta, probes, self.steps)
        classes = slice(net.visible, net.neurons)
        # A copy: the class neurons are hidden in it below, and the target is read from the state at rest.
        state = (rest.state if self.pairs == "homogeneous" else probes).clone()
        if net.autoassociative:
            target = rest.state
        elif self.label == "relaxed":
            target = rest.state[..., classes]
        else:
            best = net.predict(theta, net.kernel.prepare(rest.state, theta.dtype))[..., None]
            target = torch.full_like(rest.state[..., classes], -1.0).scatter_(-1, best, 1.0)
        if not net.autoassociative:
            state[..., classes] = -1.0
        ids = (task << 32) + (1 << 31) + torch.arange(count, device=theta.device)
        items = Items(
            net.kernel.prepare(state, theta.dtype),
            target,
            torch.ones_like(state[..., 0]),
            ids.expand(len(theta), -1),
        )
        return items, _census(rest.state, rest.converged, now.task.identity)

    def report(self, state: Buffer) -> dict[str, Any]:
        """Per replica and task: probes that converged, distinct states reached, and how many
        pseudo-items claim each task by their task-id neurons (the last number: none or several)."""
        facts = state.facts.transpose(0, 1).tolist()
        return {
            "converged": [[t[0] for t in replica] for replica in facts],
            "distinct": [[t[1] for t in replica] for replica in facts],
            "claims": [[t[2:] for t in replica] for replica in facts],
        }


def _census(states: Tensor, converged: Tensor, identity: slice | None) -> Tensor:
    """(R, 2 + tasks + 1): converged, distinct, and the task each state's task-id neurons claim."""
    on = states > 0
    rows = []
    for replica, done in zip(on, converged, strict=True):
        row = [int(done.sum()), len(torch.unique(replica.to(torch.uint8), dim=0))]
        if identity is not None:
            claims = replica[:, identity]
            single = claims.sum(1) == 1
            row += [*(claims & single[:, None]).sum(0).tolist(), int((~single).sum())]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def check_proportion(proportion: float | tuple[float, ...], most: float = float("inf")) -> None:
    for value in (proportion,) if isinstance(proportion, int | float) else proportion:
        if not 0 <= value <= most:
            allowed = "0 or more" if most == float("inf") else f"between 0 and {most:g}"
            raise ValueError(f"proportion must be {allowed}, not {value}")


def proportion_counts(proportion: float | tuple[float, ...], size: int) -> list[int]:
    values = (proportion,) if isinstance(proportion, int | float) else proportion
    return [round(value * size) for value in values]


def limit(items: Items, counts: list[int], replicas: int) -> Items:
    """Only the first `counts[r]` items of replica r carry weight; one count serves all."""
    if len(counts) == 1:
        return items
    if len(counts) != replicas:
        raise ValueError(f"{len(counts)} proportions given for {replicas} replicas")
    items = items.expand(replicas)
    column = torch.arange(items.weight.shape[1], device=items.weight.device)
    there = column < torch.tensor(counts, device=column.device)[:, None]
    return items._replace(weight=items.weight * there)


def empty_buffer(theta: Tensor) -> Buffer:
    none = torch.zeros(0, dtype=torch.long)
    return Buffer(None, none, torch.zeros(0, len(theta), 0, dtype=torch.float64))


def grow(state: Buffer, kept: Items, facts: Tensor) -> Buffer:
    items = kept if state.items is None else Items.join(state.items, kept)
    sizes = torch.cat([state.sizes, torch.tensor([kept.probe.shape[1]])])
    if facts.numel():
        rows = [*state.facts.unbind(0), facts]
        return Buffer(items, sizes, torch.stack(rows))
    return Buffer(items, sizes, state.facts)


def shrink(state: Buffer, each: int) -> Buffer:
    """The first `each` items of every task."""
    assert state.items is not None
    starts = (state.sizes.cumsum(0) - state.sizes).tolist()
    sizes = [min(each, size) for size in state.sizes.tolist()]
    pick = torch.cat([torch.arange(s, s + n) for s, n in zip(starts, sizes, strict=True)])
    items = state.items.row(pick.to(state.items.ids.device))
    return Buffer(items, torch.tensor(sizes), state.facts)
