# pyright: reportArgumentType=false, reportCallIssue=false
# Triton's programs take options and constants its stubs do not know.
"""Triton on CUDA, in the memories' own precision: cuBLAS products around fused elementwise passes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from engramma.interactions import Interaction
from engramma.kernels import reference
from engramma.kernels.compiled import leak_of, written_out
from engramma.kernels.reference import Aim, Descent
from engramma.kernels.triton.jit import _aim, _pull, _scores, _step

name = "triton"
knows, prepare = written_out, reference.prepare
product, product_back = reference.product, reference.product_back  # cuBLAS
slopes, moments = reference.slopes, reference.moments  # only importances need them apart from `pull`

EACH = 10  # classes whose sums a program keeps in registers
# Items and memories a tile, and warps: of those tried on an H200 none was faster by much, for 102 or 512
# memories, n = 2 or 20, 10 or 40 replicas.
SCORES = {"BB": 32, "BM": 8, "num_warps": 2}
PULL = {"BB": 8, "BM": 64, "num_warps": 4}
WARPS = 64  # for each processor: enough to fill it, few enough that their sums stay small


class Held(NamedTuple):
    """How numbers are held: similarities times 2^lift; h and dh in two parts where these stand `apart`."""

    lift: int = 0
    apart: int = 0


WHOLE = Held()


def form(f: Interaction) -> dict[str, object]:
    """What the programs must know of f at compile time: a plain argument would reach them as float32."""
    return {"whole": f.n == int(f.n), "poly": leak_of(f) is None}


def whole(n: float) -> int | float:
    return int(n) if n == int(n) else float(n)


def kind(dtype: torch.dtype) -> tl.dtype:
    return tl.float64 if dtype == torch.float64 else tl.float32


def in_rows(h: Tensor) -> Tensor:
    """h (R,B,M) where its rows are equally far apart, whatever stands between them; else a copy that is."""
    sound = h.stride(2) == 1 and h.stride(0) == h.shape[1] * h.stride(1)
    return h if sound else h.contiguous()


def scores(h: Tensor, a: Tensor, f: Interaction, u: Tensor | None = None) -> Tensor:
    return launch_scores(h, a.mT.to(h.dtype).contiguous(), f, u).mT


def pull(h: Tensor, a: Tensor, aim: Aim) -> tuple[Tensor, Tensor]:
    dh = torch.empty_like(h, memory_format=torch.contiguous_format)
    a = a.mT.to(h.dtype).contiguous()
    g = launch_aim(launch_scores(h, a, aim.f, aim.u), aim)
    da = launch_pull(h, a, g, aim.f, aim.u, dh)
    return dh, da.sum(1, dtype=torch.float64).mT.to(h.dtype)


gradient = reference.in_turn(product, pull, product_back)


def launch_scores(h: Tensor, a: Tensor, f: Interaction, u: Tensor | None, held: Held = WHOLE) -> Tensor:
    """(R,K,B), with a (R,K,M); h is the first part of what is held in two."""
    (replicas, items, memories), classes = h.shape, a.shape[1]
    h, n = in_rows(h), whole(f.n)
    lift = held.lift
    # x^n as x^first x^(n - first), in the fewest multiplications.
    top = 1 << (int(n).bit_length() - 1)
    first = (top // 2 if top == n else top) if isinstance(n, int) else 1
    out = torch.empty(replicas, classes, items, dtype=h.dtype, device=h.device)
    signs = u.contiguous() if u is not None else h
    _scores[(triton.cdiv(items, SCORES["BB"]), replicas)](
        h, a, signs, out, items, memories, h.stride(1), classes, replicas // len(signs),
        n=n, first=first, leak=float(leak_of(f) or 0.0) * 2.0 ** (lift * (f.n - 1)), **form(f),
        lift=2.0**lift, drop=2.0 ** -(lift * f.n), signs=u is not None, other=held.apart,
        EACH=min(EACH, classes), DT=kind(h.dtype), **SCORES, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def launch_aim(o: Tensor, aim: Aim) -> Tensor:
    """g (R,K,B), in the place of the scores. Its loss is the one that is written out."""
    replicas, classes, items = o.shape
    _aim[(triton.cdiv(items, 1024), classes, replicas)](
        o, aim.target.contiguous(), aim.share.contiguous(), o, items, classes, replicas // len(aim.target),
        n=whole(aim.f.n), BB=1024, DT=kind(o.dtype), num_warps=4,
    )  # fmt: skip
    return o


def launch_pull(
    h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None, dh: Tensor, held: Held = WHOLE
) -> Tensor:
    """Writes dh (R,B,.) and returns da (R,workers,K,M), to be summed over the workers; with a (R,K,M).

    Both are times 2^(lift (n - 1)).
    """
    lift, apart = held
    (replicas, items, memories), classes = h.shape, a.shape[1]
    h, n = in_rows(h), whole(f.n)
    tiles, chunks = triton.cdiv(items, PULL["BB"]), triton.cdiv(memories, PULL["BM"])
    processors = torch.cuda.get_device_properties(h.device).multi_processor_count if h.is_cuda else 1
    workers = max(1, min(tiles, triton.cdiv(WARPS * processors, PULL["num_warps"] * replicas * chunks)))
    da = torch.empty(replicas, workers, classes, memories, dtype=h.dtype, device=h.device)
    signs = u.contiguous() if u is not None else h
    # What is added to group of classes after group of classes is parted afterwards.
    many = bool(apart) and classes > EACH
    out = torch.empty(h.shape, dtype=h.dtype, device=h.device) if many else dh
    for k in range(0, classes, EACH):
        _pull[(workers, chunks, replicas)](
            h, a, signs, g, out, da, items, memories, h.stride(1), out.stride(1), classes, k,
            replicas // len(signs), tiles, workers,
            less=n - 1, **form(f), lift=2.0**lift,
            leak_slope=float(leak_of(f) or 0.0) * 2.0 ** (lift * (f.n - 1)) / f.n,
            signs=u is not None, other=apart, lower=0 if many else apart, goes_on=k > 0,
            EACH=min(EACH, classes - k), DT=kind(h.dtype), **PULL,
        )  # fmt: skip
    if many:
        upper = dh[..., :memories].copy_(out)
        dh[..., apart : apart + memories].copy_(out - upper)
    return da


def step(theta: Tensor, grad: Tensor, velocity: Tensor, rule: Descent) -> tuple[Tensor, Tensor]:
    replicas, memories, neurons = theta.shape
    theta, grad, velocity = theta.contiguous(), grad.contiguous(), velocity.contiguous()
    moved, fresh = torch.empty_like(theta), torch.empty_like(theta)
    if isinstance(rule.rate, Tensor):
        rates = rule.rate.to(theta.dtype).reshape(-1).expand(replicas).contiguous()
    else:  # filled on the device: a copy from the host would wait for it
        rates = torch.full((replicas,), rule.rate, dtype=theta.dtype, device=theta.device)
    _step[(replicas * memories,)](
        theta, grad, velocity, rates, moved, fresh, memories, neurons, rule.visible,
        momentum=rule.momentum, clamp=rule.clamp or 0.0, clamped=rule.clamp is not None,
        scale_grad=rule.normalise == "gradient",
        BN=triton.next_power_of_2(neurons), num_warps=4,
    )  # fmt: skip
    return moved, fresh
