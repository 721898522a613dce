"""The Dense Associative Memory as what it is named after: patterns are stored, and recalled from a part.

Patterns and probes are -1 and +1, of shape (N,) or (B,N), as tensors or numpy arrays. A neuron is
updated to the sign of its score (`engramma.network`); one with a score of exactly 0 stays as it is.
"""

from __future__ import annotations

from math import log, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engramma.checks import interaction_class
from engramma.interactions import Interaction
from engramma.kernels import kernel_for
from engramma.methods import Vanilla
from engramma.network import DenseMemory, Relaxed
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import StateStream
from engramma.train import train


def capacity(neurons: int, vertex: int) -> float:
    """Random patterns of N neurons that are stored without errors: N^(n-1) / (2 (2n-3)!! ln N)
    (Krotov and Hopfield 2016).

    Examples
    --------
    >>> round(capacity(100, 2), 1), round(capacity(100, 3), 1)
    (10.9, 361.9)
    """
    if neurons < 2 or vertex < 2 or vertex != int(vertex):
        raise ValueError("capacity needs at least 2 neurons and a whole vertex of at least 2")
    odd = prod(range(2 * int(vertex) - 3, 0, -2))
    return neurons ** (vertex - 1) / (2 * odd * log(neurons))


class AssociativeMemory:
    """Memories (M,N): patterns as they are (`store`), or found by Algorithm 1 (`learn`).

    `interaction` is a name in `INTERACTIONS` or an interaction of its own. Scores of stored patterns
    are sums of whole numbers raised to the vertex, so float64 compares them exactly far beyond the
    capacity of the network.

    Examples
    --------
    >>> import numpy as np
    >>> from engramma.models.associative import AssociativeMemory
    >>> patterns = np.random.default_rng(0).choice([-1, 1], (5, 60))
    >>> memory = AssociativeMemory(vertex=3)
    >>> memory.store(patterns)
    >>> probe = patterns[0].copy()
    >>> probe[:6] *= -1
    >>> bool((memory.recall(probe).state.numpy() == patterns[0]).all())
    True
    """

    def __init__(
        self,
        vertex: float = 2,
        interaction: str | Interaction = "polynomial",
        temperature: float = 1.0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
        kernel: str = "auto",
    ) -> None:
        if isinstance(interaction, str):
            interaction = interaction_class(interaction)(vertex)
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
        self.interaction, self.temperature = interaction, temperature
        self.device, self.dtype, self.kernel = torch.device(device), dtype, kernel_for(device, kernel)
        self.memories: Tensor | None = None  # (M,N)

    def store(self, patterns: Tensor | np.ndarray) -> None:
        """Every pattern becomes a memory, beside those there are."""
        fresh = self._patterns(patterns).to(self.device, self.dtype)
        if self.memories is not None:
            fresh = torch.cat([self.memories, fresh])
        self.memories = fresh

    def learn(
        self,
        patterns: Tensor | np.ndarray,
        memories: int = 64,
        epochs: int = 200,
        learning_rate: float = 0.05,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        """Algorithm 1 over all neurons: gradient descent on how far one update moves the patterns.

        The first call draws `memories` small random ones; later calls go on from what is there, as a
        network that learns task after task does. `settings` are the optimiser's (`engramma.optimiser`).
        """
        states = self._patterns(patterns).cpu().numpy()
        replicas = Replicas((seed,))
        if self.memories is None:
            drawn = replicas.memories(memories, states.shape[1], device=self.device, dtype=self.dtype)
            self.memories = drawn[0]
        stream = StateStream(
            replicas, states=states[None], device=self.device, dtype=self.dtype, kernel=self.kernel
        )
        temperature = {"initial_temperature": self.temperature, "final_temperature": self.temperature}
        # Its rate was chosen with velocities that are scaled.
        rule = {**temperature, "normalise": "velocity", **settings}
        optimiser = Optimiser(learning_rate=learning_rate, epochs=epochs, **rule)
        theta = self.memories[None]
        for moment in train(self._network(states.shape[1]), stream, Vanilla(), optimiser, replicas, theta):
            theta = moment.theta
        self.memories = theta[0]

    def recall(self, probe: Tensor | np.ndarray, steps: int = 50, order: str = "synchronous") -> Relaxed:
        """Update all neurons until nothing changes: all at once, or (asynchronous) one after the other,
        which never raises the energy. `state` is shaped like the probe."""
        theta, state, network = self._ask(probe)
        end = network.relax(theta, state, steps, order=order)
        return Relaxed(*(_like(part[0], probe) for part in end))

    def scores(self, state: Tensor | np.ndarray) -> Tensor:
        """Like the state: every neuron's score, whose sign it is updated to."""
        theta, batch, network = self._ask(state)
        probe = network.kernel.prepare(batch, theta.dtype)
        return _like(network.scores(theta, probe)[0], state)

    def energy(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,), or one number: -sum over memories of f(overlap / (N T))."""
        theta, batch, network = self._ask(state)
        return _like(network.energy(theta, network.kernel.prepare(batch, theta.dtype))[0], state)

    def is_stable(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,) bool, or one: an update leaves every neuron as it is."""
        return self.recall(state, steps=1).converged

    @staticmethod
    def capacity(neurons: int, vertex: int) -> float:
        """Patterns stored without errors, in theory: see `engramma.models.associative.capacity`."""
        return capacity(neurons, vertex)

    def _patterns(self, patterns: Tensor | np.ndarray) -> Tensor:
        return bipolar(patterns, "patterns", None if self.memories is None else self.memories.shape[1])

    def _network(self, neurons: int) -> DenseMemory:
        return DenseMemory(
            neurons, 0, self.interaction, autoassociative=True, beta=1 / self.temperature, kernel=self.kernel
        )

    def _ask(self, state: Tensor | np.ndarray) -> tuple[Tensor, Tensor, DenseMemory]:
        """Memories (1,M,N), states (1,B,N) and the network between them."""
        if self.memories is None:
            raise RuntimeError("the memory is empty: store() or learn() something first")
        batch = bipolar(state, "state", self.memories.shape[1]).to(self.device, self.dtype)
        return self.memories[None], batch[None], self._network(self.memories.shape[1])


def bipolar(states: Tensor | np.ndarray, name: str, neurons: int | None = None) -> Tensor:
    """(B,N), one row for a single state; refused unless every entry is -1 or +1."""
    tensor = torch.as_tensor(states)
    tensor = tensor[None] if tensor.dim() == 1 else tensor
    if tensor.dim() != 2 or tensor.numel() == 0 or not bool((tensor.abs() == 1).all()):
        raise ValueError(f"{name} must be -1 and +1, of shape (neurons,) or (items, neurons)")
    if neurons is not None and tensor.shape[1] != neurons:
        raise ValueError(f"{name} must have {neurons} neurons, not {tensor.shape[1]}")
    return tensor


def _like(answer: Tensor, asked: Tensor | np.ndarray) -> Tensor:
    return answer[0] if asked.ndim == 1 else answer
