"""The arithmetic of one step, behind one signature.

`reference` is plain PyTorch and the specification; the others compute the same functions faster.

Axes: R replicas, S rows of items (S divides R: replica r reads row r // (R / S)), B items,
M memories, N neurons, K scored neurons.

    product(probe (S,B,N), theta (R,M,N))          -> (R,B,M)  probe . memory
    product_back(dh (R,B,M), probe (S,B,N), N)     -> (R,M,N)  its transpose: sum_b dh x
    scores(h, a, f, u)                             -> (R,B,K)  sum_m f(h + 2 u a) - f(h), times u
    slopes(h, a, g, f, u)                          -> dh (R,B,M), da (R,M,K): g pulled back through scores
    pull(h, a, aim)                                -> dh, da of sum share loss(scores, target)
    moments(h, a, g, f, u, x, power)               -> |dh|^power (R,B,M), sum_b |dh x + da_b|^power (R,M,K)
    step(theta, grad, velocity, rule)              -> theta, velocity
    gradient(theta, probe, scale, scored, aim)     -> (R,M,N)  product, pull, product_back
    prepare(probe (S,B,N), dtype)                  -> items as the kernel likes to read them
    knows(f, loss)                                 -> whether it computes these

with h = (beta/N) probe . memory, a (R,M,K) = (beta/N) the memories' weights of the scored neurons,
u (S,B,K) = minus the scored neurons' present values, or None where all of them stand at -1. What scores
should become is an `Aim`: target (S,B,K), share (S,B), loss, f and u. A step's rule is a `Descent`. Every
kernel reads items that any other has prepared.
"""

from __future__ import annotations

import functools
import logging
from importlib import import_module
from types import ModuleType

import torch

from engramma.interactions import Interaction
from engramma.kernels import reference
from engramma.kernels.compiled import WRITTEN_OUT
from engramma.losses import Loss

log = logging.getLogger("engramma")

# {kind of device: (the folder of its compiled kernels, the one of them in the memories' own precision)}.
# They are imported where they run: a compiler need not be there.
COMPILED = {"cuda": ("triton", "gpu"), "cpu": ("numba", "cpu")}


def one_that_knows(kernel: ModuleType, f: Interaction, loss: Loss) -> ModuleType:
    """The kernel, or the specification where it does not know the interaction or the loss.

    The specification asks them for values and slopes, and reads items that any kernel prepared.
    """
    if kernel.knows(f, loss):
        return kernel
    _say(kernel.name, type(f), type(loss))
    return reference


@functools.cache  # once
def _say(kernel: str, *kinds: type) -> None:
    strange = " and ".join(kind.__name__ for kind in kinds if kind not in WRITTEN_OUT)
    log.warning("kernel %s does not know %s: plain PyTorch computes it, more slowly", kernel, strange)


def kernel_for(device: torch.device | str, name: str = "auto", mixed: bool = False) -> ModuleType:
    """The fastest implementation that this device and installation can run, or the one named.

    `mixed`: memories in float64, the work on items in float32 (`numba.mixed`), on CUDA in bfloat16 parts too
    (`triton.mixed`).
    """
    kind = torch.device(device).type
    folder, plain = COMPILED.get(kind, ("", ""))
    compiled = folder != "" and name in ("auto", folder)
    if mixed and not compiled:
        raise ValueError(
            f"dtype mixed needs Triton on CUDA or numba on the CPU, not kernel {name} on {kind}; "
            "use float64 or float32"
        )
    if compiled:
        try:
            return import_module(f"engramma.kernels.{folder}.{'mixed' if mixed else plain}")
        except ImportError:
            if mixed or name != "auto":
                raise
    if name in ("auto", "reference"):
        return reference
    raise ValueError(f"kernel must be auto, reference, numba (on the CPU) or triton (on CUDA), not {name!r}")
