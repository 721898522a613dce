"""A full training step (gradient and optimiser) against its two matrix products alone."""

from __future__ import annotations

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.race import write
from benchmarks.setting import M, N, initial, items, trained
from engramma.kernels import kernel_for
from engramma.network import Items
from engramma.runs.bench import against_products, contestants, race


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


def _measure(batch: Items, theta: Tensor, n: int, every: int, rounds: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for threads in {1, every}:
        torch.set_num_threads(threads)
        with threadpool_limits(threads, "blas"):
            times = race(contestants(batch, theta, n, kernel_for("cpu")), rounds)
        torch.set_num_threads(every)
        if threads == 1:
            found |= {"cpu_ratio": against_products(times, "cpu_"), "cpu": times}
        if threads == every:
            found |= {"ratio": against_products(times), "clock": times}
            found["items_a_second"] = batch.probe.shape[1] / times["step"]["seconds"]
    return found
