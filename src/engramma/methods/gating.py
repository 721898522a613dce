"""XdG: every task has memories drawn for it, the same whenever it comes; others sleep (Masse et al. 2018).

    places_k = `share` of the memories, drawn at random for task k
    class = argmax_c o_c of these memories alone

Nothing is stored of a task, but it has to be said of which task an item is. Memories that two tasks share are
learned twice: what is forgotten in them a penalty `beside` holds against, as it would in the whole network.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma.methods.allocation import taken
from engramma.methods.method import NUMBER, Awake, Method, Now, Size, Vanilla
from engramma.methods.moments import EWCMoments
from engramma.methods.penalty import EWC, L2, MAS, SI, Anchored, Penalty
from engramma.network import DenseMemory, Response

HOLD: dict[str, type[Penalty]] = {"l2": L2, "ewc": EWC, "mas": MAS, "si": SI, "ewc_moments": EWCMoments}


@dataclass(frozen=True)
class Gated(DenseMemory):
    """A network that is told of which task an item is, and answers with that task's memories alone."""

    places: Tensor | None = None  # (R,T,K)

    def respond(self, theta: Tensor, probe: Tensor, task: int | None = None) -> Response:
        net = DenseMemory(**{f.name: getattr(self, f.name) for f in fields(DenseMemory)})
        if self.places is None or task is None:
            return net.respond(theta, probe)
        return net.respond(taken(theta, self.places[:, task]), probe)


class Gates(NamedTuple):
    places: Tensor  # (R,T,K) where the memories of each task stand
    held: Anchored | None  # the state of the penalty beside, of all memories
    awake: Anchored | None  # of those that learn


@dataclass(frozen=True)
class XdG(Method):
    """`share` of all memories are awake in a task. `strength` is that of the penalty `beside`."""

    strength_name: ClassVar[str | None] = "strength"
    # What suits so few memories, where a run says nothing else.
    suits: ClassVar[dict[str, Any]] = {"initial_temperature": "auto", "final_temperature": "auto"}

    strength: float | tuple[float, ...] = 0.0
    share: float = 0.2
    beside: str = "ewc"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {self.share}")
        if self.beside not in HOLD:
            raise ValueError(f"beside must be one of {', '.join(HOLD)}, not {self.beside!r}")
        _ = self._beside  # whose limits are its own

    @cached_property
    def _beside(self) -> Method:
        penalty = HOLD[self.beside](self.strength)
        return penalty if self.strength != 0 else Vanilla()

    @property
    def watches(self) -> str | None:
        return self._beside.watches

    @classmethod
    def memories(cls, settings: dict[str, Any], memories: int, tasks: int) -> tuple[int, int]:
        return memories, awake(settings.get("share", cls.share), memories)

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        return super().rehearsed(settings, strength, items, task)[0], 0.0

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        if not strength:
            return 0
        penalty = HOLD[settings.get("beside", cls.beside)]
        return sum(penalty.held({}, strength, size._replace(memories=n)) for n in (size.memories, size.awake))

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        places = NUMBER * size.tasks * size.awake
        if not strength:
            return places
        return places + HOLD[settings.get("beside", cls.beside)].kept({}, strength, size)

    def start(self, theta: Tensor) -> Gates:
        none = torch.zeros(len(theta), 0, 0, dtype=torch.long, device=theta.device)
        return Gates(none, self._beside.start(theta), None)

    def awaken(self, state: Gates, now: Now, theta: Tensor) -> Awake:
        if not state.places.numel():
            state = state._replace(places=self._drawn(now, theta))
        where = state.places[:, now.task.index]
        if state.held is not None:
            state = state._replace(awake=part(state.held, where))
        return Awake(state, where, taken(theta, where))

    def _drawn(self, now: Now, theta: Tensor) -> Tensor:
        count, many = theta.shape[1], awake(self.share, theta.shape[1])

        def some(g: np.random.Generator) -> np.ndarray:
            return np.sort(g.permutation(count)[:many])

        each = [now.rng.draw(some, "gates", task) for task in range(now.tasks)]
        return torch.as_tensor(np.stack(each, 1), device=theta.device)

    def steer(self, state: Gates, now: Now, theta: Tensor, grad: Tensor) -> Tensor:
        return self._beside.steer(state.awake, now, theta, grad)

    def observe(self, state: Gates, now: Now, grad: Tensor, step: Tensor, move: Tensor) -> Gates:
        return state._replace(awake=self._beside.observe(state.awake, now, grad, step, move))

    def consolidate(self, state: Gates, now: Now, theta: Tensor) -> Gates:
        if not state.places.numel():
            raise ValueError(
                "xdg must be there from the first task on: a task's memories are drawn before it"
            )
        if state.held is None:
            return state
        fresh = self._beside.consolidate(state.awake, now, theta)
        return state._replace(held=put(state.held, fresh, state.places[:, now.task.index]), awake=None)

    def recall(self, state: Gates, now: Now, theta: Tensor, learned: bool) -> DenseMemory:
        told = {f.name: getattr(now.network, f.name) for f in fields(DenseMemory)}
        return Gated(**told, places=state.places)


def awake(share: float, memories: int) -> int:
    return max(1, round(share * memories))


def part(state: Anchored, where: Tensor) -> Anchored:
    """What a penalty knows of the memories at their places (R,K)."""
    grids = ("weight", "pull", "path", "origin")
    mine = {name: taken(grid, where) for name in grids if (grid := getattr(state, name)) is not None}
    return state._replace(**mine, factors=tuple(factor.gather(1, where) for factor in state.factors))


def put(state: Anchored, mine: Anchored, where: Tensor) -> Anchored:
    """With what it now knows of these."""
    changed = {}
    for name in ("weight", "pull", "path", "origin"):
        if (grid := getattr(state, name)) is not None:
            changed[name] = grid.scatter(
                1, where[..., None].expand(-1, -1, grid.shape[2]), getattr(mine, name)
            )
    none = torch.zeros_like(state.weight[..., 0])  # a new task is nothing to those that slept
    earlier = (*state.factors, *[none] * (len(mine.factors) - len(state.factors)))
    factors = tuple(f.scatter(1, where, own) for f, own in zip(earlier, mine.factors, strict=True))
    return mine._replace(**changed, factors=factors)
