"""Recall of patterns of -1 and +1 by any interaction F, as two products an update.

With h the overlap of a state s with a pattern xi, clamping neuron i on and off (`engramma.network`) gives

    o_i = s_i sum over patterns of [F(h) - F(h - 2 s_i xi_i)]

and, as s_i xi_i is -1 or +1, F(h - 2 s_i xi_i) = A(h) - s_i xi_i D(h), where A and D are half the sum and
half the difference of F(h + 2) and F(h - 2). So all neurons at once are

    o = s sum (F(h) - A(h)) + D(h) xi

It is the score of `DenseMemory`, without a pass over the neurons. Axes: R replicas, B states, K patterns, N.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from engramma.models import recall as models

Value = Callable[[Tensor], Tensor]
BLOCK = {"cpu": 2**17, "cuda": 2**26}  # overlaps at once: on a CPU as many as its caches hold


def scores(patterns: Tensor, state: Tensor, value: Value) -> Tensor:
    """(R,B,N): every neuron's score, of patterns (R,K,N) and states (R,B,N), with F = `value` of overlaps."""
    alone = state.new_zeros(*state.shape[:2], 1)
    field = torch.zeros_like(state)
    size = max(1, BLOCK[state.device.type] // (state.shape[0] * state.shape[1]))
    for some in patterns.split(size, dim=1):
        h = state @ some.mT
        up, down = value(h + 2), value(h - 2)
        alone += (value(h) - (up + down) / 2).sum(-1, keepdim=True)
        field += ((up - down) / 2) @ some
    return state * alone + field


def recall(patterns: Tensor, state: Tensor, value: Value, steps: int) -> Tensor:
    """(R,B,N): all neurons updated at once until nothing changes, at most `steps` times."""
    each = [settle(s, partial(_scored, xi, value), steps) for xi, s in zip(patterns, state, strict=True)]
    return torch.stack(each)


def _scored(patterns: Tensor, value: Value, state: Tensor) -> Tensor:
    return scores(patterns[None], state[None], value)[0]


def settle(state: Tensor, field: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """The same of one network, by any field (B,N) of states (B,N); at 0 a neuron stays as it is."""

    def move(seen: Tensor, state: Tensor, held: Tensor) -> Tensor:
        del held  # none is
        o = field(seen)
        return torch.where(o == 0, state, o.sign())

    known = torch.zeros_like(state, dtype=torch.bool)
    return models.settle(state, known, models.Dynamics(_itself, move, _itself), steps).state


def _itself(state: Tensor) -> Tensor:
    return state


def settled(state: Tensor, weights: Tensor, steps: int) -> Tensor:
    """(R,B,N): the same by symmetric weights (R,N,N)."""
    each = [settle(s, w.mT.__rmatmul__, steps) for s, w in zip(state, weights, strict=True)]
    return torch.stack(each)
