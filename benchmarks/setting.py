"""The network, items and memories that the benchmarks share: the paper's sizes, data made up on the spot."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.streams import Task

N, C, M = 799, 10, 512


def items(count: int, dtype: torch.dtype, rows: int = 1, neurons: int = N, seed: int = 0) -> Items:
    """Ten random patterns, one a class, every pixel turned over with probability 0.2."""
    draw = torch.Generator().manual_seed(seed)
    patterns = torch.rand(C, neurons, generator=draw) < 0.5
    label = torch.randint(C, (rows, count), generator=draw)
    flips = torch.rand(rows, count, neurons, generator=draw) < 0.2
    probe = torch.where(patterns[label] ^ flips, 1.0, -1.0).to(dtype)
    probe[..., -C:] = -1
    target = torch.full((rows, count, C), -1.0, dtype=dtype).scatter_(-1, label[..., None], 1.0)
    ids = torch.arange(count).expand(rows, -1)
    return Items(probe, target, torch.ones(rows, count, dtype=dtype), ids)


def network(n: float, kernel: ModuleType | None = None, neurons: int = N) -> DenseMemory:
    return DenseMemory(
        neurons, C, LeakyRectifiedPolynomial(n), beta=1 / 0.95, kernel=kernel or kernel_for("cpu")
    )


def optimiser(kernel: ModuleType | None = None) -> Optimiser:
    return Optimiser(kernel=kernel or kernel_for("cpu"))


def initial(dtype: torch.dtype, replicas: int = 1, memories: int = M, neurons: int = N) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return (0.1 * torch.randn(replicas, memories, neurons, generator=draw)).to(dtype)


def trained(n: float, dtype: torch.dtype, steps: int = 40) -> Tensor:
    """Memories after some steps of training: similarities of all sizes, no longer all near 0."""
    theta, few = initial(torch.float64), items(400, torch.float64)
    net, rule = network(n), optimiser()
    velocity = rule.start(theta)
    for epoch in range(1, steps + 1):
        theta, velocity = rule.step(theta, net.gradient(theta, few), velocity, epoch, net.visible)
    return theta.to(dtype)


def task(index: int, train: Items) -> Task:
    return Task(index, train, train.row(slice(0, 1)))
