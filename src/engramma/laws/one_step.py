"""One update recalls a pattern, with an error that is exponentially small (Ramsauer et al. 2020).

Patterns x on the unit sphere in d dimensions; a state s on it, whose overlap with its own pattern is c. One
update makes of it the sum of all patterns by softmax(beta x . s). Beside its own pattern's weight each of the
K - 1 others has the weight p = exp(beta (g - c)), where g is the overlap of two random directions. What is
then missing to the pattern, e = sum p (x - own) / (1 + sum p), has the mean square

    (K - 1) (K - 2) m1^2 (1 + g1^2 - 2 c g1) + (K - 1) m2 (2 - 2 c g2),    over (1 + (K - 1) m1)^2

with m1 and m2 the means of p and p^2, and g1 and g2 those of g weighted by them. It falls as exp(-beta c).
Theorem 5 of the paper bounds e by 2 (K - 1) exp(-beta (D - 2 r)), D being how far the pattern is from its
nearest neighbour (1 - their overlap) and r how far the state is from its pattern.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.laws.fits import mean
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, columns, summary
from engramma.models.energies import LogSumExp
from engramma.replicas import Replicas
from engramma.show.figures import style

BETAS = (6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0)
OVERLAPS = (1.0, 0.8)
SIZES = {"demo": (64, 128), "small": (64, 256), "paper": (64, 256, 1024)}
PATTERNS = {"demo": 500, "small": 2000, "paper": 10000}
REPLICAS = {"demo": 16, "small": 32, "paper": 64}
PROBES = 128


def weighted(b: float, size: int) -> tuple[float, float]:
    """The mean of exp(b g), g the overlap of two random directions, and the mean of g weighted by it."""
    g = np.linspace(-1, 1, 20001)[1:-1]
    density = (1 - g * g) ** ((size - 3) / 2)
    weight = density * np.exp(b * g)
    return float(weight.sum() / density.sum()), float((weight * g).sum() / weight.sum())


def missing(beta: float, c: float, size: int, patterns: int) -> float:
    """The law: the mean square of what is missing to a pattern after one update."""
    others = patterns - 1
    (one, g1), (two, g2) = weighted(beta, size), weighted(2 * beta, size)
    m1, m2 = one * exp(-beta * c), two * exp(-2 * beta * c)
    together = others * (others - 1) * m1**2 * (1 + g1**2 - 2 * c * g1)
    return (together + others * m2 * (2 - 2 * c * g2)) / (1 + others * m1) ** 2


def points(scale: str) -> list[Point]:
    return [
        {"size": size, "patterns": PATTERNS[scale], "overlap": overlap, "beta": beta,
         "replicas": REPLICAS[scale]}
        for size in SIZES[scale] for overlap in OVERLAPS for beta in BETAS
    ]  # fmt: skip


def directions(seeds: Replicas, purpose: str, shape: tuple[int, ...]) -> torch.Tensor:
    drawn = torch.as_tensor(seeds.draw(lambda g: g.normal(size=shape), f"law one-step {purpose}", *shape))
    return drawn / drawn.norm(dim=-1, keepdim=True)


def measure(point: Point, where: Where) -> dict[str, Any]:
    """States are updated once: the mean square of what is then missing to their patterns, the mean square of
    what is missing after ten updates, and the mean of the bound."""
    size, count, c, beta = (point[name] for name in ("size", "patterns", "overlap", "beta"))
    once, often, bound = [], [], []
    for seeds in batches(point, count * size):
        x = directions(seeds, "patterns", (count, size)).to(where.device)
        own, noise = x[:, :PROBES], directions(seeds, "noise", (PROBES, size)).to(where.device)
        across = noise - (noise * own).sum(-1, keepdim=True) * own
        state = c * own + sqrt(1 - c * c) * across / across.norm(dim=-1, keepdim=True)
        nearest = (own @ x.mT).topk(2, -1).values[..., 1]
        far = 1 - nearest - 2 * (state - own).norm(dim=-1)
        bound.append((2 * (count - 1) * (-beta * far).exp()).mean(1).cpu())
        for updates in range(10):
            state = LogSumExp(beta).update(state, x)
            if updates == 0:
                once.append((state - own).square().sum(-1).mean(1).cpu())
        often.append((state - own).square().sum(-1).mean(1).cpu())
    parts = ("once", once), ("often", often), ("bound", bound)
    return {name: value for what, each in parts for name, value in summary(what, torch.cat(each)).items()}


def findings(rows: list[Row]) -> list[Finding]:
    found = []
    for size, c in dict.fromkeys((row["size"], row["overlap"]) for row in rows):
        some = [row for row in rows if (row["size"], row["overlap"]) == (size, c)]
        ratio = [row["once"] / missing(row["beta"], c, size, row["patterns"]) for row in some]
        off = [r * row["once_error"] / row["once"] for r, row in zip(ratio, some, strict=True)]
        kept = [row["often"] / row["once"] for row in some if row["beta"] >= 14]
        remark = f"ten updates leave {np.mean(kept):.2f} of what one leaves, beta from 14"
        what = f"mean square error after one update over the law's, d = {size}, c = {c:g}"
        found.append(Finding(what, 1.0, *mean(np.array(ratio), np.array(off)), remark))
    return found


@style.styled
def draw(rows: list[Row]) -> Figure:
    overlaps = sorted({row["overlap"] for row in rows}, reverse=True)
    figure, axes = style.panels(len(overlaps), 2.6, sharey=True)
    wide = np.linspace(BETAS[0] - 1, BETAS[-1] + 1, 60)
    for each, c in zip(axes, overlaps, strict=True):
        for k, size in enumerate(sorted({row["size"] for row in rows})):
            some = [row for row in rows if (row["size"], row["overlap"]) == (size, c)]
            beta, once, error, bound = columns(some, "beta", "once", "once_error", "bound")
            count, root = some[0]["patterns"], np.sqrt(once)
            law = [sqrt(missing(float(b), c, size, count)) for b in wide]
            each.plot(wide, law, color=style.COLOURS[k], lw=1)
            each.errorbar(beta, root, error / (2 * root), ls="", color=style.COLOURS[k], capsize=2,
                          marker=style.MARKERS[k], label=f"d = {size}")  # fmt: skip
            if c == 1:
                each.plot(beta, bound, color=style.COLOURS[k], lw=0.9, ls=":")
        each.set(
            yscale="log", xlabel=r"$\beta$", ylim=(1e-7, 30), title=f"overlap of state and pattern {c:g}"
        )
    axes[0].plot([], [], color="0.25", label="law")
    axes[0].plot([], [], color="0.25", ls=":", label="Theorem 5's bound")
    axes[0].set_ylabel("root of the mean square error after one update")
    axes[0].legend(loc="lower left")
    return figure


LAW = Law("one-step", points, measure, findings, draw)
