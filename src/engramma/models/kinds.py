"""The two kinds of states: binary ones under an interaction, continuous ones under an energy.

Each says what states (B,N) see of the patterns, how high their energy is, where an update moves them, and
what they answer with where every pattern recalls another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engramma.interactions import Exponential, Interaction
from engramma.models.energies import Energy, Seen
from engramma.models.patterns import Bits, Patterns
from engramma.models.recall import bipolar, real, rounded

RESTS = 1e-7  # a continuous state rests if no neuron moves by this share of a pattern's mean size


class States(ABC):
    @abstractmethod
    def read(
        self, states: Tensor | np.ndarray, name: str, neurons: int | None, erased: bool = False
    ) -> Tensor:
        """(B,N): states, refused unless they are of this kind. `erased`: some neurons may be unknown."""

    @abstractmethod
    def see(self, patterns: Patterns, state: Tensor) -> Any: ...

    @abstractmethod
    def level(self, patterns: Patterns, seen: Any) -> Tensor:
        """(B,): E."""

    @abstractmethod
    def together(self, patterns: Patterns, seen: Any, state: Tensor, held: Tensor, rate: float) -> Tensor:
        """(B,N): all neurons updated at once; what those do that are held does not count."""

    @abstractmethod
    def in_turn(self, patterns: Patterns, seen: Any, state: Tensor, held: Tensor, rate: float) -> Tensor:
        """(B,N): every neuron that is not held (B,N) updated once, each after the ones before it."""

    @abstractmethod
    def answer(self, patterns: Patterns, recalls: Patterns, state: Tensor) -> Tensor:
        """(B,L): what the patterns recall."""

    def tolerance(self, patterns: Patterns) -> float:
        """How far a neuron may move that counts as resting."""
        del patterns
        return 0.0


@dataclass(frozen=True)
class Binary(States):
    """-1 and +1, and 0 where a neuron is not known. E = -sum_m f(h_m), with similarities h = X x / (N T); of
    the exponential -log sum_m f(h_m)."""

    interaction: Interaction
    temperature: float

    def read(
        self, states: Tensor | np.ndarray, name: str, neurons: int | None, erased: bool = False
    ) -> Tensor:
        return bipolar(states, name, neurons, erased)

    def see(self, patterns: Patterns, state: Tensor) -> Tensor:
        return patterns.overlap(state)

    def level(self, patterns: Patterns, seen: Tensor) -> Tensor:
        f, h = self.interaction, seen * self._unit(patterns)
        if isinstance(f, Exponential):
            return -torch.logsumexp(f.n * (h - 1), -1)
        return -f.value(h).sum(-1)

    def together(
        self, patterns: Patterns, seen: Tensor, state: Tensor, held: Tensor, rate: float = 1.0
    ) -> Tensor:
        o = self.scores(patterns, seen, state)
        return torch.where(o == 0, state, o.sign())

    def in_turn(
        self, patterns: Patterns, seen: Tensor, state: Tensor, held: Tensor, rate: float = 1.0
    ) -> Tensor:
        state, q = state.clone(), seen.clone()
        for i in range(state.shape[1]):
            x, own = patterns.neuron(i), state[:, i].clone()
            o = self._score(self._lifted(q * self._unit(patterns)), own, x * self._unit(patterns))
            state[:, i] = torch.where(held[:, i] | (o == 0), own, o.sign())
            q += (state[:, i] - own)[:, None] * x
        return state

    def answer(self, patterns: Patterns, recalls: Patterns, state: Tensor) -> Tensor:
        """The signs of further neurons that every pattern has and no probe knows; 0 where undecided."""
        unit = self._unit(patterns)
        h = self._lifted(patterns.overlap(state) * unit)
        w = self.interaction.value(h + unit) - self.interaction.value(h - unit)
        return rounded(recalls.mix(w), w.abs().sum(-1, keepdim=True), h.shape[1]).sign()

    def scores(self, patterns: Patterns, q: Tensor, state: Tensor) -> Tensor:
        """(B,N): o_i = sum_m f(h_m with neuron i on) - f(h_m with it off), by overlaps q (B,K).

        Patterns X of -1 and +1 need no look at each neuron. With s = 1/(N T), neuron i of state x turned over
        moves h_m by -2s where pattern m agrees with it, X_mi = x_i, and by 2s elsewhere. So x_i o_i adds up
        f(h) - f(h - 2s) of those that agree and f(h) - f(h + 2s) of the others, which is

            o = (x sum_m c_m + X' w) / 2,    w = f(h + 2s) - f(h - 2s),    c = 2 f(h) - f(h + 2s) - f(h - 2s)

        and X' (f(h + s) - f(h - s)) for neurons that are not known. c is what a neuron does to itself.
        """
        if not isinstance(patterns, Bits):
            unit = self._unit(patterns)
            h, neurons = self._lifted(q * unit), range(patterns.size[1])
            return torch.stack([self._score(h, state[:, i], patterns.neuron(i) * unit) for i in neurons], 1)
        f, at = self._around(patterns, q)
        w = (f[4:] - f[:-4])[at].mT
        c = (2 * f[2:-2] - f[4:] - f[:-4])[at].sum(0)[:, None]
        o, size = (state * c + patterns.mix(w)) / 2, w.norm(1, dim=-1, keepdim=True) + c.abs()
        if not bool(state.all()):
            o = torch.where(state == 0, patterns.mix((f[3:-1] - f[1:-3])[at].mT), o)
        return rounded(o, size, q.shape[1])

    def _score(self, h: Tensor, own: Tensor, a: Tensor) -> Tensor:
        """(B,): one neuron's score; it stands at `own` (B,), and a (K,) is what it has in the patterns."""
        f, own = self.interaction.value, own[:, None]
        apart = f(h + (1 - own) * a) - f(h - (1 + own) * a)
        return rounded(apart.sum(-1), apart.abs().sum(-1), len(a))

    def _unit(self, patterns: Patterns) -> float:
        return 1 / (patterns.size[1] * self.temperature)

    def _lifted(self, h: Tensor) -> Tensor:
        """Similarities; for the exponential beside the largest, which is a factor of f and changes no sign:
        nothing overflows, and the largest is never lost."""
        if isinstance(self.interaction, Exponential):
            return h - h.amax(-1, keepdim=True) + 1
        return h

    def _around(self, patterns: Patterns, q: Tensor) -> tuple[Tensor, Tensor]:
        """f of every similarity there can be, from two steps s below to two above, for overlaps with patterns
        of -1 and +1 are whole numbers; and where in it those of q (B,K) stand, two steps lower, (K,B)."""
        neurons, at = patterns.size[1], q.mT.long()
        if isinstance(self.interaction, Exponential):  # as `_lifted`
            low, base, at = -2 * neurons, 1.0, at - at.amax(0) + 2 * neurons
        else:
            low, base, at = -neurons, 0.0, at + neurons
        grid = torch.arange(low - 2, low + 2 * neurons + 3, device=q.device).to(q.dtype)
        return self.interaction.value(base + grid * self._unit(patterns)), at


@dataclass(frozen=True)
class Continuous(States):
    """Any numbers, under one of `engramma.models.energies`; an update goes to X' p, or at a `rate` below 1 a
    part of the way."""

    energy: Energy

    def read(
        self, states: Tensor | np.ndarray, name: str, neurons: int | None, erased: bool = False
    ) -> Tensor:
        return real(states, name, neurons)

    def see(self, patterns: Patterns, state: Tensor) -> Seen:
        return Seen(patterns.overlap(state), state.square().sum(-1, keepdim=True), patterns.squares)

    def level(self, patterns: Patterns, seen: Seen) -> Tensor:
        return self.energy.level(seen)

    def together(
        self, patterns: Patterns, seen: Seen, state: Tensor, held: Tensor, rate: float = 1.0
    ) -> Tensor:
        p = self.energy.weights(seen)
        return torch.where(p.any(-1, keepdim=True), state + rate * (patterns.mix(p) - state), state)

    def in_turn(
        self, patterns: Patterns, seen: Seen, state: Tensor, held: Tensor, rate: float = 1.0
    ) -> Tensor:
        state, q = state.clone(), seen.overlap.clone()
        for i in range(state.shape[1]):
            x, own = patterns.neuron(i), state[:, i].clone()
            p = self.energy.weights(Seen(q, state.square().sum(-1, keepdim=True), seen.memories))
            state[:, i] = torch.where(held[:, i] | ~p.any(-1), own, own + rate * (p @ x - own))
            q += (state[:, i] - own)[:, None] * x
        return state

    def answer(self, patterns: Patterns, recalls: Patterns, state: Tensor) -> Tensor:
        return recalls.mix(self.energy.weights(self.see(patterns, state)))

    def tolerance(self, patterns: Patterns) -> float:
        return RESTS * float(patterns.squares.mean() / patterns.size[1]) ** 0.5
