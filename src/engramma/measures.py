"""Everything is computed from one (R,T,T) array: scores[r, k, j] of task j after task k was learned."""

from __future__ import annotations

import torch
from torch import Tensor


def average(scores: Tensor) -> Tensor:
    """(R,): mean over all tasks after the last one. With accuracies, the paper's average accuracy."""
    return scores[:, -1].mean(-1)


def own(scores: Tensor) -> Tensor:
    """(R,T): every task just after it was learned."""
    return scores.diagonal(dim1=1, dim2=2)


def smallest_own(scores: Tensor) -> Tensor:
    """(R,): the paper's objective for the general hyperparameters."""
    return own(scores).amin(-1)


def forgetting(scores: Tensor) -> Tensor:
    """(R,): best score a task ever had before the last task, minus its final one; mean over all tasks
    but the last (Chaudhry et al. 2018)."""
    if scores.shape[1] < 2:
        return scores.new_zeros(scores.shape[0])
    return (scores[:, :-1, :-1].amax(1) - scores[:, -1, :-1]).mean(-1)


def backward_transfer(scores: Tensor) -> Tensor:
    """(R,): final score minus the score just after learning; mean over all tasks but the last
    (Lopez-Paz and Ranzato 2017)."""
    if scores.shape[1] < 2:
        return scores.new_zeros(scores.shape[0])
    return (scores[:, -1] - own(scores))[:, :-1].mean(-1)


def forward_transfer(scores: Tensor, untrained: Tensor | float) -> Tensor:
    """(R,): score of a task just before it is learned, minus that of an untrained network (R,T) or a
    number such as chance; mean over all tasks but the first (Lopez-Paz and Ranzato 2017)."""
    if scores.shape[1] < 2:
        return scores.new_zeros(scores.shape[0])
    before = scores.diagonal(offset=1, dim1=1, dim2=2)
    baseline = untrained[:, 1:] if isinstance(untrained, Tensor) else untrained
    return (before - baseline).mean(-1)


def confusion(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """(R,C,C) counts[r, truth, predicted] from (R,B) class numbers."""
    replicas = predicted.shape[0]
    cell = truth.expand_as(predicted) * classes + predicted
    offset = torch.arange(replicas, device=cell.device)[:, None] * classes * classes
    counts = torch.bincount((cell + offset).flatten(), minlength=replicas * classes * classes)
    return counts.reshape(replicas, classes, classes)


def accuracy(counts: Tensor) -> Tensor:
    """(R,): share of items answered right, which for one label an item is micro-averaged F1."""
    return counts.diagonal(dim1=-2, dim2=-1).sum(-1).double() / counts.sum((-2, -1)).clamp(min=1)


def macro_f1(counts: Tensor) -> Tensor:
    """(R,): F1 of every class that occurs, averaged."""
    hit = counts.diagonal(dim1=-2, dim2=-1).double()
    there, said = counts.sum(-1), counts.sum(-2)
    f1 = 2 * hit / (there + said).clamp(min=1)
    present = (there + said) > 0
    return (f1 * present).sum(-1) / present.sum(-1).clamp(min=1)
