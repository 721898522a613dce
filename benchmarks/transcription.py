"""Against Algorithm 1 as it is written, and against the same network under plain autograd. float64.

`tiled` does what the paper's algorithm says and its authors' package does: it makes a copy of every item for
every scored neuron clamped on, and one for it clamped off, and multiplies all of them with the memories.
`broadcast` knows that clamping shifts a similarity, but makes the array of items by memories by classes.
Both leave the gradient to autograd and the optimiser's step to plain PyTorch.

Scored are the class neurons, as that package is told to for MNIST; or every neuron, as the algorithm is
printed, in batches of neurons so that the copies fit into memory.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.race import peak, race, write
from benchmarks.setting import M, N, initial, items, network, optimiser
from engramma.kernels import reference
from engramma.network import DenseMemory, Items

AT_ONCE = 100  # neurons whose copies are there at once


def tiled(net: DenseMemory, theta: Tensor, batch: Items) -> Tensor:
    """The gradient of Algorithm 1 for one replica: states are columns, x^n is `pow`."""
    memories = theta[0].T.clone().requires_grad_()  # (N,M)
    states, target, count = batch.probe[0].T, batch.target[0].T, batch.probe.shape[1]
    scored = range(net.first_scored, net.neurons)
    leak, n = net.interaction.leak, net.interaction.n  # type: ignore[attr-defined]

    def f(x: Tensor) -> Tensor:
        return torch.where(x > 0, x**n, leak * x)

    error = torch.zeros((), dtype=theta.dtype)
    for first in range(0, len(scored), AT_ONCE):
        some = scored[first : first + AT_ONCE]
        on = torch.tile(states, (1, len(some)))  # (N,K B): a copy of all items for every neuron
        off = on.clone()
        for k, neuron in enumerate(some):
            on[neuron, k * count : (k + 1) * count] = 1
            off[neuron, k * count : (k + 1) * count] = -1
        difference = f(net.scale * (memories.T @ on)) - f(net.scale * (memories.T @ off))
        y = torch.tanh(difference.sum(0)).reshape(len(some), count)
        error = error + (target[first : first + AT_ONCE] - y).pow(2).sum()
    error = error / (count * len(scored))
    return torch.autograd.grad(error, memories)[0].T[None].contiguous()


def broadcast(net: DenseMemory, theta: Tensor, batch: Items) -> Tensor:
    """One product; the clamped similarities as one (B,M,C) array."""
    theta = theta[0].detach().requires_grad_()
    f, scale = net.interaction.value, net.scale
    h, a = scale * batch.probe[0] @ theta.T, scale * theta[:, net.visible :]
    o = (f(h[..., None] + 2 * a) - f(h)[..., None]).sum(1)
    error = net.loss_of.value(o, batch.target[0]).mean()
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
    rule.step(theta, WAYS[sys.argv[1]](net, theta, few), rule.start(theta), 1, net)
    return net, rule, theta, rule.start(theta), items(int(sys.argv[2]), torch.float64)
def run(given):
    net, rule, theta, velocity, batch = given
    rule.step(theta, WAYS[sys.argv[1]](net, theta, batch), velocity, 1, net)
"""


def given(count: int) -> int:
    """Bytes that are there before a step: items, memories, velocity."""
    return 8 * (count * N + 2 * M * N)


def must_hold(count: int) -> int:
    """Bytes a step cannot do without: those, similarities, gradient, new memories and velocity."""
    return given(count) + 8 * (count * M + 3 * M * N)


def contest(net: DenseMemory, batch: Items, ways: tuple[str, ...], rounds: int) -> list[dict[str, object]]:
    """Whole steps, one against the other, after a look at whether they find the same gradient."""
    theta, rule = initial(torch.float64), optimiser()
    nets = {name: net if name == "engramma" else replace(net, kernel=reference) for name in ways}
    velocity, expected = torch.zeros_like(theta), net.gradient(theta, batch)
    for name in ways[1:]:
        torch.testing.assert_close(WAYS[name](net, theta, batch), expected, rtol=1e-6, atol=1e-12)

    def step(name: str) -> None:
        rule.step(theta, WAYS[name](nets[name], theta, batch), velocity, 1, nets[name])

    times = race({name: lambda name=name: step(name) for name in ways}, rounds)
    rows, scored, count = [], "every neuron" if net.autoassociative else "classes", batch.probe.shape[1]
    for name, time in times.items():
        rows.append({"n": net.interaction.n, "way": name, "items": count, "scored": scored, **time})
        print(
            f"n={net.interaction.n:<3} B={count} {scored:12} {name:10} {time['ratio']:6.1f} x the time",
            end="",
        )
        print(f", {time['cpu_ratio']:6.1f} x the CPU time", flush=True)
    return rows


def main(rounds: int = 3, count: int = 1600, few: int = 100) -> None:
    rows = []
    batch, states = items(count, torch.float64), items(few, torch.float64)
    states = states._replace(target=states.probe)
    for n in (2, 20):
        rows += contest(network(n), batch, tuple(WAYS), rounds)
    for n in (2, 20):
        rows += contest(replace(network(n), autoassociative=True), states, ("engramma", "tiled"), rounds - 1)
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
