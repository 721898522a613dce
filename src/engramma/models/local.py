"""Memories found by a local rule, without labels and without a gradient: each follows the items it wins.

    tau dW_m = g_m (x - <W_m, x> W_m),   <W_m, x> = 1/N sum_i sign(W_mi) |W_mi|^(p-1) x_i

(Krotov and Hopfield 2019). g is 1 for the memory nearest to the item, -push for the one in place `rank`, and
0 for the others: winners learn, and a close rival is driven away. Every W_m goes to sum_i |W_mi|^p = N, the
norm of a pattern of -1 and +1, so that what is learned stands beside what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engramma.replicas import generator


@dataclass(frozen=True)
class Competition:
    rank: int = 2  # the place whose memory is driven away
    push: float = 0.4  # how strongly
    norm: float = 2.0  # p
    batch: int = 100  # items a step

    def __post_init__(self) -> None:
        if self.rank < 2 or self.push < 0 or self.norm < 1 or self.batch < 1:
            raise ValueError("rank must be at least 2, push at least 0, norm and batch at least 1")


def competed(
    items: Tensor, memories: Tensor, epochs: int, learning_rate: float, seed: int, rule: Competition
) -> Tensor:
    """(M,N): the memories (M,N) after `epochs` of items (B,N), the rate falling to 0."""
    if rule.rank > len(memories):
        raise ValueError(f"rank must be at most the number of memories, {len(memories)}, not {rule.rank}")
    w = memories
    for epoch in range(epochs):
        rate = learning_rate * (1 - epoch / epochs)
        order = torch.as_tensor(generator(seed, "local rule", epoch).permutation(len(items)))
        for x in items[order.to(items.device)].split(rule.batch):
            h = x @ (w.sign() * w.abs() ** (rule.norm - 1)).mT / w.shape[1]  # (b,M)
            first = h.topk(rule.rank, dim=1).indices
            g = torch.zeros_like(h).scatter_(1, first[:, -1:], -rule.push).scatter_(1, first[:, :1], 1.0)
            change = g.mT @ x - (g * h).sum(0)[:, None] * w
            # The largest entry moves by the rate, whatever the size of the batch.
            w = w + rate * change / change.abs().amax().clamp(min=torch.finfo(w.dtype).tiny)
    return w
