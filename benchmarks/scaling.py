"""How the cost grows, over two decades: a slope of 1 on doubly logarithmic axes is linear."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import matplotlib
import torch

from benchmarks.race import FIGURES, write
from benchmarks.setting import initial, items, network, optimiser, task
from engramma.methods import GEM, L2, SI, Method, Vanilla
from engramma.replicas import Replicas
from engramma.train import train

N = 199
SIZES = (1, 3, 10, 30, 100)


def cost(
    replicas: int = 1,
    memories: int = 64,
    count: int = 400,
    epochs: int = 3,
    tasks: int = 1,
    method: Method | None = None,
) -> float:
    """CPU seconds of an epoch of the last of `tasks` tasks (of all epochs, where there is one task)."""
    dtype, who = torch.float32, Replicas(tuple([0] * replicas))
    stream = [task(i, items(count, dtype, neurons=N, seed=i)) for i in range(tasks)]
    theta, rule = initial(dtype, replicas, memories, N), optimiser()
    started = time.process_time()
    for moment in train(
        network(2, neurons=N), stream, method or Vanilla(), replace(rule, epochs=epochs), who, theta
    ):  # type: ignore[arg-type]
        if moment.ends_task and moment.task == tasks - 2:
            started = time.process_time()
    return (time.process_time() - started) / (1 if tasks == 1 else epochs)


# what grows, its smallest size, how one run of that size is made
AXES: dict[str, tuple[int, Callable[[int], float]]] = {
    "items": (800, lambda size: cost(count=size, memories=128)),
    "memories": (64, lambda size: cost(memories=size, count=1000)),
    "replicas": (1, lambda size: cost(replicas=size, count=1600, memories=128)),
    "epochs": (3, lambda size: cost(epochs=size, count=800)),
}
PAST = (1, 2, 5, 10, 19)
METHODS = {"vanilla": Vanilla(), "l2": L2(), "si": SI(), "gem": GEM(proportion=0.05)}


def slope(xs: list[float], ys: list[float]) -> float:
    a, b = [math.log(x) for x in xs], [math.log(y) for y in ys]
    x, y = sum(a) / len(a), sum(b) / len(b)
    return sum((p - x) * (q - y) for p, q in zip(a, b, strict=True)) / sum((p - x) ** 2 for p in a)


def main(rounds: int = 3) -> None:
    every = torch.get_num_threads()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    cost()  # compiles
    for axis, (least, run) in AXES.items():
        xs = [float(least * size) for size in SIZES]
        ys = [min(run(int(x)) for _ in range(rounds if x < xs[-1] else 1)) for x in xs]
        rows.append({"axis": axis, "size": xs, "cpu_seconds": ys, "slope": slope(xs, ys)})
        print(f"{axis:10} {xs[0]:6.0f} to {xs[-1]:6.0f}: slope {rows[-1]['slope']:.2f}", flush=True)
    for name, method in METHODS.items():
        taken = [
            min(cost(tasks=t + 1, method=method, count=1000, epochs=4) for _ in range(rounds)) for t in PAST
        ]
        rows.append({"axis": f"past tasks, {name}", "size": list(PAST), "cpu_seconds": taken})
        rows[-1]["slope"] = slope([float(t) for t in PAST], taken)
        print(f"past tasks 1 to 19, {name:8}: slope {rows[-1]['slope']:.2f}", flush=True)
    torch.set_num_threads(every)
    write("scaling", rows, threads=1, neurons=N)
    _draw(rows)


def _draw(rows: list[dict]) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for row in rows:
        past = str(row["axis"]).startswith("past")
        first = row["size"][0], row["cpu_seconds"][0]
        label = f"{str(row['axis']).removeprefix('past tasks, ')} (slope {row['slope']:.2f})"
        axes = right if past else left
        xs = row["size"] if past else [x / first[0] for x in row["size"]]
        axes.loglog(xs, [y / first[1] for y in row["cpu_seconds"]], "o-", ms=4, label=label)
    left.loglog([1, 100], [1, 100], "k:", lw=1, label="linear")
    left.set(xlabel="size, as a multiple of the smallest", ylabel="time, as a multiple of the smallest's")
    right.set(xlabel="past tasks", ylabel="time of an epoch, as a multiple of the first", ylim=(0.5, 20))
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / "scaling-cpu.png", dpi=150)
    plt.close(figure)
