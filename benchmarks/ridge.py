"""A baseline in closed form: memories that stay as they were drawn, and class weights by least squares.

    python -m benchmarks ridge [--device cuda] [--replicas 3] [--data-dir FOLDER]

Where class weights a are small a score is linear in them: o_c = sum over memories of f(h + 2 a_c) - f(h),
about 2 a_c f'(h). So they can be found at once, by ridge regression of the targets on the features f'(h). The
features' second moments, with each other and with the targets, are sums over items: task after task adds its
own, and what is found is that of all items together, in whatever order they came. Nothing is forgotten, and
M (M + 1) / 2 + M C numbers are kept, however many tasks there are. Every memory is divided by its length
here, so that a similarity is about normal with deviation 1 at any vertex.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from benchmarks.race import write
from engramma.experiment import read
from engramma.runs.setup import Built, build

RIDGE = 1e-6  # over the mean of the features' squares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--replicas", type=int, default=3, help="seeds from 100 on")
    parser.add_argument("--vertices", type=float, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--data-dir")
    told = parser.parse_args()
    rows = []
    for vertex in told.vertices:
        run = read({"vertex": vertex, "tasks": 5, "items": 10000, "dtype": "float32"})
        each = [
            build([run.but(seed=100 + r)], told.device, data_dir=told.data_dir) for r in range(told.replicas)
        ]
        found = torch.stack([accuracies(setup, vertex) for setup in each]).mean(1)
        spread = float(found.std()) if len(found) > 1 else 0.0
        rows.append({"n": vertex, "accuracy": found.tolist()})
        print(f"n {vertex:g}: {found.mean():.3f} ± {spread:.3f}", flush=True)
    write("ridge", rows, device=told.device, replicas=told.replicas)


def accuracies(setup: Built, vertex: float) -> Tensor:
    """(tasks,): on every task, once all have been seen."""
    stream, visible = setup.stream, setup.network.visible
    memories = setup.theta[0, :, :visible].double()
    memories = memories / memories.norm(dim=1, keepdim=True)

    def features(probe: Tensor) -> Tensor:
        return (probe[0, :, :visible].double() @ memories.T).clamp(min=0) ** (vertex - 1)

    inner = torch.zeros(len(memories), len(memories), dtype=torch.float64, device=memories.device)
    outer = torch.zeros(len(memories), stream.classes, dtype=torch.float64, device=memories.device)
    for index in range(len(stream)):
        items = stream[index].train
        x = features(items.probe)
        inner += x.T @ x
        outer += x.T @ items.target[0].double()
    inner.diagonal().add_(RIDGE * inner.diagonal().mean())
    weights, found = torch.linalg.solve(inner, outer), []
    for index in range(len(stream)):
        items = stream[index].test
        right = (features(items.probe) @ weights).argmax(1) == items.target[0].argmax(1)
        found.append(float(right.double().mean()))
    return torch.tensor(found)
