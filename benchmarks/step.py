"""A full training step (gradient and optimiser) against its two matrix products alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.race import race, write
from benchmarks.setting import M, N, initial, items, network, optimiser, trained


def products(probe: Tensor, theta: Tensor) -> dict[str, Callable[[], None]]:
    """Both products by either BLAS, writing to memory that is already there."""
    x, z = probe[0], theta[0]
    h, back = x.new_empty(len(x), M), torch.empty_like(z)
    dh = torch.randn_like(h)
    a, b, c, d, e = (t.numpy() for t in (x, z, h, dh, back))

    def by_numpy() -> None:
        np.dot(a, b.T, out=c)
        np.dot(d.T, a, out=e)

    def by_torch() -> None:
        torch.mm(x, z.T, out=h)
        torch.mm(dh.T, x, out=back)

    return {"numpy": by_numpy, "torch": by_torch}


def main(rounds: int = 7) -> None:
    """Once with all threads by the clock, once with one thread in CPU seconds."""
    every, rows = torch.get_num_threads(), []
    print("training step as a multiple of its two matrix products (the faster BLAS)")
    print(f"{'dtype':8}{'B':>6}{'n':>4} {'memories':9}{'clock':>7}{'CPU, 1 thread':>15}{'items/s':>10}")
    for dtype in (torch.float32, torch.float64):
        for n in (2, 20):
            starts = {"initial": initial(dtype), "trained": trained(n, dtype)}
            for count in (1600, 8000):
                batch = items(count, dtype)
                for memories, theta in starts.items():
                    row = _measure(batch, theta, n, every, rounds)
                    rows.append(
                        {"dtype": str(dtype)[6:], "items": count, "n": n, "memories": memories, **row}
                    )
                    print(
                        f"{rows[-1]['dtype']:8}{count:6}{n:4} {memories:9}"
                        f"{row['ratio']:7.2f}{row['cpu_ratio']:15.2f}{row['items_a_second']:10.0f}",
                        flush=True,
                    )
    write("step", rows, neurons=N, memories=M, threads=every)


def _measure(batch, theta: Tensor, n: int, every: int, rounds: int) -> dict[str, object]:
    net, rule = network(n), optimiser()
    velocity = rule.start(theta)

    def step() -> None:
        rule.step(theta, net.gradient(theta, batch), velocity, 1, net.visible)

    found: dict[str, object] = {}
    for threads in {1, every}:
        torch.set_num_threads(threads)
        with threadpool_limits(threads, "blas"):
            times = race({**products(batch.probe, theta), "step": step}, rounds)
        torch.set_num_threads(every)
        key = "cpu_seconds" if threads == 1 else "seconds"
        faster = min(("numpy", "torch"), key=lambda name, key=key: times[name][key])
        if threads == 1:
            found |= {"cpu_ratio": times["step"]["cpu_ratio"] / times[faster]["cpu_ratio"], "cpu": times}
        if threads == every:
            found |= {"ratio": times["step"]["ratio"] / times[faster]["ratio"], "faster": faster}
            found |= {"items_a_second": batch.probe.shape[1] / times["step"]["seconds"], "clock": times}
    return found
