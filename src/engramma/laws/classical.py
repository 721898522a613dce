"""The classical network breaks down at K = 0.138 N (Amit, Gutfreund and Sompolinsky 1985, 1987).

Without noise, in the limit of large N and with loads alpha = K / N, the overlap m of the state near a pattern
solves (replica-symmetric mean field)

    m = erf(y),    sqrt(2 alpha) = erf(y) / y - 2 / sqrt(pi) exp(-y^2)

so alpha(y) has a largest value, 0.138 at m = 0.967, above which there is no such state: the overlap jumps.
Small networks smear the jump: below it the share of patterns that are recalled rises with N, above it falls.
"""

from __future__ import annotations

from itertools import pairwise
from math import pi, sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.interactions import Polynomial
from engramma.laws.dynamics import recall
from engramma.laws.fits import Line, line, mean, quantile
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns, summary
from engramma.show.figures import style

NEAR = 0.9  # overlap with its pattern from which a state is taken for it
LOADS = (0.06, 0.08, 0.10, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 0.20)
SIZES = {
    "demo": (128, 256, 512, 1024),
    "small": (256, 512, 1024, 2048, 4096),
    "paper": (512, 1024, 2048, 4096, 8192, 16384),
}
REPLICAS = {"demo": 32, "small": 48, "paper": 96}
PROBES, STEPS = 16, 100


def theory() -> tuple[np.ndarray, np.ndarray]:
    """Loads and overlaps of the state near a pattern, from nothing stored up to the largest load."""
    y = np.linspace(5, 0.05, 20000)
    m = torch.erf(torch.as_tensor(y)).numpy()
    root = m / y - 2 / sqrt(pi) * np.exp(-y * y)
    last = root.argmax() + 1
    return root[:last] ** 2 / 2, m[:last]


def points(scale: str) -> list[Point]:
    return [
        {"neurons": neurons, "patterns": round(load * neurons), "replicas": REPLICAS[scale]}
        for neurons in SIZES[scale]
        for load in LOADS
    ]


def measure(point: Point, where: Where) -> dict[str, Any]:
    """From a stored pattern all neurons are updated until nothing changes: the overlap that is left."""
    neurons, count = point["neurons"], point["patterns"]
    overlaps, close = [], []
    for seeds in batches(point, count * neurons):
        # Whole numbers below 2^24 are exact in float32.
        patterns = bipolar(seeds, "classical", (count, neurons), count).to(where.device).float()
        probes = patterns[:, :PROBES]
        m = (recall(patterns, probes, Polynomial(2).value, STEPS) * probes).mean(-1)
        overlaps.append(m.mean(1).cpu())
        close.append((m >= NEAR).float().mean(1).cpu())
    return summary("overlap", np.concatenate(overlaps)) | summary("recalled", np.concatenate(close))


def rising(rows: list[Row], neurons: int) -> Line:
    """The share recalled over the load at one N, as a normal distribution has it: a straight line of its
    quantiles, where the share is neither all nor nothing."""
    some = [row for row in rows if row["neurons"] == neurons and 0.15 < row["recalled"] < 0.98]
    count, share, error = columns(some, "patterns", "recalled", "recalled_error")
    z = np.array([quantile(each) for each in share])
    return line(count / neurons, z, np.maximum(error, 1e-3) * sqrt(2 * pi) * np.exp(z * z / 2))


def findings(rows: list[Row]) -> list[Finding]:
    load, _ = theory()
    sizes = sorted({row["neurons"] for row in rows})
    lines = {neurons: rising(rows, neurons) for neurons in sizes}
    met = []
    for one, other in pairwise(sizes):
        few, many = lines[one], lines[other]
        steep = many.slope - few.slope
        at = (few.intercept - many.intercept) / steep
        error = sqrt(sum(np.array([at, 1]) @ each.covariance @ np.array([at, 1]) for each in (few, many)))
        met.append((at, error / abs(steep)))
    centre, error = mean(*(np.array(part) for part in zip(*met, strict=True)))
    found = [Finding("load at which the curves of N and 2 N cross", float(load[-1]), centre, error)]
    half = [lines[neurons].crossing(0) for neurons in sizes]
    at, error = (np.array(part) for part in zip(*half, strict=True))
    limit = line(np.array(sizes) ** -0.5, at, error)
    told = ", ".join(f"{each:.3f} at N = {neurons}" for each, neurons in zip(at, sizes, strict=True))
    found.append(Finding("load at which half are recalled, as N^(-1/2) to N = infinity", float(load[-1]),
                         limit.intercept, float(np.sqrt(limit.covariance[1, 1])), told))  # fmt: skip
    return found


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = style.panels(2, 2.6)
    load, m = theory()
    sizes = sorted({row["neurons"] for row in rows})
    for k, neurons in enumerate(sizes):
        some = [row for row in rows if row["neurons"] == neurons]
        look: dict[str, Any] = {"color": style.COLOURS[k], "marker": style.MARKERS[k], "lw": 0.7}
        x = [row["patterns"] / neurons for row in some]
        for axes, what in ((left, "overlap"), (right, "recalled")):
            axes.errorbar(x, [row[what] for row in some], [row[f"{what}_error"] for row in some],
                          label=f"N = {neurons}", capsize=2, **look)  # fmt: skip
    left.plot([*load, load[-1]], [*m, 0.3], color="0.25", label="law", zorder=5)
    right.axvline(load[-1], color="0.25", label="law", zorder=5)
    left.set(xlabel="load $K/N$", ylabel="overlap with the pattern", xlim=(0.055, 0.205))
    right.set(xlabel="load $K/N$", ylabel="share of patterns recalled", xlim=(0.055, 0.205))
    right.legend(loc="lower left")
    return figure


LAW = Law("classical", points, measure, findings, draw)
