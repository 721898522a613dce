"""Against Algorithm 1 as it is written, and against the same network under plain autograd.

`tiled` makes a copy of every item for every class neuron clamped on, and one for it clamped off, and
multiplies all of them with the memories; `broadcast` knows that clamping shifts a similarity, but makes
the array of items by memories by classes. Both leave the gradient to autograd. float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.race import peak, race, write
from benchmarks.setting import C, M, N, initial, items, network, optimiser
from engramma.network import DenseMemory, Items


def tiled(net: DenseMemory, theta: Tensor, batch: Items) -> Tensor:
    """The gradient of Algorithm 1 for one replica: states are columns, x^n is `pow`."""
    memories = theta[0].T.clone().requires_grad_()  # (N,M)
    states, count = batch.probe[0].T, batch.probe.shape[1]
    on = torch.tile(states, (1, C))  # (N,C B): a copy of all items for every class neuron
    off = on.clone()
    for k in range(C):
        on[net.visible + k, k * count : (k + 1) * count] = 1
        off[net.visible + k, k * count : (k + 1) * count] = -1
    leak, n = net.interaction.leak, net.interaction.n  # type: ignore[attr-defined]

    def f(x: Tensor) -> Tensor:
        return torch.where(x > 0, x**n, leak * x)

    difference = f(net.scale * (memories.T @ on)) - f(net.scale * (memories.T @ off))
    rest = torch.tanh(difference.sum(0)).reshape(C, count)
    error = (batch.target[0].T - rest).pow(2 * net.exponent).mean()
    return torch.autograd.grad(error, memories)[0].T[None].contiguous()


def broadcast(net: DenseMemory, theta: Tensor, batch: Items) -> Tensor:
    """One product; the clamped similarities as one (B,M,C) array."""
    theta = theta[0].detach().requires_grad_()
    f, scale = net.interaction.value, net.scale
    h, a = scale * batch.probe[0] @ theta.T, scale * theta[:, net.visible :]
    o = (f(h[..., None] + 2 * a) - f(h)[..., None]).sum(1)
    error = (batch.target[0] - torch.tanh(o)).pow(2 * net.exponent).mean()
    return torch.autograd.grad(error, theta)[0][None]


WAYS = {"engramma": DenseMemory.gradient, "broadcast": broadcast, "tiled": tiled}

MEMORY = """
import sys, torch
from benchmarks.transcription import WAYS
from benchmarks.setting import initial, items, network, optimiser
def start():
    torch.set_num_threads(1)
    net, rule, theta = network(2), optimiser(), initial(torch.float64)
    few = items(300, torch.float64)
    rule.step(theta, WAYS[sys.argv[1]](net, theta, few), rule.start(theta), 1, net.visible)
    return net, rule, theta, rule.start(theta), items(int(sys.argv[2]), torch.float64)
def run(given):
    net, rule, theta, velocity, batch = given
    rule.step(theta, WAYS[sys.argv[1]](net, theta, batch), velocity, 1, net.visible)
"""


def given(count: int) -> int:
    """Bytes that are there before a step: items, memories, velocity."""
    return 8 * (count * N + 2 * M * N)


def must_hold(count: int) -> int:
    """Bytes a step cannot do without: those, similarities, gradient, new memories and velocity."""
    return given(count) + 8 * (count * M + 3 * M * N)


def main(rounds: int = 3, count: int = 1600) -> None:
    rows = []
    batch, theta = items(count, torch.float64), initial(torch.float64)
    for n in (2, 20):
        net, rule = network(n), optimiser()
        velocity = rule.start(theta)
        expected = net.gradient(theta, batch)
        for name in ("broadcast", "tiled"):
            torch.testing.assert_close(WAYS[name](net, theta, batch), expected, rtol=1e-6, atol=1e-12)

        def step(name: str, net: DenseMemory = net, rule=rule, velocity: Tensor = velocity) -> None:
            rule.step(theta, WAYS[name](net, theta, batch), velocity, 1, net.visible)

        times = race({name: lambda name=name: step(name) for name in WAYS}, rounds)
        for name, time in times.items():
            rows.append({"n": n, "way": name, "items": count, **time})
            print(f"n={n:<3} B={count} {name:10} {time['ratio']:6.1f} x the time", end="")
            print(f", {time['cpu_ratio']:6.1f} x the CPU time", flush=True)
    for size, names in ((count, WAYS), (8000, ("engramma",))):
        for name in names:
            added = peak(MEMORY, name, str(size))
            whole = (added + given(size)) / must_hold(size)
            rows.append({"way": name, "items": size, "bytes": added, "of_what_it_must_hold": whole})
            print(
                f"B={size} {name:10} {added / 2**20:7.0f} MiB added, {whole:5.2f} x what a step must hold",
                flush=True,
            )
    write("transcription", rows)
