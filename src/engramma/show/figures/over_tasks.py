"""How much of what was learned is left as the tasks become more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from engramma.show import labels
from engramma.show import select as trials
from engramma.show.figures import style
from engramma.store.scores import Recorded, values

DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 4)))  # five, beside eight markers: 40 looks


@style.styled
def over_tasks(records: Sequence[Recorded], score: str | None = None) -> Figure:
    """Average accuracy after the last task over the number of tasks, mean and sd over seeds: a colour a
    vertex, a dash and a marker a method, solid the one with most numbers of tasks. What was not run is
    not there."""
    if not records:
        raise ValueError("no records to draw over the number of tasks")
    rows = trials.by_row(records)
    keys = sorted(rows, key=lambda key: -len(trials.group(rows[key], "tasks")))
    colours = style.vertex_colours(trials.setting(record, "vertex") for record in records)
    figure, (axes,) = style.panels(1, 2.2 + 0.08 * (len(keys) + len(colours)))  # room for the legend
    for k, key in enumerate(keys):
        label = labels.row(*key)
        look: dict[str, Any] = {
            "marker": style.MARKERS[k % len(style.MARKERS)],
            "ls": DASHES[k % len(DASHES)],
            "fillstyle": "none" if k else "full",
        }
        for vertex, runs in trials.group(rows[key], "vertex").items():
            where = f"{label}, {labels.vertex(vertex)}, over tasks"
            trials.check_alike(runs, where, ("seed", "tasks"))
            found = {tasks: values(some, score=score) for tasks, some in trials.group(runs, "tasks").items()}
            sound = {tasks: each for tasks, each in found.items() if len(each)}
            axes.errorbar(
                list(sound),
                [each.mean() for each in sound.values()],
                [trials.deviation(each) for each in sound.values()],
                color=style.COLOURS[colours[float(vertex)]], markersize=3.5, capsize=2, **look,
            )  # fmt: skip
        if len(keys) > 1:
            axes.plot([], [], color="0.4", markersize=3.5, label=style.literal(label), **look)
    for vertex, colour in colours.items():
        axes.plot([], [], color=style.COLOURS[colour], label=f"${labels.vertex(vertex)}$")
    if lost := sum(record.diverged is not None for record in records):
        style.note(axes, f"{lost} of {len(records)} runs diverged", fill=lost == len(records))
    counts = sorted({trials.setting(record, "tasks") for record in records})
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{count}" for count in counts])
    axes.set_xticks([], minor=True)
    axes.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
    axes.set_xlabel("tasks")
    name = score or next(iter(records[0].scores))
    axes.set_ylabel(f"average {style.literal(name.replace('_', ' '))}")
    if len(keys) == 1:
        axes.set_title(style.literal(labels.row(*keys[0])))
    style.legend_below(figure, axes)
    return figure
