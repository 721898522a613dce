"""The loss of one scored neuron: its score o against its target t, from -1 to +1.

Axes are free: both functions act on each entry alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Loss(ABC):
    """Base of every loss. A class of one's own says its value and its slope."""

    @abstractmethod
    def value(self, o: Tensor, t: Tensor) -> Tensor:
        """What the score costs."""

    @abstractmethod
    def slope(self, o: Tensor, t: Tensor) -> Tensor:
        """The derivative of that by the score."""


@dataclass(frozen=True)
class Squared(Loss):
    """(t - tanh o)^2: Algorithm 1 of the paper, whose error exponent is 1."""

    def value(self, o: Tensor, t: Tensor) -> Tensor:
        return (t - torch.tanh(o)).square()

    def slope(self, o: Tensor, t: Tensor) -> Tensor:
        y = torch.tanh(o)
        return -2 * (t - y) * (1 - y * y)


LOSSES: dict[str, type[Loss]] = {"squared": Squared}
SQUARED = Squared()
