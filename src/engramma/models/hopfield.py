"""The classical Hopfield network, with the interface of `AssociativeMemory`: its reference at n = 2.

A neuron is updated to the sign of its field, the sum over the others of w_ij s_j. Patterns are
presented one after the other; a rule says how a presentation changes the weights (N,N), whose diagonal
stays 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from engramma.models.associative import _like, bipolar
from engramma.network import Relaxed

RULES = ("hebbian", "storkey", "delta", "thermal")


class Hopfield:
    """Weights (N,N) by one of four rules. With x the pattern, W x its fields:

    - "hebbian": W += x x' / N.
    - "storkey" (Storkey 1997): W += (x x' - x h' - h x') / N, where h_ij leaves i and j out of the field.
    - "delta" (Widrow and Hoff 1960): W += rate (x - W x) x' / N.
    - "thermal" (Frean 1992): the perceptron's step for neurons on the wrong side, damped by how far they
      are on it: W += rate x exp(-|W x| / T) x' / N for those. `learn` lets rate and T fall to 0.

    Delta and thermal leave W asymmetric: the energy is then that of its symmetric part, and updates
    need not lower it.

    Examples
    --------
    >>> import numpy as np
    >>> from engramma.models.hopfield import Hopfield
    >>> patterns = np.random.default_rng(0).choice([-1, 1], (5, 100))
    >>> network = Hopfield()
    >>> network.store(patterns)
    >>> network.is_stable(patterns).all()
    tensor(True)
    """

    def __init__(
        self,
        rule: str = "hebbian",
        rate: float = 1.0,
        temperature: float = 1.0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, not {rule!r}")
        for name, value in (("rate", rate), ("temperature", temperature)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        self.rule, self.rate, self.temperature = rule, rate, temperature
        self.device, self.dtype = torch.device(device), dtype
        self.weights: Tensor | None = None  # (N,N)

    def store(self, patterns: Tensor | np.ndarray) -> None:
        """One presentation of every pattern."""
        self._present(self._patterns(patterns), 1.0)

    def learn(self, patterns: Tensor | np.ndarray, epochs: int = 100) -> None:
        """Presentations of all of them until all are stable, at most `epochs` times."""
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {epochs}")
        states = self._patterns(patterns)
        for epoch in range(epochs):
            self._present(states, 1 - epoch / epochs if self.rule == "thermal" else 1.0)
            if bool(self.is_stable(states).all()):
                return

    def recall(self, probe: Tensor | np.ndarray, steps: int = 50, order: str = "synchronous") -> Relaxed:
        """Update all neurons until nothing changes, all at once or (asynchronous) one after the other."""
        if order not in ("synchronous", "asynchronous"):
            raise ValueError(f"order must be synchronous or asynchronous, not {order!r}")
        weights, state = self._ask(probe)
        state = state.clone()
        count = torch.zeros(len(state), dtype=torch.long, device=self.device)
        moving = torch.ones_like(count, dtype=torch.bool)
        alone = [slice(i, i + 1) for i in range(len(weights))]
        for _ in range(steps):
            before = state.clone()
            for group in [slice(None)] if order == "synchronous" else alone:
                field = state @ weights[group].mT
                state[:, group] = torch.where(field == 0, state[:, group], field.sign())
            moving = (state != before).any(1)
            count += moving
            if not bool(moving.any()):
                break
        return Relaxed(*(_like(part, probe) for part in (state, count, ~moving)))

    def scores(self, state: Tensor | np.ndarray) -> Tensor:
        """Like the state: every neuron's field."""
        weights, batch = self._ask(state)
        return _like(batch @ weights.mT, state)

    def energy(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,), or one number: -1/2 s' W s."""
        weights, batch = self._ask(state)
        return _like(-0.5 * ((batch @ weights.mT) * batch).sum(1), state)

    def is_stable(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,) bool, or one: an update leaves every neuron as it is."""
        return self.recall(state, steps=1).converged

    @staticmethod
    def capacity(neurons: int, vertex: Any = 2) -> float:
        """0.14 N: beyond it Hebbian recall breaks down altogether, errors allowed (Amit et al. 1985)."""
        del vertex
        return 0.14 * neurons

    def _present(self, states: Tensor, heat: float) -> None:
        """`heat` scales the thermal rule's rate and temperature, from 1 down to 0."""
        weights = self.weights
        assert weights is not None
        size = len(weights)
        if self.rule == "hebbian":  # presentations add up: one product for all
            weights = weights + states.mT @ states / size
            states = states[:0]
        for x in states:
            field = weights @ x
            if self.rule == "storkey":
                # w_ii is 0, so the field already leaves i out; j is taken out here.
                h = field[:, None] - weights * x
                change = torch.outer(x, x) - x[:, None] * h.mT - h * x
            elif self.rule == "delta":
                change = self.rate * torch.outer(x - field, x)
            else:
                wrong = x * field <= 0
                damped = torch.exp(-field.abs() / (self.temperature * heat))
                change = self.rate * heat * torch.outer(wrong * x * damped, x)
            weights = (weights + change / size).fill_diagonal_(0)
        self.weights = weights.fill_diagonal_(0)

    def _patterns(self, patterns: Tensor | np.ndarray) -> Tensor:
        neurons = None if self.weights is None else len(self.weights)
        states = bipolar(patterns, "patterns", neurons).to(self.device, self.dtype)
        if self.weights is None:
            self.weights = torch.zeros(states.shape[1], states.shape[1], dtype=self.dtype, device=self.device)
        return states

    def _ask(self, state: Tensor | np.ndarray) -> tuple[Tensor, Tensor]:
        if self.weights is None:
            raise RuntimeError("the network is empty: store() or learn() something first")
        return self.weights, bipolar(state, "state", len(self.weights)).to(self.device, self.dtype)
