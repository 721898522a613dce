"""Which items are forgotten: those whose energy rises most when the next task is learned.

A network learns the tasks of Table 2 one after the other, with nothing against forgetting. The energy of an
item with its class neuron on says how deep it lies. Every item that was answered rightly when its task had
been learned is ranked by how much its energy has risen since; among tenths of equal rank, the share of items
that are answered wrongly by now is what this law is about. If energy said nothing, all tenths would lose the
same. That it says something is measured by the probability that a lost item has risen more than a kept one
(the area under the curve; 1/2 is nothing, 1 is everything). The energy before, which is all that a choice of
items to rehearse could go by, is measured likewise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma import studies
from engramma.laws.law import Finding, Law, Point, Row, Where, columns, summary
from engramma.network import DenseMemory, Items
from engramma.runs.setup import build
from engramma.show.figures import style

VERTICES = (2.0, 5.0, 10.0, 20.0)
REPLICAS = {"demo": 8, "small": 8, "paper": 10}
TENTHS = 10


def _runs(scale: str, n: float, count: int) -> list[Any]:
    """The runs of Table 2 without a method."""
    found = studies.load("table2").runs(scale, list(range(count)), [n], ["vanilla"])
    return [run.experiment for run in found]


def points(scale: str) -> list[Point]:
    """One a vertex; `protocol` names what is run, so that another protocol is another point."""
    count = REPLICAS[scale]
    return [
        {"n": n, "scale": scale, "protocol": _runs(scale, n, 1)[0].name, "replicas": count} for n in VERTICES
    ]


def energies(network: DenseMemory, theta: torch.Tensor, items: Items) -> torch.Tensor:
    """(R,B): the energy of every item with its own class neuron on and the others off."""
    states = items.probe[..., : network.neurons].to(theta.dtype).clone()
    states[..., network.first_scored :] = items.target.to(theta.dtype)
    return network.energy(theta, network.kernel.prepare(states, theta.dtype))


def measure(point: Point, where: Where) -> dict[str, Any]:
    """Over all pairs of a task and the one after it: the share of items lost in each tenth by rise of energy,
    and how well the rise, and the energy before, tell the lost from the kept."""
    built = build(_runs(point["scale"], point["n"], point["replicas"]), where.device, data_dir=where.data_dir)
    lost, by_rise, by_depth, before = [], [], [], None
    for moment in built.train():
        if not moment.ends_task:
            continue
        network, theta = moment.network, moment.theta
        if before is not None:
            items, energy, right = before
            kept = right & _right(network, theta, items)
            rise = energies(network, theta, items) - energy
            told = [_told(*row) for row in zip(rise, energy, right, kept, strict=True)]
            tenths, rising, depth = zip(*told, strict=True)
            lost.append(tenths)
            by_rise.append(rising)
            by_depth.append(depth)
        items = moment.now.task.train.expand(len(theta))
        before = items, energies(network, theta, items), _right(network, theta, items)
    shares = np.mean(lost, 0)  # over pairs of tasks: (R, TENTHS)
    return {
        "lost": shares.mean(0).tolist(),
        "lost_error": (shares.std(0, ddof=1) / np.sqrt(len(shares))).tolist(),
        **summary("rise", np.mean(by_rise, 0)),
        **summary("depth", np.mean(by_depth, 0)),
    }


def _right(network: DenseMemory, theta: torch.Tensor, items: Items) -> torch.Tensor:
    return (network.predict(theta, items.probe) == items.target.argmax(-1)) & (items.weight > 0)


def _told(
    rise: torch.Tensor, energy: torch.Tensor, right: torch.Tensor, kept: torch.Tensor
) -> tuple[np.ndarray, float, float]:
    """Of one replica: share lost in every tenth by rise, and the two areas under the curve."""
    x, depth, lost = (part[right].cpu().numpy() for part in (rise, -energy, ~kept))
    order = np.argsort(x, kind="stable")
    tenths = np.array([part.mean() for part in np.array_split(lost[order], TENTHS)])
    return tenths, area(x, lost), area(-depth, lost)


def area(x: np.ndarray, chosen: np.ndarray) -> float:
    """The probability that a chosen one has the larger x, ties half: the area under the curve."""
    values, place = np.unique(x, return_inverse=True)
    count = np.bincount(place, minlength=len(values))
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    some, rest = int(chosen.sum()), int((~chosen).sum())
    if not some or not rest:
        return 0.5  # nothing to tell apart
    return float((rank[chosen].sum() - some * (some + 1) / 2) / (some * rest))


def findings(rows: list[Row]) -> list[Finding]:
    found = []
    for row in rows:
        first, last = row["lost"][0], row["lost"][-1]
        remark = f"lost: {first:.2f} of the tenth that rises least, {last:.2f} of that which rises most"
        what = f"chance that a lost item has risen more than a kept one, n = {row['n']:g}"
        found.append(Finding(what, 0.5, row["rise"], row["rise_error"], remark))
    for row in rows:
        what = f"chance that a lost item lay higher before, n = {row['n']:g}"
        found.append(Finding(what, 0.5, row["depth"], row["depth_error"]))
    return found


@style.styled
def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = style.panels(2, 2.6)
    places = style.vertex_colours(row["n"] for row in rows)
    tenth = (np.arange(TENTHS) + 0.5) / TENTHS
    for row in rows:
        place = places[row["n"]]
        look: dict[str, Any] = {"color": style.COLOURS[place], "marker": style.MARKERS[place], "lw": 0.8}
        told = row["lost"], row["lost_error"]
        left.errorbar(tenth, *told, capsize=2, label=f"n = {row['n']:g}", **look)
        left.axhline(float(np.mean(row["lost"])), color=look["color"], lw=0.7, ls=":")
    left.set(
        xlabel="rank of an item's rise in energy", ylabel="share of items lost", xlim=(0, 1), ylim=(0, 1)
    )
    left.plot([], [], color="0.25", ls=":", lw=0.7, label="if energy told nothing")
    left.legend(loc="lower right")
    n, rise, rise_error, depth, depth_error = columns(rows, "n", "rise", "rise_error", "depth", "depth_error")
    at = np.arange(len(n))
    right.errorbar(at, rise, rise_error, ls="", marker="o", color=style.COLOURS[1], capsize=2,
                   label="by the rise in energy")  # fmt: skip
    right.errorbar(at, depth, depth_error, ls="", marker="s", color=style.COLOURS[0], capsize=2,
                   label="by the energy before")  # fmt: skip
    right.axhline(0.5, color="0.25", lw=0.7, ls=":")
    right.set(xlabel="vertex $n$", ylabel="chance that lost ranks above kept", ylim=(0.4, 1),
              xlim=(-0.5, len(n) - 0.5))  # fmt: skip
    right.set_xticks(at, [f"{each:g}" for each in n])
    right.legend(loc="lower left")
    return figure


LAW = Law("forgetting", points, measure, findings, draw)
