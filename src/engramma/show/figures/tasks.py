"""Accuracy of every task while training goes on, and recall in the appendix's lost-attractors example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engramma.show import labels
from engramma.show import select as trials
from engramma.show.figures import style
from engramma.store.scores import Recorded


@style.styled
def task_curves(records: Sequence[Recorded], score: str | None = None) -> Figure:
    """One panel a vertex, one line a task, band over seeds, a dotted line where a task ends. The records
    are of one row of Table 2: only the penalties' lambda may differ between vertices."""
    known = [r for r in records if len(r.curves.get("epoch", ()))]
    if not known:
        raise ValueError("no records with curves to draw")
    name = score or next(name for name in known[0].curves if name != "epoch")
    vertices = trials.group(known, "vertex")
    figure, axes = style.panels(len(vertices), 1.9, sharex=True, sharey=True)
    for place, (vertex, runs) in zip(axes, vertices.items(), strict=True):
        trials.check_alike(runs, f"task curves, {labels.vertex(vertex)}")
        sound = _sound(place, runs)
        if sound:
            _curves(place, sound, name)
        place.set_title(f"${labels.vertex(vertex)}$")
        style.edge_labels(place, "epoch", style.literal(name.replace("_", " ")))
    axes[0].set_ylim(0, 1.02)
    figure.suptitle(style.literal(", ".join(trials.row_labels(known))))
    style.legend_below(figure, style.fullest(axes))
    return figure


def _sound(axes: Axes, runs: Sequence[Recorded]) -> list[Recorded]:
    """The runs that finished; the panel says how many did not."""
    sound = [r for r in runs if r.diverged is None]
    if len(sound) < len(runs):
        style.note(axes, f"{len(runs) - len(sound)} of {len(runs)} runs diverged", fill=not sound)
    return sound


def _curves(axes: Axes, runs: Sequence[Recorded], score: str) -> None:
    epoch = np.asarray(runs[0].curves["epoch"])
    if any(not np.array_equal(r.curves["epoch"], epoch) for r in runs):
        raise ValueError("the records' curves were taken at different epochs: draw one kind at a time")
    curves = np.stack([np.asarray(r.curves[score], dtype=float) for r in runs])  # (R,E,T)
    sd = trials.deviation(curves)
    for task in range(curves.shape[2]):
        colour = style.COLOURS[task % len(style.COLOURS)]
        dash = "-" if task < len(style.COLOURS) else "--"
        style.band(
            axes, epoch, curves[:, :, task].mean(0), sd[:, task], colour, label=f"task {task + 1}", ls=dash
        )
        if task:
            end = task * trials.setting(runs[0], "epochs")
            axes.axvline(end, color="0.4", lw=0.7, ls=":", zorder=1)
    axes.set_xlim(0, epoch[-1])


@style.styled
def lost_attractors(records: Sequence[Recorded], score: str = "recalled") -> Figure:
    """Bars: the share of each task's states that are `score` after each task, mean and sd over seeds,
    every seed a point. One panel a method and vertex."""
    known = [r for r in records if score in r.scores]
    if not known:
        raise ValueError(f"no records with the score {score}: this figure is of a stream of states")
    groups = trials.group(known, "method", "vertex")
    keys = sorted(groups, key=lambda key: trials.in_paper(key[0]))
    figure, axes = style.panels(len(groups), 1.9, sharey=True)
    for place, (method, vertex) in zip(axes, keys, strict=True):
        runs, label = groups[method, vertex], labels.method(method)
        trials.check_alike(runs, f"lost attractors, {label}, {labels.vertex(vertex)}")
        sound = _sound(place, runs)
        if sound:
            _shares(place, np.stack([np.asarray(r.scores[score], dtype=float) for r in sound]))
        place.grid(False, axis="x")
        place.set_title(f"{style.literal(label)}, ${labels.vertex(vertex)}$")
        place.set_ylim(0, 1.05)
        style.edge_labels(place, y=f"share {style.literal(score)}")
    style.legend_below(figure, style.fullest(axes))
    return figure


def _shares(axes: Axes, tables: np.ndarray) -> None:
    """Bars of (R,T,T) scores: a group for each task learned, in it a bar for each task asked for."""
    runs, tasks, _ = tables.shape
    wide = 0.8 / tasks
    for task in range(tasks):
        x = np.arange(tasks) + (task - (tasks - 1) / 2) * wide
        sd = trials.deviation(tables[:, :, task]) if runs > 1 else None  # no whisker of a single run
        axes.bar(
            x,
            tables[:, :, task].mean(0),
            0.9 * wide,
            yerr=sd,
            color=style.COLOURS[task % len(style.COLOURS)],
            alpha=0.75,
            capsize=2,
            error_kw={"elinewidth": 0.8, "capthick": 0.8},
            label=f"states of task {task + 1}",
        )
        shift = np.linspace(-0.25, 0.25, runs) * wide if runs > 1 else np.zeros(1)
        places = (x[None] + shift[:, None]).ravel()
        points = {"color": "0.15", "markersize": 1.8, "markeredgewidth": 0, "alpha": 0.7}
        axes.plot(places, tables[:, :, task].ravel(), "o", clip_on=False, zorder=3, **points)
    axes.set_xticks(range(tasks), [f"after task {k + 1}" for k in range(tasks)])
