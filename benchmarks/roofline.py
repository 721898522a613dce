"""What the processor could do, and how near each pass of a training step comes. One thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import matplotlib
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.race import FIGURES, write
from benchmarks.setting import C, M, N, initial, items, network
from engramma.kernels.reference import Aim, Descent

B = 1600


def seconds(run: Callable[[], object], rounds: int = 7) -> float:
    """The best of some rounds, in CPU seconds."""
    best = float("inf")
    for _ in range(rounds + 1):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def chain(n: int) -> int:
    """Multiplications that make x^n."""
    return max(0, n.bit_length() - 1 + n.bit_count() - 1)


def ceilings(dtype: torch.dtype) -> tuple[float, float]:
    """Operations a second of a large square product, bytes a second of a large copy."""
    x = torch.randn(2048, 2048, dtype=dtype).numpy()
    out = np.empty_like(x)
    peak = 2 * 2048**3 / seconds(lambda: np.dot(x, x, out=out), 3)
    long = np.ones(2**26 // x.itemsize * 2, x.dtype)
    copy = np.empty_like(long)
    return peak, 2 * long.nbytes / seconds(lambda: np.copyto(copy, long), 3)


def passes(dtype: torch.dtype) -> list[dict[str, object]]:
    """Operations and bytes to and from memory of every pass, counted by hand, and the time it took."""
    batch, theta, w = items(B, dtype), initial(dtype), torch.finfo(dtype).bits // 8
    share = batch.weight / (B * C)
    out = []

    def add(name: str, operations: float, moved: float, run: Callable[[], object]) -> None:
        out.append({"pass": name, "operations": operations, "bytes": moved, "seconds": seconds(run)})

    net = network(2)
    h = net.similarity(theta, batch.probe)
    kernel = net.kernel
    add("product", 2.0 * B * M * N, w * (B * N + M * N + B * M), lambda: kernel.product(batch.probe, theta))
    add(
        "product back",
        2.0 * B * M * N,
        w * (B * N + M * N + B * M),
        lambda: kernel.product_back(h, batch.probe, N),
    )
    for n in (2, 20):
        a, aim = theta[..., -C:].contiguous(), Aim(batch.target, share, net.loss_of, network(n).interaction)
        # scores: shift (2), power, sum (1); slopes: shift (2), power, difference, two products, two sums (5)
        evaluations = B * M * (C + 1)
        work = evaluations * (3 + chain(n) + 7 + chain(n - 1))
        add(
            f"pull, n = {n}",
            work,
            2 * w * B * M,
            lambda a=a, aim=aim: kernel.pull(h, a, aim),
        )
    velocity = torch.zeros_like(theta)
    rule = Descent(0.1, 0.6, N - C, 1.0)
    move = lambda: kernel.step(theta, theta, velocity, rule)  # noqa: E731
    add("optimiser's step", 8.0 * M * N, 5 * w * M * N, move)
    return out


def main() -> None:
    every, rows = torch.get_num_threads(), []
    torch.set_num_threads(1)
    with threadpool_limits(1, "blas"):
        for dtype in (torch.float32, torch.float64):
            peak, bandwidth = ceilings(dtype)
            print(f"{str(dtype)[6:]}: {peak / 1e9:.0f} Gflop/s, {bandwidth / 1e9:.1f} GB/s a thread")
            for one in passes(dtype):
                rate, intensity = one["operations"] / one["seconds"], one["operations"] / one["bytes"]  # type: ignore[operator]
                roof = min(peak, intensity * bandwidth)
                one |= {"dtype": str(dtype)[6:], "peak": peak, "bandwidth": bandwidth, "rate": rate}
                rows.append({**one, "intensity": intensity, "of_roof": rate / roof})
                print(
                    f"  {one['pass']:18} {rate / 1e9:6.1f} Gflop/s, {rate / roof:4.0%} of its roof",
                    flush=True,
                )
    torch.set_num_threads(every)
    write("roofline", rows, threads=1)
    _draw(rows)


def _draw(rows: list[dict]) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    for axes, dtype in zip(both, ("float32", "float64"), strict=True):
        mine = [row for row in rows if row["dtype"] == dtype]
        peak, bandwidth = mine[0]["peak"], mine[0]["bandwidth"]
        xs = np.logspace(-1.5, 3, 200)
        axes.loglog(xs, np.minimum(peak, xs * bandwidth) / 1e9, "k-", lw=1)
        for row in mine:
            axes.loglog(row["intensity"], row["rate"] / 1e9, "o", label=row["pass"])
        axes.set(title=f"{dtype}, one thread", xlabel="operations a byte")
        axes.spines[["top", "right"]].set_visible(False)
    both[0].set_ylabel("Gflop/s")
    both[0].legend(frameon=False, fontsize=8, loc="lower right")
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / "roofline-cpu.png", dpi=150)
    plt.close(figure)
