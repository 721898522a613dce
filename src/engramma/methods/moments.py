"""EWC, MAS and SI that know the items: held is not each weight, but what a memory makes of the items.

A penalty on single weights takes them for independent. They are not: an item pulls at all visible weights
of a memory at once, by dh x, so that their importances, taken together, are F_m A: one number a memory times
the second moment of the task's items, A = X'X / B. The term of a task is

    strength * half * sum_m F_m (theta_m - theta*_m)' A (theta_m - theta*_m)

over the visible weights, and that is the mean over its items of F_m ((theta_m - theta*_m) . x)^2: a memory
is free to go wherever its similarity with the items it has learned stays what it was. F_m is such that the
diagonal of F_m A adds up to what the importances of the memory's visible weights do. Weights of class neurons
are held one by one.

The gradient is 2 (W theta + sum_tasks F A theta - P), with one P for all tasks: a matrix product a task. A
task leaves its A, which replicas of a seed share, and its F. Where `merge` is "online" there is one term for
all tasks, centred on the latest, and one product: F adds up, and A is the mean of the tasks', both fading by
`decay`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engramma.methods.method import NUMBER, Now, Size
from engramma.methods.penalty import EWC, MAS, SI, Anchored, Penalty
from engramma.network import Items
from engramma.optimiser import per_replica


@dataclass(frozen=True)
class Moments(Penalty):
    """What penalties with second moments share. Which importances, says the penalty that stands before it in
    the order of bases; how they hold the memories is said here."""

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        # An A a task, as if no two replicas shared one, and those that a new one is made of.
        return 10 * size.memories * size.neurons + (size.tasks + 3) * size.neurons**2

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        terms = size.tasks if settings.get("merge", cls.merge) == "separate" else 1
        own = NUMBER * terms * (size.memories + size.visible**2)  # F and A of every term
        return super().kept(settings, strength, size) + own

    def steer(self, state: Anchored, now: Now, theta: Tensor, grad: Tensor) -> Tensor:
        step = super().steer(state, now, theta, grad)
        if now.task.index == 0:
            return step
        strength = 2 * self.half * per_replica(self.strength, theta)
        return step + strength * curved(state, theta)

    def consolidate(self, state: Anchored, now: Now, theta: Tensor) -> Anchored:
        omega, visible = self.scaled_importance(state, now, theta), now.network.visible
        moment = second_moment(now.task.train, visible, theta.dtype)
        trace = moment.diagonal(dim1=1, dim2=2).sum(1).repeat_interleave(len(theta) // len(moment))
        factor = omega[..., :visible].sum(2) / trace[:, None]
        single = torch.cat([torch.zeros_like(omega[..., :visible]), omega[..., visible:]], 2)
        if self.merge == "separate":
            own = Anchored(single, single, factors=(factor,), moments=(moment,))
            return state._replace(
                weight=state.weight + single,
                pull=state.pull + single * theta + curved(own, theta),
                factors=(*state.factors, factor),
                moments=(*state.moments, moment),
            )
        if state.moments:
            factor = self.decay * state.factors[0] + factor
            tasks = sum(self.decay**age for age in range(now.task.index + 1))
            moment = state.moments[0] + (moment - state.moments[0]) / tasks
        fresh = state._replace(
            weight=self.decay * state.weight + single, factors=(factor,), moments=(moment,)
        )
        return fresh._replace(pull=fresh.weight * theta + curved(fresh, theta))


def second_moment(items: Items, visible: int, dtype: torch.dtype) -> Tensor:
    """(S,V,V): X'X / B of the visible neurons, a row at a time."""
    found = []
    for probe, weight in zip(items.probe, items.weight, strict=True):
        x = probe[:, :visible].to(dtype)
        found.append(x.mT @ (x * (weight / weight.sum())[:, None].to(dtype)))
    return torch.stack(found)


def curved(state: Anchored, theta: Tensor) -> Tensor:
    """(R,M,N): sum over tasks of F A theta, over the visible neurons; 0 for the classes'."""
    total = torch.zeros_like(theta)
    for factor, moment in zip(state.factors, state.moments, strict=True):
        rows, visible = moment.shape[:2]
        # Replicas that share a row of items are stacked, so that one product does for all of them.
        stacked = theta[..., :visible].reshape(rows, -1, visible)
        total[..., :visible] += factor[..., None] * (stacked @ moment).view(*theta.shape[:2], visible)
    return total


@dataclass(frozen=True)
class EWCMoments(EWC, Moments):
    """Elastic Weight Consolidation, its Fisher matrix in blocks of a memory each."""


@dataclass(frozen=True)
class MASMoments(MAS, Moments):
    """Memory Aware Synapses with second moments."""


@dataclass(frozen=True)
class SIMoments(SI, Moments):
    """Synaptic Intelligence with second moments."""
