"""How accuracy answers to a method's strength: lambda searches and proportion searches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engramma.paper import numbers as paper
from engramma.show import labels
from engramma.show import select as trials
from engramma.show.figures import style
from engramma.store import scores
from engramma.store.scores import Recorded


@style.styled
def response(records: Sequence[Recorded], window: int = 20, measure: str = "average") -> Figure:
    """One panel a method, one colour a vertex. Lambda: a log axis, every trial a point, mean and sd in a
    moving window of `window` trials. Proportion: mean and sd at each proportion."""
    known = [r for r in records if trials.strength(r) is not None]
    if not known:
        raise ValueError("no records with a strength: nothing to draw a response of")
    methods = trials.group(known, "method")
    in_order = sorted(methods.items(), key=lambda pair: trials.in_paper(pair[0]))
    figure, axes = style.panels(len(methods), 2.2, sharey=True)
    colours = style.vertex_colours(trials.setting(r, "vertex") for r in known)
    for place, (method, found) in zip(axes, in_order, strict=True):
        _panel(place, method, found, colours, window, measure)
        label = "average accuracy" if measure == "average" else measure.replace("_", " ")
        style.edge_labels(place, y=label)
        if len(methods) > 1 or method in paper.labels():
            place.set_title(style.literal(labels.method(method)))
    style.legend_below(figure, style.fullest(axes))
    return figure


def _panel(
    axes: Axes, method: str, found: list[Recorded], colours: dict[float, int], window: int, measure: str
) -> None:
    proportion = trials.is_proportion(method)
    lost: list[float] = []
    widths = set()
    for vertex, runs in trials.group(found, "vertex").items():
        number = colours[float(vertex)]
        colour, marker = style.COLOURS[number], style.MARKERS[number]
        curve = trials.response(runs, window, measure, smooth=len(runs) >= 2 * window)
        lost += [
            x for r in runs if not np.isfinite(scores.value(r)) and (x := trials.strength(r)) is not None
        ]
        widths.add(curve.window)
        name = f"${labels.vertex(vertex)}$"
        if proportion:
            style.band(axes, curve.x, curve.mean, curve.sd, colour, marker=marker, label=name)
            continue
        points = [(trials.strength(r), scores.value(r, measure)) for r in runs]
        x, y = np.array(points, dtype=float).T
        axes.plot(x, y, marker, color=colour, alpha=0.45, markersize=2.2, markeredgewidth=0)
        style.band(axes, curve.x, curve.mean, curve.sd, colour, label=name)
    if not proportion:
        tried = [x for r in found if (x := trials.strength(r)) is not None]
        zero = {"value": "symlog", "linthresh": min((x for x in tried if x), default=1.0)}
        axes.set_xscale(**({"value": "log"} if all(tried) else zero))
    if lost:
        # On the lower edge, where no accuracy hides them.
        axes.plot(
            lost, np.zeros(len(lost)), "x", color="black", markersize=4, clip_on=False,
            transform=axes.get_xaxis_transform(), label="diverged", zorder=5,
        )  # fmt: skip
    axes.set_xlabel("proportion" if proportion else r"$\lambda$")
    widths -= {None}
    if widths and widths != {window}:
        style.note(axes, f"window of {min(widths)}" + (f" to {max(widths)}" if len(widths) > 1 else ""))
