"""How much of a pattern may be wrong for it still to be recalled, over load and n.

A probe with a share rho of its neurons turned over has the overlap m = 1 - 2 rho with its pattern. One update
of all neurons makes of it, with x = (2n-3)!! K / N^(n-1) as in `capacity`,

    m' = erf(m^(n-1) / sqrt(2 x))

and recall goes to the upper fixed point of this map, or from below the lower one to nothing: the lower one is
the edge of the basin (for n > 2, Gardner 1987). For n = 2 the crosstalk depends on the state that it has just
made, and its variance v has to be followed too (Amari and Maginu 1988), with u = m / sqrt(v) and phi the
normal density:

    m' = erf(u / sqrt(2)),    v' = x + 4 phi(u)^2 + 4 phi(u) x m m' / sqrt(v),    v = x at first

This remembers one update back and no more, which is known to make the basins of n = 2 too wide (Okada 1995).
"""

from __future__ import annotations

from functools import cache
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.interactions import Polynomial
from engramma.laws import capacity
from engramma.laws.classical import NEAR
from engramma.laws.dynamics import recall
from engramma.laws.fits import crossed, quantile
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns, flipped
from engramma.show.figures import style

LOADS = (0.2, 0.35, 0.5, 0.65, 0.8)  # of the largest at which recall has a fixed point
SHOWN = (0.2, 0.5, 0.8)  # whose recall against flips is drawn
SIZES = {
    "demo": {2: (256, 1024), 3: (80, 160), 4: (40, 64)},
    "small": {2: (1024, 2048), 3: (160, 320), 4: (64, 90)},
    "paper": {2: (2048, 8192), 3: (320, 640), 4: (90, 150)},
}
REPLICAS = {"demo": 8, "small": 16, "paper": 32}
FINE = 20  # shares of flipped neurons, at most, from none to half
PROBES, STEPS = 16, 60


def comes_back(m: float, x: float, n: int) -> bool:
    """The law: whether recall from the overlap m ends near the pattern."""
    variance = x
    for _ in range(400):
        if n > 2:
            after = erf(m ** (n - 1) / sqrt(2 * x))
        else:
            u = m / sqrt(variance)
            after, phi = erf(u / sqrt(2)), exp(-u * u / 2) / sqrt(2 * pi)
            variance = x + 4 * phi**2 + 4 * phi * x * m * after / sqrt(variance)
        if abs(after - m) < 1e-9:
            break
        m = after
    return m > 0.5


def _last(low: float, high: float, holds: Any) -> float:
    """The largest number, between two, for which something holds that holds below it."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@cache
def largest(n: int) -> float:
    """The law: the x up to which a pattern is recalled from itself."""
    return _last(0, 1, lambda x: x == 0 or comes_back(1, x, n))


@cache
def edge(load: float, n: int) -> float:
    """The law: up to which share of flipped neurons a pattern is recalled, at a share of the largest x."""
    return _last(0, 0.5, lambda rho: comes_back(1 - 2 * rho, load * largest(n), n))


def points(scale: str) -> list[Point]:
    found = []
    cells = ((n, size, load) for n, sizes in SIZES[scale].items() for size in sizes for load in LOADS)
    for n, neurons, load in cells:
        # x counts patterns in units of those at which 0.5 % of the neurons are wrong, at this N.
        patterns = round(load * largest(n) * quantile(capacity.LEVEL) ** 2 * capacity.full(n, neurons))
        found.append({"n": n, "neurons": neurons, "load": load, "patterns": patterns,
                      "replicas": REPLICAS[scale]})  # fmt: skip
    return found


def measure(point: Point, where: Where) -> dict[str, Any]:
    """For every share of flipped neurons, the share of patterns recalled, and its standard error."""
    step = -(-point["neurons"] // (2 * FINE))
    turns = range(0, point["neurons"] // 2 + 1, step)
    n, neurons, count = point["n"], point["neurons"], point["patterns"]
    value, close = Polynomial(n).value, []
    for seeds in batches(point, count * neurons):
        patterns = bipolar(seeds, "basins", (count, neurons), n, count).to(where.device).float()
        some = patterns[:, :PROBES]
        turned = [flipped(seeds, some, turn, turn) for turn in turns]
        end = recall(patterns, torch.cat(turned, 1), value, STEPS)
        overlap = (end.unflatten(1, (len(turns), -1)) * some[:, None]).mean(-1)
        close.append((overlap >= NEAR).double().mean(-1).cpu())
    share = torch.cat(close)
    error = share.std(0) / sqrt(len(share))
    flips = [turn / neurons for turn in turns]
    return {"flips": flips, "recalled": share.mean(0).tolist(), "error": error.tolist()}


def edges(rows: list[Row]) -> list[dict[str, float]]:
    """For every n and load, the share of flipped neurons at which half are recalled."""
    found = []
    for row in rows:
        error = np.maximum(row["error"], 0.5 / (PROBES * row["replicas"]))
        if (at := crossed(np.array(row["flips"]), np.array(row["recalled"]), error, 0.5)) is not None:
            told = {name: row[name] for name in ("n", "neurons", "load")}
            found.append({**told, "edge": at[0], "error": at[1]})
    return found


def findings(rows: list[Row]) -> list[Finding]:
    found, every = [], edges(rows)
    for row in every:
        few, *_, many = sizes(rows, row["n"])
        if row["neurons"] != many or row["load"] not in SHOWN:
            continue
        cell = row["n"], few, row["load"]
        other = [r["edge"] for r in every if (r["n"], r["neurons"], r["load"]) == cell]
        what = f"flips that half survive, n = {row['n']}, N = {many}, {row['load']:.0%} of the load"
        law = edge(row["load"], int(row["n"]))
        remark = f"{other[0]:.3f} at N = {few}" if other else ""
        found.append(Finding(what, law, row["edge"], row["error"], remark))
    return found


def sizes(rows: list[Row], n: float) -> list[int]:
    return sorted({row["neurons"] for row in rows if row["n"] == n})


@style.styled
def draw(rows: list[Row]) -> Figure:
    vertices = sorted({row["n"] for row in rows})
    figure, (*panels, last) = style.panels(len(vertices) + 1, 2.1)
    places = style.vertex_colours(vertices)
    for axes, n in zip(panels, vertices, strict=True):
        neurons = sizes(rows, n)[-1]
        for k, load in enumerate(SHOWN):
            (row,) = (r for r in rows if (r["n"], r["neurons"], r["load"]) == (n, neurons, load))
            look: dict[str, Any] = {"color": style.COLOURS[k], "marker": style.MARKERS[k], "lw": 0.7}
            told = row["flips"], row["recalled"], row["error"]
            axes.errorbar(*told, capsize=1.5, markersize=2.5, label=f"{load:.0%}", **look)
            axes.axvline(edge(load, n), color=style.COLOURS[k], lw=1, ls="--")
        axes.set_title(f"$n={n}$, $N={neurons}$")
        style.edge_labels(axes, y="share of patterns recalled")
        axes.set_xlabel("share of neurons flipped")
    panels[-1].plot([], [], color="0.25", ls="--", lw=1, label="law")
    panels[-1].legend(loc="upper right", title="share of the largest load", title_fontsize=7)
    wide = np.linspace(0.02, 0.999, 60)
    for n in vertices:
        place = places[float(n)]
        last.plot(wide, [edge(float(each), n) for each in wide], color=style.COLOURS[place], lw=1)
        for neurons, fill in zip(sizes(rows, n), ("none", "full"), strict=True):
            some = [r for r in edges(rows) if (r["n"], r["neurons"]) == (n, neurons)]
            load, at, error = columns(some, "load", "edge", "error")
            look: dict[str, Any] = {"color": style.COLOURS[place], "marker": style.MARKERS[place]}
            name = f"n = {n}" if fill == "full" else None
            last.errorbar(load, at, error, ls="", fillstyle=fill, capsize=2, label=name, **look)
    last.set(xlabel="load, as a share of the largest", ylabel="flips that half survive", ylim=(0, 0.65))
    last.set_title("edge of the basin")
    last.plot([], [], ls="", marker="o", color="0.4", fillstyle="none", label="smaller N")
    last.legend(loc="upper right", ncols=2)
    return figure


LAW = Law("basins", points, measure, findings, draw)
