"""How fast a training step is on this machine: against its two matrix products alone, and in items a second.

Contestants take turns, round after round, so that a disturbance meets all of them; a ratio is the median
over rounds of the ratios within a round. CPU seconds are measured beside the clock: on a single thread
they hardly notice what else is running.

Threads of a BLAS or of OpenMP go on spinning for some 30 ms after their work is done, and would meet the
next contestant. So each rests until they sleep. A step follows a step in training: each then runs for a while
unmeasured, and what is measured are as many runs on end as fill the same while.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.kernels.reference import Aim
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser

REST = WHILE = 0.06  # seconds
NEURONS, CLASSES, MEMORIES = 799, 10, 512  # the paper's
Contestants = Mapping[str, Callable[[], object]]


def race(contestants: Contestants, rounds: int = 9) -> dict[str, dict[str, float]]:
    """Seconds, CPU seconds, and both as multiples of the first contestant's (medians)."""
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(REST)
            times = _run_for(run, WHILE)
            start, busy = time.perf_counter(), time.process_time()
            for _ in range(times):
                run()
            wall[name].append((time.perf_counter() - start) / times)
            cpu[name].append((time.process_time() - busy) / times)
    first = next(iter(contestants))
    return {
        name: {
            "seconds": statistics.median(wall[name]),
            "cpu_seconds": statistics.median(cpu[name]),
            "ratio": _ratio(wall[name], wall[first]),
            "cpu_ratio": _ratio(cpu[name], cpu[first]),
        }
        for name in contestants
    }


def _run_for(run: Callable[[], object], seconds: float) -> int:
    """How many times it ran in so many seconds, once at least."""
    times, end = 0, time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        run()
        times += 1
    return times


def _ratio(these: list[float], those: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


def items(count: int, dtype: torch.dtype, rows: int = 1, neurons: int = NEURONS, seed: int = 0) -> Items:
    """Ten random patterns, one a class, every pixel turned over with probability 0.2."""
    draw = torch.Generator().manual_seed(seed)
    patterns = torch.rand(CLASSES, neurons, generator=draw) < 0.5
    label = torch.randint(CLASSES, (rows, count), generator=draw)
    flips = torch.rand(rows, count, neurons, generator=draw) < 0.2
    probe = torch.where(patterns[label] ^ flips, 1.0, -1.0).to(dtype)
    probe[..., -CLASSES:] = -1
    target = torch.full((rows, count, CLASSES), -1.0, dtype=dtype).scatter_(-1, label[..., None], 1.0)
    ids = torch.arange(count).expand(rows, -1)
    return Items(probe, target, torch.ones(rows, count, dtype=dtype), ids)


def initial(
    dtype: torch.dtype, replicas: int = 1, memories: int = MEMORIES, neurons: int = NEURONS
) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return (0.1 * torch.randn(replicas, memories, neurons, generator=draw)).to(dtype)


def contestants(batch: Items, theta: Tensor, n: float, kernel: ModuleType) -> Contestants:
    """A step of theta (R,M,N) on one row of items, and its two matrix products alone: by either BLAS on the
    CPU, writing to memory that is already there; as the kernel does them on a GPU."""
    net = DenseMemory(theta.shape[2], CLASSES, LeakyRectifiedPolynomial(n), beta=1 / 0.95, kernel=kernel)
    rule = Optimiser()
    velocity = rule.start(theta)

    def step() -> None:
        rule.step(theta, net.gradient(theta, batch), velocity, 1, net)
        if theta.is_cuda:
            torch.cuda.synchronize()

    if theta.is_cuda:
        h, a = kernel.product(batch.probe, net.scale * theta), net.scale * theta[..., net.visible :]
        aim = Aim(batch.target, batch.weight, net.loss_of, net.interaction)
        dh, _ = kernel.pull(h, a.contiguous(), aim)

        def products() -> None:
            kernel.product(batch.probe, theta)
            kernel.product_back(dh, batch.probe, net.neurons)
            torch.cuda.synchronize()

        return {"products": products, "step": step}

    x = batch.probe[0]
    memories = theta.to(x.dtype)  # mixed: the work on items is in less than the memories
    h, back = x.new_empty(len(theta), len(x), theta.shape[1]), memories.clone()
    dh = torch.randn_like(h)
    a, z, c, d, e = (t.numpy() for t in (x, memories, h, dh, back))

    def by_numpy() -> None:
        for r in range(len(z)):
            np.dot(a, z[r].T, out=c[r])
            np.dot(d[r].T, a, out=e[r])

    def by_torch() -> None:
        for r in range(len(z)):
            torch.mm(x, memories[r].T, out=h[r])
            torch.mm(dh[r].T, x, out=back[r])

    return {"numpy": by_numpy, "torch": by_torch, "step": step}


def against_products(times: dict[str, dict[str, float]], key: str = "") -> float:
    """The step's time (key "cpu_": CPU time) as a multiple of the fastest products'."""
    alone = min((t for name, t in times.items() if name != "step"), key=lambda t: t[f"{key}seconds"])
    return times["step"][f"{key}ratio"] / alone[f"{key}ratio"]


def measure(
    device: torch.device | str,
    dtype: str,
    replicas: int,
    count: int,
    n: float,
    memories: int = MEMORIES,
    rounds: int = 5,
) -> dict[str, Any]:
    """One row: the step against its products, and items a second over all replicas."""
    kernel = kernel_for(device, mixed=dtype == "mixed")
    kind = torch.float32 if dtype == "float32" else torch.float64
    made = Items(*(part.to(device) for part in items(count, kind)))
    batch = made._replace(probe=kernel.prepare(made.probe, kind))
    theta = initial(kind, replicas, memories).to(device)
    times = race(contestants(batch, theta, n, kernel), rounds)
    return {
        "dtype": dtype,
        "replicas": replicas,
        "items": count,
        "n": n,
        "memories": memories,
        "kernel": kernel.name,
        "ratio": against_products(times),
        "items_a_second": replicas * count / times["step"]["seconds"],
        "times": times,
    }


def machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """What the figures were taken on."""
    cuda = torch.device(device).type == "cuda"
    return {
        "processor": torch.cuda.get_device_name(device) if cuda else _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
