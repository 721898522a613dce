"""Figures, drawn from records alone: nothing here trains.

    draw("tasks", records, "figures")    # -> [figures/tasks-vanilla.pdf, figures/tasks-vanilla.png, ...]

One function a figure; each takes a list of records and returns a matplotlib Figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from engramma.checks import unknown
from engramma.show import select as trials
from engramma.show.figures.bars import table2_bars
from engramma.show.figures.energy import energy_curves
from engramma.show.figures.grids import heat_map
from engramma.show.figures.memories import memory_images, pseudo_items
from engramma.show.figures.over_tasks import over_tasks
from engramma.show.figures.responses import response
from engramma.show.figures.rows import frontier, row_bars
from engramma.show.figures.searches import searches
from engramma.show.figures.style import FORMATS, save
from engramma.show.figures.tasks import lost_attractors, task_curves
from engramma.show.figures.whose import energy_tells
from engramma.store.scores import Recorded

KINDS: dict[str, Callable[..., Figure]] = {
    "response": response,  # lambda and proportion searches
    "grid": heat_map,  # learning rate by temperature, smallest own accuracy
    "grid_average": partial(heat_map, measure="average"),
    "tasks": task_curves,  # one figure for each row of Table 2
    "over_tasks": over_tasks,  # average accuracy over the number of tasks
    "bars": table2_bars,
    "rows": row_bars,  # of a study
    "frontier": frontier,  # accuracy over bytes kept
    "memories": memory_images,
    "pseudo_items": pseudo_items,
    "energy": energy_curves,
    "energy_tells": energy_tells,  # whose an item is
    "attractors": lost_attractors,
}
NEEDS_NAMES = ("rows", "frontier")  # of the rows of a study, which they tell apart
NEEDS_DATA = ("memories", "pseudo_items", "energy", "energy_tells")  # they look at the data set again


def draw(
    kind: str,
    records: Sequence[Recorded],
    out: Path | str,
    name: str | None = None,
    formats: Sequence[str] = FORMATS,
    data_dir: Path | str | None = None,
    **options: Any,
) -> list[Path]:
    """Draw a kind of figure into the folder `out`, as `name`.pdf and `name`.png. The files written. Of
    its `options`, `names` is the row of each record in its study."""
    if kind not in KINDS:
        raise unknown("figure", kind, KINDS)
    if not records:
        raise ValueError(f"no records to draw {name or kind} from")
    if kind in NEEDS_DATA:
        options["data_dir"] = data_dir
    if kind not in NEEDS_NAMES or not options.get("names"):
        options.pop("names", None)
    made = []
    for suffix, some in _figures(kind, records):
        title = name or kind
        if not f"-{title}".endswith(suffix):  # curves-gem-0.5 says already which row it is
            title += suffix
        made += save(KINDS[kind](some, **options), out, title, formats)
    return made


def _figures(kind: str, records: Sequence[Recorded]) -> Iterator[tuple[str, Sequence[Recorded]]]:
    """(what to add to the name, records): task curves come one figure a method and proportion."""
    if kind != "tasks":
        yield "", records
        return
    for (method, proportion), some in trials.by_row(records).items():
        plain = "".join(letter if letter.isalnum() else "-" for letter in method)
        yield f"-{plain}" + ("" if proportion is None else f"-{proportion:g}"), some


__all__ = [
    "KINDS",
    "draw",
    "energy_curves",
    "energy_tells",
    "frontier",
    "heat_map",
    "lost_attractors",
    "memory_images",
    "over_tasks",
    "pseudo_items",
    "response",
    "row_bars",
    "save",
    "searches",
    "table2_bars",
    "task_curves",
]
