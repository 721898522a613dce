"""How many random patterns a network of N neurons holds: K = alpha_n N^(n-1) (Krotov and Hopfield 2016).

A stored pattern is held against the crosstalk of the others, a sum of many small terms. If that is normal, a
neuron is wrong after one update with probability

    P = 1/2 erfc(sqrt(1 / (2 x))),    x = (2n-3)!! K / N^(n-1)

for every n alike, and P is 0.5 % where x = 1 / 2.576^2: alpha_n = 0.1507 / (2n-3)!!. No neuron of a pattern
is wrong up to about N^(n-1) / (2 (2n-3)!! ln N) patterns.

Small networks hold fewer than the leading power of N says: the pattern's own term is N^n - (N-2)^n and not
2 n N^(n-1), and the crosstalk has heavier tails than a normal number. Both follow from the moments of a sum
of N - 1 signs (`wrong`), and are divided out where the exponent is fitted.
"""

from __future__ import annotations

from functools import cache
from math import erfc, exp, log, pi, prod, sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.interactions import Polynomial
from engramma.laws.dynamics import scores
from engramma.laws.fits import line, mean, quantile, tail
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns, summary
from engramma.models.associative import capacity
from engramma.show.figures import style

LEVEL = 0.005  # share of wrong neurons at which a network is full
LOADS = (0.6, 0.8, 1.0, 1.25, 1.6)  # of the patterns at which a network is expected to be full
SIZES = {
    "demo": {2: (100, 200, 400, 800), 3: (32, 48, 72, 108), 4: (24, 32, 44, 60), 5: (24, 30, 38, 48)},
    "small": {
        2: (100, 200, 400, 800, 1600),
        3: (32, 48, 72, 108, 162, 240),
        4: (24, 32, 44, 60, 80, 100),
        5: (24, 30, 38, 48, 60, 72),
    },
    "paper": {
        2: (100, 200, 400, 800, 1600, 3200, 6400),
        3: (32, 48, 72, 108, 162, 240, 400, 640),
        4: (24, 32, 44, 60, 80, 100, 140, 200),
        5: (24, 30, 38, 48, 60, 72, 90, 120),
    },
}
REPLICAS = {"demo": 16, "small": 32, "paper": 64}
PROBES = 64


def odd(n: int) -> int:
    """(2n-3)!!"""
    return prod(range(2 * n - 3, 0, -2))


def alpha(n: int) -> float:
    """The law's constant: patterns over N^(n-1) at which one neuron in 200 is wrong."""
    return 1 / (quantile(LEVEL) ** 2 * odd(n))


def gaussian(x: float) -> float:
    """The law: the share of wrong neurons at x = (2n-3)!! K / N^(n-1)."""
    return erfc(sqrt(1 / (2 * x))) / 2


@cache
def moments(n: int, neurons: int) -> tuple[float, float, float]:
    """Of networks of a finite size, exactly: the pattern's own term, variance and excess of one other's."""
    h = np.arange(-(neurons - 1), neurons, 2, dtype=float)
    k = torch.arange(neurons, dtype=torch.float64)
    ways = torch.lgamma(k[-1] + 1) - torch.lgamma(k + 1) - torch.lgamma(k[-1] - k + 1)
    chance = (ways - (neurons - 1) * log(2)).exp().numpy()
    term = (h + 1) ** n - (h - 1) ** n
    variance, fourth = (float((chance * term**power).sum()) for power in (2, 4))
    own = float(neurons) ** n - float(neurons - 2) ** n
    # At n = 2 all terms are multiples of 4 and a tie leaves a neuron as it is: half a step more is needed.
    return own + (4 if n == 2 else 0), variance, fourth / variance**2 - 3


def wrong(patterns: float, n: int, neurons: int) -> float:
    """The share of wrong neurons with crosstalk of these moments (Edgeworth's series up to the fourth)."""
    own, variance, excess = moments(n, neurons)
    z = own / sqrt(variance * (patterns - 1))
    density = exp(-z * z / 2) / sqrt(2 * pi)
    return tail(z) + excess / (patterns - 1) * (z**3 - 3 * z) * density / 24


@cache
def full(n: int, neurons: int) -> float:
    """The number of patterns at which `wrong` is LEVEL."""
    low, high = 1.01, 10 * alpha(n) * neurons ** (n - 1) + 10
    for _ in range(60):
        middle = sqrt(low * high)
        low, high = (middle, high) if wrong(middle, n, neurons) < LEVEL else (low, middle)
    return low


def points(scale: str) -> list[Point]:
    found = []
    for n, sizes in SIZES[scale].items():
        for neurons in sizes:
            counts = [round(load * full(n, neurons)) for load in LOADS]
            for patterns in sorted({*counts, round(capacity(neurons, n))}):
                replicas = REPLICAS[scale] * -(-PROBES // patterns)  # as many probes where few patterns fit
                found.append({"n": n, "neurons": neurons, "patterns": patterns, "replicas": replicas})
    return found


def measure(point: Point, where: Where) -> dict[str, Any]:
    """Stored patterns are updated once: the share of wrong neurons, and of patterns without one."""
    n, neurons, count = point["n"], point["neurons"], point["patterns"]
    value, shares, whole = Polynomial(n).value, [], []
    for seeds in batches(point, count * neurons):
        patterns = bipolar(seeds, "capacity", (count, neurons), n, count).to(where.device).float()
        probes = patterns[:, :PROBES]
        errors = (scores(patterns, probes, value) * probes < 0).double()
        shares.append(errors.mean((1, 2)).cpu())
        whole.append((errors.sum(-1) == 0).double().mean(1).cpu())
    return summary("wrong", np.concatenate(shares)) | summary("whole", np.concatenate(whole))


def held(rows: list[Row]) -> list[dict[str, float]]:
    """For every n and N, how many patterns are held at LEVEL. 1 / z^2 of the share of wrong neurons is a
    straight line in the number of patterns, which is fitted."""
    found = []
    for n, neurons in sorted({(row["n"], row["neurons"]) for row in rows}):
        low, high = LOADS[0] * full(n, neurons), LOADS[-1] * full(n, neurons)
        some = [
            row
            for row in rows
            if (row["n"], row["neurons"]) == (n, neurons)
            and 0.99 * low - 1 <= row["patterns"] <= 1.01 * high + 1
            and row["wrong"] > 0
        ]
        count, error = columns(some, "patterns", "wrong_error")
        z = np.array([quantile(row["wrong"]) for row in some])
        off = error * sqrt(2 * pi) * np.exp(z * z / 2)
        through = line(count, z**-2.0, 2 * off / z**3)
        at, error = through.crossing(quantile(LEVEL) ** -2)
        found.append({"n": n, "neurons": neurons, "patterns": at, "error": error})
    return found


def findings(rows: list[Row]) -> list[Finding]:
    found = []
    for n in sorted({row["n"] for row in rows}):
        each = [row for row in held(rows) if row["n"] == n]
        size, count, error = columns(each, "neurons", "patterns", "error")
        small = np.array([full(n, int(s)) for s in size]) / (alpha(n) * size ** (n - 1.0))
        raw = line(np.log(size), np.log(count), error / count)
        fitted = line(np.log(size), np.log(count / small), error / count)
        remark = f"{raw.slope:.3f} ± {raw.error:.3f} where finite sizes are not divided out"
        found.append(Finding(f"exponent of N at n = {n}", n - 1, fitted.slope, fitted.error, remark))
        constant = mean(count / small / size ** (n - 1.0), error / small / size ** (n - 1.0))
        found.append(Finding(f"alpha_{n}", alpha(n), *constant))
    for n in sorted({row["n"] for row in rows}):
        neurons = max(row["neurons"] for row in rows if row["n"] == n)
        (row,) = (
            r
            for r in rows
            if (r["n"], r["neurons"], r["patterns"]) == (n, neurons, round(capacity(neurons, n)))
        )
        law = exp(-neurons * gaussian(odd(n) * row["patterns"] / neurons ** (n - 1)))
        finite = exp(-neurons * wrong(row["patterns"], n, neurons))
        what = f"share without error at N^{n - 1}/(2 {odd(n)} ln N), N = {neurons}"
        found.append(
            Finding(what, law, row["whole"], row["whole_error"], f"{finite:.3f} at this N by its own moments")
        )
    return found


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = style.panels(2, 2.7)
    places = style.vertex_colours(row["n"] for row in rows)
    x = np.geomspace(0.05, 0.6, 200)
    left.plot(x, [gaussian(each) for each in x], color="0.25", label="law", zorder=5)
    left.axhline(LEVEL, color="0.6", lw=0.7, ls=":")
    left.text(0.43, LEVEL * 1.1, "full: 0.5 %", fontsize=6, color="0.4", ha="center")
    for n in sorted({row["n"] for row in rows}):
        place = places[float(n)]
        look: dict[str, Any] = {"color": style.COLOURS[place], "marker": style.MARKERS[place], "ls": ""}
        own = [row for row in rows if row["n"] == n]
        neurons = max(row["neurons"] for row in own)
        some = [row for row in own if row["neurons"] == neurons]
        ours = [odd(n) * row["patterns"] / neurons ** (n - 1) for row in some]
        left.errorbar(
            ours, [row["wrong"] for row in some], [row["wrong_error"] for row in some],
            label=f"n = {n}, N = {neurons}", capsize=2, **look,
        )  # fmt: skip
        sizes, counts, errors = columns(held(own), "neurons", "patterns", "error")
        wide = np.geomspace(sizes[0] / 1.2, sizes[-1] * 1.2, 20)
        right.plot(wide, alpha(n) * wide ** (n - 1), color=look["color"], lw=1)
        right.plot(sizes, [full(n, int(s)) for s in sizes], color=look["color"], lw=0.8, ls=":")
        right.errorbar(sizes, counts, errors, capsize=2, **look)
        right.text(wide[-1] * 1.06, alpha(n) * wide[-1] ** (n - 1), rf"$N^{n - 1}$", fontsize=7,
                   color=look["color"], va="center")  # fmt: skip
    left.set(xscale="log", yscale="log", xlabel="$(2n-3)!!\\;K\\,/\\,N^{\\,n-1}$", ylim=(2e-5, 0.2),
             ylabel="share of neurons wrong after one update")  # fmt: skip
    left.set_xticks([0.05, 0.1, 0.2, 0.5], ["0.05", "0.1", "0.2", "0.5"])
    left.set_xticks([], minor=True)
    right.set(xscale="log", yscale="log", xlabel="neurons $N$", ylabel="patterns $K$ held at 0.5 %")
    right.plot([], [], color="0.25", label="law")
    right.plot([], [], color="0.25", ls=":", lw=0.8, label="with finite $N$")
    largest = max(row["neurons"] for row in rows)
    ticks = [t for t in (20, 50, 100, 200, 500, 1000, 2000, 5000) if t < 1.2 * largest]
    right.set_xticks(ticks, [f"{t}" for t in ticks])
    right.set_xticks([], minor=True)
    right.legend(loc="lower right")
    left.legend(loc="lower right")
    return figure


LAW = Law("capacity", points, measure, findings, draw)
