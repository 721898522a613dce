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

from engramma.models.recall import ORDERS, Dynamics, Recalled, bipolar, like, masked, rounded, settle
from engramma.replicas import generator

RULES = ("hebbian", "storkey", "pseudo-inverse", "delta", "thermal", "bounded")


class Hopfield:
    """Weights (N,N) by one of six rules. With x the pattern, W x its fields:

    - "hebbian": W += x x' / N.
    - "storkey" (Storkey 1997): W += (x x' - x h' - h x') / N, where h_ij leaves i and j out of the field.
    - "pseudo-inverse" (Personnaz, Guyon and Dreyfus 1985): W is the projection onto what all patterns span,
      W += r r' / r'r with r = x - W x. Any that are linearly independent are fixed points, exactly.
    - "delta" (Widrow and Hoff 1960): W += rate (x - W x) x' / N.
    - "thermal" (Frean 1992): the perceptron's step for neurons on the wrong side, damped by how far they
      are on it: W += rate x exp(-|W x| / T) x' / N for those. `learn` lets rate and T fall to 0.
    - "bounded" (Parisi 1986): Hebb's, with every weight kept within bound / sqrt(N). A palimpsest: the last
      patterns are recalled however many came before, and old ones fade.

    `unlearn` and `dream` take off again what Hebb's rule stores beside the patterns.

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
        bound: float = 0.4,
    ) -> None:
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, not {rule!r}")
        for name, value in (("rate", rate), ("temperature", temperature), ("bound", bound)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        self.rule, self.rate, self.temperature, self.bound = rule, rate, temperature, bound
        self.device, self.dtype = torch.device(device), dtype
        self.weights: Tensor | None = None  # (N,N), the diagonal 0
        self._own = 0.0  # (N,) the diagonal as Hebb's rule and the projection have it

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

    def unlearn(self, dreams: int, rate: float = 0.01, seed: int = 0) -> None:
        """Hopfield, Feinstein and Palmer (1983): from random states fall into what is there, mostly mixtures
        that nobody stored, and make each a little shallower: W -= rate s s' / N."""
        weights, draw = self._filled(), generator(seed, "unlearning")
        if not rate > 0:
            raise ValueError(f"rate must be above 0, not {rate}")
        for _ in range(dreams):
            start = torch.as_tensor(draw.choice([-1.0, 1.0], len(weights))).to(weights)
            s = self.recall(start, order="asynchronous").state
            self.weights = weights = (weights - rate * torch.outer(s, s) / len(s)).fill_diagonal_(0)

    def dream(self, time: float) -> None:
        """Fachechi, Agliari and Barra (2019): W becomes (1 + t) W (1 + t W)^-1, diagonal and all. That is
        Hebb's W at t = 0, and goes to the projection of the pseudo-inverse as t grows."""
        weights = self._filled()
        if self.rule != "hebbian":
            raise ValueError(f"rule must be hebbian for dream, not {self.rule}")
        if not 0 <= time < float("inf"):
            raise ValueError(f"time must be a number of at least 0, not {time}")
        hebb = weights + torch.diag(self._own * torch.ones_like(weights[0]))
        slept = (1 + time) * torch.linalg.solve(torch.eye(len(hebb)).to(hebb) + time * hebb, hebb)
        slept = (slept + slept.mT) / 2  # which it is, but for rounding
        self._own, self.weights = slept.diagonal().clone(), slept.fill_diagonal_(0)

    def recall(
        self,
        probe: Tensor | np.ndarray,
        steps: int = 50,
        order: str = "synchronous",
        known: Tensor | np.ndarray | None = None,
        trace: bool = False,
    ) -> Recalled:
        """Update all neurons until nothing changes, all at once or (asynchronous) one after the other.
        `known` and `trace` are those of `AssociativeMemory.recall`."""
        if order not in ORDERS:
            raise ValueError(f"order must be synchronous or asynchronous, not {order!r}")
        weights, state = self._ask(probe)
        size = weights.abs().sum(1)

        def turned(_: Tensor, state: Tensor, held: Tensor) -> Tensor:
            alone = [slice(i, i + 1) for i in range(len(weights))]
            state = state.clone()
            for group in [slice(None)] if order == "synchronous" else alone:
                field = rounded(state @ weights[group].mT, size[group], len(weights))
                state[:, group] = torch.where(held[:, group] | (field == 0), state[:, group], field.sign())
            return state

        dynamics = Dynamics(
            see=lambda state: state,
            move=turned,
            level=lambda state: -0.5 * ((state @ weights.mT) * state).sum(1),
        )
        return settle(state, masked(known, state), dynamics, steps, trace).shaped(probe)

    def scores(self, state: Tensor | np.ndarray) -> Tensor:
        """Like the state: every neuron's field."""
        weights, batch = self._ask(state)
        return like(batch @ weights.mT, state)

    def energy(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,), or one number: -1/2 s' W s."""
        weights, batch = self._ask(state)
        return like(-0.5 * ((batch @ weights.mT) * batch).sum(1), state)

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
            weights, self._own = weights + states.mT @ states / size, self._own + len(states) / size
            states = states[:0]
        for x in states:
            field = weights @ x
            if self.rule == "pseudo-inverse":
                r = x - field - self._own * x
                if r @ r < 1e-9 * size:  # of the others' span, but for rounding
                    continue
                change = torch.outer(r, r) * (size / (r @ r))
                self._own = self._own + r * r / (r @ r)
            elif self.rule == "bounded":
                change = torch.outer(x, x)
            elif self.rule == "storkey":
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
            if self.rule == "bounded":
                weights = weights.clamp(-self.bound / size**0.5, self.bound / size**0.5)
        self.weights = weights.fill_diagonal_(0)

    def _patterns(self, patterns: Tensor | np.ndarray) -> Tensor:
        neurons = None if self.weights is None else len(self.weights)
        states = bipolar(patterns, "patterns", neurons).to(self.device, self.dtype)
        if self.weights is None:
            self.weights = torch.zeros(states.shape[1], states.shape[1], dtype=self.dtype, device=self.device)
        return states

    def _ask(self, state: Tensor | np.ndarray) -> tuple[Tensor, Tensor]:
        weights = self._filled()
        return weights, bipolar(state, "state", len(weights), erased=True).to(self.device, self.dtype)

    def _filled(self) -> Tensor:
        if self.weights is None:
            raise RuntimeError("the network is empty: store() or learn() something first")
        return self.weights
