"""The table of replicas, and one random stream a seed.

Nothing random is drawn from a shared state: a stream is named by (seed, purpose, numbers), so a run
can be resumed, split or batched with others and still draw the same numbers. Replicas that share a
seed share data, initial memories, batches and probes, so comparisons between them are paired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """The random stream of a seed for one purpose."""
    digest = hashlib.sha256(purpose.encode()).digest()[:8]
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([seed, int.from_bytes(digest, "little"), *key]))
    )


@dataclass(frozen=True)
class Replicas:
    """R independent networks: the seed of each, replicas of one seed standing together."""

    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ValueError("at least one replica is needed")

    @staticmethod
    def grid(seeds: Sequence[int], settings: int = 1) -> Replicas:
        """Every seed `settings` times: seed-major, so that replicas sharing items are neighbours."""
        return Replicas(tuple(seed for seed in seeds for _ in range(settings)))

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def rows(self) -> tuple[int, ...]:
        """Seeds of the rows of items: one a seed if all have equally many replicas, else one a replica."""
        unique = tuple(dict.fromkeys(self.seeds))
        each = len(self.seeds) // len(unique)
        grid = tuple(seed for seed in unique for _ in range(each))
        return unique if grid == self.seeds else self.seeds

    def draw(self, make: Callable[[np.random.Generator], np.ndarray], purpose: str, *key: int) -> np.ndarray:
        """(R, ...): what `make` draws from every replica's stream; equal seeds, equal draws."""
        drawn = {s: make(generator(s, purpose, *key)) for s in dict.fromkeys(self.seeds)}
        return np.stack([drawn[s] for s in self.seeds])

    def memories(
        self,
        memories: int,
        neurons: int,
        spread: float = 0.1,
        **to: torch.device | torch.dtype | str,
    ) -> Tensor:
        """(R,M,N) initial memories, normal(0, spread), drawn once a seed."""
        drawn = self.draw(lambda g: g.normal(0, spread, (memories, neurons)), "memories")
        return torch.as_tensor(drawn).to(**to)  # type: ignore[arg-type]

    def shuffle_keys(self, ids: Tensor, *key: int) -> Tensor:
        """(S,B) int64: pseudo-random numbers to sort items by; a function of seed, key and item alone.

        Computed where the items are, and the same there as anywhere: an item keeps its place in the
        order whatever else is in the batch.
        """
        seeds = self.rows if ids.shape[0] == len(self.rows) else self.seeds
        key_of_seeds = _shuffle_base(seeds, ids.device)
        for number in key:
            key_of_seeds = _mix(key_of_seeds + number)
        return _mix(_mix(ids) + key_of_seeds)


@lru_cache(maxsize=64)
def _shuffle_base(seeds: tuple[int, ...], device: torch.device) -> Tensor:
    """(S,1), kept where it is used: a copy to the device every epoch would make the device wait."""
    base = [int(generator(s, "shuffle").integers(2**62)) for s in seeds]
    return torch.tensor(base, dtype=torch.int64, device=device)[:, None]


def _mix(x: Tensor) -> Tensor:
    """splitmix64's finaliser on int64 (arithmetic shifts masked into logical ones)."""
    x = x + -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)
