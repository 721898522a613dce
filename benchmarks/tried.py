"""What was tried beside the published protocol and is not in the library: another probe, two relaxations,
a scaling of the step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
