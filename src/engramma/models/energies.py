"""Energies of continuous states: E of a state x among memories X, and the update that never raises it.

    LogSumExp      E = x.x / 2 - 1/beta log sum_m exp(beta X_m.x)             x' = X' softmax(beta X x)
    Entmax         E = x.x / 2 - 1/beta Omega*(beta X x)                      x' = X' entmax(beta X x)
    Epanechnikov   E = -1/beta log(eps + sum_m relu(1 - beta/2 |x - X_m|^2))  x' = mean of the X_m in reach

Each says two things of what a state sees of the memories (`Seen`): the energy, and the weights p (B,K) with
which the update mixes them, x' = X' p. That no update raises E holds for all three: -E + x.x / 2 is convex in
x, or, for the third, log sum relu is below its tangents in |x - X_m|^2 nowhere. The update goes to the lowest
point of a parabola that touches E from above.

The energies of binary states are sums over memories of one function of the similarity: those are the
`engramma.interactions`. Axes: B states, K memories, N neurons.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log2
from typing import NamedTuple

import torch
from torch import Tensor


class Seen(NamedTuple):
    """What states see of memories, and all that an energy asks for."""

    overlap: Tensor  # (B,K) X_m . x
    state: Tensor  # (B,1) x . x
    memories: Tensor  # (K,) X_m . X_m

    @staticmethod
    def of(state: Tensor, memories: Tensor) -> Seen:
        return Seen(state @ memories.mT, state.square().sum(-1, keepdim=True), memories.square().sum(-1))

    @property
    def distance(self) -> Tensor:
        """(B,K): |x - X_m|^2, by rounding no less than 0."""
        return (self.state + self.memories - 2 * self.overlap).clamp(min=0)


@dataclass(frozen=True)
class Energy(ABC):
    """Base of the energies of continuous states. `beta` is the inverse temperature: how sharply a state
    prefers the memory that is most similar."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 1e-12 <= self.beta <= 1e12:
            raise ValueError(f"beta must be a number above 0, from 1e-12 to 1e+12, not {self.beta}")

    @abstractmethod
    def level(self, seen: Seen) -> Tensor:
        """(B,): E."""

    @abstractmethod
    def weights(self, seen: Seen) -> Tensor:
        """(B,K): p >= 0, how the update mixes the memories; all 0 where none is in reach."""

    def value(self, state: Tensor, memories: Tensor) -> Tensor:
        """(B,): E of states (B,N) among memories (K,N)."""
        return self.level(Seen.of(state, memories))

    def update(self, state: Tensor, memories: Tensor) -> Tensor:
        """(B,N): X' p, where E is no higher than at x; x itself where no memory is in reach."""
        p = self.weights(Seen.of(state, memories))
        return torch.where(p.any(-1, keepdim=True), p @ memories, state)

    def slope(self, state: Tensor, memories: Tensor) -> Tensor:
        """(B,N): the derivative of E by the state, x - X' p."""
        return state - self.update(state, memories)


@dataclass(frozen=True)
class LogSumExp(Energy):
    """E = x.x / 2 - 1/beta log sum_m exp(beta X_m.x). The update X' softmax(beta X x) is attention, of the
    state to the memories as keys and values (Ramsauer et al. 2020)."""

    def level(self, seen: Seen) -> Tensor:
        return seen.state[:, 0] / 2 - torch.logsumexp(self.beta * seen.overlap, -1) / self.beta

    def weights(self, seen: Seen) -> Tensor:
        return torch.softmax(self.beta * seen.overlap, -1)


@dataclass(frozen=True)
class Entmax(Energy):
    """E = x.x / 2 - 1/(beta k) Omega*(beta X x), whose update X' p / k mixes few memories and drops the
    others altogether, so that a pattern is recalled exactly (Hopfield-Fenchel-Young, Santos et al. 2024).

    Omega*(z) = max over p of p.z - Omega(p), with Omega(p) = sum_m (p_m^alpha - p_m) / (alpha (alpha - 1)),
    is reached at p = entmax(z). `alpha` 2 is sparsemax; 1.5 lies between it and the softmax, to which
    alpha 1 would lead. `subset` k > 1: k memories are recalled together, p_m from 0 to 1 and k in sum.
    """

    alpha: float = 1.5
    subset: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1.01 <= self.alpha <= 10:
            raise ValueError(
                f"alpha must be from 1.01 to 10, not {self.alpha}; at 1 it is the energy log-sum-exp"
            )
        if self.subset < 1 or self.subset != int(self.subset):
            raise ValueError(f"subset must be a whole number of at least 1, not {self.subset}")

    def level(self, seen: Seen) -> Tensor:
        z, a = self.beta * seen.overlap, self.alpha
        p = entmax(z.detach(), a, self.subset)  # a maximum: how p moves does not count
        conjugate = (p * z - (p**a - p) / (a * (a - 1))).sum(-1)
        return seen.state[:, 0] / 2 - conjugate / (self.beta * self.subset)

    def weights(self, seen: Seen) -> Tensor:
        return entmax(self.beta * seen.overlap, self.alpha, self.subset) / self.subset


@dataclass(frozen=True)
class Epanechnikov(Energy):
    """E = -1/beta log(eps + sum_m relu(1 - beta/2 |x - X_m|^2)), the log-sum-ReLU (Hoover et al. 2025).

    The update is the mean of the memories nearer than sqrt(2 / beta). A state that is nearer to none has the
    highest energy there is and stays where it is. A memory that has no other within this reach is recalled
    exactly, however many there are; between memories in reach of each other new minima emerge.
    """

    eps: float = 1e-12

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.eps < 1:
            raise ValueError(f"eps must lie between 0 and 1, not {self.eps}")

    def level(self, seen: Seen) -> Tensor:
        return -(self.eps + self._near(seen).sum(-1)).log() / self.beta

    def weights(self, seen: Seen) -> Tensor:
        reached = (self._near(seen) > 0).to(seen.overlap)
        return reached / reached.sum(-1, keepdim=True).clamp(min=1)

    def slope(self, state: Tensor, memories: Tensor) -> Tensor:
        near = self._near(Seen.of(state, memories))
        steep = (near > 0).sum(-1, keepdim=True) / (self.eps + near.sum(-1, keepdim=True))
        return steep * super().slope(state, memories)

    def _near(self, seen: Seen) -> Tensor:
        return (1 - self.beta / 2 * seen.distance).clamp(min=0)


ENERGIES: dict[str, Callable[[float], Energy]] = {
    "log-sum-exp": LogSumExp,
    "entmax": Entmax,
    "sparsemax": partial(Entmax, alpha=2.0),
    "epanechnikov": Epanechnikov,
}


def entmax(z: Tensor, alpha: float = 1.5, subset: int = 1) -> Tensor:
    """(B,K): p_m = ((alpha - 1) z_m - t)^(1 / (alpha - 1)), 0 where the base is negative and 1 at the most,
    with the t at which all p of a row add up to `subset` (Peters et al. 2019).

    Found by bisection: the sum falls as t rises, and t lies where the K-th largest p is 0 or the largest 1.

    Examples
    --------
    >>> import torch
    >>> from engramma.models.energies import entmax
    >>> entmax(torch.tensor([[1.0, 0.6, -1.0]]), alpha=2)
    tensor([[0.7000, 0.3000, 0.0000]])
    """
    if subset > z.shape[-1]:
        raise ValueError(f"subset must be at most the number of memories, {z.shape[-1]}, not {subset}")
    y, power = (alpha - 1) * (z - z.amax(-1, keepdim=True)), 1 / (alpha - 1)

    def p(t: Tensor) -> tuple[Tensor, Tensor]:
        """The weights, and how fast they fall with t."""
        inside = (y > t) & (y < t + 1)
        base = torch.where(inside, y - t, 1.0)  # no power of 0 is differentiated
        return torch.where(inside, base**power, (y > t).to(y)), inside * power * base ** (power - 1)

    with torch.no_grad():
        top = y.topk(subset, dim=-1).values
        low, high = top[..., -1:] - 1, top[..., :1]  # at low the top all have p = 1, at high none has any
        for _ in range(2 - int(log2(torch.finfo(z.dtype).eps))):
            middle = (low + high) / 2
            much = p(middle)[0].sum(-1, keepdim=True) > subset
            low, high = torch.where(much, middle, low), torch.where(much, high, middle)
        falls = p(low)[1].sum(-1, keepdim=True)
    # The root stays where it is; how it moves with z, autograd sees in a step of Newton's method.
    step = (p(low)[0].sum(-1, keepdim=True) - subset) / torch.where(falls > 0, falls, 1.0)
    return p(low + (step - step.detach()))[0]
