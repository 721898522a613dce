"""numba and BLAS on the CPU: a few threads of our own, each with a block of items to itself.

A block's product, elementwise pass or partial gradient runs on one thread from start to end, and the
BLAS is held to that thread: no second pool of threads competes with the first. (On the shapes of this
network NumPy's BLAS, so divided, beats both NumPy's and PyTorch's own division.) How the work is cut
depends on its shape alone, never on the number of threads or replicas, so neither changes a bit.
The threads flush denormal numbers to zero: at n = 20 untrained memories make little else in float32.

Signatures and axes are in `engramma.kernels`; the loops in `numba_loops`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from engramma.interactions import Interaction, LeakyRectifiedPolynomial
from engramma.kernels import numba_loops as loops
from engramma.kernels.reference import prepare

__all__ = ["moments", "prepare", "product", "product_back", "pull", "scores", "slopes", "step"]

name = "numba"


def product(probe: Tensor, theta: Tensor) -> Tensor:
    x, z, times = _array(probe, theta.dtype), _array(theta), len(theta) // len(probe)
    h = np.empty((len(z), x.shape[1], z.shape[1]), z.dtype)

    def work(r: int, items: slice) -> None:
        np.dot(x[r // times, items], z[r].T, out=h[r, items])

    _each(work, len(h), _cuts(x.shape[1]))
    return torch.from_numpy(h)


def product_back(dh: Tensor, probe: Tensor, neurons: int) -> Tensor:
    x, d, times = _array(probe, dh.dtype)[..., :neurons], _array(dh), len(dh) // len(probe)
    cuts = _cuts(x.shape[1])
    grad = np.empty((len(d), d.shape[2], neurons), d.dtype)
    if len(cuts) == 1:
        _each(lambda r, items: np.dot(d[r].T, x[r // times], out=grad[r]), len(d), cuts)
        return torch.from_numpy(grad)
    # Every block of items has a gradient of its own; few replicas at a time, or these would fill the memory.
    group = min(len(d), torch.get_num_threads())
    parts = np.empty((group, len(cuts), *grad.shape[1:]), d.dtype)
    number = {items.start: p for p, items in enumerate(cuts)}
    for first in range(0, len(d), group):

        def work(r: int, items: slice, first: int = first) -> None:
            x_r = x[(first + r) // times, items]
            np.dot(d[first + r, items].T, x_r, out=parts[r, number[items.start]])

        def total(r: int, memories: slice, first: int = first) -> None:
            loops.gather(parts[r], memories.start, grad[first + r, memories])

        here = min(group, len(d) - first)
        _each(work, here, cuts)
        _each(total, here, _cuts(d.shape[2]))
    return torch.from_numpy(grad)


def scores(h: Tensor, a: Tensor, f: Interaction, u: Tensor | None = None) -> Tensor:
    like, z, signs, rule = _array(h), _array(a.mT), _signs(h, a, u), _rule(f, h.dtype)
    out, times = np.empty((*like.shape[:2], z.shape[1]), like.dtype), len(like) // len(signs)

    def work(r: int, items: slice) -> None:
        loops.scores(like[r, items], z[r], signs[r // times, items], rule[0], rule[-1], out[r, items])

    _each(work, len(like), _cuts(like.shape[1]))
    return torch.from_numpy(out)


def slopes(h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
    z, signs, pulls, rule = _array(a.mT), _signs(h, a, u), _array(g), _rule(f, h)
    times = len(h) // len(signs)

    def work(r: int, items: slice, h_r: Any, dh: Any, da: Any) -> None:
        loops.slopes(h_r, z[r], signs[r // times, items], pulls[r, items], *rule, dh, da)

    return _blocks(work, h, z)


def pull(
    h: Tensor, a: Tensor, target: Tensor, share: Tensor, m: int, f: Interaction, u: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    z, signs, rule = _array(a.mT), _signs(h, a, u), _rule(f, h.dtype)
    t, s = _array(target, h.dtype), _array(share, h.dtype)
    near, far = len(h) // len(signs), len(h) // len(t)

    def work(r: int, items: slice, h_r: Any, dh: Any, da: Any) -> None:
        t_r, s_r, u_r = t[r // far, items], s[r // far, items], signs[r // near, items]
        loops.pull(h_r, z[r], t_r, s_r, m, u_r, *rule, dh, da)

    return _blocks(work, h, z)


def moments(
    h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None, x: Tensor, power: int
) -> tuple[Tensor, Tensor]:
    z, signs, pulls, rule = _array(a.mT), _signs(h, a, u), _array(g), _rule(f, h)
    own, near = _array(x, h.dtype), len(h) // len(signs)
    far = len(h) // len(own)

    def work(r: int, items: slice, h_r: Any, dh: Any, out: Any) -> None:
        u_r, x_r = signs[r // near, items], own[r // far, items]
        loops.moments(h_r, z[r], u_r, pulls[r, items], x_r, power == 2, *rule, dh, out)

    return _blocks(work, h, z, double=False)


def step(
    theta: Tensor,
    grad: Tensor,
    velocity: Tensor,
    rate: Tensor | float,
    momentum: float,
    visible: int,
    clamp: float | None,
) -> tuple[Tensor, Tensor]:
    z, g, v = _array(theta), _array(grad), _array(velocity)
    moved, fresh = np.empty_like(z), np.empty_like(z)
    kind = z.dtype.type
    rates = np.broadcast_to(np.asarray(rate, z.dtype).reshape(-1), len(z))
    limit = None if clamp is None else kind(clamp)

    def work(r: int, memories: slice) -> None:
        old = z[r, memories], g[r, memories], v[r, memories]
        new = moved[r, memories], fresh[r, memories]
        loops.step(*old, rates[r], kind(momentum), visible, limit, *new)

    _each(work, len(z), _cuts(z.shape[1]))
    return torch.from_numpy(moved), torch.from_numpy(fresh)


def _blocks(work: Callable[..., None], h: Tensor, z: Any, double: bool = True) -> tuple[Tensor, Tensor]:
    """`work` on every block of items: dh (R,B,M) as it is written, and the sum (R,M,K) of what is added up."""
    like, cuts = _array(h), _cuts(h.shape[1])
    dh, sums = np.empty_like(like), np.zeros((len(like), len(cuts), *z.shape[1:]), like.dtype)
    number = {items.start: p for p, items in enumerate(cuts)}

    def block(r: int, items: slice) -> None:
        work(r, items, like[r, items], dh[r, items], sums[r, number[items.start]])

    _each(block, len(like), cuts)
    whole = sums.sum(1)
    return torch.from_numpy(dh), torch.from_numpy(2 * whole if double else whole).mT


def _array(t: Tensor, dtype: torch.dtype | None = None) -> Any:
    """The same memory as a NumPy array, whose last two axes are in order."""
    t = t.to(dtype or t.dtype)
    return (t if t.ndim < 2 or t[0].is_contiguous() else t.contiguous()).numpy()


def _signs(h: Tensor, a: Tensor, u: Tensor | None) -> Any:
    """u, or the ones that its absence stands for."""
    return torch.ones(1, h.shape[1], a.shape[2], dtype=h.dtype).numpy() if u is None else _array(u)


def _rule(f: Interaction, dtype: torch.dtype) -> tuple[Any, Any, Any, Any]:
    """n, n - 1, n as a factor and the leak, in the types that choose the loops' machine code."""
    kind = np.float32 if dtype == torch.float32 else np.float64
    leak = kind(f.leak) if isinstance(f, LeakyRectifiedPolynomial) else None
    if f.n == int(f.n):
        return loops.binary(int(f.n)), loops.binary(int(f.n) - 1), kind(f.n), leak
    return kind(f.n), kind(f.n - 1), kind(f.n), leak


def _cuts(count: int) -> list[slice]:
    """At most 8 nearly equal blocks: large enough for the BLAS, several where there is work for several threads."""
    parts = 1 if count < 256 else min(8, max(2, round(count / 1000)))
    edges = [p * count // parts for p in range(parts + 1)]
    return [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]


def _each(work: Callable[[int, slice], Any], replicas: int, cuts: list[slice]) -> None:
    """`work` for every replica and cut, on as many threads as PyTorch may use."""
    jobs = iter([(r, cut) for r in range(replicas) for cut in cuts])
    threads = torch.get_num_threads()

    def labour() -> None:
        for job in jobs:  # shared by all threads: each takes the next
            work(*job)

    with _blas().limit(limits=1, user_api="blas"):
        running = [_pool(threads, os.getpid()).submit(labour) for _ in range(min(threads, replicas * len(cuts)))]
        for one in running:
            one.result()


@lru_cache(1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    del process  # threads do not survive a fork
    return ThreadPoolExecutor(threads, "engramma", lambda: torch.set_flush_denormal(True))


@lru_cache(1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
