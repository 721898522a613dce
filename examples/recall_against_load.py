"""Recall against load: how many random patterns a network of N neurons holds, for n = 2, 3, 4, 5.

A probe is a stored pattern with one neuron in twenty turned over; it is recalled where the network
comes back to the pattern itself. Marked is the theory's capacity N^(n-1) / (2 (2n-3)!! ln N), and for
the classical network, which is n = 2, the load 0.14 N at which recall breaks down altogether: the
dashed curve counts a pattern as recalled with up to one neuron in twenty wrong.

    python examples/recall_against_load.py --output docs/figures/recall-against-load.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engramma.models.associative import AssociativeMemory, capacity
from engramma.models.hopfield import Hopfield

VERTICES = (2, 3, 4, 5)
COLOURS = {2: "#4477aa", 3: "#228833", 4: "#ccbb44", 5: "#aa3377"}


class Point(NamedTuple):
    patterns: int
    exact: float  # share of probes that came back to their pattern
    close: float  # the same, up to one neuron in twenty wrong


def recall(memory: AssociativeMemory | Hopfield, patterns: np.ndarray, probes: int, seed: int) -> Point:
    """Store the patterns (K,N), and recall the first `probes` of them from probes with N/20 flips."""
    rng = np.random.default_rng((seed, 1))
    memory.store(patterns)
    some = patterns[:probes]
    neurons = some.shape[1]
    start = some.copy()
    for row in start:
        row[rng.permutation(neurons)[: neurons // 20]] *= -1
    end = memory.recall(start, steps=8).state.cpu().numpy()
    wrong = (end != some).sum(1)
    return Point(len(patterns), float((wrong == 0).mean()), float((wrong <= neurons / 20).mean()))


def curve(vertex: int, neurons: int, loads: np.ndarray, probes: int, seeds: int) -> list[Point]:
    """One point a load (a multiple of the theory's capacity), averaged over seeds."""
    points = []
    for count in np.unique(np.rint(loads * capacity(neurons, vertex)).astype(int)):
        if count < 1:
            continue
        runs = []
        for seed in range(seeds):
            rng = np.random.default_rng((seed, 0))
            patterns = rng.choice(np.array([-1, 1], np.int8), (count, neurons))
            runs.append(recall(AssociativeMemory(vertex), patterns, probes, seed))
        points.append(Point(int(count), *(float(np.mean([r[i] for r in runs])) for i in (1, 2))))
    return points


def draw(curves: dict[int, list[Point]], neurons: int, output: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for n, points in curves.items():
        count = [p.patterns for p in points]
        axes.plot(count, [p.exact for p in points], "o-", ms=3.5, color=COLOURS[n], label=f"n = {n}")
        axes.axvline(capacity(neurons, n), color=COLOURS[n], lw=1, ls=":")
        axes.annotate(
            f"theory {capacity(neurons, n):,.0f}",
            (capacity(neurons, n), 1.02),
            xycoords=("data", "axes fraction"),
            ha="right" if n == 2 else "center",
            fontsize=8,
            color=COLOURS[n],
        )
    if 2 in curves:
        count = [p.patterns for p in curves[2]]
        classical = Hopfield.capacity(neurons)
        axes.plot(
            count,
            [p.close for p in curves[2]],
            "--",
            color=COLOURS[2],
            lw=1,
            label="n = 2, 5 % wrong allowed",
        )
        axes.axvline(classical, color="0.2", lw=1, ls="-.")
        axes.annotate(
            f" 0.14 N = {classical:.0f}",
            (classical, 1.02),
            xycoords=("data", "axes fraction"),
            ha="left",
            fontsize=8,
            color="0.2",
        )
    axes.set(
        xscale="log",
        xlabel=f"patterns stored in {neurons} neurons",
        ylabel="share of patterns recalled",
        ylim=(-0.03, 1.03),
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center", ncols=5)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=160)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/figures/recall-against-load.png"))
    parser.add_argument("--neurons", type=int, default=64)
    parser.add_argument("--probes", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    curves = {}
    for n in VERTICES:
        loads = np.geomspace(0.2, 5.0 if n < 5 else 3.0, 12)
        seeds = arguments.seeds * (10 if n == 2 else 1)  # few patterns fit: more networks of them
        curves[n] = curve(n, arguments.neurons, loads, arguments.probes, seeds)
        half = next((p.patterns for p in curves[n] if p.exact < 0.5), None)
        print(f"n = {n}: theory {capacity(arguments.neurons, n):,.0f}; fewer than half recalled from {half}")
    draw(curves, arguments.neurons, arguments.output)
    print(arguments.output)


if __name__ == "__main__":
    main()
