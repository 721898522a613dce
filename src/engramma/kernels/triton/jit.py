# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportOperatorIssue=false
# What stands here is Triton's language, not Python's.
# ruff: noqa: RUF005
"""The Triton programs behind `triton.gpu` and `triton.mixed`.

A sum over what a program's threads hold costs more than the terms of it, so no program sums inside its loop.
`_scores` owns a tile of items and walks over the memories; each thread adds up its own, and these are
summed once, at the end. `_pull` owns a tile of memories and walks over the items in the same way: what the
similarities get is a sum over classes, which one thread has, and what the class weights get is summed at
the end. A power is thereby made twice, once in each, which costs less than keeping it.

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
def _added(
    total, y,
    n: tl.constexpr, first: tl.constexpr, whole: tl.constexpr, poly: tl.constexpr, leak: tl.constexpr,
):  # fmt: skip
    """total + f(y). The power is that of `first` times the rest, so that its last multiplication also adds.

    In fused steps written out: on and off must be rounded alike, for equal powers to leave 0.
    """
    w = (y if whole else tl.abs(y)) if poly else tl.maximum(y, 0.0)
    total = tl.fma(_power(w, first, whole), _power(w, n - first, whole), total)
    if not poly:  # y - w is min(y, 0), which a minimum would be too but for what is not a number
        total = tl.fma(y - w, tl.full(w.shape, leak, w.dtype), total)
    return total


@triton.jit
def _slope(y, less: tl.constexpr, whole: tl.constexpr, poly: tl.constexpr, leak_slope: tl.constexpr):
    """f'(y) / n of lifted y."""
    if poly:
        p = _power(y if whole else tl.abs(y), less, whole)
        return p if whole else tl.where(y < 0, -p, p)
    return tl.where(y > 0, _power(y, less, whole), leak_slope)


@triton.jit
def _read(h_ptr, place, there, other: tl.constexpr, DT: tl.constexpr):
    """Similarities, which stand in two parts where there is an `other`, so far behind the first."""
    h = tl.load(h_ptr + place, there, 0.0).to(DT)
    if other:
        h += tl.load(h_ptr + place + other, there, 0.0).to(DT)
    return h


# Of rows whose alignment is unknown a thread reads one number at a time, neighbours beside each other: it
# then holds several items of one memory, whose weights it reads once for all of them.
@triton.jit(do_not_specialize=["width"])
def _scores(
    h_ptr, a_ptr, u_ptr, o_ptr, B, M, width, K, times,
    n: tl.constexpr, first: tl.constexpr, whole: tl.constexpr, poly: tl.constexpr, leak: tl.constexpr,
    lift: tl.constexpr, drop: tl.constexpr, signs: tl.constexpr, other: tl.constexpr,
    EACH: tl.constexpr, BB: tl.constexpr, BM: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """o (R,K,B), EACH classes at a time. lift = 2^LIFT, drop = 2^-(LIFT n), leak is lifted as a power is."""
    r = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    h_ptr += r * B * width
    a_ptr += r * K * M
    o_ptr += r * K * B
    u_ptr += (r // times) * B * K
    for k in range(0, K, EACH):
        off = tl.zeros((BB, BM), DT)
        on = ()
        for _j in tl.static_range(EACH):
            on = on + (tl.zeros((BB, BM), DT),)
        for start in range(0, M, BM):
            m = start + tl.arange(0, BM)
            there = (b[:, None] < B) & (m[None, :] < M)
            # Where there is nothing h and a are 0, and f(0) = 0: no mask is needed further on.
            h = _read(h_ptr, b[:, None] * width + m[None, :], there, other, DT) * lift
            off = _added(off, h, n, first, whole, poly, leak)
            more = ()
            for j in tl.static_range(EACH):
                a = (2 * lift) * tl.load(a_ptr + (k + j) * M + m, (m < M) & (k + j < K), 0.0).to(DT)
                if signs:
                    u = tl.load(u_ptr + b * K + k + j, (b < B) & (k + j < K), 0.0).to(DT)
                    more = more + (_added(on[j], h + u[:, None] * a[None, :], n, first, whole, poly, leak),)
                else:
                    more = more + (_added(on[j], h + a[None, :], n, first, whole, poly, leak),)
            on = more
        for j in tl.static_range(EACH):
            o = tl.sum(on[j] - off, 1) * drop
            if signs:
                o *= tl.load(u_ptr + b * K + k + j, (b < B) & (k + j < K), 0.0).to(DT)
            tl.store(o_ptr + (k + j) * B + b, o, (b < B) & (k + j < K))


@triton.jit
def _aim(o_ptr, t_ptr, share_ptr, g_ptr, B, K, times, n: tl.constexpr, BB: tl.constexpr, DT: tl.constexpr):
    """g (R,K,B): the squared loss's slope at the scores, times n, times two class neurons' distance."""
    r = tl.program_id(2).to(tl.int64)
    k = tl.program_id(1)
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    o = tl.load(o_ptr + (r * K + k) * B + b, b < B, 0.0)
    target = tl.load(t_ptr + ((r // times) * B + b) * K + k, b < B, 0.0).to(DT)
    share = tl.load(share_ptr + (r // times) * B + b, b < B, 0.0).to(DT)
    e = tl.exp(-2 * tl.abs(o))
    q = 1 / (1 + e)
    y = tl.where(o < 0, e - 1, 1 - e) * q  # tanh o; and 1 - y^2 = 4 e q^2
    tl.store(g_ptr + (r * K + k) * B + b, (-8 * n) * (target - y) * (e * q * q) * share, b < B)


@triton.jit
def _pull(
    h_ptr, a_ptr, u_ptr, g_ptr, dh_ptr, da_ptr, B, M, width, wide, K, k, times, tiles, workers,
    less: tl.constexpr, whole: tl.constexpr, poly: tl.constexpr, lift: tl.constexpr, leak_slope: tl.constexpr,
    signs: tl.constexpr, other: tl.constexpr, lower: tl.constexpr, goes_on: tl.constexpr,
    EACH: tl.constexpr, BB: tl.constexpr, BM: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """g of EACH classes from k on, pulled back to similarities and to class weights.

    dh is written in two parts where there is a `lower`, so far behind the upper one. leak_slope = the lifted
    leak over n; `goes_on`: earlier classes have left their dh."""
    r = tl.program_id(2).to(tl.int64)
    worker = tl.program_id(0)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    h_ptr += r * B * width
    dh_ptr += r * B * wide
    a_ptr += (r * K + k) * M
    g_ptr += (r * K + k) * B
    u_ptr += (r // times) * B * K + k
    da_ptr += ((r * workers + worker) * K + k) * M
    a, da = (), ()
    for j in tl.static_range(EACH):
        a = a + ((2 * lift) * tl.load(a_ptr + j * M + m, m < M, 0.0).to(DT),)
        da = da + (tl.zeros((BB, BM), DT),)
    for tile in range(worker, tiles, workers):
        b = tile * BB + tl.arange(0, BB)
        there = (b[:, None] < B) & (m[None, :] < M)
        h = _read(h_ptr, b[:, None] * width + m[None, :], there, other, DT) * lift
        off = _slope(h, less, whole, poly, leak_slope)
        dh = tl.zeros((BB, BM), DT)
        if goes_on:
            dh = tl.load(dh_ptr + b[:, None] * wide + m[None, :], there, 0.0)
        more = ()
        for j in tl.static_range(EACH):
            g = tl.load(g_ptr + j * B + b, b < B, 0.0)
            if signs:
                u = tl.load(u_ptr + b * K + j, b < B, 0.0).to(DT)
                on = _slope(h + u[:, None] * a[j][None, :], less, whole, poly, leak_slope)
                dh += (g * u)[:, None] * (on - off)
            else:
                on = _slope(h + a[j][None, :], less, whole, poly, leak_slope)
                dh += g[:, None] * (on - off)
            more = more + (da[j] + g[:, None] * on,)
        da = more
        place = b[:, None] * wide + m[None, :]
        if lower:
            upper = dh.to(tl.bfloat16)
            tl.store(dh_ptr + place, upper, there)
            tl.store(dh_ptr + place + lower, (dh - upper.to(DT)).to(tl.bfloat16), there)
        else:
            tl.store(dh_ptr + place, dh, there)
    for j in tl.static_range(EACH):
        tl.store(da_ptr + j * M + m, 2 * tl.sum(da[j], 0), m < M)


@triton.jit
def _split(
    theta_ptr, scale_ptr, parts_ptr, a_ptr, M, N, wide, P, first, K, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Scaled memories as a sum of two bfloat16 parts (R, 2 wide, P), padded with zeros from N to P neurons;
    and a (R,K,M), the weights of K neurons from the `first` on."""
    row = tl.program_id(0).to(tl.int64)
    r, m = row // M, row % M
    scale = tl.load(scale_ptr + r)
    j = tl.arange(0, BN)
    z = tl.load(theta_ptr + row * N + j, j < N, 0.0) * scale
    upper = z.to(tl.float32).to(tl.bfloat16)
    lower = (z - upper.to(z.dtype)).to(tl.float32).to(tl.bfloat16)
    place = parts_ptr + (r * 2 * wide + m) * P + j
    tl.store(place, upper, j < P)
    tl.store(place + wide * P, lower, j < P)
    k = tl.arange(0, BK)
    a = tl.load(theta_ptr + row * N + first + k, k < K, 0.0) * scale
    tl.store(a_ptr + (r * K + k) * M + m, a.to(tl.float32), k < K)


@triton.jit
def _joined(
    out_ptr, da_ptr, scale_ptr, grad_ptr, M, N, wide, P, first, K, workers,
    drop: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BW: tl.constexpr,
):  # fmt: skip
    """The gradient in float64: what the products gave for both parts (R, 2 wide, P) and, for the K scored
    neurons, what the workers found (R,workers,K,M); scaled, and lowered by drop = 2^-(LIFT (n - 1))."""
    row = tl.program_id(0).to(tl.int64)
    r, m = row // M, row % M
    scale = tl.load(scale_ptr + r) * drop
    out_ptr += (r * 2 * wide + m) * P
    j = tl.arange(0, BN)
    grad = tl.load(out_ptr + j, j < N, 0.0).to(tl.float64) + tl.load(out_ptr + wide * P + j, j < N, 0.0)
    tl.store(grad_ptr + row * N + j, grad * scale, (j < N) & ((j < first) | (j >= first + K)))
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        w = tl.arange(0, BW)
        found = tl.zeros((BK,), tl.float64)
        for worker in range(0, workers, BW):
            at = ((r * workers + worker + w[None, :]) * K + k[:, None]) * M + m
            there = (worker + w[None, :] < workers) & (k[:, None] < K)
            found += tl.sum(tl.load(da_ptr + at, there, 0.0).to(tl.float64), 1)
        found += tl.load(out_ptr + first + k, k < K, 0.0)
        found += tl.load(out_ptr + wide * P + first + k, k < K, 0.0)
        tl.store(grad_ptr + row * N + first + k, found * scale, k < K)


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
