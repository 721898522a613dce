"""Table 2 as bars, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engramma.paper import numbers as paper
from engramma.show import labels, tables
from engramma.show.agreement import Cell
from engramma.show.figures import style
from engramma.store.scores import Recorded


@style.styled
def table2_bars(records: Sequence[Recorded], table: tables.Table | None = None) -> Figure:
    """One panel a vertex, one pair of bars a row, whiskers of one sd. Vertices without a run are left out.

    `table`: Table 2 of these records, where it has been made already.
    """
    table = table or tables.table2(records)
    columns = [c for c in range(len(table.columns)) if any(not line.cells[c].missing for line in table.lines)]
    if not columns:
        raise ValueError("no records of Table 2: none of its methods at any of its vertices")
    figure, axes = style.panels(len(columns), 3.1, sharex=True, sharey=True)
    for place, column in zip(axes, columns, strict=True):
        _panel(place, table, column)
        style.edge_labels(place, "average accuracy")
    style.legend_below(figure, axes[0])
    return figure


def _panel(axes: Axes, table: tables.Table, column: int) -> None:
    # A gap between categories; the first row on top.
    lines, known = table.lines, {(row.category, row.label): labels.row(*row.key) for row in paper.rows()}
    place, heights = 0.0, []
    for i, line in enumerate(lines):
        place += 1.0 if i == 0 or line.category == lines[i - 1].category else 1.5
        heights.append(-place)
    y = np.array(heights)
    cells = [cell for line in table.lines if isinstance(cell := line.cells[column], Cell)]
    whisker = {"elinewidth": 0.7, "capthick": 0.7}
    axes.barh(
        y + 0.2, [c.mean for c in cells], 0.38, xerr=[c.sd for c in cells],
        color=style.COLOURS[0], error_kw=whisker, capsize=1.2, label="ours",
    )  # fmt: skip
    theirs = {height - 0.2: c.printed for height, c in zip(y, cells, strict=True) if c.printed is not None}
    about = paper.setting()
    elsewhere = "" if all(c.alike for c in cells) else f" ({about['data'].upper()}, {about['items']:,} items)"
    axes.barh(
        [*theirs], [p.mean for p in theirs.values()], 0.38, xerr=[p.sd for p in theirs.values()],
        color="#bdbdbd", error_kw=whisker, capsize=1.2, label=f"the paper's{elsewhere}",
    )  # fmt: skip
    for height, cell in zip(y, cells, strict=True):
        note = "missing" if cell.missing else f"{cell.diverged} diverged" if cell.diverged else ""
        if note:
            right = np.nan_to_num(cell.mean) + np.nan_to_num(cell.sd) + 0.015
            axes.text(right, height + 0.2, note, va="center", fontsize=6, color=style.COLOURS[1])
    axes.set_yticks(y, [known.get((line.category, line.label), line.label) for line in lines])
    axes.set_xlim(0, 1)
    axes.set_ylim(y[-1] - 0.7, y[0] + 0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_title(f"${table.columns[column]}$")
