"""The exponential interaction holds 2^(N/2) patterns (Demircigil et al. 2017).

With F = exp, all K stored patterns of N neurons are fixed points at once with a probability that goes to 1
where K = exp(a N) and a < ln(2) / 2. What ends it is a coincidence: two patterns that differ in a single
neuron have almost the same energy, and one of them falls into the other. K patterns make K^2 / 2 pairs, each
of which is such a pair with probability N / 2^N, so

    P(all are fixed points) = exp(-K^2 N / 2^(N+1)),    half at K = sqrt(2 ln(2) / N) 2^(N/2)

which is the theorem's 2^(N/2) and the factor before it.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.interactions import Exponential
from engramma.laws.dynamics import scores
from engramma.laws.fits import line, mean
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns
from engramma.show.figures import style

LOADS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of the patterns at which half of the networks are expected to hold all
SIZES = {"demo": range(10, 21, 2), "small": range(10, 27, 2), "paper": range(10, 35, 2)}
REPLICAS = {"demo": 96, "small": 128, "paper": 256}


def half(neurons: float) -> float:
    """The law: patterns at which half of all networks hold every one of them."""
    return sqrt(2 * log(2) / neurons) * 2 ** (neurons / 2)


def points(scale: str) -> list[Point]:
    return [
        {"neurons": neurons, "patterns": round(load * half(neurons)), "replicas": REPLICAS[scale]}
        for neurons in SIZES[scale]
        for load in LOADS
    ]


def measure(point: Point, where: Where) -> dict[str, Any]:
    """Every pattern is updated once: the share of networks in which all stay, and of patterns that do."""
    neurons, count = point["neurons"], point["patterns"]

    def value(h: torch.Tensor) -> torch.Tensor:
        return Exponential(neurons).value(h / neurons)  # exp(h - N)

    whole, stay = [], []
    for seeds in batches(point, count * neurons):
        patterns = bipolar(seeds, "exponential", (count, neurons), count).to(where.device).double()
        kept = []
        for probes in patterns.split(256, dim=1):
            kept.append((scores(patterns, probes, value) * probes >= 0).all(-1))
        stable = torch.cat(kept, 1)
        whole.append(stable.all(1).double().cpu())
        stay.append(stable.double().mean(1).cpu())
    held, one = torch.cat(whole), torch.cat(stay)
    return {"held": int(held.sum()), "stable": float(one.mean())}


def fitted(rows: list[Row]) -> tuple[float, float]:
    """The number of patterns at which half of the networks hold all, and its standard error: the likeliest
    of P = 2^-(K / half)^2, from how many of the networks held all at each K."""
    count, held, of = columns(rows, "patterns", "held", "replicas")

    def unlikely(scale: np.ndarray) -> np.ndarray:
        power = log(2) * (count / scale[:, None]) ** 2
        return (held * power - (of - held) * np.log(-np.expm1(-power))).sum(1)

    near = half(int(rows[0]["neurons"]))
    tried = near * np.geomspace(0.25, 4, 40001)
    told = unlikely(tried)
    best = int(told.argmin())
    inside = tried[told <= told[best] + 0.5]  # one standard error to each side
    return float(tried[best]), float(inside[-1] - inside[0]) / 2


def halves(rows: list[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """N, the number of patterns that half of the networks hold, and its standard error."""
    sizes = sorted({row["neurons"] for row in rows})
    found = [fitted([row for row in rows if row["neurons"] == neurons]) for neurons in sizes]
    counts, errors = np.array(found).T
    return np.array(sizes), counts, errors


def findings(rows: list[Row]) -> list[Finding]:
    neurons, count, error = halves(rows)
    raw = line(neurons, np.log2(count), error / count / log(2))
    even = line(neurons, np.log2(count * np.sqrt(neurons)), error / count / log(2))
    remark = f"{raw.slope:.3f} ± {raw.error:.3f} of K alone, whose factor 1/sqrt(N) bends it"
    factor = np.sqrt(neurons) / 2 ** (neurons / 2)
    return [
        Finding("log2 of K sqrt(N) over N", 0.5, even.slope, even.error, remark),
        Finding("K sqrt(N) / 2^(N/2)", sqrt(2 * log(2)), *mean(count * factor, error * factor)),
    ]


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = style.panels(2, 2.6)
    x = np.linspace(0.35, 2.3, 100)
    left.plot(x, 2 ** -(x**2), color="0.25", label="law", zorder=5)
    neurons, count, error = halves(rows)
    for k, size in enumerate(neurons):
        some = [row for row in rows if row["neurons"] == size]
        share = np.array([row["held"] / row["replicas"] for row in some])
        off = np.sqrt(share * (1 - share) / np.array([row["replicas"] for row in some]))
        left.errorbar(
            [row["patterns"] / half(int(size)) for row in some], share, off, ls="", capsize=2,
            marker=style.MARKERS[k % 8], color=style.COLOURS[k % 8], label=f"N = {size}",
        )  # fmt: skip
    left.set(xlabel=r"$K\,/\,(\sqrt{2\ln 2/N}\;2^{N/2})$", ylabel="share of networks that hold all patterns")
    left.legend(loc="upper right")
    wide = np.linspace(neurons[0] - 1, neurons[-1] + 1, 100)
    right.plot(wide, [half(n) for n in wide],
               color="0.25", label=r"law $\sqrt{2\ln 2/N}\;2^{N/2}$")  # fmt: skip
    right.plot(wide, 2 ** (wide / 2), color="0.6", lw=0.8, ls=":", label=r"$2^{N/2}$")
    right.errorbar(
        neurons, count, error, ls="", marker="o", color=style.COLOURS[1], capsize=2, label="simulated"
    )
    right.set(yscale="log", xlabel="neurons $N$", ylabel="patterns $K$, all held in half of the networks")
    right.legend(loc="upper left")
    return figure


LAW = Law("exponential", points, measure, findings, draw)
