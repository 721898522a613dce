"""Dreams: before every task the network is asked what it makes of made-up items of the earlier ones.

    pixel i of a dream is on with probability (1 + mean_i) / 2, each by itself
    target = (1 - label) tanh o + label t,   o the scores of the network as it is before the task

No item is kept. `of` "classes": the mean of a dream is that of a class of an earlier task, or one of several
`centres` of it, drawn as often as it had items, and t is that class; kept are these means, a byte a pixel.
`of` "memories": it is a memory, drawn in proportion to the mean of f(similarity) that it had with the task's
items, and blurred: mean_i = erf(theta_i / (noise sqrt 2)), so that a pixel is the sign of its weight and
normal noise; t is the class that scores highest. Kept is one number a memory. Dreams are made anew before
each task and answered by the network of then: answers are handed on from task to task, and no dream is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma.methods.allocation import clustered
from engramma.methods.distillation import answers
from engramma.methods.method import NUMBER, Awake, Method, Now, Size
from engramma.methods.replay import check_proportion, limit, proportion_counts
from engramma.network import DenseMemory, Items
from engramma.replicas import Replicas

BYTE = 127  # a mean of 1, as it is kept


class Dreamt(NamedTuple):
    share: tuple[Tensor, ...]  # of each task (S,K) or (R,M): how often a centre or a memory is dreamt of
    mean: tuple[Tensor, ...]  # of each task (S,K,V) in bytes, class by class, where classes are dreamt of
    items: Items | None  # while a task is learned


@dataclass(frozen=True)
class Dreams(Method):
    """`proportion`: dreams of each earlier task, per training item of the new one; may exceed 1. `centres`:
    how many means are kept of a class. `label`: how much of a target is the name of the class, the rest being
    what the network answers. `noise`: of dreams of memories."""

    strength_name: ClassVar[str | None] = "proportion"
    strength_kind: ClassVar[str] = "proportion"

    proportion: float | tuple[float, ...] = 0.5
    of: Literal["classes", "memories"] = "classes"
    centres: int = 5
    label: float = 0.5
    noise: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_proportion(self.proportion)
        if self.centres < 1:
            raise ValueError(f"centres must be at least 1, not {self.centres}")
        if not 0 <= self.label <= 1:
            raise ValueError(f"label must be between 0 and 1, not {self.label}")
        if not 0 < self.noise < float("inf"):
            raise ValueError(f"noise must be above 0, not {self.noise}")

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        return (strength or 0) * items * task, super().rehearsed(settings, strength, items, task)[1]

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        kept = size.tasks * (size.scored * size.neurons + size.memories)
        return kept + (strength or 0) * size.items * (4 * size.neurons + 6 * size.memories)  # while they form

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        del strength
        if settings.get("of", cls.of) == "memories":
            return NUMBER * size.tasks * size.memories
        kinds = 1 if size.visible == size.neurons else size.scored
        centres = kinds * settings.get("centres", cls.centres)
        return size.tasks * centres * (size.visible + NUMBER)  # a byte a pixel, and the share of each

    def start(self, theta: Tensor) -> Dreamt:
        return Dreamt((), (), None)

    def awaken(self, state: Dreamt, now: Now, theta: Tensor) -> Awake:
        counts = proportion_counts(self.proportion, now.task.train.probe.shape[1])
        if state.share and max(counts):
            dreams = [self.dream(state, task, now, theta, max(counts)) for task in range(len(state.share))]
            items = Items.join(*(limit(part, counts, len(theta)) for part in dreams))
            state = state._replace(items=items)
        return super().awaken(state, now, theta)

    def rehearse(self, state: Dreamt, now: Now) -> Items | None:
        return state.items

    def dream(self, state: Dreamt, task: int, now: Now, theta: Tensor, count: int) -> Items:
        """`count` dreams of an earlier task for every replica."""
        net, key = now.network, (now.task.index, task)
        which = self.chosen(state.share[task], now, len(theta), task, count)
        if state.mean:
            mean = state.mean[task].float() / BYTE
        else:
            mean = torch.erf(theta[..., : net.visible] / (self.noise * 2**0.5)).float()
        mean = mean.repeat_interleave(len(theta) // len(mean), 0)
        chance = (1 + mean.gather(1, which[..., None].expand(-1, -1, net.visible))) / 2
        rows = Replicas(now.rng.rows)  # one draw does for all replicas of a seed
        luck = rows.draw(lambda g: g.random((count, net.visible), dtype=np.float32), "pixels of dreams", *key)
        on = torch.as_tensor(luck).to(chance).repeat_interleave(len(theta) // len(luck), 0) < chance
        probe = torch.full((*which.shape, net.neurons), -1.0, dtype=theta.dtype, device=theta.device)
        probe[..., : net.visible].masked_fill_(on, 1.0)
        if (identity := now.task.identity) is not None:
            probe[..., identity] = -1.0
            probe[..., identity.start + task] = 1.0
        probe = net.kernel.prepare(probe, theta.dtype)
        then = answers(net, theta, probe)
        name = net.answer(then)
        if state.mean and net.classes:
            name = torch.full_like(then, -1.0).scatter_(2, which[..., None] // self.centres, 1.0)
        ids = (task << 32) + (1 << 31) + torch.arange(count, device=theta.device)
        target = (1 - self.label) * then + self.label * name
        return Items(probe, target, torch.ones_like(then[..., 0]), ids.expand(len(theta), -1))

    def chosen(self, share: Tensor, now: Now, replicas: int, task: int, count: int) -> Tensor:
        """(R,B): of which centre or memory each dream is."""
        luck = torch.as_tensor(now.rng.draw(lambda g: g.random(count), "dreamt of", now.task.index, task)).to(
            share
        )
        share = share.repeat_interleave(replicas // len(share), 0)
        which = torch.searchsorted((share / share.sum(1, keepdim=True)).cumsum(1), luck)
        return which.clamp(max=share.shape[1] - 1)

    def consolidate(self, state: Dreamt, now: Now, theta: Tensor) -> Dreamt:
        net, items = now.network, now.task.train
        if self.of == "memories":
            f = net.interaction.value(net.similarity(theta, items.probe)).clamp(min=0)
            weight = items.weight.repeat_interleave(len(theta) // len(items.weight), 0)
            return Dreamt((*state.share, (f * weight[..., None]).sum(1).to(theta)), (), None)
        found = [self.centred(*row, net) for row in zip(items.probe, items.target, items.weight, strict=True)]
        mean, share = (torch.stack(part) for part in zip(*found, strict=True))
        return Dreamt((*state.share, share), (*state.mean, mean), None)

    def centred(
        self, probe: Tensor, target: Tensor, weight: Tensor, net: DenseMemory
    ) -> tuple[Tensor, Tensor]:
        """(K,V) the centres of a row's items, class by class, in bytes; (K,) how many items each has."""
        x = probe[weight > 0, : net.visible].to(target)
        kinds = max(1, net.classes)
        label = target[weight > 0].argmax(-1) if net.classes else torch.zeros_like(x[:, 0]).long()
        mean, share = x.new_zeros(kinds, self.centres, net.visible), x.new_zeros(kinds, self.centres)
        for kind in label.unique().tolist():
            mean[kind], share[kind] = clustered(x[label == kind], self.centres)
        return (BYTE * mean).round().to(torch.int8).flatten(0, 1), share.flatten()
