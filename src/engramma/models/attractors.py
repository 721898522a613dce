"""Where probes come to rest, told apart: at a stored pattern, or at something nobody stored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma.models.associative import AssociativeMemory
from engramma.models.hopfield import Hopfield

KINDS = ("stored", "inverse", "mixture", "diffuse", "spurious")


class Attractors(NamedTuple):
    """The states in which probes came to rest, the most often reached first.

    stored: a pattern itself; inverse: a pattern with every sign turned over; mixture: the majority of three
    or five patterns or of their inverses, or, of continuous states, the mean of several (metastable);
    diffuse: the majority, or mean, of more than half of all; spurious: none of these.
    """

    states: Tensor  # (A,N)
    count: Tensor  # (A,) probes that ended there
    kind: list[str]  # (A,) of KINDS
    pattern: Tensor  # (A,) the nearest
    overlap: Tensor  # (A,) the cosine with it
    unsettled: int  # probes that were still moving

    def shares(self) -> dict[str, float]:
        """Of all probes: those that ended in each kind, and the unsettled."""
        every = int(self.count.sum()) + self.unsettled
        of = {kind: 0 for kind in KINDS}
        for kind, count in zip(self.kind, self.count.tolist(), strict=True):
            of[kind] += count
        return {kind: count / every for kind, count in {**of, "unsettled": self.unsettled}.items()}


def attractors(
    network: AssociativeMemory | Hopfield,
    probes: Tensor | np.ndarray,
    patterns: Tensor | np.ndarray,
    near: float = 0.05,
    steps: int = 100,
) -> Attractors:
    """Recall from `probes` (B,N), and tell the ends by the `patterns` (K,N) that were stored.

    A state is at another if they differ in at most a share `near` of the neurons, or, of continuous states,
    by at most `near` times the pattern's length. How many memories a continuous state is a mean of tell the
    weights of its update: 1 / sum p^2.

    Examples
    --------
    >>> import numpy as np
    >>> from engramma.models.attractors import attractors
    >>> from engramma.models.hopfield import Hopfield
    >>> patterns = np.random.default_rng(0).choice([-1, 1], (3, 50))
    >>> network = Hopfield()
    >>> network.store(patterns)
    >>> attractors(network, np.concatenate([patterns, -patterns[:1]]), patterns).shares()["stored"]
    0.75
    """
    if not 0 <= near < 0.5:
        raise ValueError(f"near must be from 0 to below 0.5, not {near}")
    end = network.recall(torch.atleast_2d(torch.as_tensor(probes)), steps)
    x = torch.atleast_2d(torch.as_tensor(patterns)).to(end.state)
    rest = end.state[end.converged]
    binary = isinstance(network, Hopfield) or network.interaction is not None
    # Continuous states that came to rest at one place are not yet equal.
    grid = rest if binary else (rest / (1e-3 * float(x.square().mean().sqrt()))).round()
    _, which, count = grid.unique(dim=0, return_inverse=True, return_counts=True)
    first = torch.full_like(count, len(rest)).scatter_reduce(
        0, which, torch.arange(len(rest), device=which.device), "amin"
    )
    order = count.argsort(descending=True, stable=True)
    states, count = rest[first[order]], count[order]
    cosine = torch.nn.functional.normalize(states, dim=1) @ torch.nn.functional.normalize(x, dim=1).mT
    nearest = (cosine.abs() if binary else cosine).argmax(1)
    overlap = cosine.gather(1, nearest[:, None])[:, 0]
    if isinstance(network, Hopfield) or network.interaction is not None:
        kind = [_majority(state, x, c, 1 - 2 * near) for state, c in zip(states, cosine, strict=True)]
    else:
        apart = (states - x[nearest]).norm(dim=1) / x[nearest].norm(dim=1)
        several = [float(1 / network.weights(state).square().sum()) for state in states]
        kind = [_mean(a <= near, m, len(x)) for a, m in zip(apart.tolist(), several, strict=True)]
    return Attractors(states, count, kind, nearest, overlap, int((~end.converged).sum()))


def _mean(at_one: bool, several: float, of: int) -> str:
    """What a continuous state is, whose update is a mean of `several` patterns `of` all."""
    if at_one:
        return "stored"
    if several > of:  # the update has no weights: no pattern is in reach
        return "spurious"
    return "diffuse" if several > of / 2 else "mixture"


def _majority(state: Tensor, patterns: Tensor, overlap: Tensor, near: float) -> str:
    """What a binary state is, at these overlaps (K,) with the patterns; `near` is the least overlap with what
    it is to be."""
    if overlap.abs().max() >= near:
        return "stored" if overlap.max() >= near else "inverse"
    nearest = overlap.abs().argsort(descending=True)
    turned = overlap.sign()[:, None] * patterns
    for several in (3, 5):
        if len(patterns) >= several and _agreement(state, turned[nearest[:several]].sum(0)) >= near:
            return "mixture"
    return "diffuse" if abs(_agreement(state, patterns.sum(0))) >= near else "spurious"


def _agreement(state: Tensor, votes: Tensor) -> float:
    """The overlap with the signs of votes; undecided neurons agree with anything."""
    return float(torch.where(votes == 0, 1.0, state * votes.sign()).mean())
