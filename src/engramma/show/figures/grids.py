"""Heat maps of the general search: learning rate by temperature, one panel a vertex."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from engramma.show import labels
from engramma.show import select as trials
from engramma.show.figures import style
from engramma.store import scores
from engramma.store.scores import Recorded

NAMES = {
    "learning_rate": "learning rate",
    "initial_temperature": "temperature",
    "average": "average accuracy",
    "smallest_own": "smallest own-task accuracy",
}


@style.styled
def heat_map(
    records: Sequence[Recorded],
    measure: str = "smallest_own",
    x: str = "initial_temperature",
    y: str = "learning_rate",
    chosen: tuple[float, float] | None = None,
) -> Figure:
    """Mean of `measure` over trials in each cell. A frame marks `chosen` (x, y): where None, the cell
    with the highest mean over all vertices."""
    if not records:
        raise ValueError("no records to draw a heat map of")
    across, down = (list(trials.group(records, name)) for name in (x, y))
    vertices = trials.group(records, "vertex")
    maps = {vertex: _means(runs, x, y, across, down, measure) for vertex, runs in vertices.items()}
    whole = np.stack(list(maps.values()))
    finite = whole[np.isfinite(whole)]
    if not len(finite):
        raise ValueError("every run of the grid diverged: nothing to draw")
    column, row = _place(whole, across, down, chosen)
    scale = Normalize(float(finite.min()), float(finite.max()) or 1.0)
    figure, axes = style.panels(len(maps), 2.35, sharex=True, sharey=True)
    image = None
    for place, (vertex, means) in zip(axes, maps.items(), strict=True):
        place.grid(False)
        image = place.imshow(means, origin="lower", aspect="auto", norm=scale)
        place.set_facecolor("#d0d0d0")  # seen through cells without a number
        place.set_title(f"${labels.vertex(vertex)}$")
        frame = {"edgecolor": style.COLOURS[1], "linewidth": 2, "fill": False, "clip_on": False, "zorder": 3}
        place.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **frame))
        place.set_xticks(
            range(len(across)), [_said(v) for v in across], rotation=45 if len(across) > 6 else 0
        )
        place.set_yticks(range(len(down)), [_said(v) for v in down])
        for (i, j), mean in np.ndenumerate(means):
            if not np.isfinite(mean):
                text = "div." if _tried(vertices[vertex], {x: across[j], y: down[i]}) else "none"
                place.text(j, i, text, ha="center", va="center", fontsize=6, color="black")
            elif max(len(across), len(down)) <= 8:
                colour = "white" if scale(mean) < 0.5 else "black"
                place.text(j, i, f"{mean:.2f}", ha="center", va="center", fontsize=6, color=colour)
        style.edge_labels(place, NAMES.get(x, x), NAMES.get(y, y))
    assert image is not None
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    bar.set_label(NAMES.get(measure, measure.replace("_", " ")))
    return figure


def _said(value: float | str) -> str:
    """A temperature may be "auto"."""
    return value if isinstance(value, str) else f"{value:g}"


def _means(
    runs: Sequence[Recorded], x: str, y: str, across: list[float], down: list[float], measure: str
) -> np.ndarray:
    """(down, across) means over the trials that finished; NaN where none did."""
    cells = trials.group(runs, y, x)
    found = np.full((len(down), len(across)), np.nan)
    for (row, column), some in cells.items():
        trials.check_alike(some, f"cell {y} {row}, {x} {column}", ("seed", "final_temperature"))
        finished = scores.values(some, measure)
        if len(finished):
            found[down.index(row), across.index(column)] = finished.mean()
    return found


def _tried(runs: Sequence[Recorded], cell: dict[str, float]) -> bool:
    return any(all(trials.setting(r, k) == v for k, v in cell.items()) for r in runs)


def _place(
    maps: np.ndarray, across: list[float], down: list[float], chosen: tuple[float, float] | None
) -> tuple[int, int]:
    if chosen is not None:
        if chosen[0] not in across or chosen[1] not in down:
            raise ValueError(f"chosen must be a cell of the grid, not {chosen}")
        return across.index(chosen[0]), down.index(chosen[1])
    # A cell that diverged at one vertex is no choice for all.
    means = np.where(np.isfinite(maps).all(0), np.where(np.isfinite(maps), maps, 0).mean(0), -np.inf)
    row, column = np.unravel_index(int(means.argmax()), means.shape)
    return int(column), int(row)
