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
from engramma.kernels.triton.jit import _pull, _scores, _step
from engramma.losses import Loss

name = "triton"
knows, prepare = written_out, reference.prepare
product, product_back = reference.product, reference.product_back  # cuBLAS
slopes, moments = reference.slopes, reference.moments  # only importances need them apart from `pull`

MOST_MEMORIES = 2048  # a program keeps all memories of an item in registers


def vertex(f: Interaction) -> dict[str, object]:
    """What the programs must know of f at compile time."""
    whole = f.n == int(f.n)
    n, less = (int(f.n), int(f.n) - 1) if whole else (float(f.n), float(f.n) - 1)
    leak = leak_of(f)
    # Constants of the programs, because a plain argument would reach them as float32.
    return {"n": n, "less": less, "whole": whole, "poly": leak is None, "leak": float(leak or 0.0)}


def tile(memories: int, dtype: torch.dtype) -> dict[str, object]:
    """Items a tile and warps: 2,048 similarities in registers were fastest of the shapes tried."""
    wide = triton.next_power_of_2(max(memories, 16))
    kind, warps = (tl.float64, 4) if dtype == torch.float64 else (tl.float32, 2)
    return {"BM": wide, "BB": max(1, min(32, 2048 // wide)), "DT": kind, "num_warps": warps}


def scores(h: Tensor, a: Tensor, f: Interaction, u: Tensor | None = None) -> Tensor:
    replicas, items, memories = h.shape
    neurons = a.shape[-1]
    if memories > MOST_MEMORIES:
        return reference.scores(h, a.to(h.dtype), f, u)
    h, a = h.contiguous(), a.mT.to(h.dtype).contiguous()
    out = torch.empty(replicas, items, neurons, dtype=h.dtype, device=h.device)
    shape = tile(memories, h.dtype)
    grid = (triton.cdiv(items, int(str(shape["BB"]))), replicas)
    signs = u is not None
    times = replicas // u.shape[0] if u is not None else 1
    flat = u.contiguous() if u is not None else h
    _scores[grid](
        h, a, flat, out, items, memories, neurons, times, signs=signs, **vertex(f), **shape,
        # f on less f off, not fused with the last product of one of them: equal powers must leave 0.
        enable_fp_fusion=False,
    )  # fmt: skip
    return out


def pull(
    h: Tensor, a: Tensor, target: Tensor, share: Tensor, loss: Loss, f: Interaction, u: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if h.shape[-1] > MOST_MEMORIES:
        return reference.pull(h, a, target, share, loss, f, u)
    dh = torch.empty_like(h, memory_format=torch.contiguous_format)
    da = launch_pull(h, a, target, share, f, u, Parts(dh, dh))
    return dh, da.to(h.dtype)


gradient = reference.in_turn(product, pull, product_back)


class Parts(NamedTuple):
    """dh, of similarities times 2^lift and so itself times 2^bits: the sum of two tensors if these are
    bfloat16, else one tensor named twice."""

    hi: Tensor
    lo: Tensor
    lift: int = 0
    bits: float = 0


def launch_pull(
    h: Tensor, a: Tensor, target: Tensor, share: Tensor, f: Interaction, u: Tensor | None, out: Parts
) -> Tensor:
    """Writes dh into `out` and returns da (R,M,K) in float64, lifted as it is; of the loss that is written
    out in the program."""
    replicas, items, memories = h.shape
    neurons = a.shape[-1]
    h, a = h.contiguous(), a.mT.to(h.dtype).contiguous()
    shape = tile(memories, h.dtype)
    tiles = triton.cdiv(items, int(str(shape["BB"])))
    processors = 132
    if h.is_cuda:
        processors = torch.cuda.get_device_properties(h.device).multi_processor_count
    # Enough programs to fill the device a few times over, few enough that their sums of da stay small.
    warps = int(str(shape["num_warps"]))
    workers = max(1, min(tiles, triton.cdiv(32 * processors, warps * replicas)))
    parts = torch.empty(replicas, workers, neurons, memories, dtype=h.dtype, device=h.device)
    signs = u is not None
    flat = u.contiguous() if u is not None else h
    known = vertex(f)
    leak_slope = float(str(known["leak"])) * 2.0**out.bits / f.n
    _pull[(workers, replicas)](
        h, a, flat, target.contiguous(), share.contiguous(), out.hi, out.lo, parts, items, memories, neurons,
        replicas // target.shape[0], tiles, workers,
        lift=2.0**out.lift, drop=2.0 ** -(out.lift * f.n), leak_slope=leak_slope,
        signs=signs, split=out.hi.dtype == torch.bfloat16, **known, **shape,
    )  # fmt: skip
    return parts.sum(1, dtype=torch.float64).mT


def step(
    theta: Tensor,
    grad: Tensor,
    velocity: Tensor,
    rate: Tensor | float,
    momentum: float,
    visible: int,
    clamp: float | None,
    normalise: str = "velocity",
) -> tuple[Tensor, Tensor]:
    replicas, memories, neurons = theta.shape
    theta, grad, velocity = theta.contiguous(), grad.contiguous(), velocity.contiguous()
    moved, fresh = torch.empty_like(theta), torch.empty_like(theta)
    if isinstance(rate, Tensor):
        rates = rate.to(theta.dtype).reshape(-1).expand(replicas).contiguous()
    else:  # filled on the device: a copy from the host would wait for it
        rates = torch.full((replicas,), rate, dtype=theta.dtype, device=theta.device)
    _step[(replicas * memories,)](
        theta, grad, velocity, rates, moved, fresh, memories, neurons, visible,
        momentum=momentum, clamp=clamp or 0.0, clamped=clamp is not None,
        scale_grad=normalise == "gradient",
        BN=triton.next_power_of_2(neurons), num_warps=4,
    )  # fmt: skip
    return moved, fresh
