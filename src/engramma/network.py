"""The Dense Associative Memory over a leading axis of replicas.

A network is a frozen description; its memories theta (R,M,N) are an argument everywhere.
The N neurons are first the `visible` ones (pixels and task id), then the class neurons.

A neuron is scored by clamping it on and off (the paper's update rule):

    o_i = sum over memories of f(beta/N memory . probe with i on) - f(beta/N memory . probe with i off)

Clamping neuron i moves the similarity h by 2 u a_i (u = -probe_i, a_i = beta/N memory_i), so no new
product is needed. A classifier's probe holds its class neurons at -1 and scores those; an
auto-associative memory scores every neuron against the item itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from engramma.interactions import Interaction
from engramma.kernels import one_that_knows, reference
from engramma.kernels.reference import Aim
from engramma.losses import SQUARED, Loss


class Items(NamedTuple):
    """What is trained or tested on. Axis 0 is rows: one a replica, or one for several of them."""

    probe: Tensor  # (S,B,N) states before the scored neurons are updated
    target: Tensor  # (S,B,K) what the scored neurons should become: -1 or +1, or between them
    weight: Tensor  # (S,B) how much each counts: 0 is padding, where replicas have unequal numbers of items
    ids: Tensor  # (S,B) int64, the same item has the same id wherever it is replayed

    def row(self, pick: slice | Tensor) -> Items:
        return Items(*(part[:, pick] for part in self))

    def expand(self, replicas: int) -> Items:
        """One row for every replica."""
        times = replicas // self.probe.shape[0]
        return self if times == 1 else Items(*(p.repeat_interleave(times, 0) for p in self))

    @staticmethod
    def join(*parts: Items) -> Items:
        rows = max(part.probe.shape[0] for part in parts)
        return Items(*(torch.cat(p, 1) for p in zip(*(q.expand(rows) for q in parts), strict=True)))


class Relaxed(NamedTuple):
    state: Tensor  # (R,B,N)
    steps: Tensor  # (R,B) updates that changed something
    converged: Tensor  # (R,B) bool


class Response(NamedTuple):
    """What a network says of items."""

    label: Tensor  # (R,B) the class whose neuron scores highest after one update
    tasks: Tensor | None = None  # (R,B,T) bool: the tasks so far that an item's energy says it may be of


@dataclass(frozen=True)
class DenseMemory:
    neurons: int
    classes: int
    interaction: Interaction
    loss_of: Loss = SQUARED  # of one scored neuron
    autoassociative: bool = False
    beta: float | Tensor = 1.0  # 1/T; a number, or one a replica
    kernel: ModuleType = reference  # which prepares items, and computes where it knows interaction and loss
    recall: Interaction | None = None  # by which it recalls, where that is not the one it learns by

    @property
    def arithmetic(self) -> ModuleType:
        """What computes: the kernel, or the specification where the interaction or the loss is one's own."""
        return one_that_knows(self.kernel, self.interaction, self.loss_of)

    @property
    def visible(self) -> int:
        return self.neurons - self.classes

    @property
    def first_scored(self) -> int:
        return 0 if self.autoassociative else self.visible

    def at(self, beta: float | Tensor) -> DenseMemory:
        """The same network at another temperature."""
        return replace(self, beta=beta)

    @property
    def recalling(self) -> DenseMemory:
        """The network that recalls what this one has learned."""
        return replace(self, interaction=self.recall, recall=None) if self.recall else self

    @property
    def scale(self) -> float | Tensor:
        """beta / N, shaped to multiply (R,.,.)."""
        if isinstance(self.beta, Tensor):
            return self.beta.reshape(-1, 1, 1) / self.neurons
        return self.beta / self.neurons

    def similarity(self, theta: Tensor, probe: Tensor) -> Tensor:
        """(R,B,M): beta/N times the overlap of every probe with every memory."""
        # The scale goes onto the memories, which are few, and not onto the products, which are many.
        return self.arithmetic.product(probe, self.scale * theta)

    def scores(self, theta: Tensor, probe: Tensor, neurons: slice | None = None) -> Tensor:
        """(R,B,K): o of the chosen neurons (by default those that are learned), which stand at -1 or +1."""
        h, a, u, _ = self._clamped(theta, probe, neurons)
        return self.arithmetic.scores(h, a, self.interaction, u)

    def loss(self, theta: Tensor, items: Items) -> Tensor:
        """(R,): mean over items and scored neurons."""
        o = self.scores(theta, items.probe)
        target, weight = _spread(o, items.target, items.weight)
        error = self.loss_of.value(o, target).mean(-1)
        return (error * weight).sum(-1) / weight.sum(-1).clamp(min=1)

    def gradient(self, theta: Tensor, items: Items) -> Tensor:
        """(R,M,N): the gradient of each replica's own loss, in closed form."""
        share = _share(items.weight, items.target.shape[-1])
        scored, u = self._scored(theta, items.probe)
        aim = Aim(items.target, share, self.loss_of, self.interaction, u)
        return self.arithmetic.gradient(theta, items.probe, self.scale, scored, aim)

    def per_item(self, theta: Tensor, items: Items, pull: str, power: int) -> Tensor:
        """(R,M,N): mean over items of |gradient of one item|^power, without a loop over items.

        `pull` says of what: "loss" (Fisher information), "predicted" (the loss against the network's
        own answer), "output" (squared norm of the tanh outputs), "norm" (their norm).
        """
        h, a, u, scored = self._clamped(theta, items.probe)
        arithmetic = self.arithmetic
        o = arithmetic.scores(h, a, self.interaction, u)
        target, weight = _spread(o, items.target, items.weight)
        if pull == "predicted":
            target = self.answer(o)
        if pull in ("loss", "predicted"):
            g = self.loss_of.slope(o, target) / o.shape[-1]
        else:
            y = torch.tanh(o)
            g = 2 * y * (1 - y * y)
            if pull == "norm":
                g = g / (2 * y.norm(dim=-1, keepdim=True)).clamp(min=torch.finfo(y.dtype).tiny)
        g = g * weight[..., None]
        x = items.probe[..., scored].to(theta.dtype)
        dh, own = arithmetic.moments(h, a, g, self.interaction, u, x, power)
        # The item's gradient is the outer product of dh and x, so its powers are an outer product too.
        total = arithmetic.product_back(dh, items.probe.abs().pow(power), self.neurons)
        total[..., scored] = own
        scale = abs(self.scale) ** power
        return scale * total / weight.sum(-1).clamp(min=1)[:, None, None]

    def answer(self, o: Tensor) -> Tensor:
        """(R,B,K): the targets that scores (R,B,K) speak for: their signs, or the highest class alone on."""
        if self.autoassociative:
            return torch.where(o > 0, 1.0, -1.0).to(o)
        return torch.full_like(o, -1.0).scatter_(-1, o.argmax(-1, keepdim=True), 1.0)

    def respond(self, theta: Tensor, probe: Tensor, task: int | None = None) -> Response:
        """The class of items (R,B), and whose they are, where the network can say it. `task`: whose they are,
        for a network that wants to be told."""
        del task
        return Response(self.recalling.scores(theta, probe, slice(self.visible, self.neurons)).argmax(-1))

    def predict(self, theta: Tensor, probe: Tensor, task: int | None = None) -> Tensor:
        """(R,B): the class whose neuron scores highest after one update."""
        return self.respond(theta, probe, task).label

    def energy(self, theta: Tensor, state: Tensor) -> Tensor:
        """(R,B): -sum over memories of f(similarity)."""
        return -self.recalling.interaction.value(self.similarity(theta, state)).sum(-1)

    def relax(
        self,
        theta: Tensor,
        state: Tensor,
        steps: int = 20,
        neurons: slice | None = None,
        order: str = "synchronous",
    ) -> Relaxed:
        """Update the chosen neurons (all by default) with `sign` until nothing changes.

        Synchronous: all at once, as in the paper. Asynchronous: one after the other, which never
        raises the energy. A neuron with a score of exactly 0 keeps its value. A step here is one
        update of all chosen neurons, in either order.
        """
        if order not in ("synchronous", "asynchronous"):
            raise ValueError(f"order must be synchronous or asynchronous, not {order!r}")
        chosen = neurons or slice(0, self.neurons)
        state = state.to(theta.dtype).repeat_interleave(theta.shape[0] // state.shape[0], 0)
        count = torch.zeros(state.shape[:2], dtype=torch.long, device=state.device)
        moving = torch.ones_like(count, dtype=torch.bool)
        earlier = None
        for left in range(steps - 1, -1, -1):
            before = state[..., chosen].clone()
            groups = [chosen]
            if order == "asynchronous":
                groups = [slice(i, i + 1) for i in range(*chosen.indices(self.neurons))]
            for group in groups:
                probe = self.kernel.prepare(state, theta.dtype)
                o = self.recalling.scores(theta, probe, group)
                state[..., group] = torch.where(o == 0, state[..., group], o.sign())
            moving = (state[..., chosen] != before).any(-1)
            count += moving
            if not bool(moving.any()):
                break
            if earlier is not None and torch.equal(state[..., chosen], earlier):
                # What still moves swings between two states, and would until the end.
                count += left * moving
                state[..., chosen] = before if left % 2 else state[..., chosen]
                break
            earlier = before
        return Relaxed(state, count, ~moving)

    def _scored(
        self, theta: Tensor, probe: Tensor, neurons: slice | None = None
    ) -> tuple[slice, Tensor | None]:
        """Which neurons are scored, and u."""
        if neurons is None and not self.autoassociative:
            return slice(self.visible, self.neurons), None  # a classifier's probe has them at -1
        scored = neurons or slice(0, self.neurons)
        return scored, -probe[..., : self.neurons][..., scored].to(theta.dtype)

    def _clamped(
        self, theta: Tensor, probe: Tensor, neurons: slice | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None, slice]:
        scored, u = self._scored(theta, probe, neurons)
        h = self.similarity(theta, probe)
        return h, (self.scale * theta[..., scored]).contiguous(), u, scored


@lru_cache(maxsize=1)  # a batch of everything is the same tensor in every epoch
def _share(weight: Tensor, scored: int) -> Tensor:
    """(S,B): how much an item's error in one of its scored neurons counts."""
    return weight / (weight.sum(-1, keepdim=True).clamp(min=1) * scored)


def _spread(o: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Targets and weights with one row for every replica of o."""
    times = o.shape[0] // target.shape[0]
    if times == 1:
        return target, weight
    return target.repeat_interleave(times, 0), weight.repeat_interleave(times, 0)
