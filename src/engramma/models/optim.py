"""The paper's gradient descent as a torch.optim optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engramma.kernels import kernel_for
from engramma.optimiser import as_sum, check_order


class NormalisedMomentum(torch.optim.Optimizer):
    """m = momentum m + (1 - momentum) grad / (largest entry of grad), row by row; every row moves by lr m.

    A row is a memory, or whatever else the first axis of a parameter counts; a vector is one row.
    `normalise`: "mean" is that; with "velocity" it is v = momentum v + grad that is divided so, a step at a
    time, as in the authors' public package ("gradient": `engramma.optimiser`).
    `visible`: the first so many columns are divided by their own largest entry, apart from the rest,
    and kept within [-clamp, clamp]; None (or more than there are): all of them. `clamp` None keeps
    none. For `DenseMemoryLayer`, `visible=layer.visible` is what the paper does; the rate falls by
    0.999 an epoch with `torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.999)`.

    Examples
    --------
    >>> import torch
    >>> from engramma.models.layer import DenseMemoryLayer
    >>> from engramma.models.optim import NormalisedMomentum
    >>> layer = DenseMemoryLayer(visible=8, classes=2, memories=4)
    >>> optimiser = NormalisedMomentum(layer.parameters(), lr=0.1, visible=layer.visible)
    >>> before = layer.memories.detach().clone()
    >>> layer(torch.ones(3, 8)).sum().backward()
    >>> optimiser.step()
    >>> (before - layer.memories.detach()).abs().max() <= 0.101
    tensor(True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.1,
        momentum: float = 0.6,
        visible: int | None = None,
        clamp: float | None = 1.0,
        normalise: str = "mean",
    ) -> None:
        check_order(normalise)
        if not lr >= 0:
            raise ValueError(f"lr must be 0 or more, not {lr}")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, not {momentum}")
        if clamp is not None and not clamp > 0:
            raise ValueError(f"clamp must be above 0 or None, not {clamp}")
        rule = {"lr": lr, "momentum": momentum, "visible": visible, "clamp": clamp, "normalise": normalise}
        super().__init__(params, rule)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step(p, group)
        return loss

    def _step(self, p: Tensor, group: dict[str, Any]) -> None:
        if p.grad is None or p.grad.is_sparse:
            raise RuntimeError("NormalisedMomentum does not take sparse gradients")
        rows = (1, 1, -1) if p.dim() < 2 else (1, len(p), -1)
        theta, grad = p.reshape(rows), p.grad.reshape(rows)
        if "velocity" not in self.state[p]:
            self.state[p]["velocity"] = torch.zeros_like(p)
        velocity = self.state[p]["velocity"].reshape(rows)
        columns = theta.shape[-1]
        visible = columns if group["visible"] is None else min(group["visible"], columns)
        rate, order = as_sum(group["lr"], group["normalise"], group["momentum"])
        moved, velocity = kernel_for(p.device).step(
            theta, grad, velocity, rate, group["momentum"], visible, group["clamp"], order
        )
        p.copy_(moved.reshape(p.shape))
        self.state[p]["velocity"] = velocity.reshape(p.shape)
