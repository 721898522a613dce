"""numba on the CPU, mixed precision: memories, gradients and steps in float64, the work on items in float32.

What `triton.mixed` does on a GPU, so that dtype "mixed" means the same on both. Powers are computed of
y = x 2^lift, or the slopes of fresh memories, near 1e-45 at n = 20, would be lost; the lift is taken out
again in float64. Similarities have float32's 24 bits here, where Triton's have 16.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engramma.interactions import Interaction, LeakyRectifiedPolynomial
from engramma.kernels.compiled import lift_of
from engramma.kernels.numba import cpu as numba_cpu
from engramma.kernels.reference import Aim

name = "numba-mixed"
knows, product_back, step = numba_cpu.knows, numba_cpu.product_back, numba_cpu.step


def prepare(probe: Tensor, dtype: torch.dtype) -> Tensor:
    del dtype
    return probe.float()


def product(probe: Tensor, theta: Tensor) -> Tensor:
    """float32 (R,B,M)."""
    return numba_cpu.product(probe, theta.float())


def scores(h: Tensor, a: Tensor, f: Interaction, u: Tensor | None = None) -> Tensor:
    """float64 (R,B,K)."""
    lift = lift_of(f.n)
    up = 2.0**lift
    o = numba_cpu.scores(up * h, (up * a).to(h.dtype), _lifted(f, lift), u if u is None else u.to(h.dtype))
    return o.double() * up**-f.n


def gradient(theta: Tensor, probe: Tensor, scale: float | Tensor, scored: slice, aim: Aim) -> Tensor:
    """float64 (R,M,N)."""
    lift, n = lift_of(aim.f.n), aim.f.n
    up, z = 2.0**lift, theta.numpy()
    scales = np.broadcast_to(np.asarray(scale, z.dtype).reshape(-1), len(z))
    lifted = np.multiply(z, up * scales[:, None, None]).astype(np.float32)
    # A score is brought down before the loss looks at it, slopes once they are added up, in float64.
    aim = aim._replace(f=_lifted(aim.f, lift))
    return numba_cpu.pulled_back(lifted, scales * up ** (1 - n), probe, scored, aim, drop=up**-n)


def pull(h: Tensor, a: Tensor, aim: Aim) -> tuple[Tensor, Tensor]:
    """In float64, as `slopes` and `moments`: training goes by `gradient`."""
    wide = aim._replace(target=aim.target.double(), share=aim.share.double(), u=_double(aim.u))
    return numba_cpu.pull(h.double(), a.double(), wide)


def slopes(h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return numba_cpu.slopes(h.double(), a.double(), g.double(), f, _double(u))


def moments(
    h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None, x: Tensor, power: int
) -> tuple[Tensor, Tensor]:
    return numba_cpu.moments(h.double(), a.double(), g.double(), f, _double(u), x.double(), power)


def _lifted(f: Interaction, lift: int) -> Interaction:
    """f of y = x 2^lift, as large as 2^(lift n) f(x): y^n is so by itself, what leaks is not."""
    if isinstance(f, LeakyRectifiedPolynomial):
        return replace(f, leak=f.leak * 2.0 ** (lift * (f.n - 1)))
    return f


def _double(u: Tensor | None) -> Tensor | None:
    return u if u is None else u.double()
