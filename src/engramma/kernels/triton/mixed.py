# pyright: reportArgumentType=false, reportCallIssue=false
"""Triton on CUDA, mixed precision: memories, gradients and steps in float64, the work on items in less.

Items are +-1 and so exact in bfloat16; memories and dh are sums of two bfloat16 parts (16 bits), so
each product is two on the tensor cores, summed in float32. The elementwise pass is float32, lifted so
that the range float64 would have is kept (see `triton.jit`). Everything the optimiser sees is float64.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from engramma.interactions import Interaction
from engramma.kernels import reference
from engramma.kernels.compiled import lift_of
from engramma.kernels.triton import gpu as triton_gpu
from engramma.kernels.triton.gpu import Parts
from engramma.kernels.triton.jit import _split
from engramma.losses import Loss

name = "triton-mixed"
knows, scores, step = triton_gpu.knows, triton_gpu.scores, triton_gpu.step


def prepare(probe: Tensor, dtype: torch.dtype) -> Tensor:
    """bfloat16, padded with zeros to a multiple of 16 neurons (tensor cores like it)."""
    del dtype
    exact = probe.to(torch.bfloat16)
    if probe.dtype.is_floating_point and probe.dtype != torch.bfloat16 and not bool((exact == probe).all()):
        raise ValueError("dtype mixed needs items of -1 and +1 (binary = true); use float64 or float32")
    return torch.nn.functional.pad(exact, (0, -exact.shape[-1] % 16))


def product(probe: Tensor, theta: Tensor) -> Tensor:
    """float32 (R,B,M)."""
    (rows, items, padded), (replicas, memories, neurons) = probe.shape, theta.shape
    hi = torch.empty(replicas, memories, padded, dtype=torch.bfloat16, device=theta.device)
    lo = torch.empty_like(hi)
    _split[(replicas * memories,)](
        theta.contiguous(), hi, lo, neurons, padded, BN=triton.next_power_of_2(padded), num_warps=4
    )  # fmt: skip
    times = replicas // rows
    h = torch.empty(rows, times, items, memories, dtype=torch.float32, device=theta.device)
    hi, lo = hi.unflatten(0, (rows, times)), lo.unflatten(0, (rows, times))
    for k in range(times):
        _bmm(probe, hi[:, k].mT, h[:, k], False)
        _bmm(probe, lo[:, k].mT, h[:, k], True)
    return h.flatten(0, 1)


def product_back(dh: Parts | Tensor, probe: Tensor, neurons: int) -> Tensor:
    """float64 (R,M,N)."""
    if isinstance(dh, Tensor):
        return reference.product_back(dh, probe[..., :neurons].to(dh.dtype), neurons)
    rows, times = probe.shape[0], dh.hi.shape[0] // probe.shape[0]
    memories, padded = dh.hi.shape[-1], probe.shape[-1]
    out = torch.empty(rows, times, memories, padded, dtype=torch.float32, device=probe.device)
    hi, lo = dh.hi.unflatten(0, (rows, times)), dh.lo.unflatten(0, (rows, times))
    for k in range(times):
        _bmm(hi[:, k].mT, probe, out[:, k], False)
        _bmm(lo[:, k].mT, probe, out[:, k], True)
    return out.flatten(0, 1)[..., :neurons].double().mul_(2.0**-dh.bits)


def _bmm(x: Tensor, y: Tensor, out: Tensor, add: bool) -> None:
    """out (+)= x @ y: bfloat16 factors, float32 sum."""
    if not x.is_cuda:  # under Triton's interpreter, for the tests
        out.copy_(x.float() @ y.float() + (out if add else 0))
    elif add:
        torch.baddbmm(out, x, y, out_dtype=torch.float32, out=out)
    else:
        torch.bmm(x, y, out_dtype=torch.float32, out=out)


def pull(
    h: Tensor, a: Tensor, target: Tensor, share: Tensor, loss: Loss, f: Interaction, u: Tensor | None = None
) -> tuple[Parts, Tensor]:
    lift = lift_of(f.n)
    hi = torch.empty(h.shape, dtype=torch.bfloat16, device=h.device)
    dh = Parts(hi, torch.empty_like(hi), lift, lift * (f.n - 1))
    da = triton_gpu.launch_pull(h, a, target, share, f, u, dh)
    return dh, da.mul_(2.0**-dh.bits)


gradient = reference.in_turn(product, pull, product_back)


def slopes(h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """In float64: only importances need it apart from `pull`."""
    return reference.slopes(h.double(), a.double(), g.double(), f, u)


def moments(
    h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None, x: Tensor, power: int
) -> tuple[Tensor, Tensor]:
    return reference.moments(h.double(), a.double(), g.double(), f, u, x.double(), power)
