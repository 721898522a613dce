"""The network, items and memories that the benchmarks share: the paper's sizes, data made up on the spot."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.runs.bench import CLASSES, MEMORIES, NEURONS, initial, items
from engramma.streams import Task

__all__ = ["C", "M", "N", "initial", "items", "network", "optimiser", "task", "trained"]

N, C, M = NEURONS, CLASSES, MEMORIES


def network(n: float, kernel: ModuleType | None = None, neurons: int = N) -> DenseMemory:
    return DenseMemory(
        neurons, C, LeakyRectifiedPolynomial(n), beta=1 / 0.95, kernel=kernel or kernel_for("cpu")
    )


def optimiser() -> Optimiser:
    return Optimiser()


def trained(n: float, dtype: torch.dtype, steps: int = 40) -> Tensor:
    """Memories after some steps of training: similarities of all sizes, no longer all near 0."""
    theta, few = initial(torch.float64), items(400, torch.float64)
    net, rule = network(n), optimiser()
    velocity = rule.start(theta)
    for epoch in range(1, steps + 1):
        theta, velocity = rule.step(theta, net.gradient(theta, few), velocity, epoch, net)
    return theta.to(dtype)


def task(index: int, train: Items) -> Task:
    return Task(index, train, train.row(slice(0, 1)))
