"""DER, LwF and dreams: what an earlier network answered is learned again.

A soft target is what the network answered then, the tanh of its scores, and says more of it than the name of
a class. The loss compares it with the answer of now as it does a label: targets are real numbers, -1 to +1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from engramma.methods.method import NUMBER, Awake, Method, Now, Size
from engramma.methods.replay import Replay, check_proportion
from engramma.network import DenseMemory, Items
from engramma.optimiser import per_replica


def answers(network: DenseMemory, theta: Tensor, probe: Tensor) -> Tensor:
    """(R,B,K): what memories make of items."""
    return torch.tanh(network.scores(theta, probe)).to(theta)


@dataclass(frozen=True)
class DER(Replay):
    """Dark Experience Replay: items are kept with the answers of the network that learned them (Buzzega et
    al. 2020). An item of the buffer costs alpha (answer then - answer now)^2 + beta (label - answer now)^2,
    which but for a constant is alpha + beta times the square of the distance to the mean of the two. `beta` 0
    is DER, else it is DER++."""

    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_proportion(self.proportion, most=1)
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.alpha + self.beta == 0:
            raise ValueError("alpha or beta must be above 0")

    @classmethod
    def item(cls, size: Size) -> float:
        return size.visible * size.pixel / 8 + NUMBER * size.scored  # its target is numbers

    def keep(self, now: Now, theta: Tensor, count: int) -> tuple[Items, Tensor]:
        items, both = now.task.train.row(slice(0, count)).expand(len(theta)), self.alpha + self.beta
        then = answers(now.network, theta, items.probe)
        target = (self.alpha * then + self.beta * items.target) / both
        return items._replace(target=target, weight=both * items.weight), theta.new_zeros(0)


class Taught(NamedTuple):
    items: Items | None  # while a task is learned: its items, and what was made of them before


@dataclass(frozen=True)
class LwF(Method):
    """Learning without Forgetting: the network goes on answering the items of the new task as it did before
    it learned them (Li and Hoiem 2016). Where neurons say which task an item is of, an item is shown as one
    of the earlier tasks, each of them in turn. `strength` is how much such an item counts beside one with its
    label."""

    strength_name: ClassVar[str | None] = "strength"

    strength: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        values = (self.strength,) if isinstance(self.strength, int | float) else self.strength
        for value in values:
            if not 0 <= value < float("inf"):
                raise ValueError(f"strength must be 0 or more, not {value}")

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        return (items if task and strength != 0 else 0), super().rehearsed(settings, strength, items, task)[1]

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        return 2 * size.items * size.neurons if strength else 0  # the items as they are shown

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        del settings, strength, size
        return 0  # what the network answers it is asked anew

    def start(self, theta: Tensor) -> Taught:
        return Taught(None)

    def awaken(self, state: Taught, now: Now, theta: Tensor) -> Awake:
        strength = torch.as_tensor(per_replica(self.strength, theta)).to(theta).reshape(-1, 1)
        if now.task.index and bool(strength.any()):
            items, net = now.task.train.expand(len(theta)), now.network
            probe = items.probe
            if now.task.identity is not None:
                probe = net.kernel.prepare(as_earlier(items.probe[..., : net.neurons], now), theta.dtype)
            target = answers(net, theta, probe)
            weight = strength * items.weight
            state = Taught(Items(probe, target, weight, items.ids + (1 << 30)))
        return super().awaken(state, now, theta)

    def rehearse(self, state: Taught, now: Now) -> Items | None:
        return state.items

    def consolidate(self, state: Taught, now: Now, theta: Tensor) -> Taught:
        return Taught(None)


def as_earlier(probe: Tensor, now: Now) -> Tensor:
    """Items shown as items of the tasks before this one, each of them in turn."""
    identity = now.task.identity
    shown = probe.clone()
    shown[..., identity] = -1.0
    item = torch.arange(shown.shape[1], device=shown.device)
    shown[:, item, identity.start + item % now.task.index] = 1.0
    return shown
