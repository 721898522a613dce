"""The paper's gradient descent: momentum, a step scaled for every memory, a clamp, two schedules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from engramma.kernels.reference import Descent, moves
from engramma.network import DenseMemory

ORDERS = ("mean", "velocity", "gradient")


@dataclass(frozen=True)
class Optimiser:
    """Rates and temperatures are numbers, or one a replica."""

    learning_rate: float | tuple[float, ...] = 0.1
    decay: float = 0.999
    momentum: float = 0.6
    initial_temperature: float | tuple[float, ...] = 0.875
    final_temperature: float | tuple[float, ...] = 0.875
    epochs: int = 500
    clamp: float | None = 1.0
    # What is divided by its largest entry, for each memory. "velocity": as the authors' public package does.
    # "gradient": before it enters the velocity, which then adds up to 1 / (1 - momentum) of it. "mean": the
    # same, and the velocity is a running mean of the scaled gradients, no longer than one.
    normalise: str = "mean"

    def __post_init__(self) -> None:
        check_order(self.normalise)

    def start(self, theta: Tensor) -> Tensor:
        return torch.zeros_like(theta)

    def rate(self, epoch: int, theta: Tensor) -> Tensor | float:
        """Learning rate in `epoch` of a task (counted from 1, as in Algorithm 1)."""
        return per_replica(self.learning_rate, theta) * self.decay**epoch

    def beta(self, epoch: int, theta: Tensor) -> Tensor | float:
        first, last = (
            per_replica(self.initial_temperature, theta),
            per_replica(self.final_temperature, theta),
        )
        return 1 / (first + (last - first) * epoch / self.epochs)

    def step(
        self,
        theta: Tensor,
        grad: Tensor,
        velocity: Tensor,
        epoch: int,
        network: DenseMemory,
        active: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One step of every replica, computed by the network's kernel; those not `active` (R,) have no more
        items this epoch and rest."""
        moved, fresh = network.kernel.step(theta, grad, velocity, self._rule(theta, epoch, network))
        if active is None:
            return moved, fresh
        keep = active[:, None, None]
        return torch.where(keep, moved, theta), torch.where(keep, fresh, velocity)

    def meant(
        self,
        theta: Tensor,
        velocity: Tensor,
        epoch: int,
        network: DenseMemory,
        active: Tensor | None = None,
    ) -> Tensor:
        """What the step that left `velocity` would have added to the memories without the clamp."""
        move = moves(velocity, self._rule(theta, epoch, network))
        return move if active is None else torch.where(active[:, None, None], move, 0.0)

    def _rule(self, theta: Tensor, epoch: int, network: DenseMemory) -> Descent:
        rate = self.rate(epoch, theta)
        return as_sum(Descent(rate, self.momentum, network.visible, self.clamp, self.normalise))


def temperature(
    n: float, memories: int, neurons: int, rate: float = 0.1, decay: float = 0.999, epochs: int = 500
) -> float:
    """One that suits vertex n and so many memories, learning at once for so many epochs ("auto").

    A score is about K 2 n a h^(n-1): h is beta times the overlap q that a memory has with an item it knows,
    a is beta / N times a class weight, and that can move no further than the steps of a task together,
    W = rate sum_e decay^e. Scores that neither vanish nor saturate have beta^n 2 n K W / N q^(n-1) near
    some constant, so that

        T = 0.73 (n / 4 * K / 512 * (W + 7) / W_0 * 794 / N)^(1/n)

    with W_0 that of 500 epochs at rate 0.1. The numbers 0.73 and 7 are measured (the 7 matters to short
    trainings alone): docs/allocation.md has how well this does for which n and K.
    """
    path = 7 + rate * sum(decay**epoch for epoch in range(1, epochs + 1))
    usual = 0.1 * sum(0.999**epoch for epoch in range(1, 501))
    return 0.73 * (n / 4 * memories / 512 * path / usual * 794 / neurons) ** (1 / n)


def check_order(normalise: str) -> None:
    if normalise not in ORDERS:
        raise ValueError(f"normalise must be one of {', '.join(ORDERS)}, not {normalise!r}")


def as_sum(rule: Descent) -> Descent:
    """A rule as kernels know it, whose velocity is a sum v = p v + g: m = p m + (1 - p) g is (1 - p) v."""
    if rule.normalise != "mean":
        return rule
    return rule._replace(rate=(1 - rule.momentum) * rule.rate, normalise="gradient")


def per_replica(value: float | tuple[float, ...] | Tensor, theta: Tensor) -> Tensor | float:
    """A number as it is; one value a replica as (R,1,1) beside theta."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, tuple):
        column = _column(value, theta.dtype, theta.device)
    else:
        column = torch.as_tensor(value, dtype=theta.dtype, device=theta.device)
    if column.numel() != theta.shape[0]:
        raise ValueError(f"{column.numel()} values given for {theta.shape[0]} replicas")
    return column.reshape(-1, 1, 1)


@lru_cache(maxsize=64)
def _column(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Kept where it is used: a copy to the device in every step would make the host wait for the device."""
    return torch.tensor(values, dtype=dtype, device=device)
