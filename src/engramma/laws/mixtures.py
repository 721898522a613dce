"""From noisy examples alone a network learns their prototype (Fontanari 1990; McAlister et al. 2024).

Hebb's weights of k classes, each of e examples, which are the class's prototype with a share p of the neurons
flipped. The prototype was never stored. With b = 1 - 2 p a neuron of it has the field b S from its own class,
where S is how many of the e examples have that neuron right less those that have it wrong, against crosstalk:

    variance v = (e + e (e - 1) b^4) (k - 1) / N + e (1 - b^2) / N
    P(wrong) = mean over S of Q(b S / sqrt(v)),    S = e - 2 Binomial(e, p),    Q the normal tail

Few examples leave the prototype unstable and are themselves recalled, many merge into it: it is a fixed
point, and they are not.
"""

from __future__ import annotations

from math import comb, sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.laws.dynamics import settled
from engramma.laws.fits import mean, tail
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns, summary
from engramma.show.figures import style

NOISE = (0.1, 0.2, 0.3, 0.4)
EXAMPLES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SHOWN = 0.2  # whose examples and prototypes are set side by side
NEURONS = {"demo": 256, "small": 512, "paper": 1024}
REPLICAS = {"demo": 24, "small": 48, "paper": 64}
CLASSES, STEPS = 5, 60
SAME = 0.98  # overlap from which a state is taken for the example, or for the prototype


def wrong(noise: float, examples: int, neurons: int) -> float:
    """The law: the share of the prototype's neurons that one update makes wrong."""
    b, e = 1 - 2 * noise, examples
    variance = (e + e * (e - 1) * b**4) * (CLASSES - 1) / neurons + e * (1 - b * b) / neurons
    total = 0.0
    for flips in range(e + 1):
        chance = comb(e, flips) * noise**flips * (1 - noise) ** (e - flips)
        total += chance * tail(b * (e - 2 * flips) / sqrt(variance))
    return total


def points(scale: str) -> list[Point]:
    return [
        {"neurons": NEURONS[scale], "noise": noise, "examples": e, "replicas": REPLICAS[scale]}
        for noise in NOISE
        for e in EXAMPLES
    ]


def measure(point: Point, where: Where) -> dict[str, Any]:
    """The prototypes are updated once: the share of wrong neurons. An example of each class is recalled: the
    share of them that stay, and the share that end in the prototype."""
    neurons, e = point["neurons"], point["examples"]
    wrongs, stay, merge = [], [], []
    for seeds in batches(point, neurons**2):
        prototypes = bipolar(seeds, "mixtures", (CLASSES, neurons))
        key = e, round(1000 * point["noise"])
        coins = seeds.draw(lambda g: g.random((CLASSES, e, neurons)), "law mixtures", *key)
        examples = torch.where(torch.as_tensor(coins) < point["noise"], -1, 1) * prototypes[:, :, None]
        x, states = examples.flatten(1, 2).to(where.device).float(), prototypes.to(where.device).float()
        weights = x.mT @ x
        weights.diagonal(dim1=1, dim2=2).zero_()
        wrongs.append(((states @ weights) * states < 0).double().mean((1, 2)).cpu())
        first = x.unflatten(1, (CLASSES, e))[:, :, 0]
        end = settled(first, weights, STEPS)
        stay.append(((end * first).mean(-1) >= SAME).double().mean(1).cpu())
        merge.append(((end * states).mean(-1) >= SAME).double().mean(1).cpu())
    parts = ("wrong", wrongs), ("example", stay), ("prototype", merge)
    return {name: value for what, each in parts for name, value in summary(what, torch.cat(each)).items()}


def findings(rows: list[Row]) -> list[Finding]:
    found = []
    for noise in NOISE:
        some = [row for row in rows if row["noise"] == noise and row["wrong"] > 0 and row["examples"] > 1]
        law = np.array([wrong(noise, row["examples"], row["neurons"]) for row in some])
        ours, error = columns(some, "wrong", "wrong_error")
        enough = law > 1e-3
        what = f"share of a prototype's neurons wrong, over the law's, {noise:.0%} flipped"
        found.append(Finding(what, 1.0, *mean(ours[enough] / law[enough], error[enough] / law[enough])))
    return found


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = style.panels(2, 2.6)
    neurons = rows[0]["neurons"]
    for k, noise in enumerate(NOISE):
        some = [row for row in rows if row["noise"] == noise]
        e, share, error = columns(some, "examples", "wrong", "wrong_error")
        left.plot(e, [wrong(noise, int(each), neurons) for each in e], color=style.COLOURS[k], lw=1)
        left.errorbar(e, share, error, ls="", color=style.COLOURS[k], marker=style.MARKERS[k], capsize=2,
                      label=f"{noise:.0%} flipped")  # fmt: skip
    left.plot([], [], color="0.25", label="law")
    left.set(xscale="log", yscale="log", ylim=(1e-4, 0.6), xlabel="examples of each class",
             ylabel="share of the prototype's neurons wrong")  # fmt: skip
    left.set_title(f"$N={neurons}$, {CLASSES} classes")
    left.legend(loc="lower left")
    some = [row for row in rows if row["noise"] == SHOWN]
    for k, (what, label) in enumerate((("example", "in itself"), ("prototype", "in the prototype"))):
        e, share, error = columns(some, "examples", what, f"{what}_error")
        right.errorbar(e, share, error, color=style.COLOURS[k], marker=style.MARKERS[k], capsize=2, lw=0.8,
                       label=label)  # fmt: skip
    right.set(xscale="log", xlabel="examples of each class", ylim=(-0.03, 1.03),
              ylabel="share of examples that end", title=f"{SHOWN:.0%} flipped")  # fmt: skip
    right.legend(loc="center right")
    for axes in (left, right):
        axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
        axes.set_xticks([], minor=True)
    return figure


LAW = Law("mixtures", points, measure, findings, draw)
