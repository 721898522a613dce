"""L2, EWC, MAS and SI: a quadratic term holds each weight near where earlier tasks left it.

    loss + strength * half * sum_tasks sum_k omega_k (theta_k - theta*_k)^2

One term a task costs no more than one in all: with W = sum omega and P = sum omega theta*, the
gradient is 2 (W theta - P). The methods differ in omega alone.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from engramma.methods.method import Method, Now, Size
from engramma.optimiser import per_replica


class Anchored(NamedTuple):
    weight: Tensor  # W (R,M,N)
    pull: Tensor  # P (R,M,N)
    path: Tensor | None = None  # SI: the path integral of the task so far
    origin: Tensor | None = None  # SI: where the task began
    steps: Tensor | None = None  # SI: steps of the task so far
    factors: tuple[Tensor, ...] = ()  # with second moments: F (R,M) of each task
    moments: tuple[Tensor, ...] = ()  # A (S,V,V) of each task, one for every row of items


@dataclass(frozen=True)
class Penalty(Method):
    """`strength` is lambda. `merge` "separate": a term for every task; "online": one term, centred on
    the latest task, with importances that fade by `decay` at each. `unit`: importances of each task
    scaled to a mean of 1, so that one range of lambda fits all methods and vertices."""

    strength_name: ClassVar[str | None] = "strength"
    half: ClassVar[float] = 1.0  # EWC writes lambda / 2

    strength: float | tuple[float, ...] = 1.0
    merge: Literal["separate", "online"] = "separate"
    decay: float = 1.0
    unit: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        values = (self.strength,) if isinstance(self.strength, int | float) else self.strength
        for value in values:
            if not 0 <= value < float("inf"):
                raise ValueError(f"strength must be 0 or more, not {value}")
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay must be between 0 and 1, not {self.decay}")

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        return super().rehearsed(settings, strength, items, task)[0], 0.0  # it looks at its state alone

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        return 6 * size.memories * size.neurons

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        return 2 * size.array  # W and P

    @abstractmethod
    def importance(self, state: Anchored, now: Now, theta: Tensor) -> Tensor:
        """(R,M,N): omega of the task just learned."""

    def scaled_importance(self, state: Anchored, now: Now, theta: Tensor) -> Tensor:
        omega = self.importance(state, now, theta)
        if self.unit:
            omega = omega / omega.mean((1, 2), keepdim=True).clamp(min=torch.finfo(omega.dtype).tiny)
        return omega

    def start(self, theta: Tensor) -> Anchored:
        return Anchored(torch.zeros_like(theta), torch.zeros_like(theta))

    def steer(self, state: Anchored, now: Now, theta: Tensor, grad: Tensor) -> Tensor:
        if now.task.index == 0:
            return grad
        strength = 2 * self.half * per_replica(self.strength, theta)
        return grad + strength * (state.weight * theta - state.pull)

    def penalty(self, state: Anchored, theta: Tensor, anchors: list[tuple[Tensor, Tensor]]) -> Tensor:
        """(R,): the term itself, from the (omega, theta*) of every task. For tests and diagnostics."""
        del state
        total = sum((w * (theta - at) ** 2).flatten(1).sum(1) for w, at in anchors)
        strength = per_replica(self.strength, theta)
        strength = strength.flatten() if isinstance(strength, Tensor) else strength
        return strength * self.half * torch.as_tensor(total)

    def consolidate(self, state: Anchored, now: Now, theta: Tensor) -> Anchored:
        omega = self.scaled_importance(state, now, theta)
        if self.merge == "separate":
            return state._replace(weight=state.weight + omega, pull=state.pull + omega * theta)
        weight = self.decay * state.weight + omega
        return state._replace(weight=weight, pull=weight * theta)

    def report(self, state: Anchored) -> dict[str, Any]:
        return {"mean_importance": state.weight.mean((1, 2)).tolist()}


@dataclass(frozen=True)
class L2(Penalty):
    """Every weight equally important."""

    def importance(self, state: Anchored, now: Now, theta: Tensor) -> Tensor:
        return torch.ones_like(theta)


@dataclass(frozen=True)
class EWC(Penalty):
    """Elastic Weight Consolidation: the Fisher information (Kirkpatrick et al. 2017).

    `fisher` "item": squared gradient of every item's loss, averaged; "batch": square of the gradient
    of batches of `batch` items, averaged. `labels` "true", or "predicted" by the network.
    """

    half: ClassVar[float] = 0.5

    fisher: Literal["item", "batch"] = "item"
    labels: Literal["true", "predicted"] = "true"
    batch: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch}")

    def importance(self, state: Anchored, now: Now, theta: Tensor) -> Tensor:
        items = now.task.train
        if self.fisher == "item":
            pull = "loss" if self.labels == "true" else "predicted"
            return now.network.per_item(theta, items, pull, 2)
        if self.labels == "predicted":
            answer = now.network.answer(now.network.scores(theta, items.probe))
            items = items.expand(len(theta))._replace(target=answer)
        starts = range(0, items.probe.shape[1], self.batch)
        parts = [now.network.gradient(theta, items.row(slice(s, s + self.batch))) ** 2 for s in starts]
        return torch.stack(parts).mean(0)


@dataclass(frozen=True)
class MAS(Penalty):
    """Memory Aware Synapses: how much the outputs answer to each weight (Aljundi et al. 2018).

    `power` 2: squared per-item gradients; 1: their absolute values. `output` "squared": of the squared
    norm of the outputs; "norm": of the norm.
    """

    merge: Literal["separate", "online"] = "online"
    power: int = 2
    output: Literal["squared", "norm"] = "squared"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.power not in (1, 2):
            raise ValueError(f"power must be 1 or 2, not {self.power}")

    def importance(self, state: Anchored, now: Now, theta: Tensor) -> Tensor:
        pull = "output" if self.output == "squared" else "norm"
        return now.network.per_item(theta, now.task.train, pull, self.power)


@dataclass(frozen=True)
class SI(Penalty):
    """Synaptic Intelligence: how much each weight's path lowered the loss (Zenke et al. 2017).

    `path` "sum": the path integral summed over steps, as printed; "mean": divided by their number. `moves`
    "meant": a weight at the clamp is credited with the steps that press it there; "taken": with what it did,
    which is nothing. Negative importances of a task are set to 0.
    """

    merge: Literal["separate", "online"] = "online"
    path: Literal["sum", "mean"] = "sum"
    damping: float = 1.0
    moves: Literal["taken", "meant"] = "taken"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.damping < float("inf"):
            raise ValueError(f"damping must be above 0, not {self.damping}")
        if self.merge != "online":
            raise ValueError(
                f"merge must be online for si, whose importances are one term, not {self.merge!r}"
            )

    @property
    def watches(self) -> str:
        return self.moves

    def start(self, theta: Tensor) -> Anchored:
        steps = torch.zeros(len(theta), dtype=theta.dtype, device=theta.device)
        return super().start(theta)._replace(path=torch.zeros_like(theta), origin=theta.clone(), steps=steps)

    def observe(self, state: Anchored, now: Now, grad: Tensor, step: Tensor, move: Tensor) -> Anchored:
        assert state.path is not None
        assert state.steps is not None
        return state._replace(path=torch.addcmul(state.path, grad, move, value=-1), steps=state.steps + 1)

    def importance(self, state: Anchored, now: Now, theta: Tensor) -> Tensor:
        assert state.path is not None
        assert state.origin is not None
        assert state.steps is not None
        omega = state.path / ((theta - state.origin) ** 2 + self.damping)
        omega = omega / state.steps[:, None, None] if self.path == "mean" else omega
        return omega.clamp(min=0)

    def consolidate(self, state: Anchored, now: Now, theta: Tensor) -> Anchored:
        assert state.steps is not None
        fresh = super().consolidate(state, now, theta)
        return fresh._replace(
            path=torch.zeros_like(theta), origin=theta.clone(), steps=torch.zeros_like(state.steps)
        )
