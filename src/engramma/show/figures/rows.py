"""The rows of a study: as bars, and over what each of them keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engramma.show import labels, tables
from engramma.show import select as trials
from engramma.show.agreement import Cell, Table
from engramma.show.figures import style
from engramma.store.scores import Recorded

CURVE = "rehearsal"  # whose proportions make a curve: what is kept buys accuracy


@style.styled
def row_bars(
    records: Sequence[Recorded], names: Sequence[str] | None = None, score: str | None = None
) -> Figure:
    """One panel a vertex, one bar a row, whiskers of one sd; the best is dark. `names`: the row of each
    record."""
    table = _table(records, names, score)
    figure, axes = style.panels(len(table.columns), 0.6 + 0.16 * len(table.lines), sharex=True, sharey=True)
    for column, place in enumerate(axes):
        cells = _cells(table, column)
        y = -np.arange(len(cells), dtype=float)
        colours = [style.COLOURS[0] if cell.best else style.COLOURS[5] for cell in cells]
        place.barh(
            y, [cell.mean for cell in cells], 0.75, xerr=[np.nan_to_num(cell.sd) for cell in cells],
            color=colours, error_kw={"elinewidth": 0.7, "capthick": 0.7}, capsize=1.2,
        )  # fmt: skip
        for height, cell in zip(y, cells, strict=True):
            if cell.missing or cell.diverged:
                words = "missing" if cell.missing else f"{cell.diverged} diverged"
                right = np.nan_to_num(cell.mean) + np.nan_to_num(cell.sd) + 0.015
                place.text(right, height, words, va="center", fontsize=6, color=style.COLOURS[1])
        place.set_yticks(y, [style.literal(line.label) for line in table.lines])
        place.set_xlim(0, 1)
        place.set_ylim(y[-1] - 0.6, 0.6)
        place.tick_params(axis="y", length=0)
        place.grid(False, axis="y")
        place.set_title(f"${table.columns[column]}$")
        style.edge_labels(place, f"average {_what(records, score)}")
    return figure


@style.styled
def frontier(
    records: Sequence[Recorded], names: Sequence[str] | None = None, score: str | None = None
) -> Figure:
    """Average accuracy over the bytes that a method keeps beside the network, one panel a vertex, a colour
    and a marker a row; rehearsal as a curve over its proportions. What a method does not say is not there."""
    table, kept = _table(records, names, score), _table(records, names, score, "bytes_kept")
    figure, axes = style.panels(len(table.columns), 2.3, sharex=True, sharey=True)
    curve = [i for i, line in enumerate(table.lines) if line.label.startswith(f"{labels.method(CURVE)} ")]
    others = [i for i in range(len(table.lines)) if i not in curve]
    for column, place in enumerate(axes):
        cells, sizes = _cells(table, column), [cell.mean for cell in _cells(kept, column)]
        along = sorted((i for i in curve if np.isfinite(sizes[i])), key=lambda i: sizes[i])
        if along:
            _points(place, along, cells, sizes, color="0.4", marker=".", ls="-", label=labels.method(CURVE))
        for number, i in enumerate(others):
            look: dict[str, Any] = {
                "color": style.COLOURS[number % len(style.COLOURS)],
                "marker": style.MARKERS[number // len(style.COLOURS) % len(style.MARKERS)],
                "ls": "none",
                "label": style.literal(table.lines[i].label),
            }
            _points(place, [i], cells, sizes, **look)
        place.set_xscale("symlog", linthresh=100)
        place.set_xlim(-20, None)
        place.set_title(f"${table.columns[column]}$")
        style.edge_labels(place, "bytes kept beside the network", f"average {_what(records, score)}")
    style.legend_below(figure, axes[0])
    return figure


def _points(axes: Axes, which: Sequence[int], cells: Sequence[Cell], x: Sequence[float], **look: Any) -> None:
    axes.errorbar(
        [x[i] for i in which], [cells[i].mean for i in which],
        [np.nan_to_num(cells[i].sd) for i in which], markersize=4, capsize=2, **look,
    )  # fmt: skip


def _table(
    records: Sequence[Recorded], names: Sequence[str] | None, score: str | None, measure: str = "average"
) -> Table:
    if not records:
        raise ValueError("no records to draw the rows of")
    told = names or [labels.row(*trials.row_of(record)) for record in records]
    return tables.rows(records, told, score, measure)


def _cells(table: Table, column: int) -> list[Cell]:
    return [cell for line in table.lines if isinstance(cell := line.cells[column], Cell)]


def _what(records: Sequence[Recorded], score: str | None) -> str:
    return style.literal((score or next(iter(records[0].scores))).replace("_", " "))
