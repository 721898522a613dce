"""Elastic Weight Consolidation on a network that is not ours: a small MLP learns permuted digits.

Five tasks, each the 8x8 digits with their pixels in another order. Run with no arguments; it prints
the accuracy on every task after the last one, and the forgetting, without a method and with EWC.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engramma import measures
from engramma.models.guard import Guard
from engramma.streams.datasets import digits


def permuted_digits(tasks: int, seed: int) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """(x, y, test x, test y) of every task."""
    data, rng = digits(), np.random.default_rng(seed)
    order = rng.permutation(len(data))
    x = torch.as_tensor(data.x[order] / 16.0, dtype=torch.float32)
    y = torch.as_tensor(data.y[order])
    held = len(x) // 5
    found = []
    for _ in range(tasks):
        pixels = torch.as_tensor(rng.permutation(x.shape[1]))
        found.append((x[held:, pixels], y[held:], x[:held, pixels], y[:held]))
    return found


def learn(method: str, strength: float | None, tasks: int = 5, epochs: int = 15, seed: int = 0) -> Tensor:
    """(1,T,T): accuracy on task j after task k was learned."""
    torch.manual_seed(seed)
    stream = permuted_digits(tasks, seed)
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.002)
    guard = Guard(model, cross_entropy, method, strength)
    scores = torch.zeros(1, tasks, tasks)
    for k, (x, y, _, _) in enumerate(stream):
        for _ in range(epochs):
            for batch in torch.randperm(len(x)).split(64):
                optimiser.zero_grad()
                cross_entropy(model(x[batch]), y[batch]).backward()
                guard.steer()
                optimiser.step()
                guard.observe()
        guard.consolidate(x, y)
        with torch.no_grad():
            for j, (_, _, test, truth) in enumerate(stream):
                scores[0, k, j] = (model(test).argmax(1) == truth).float().mean()
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strength", type=float, default=30.0, help="EWC's lambda")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    for method, strength in (("vanilla", None), ("ewc", arguments.strength)):
        scores = learn(method, strength, arguments.tasks, arguments.epochs)
        after = " ".join(f"{s:.3f}" for s in scores[0, -1])
        mean, lost = float(measures.average(scores)), float(measures.forgetting(scores))
        print(f"{method:8} after the last task: {after}   average {mean:.3f}   forgetting {lost:.3f}")


if __name__ == "__main__":
    main()
