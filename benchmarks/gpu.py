"""On a CUDA device: the parts of a training step in each precision, and items a second of the loop.

    PYTHONPATH=src python -m benchmarks gpu

needs torch, triton and numpy alone. Items are random: nothing is downloaded. Without a device and with
TRITON_INTERPRET=1 it is rehearsed on the CPU with a few items; those figures mean nothing and are not kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import torch

from benchmarks.race import write
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import reference
from engramma.kernels.reference import Aim, Descent
from engramma.methods import Vanilla
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas, generator
from engramma.streams import ClassStream
from engramma.streams.datasets import from_arrays
from engramma.train import train

CASES = ((40, 20, "mixed"), (40, 2, "mixed"), (10, 20, "mixed"), (10, 20, "float64"), (10, 20, "reference"))


class Size(NamedTuple):
    device: str
    items: int
    memories: int
    epochs: int
    repeats: int
    most: int  # replicas


FULL = Size("cuda", 10_000, 512, 200, 15, 1000)
REHEARSAL = Size("cpu", 50, 8, 2, 1, 2)


def wait(size: Size) -> None:
    if size.device == "cuda":
        torch.cuda.synchronize()


def median_ms(act: Callable[[], object], size: Size) -> float:
    for _ in range(3):
        act()
    times = []
    for _ in range(size.repeats):
        wait(size)
        begin = time.perf_counter()
        act()
        wait(size)
        times.append(1e3 * (time.perf_counter() - begin))
    return sorted(times)[len(times) // 2]


def kernel_of(mode: str) -> ModuleType:
    """Triton's modules by name: in a rehearsal they run on the CPU, where they would not be chosen."""
    if mode == "reference":
        return reference
    from engramma.kernels.triton import gpu as triton_gpu
    from engramma.kernels.triton import mixed as triton_mixed

    return triton_mixed if mode == "mixed" else triton_gpu


def case(replicas: int, n: int, mode: str, size: Size) -> dict[str, float]:
    draw = generator(0, "benchmark")
    shape = size.items, 784
    data = from_arrays(draw.integers(0, 2, shape, dtype="uint8"), draw.integers(0, 10, size.items))
    kernel, rows = kernel_of(mode), Replicas(tuple(range(replicas)))
    place = {"device": size.device, "dtype": torch.float64}
    stream = ClassStream(data, rows, tasks=1, kernel=kernel, items=size.items, **place)
    net = DenseMemory(stream.neurons, 10, LeakyRectifiedPolynomial(n), kernel=kernel)
    theta = rows.memories(size.memories, stream.neurons, **place)
    batch, scaled = stream[0].train, net.scale * theta
    h, a = kernel.product(batch.probe, scaled), (net.scale * theta[..., net.visible :]).contiguous()
    share = batch.weight / (batch.weight.sum(1, keepdim=True) * 10)
    aim, rule = Aim(batch.target, share, net.loss_of, net.interaction), Descent(0.08, 0.6, net.visible, 1.0)
    pulled = kernel.pull(h, a, aim)
    grad, velocity = net.gradient(theta, batch), torch.zeros_like(theta)
    parts: dict[str, Callable[[], object]] = {
        "product": lambda: kernel.product(batch.probe, scaled),
        "pull": lambda: kernel.pull(h, a, aim),
        "product_back": lambda: kernel.product_back(pulled[0], batch.probe, net.neurons),
        "gradient": lambda: net.gradient(theta, batch),
        "step": lambda: kernel.step(theta, grad, velocity, rule),
    }
    if mode == "mixed":  # the products of both parts and nothing else
        both = kernel._split_up(theta, net.scale, slice(net.visible, net.neurons), batch.probe.shape[-1])[0]
        parts["product"] = lambda: kernel._product(batch.probe, both)
        parts["product_back"] = lambda: kernel._product_back(pulled[0], batch.probe)
    found = {name: median_ms(part, size) for name, part in parts.items()}
    products = found["product"] + found["product_back"]
    found["gradient_over_products"] = found["gradient"] / products
    found["gradient_and_step_over_products"] = (found["gradient"] + found["step"]) / products
    if mode != "reference":
        optimiser = Optimiser(epochs=size.epochs)
        wait(size)
        begin = time.perf_counter()
        for _ in train(net, stream, Vanilla(), optimiser, rows, theta):
            pass
        wait(size)
        items = replicas * batch.probe.shape[1] * size.epochs
        found["items_a_second"] = items / (time.perf_counter() - begin)
    return found


def main() -> None:
    rehearsal = not torch.cuda.is_available()
    if rehearsal and os.environ.get("TRITON_INTERPRET") != "1":
        print("gpu: no CUDA device here")
        return
    size, rows, gradient = REHEARSAL if rehearsal else FULL, [], {}
    for most, n, mode in CASES:
        replicas = min(most, size.most)
        found = case(replicas, n, mode, size)
        rows.append({"replicas": replicas, "n": n, "mode": mode, **found})
        gradient[mode] = found["gradient"]  # the last of a mode is that of ten replicas at n = 20
        if not rehearsal:
            torch.cuda.empty_cache()
        parts = "  ".join(
            f"{k} {found[k]:.3f} ms" for k in ("product", "pull", "product_back", "gradient", "step")
        )
        rate = f"  {found['items_a_second'] / 1e6:.1f} M items/s" if "items_a_second" in found else ""
        over = f"  {found['gradient_over_products']:.2f} x its products"
        print(f"R={replicas} n={n} {mode}: {parts}{over}{rate}", flush=True)
    slower = gradient["reference"] / gradient["mixed"]
    print(f"plain PyTorch in float64 takes {slower:.0f} times as long as mixed")
    if not rehearsal:
        write("gpu", rows, device=torch.cuda.get_device_name(), unit="milliseconds", items="random")
