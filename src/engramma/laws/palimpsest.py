"""Weights that are bounded forget the oldest patterns and keep the latest, for ever (Parisi 1986).

Every pattern adds its xi_i xi_j to the weights, which are clipped at +-B, B = A sqrt(N). A weight is then a
random walk between two walls, and what a pattern has put into it is lost where the walk meets a wall: after
`age` further patterns the mean weight along the pattern is S(age), a function of age / B^2 alone for large B.
Against weights that are evenly spread over -B .. B the pattern has

    signal / noise = sqrt(N) S(age) / sqrt(B (B + 1) / 3 - S(age)^2)

and after one update a neuron is wrong with probability 1/2 erfc(signal / noise / sqrt(2)). The classical
network fails where this ratio is 1 / sqrt(0.138) = 2.69; with the same threshold here the patterns remembered
are most at A = 0.32, and these are 0.040 N: Parisi's number. With walls too near little is put in, with walls
too far everything is confused.
"""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.laws import classical
from engramma.laws.dynamics import settled
from engramma.laws.fits import line, parabola, tail
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns, summary
from engramma.replicas import Replicas
from engramma.show.figures import style

BOUNDS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8)
BEST = 0.3  # of these, nearest to where the law has its maximum
SHOWN = (0.15, 0.3, 0.6)  # whose recall against age is drawn
SIZES = {"demo": (128, 256, 512), "small": (256, 512, 1024), "paper": (512, 1024, 2048, 4096)}
REPLICAS = {"demo": 12, "small": 16, "paper": 32}
OLDEST = 0.15  # of N: the largest age looked at
STEPS = 60


def wall(neurons: int, bound: float) -> int:
    """B: weights are whole numbers."""
    return max(1, round(bound * sqrt(neurons)))


def forgotten(neurons: int, bound: float) -> int:
    """So many patterns after which nothing is left of what was there."""
    return int(3 * wall(neurons, bound) ** 2)


@cache
def signal(most: int, ages: int) -> np.ndarray:
    """S of ages 0 to `ages`, exactly: the mean of a walk on -B .. B whose first step was up."""
    levels = np.arange(-most, most + 1)
    chance = np.full(len(levels), 1 / len(levels))
    up, down = np.minimum(levels + 1, most) + most, np.maximum(levels - 1, -most) + most
    chance = np.bincount(up, chance, len(levels))
    found = [chance @ levels]
    for _ in range(ages):
        chance = np.bincount(up, chance / 2, len(levels)) + np.bincount(down, chance / 2, len(levels))
        found.append(chance @ levels)
    return np.array(found)


def ratio(neurons: int, bound: float) -> np.ndarray:
    """The law: signal over noise at ages 0 to OLDEST N."""
    most = wall(neurons, bound)
    own = signal(most, round(OLDEST * neurons))
    return sqrt(neurons) * own / np.sqrt(most * (most + 1) / 3 - own**2)


def span(neurons: int, bound: float) -> float:
    """The law: how many patterns are above the classical network's threshold, over N."""
    needed = 1 / sqrt(classical.theory()[0][-1])
    found = ratio(neurons, bound)
    below = int((found < needed).argmax())
    if not below:
        return 0.0
    share = (found[below - 1] - needed) / (found[below - 1] - found[below])
    return (below - 1 + share + 0.5) / neurons


def points(scale: str) -> list[Point]:
    return [
        {"neurons": neurons, "bound": bound, "replicas": REPLICAS[scale]}
        for neurons in SIZES[scale]
        for bound in BOUNDS
    ]


def measure(point: Point, where: Where) -> dict[str, Any]:
    """The latest patterns are recalled from themselves: for every age, the share of wrong neurons after one
    update, and of patterns that come back with an overlap of 0.9 or more."""
    neurons, ages = point["neurons"], round(OLDEST * point["neurons"]) + 1
    count = forgotten(neurons, point["bound"]) + ages
    wrong, close = [], []
    for seeds in batches(point, max(count * neurons, neurons**2)):
        patterns = bipolar(seeds, "palimpsest", (count, neurons), neurons).to(where.device).float()
        weights = stored(seeds, patterns, wall(neurons, point["bound"]))
        latest = patterns[:, -ages:].flip(1)
        once = (latest @ weights) * latest < 0
        end = settled(latest, weights, STEPS)
        wrong.append(once.float().mean(-1).cpu())
        close.append(((end * latest).mean(-1) >= classical.NEAR).float().cpu())
    recalled = torch.cat(close)
    return {
        "wrong": torch.cat(wrong).mean(0).tolist(),
        "recalled": recalled.mean(0).tolist(),
        **summary("span", recalled.sum(1) / neurons),
    }


def stored(seeds: Replicas, patterns: torch.Tensor, most: int) -> torch.Tensor:
    """(R,N,N): the weights after all patterns (R,K,N), one after the other, each time clipped at +-`most`."""
    weights = patterns.new_zeros(len(seeds), patterns.shape[2], patterns.shape[2])
    for xi in patterns.unbind(1):
        weights.baddbmm_(xi[:, :, None], xi[:, None, :]).clamp_(-most, most)
    weights.diagonal(dim1=1, dim2=2).zero_()
    return weights


def findings(rows: list[Row]) -> list[Finding]:
    some = [row for row in rows if row["bound"] == BEST]
    neurons, count, error = columns(some, "neurons", "span", "span_error")
    limit = line(neurons**-0.5, count, error)
    told = ", ".join(f"{each:.3f} at N = {size:.0f}" for each, size in zip(count, neurons, strict=True))
    what = f"patterns remembered over N, A = {BEST}, as N^(-1/2) to N = infinity"
    found = [Finding(what, span(40000, BEST), limit.intercept, float(np.sqrt(limit.covariance[1, 1])), told)]
    largest = [row for row in rows if row["neurons"] == max(neurons)]
    bound, count, error = columns(largest, "bound", "span", "span_error")
    near = np.abs(np.log(bound / BEST)) < 0.8
    top = parabola(np.log(bound[near]), count[near], error[near])
    peak = max(np.geomspace(0.2, 0.5, 301), key=lambda each: span(40000, float(each)))
    what = f"A at which most are remembered, N = {max(neurons):.0f}"
    return [*found, Finding(what, float(peak), float(np.exp(top[0])), float(np.exp(top[0]) * top[1]))]


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = style.panels(2, 2.6)
    largest = max(row["neurons"] for row in rows)
    age = np.arange(round(OLDEST * largest) + 1) / largest
    for k, bound in enumerate(SHOWN):
        (row,) = (r for r in rows if (r["neurons"], r["bound"]) == (largest, bound))
        colour = style.COLOURS[k]
        left.plot(age, [tail(z) for z in ratio(largest, bound)], color=colour, lw=1)
        left.plot(age, row["wrong"], ls="", marker=style.MARKERS[k], color=colour, markersize=2,
                  label=f"A = {bound:g}")  # fmt: skip
    left.plot([], [], color="0.25", label="law")
    left.set(yscale="log", ylim=(1e-4, 0.6), xlabel="age, patterns learned since over $N$",
             ylabel="share of neurons wrong after one update", title=f"$N={largest}$")  # fmt: skip
    left.legend(loc="lower right")
    sizes = sorted({row["neurons"] for row in rows})
    wide = np.geomspace(BOUNDS[0], BOUNDS[-1], 60)
    right.plot(wide, [span(40000, bound) for bound in wide], color="0.25", label="law, large $N$")
    for k, neurons in enumerate(sizes):
        some = [row for row in rows if row["neurons"] == neurons]
        look: dict[str, Any] = {
            "color": style.COLOURS[k],
            "marker": style.MARKERS[k],
            "lw": 0.6,
            "capsize": 2,
        }
        bound, most, error = columns(some, "bound", "span", "span_error")
        right.errorbar(bound, most, error, label=f"N = {neurons}", **look)
    right.axhline(0.04, color="0.6", lw=0.7, ls=":")
    right.text(0.79, 0.0405, "Parisi: 0.04", fontsize=6, color="0.4", ha="right")
    right.set(
        xlabel=r"bound $A$ of a weight, over $\sqrt{N}$",
        ylabel="patterns remembered, over $N$",
        ylim=(0, None),
    )
    right.legend(loc="upper right")
    return figure


LAW = Law("palimpsest", points, measure, findings, draw)
