"""On a CUDA device: the parts of a training step in each precision, and items a second of the loop.

    PYTHONPATH=src python -m benchmarks gpu

needs torch, triton and numpy alone. Items are random: nothing is downloaded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from engramma.datasets import from_arrays
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for, reference
from engramma.methods import Vanilla
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas, generator
from engramma.streams import ClassStream
from engramma.train import train

CASES = ((40, 20, "mixed"), (40, 2, "mixed"), (10, 20, "mixed"), (10, 20, "float64"), (10, 20, "reference"))


def median_ms(act: Callable[[], object], repeats: int = 15) -> float:
    for _ in range(3):
        act()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        act()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def case(replicas: int, n: int, mode: str) -> dict[str, float]:
    draw = generator(0, "benchmark")
    data = from_arrays(draw.integers(0, 2, (10_000, 784), dtype="uint8"), draw.integers(0, 10, 10_000))
    kernel = reference if mode == "reference" else kernel_for("cuda", mixed=mode == "mixed")
    rows = Replicas(tuple(range(replicas)))
    place = {"device": "cuda", "dtype": torch.float64}
    stream = ClassStream(data, rows, tasks=1, kernel=kernel, **place)
    net = DenseMemory(stream.neurons, 10, LeakyRectifiedPolynomial(n), kernel=kernel)
    theta = rows.memories(512, stream.neurons, **place)
    batch, scaled = stream[0].train, net.scale * theta
    h, a = kernel.product(batch.probe, scaled), (net.scale * theta[..., net.visible :]).contiguous()
    share = batch.weight / (batch.weight.sum(1, keepdim=True) * 10)
    pulled = kernel.pull(h, a, batch.target, share, 1, net.interaction)
    grad, velocity = net.gradient(theta, batch), torch.zeros_like(theta)
    found = {
        "product": median_ms(lambda: kernel.product(batch.probe, scaled)),
        "pull": median_ms(lambda: kernel.pull(h, a, batch.target, share, 1, net.interaction)),
        "product_back": median_ms(lambda: kernel.product_back(pulled[0], batch.probe, net.neurons)),
        "gradient": median_ms(lambda: net.gradient(theta, batch)),
        "step": median_ms(lambda: kernel.step(theta, grad, velocity, 0.08, 0.6, net.visible, 1.0)),
    }
    if mode != "reference":
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in train(net, stream, Vanilla(), Optimiser(epochs=200, kernel=kernel), rows, theta):
            pass
        torch.cuda.synchronize()
        found["items_a_second"] = replicas * 8000 * 200 / (time.perf_counter() - begin)
    return found


def main() -> None:
    if not torch.cuda.is_available():
        print("gpu: no CUDA device here")
        return
    results = {}
    for replicas, n, mode in CASES:
        results[f"R={replicas} n={n} {mode}"] = found = case(replicas, n, mode)
        torch.cuda.empty_cache()
        parts = "  ".join(f"{k} {v:.3f} ms" for k, v in found.items() if k != "items_a_second")
        rate = f"  {found['items_a_second'] / 1e6:.1f} M items/s" if "items_a_second" in found else ""
        print(f"R={replicas} n={n} {mode}: {parts}{rate}", flush=True)
    slow, fast = results["R=10 n=20 reference"]["gradient"], results["R=10 n=20 mixed"]["gradient"]
    print(f"plain PyTorch in float64 takes {slow / fast:.0f} times as long as mixed")
    out = Path(__file__).parent / "results" / "gpu.json"
    out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "ms": results}, indent=1) + "\n")
