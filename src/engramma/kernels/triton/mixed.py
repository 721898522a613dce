# pyright: reportArgumentType=false, reportCallIssue=false
"""Triton on CUDA, mixed precision: memories, gradients and steps in float64, the work on items in less.

Items are +-1 and so exact in bfloat16; memories and dh are sums of two bfloat16 parts (16 bits), so
each product is two on the tensor cores, summed in float32. The elementwise pass is float32, lifted so
that the range float64 would have is kept (see `triton.jit`). Everything the optimiser sees is float64.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from engramma.interactions import Interaction
from engramma.kernels import reference
from engramma.kernels.compiled import lift_of
from engramma.kernels.reference import Aim
from engramma.kernels.triton import gpu as triton_gpu
from engramma.kernels.triton.gpu import Held
from engramma.kernels.triton.jit import _joined, _split

name = "triton-mixed"
knows, scores, step = triton_gpu.knows, triton_gpu.scores, triton_gpu.step


class Parts(NamedTuple):
    """dh as a sum of two bfloat16 tensors, one `wide` columns behind the other, lifted by 2^bits."""

    both: Tensor  # (R, B, 2 wide)
    memories: int
    bits: float


def prepare(probe: Tensor, dtype: torch.dtype) -> Tensor:
    """bfloat16, padded with zeros to a multiple of 16 neurons (tensor cores like it)."""
    del dtype
    exact = probe.to(torch.bfloat16)
    if probe.dtype.is_floating_point and probe.dtype != torch.bfloat16 and not bool((exact == probe).all()):
        raise ValueError("dtype mixed needs items of -1 and +1 (binary = true); use float64 or float32")
    return torch.nn.functional.pad(exact, (0, -exact.shape[-1] % 16))


def _read(probe: Tensor) -> Tensor:
    """Items, whichever kernel prepared them."""
    return probe if probe.dtype == torch.bfloat16 else prepare(probe, probe.dtype)


def wide(memories: int) -> int:
    """102 memories stand in rows of 112, which tensor cores read at once: what fills them means nothing."""
    return memories + -memories % 16


def product(probe: Tensor, theta: Tensor) -> Tensor:
    """float32 (R,B,M)."""
    probe = _read(probe)
    both, _, _ = _split_up(theta, 1.0, slice(0, 1), probe.shape[-1])
    memories, behind = theta.shape[1], wide(theta.shape[1])
    h = _product(probe, both)
    return h[..., :memories] + h[..., behind : behind + memories]


def _split_up(
    theta: Tensor, scale: float | Tensor, scored: slice, padded: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Scaled memories in two bfloat16 parts, one below the other (R, 2 wide, padded); the scored neurons'
    weights (R,K,M) in float32; and the scale of each replica."""
    (replicas, memories, neurons), device = theta.shape, theta.device
    if not isinstance(scale, Tensor):  # filled on the device: a copy from the host would wait for it
        scale = torch.full((replicas,), scale, dtype=torch.float64, device=device)
    scale, count = scale.reshape(-1).contiguous(), scored.stop - scored.start
    both = torch.empty(replicas, 2 * wide(memories), padded, dtype=torch.bfloat16, device=device)
    a = torch.empty(replicas, count, memories, dtype=torch.float32, device=device)
    _split[(replicas * memories,)](
        theta.contiguous(), scale, both, a, memories, neurons, wide(memories), padded, scored.start, count,
        BN=triton.next_power_of_2(padded), BK=triton.next_power_of_2(count), num_warps=4,
    )  # fmt: skip
    return both, a, scale


def _product(probe: Tensor, both: Tensor) -> Tensor:
    """float32 (R, B, 2 wide): the similarities with each part of the memories."""
    (rows, items, _), (replicas, width, _) = probe.shape, both.shape
    h = torch.empty(rows, replicas // rows, items, width, dtype=torch.float32, device=probe.device)
    for k, part in enumerate(both.unflatten(0, (rows, -1)).unbind(1)):
        _bmm(probe, part.mT, h[:, k])
    return h.flatten(0, 1)


def product_back(dh: Parts | Tensor, probe: Tensor, neurons: int) -> Tensor:
    """float64 (R,M,N)."""
    if isinstance(dh, Tensor):
        return reference.product_back(dh, probe[..., :neurons].to(dh.dtype), neurons)
    out, behind = _product_back(dh, _read(probe))[..., :neurons].double(), wide(dh.memories)
    return (out[:, : dh.memories] + out[:, behind : behind + dh.memories]).mul_(2.0**-dh.bits)


def _product_back(dh: Parts, probe: Tensor) -> Tensor:
    """float32 (R, 2 wide, P), of each part, lifted."""
    (rows, _, padded), (replicas, _, width) = probe.shape, dh.both.shape
    out = torch.empty(rows, replicas // rows, width, padded, dtype=torch.float32, device=probe.device)
    for k, part in enumerate(dh.both.unflatten(0, (rows, -1)).unbind(1)):
        _bmm(part.mT, probe, out[:, k])
    return out.flatten(0, 1)


def _bmm(x: Tensor, y: Tensor, out: Tensor) -> None:
    """out = x @ y: bfloat16 factors, float32 sum."""
    if x.is_cuda:
        torch.bmm(x, y, out_dtype=torch.float32, out=out)
    else:  # under Triton's interpreter, for the tests
        out.copy_(x.float() @ y.float())


def pull(h: Tensor, a: Tensor, aim: Aim) -> tuple[Parts, Tensor]:
    memories = h.shape[-1]
    both = torch.nn.functional.pad(h, (0, 2 * wide(memories) - memories))  # the second part is nothing
    dh, da = _pull(both, a.mT.to(h.dtype).contiguous(), aim)
    return dh, da.sum(1, dtype=torch.float64).mT.mul_(2.0**-dh.bits)


def _pull(both: Tensor, a: Tensor, aim: Aim) -> tuple[Parts, Tensor]:
    """dh, and da (R,workers,K,M); both lifted. h in two parts, a (R,K,M)."""
    memories, f, u = a.shape[-1], aim.f, aim.u
    h, held = both[..., :memories], Held(lift_of(f.n), wide(memories))
    g = triton_gpu.launch_aim(triton_gpu.launch_scores(h, a, f, u, held), aim)
    dh = torch.empty(both.shape, dtype=torch.bfloat16, device=both.device)
    da = triton_gpu.launch_pull(h, a, g, f, u, dh, held)
    return Parts(dh, memories, held.lift * (f.n - 1)), da


def gradient(theta: Tensor, probe: Tensor, scale: float | Tensor, scored: slice, aim: Aim) -> Tensor:
    """product, pull and product_back, with what stands between them in as few launches as it takes."""
    (replicas, memories, neurons), probe = theta.shape, _read(probe)
    both, a, scales = _split_up(theta, scale, scored, probe.shape[-1])
    dh, da = _pull(_product(probe, both), a, aim)
    out, grad = _product_back(dh, probe), torch.empty(theta.shape, dtype=theta.dtype, device=theta.device)
    padded = out.shape[-1]
    _joined[(replicas * memories,)](
        out, da, scales, grad, memories, neurons, wide(memories), padded, scored.start, a.shape[1],
        da.shape[1], drop=2.0**-dh.bits, BN=triton.next_power_of_2(padded), BK=16, BW=16, num_warps=4,
    )  # fmt: skip
    return grad


def slopes(h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """In float64: only importances need it apart from `pull`."""
    return reference.slopes(h.double(), a.double(), g.double(), f, u)


def moments(
    h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None, x: Tensor, power: int
) -> tuple[Tensor, Tensor]:
    return reference.moments(h.double(), a.double(), g.double(), f, u, x.double(), power)
