"""From features to prototypes as n grows (Krotov and Hopfield 2016).

Networks learn to classify digits, one task, as in Table 2. At small n many memories share an item, and none
of them looks like it: they are features. At large n an item has a memory almost to itself, and that memory
looks like a digit: it is a prototype. Of an item's support (`engramma.diagnostics`), the share that its
strongest memory gives is 1/M where all share it and 1 where one has it alone; the number of memories that
take part is (sum of s)^2 / sum of s^2; and likeness is the correlation of an item with its strongest memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from engramma import studies
from engramma.diagnostics import likeness, prototypes, support
from engramma.laws.law import Finding, Law, Point, Row, Where, columns, summary
from engramma.runs.setup import build
from engramma.show.figures import style
from engramma.show.figures.memories import unpermuted

VERTICES = (2.0, 3.0, 5.0, 10.0, 20.0, 30.0)
REPLICAS = {"demo": 6, "small": 6, "paper": 10}
PICTURES = 4  # memories shown of every vertex: those that are the strongest of most items


def _runs(scale: str, n: float, count: int) -> list[Any]:
    """One task of Table 2, without a method."""
    found = studies.load("table2").runs(scale, list(range(count)), [20], ["vanilla"])
    return [run.experiment.but(vertex=n, tasks=1) for run in found]


def points(scale: str) -> list[Point]:
    count = REPLICAS[scale]
    return [
        {"n": n, "scale": scale, "protocol": _runs(scale, n, 1)[0].name, "replicas": count} for n in VERTICES
    ]


def measure(point: Point, where: Where) -> dict[str, Any]:
    """Of networks that have learned one task: what their memories are, and some of them as pictures."""
    built = build(_runs(point["scale"], point["n"], point["replicas"]), where.device, data_dir=where.data_dir)
    *_, moment = built.train()
    network, theta, stream = moment.network, moment.theta, built.stream
    items = stream[0].train
    found, strongest = prototypes(network, theta, items), support(network, theta, items).argmax(-1)
    alike = likeness(network, theta, items).gather(-1, strongest[..., None])
    answered = stream.evaluate(network, theta)["accuracy"][:, 0]
    seed, shape = built.replicas.seeds[0], (8, 8) if network.visible < 28 * 28 else (28, 28)
    view = stream.view(seed, 0)  # type: ignore[attr-defined]
    pixels = len(view.permutation)
    served = strongest[0].bincount(minlength=theta.shape[1]).argsort(descending=True, stable=True)
    shown = theta[0, served[:PICTURES], :pixels].cpu().double().numpy()
    return {
        **summary("index", found.index),
        **summary("participation", found.participation),
        **summary("likeness", alike.mean((1, 2))),
        **summary("accuracy", answered),
        "pictures": np.round(unpermuted(shown, view.permutation, shape), 3).tolist(),
    }


def findings(rows: list[Row]) -> list[Finding]:
    found = []
    for row in rows:
        remark = (
            f"{row['participation']:.1f} memories take part, likeness {row['likeness']:.2f}, "
            f"accuracy {row['accuracy']:.3f}"
        )
        what = f"share of an item's support from one memory, n = {row['n']:g}"
        found.append(Finding(what, None, row["index"], row["index_error"], remark))
    return found


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(style.FULL, 3.0))
    left, right = figure.subfigures(1, 2, squeeze=False)[0]
    axes = left.subplots()
    n = np.array([row["n"] for row in rows])
    for k, (what, label) in enumerate((
        ("index", "support that one memory gives"), ("likeness", "likeness of that memory to the item"),
        ("accuracy", "accuracy on test items"),
    )):  # fmt: skip
        value, error = columns(rows, what, f"{what}_error")
        axes.errorbar(n, value, error, color=style.COLOURS[k], marker=style.MARKERS[k], capsize=2, lw=0.8,
                      label=label)  # fmt: skip
    axes.set(xscale="log", xlabel="vertex $n$", ylim=(0, 1.3))
    axes.set_xticks(n, [f"{each:g}" for each in n])
    axes.set_xticks([], minor=True)
    axes.legend(loc="upper left")
    grid = right.subplots(PICTURES, len(rows), squeeze=False)
    for column, row in enumerate(rows):
        for line, picture in enumerate(row["pictures"]):
            spot = grid[line, column]
            spot.imshow(picture, vmin=-1, vmax=1, cmap="RdBu_r")
            spot.set(xticks=[], yticks=[])
            spot.spines[:].set_visible(False)
        grid[0, column].set_title(f"$n={row['n']:g}$")
    return figure


LAW = Law("prototypes", points, measure, findings, draw)
