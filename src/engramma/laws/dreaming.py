"""Dreaming takes the classical network from 0.14 N patterns to N (Fachechi, Agliari and Barra 2019).

Asleep for a time t, a network unlearns its spurious states and sharpens the stored ones; from Hebb's weights
at t = 0 it comes to the projection onto the patterns xi (K,N) at t = infinity:

    J(t) = xi' (1 + t) (1 + t C)^-1 xi / N,    C = xi xi' / N,    without its diagonal

With R = (1 + t xi' xi / N)^-1 the field of a stored pattern x is that of (1 + t) / t (1 - R), and x is one of
K = alpha N random patterns of which R without x knows nothing. So with tau the mean of R's diagonal

    tau = 1 / (1 + alpha t / (1 + t tau)),    a = alpha (t tau / (1 + t tau))^2,
    signal / noise = t tau sqrt((1 - a) / a)

and a neuron is wrong after one update with probability 1/2 erfc(signal / noise / sqrt(2)): for t = 0 Hebb's
1 / sqrt(alpha), for t = infinity nothing is wrong below alpha = 1.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.laws.capacity import LEVEL
from engramma.laws.classical import NEAR
from engramma.laws.dynamics import settled
from engramma.laws.fits import crossed, quantile, tail
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns, flipped, summary
from engramma.show.figures import style

TIMES = (0.0, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0)
SHOWN = (0.0, 1.0, 10.0, 1000.0)
LOADS = (0.3, 0.45, 0.6, 0.75, 0.9, 1.0, 1.1, 1.3)  # of the load at which one neuron in 200 is expected wrong
NEURONS = {"demo": 256, "small": 512, "paper": 2048}
REPLICAS = {"demo": 12, "small": 24, "paper": 32}
PROBES, FLIPS, STEPS = 64, 0.1, 60


def ratio(load: float, time: float) -> float:
    """The law: signal over noise."""
    if time == 0:
        return 1 / sqrt(load)
    # t tau^2 + (1 + alpha t - t) tau - 1 = 0
    b = 1 + load * time - time
    tau = (-b + sqrt(b * b + 4 * time)) / (2 * time)
    u = time * tau
    a = load * (u / (1 + u)) ** 2
    return u * sqrt((1 - a) / a)


def full(time: float) -> float:
    """The law: the load at which one neuron in 200 is wrong after one update."""
    low, high = 0.01, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle, time) > quantile(LEVEL) else (low, middle)
    return low


def points(scale: str) -> list[Point]:
    neurons = NEURONS[scale]
    return [
        {"neurons": neurons, "time": time, "patterns": patterns, "replicas": REPLICAS[scale]}
        for time in TIMES
        for patterns in sorted({round(load * full(time) * neurons) for load in LOADS})
    ]


def dreamt(patterns: torch.Tensor, time: float) -> torch.Tensor:
    """(R,N,N): the weights after sleep, of patterns (R,K,N)."""
    count, neurons = patterns.shape[1:]
    slept = torch.eye(count, dtype=patterns.dtype, device=patterns.device)
    slept = slept + time / neurons * patterns @ patterns.mT
    weights = (1 + time) / neurons * patterns.mT @ torch.linalg.solve(slept, patterns)
    weights.diagonal(dim1=1, dim2=2).zero_()
    return weights


def measure(point: Point, where: Where) -> dict[str, Any]:
    """Stored patterns are updated once: the share of wrong neurons. They are recalled from themselves with a
    tenth of the neurons flipped: the share that come back."""
    neurons, count = point["neurons"], point["patterns"]
    wrong, close = [], []
    for seeds in batches(point, neurons**2):
        patterns = bipolar(seeds, "dreaming", (count, neurons), count).to(where.device).double()
        weights = dreamt(patterns, point["time"])
        some = patterns[:, :PROBES]
        wrong.append(((some @ weights) * some < 0).double().mean((1, 2)).cpu())
        end = settled(flipped(seeds, some, round(FLIPS * neurons)), weights, STEPS)
        close.append(((end * some).mean(-1) >= NEAR).double().mean(1).cpu())
    return summary("wrong", torch.cat(wrong)) | summary("recalled", torch.cat(close))


def held(rows: list[Row], time: float) -> tuple[float, float] | None:
    """The load at which one neuron in 200 is wrong, and its standard error."""
    some = [row for row in rows if row["time"] == time and row["wrong"] > 0]
    count, wrong, error = columns(some, "patterns", "wrong", "wrong_error")
    z = np.array([quantile(each) for each in wrong])
    off = error * sqrt(2 * pi) * np.exp(z * z / 2)
    return crossed(count / some[0]["neurons"], z, off, quantile(LEVEL))


def recalled(rows: list[Row], time: float) -> tuple[float, float] | None:
    """The load at which half of the patterns are recalled, and its standard error."""
    some = [row for row in rows if row["time"] == time]
    count, share, error = columns(some, "patterns", "recalled", "recalled_error")
    return crossed(count / some[0]["neurons"], share, np.maximum(error, 0.5 / PROBES), 0.5)


def findings(rows: list[Row]) -> list[Finding]:
    found = []
    for time in TIMES:
        if (at := held(rows, time)) is not None:
            half = recalled(rows, time)
            remark = (
                "" if half is None else f"half recalled from 10 % flipped at {half[0]:.3f} ± {half[1]:.3f}"
            )
            found.append(Finding(f"load at 0.5 % wrong, t = {time:g}", full(time), *at, remark))
    return found


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = style.panels(2, 2.6)
    neurons = rows[0]["neurons"]
    for k, time in enumerate(SHOWN):
        some = [row for row in rows if row["time"] == time]
        count, wrong, error = columns(some, "patterns", "wrong", "wrong_error")
        wide = np.geomspace(count[0] / neurons / 1.3, count[-1] / neurons * 1.3, 80)
        left.plot(wide, [tail(ratio(float(x), time)) for x in wide], color=style.COLOURS[k], lw=1)
        left.errorbar(count / neurons, wrong, error, ls="", color=style.COLOURS[k], marker=style.MARKERS[k],
                      capsize=2, label=f"t = {time:g}")  # fmt: skip
    left.plot([], [], color="0.25", label="law")
    left.set(xscale="log", yscale="log", ylim=(1e-5, 0.3), xlabel="load $K/N$",
             ylabel="share of neurons wrong after one update", title=f"$N={neurons}$")  # fmt: skip
    left.set_xticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
    left.set_xticks([], minor=True)
    left.legend(loc="upper left")
    wide = np.concatenate([[0], np.geomspace(0.05, 2000, 80)])
    right.plot(wide, [full(float(time)) for time in wide], color="0.25", label="law: 0.5 % wrong")
    right.axhline(1, color="0.6", lw=0.7, ls=":")
    for colour, marker, found, label in (
        (1, "o", held, "simulated: 0.5 % wrong"), (0, "s", recalled, "half recalled from 10 % flipped"),
    ):  # fmt: skip
        look = {"ls": "", "marker": marker, "color": style.COLOURS[colour], "capsize": 2, "label": label}
        there = [(time, *at) for time in TIMES if (at := found(rows, time)) is not None]
        if there:
            time, load, error = np.array(there).T
            right.errorbar(time, load, error, **look)
    right.set_xscale("symlog", linthresh=0.1)
    right.set_xticks([0, 0.1, 1, 10, 100, 1000], ["0", "0.1", "1", "10", "100", "1000"])
    right.set(xlabel="time asleep $t$", ylabel="load $K/N$", ylim=(0, 1.6), xlim=(-0.02, 2000))
    right.legend(loc="upper left")
    return figure


LAW = Law("dreaming", points, measure, findings, draw)
