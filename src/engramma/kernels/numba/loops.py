"""The compiled loops of `numba.cpu`: one replica, one block of items or memories, one thread.

Here h (B,M), u, g, target and o (B,K), a and da (K,M), the transpose of what the signature calls them,
so that every inner loop runs along the memories.

The vertex n is known at compile time: it travels in the type of an argument, the tuple that `binary`
makes of it, so each n has its own machine code, a bare chain of multiplications, kept on disk like any
other. A real n is a number, and costs a `pow`. `leak` None says polynomial, a number leaky.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from engramma.kernels.kept import numba_can_keep

CHUNK = 512  # memories in one go: what a chunk of a, da, h and dh takes stays in the first-level cache
TILE = 16  # items whose scores are followed at once by their slopes

# Sums may be taken in any order, for the vector units; nan and infinity keep their meaning.
REORDER = {"reassoc", "contract", "nsz"}
LOOP: dict[str, Any] = {"nogil": True, "cache": numba_can_keep(), "error_model": "numpy"}


def binary(n: int) -> tuple[bool | int, ...]:
    """n's binary digits as the types of a tuple: bool for 1, int for 0. (20 is bool, int, bool, int, int.)"""
    return tuple(True if digit == "1" else 0 for digit in f"{n:b}")


def power(x, n):
    """x^n."""
    raise NotImplementedError("only inside a compiled loop")


@overload(power)
def _power(x, n):
    if isinstance(n, types.Float):
        return lambda x, n: x**n
    exponent = int("".join("1" if isinstance(digit, types.Boolean) else "0" for digit in n.types), 2)
    kind = x

    def chain(x, n):
        rest, square, result = exponent, x, kind(1)
        while rest:  # unrolled: the exponent is a constant here
            if rest & 1:
                result = result * square
            square = square * square
            rest >>= 1
        return result

    return chain


def even(x, n):
    """|x| for a real n, of whose polynomial we take the even continuation; x for an integer."""
    raise NotImplementedError("only inside a compiled loop")


@overload(even)
def _even(x, n):
    return (lambda x, n: abs(x)) if isinstance(n, types.Float) else (lambda x, n: x)


def sign(x, n):
    """The slope of `even`."""
    raise NotImplementedError("only inside a compiled loop")


@overload(sign)
def _sign(x, n):
    kind = x
    if isinstance(n, types.Float):
        return lambda x, n: kind(np.sign(x))
    return lambda x, n: kind(1)


@njit(fastmath=REORDER, **LOOP)
def value(x, n, leak, zero):
    if leak is None:
        return power(even(x, n), n)
    return power(x, n) if x > zero else leak * x


# Not reordered and not contracted: where clamping a neuron changes nothing, f'(on) - f'(off) must be
# exactly 0, because the optimiser scales what is left of a memory's gradient to full size.
@njit(**LOOP)
def slope(x, n, less, low, zero):
    """f' over n, which is multiplied in where there is less to multiply; low is the leak over n."""
    if low is None:
        return sign(x, n) * power(even(x, n), less)
    return power(x, less) if x > zero else low


@njit(fastmath=REORDER, **LOOP)
def total(h, a, shift, n, leak, zero):
    result = zero
    for m in range(h.size):
        result += value(h[m] + shift * a[m], n, leak, zero)
    return result


@njit(**LOOP)
def scores(h, a, u, n, leak, out):
    zero = h.dtype.type(0)
    for b in range(h.shape[0]):
        off = total(h[b], a[0], zero, n, leak, zero)
        for k in range(a.shape[0]):
            out[b, k] = u[b, k] * (total(h[b], a[k], u[b, k] + u[b, k], n, leak, zero) - off)


# Contracted, not reordered: on - off is still taken first, and 0 times anything leaves the sum as it is.
@njit(fastmath={"contract"}, **LOOP)
def slopes(h, a, u, g, n, less, low, factor, dh, da):
    """Writes dh, which may be h itself, and adds half of da."""
    zero, neurons = h.dtype.type(0), a.shape[0]
    off, along = np.empty(CHUNK, h.dtype), np.empty(CHUNK, h.dtype)
    for first in range(0, h.shape[1], CHUNK):
        last = min(first + CHUNK, h.shape[1])
        for b in range(h.shape[0]):
            row = h[b, first:last]
            for m in range(last - first):
                off[m], along[m] = slope(row[m], n, less, low, zero), zero
            for k in range(0, neurons - 1, 2):  # two at once: row, off and along are read half as often
                w, to_w = a[k, first:last], da[k, first:last]
                v, to_v = a[k + 1, first:last], da[k + 1, first:last]
                left, right, by, up = u[b, k], u[b, k + 1], factor * g[b, k], factor * g[b, k + 1]
                for m in range(last - first):
                    one = slope(row[m] + (left + left) * w[m], n, less, low, zero)
                    two = slope(row[m] + (right + right) * v[m], n, less, low, zero)
                    along[m] += left * by * (one - off[m]) + right * up * (two - off[m])
                    to_w[m] += by * one
                    to_v[m] += up * two
            if neurons % 2:
                k = neurons - 1
                w, to_w, left, by = a[k, first:last], da[k, first:last], u[b, k], factor * g[b, k]
                for m in range(last - first):
                    one = slope(row[m] + (left + left) * w[m], n, less, low, zero)
                    along[m] += left * by * (one - off[m])
                    to_w[m] += by * one
            for m in range(last - first):
                dh[b, first + m] = along[m]


@njit(**LOOP)
def answer(o, drop):
    """tanh o and 1 - tanh^2 o. Of a lifted score, which `drop` (else None) brings down, in float64 and by the
    exponential: in float32 a neuron beyond |o| = 9 would have no slope left."""
    if drop is None:
        y = math.tanh(o)
        return y, 1 - y * y
    e = math.exp(-2 * abs(drop * o))
    q = 1 / (1 + e)
    return math.copysign((1 - e) * q, o), 4 * e * q * q


@njit(**LOOP)
def pull(h, a, target, share, u, drop, n, leak, less, low, factor, dh, da):
    """`slopes` of the loss (target - tanh scores)^2; items weighted by share (B,)."""
    g = np.empty((TILE, a.shape[0]), h.dtype)
    for first in range(0, h.shape[0], TILE):
        last = min(first + TILE, h.shape[0])
        tile, near = g[: last - first], u[first:last]
        scores(h[first:last], a, near, n, leak, tile)
        for b in range(last - first):
            for k in range(a.shape[0]):
                y, steep = answer(tile[b, k], drop)
                tile[b, k] = -2 * steep * share[first + b] * (target[first + b, k] - y)
        slopes(h[first:last], a, near, tile, n, less, low, factor, dh[first:last], da)


@njit(**LOOP)
def moments(h, a, u, g, x, square, n, less, low, factor, dh, out):
    """|dh|^power, and added to `out` (K,M) |dh x + da_b|^power; the power is 2 where `square`, else 1."""
    zero, one = h.dtype.type(0), h.dtype.type(1)
    spare = np.empty_like(a)
    for b in range(h.shape[0]):
        slopes(h[b : b + 1], a, u[b : b + 1], g[b : b + 1], n, less, low, factor, dh[b : b + 1], spare)
        for k in range(a.shape[0]):
            shift, double, own = u[b, k] + u[b, k], factor * (g[b, k] + g[b, k]), x[b, k]
            for m in range(h.shape[1]):
                on = slope(h[b, m] + shift * a[k, m], n, less, low, zero)
                item = dh[b, m] * own + double * on
                out[k, m] += item * (item if square else (one if item >= zero else -one))
        for m in range(h.shape[1]):
            dh[b, m] = dh[b, m] * dh[b, m] if square else abs(dh[b, m])


@njit(fastmath={"nnan", "nsz"}, **LOOP)
def _largest(v, zero):
    result = zero
    for j in range(v.size):
        result = max(result, abs(v[j]))
    return result


@njit(**LOOP)
def _broken(v):
    """Whether there is a nan among v."""
    found = False
    for j in range(v.size):
        found |= v[j] != v[j]
    return found


@njit(**LOOP)
def _divisor(v):
    """The largest size in v; 1 where all are 0, so that nothing moves; nan where one is."""
    zero, one, nan = v.dtype.type(0), v.dtype.type(1), v.dtype.type(np.nan)
    largest = nan if _broken(v) else _largest(v, zero)
    return one if largest == zero else largest


@njit(**LOOP)
def step(theta, grad, velocity, rate, momentum, visible, clamp, scale_grad, moved, fresh):
    """A block of memories (M,N); clamp None or a number. What is scaled is the gradient, or the velocity."""
    one = theta.dtype.type(1)
    for m in range(theta.shape[0]):
        for part in range(2):
            first, last = (0, visible) if part == 0 else (visible, theta.shape[1])
            v, before, after = fresh[m, first:last], theta[m, first:last], moved[m, first:last]
            g, old = grad[m, first:last], velocity[m, first:last]
            if scale_grad:
                largest = _divisor(g)
                for j in range(v.size):
                    v[j] = momentum * old[j] + g[j] / largest
            else:
                for j in range(v.size):
                    v[j] = momentum * old[j] + g[j]
            largest = one if scale_grad else _divisor(v)
            for j in range(v.size):
                after[j] = before[j] - rate * (v[j] / largest)
        if clamp is not None:
            for j in range(visible):
                low = -clamp if moved[m, j] < -clamp else moved[m, j]  # min and max would lose a nan
                moved[m, j] = clamp if low > clamp else low


@njit(**LOOP)
def gather(parts, start, own, first, scale, out):
    """scale times the sum of parts (P,M,N) over P, in order, for the memories from `start` on;
    own (K,M) is added to the columns from `first` on."""
    for m in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[m, j] = parts[0, start + m, j]
        for p in range(1, parts.shape[0]):
            for j in range(out.shape[1]):
                out[m, j] += parts[p, start + m, j]
        for k in range(own.shape[0]):
            out[m, first + k] += own[k, m]
        for j in range(out.shape[1]):
            out[m, j] *= scale
