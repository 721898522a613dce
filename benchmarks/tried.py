"""What was tried beside the published protocol and is not in the library: another probe, two relaxations, a
rule for SI's path, a scaling of the step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engramma.methods import SI, Anchored, Now
from engramma.network import DenseMemory, Items, Relaxed


@dataclass(frozen=True)
class Labelled(DenseMemory):
    """Class neurons of a probe may stand at +1: Algorithm 1 as printed, where others keep their labels."""

    def _scored(
        self, theta: Tensor, probe: Tensor, neurons: slice | None = None
    ) -> tuple[slice, Tensor | None]:
        scored = neurons or slice(self.visible, self.neurons)
        return scored, -probe[..., : self.neurons][..., scored].to(theta.dtype)


@dataclass(frozen=True)
class Hidden(DenseMemory):
    """Probes relax from class neurons at -1, where `held` keeps them until the rest is stable."""

    held: bool = False

    def relax(
        self,
        theta: Tensor,
        state: Tensor,
        steps: int = 20,
        neurons: slice | None = None,
        order: str = "synchronous",
    ) -> Relaxed:
        state = state.clone()
        state[..., self.visible : self.neurons] = -1.0
        return super().relax(theta, state, steps, slice(0, self.visible) if self.held else neurons, order)


@dataclass(frozen=True)
class Trapezoid(SI):
    """SI's path integral by the trapezoidal rule: what a step gained by the mean of both its gradients.

    `raw`, which no other setting uses here, holds the last move: its second half is added when the gradient
    after it is known, that is, with the next step.
    """

    def start(self, theta: Tensor) -> Anchored:
        return super().start(theta)._replace(raw=torch.zeros_like(theta))

    def observe(self, state: Anchored, now: Now, grad: Tensor, step: Tensor, move: Tensor) -> Anchored:
        assert state.path is not None
        assert state.raw is not None
        assert state.steps is not None
        path = state.path - 0.5 * grad * (move + state.raw)
        return state._replace(path=path, raw=move, steps=state.steps + 1)

    def consolidate(self, state: Anchored, now: Now, theta: Tensor) -> Anchored:
        return super().consolidate(state, now, theta)._replace(raw=torch.zeros_like(theta))


def unit(g: Tensor, visible: int, scaled: str) -> Tensor:
    """Every memory's g (R,M,N) over its largest entry: one for all of it, or for each of its two parts."""
    least = torch.finfo(g.dtype).tiny
    if scaled == "joint":
        return g / g.abs().amax(-1, keepdim=True).clamp(min=least)
    parts = g[..., :visible], g[..., visible:]
    return torch.cat([p / p.abs().amax(-1, keepdim=True).clamp(min=least) for p in parts], -1)


def labelled(items: Items, network: DenseMemory) -> Items:
    """The items with their labels in the probe."""
    probe = items.probe.clone()
    probe[..., network.visible : network.neurons] = items.target.to(probe.dtype)
    return items._replace(probe=probe)
