"""The loss of one scored neuron: its score o against its target t, -1 or +1.

Axes are free: both functions act on each entry alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Loss(ABC):
    """Base of every loss. A class of one's own says its value and its slope."""

    m = 0  # how the compiled kernels tell the ones they know apart

    @abstractmethod
    def value(self, o: Tensor, t: Tensor) -> Tensor:
        """What the score costs."""

    @abstractmethod
    def slope(self, o: Tensor, t: Tensor) -> Tensor:
        """The derivative of that by the score."""


@dataclass(frozen=True)
class Squared(Loss):
    """(t - tanh o)^(2m): Algorithm 1 of the paper, m its error exponent."""

    m: int = 1

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"exponent must be at least 1, not {self.m}")

    def value(self, o: Tensor, t: Tensor) -> Tensor:
        return (t - torch.tanh(o)).pow(2 * self.m)

    def slope(self, o: Tensor, t: Tensor) -> Tensor:
        y = torch.tanh(o)
        return -2 * self.m * (t - y).pow(2 * self.m - 1) * (1 - y * y)


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-2 t o)): the cross entropy of the target, where the neuron is on with probability
    (1 + tanh o) / 2. Its slope is the error alone: what is wrong is mended however saturated it is."""

    m = 0  # how the compiled kernels know it from a power

    def value(self, o: Tensor, t: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-2 * t * o)

    def slope(self, o: Tensor, t: Tensor) -> Tensor:
        return torch.tanh(o) - t


LOSSES: dict[str, type[Loss]] = {"squared": Squared, "logistic": Logistic}
SQUARED = Squared()
