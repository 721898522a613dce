"""The one style, and how a figure is begun and saved. No pyplot: nothing outside a figure changes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engramma.checks import visible
from engramma.store.outputs import whole

STYLE = str(Path(__file__).with_name("engramma.mplstyle"))
COLUMN, FULL = 3.4, 7.0  # inches: one column of a paper, and both

# Okabe and Ito's colours, dark ones first; yellow last, where few lines reach.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FORMATS = ("pdf", "png")

P = ParamSpec("P")
T = TypeVar("T")


def styled(make: Callable[P, T]) -> Callable[P, T]:
    """Run a function under the style, and leave matplotlib's settings as they were."""

    @functools.wraps(make)
    def under(*args: P.args, **kwargs: P.kwargs) -> T:
        with matplotlib.style.context([STYLE], after_reset=True):
            return make(*args, **kwargs)

    return under


def panels(count: int, height: float = 2.2, across: int = 2, **share: Any) -> tuple[Figure, list[Axes]]:
    """`count` axes in rows of `across`: one column wide for a single one, else the full width.

    With a number that leaves a gap, the gap is no axes at all rather than an empty one.
    """
    if count == 1:
        figure = Figure(figsize=(COLUMN, height + 0.4))
        return figure, [figure.subplots(**share)]
    across = min(across, count)
    down = -(-count // across)
    figure = Figure(figsize=(FULL, height * down + 0.4))
    grid = figure.subplots(down, across, squeeze=False, **share)
    flat = list(grid.flat)
    for spare in flat[count:]:
        spare.remove()
    for above in flat[max(0, count - across) : count]:
        above.tick_params(labelbottom=True)  # shared axes hide them above the gap
    return figure, flat[:count]


def vertex_colours(vertices: Iterable[float]) -> dict[float, int]:
    """{vertex: place in COLOURS and MARKERS}; the paper's four keep theirs in every figure."""
    paper = {2.0: 0, 5.0: 1, 10.0: 2, 20.0: 3}
    given = sorted({float(v) for v in vertices})
    free = [i for i in range(len(COLOURS)) if i not in {paper[v] for v in given if v in paper}]
    found = {}
    for vertex in given:
        found[vertex] = (
            paper[vertex] if vertex in paper else free.pop(0) if free else len(found) % len(COLOURS)
        )
    return found


def band(axes: Axes, x: np.ndarray, mean: np.ndarray, sd: np.ndarray, colour: str, **line: Any) -> None:
    axes.plot(x, mean, color=colour, **line)
    axes.fill_between(x, mean - sd, mean + sd, color=colour, alpha=0.18, linewidth=0)


def literal(text: object) -> str:
    """A text from elsewhere as a label: letter by letter, for $ and \\ would begin mathematics."""
    return visible(text).replace("\\", "\u2216").replace("$", r"\$")


def note(axes: Axes, text: str, fill: bool = False) -> None:
    """A remark in the corner, or in the middle of a panel that has nothing else to show."""
    at, ha, va = (0.5, "center", "center") if fill else (0.98, "right", "top")
    axes.text(at, at, text, ha=ha, va=va, transform=axes.transAxes, fontsize=6, color="0.3", zorder=6)


def edge_labels(axes: Axes, x: str | None = None, y: str | None = None) -> None:
    """Axis labels on the outer panels alone; outer below are those with no panel under them."""
    mine = axes.get_subplotspec()
    others = [spec for a in axes.figure.axes if (spec := a.get_subplotspec()) is not None]
    assert mine is not None
    under = [
        s for s in others if s.colspan.start == mine.colspan.start and s.rowspan.start > mine.rowspan.start
    ]
    if y and mine.is_first_col():
        axes.set_ylabel(y)
    if x and not under:
        axes.set_xlabel(x)


def fullest(axes: list[Axes]) -> Axes:
    """The panel with most to say in a legend."""
    return max(axes, key=lambda a: len(a.get_legend_handles_labels()[0]))


def legend_below(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, under them, where it can hide nothing; in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        # An entry's width in inches: its letters at 7 pt, its line and the space beside it.
        each = 0.054 * max(len(label.replace("$", "")) for label in labels) + 0.35
        columns = max(1, min(len(handles), int(figure.get_figwidth() / each)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


@styled
def save(figure: Figure, out: Path | str, name: str, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write `name`.pdf and `name`.png under `out`, each whole or not at all."""
    figure.align_ylabels()
    made = []
    for form in formats:
        path = Path(out) / f"{name}.{form}"
        with whole(path) as beside:
            # The same records give the same bytes: no date in the file.
            figure.savefig(beside, format=form, metadata={"CreationDate": None} if form == "pdf" else None)
        made.append(path)
    return made
