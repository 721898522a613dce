"""Memories found by a local rule, without labels and without a gradient: each follows the items it wins.

    tau dW_m = g_m (x - <W_m, x> W_m),   <W_m, x> = 1/N sum_i sign(W_mi) |W_mi|^(p-1) x_i

(Krotov and Hopfield 2019). g is 1 for the memory nearest to the item, -push for the one in place `rank`, and
0 for the others: winners learn, and a close rival is driven away. Every W_m goes to sum_i |W_mi|^p = N, the
norm of a pattern of -1 and +1, so that what is learned stands beside what is stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engramma.replicas import generator


def competed(
    items: Tensor,
    memories: Tensor,
    epochs: int,
    learning_rate: float,
    seed: int = 0,
    rank: int = 2,
    push: float = 0.4,
    norm: float = 2.0,
    batch: int = 100,
) -> Tensor:
    """(M,N): the memories (M,N) after `epochs` of items (B,N), the rate falling to 0."""
    if not 2 <= rank <= len(memories):
        raise ValueError(f"rank must be from 2 to the number of memories, {len(memories)}, not {rank}")
    if not (push >= 0 and norm >= 1 and batch >= 1):
        raise ValueError("push must be at least 0, norm at least 1 and batch at least 1")
    w = memories
    for epoch in range(epochs):
        rate = learning_rate * (1 - epoch / epochs)
        order = torch.as_tensor(generator(seed, "local rule", epoch).permutation(len(items)))
        for x in items[order.to(items.device)].split(batch):
            h = x @ (w.sign() * w.abs() ** (norm - 1)).mT / w.shape[1]  # (b,M)
            first = h.topk(rank, dim=1).indices
            g = torch.zeros_like(h).scatter_(1, first[:, -1:], -push).scatter_(1, first[:, :1], 1.0)
            change = g.mT @ x - (g * h).sum(0)[:, None] * w
            # The largest entry moves by the rate, whatever the size of the batch.
            w = w + rate * change / change.abs().amax().clamp(min=torch.finfo(w.dtype).tiny)
    return w
