"""The interaction function f_n and its derivative: how steeply a memory answers to its similarity.

Axes are free: both functions act on each entry of a tensor alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


def power(x: Tensor, n: float) -> Tensor:
    """x^n, by repeated multiplication for integer n; a real n expects x >= 0."""
    if n != int(n):
        return x.pow(n)
    exponent, square, result = int(n), x, None
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return torch.ones_like(x) if result is None else result


@dataclass(frozen=True)
class Interaction(ABC):
    """Base of the library's four, and of one's own. Three are x^n where x > 0 and differ elsewhere."""

    n: float

    def __post_init__(self) -> None:
        # Below, n - 1 is -1 by rounding; above, no power of a score is a number worth having.
        if not 1e-6 <= self.n <= 1e6:
            raise ValueError(f"vertex must be a number above 0, from 1e-06 to 1e+06, not {self.n}")

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """f(x)."""

    @abstractmethod
    def slope(self, x: Tensor) -> Tensor:
        """f'(x)."""


@dataclass(frozen=True)
class LeakyRectifiedPolynomial(Interaction):
    """f(x) = x^n where x > 0, else leak * x. The paper's.

    The paper prints `-eps x` (leak = -0.01); its authors' package computes `+eps x` (leak = 0.01).
    """

    leak: float = 0.01

    def value(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, power(_base(x, self.n), self.n), self.leak * x)

    def slope(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, self.n * power(_base(x, self.n), self.n - 1), self.leak)


@dataclass(frozen=True)
class RectifiedPolynomial(Interaction):
    """f(x) = x^n where x > 0, else 0 (Krotov and Hopfield 2016)."""

    def value(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, power(_base(x, self.n), self.n), 0.0)

    def slope(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, self.n * power(_base(x, self.n), self.n - 1), 0.0)


@dataclass(frozen=True)
class Polynomial(Interaction):
    """f(x) = x^n. For an n that is not an integer, the even continuation |x|^n."""

    def value(self, x: Tensor) -> Tensor:
        return power(x if self.n == int(self.n) else x.abs(), self.n)

    def slope(self, x: Tensor) -> Tensor:
        if self.n == int(self.n):
            return self.n * power(x, self.n - 1)
        return (
            self.n
            * x.sign()
            * power(x.abs() if self.n > 1 else torch.where(x == 0, 1.0, x.abs()), self.n - 1)
        )


@dataclass(frozen=True)
class Exponential(Interaction):
    """f(x) = exp(n (x - 1)): at x = 1 it has the value and the slope of x^n (Demircigil et al. 2017).

    Their exp(overlap), of N neurons, is this at n = N T, but for a factor, which no recall depends on.
    From e^60 on it goes along its tangent: learning meets no difference of two infinities, and what
    rises there is as steep as ever.
    """

    def value(self, x: Tensor) -> Tensor:
        y = self.n * (x - 1)
        return y.clamp(max=STEEPEST).exp() * (1 + (y - STEEPEST).clamp(min=0))

    def slope(self, x: Tensor) -> Tensor:
        return self.n * (self.n * (x - 1)).clamp(max=STEEPEST).exp()


STEEPEST = 60.0  # exponent: single precision holds e^88


def _base(x: Tensor, n: float) -> Tensor:
    # Below n = 1 the slope is infinite at 0; where() would turn the discarded inf into nan under autograd.
    return x.clamp(min=0) if n >= 1 else torch.where(x > 0, x, 1.0)


INTERACTIONS: dict[str, type[Interaction]] = {
    "leaky": LeakyRectifiedPolynomial,
    "rectified": RectifiedPolynomial,
    "polynomial": Polynomial,
    "exponential": Exponential,
}
