"""Work on blocks of items by a few threads: how it is cut, and who does it."""

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


@lru_cache(1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    del process  # threads do not survive a fork: a child has its own
    return ThreadPoolExecutor(threads, "engramma", lambda: torch.set_flush_denormal(True))


@lru_cache(1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
