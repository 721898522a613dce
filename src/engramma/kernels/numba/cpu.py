"""numba and BLAS on the CPU: a few threads of our own, each with a block of items to itself.

A block's product, elementwise pass or partial gradient runs on one thread from start to end. Items of -1 and
+1 are not multiplied but looked up (`numba.signs`). For others there is NumPy's BLAS, held to that thread, so
that no second pool of threads competes with the first. How the work is cut depends on its shape alone, never
on the number of threads or replicas, so neither changes a bit.
The threads flush denormal numbers to zero: at n = 20 untrained memories make little else in float32.

Signatures and axes are in `engramma.kernels`; the loops in `numba.loops` and `numba.signs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from engramma.interactions import Interaction
from engramma.kernels import reference
from engramma.kernels.compiled import leak_of, written_out
from engramma.kernels.numba import loops
from engramma.kernels.numba import signs as bits
from engramma.kernels.numba.threads import cut, each, sum_blocks, sum_parts
from engramma.kernels.reference import Aim, Descent

name = "numba"
knows, prepare = written_out, reference.prepare

FEW = 1_000_000  # multiplications: a product smaller than this is not worth looking up

# The C library gives a large block back to the system when it is freed, and the next one is made anew page
# by page, which can cost more than the arithmetic on it. glibc keeps blocks of a size (up to 32 MiB) that it
# has once seen freed; this one is never touched and costs nothing.
_ = np.empty(31 << 20, np.uint8)
del _


def gradient(theta: Tensor, probe: Tensor, scale: float | Tensor, scored: slice, aim: Aim) -> Tensor:
    """`product`, `pull` and `product_back` in one go, a block of items at a time.

    One thread makes a block's similarities, turns them into dh where they stand and uses them up, all
    while they are in its cache: those of all items are never there at once.
    """
    z = theta.numpy()
    scales = np.broadcast_to(np.asarray(scale, z.dtype).reshape(-1), len(z))
    # The scale goes onto the memories, which are few, and not onto the similarities, which are many.
    z = np.multiply(z, scales[:, None, None])
    return pulled_back(z, scales, probe, scored, aim)


def pulled_back(
    z: Any, scales: Any, probe: Tensor, scored: slice, aim: Aim, drop: float | None = None
) -> Tensor:
    """`gradient` by memories z (R,M,N) that are scaled already, times `scales` (R,) and in their precision;
    of lifted scores `drop` is what brings them down again."""
    kind = torch.float32 if z.dtype == np.float32 else torch.float64
    x, signs = _read(probe, z.shape[2], kind, z.shape[1])
    a = np.ascontiguousarray(z[..., scored].swapaxes(1, 2))
    turn = _turn(len(z), aim, kind, drop)
    blocks, times = cut(probe.shape[1]), len(z) // len(probe)
    largest = max(block.stop - block.start for block in blocks)
    spare = [np.empty((largest, z.shape[1]), z.dtype) for _ in range(torch.get_num_threads())]

    def work(r: int, block: slice, da: Any, out: Any) -> None:
        whole, row = spare.pop(), r // times
        h = whole[: block.stop - block.start]
        _forward(x, signs, row, block, z[r], h)
        turn(r, block, h, a[r], h, da)
        _back(x, signs, row, block, h, out)
        spare.append(whole)

    return sum_parts(work, z.shape, blocks, scales, z.dtype, scored.start, a.shape[1])


def product(probe: Tensor, theta: Tensor) -> Tensor:
    z, times = _array(theta), len(theta) // len(probe)
    x, signs = _read(probe, z.shape[2], theta.dtype, z.shape[1])
    h = np.empty((len(z), probe.shape[1], z.shape[1]), z.dtype)

    def work(r: int, block: slice) -> None:
        _forward(x, signs, r // times, block, z[r], h[r, block])

    each(work, len(h), cut(probe.shape[1]))
    return torch.from_numpy(h)


def product_back(dh: Tensor, probe: Tensor, neurons: int) -> Tensor:
    d, times = _array(dh), len(dh) // len(probe)
    x, signs = _read(probe, neurons, dh.dtype, d.shape[2])

    def work(r: int, block: slice, da: Any, out: Any) -> None:
        del da
        _back(x, signs, r // times, block, d[r, block], out)

    shape, blocks = (len(d), d.shape[2], neurons), cut(probe.shape[1])
    return sum_parts(work, shape, blocks, np.ones(len(d), d.dtype), d.dtype)


def scores(h: Tensor, a: Tensor, f: Interaction, u: Tensor | None = None) -> Tensor:
    s, z, signs = _array(h), _array(a.mT), _signs(h, a, u)
    n, leak, *_ = _types(f, h.dtype)
    out, times = np.empty((*s.shape[:2], z.shape[1]), s.dtype), len(s) // len(signs)

    def work(r: int, block: slice) -> None:
        loops.scores(s[r, block], z[r], signs[r // times, block], n, leak, out[r, block])

    each(work, len(s), cut(s.shape[1]))
    return torch.from_numpy(out)


def slopes(h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
    z, signs, pulls = _array(a.mT), _signs(h, a, u), _array(g)
    n, _, less, low, factor = _types(f, h.dtype)
    times = len(h) // len(signs)

    def work(r: int, block: slice, h_r: Any, dh: Any, da: Any) -> None:
        loops.slopes(h_r, z[r], signs[r // times, block], pulls[r, block], n, less, low, factor, dh, da)

    dh, da = sum_blocks(work, _array(h), z)
    return dh, 2 * da


def pull(h: Tensor, a: Tensor, aim: Aim) -> tuple[Tensor, Tensor]:
    z, turn = _array(a.mT), _turn(len(h), aim, h.dtype)

    def work(r: int, block: slice, h_r: Any, dh: Any, da: Any) -> None:
        turn(r, block, h_r, z[r], dh, da)

    dh, da = sum_blocks(work, _array(h), z)
    return dh, 2 * da


def moments(
    h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None, x: Tensor, power: int
) -> tuple[Tensor, Tensor]:
    z, signs, pulls, own = _array(a.mT), _signs(h, a, u), _array(g), _array(x, h.dtype)
    n, _, less, low, factor = _types(f, h.dtype)
    times, fold = len(h) // len(own), len(h) // len(signs)

    def work(r: int, block: slice, h_r: Any, dh: Any, out: Any) -> None:
        s, x_r = signs[r // fold, block], own[r // times, block]
        loops.moments(h_r, z[r], s, pulls[r, block], x_r, power == 2, n, less, low, factor, dh, out)

    return sum_blocks(work, _array(h), z)


def step(theta: Tensor, grad: Tensor, velocity: Tensor, rule: Descent) -> tuple[Tensor, Tensor]:
    z, g, v = _array(theta), _array(grad), _array(velocity)
    moved, fresh = np.empty_like(z), np.empty_like(z)
    kind = z.dtype.type
    rates = np.broadcast_to(np.asarray(rule.rate, z.dtype).reshape(-1), len(z))
    limit = None if rule.clamp is None else kind(rule.clamp)
    momentum, first = kind(rule.momentum), rule.normalise == "gradient"

    def work(r: int, block: slice) -> None:
        old = z[r, block], g[r, block], v[r, block]
        new = moved[r, block], fresh[r, block]
        loops.step(*old, rates[r], momentum, rule.visible, limit, first, *new)

    each(work, len(z), cut(z.shape[1]))
    return torch.from_numpy(moved), torch.from_numpy(fresh)


class Signs:
    """Items x (S,B,N) of -1 and +1 as bits."""

    def __init__(self, x: Any) -> None:
        self.blocks, self.count = cut(x.shape[1]), x.shape[2]
        self.words = np.empty((*x.shape[:2], -(-x.shape[2] // bits.WORD)), np.uint32)  # of every item
        self._turned: dict[tuple[int, int], Any] = {}
        bipolar = []

        def work(row: int, block: slice) -> None:
            bipolar.append(bits.pack(x[row, block], self.words[row, block]))

        each(work, len(x), self.blocks)
        self.bipolar = all(bipolar)  # whether they are that

    def turned(self, row: int, block: slice) -> Any:
        """Of every neuron, over a block of items; made when first asked for."""
        if (at := (row, block.start)) not in self._turned:
            self._turned[at] = bits.turned(self.words[row, block], self.count)
        return self._turned[at]


# A task's items are read in every epoch: a tensor has its bits for as long as it is there and as it is.
_packed: Any = WeakTensorKeyDictionary()  # of (what was read, Signs)


def _read(probe: Tensor, neurons: int, dtype: torch.dtype, memories: int) -> tuple[Any, Signs | None]:
    """The first `neurons` of items (S,B,N) as an array; or their signs, where they are signs, and enough for
    so many `memories` to be worth it."""
    if probe.shape[1] * neurons * memories < FEW:
        return _array(probe, dtype)[..., :neurons], None
    version = None if probe.is_inference() else probe._version  # how often it was written to
    read, signs = _packed.get(probe, (None, None))
    if version is None or read != (version, dtype, neurons):
        signs = Signs(_array(probe, dtype)[..., :neurons])
        _packed[probe] = (version, dtype, neurons), signs
    return (None, signs) if signs.bipolar else (_array(probe, dtype)[..., :neurons], None)


def _forward(x: Any, signs: Signs | None, row: int, block: slice, z: Any, h: Any) -> None:
    if signs is None:
        np.dot(x[row, block], z.T, out=h)
    else:
        bits.signed_sums(signs.words[row, block], z.T, h)


def _back(x: Any, signs: Signs | None, row: int, block: slice, d: Any, out: Any) -> None:
    if signs is None:
        np.dot(d.T, x[row, block], out=out)
    else:
        bits.signed_sums(signs.turned(row, block), d, out.T)


def _turn(replicas: int, aim: Aim, dtype: torch.dtype, drop: float | None = None) -> Callable[..., None]:
    """`pull` of one replica's block of items: writes dh, which may be h itself, and adds half of da."""
    goal, weight = _array(aim.target, dtype), _array(aim.share, dtype)
    signs = np.ones((1, *goal.shape[1:]), goal.dtype) if aim.u is None else _array(aim.u, dtype)
    n, leak, less, low, factor = _types(aim.f, dtype)
    times, fold = replicas // len(goal), replicas // len(signs)

    def turn(r: int, block: slice, h: Any, a: Any, dh: Any, da: Any) -> None:
        t, w, s = goal[r // times, block], weight[r // times, block], signs[r // fold, block]
        loops.pull(h, a, t, w, s, drop, n, leak, less, low, factor, dh, da)

    return turn


def _array(t: Tensor, dtype: torch.dtype | None = None) -> Any:
    """The same memory as a NumPy array; a copy where the dtype differs or rows are not in order."""
    t = t.to(dtype or t.dtype)
    return (t if t.ndim == 3 and len(t) and t[0].is_contiguous() else t.contiguous()).numpy()


def _signs(h: Tensor, a: Tensor, u: Tensor | None) -> Any:
    """u, or the ones that its absence stands for."""
    return torch.ones(1, h.shape[1], a.shape[2], dtype=h.dtype).numpy() if u is None else _array(u)


def _types(f: Interaction, dtype: torch.dtype) -> tuple[Any, ...]:
    """n, the leak, n - 1, leak / n and n as a factor, in the types that choose the loops' machine code."""
    kind = np.float32 if dtype == torch.float32 else np.float64
    leak, low = leak_of(f), None
    if leak is not None:
        leak, low = kind(leak), kind(leak / f.n)
    if f.n == int(f.n):
        return loops.binary(int(f.n)), leak, loops.binary(int(f.n) - 1), low, kind(f.n)
    return kind(f.n), leak, kind(f.n - 1), low, kind(f.n)
