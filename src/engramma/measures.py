"""What scores say of a run, as numbers.

`scores` (...,T,T) has the score of task j after task k was learned at [..., k, j], of one run or of many.
`curve` (...,E,T) has that of every task at E evaluations while all were learned, and `ends` says which of
these is the one after each task. A measure of one task alone, which nothing came after, is 0 (a score: its
own).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


def average(scores: Tensor) -> Tensor:
    """(...): mean over all tasks after the last one (Lopez-Paz and Ranzato 2017). With accuracies, the
    paper's average accuracy."""
    return scores[..., -1, :].mean(-1)


def own(scores: Tensor) -> Tensor:
    """(...,T): every task just after it was learned."""
    return scores.diagonal(dim1=-2, dim2=-1)


def smallest_own(scores: Tensor) -> Tensor:
    """(...): the paper's objective for the general hyperparameters."""
    return own(scores).amin(-1)


def plasticity(scores: Tensor) -> Tensor:
    """(...): mean over tasks of the score just after learning; the learning accuracy of Riemer et al.
    (2019)."""
    return own(scores).mean(-1)


def intransigence(scores: Tensor, reference: Tensor) -> Tensor:
    """(...): how much less well tasks are learned than by a `reference` (...,T), mean over tasks: its score
    of each task just after it was learned, less ours (Chaudhry et al. 2018, who take a network that learns
    all tasks so far at once). Below 0 where ours learns better."""
    return (reference - own(scores)).mean(-1)


def forgetting(scores: Tensor) -> Tensor:
    """(...): best score a task ever had before the last task, minus its final one; mean over all tasks but
    the last (Chaudhry et al. 2018)."""
    if scores.shape[-1] < 2:
        return torch.zeros_like(scores[..., 0, 0])
    return (scores[..., :-1, :-1].amax(-2) - scores[..., -1, :-1]).mean(-1)


def backward_transfer(scores: Tensor) -> Tensor:
    """(...): final score minus the score just after learning; mean over all tasks but the last (Lopez-Paz
    and Ranzato 2017)."""
    if scores.shape[-1] < 2:
        return torch.zeros_like(scores[..., 0, 0])
    return (scores[..., -1, :] - own(scores))[..., :-1].mean(-1)


def forward_transfer(scores: Tensor, untrained: Tensor | float) -> Tensor:
    """(...): score of a task just before it is learned, minus that of an untrained network (...,T) or a
    number such as chance; mean over all tasks but the first (Lopez-Paz and Ranzato 2017)."""
    if scores.shape[-1] < 2:
        return torch.zeros_like(scores[..., 0, 0])
    before = scores.diagonal(offset=1, dim1=-2, dim2=-1)
    baseline = untrained[..., 1:] if isinstance(untrained, Tensor) else untrained
    return (before - baseline).mean(-1)


def min_accuracy(curve: Tensor, ends: Sequence[int]) -> Tensor:
    """(...): the worst score that a task had at any evaluation after it was learned, mean over all tasks but
    the last: min-ACC of De Lange et al. (2023)."""
    if len(ends) < 2:
        return curve[..., ends[0], 0]
    after = [curve[..., end + 1 : ends[-1] + 1, task].amin(-1) for task, end in enumerate(ends[:-1])]
    return torch.stack(after, -1).mean(-1)


def stability_gap(curve: Tensor, ends: Sequence[int]) -> Tensor:
    """(...): what of an earlier task is lost while another is learned, and is there again at its end, as De
    Lange et al. (2023) saw it. Of task j while task k is learned it is

        max(0, min(score of j before k, score of j after k) - least score of j during k),

    mean over all pairs j < k: what is lost for good is forgetting, and no part of it. A dip between two
    evaluations is not seen.
    """
    gaps = []
    for begin, end in pairwise(ends):
        earlier = len(gaps) + 1
        during = curve[..., begin + 1 : end + 1, :earlier]
        level = torch.minimum(curve[..., begin, :earlier], curve[..., end, :earlier])
        gaps.append((level - during.amin(-2)).clamp(min=0))
    return torch.cat(gaps, -1).mean(-1) if gaps else torch.zeros_like(curve[..., 0, 0])


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
