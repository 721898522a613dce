"""GEM and A-GEM: the gradient is turned so that it does not point against earlier tasks' gradients."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from engramma.methods.method import Method, Now, Size
from engramma.methods.replay import (
    Buffer,
    check_proportion,
    empty_buffer,
    grow,
    limit,
    proportion_counts,
)
from engramma.network import Items


class Guarded(NamedTuple):
    buffer: Buffer
    violated: Tensor  # (R,) steps whose gradient had to be turned
    steps: Tensor  # (R,) steps taken with something to guard


@dataclass(frozen=True)
class Projection(Method):
    """Keeps `proportion` of every task and compares every step with the gradients on it.

    `sample`: a new sample of that many items of each task's buffer every step, instead of all; below 1: of
    that share of it.
    `margin`: the least weight of every reference in the dual, where anything is violated; 0 is the paper's.
    """

    strength_name: ClassVar[str | None] = "proportion"
    strength_kind: ClassVar[str] = "proportion"

    proportion: float | tuple[float, ...] = 0.05
    sample: int | float | None = None
    margin: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.margin < float("inf"):
            raise ValueError(f"margin must be 0 or more, not {self.margin}")
        check_proportion(self.proportion, most=1)
        if self.sample is not None and not (
            0 < self.sample < 1 or (self.sample >= 1 and self.sample % 1 == 0)
        ):
            raise ValueError(f"sample must be a number of items or a share below 1, not {self.sample}")

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        return super().rehearsed(settings, strength, items, task)[0], (strength or 0) * items * task

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        earlier = max(1, size.tasks - 1)
        return 4 * earlier * size.memories * size.neurons  # two gradients of each, in float64

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        return size.tasks * round((strength or 0) * size.items) * size.item

    @abstractmethod
    def references(self, buffer: list[Items], now: Now, theta: Tensor) -> Tensor:
        """(R,K,M,N): gradients that the step must not point against."""

    def start(self, theta: Tensor) -> Guarded:
        none = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
        return Guarded(empty_buffer(theta), none, none.clone())

    def steer(self, state: Guarded, now: Now, theta: Tensor, grad: Tensor) -> Tensor:
        if state.buffer.items is None:
            return grad
        blocks = [self._drawn(items, now) for items in by_task(state.buffer)]
        return project(grad, self.references(blocks, now, theta), self.margin)

    def observe(self, state: Guarded, now: Now, grad: Tensor, step: Tensor, move: Tensor) -> Guarded:
        if state.buffer.items is None:
            return state
        turned = (grad != step).flatten(1).any(1)
        return state._replace(violated=state.violated + turned, steps=state.steps + 1)

    def consolidate(self, state: Guarded, now: Now, theta: Tensor) -> Guarded:
        counts = proportion_counts(self.proportion, now.task.train.probe.shape[1])
        if max(counts) == 0:
            return state
        kept = limit(now.task.train.row(slice(0, max(counts))), counts, len(theta))
        return state._replace(buffer=grow(state.buffer, kept, theta.new_zeros(0)))

    def report(self, state: Guarded) -> dict[str, Any]:
        share = state.violated / state.steps.clamp(min=1)
        return {"violated": share.tolist()}

    def _drawn(self, items: Items, now: Now) -> Items:
        if self.sample is None:
            return items
        keys = now.rng.shuffle_keys(items.ids ^ 2, now.task.index, now.epoch, now.step)
        keys = keys.masked_fill(items.weight == 0, torch.iinfo(keys.dtype).max)
        share = self.sample if self.sample < 1 else None
        size = keys.shape[1]
        pick = keys.argsort(1)[:, : round(self.sample) if share is None else max(1, round(share * size))]
        rows = torch.arange(len(pick), device=pick.device)[:, None]
        drawn = Items(*(part[rows, pick] for part in items))
        if share is None:
            return drawn
        # Of a replica that keeps fewer items than the others the same share, and not the same number.
        counts = (share * (items.weight > 0).sum(1, keepdim=True)).round().clamp(min=1)
        column = torch.arange(pick.shape[1], device=pick.device)
        return drawn._replace(weight=drawn.weight * (column < counts))


@dataclass(frozen=True)
class GEM(Projection):
    """Gradient Episodic Memory: one constraint for every earlier task (Lopez-Paz and Ranzato 2017)."""

    def references(self, buffer: list[Items], now: Now, theta: Tensor) -> Tensor:
        sizes = {items.probe.shape[1] for items in buffer}
        if len(sizes) > 1:
            return torch.stack([now.network.gradient(theta, items) for items in buffer], 1)
        # The references are replicas too: each earlier task's buffer is a row of its own.
        rows = [items.expand(len(theta)) for items in buffer]
        stacked = Items(*(torch.stack(part, 1).flatten(0, 1) for part in zip(*rows, strict=True)))
        beta = now.network.beta
        net = now.network
        if isinstance(beta, Tensor):
            net = net.at(beta.flatten().repeat_interleave(len(buffer)))
        copies = theta.repeat_interleave(len(buffer), 0)
        return net.gradient(copies, stacked).unflatten(0, (len(theta), len(buffer)))


@dataclass(frozen=True)
class AGEM(Projection):
    """Averaged GEM: a single constraint, the gradient over all buffers (Chaudhry et al. 2019)."""

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        return 4 * size.memories * size.neurons  # however many tasks there were, one gradient over them

    def references(self, buffer: list[Items], now: Now, theta: Tensor) -> Tensor:
        joined = buffer[0] if len(buffer) == 1 else Items.join(*buffer)
        return now.network.gradient(theta, joined)[:, None]


def by_task(buffer: Buffer) -> list[Items]:
    assert buffer.items is not None
    ends = buffer.sizes.cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return [buffer.items.row(slice(a, b)) for a, b in zip(starts, ends, strict=True)]


def project(grad: Tensor, references: Tensor, margin: float = 0.0) -> Tensor:
    """The nearest vector to `grad` (R,M,N) whose product with every reference (R,K,M,N) is >= 0:
    grad + G' v with v >= margin solving the dual min 1/2 v'GG'v + (G grad)'v. Where grad already
    satisfies all, it is returned as it is."""
    g, G = grad.flatten(1).double(), references.flatten(2).double()
    dots = (G @ g[..., None])[..., 0]
    if G.shape[1] == 1:
        own = (G * G).sum(-1)
        v = (-dots / own.clamp(min=torch.finfo(own.dtype).tiny)).clamp(min=margin)
    else:
        v = dual(G @ G.mT, dots, margin)
    violated = (dots < 0).any(1)
    turned = (g + (v[:, None] @ G)[:, 0]).to(grad.dtype).view_as(grad)
    return torch.where(violated[:, None, None], turned, grad)


def dual(gram: Tensor, dots: Tensor, margin: float = 0.0) -> Tensor:
    """(R,K): argmin over v >= margin of 1/2 v'Pv + q'v, for all replicas at once.

    With w = v - margin this is non-negative least squares: find the set of references that push
    (w > 0, gradient 0), the others resting (w = 0, gradient >= 0). With few references every set is
    tried in one batched solve; with many, sets are exchanged until none is wrong.
    """
    count = gram.shape[1]
    # Each reference is scaled to length 1: a task learned well has a gradient many decades below the
    # others', and its constraint counts as much as theirs.
    size = gram.diagonal(dim1=1, dim2=2).sqrt()
    unit = torch.where(size > 0, 1 / size, 0.0)
    P = gram * unit[:, :, None] * unit[:, None, :]
    q = dots * unit + margin * (P * size[:, None, :]).sum(2)
    # Parallel references make P singular; a ridge far under rounding of the data decides between them.
    P = P + 1e-13 * torch.eye(count, dtype=P.dtype, device=P.device)
    w = _try_all(P, q) if count <= 5 else _exchange(P, q)
    return w.clamp(min=0) * unit + margin


def _solve(P: Tensor, q: Tensor, pushing: Tensor) -> tuple[Tensor, Tensor]:
    """w = -P^-1 q over the pushing references, 0 elsewhere; and the gradient P w + q."""
    both = pushing[..., :, None] & pushing[..., None, :]
    eye = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    system = torch.where(both, P, 0.0) + torch.where(pushing, 0.0, 1.0)[..., None] * eye
    w = torch.linalg.solve_ex(system, torch.where(pushing, -q, 0.0)[..., None])[0]
    return w[..., 0], (P @ w)[..., 0] + q


def _try_all(P: Tensor, q: Tensor) -> Tensor:
    count = q.shape[1]
    sets = (torch.arange(2**count, device=q.device)[:, None] >> torch.arange(count, device=q.device)) & 1
    w, slope = _solve(P[:, None], q[:, None], sets.bool().expand(len(q), -1, -1))
    # The right set violates neither condition; rounding makes that "the one that violates least".
    wrong = torch.maximum((-w).amax(-1), torch.where(sets.bool(), 0.0, -slope).amax(-1)).nan_to_num(torch.inf)
    best = wrong.argmin(1)
    return w[torch.arange(len(w), device=w.device), best]


def _exchange(P: Tensor, q: Tensor) -> Tensor:
    """Block principal pivoting (Judice and Pires 1994), every replica with its own set."""
    count = q.shape[1]
    pushing = torch.zeros_like(q, dtype=torch.bool)
    fewest = torch.full((len(q),), count + 1, device=q.device)
    patience = torch.full_like(fewest, 3)
    tolerance = 1e-12 * q.abs().amax(1, keepdim=True)
    w, slope = _solve(P, q, pushing)
    for _ in range(10 * 2 ** min(count, 8)):
        wrong = (pushing & (w < -tolerance)) | (~pushing & (slope < -tolerance))
        number = wrong.sum(1)
        if not bool(number.any()):
            break
        better = number < fewest
        patience = torch.where(better, 3, patience - 1)
        fewest = torch.minimum(fewest, number)
        # While it helps, exchange all that are wrong; when it cycles, the last alone, which must end.
        last = wrong & (
            torch.arange(count, device=q.device) == (count - 1 - wrong.flip(1).int().argmax(1))[:, None]
        )
        pushing = pushing ^ torch.where((patience >= 0)[:, None], wrong, last)
        w, slope = _solve(P, q, pushing)
    return w
