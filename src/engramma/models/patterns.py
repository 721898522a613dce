"""What a memory holds: K patterns of N neurons, asked for overlaps and for mixtures of themselves.

Patterns of -1 and +1 are kept as bits, a million of 1,000 neurons in 128 MB: on the CPU their products are
looked up and not multiplied (`kernels/numba/signs.py`), elsewhere they are unpacked a block at a time. Other
patterns are a plain tensor. Axes: B states, K patterns, N neurons.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from engramma.kernels import kernel_for

BLOCK = 2**24  # entries that are unpacked at once
FEW = 10**7  # multiplications: a product smaller than this is not worth looking up
ROWS = 4096  # of signs that are summed at once: their sums stay in the second-level cache


class Patterns(ABC):
    size: tuple[int, int]  # K, N

    @abstractmethod
    def overlap(self, state: Tensor) -> Tensor:
        """(B,K): X_m . x for states (B,N), in their precision."""

    @abstractmethod
    def mix(self, weights: Tensor) -> Tensor:
        """(B,N): X' p, the patterns added up with weights (B,K)."""

    @abstractmethod
    def neuron(self, i: int) -> Tensor:
        """(K,): what the patterns have at neuron i."""

    @abstractmethod
    def rows(self, picked: Tensor | slice) -> Tensor:
        """(.,N): some of the patterns, as numbers."""

    @property
    @abstractmethod
    def squares(self) -> Tensor:
        """(K,): X_m . X_m."""

    @abstractmethod
    def joined(self, fresh: Tensor) -> Patterns:
        """These and, after them, others (K',N)."""


class Plain(Patterns):
    """A tensor (K,N)."""

    def __init__(self, patterns: Tensor) -> None:
        self.patterns, self.size = patterns, (patterns.shape[0], patterns.shape[1])

    def overlap(self, state: Tensor) -> Tensor:
        return state @ self.patterns.mT

    def mix(self, weights: Tensor) -> Tensor:
        return weights @ self.patterns

    def neuron(self, i: int) -> Tensor:
        return self.patterns[:, i]

    def rows(self, picked: Tensor | slice) -> Tensor:
        return self.patterns[picked]

    @property
    def squares(self) -> Tensor:
        return self.patterns.square().sum(1)

    def joined(self, fresh: Tensor) -> Plain:
        return Plain(torch.cat([self.patterns, fresh.to(self.patterns)]))


class Bits(Patterns):
    """Patterns of -1 and +1 as bytes (K, 4 W) of eight neurons each, in words of 32."""

    def __init__(self, packed: Tensor, neurons: int, dtype: torch.dtype, kernel: str = "auto") -> None:
        self.packed, self.dtype, self.kernel = packed, dtype, kernel
        self.size = packed.shape[0], neurons
        self._turned: np.ndarray | None = None  # the same bits, a row for each neuron
        self._looked_up = kernel_for(packed.device, kernel).name == "numba"

    @staticmethod
    def pack(patterns: Tensor) -> Tensor:
        """(K, 4 W) uint8, on the device of the patterns (K,N)."""
        count, neurons = patterns.shape
        packed = torch.zeros(count, 4 * -(-neurons // 32), dtype=torch.uint8)
        for block in _blocks(count, neurons):
            bits = np.packbits((patterns[block] > 0).cpu().numpy(), axis=1, bitorder="little")
            packed[block, : bits.shape[1]] = torch.from_numpy(bits)
        return packed.to(patterns.device)

    def overlap(self, state: Tensor) -> Tensor:
        if self._pays(len(state)):
            return self._signed_sums(self._words, state)
        out = state.new_empty(len(state), self.size[0])
        for block in _blocks(*self.size):
            out[:, block] = state @ self.rows(block).to(state).mT
        return out

    def mix(self, weights: Tensor) -> Tensor:
        if self._pays(len(weights)):
            return self._signed_sums(self._neurons, weights)
        out = weights.new_zeros(len(weights), self.size[1])
        for block in _blocks(*self.size):
            out += weights[:, block] @ self.rows(block).to(weights)
        return out

    def neuron(self, i: int) -> Tensor:
        return ((self.packed[:, i // 8] >> (i % 8)) & 1).to(self.dtype) * 2 - 1

    def rows(self, picked: Tensor | slice) -> Tensor:
        packed = self.packed[picked]
        bits = (packed[..., None] >> torch.arange(8, device=packed.device, dtype=torch.uint8)) & 1
        return bits.flatten(1)[:, : self.size[1]].to(self.dtype) * 2 - 1

    @property
    def squares(self) -> Tensor:
        return torch.full((self.size[0],), float(self.size[1]), dtype=self.dtype, device=self.packed.device)

    def joined(self, fresh: Tensor) -> Patterns:
        if not signs(fresh):
            return Plain(self.rows(slice(None))).joined(fresh)
        packed = torch.cat([self.packed, self.pack(fresh).to(self.packed)])
        return Bits(packed, self.size[1], self.dtype, self.kernel)

    def _pays(self, states: int) -> bool:
        return self._looked_up and states * self.size[0] * self.size[1] >= FEW

    @property
    def _words(self) -> np.ndarray:
        return self.packed.numpy().view("<u4")

    @property
    def _neurons(self) -> np.ndarray:
        """(N, K/32) words."""
        if self._turned is None:
            from engramma.kernels.numba import signs

            self._turned = signs.turned(self._words, self.size[1])
        return self._turned

    def _signed_sums(self, words: np.ndarray, vectors: Tensor) -> Tensor:
        """(B,R): for each of R rows of signs the sum of the columns of vectors (B,.) with these signs."""
        from engramma.kernels.numba import signs, threads

        v = np.ascontiguousarray(vectors.numpy().T)
        out = np.empty((len(words), v.shape[1]), v.dtype)
        parts = threads.cut(len(words))
        if len(words) > 8 * ROWS:
            parts = [slice(first, first + ROWS) for first in range(0, len(words), ROWS)]
        threads.each(lambda _, rows: signs.signed_sums(words[rows], v, out[rows]), 1, parts)
        return torch.from_numpy(out).mT


def signs(patterns: Tensor) -> bool:
    """Whether all entries are -1 or +1."""
    return all(bool((patterns[block].abs() == 1).all()) for block in _blocks(*patterns.shape))


def held(patterns: Tensor, device: torch.device, dtype: torch.dtype, kernel: str) -> Patterns:
    """Patterns (K,N), as little as they can be kept in."""
    if signs(patterns):
        return Bits(Bits.pack(patterns).to(device), patterns.shape[1], dtype, kernel)
    return Plain(patterns.to(device, dtype))


def _blocks(count: int, neurons: int) -> Iterator[slice]:
    step = max(1, BLOCK // neurons)
    return (slice(first, first + step) for first in range(0, count, step))
