# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportOperatorIssue=false
# What stands here is Triton's language, not Python's.
"""The Triton programs behind `triton.gpu` and `triton.mixed`.

Every program owns a tile of items and all memories of one replica, with the similarities in
registers; it walks over the scored neurons and reads nothing else twice. The class loop of `_pull`
needs one power a similarity and neuron: f, f', the score, dL/do (which depends on that neuron's
score alone) and both gradients come from it.

Powers are computed of y * 2^LIFT: at n = 20 freshly initialised memories have slopes near 1e-45,
which float32 cannot hold, yet every memory's step is scaled by its own largest entry, so they count.
What leaves `_pull` is lifted by 2^(LIFT (n - 1)) and the caller takes that out again in float64.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _power(x, n: tl.constexpr, whole: tl.constexpr):
    if whole:
        result = tl.full(x.shape, 1.0, x.dtype)
        square = x
        for bit in tl.static_range(0, 8):
            if (n >> bit) & 1:
                result = result * square
            if (n >> (bit + 1)) > 0:
                square = square * square
    else:
        result = tl.exp(n * tl.log(tl.maximum(x, 1e-300 if x.dtype == tl.float64 else 1e-37)))
    return result


@triton.jit
def _terms(y, less: tl.constexpr, whole: tl.constexpr, poly: tl.constexpr, leak_slope: tl.constexpr):
    """Of lifted y: w p whose sum over memories is that of x^n, what leaks, and f'/n."""
    if poly:
        w = y if whole else tl.abs(y)
        p = _power(w, less, whole)
        leaking = tl.zeros(y.shape, y.dtype)
        slope = p if whole else tl.where(y < 0, -p, p)
    else:
        w = tl.maximum(y, 0.0)
        p = _power(w, less, whole)
        leaking = y - w  # min(y, 0); a minimum would lose what is not a number
        slope = tl.where(y > 0, p, leak_slope)
    return w * p, leaking, slope


@triton.jit
def _scores(
    h_ptr, a_ptr, u_ptr, o_ptr, B, M, K, times,
    n: tl.constexpr, less: tl.constexpr, whole: tl.constexpr, poly: tl.constexpr, leak: tl.constexpr,
    signs: tl.constexpr, BB: tl.constexpr, BM: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    m = tl.arange(0, BM)
    there = (b[:, None] < B) & (m[None, :] < M)
    # Where there is nothing h and a are 0, and f(0) = 0: no mask is needed further on.
    h = tl.load(h_ptr + r * B * M + b[:, None] * M + m[None, :], there, 0.0).to(DT)
    rest, rest_leak, _ = _terms(h, less, whole, poly, leak)
    for k in range(K):
        a = 2 * tl.load(a_ptr + (r * K + k) * M + m, m < M, 0.0).to(DT)
        if signs:
            u = tl.load(u_ptr + ((r // times) * B + b) * K + k, b < B, 0.0).to(DT)
            on, on_leak, _ = _terms(h + u[:, None] * a[None, :], less, whole, poly, leak)
            o = u * (tl.sum(on - rest, 1) + leak * tl.sum(on_leak - rest_leak, 1))
        else:
            on, on_leak, _ = _terms(h + a[None, :], less, whole, poly, leak)
            o = tl.sum(on - rest, 1) + leak * tl.sum(on_leak - rest_leak, 1)
        tl.store(o_ptr + (r * B + b) * K + k, o, b < B)


@triton.jit
def _pull(
    h_ptr, a_ptr, u_ptr, t_ptr, share_ptr, hi_ptr, lo_ptr, da_ptr, B, M, K, times, tiles, workers,
    n: tl.constexpr, less: tl.constexpr, whole: tl.constexpr, poly: tl.constexpr, leak: tl.constexpr,
    lift: tl.constexpr, drop: tl.constexpr, leak_slope: tl.constexpr,
    signs: tl.constexpr, split: tl.constexpr,
    BB: tl.constexpr, BM: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """lift = 2^LIFT, drop = 2^-(LIFT n), leak_slope = the lifted leak over n."""
    r = tl.program_id(1).to(tl.int64)
    worker = tl.program_id(0)
    m = tl.arange(0, BM)
    mine = da_ptr + (r * workers + worker) * K * M + m
    for tile in range(worker, tiles, workers):
        b = tile * BB + tl.arange(0, BB)
        there = (b[:, None] < B) & (m[None, :] < M)
        h = tl.load(h_ptr + r * B * M + b[:, None] * M + m[None, :], there, 0.0).to(DT) * lift
        share = tl.load(share_ptr + (r // times) * B + b, b < B, 0.0).to(DT)
        rest, rest_leak, slope = _terms(h, less, whole, poly, leak_slope)
        rest_sum = tl.sum(rest, 1)
        rest_leak_sum = tl.sum(rest_leak, 1)
        dh = tl.zeros((BB, BM), DT)
        for k in range(K):
            a = (2 * lift) * tl.load(a_ptr + (r * K + k) * M + m, m < M, 0.0).to(DT)
            target = tl.load(t_ptr + ((r // times) * B + b) * K + k, b < B, 0.0).to(DT)
            if signs:
                u = tl.load(u_ptr + ((r // times) * B + b) * K + k, b < B, 0.0).to(DT)
                on, on_leak, on_slope = _terms(h + u[:, None] * a[None, :], less, whole, poly, leak_slope)
            else:
                on, on_leak, on_slope = _terms(h + a[None, :], less, whole, poly, leak_slope)
            o = (tl.sum(on, 1) - rest_sum) * drop + (tl.sum(on_leak, 1) - rest_leak_sum) * (leak / lift)
            if signs:
                o = u * o
            e = tl.exp(-2 * tl.abs(o))
            q = 1 / (1 + e)
            y = tl.where(o < 0, e - 1, 1 - e) * q  # tanh o; and 1 - y^2 = 4 e q^2
            error = target - y
            g = (-8 * n) * error * (e * q * q) * share
            if signs:
                dh += (g * u)[:, None] * (on_slope - slope)
            else:
                dh += g[:, None] * (on_slope - slope)
            here = 2 * tl.sum(g[:, None] * on_slope, 0)
            if tile != worker:
                here += tl.load(mine + k * M, m < M, 0.0)
            tl.store(mine + k * M, here, m < M)
        place = r * B * M + b[:, None] * M + m[None, :]
        if split:
            hi = dh.to(tl.bfloat16)
            tl.store(hi_ptr + place, hi, there)
            tl.store(lo_ptr + place, (dh - hi.to(DT)).to(tl.bfloat16), there)
        else:
            tl.store(hi_ptr + place, dh, there)


@triton.jit
def _split(theta_ptr, hi_ptr, lo_ptr, N, P, BN: tl.constexpr):
    """Memories as a sum of two bfloat16 parts, padded with zeros from N to P neurons."""
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BN)
    z = tl.load(theta_ptr + row * N + j, j < N, 0.0)
    hi = z.to(tl.float32).to(tl.bfloat16)
    lo = (z - hi.to(z.dtype)).to(tl.float32).to(tl.bfloat16)
    tl.store(hi_ptr + row * P + j, hi, j < P)
    tl.store(lo_ptr + row * P + j, lo, j < P)


@triton.jit
def _scaled(v, seen):
    """v over its largest entry, the part that is `seen` and the other each by their own."""
    size = tl.abs(v)
    largest = tl.where(seen, tl.max(tl.where(seen, size, 0.0)), tl.max(tl.where(seen, 0.0, size)))
    # Where nothing pulls nothing moves. What is not a number must reach the memories; max may pass over it.
    broken = tl.where(v == v, 0, 1)
    broken = tl.where(seen, tl.max(tl.where(seen, broken, 0)), tl.max(tl.where(seen, 0, broken)))
    largest = tl.where(broken > 0, float("nan"), largest)
    return tl.where(largest == 0, 0.0, v / tl.where(largest == 0, 1.0, largest))


@triton.jit
def _step(
    theta_ptr, grad_ptr, v_ptr, rate_ptr, out_ptr, v_out_ptr, M, N, visible,
    momentum: tl.constexpr, clamp: tl.constexpr, clamped: tl.constexpr,
    scale_grad: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BN)
    there = j < N
    rate = tl.load(rate_ptr + row // M)
    grad = tl.load(grad_ptr + row * N + j, there, 0.0)
    seen = j < visible
    if scale_grad:
        grad = _scaled(grad, seen)
    v = momentum * tl.load(v_ptr + row * N + j, there, 0.0) + grad
    theta = tl.load(theta_ptr + row * N + j, there, 0.0)
    moved = theta - rate * (v if scale_grad else _scaled(v, seen))
    if clamped:  # by comparison: minimum and maximum may lose what is not a number
        low = tl.where(moved < -clamp, -clamp, moved)
        moved = tl.where(seen, tl.where(low > clamp, clamp, low), moved)
    tl.store(out_ptr + row * N + j, moved, there)
    tl.store(v_out_ptr + row * N + j, v, there)
