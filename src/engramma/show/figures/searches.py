"""What a search found: every trial, the smoothed response with its band, its flat top and the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from engramma.show import labels
from engramma.show.figures import style

if TYPE_CHECKING:
    from engramma.search.tune import Found


@style.styled
def searches(found: Sequence[Found]) -> Figure:
    """One panel a method, one colour a vertex. Points: runs. Line and band: the smoothed response and 95 %
    confidence. The bar below: the flat top, with a tick at the chosen strength."""
    found = [each for each in found if each.response is not None]
    if not found:
        raise ValueError("no search over a strength to draw")
    methods = list(dict.fromkeys(each.search.base.method for each in found))
    figure, axes = style.panels(len(methods), 2.2)
    colours = style.vertex_colours(each.search.base.vertex for each in found)
    for place, method in zip(axes, methods, strict=True):
        mine = [each for each in found if each.search.base.method == method]
        for row, each in enumerate(mine):
            number = colours[float(each.search.base.vertex)]
            colour, curve = style.COLOURS[number], each.response
            assert curve is not None
            tried = np.array([params["strength"] for params in each.params])
            x = np.repeat(tried, each.values.shape[1])
            place.plot(
                x, each.values.ravel(), style.MARKERS[number], color=colour, alpha=0.4, markersize=2.2,
                markeredgewidth=0,
            )  # fmt: skip
            name = f"${labels.vertex(each.search.base.vertex)}$, chosen {curve.chosen:.3g}"
            style.band(place, curve.x, curve.mean, 1.96 * curve.error, colour, label=name)
            # Under all points, one row a vertex, so that none hides another.
            height = -0.03 - 0.045 * (len(mine) - 1 - row)
            beneath = place.get_xaxis_transform()
            place.plot(curve.flat, (height, height), color=colour, lw=2.5, solid_capstyle="butt",
                       transform=beneath, clip_on=False, zorder=4)  # fmt: skip
            place.plot(curve.chosen, height, "|", color="black", markersize=6, transform=beneath,
                       clip_on=False, zorder=5)  # fmt: skip
        lowest = min(each.values.min() for each in mine)
        place.set_ylim(bottom=max(0.0, float(lowest) - 0.03))
        if mine[0].search.kind == "lambda":
            place.set_xscale("log")
        place.tick_params(axis="x", pad=5 + 5 * len(mine))
        place.set_xlabel(r"$\lambda$" if mine[0].search.kind == "lambda" else "proportion")
        place.set_title(style.literal(labels.method(method)))
        style.edge_labels(place, y="average accuracy")
        place.legend(fontsize=6)
    return figure
