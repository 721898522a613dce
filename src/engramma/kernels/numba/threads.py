"""Work on blocks of items by a few threads: how it is cut, who does it, and how its parts are added up."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from itertools import product as pairs
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engramma.kernels.numba import loops


def cut(count: int) -> list[slice]:
    """Up to 8 equal blocks: several where several threads have enough to do, yet large for the BLAS."""
    parts = 1 if count < 256 else min(8, max(2, round(count / 1000)))
    return [slice(a, b) for a, b in pairwise(p * count // parts for p in range(parts + 1))]


def each(work: Callable[[int, Any], Any], replicas: int, blocks: Sequence[Any]) -> None:
    """`work` for every replica and block, on as many threads as PyTorch may use."""
    jobs, threads = iter(list(pairs(range(replicas), blocks))), torch.get_num_threads()

    def labour() -> None:
        for job in jobs:  # the threads share one iterator: each takes the next
            work(*job)

    with _blas().limit(limits=1, user_api="blas"):
        if threads == 1:  # here: handing small problems over takes as long as solving them
            before = bool(np.float32(1e-40) * np.float32(1) == 0)
            torch.set_flush_denormal(True)
            try:
                labour()
            finally:
                torch.set_flush_denormal(before)
            return
        pool, busy = _pool(threads, os.getpid()), min(threads, replicas * len(blocks))
        for one in [pool.submit(labour) for _ in range(busy)]:
            one.result()


def sum_parts(
    work: Callable[..., None],
    shape: tuple[int, ...],
    blocks: list[slice],
    scales: Any,
    dtype: Any,
    first: int = 0,
    scored: int = 0,
) -> Tensor:
    """scales (R,) times the sum over blocks of what `work` writes, a (M,N) a block, and, in the columns
    from `first` on, of twice what it adds to da (scored,M).

    Every block has a part of its own, and the parts are added up in order, whoever was done first; a few
    replicas at a time, or the parts would fill the memory. Parts have the `dtype` of the work, the sum
    that of `scales`.
    """
    total, group = np.empty(shape, scales.dtype), min(shape[0], torch.get_num_threads())
    parts = [np.empty((len(blocks), *shape[1:]), dtype) for _ in range(group)]
    for start in range(0, shape[0], group):
        ours = range(start, min(start + group, shape[0]))
        da = np.zeros((len(ours), len(blocks), scored, shape[1]), dtype)

        def make(i: int, p: int, ours: range = ours, da: Any = da) -> None:
            work(ours[i], blocks[p], da[i, p], parts[i][p])

        def add(i: int, some: slice, ours: range = ours, da: Any = da) -> None:
            own = 2 * da[i, :, :, some].sum(0)
            loops.gather(parts[i], some.start, own, first, scales[ours[i]], total[ours[i], some])

        each(make, len(ours), range(len(blocks)))
        each(add, len(ours), cut(shape[1]))
    return torch.from_numpy(total)


def sum_blocks(work: Callable[..., None], s: Any, z: Any) -> tuple[Tensor, Tensor]:
    """`work` on every block of items, whose similarities are s (R,B,M): dh (R,B,M) as it writes it, and the
    sum (R,M,K) of what it adds up."""
    blocks = cut(s.shape[1])
    dh, sums = np.empty_like(s), np.zeros((len(s), len(blocks), *z.shape[1:]), s.dtype)

    def one(r: int, p: int) -> None:
        work(r, blocks[p], s[r, blocks[p]], dh[r, blocks[p]], sums[r, p])

    each(one, len(s), range(len(blocks)))
    return torch.from_numpy(dh), torch.from_numpy(sums.sum(1)).mT


@lru_cache(1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    del process  # threads do not survive a fork: a child has its own
    return ThreadPoolExecutor(threads, "engramma", lambda: torch.set_flush_denormal(True))


@lru_cache(1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
