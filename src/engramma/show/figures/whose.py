"""Whether the energy tells whose an item is: how well groups of memories know their own items and others'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from engramma.methods import Grouped
from engramma.show import labels
from engramma.show import select as trials
from engramma.show.figures import style
from engramma.show.figures.memories import Trained, trained
from engramma.store.scores import Recorded
from engramma.streams import ClassStream

LINEAR = 3.0  # deviations up to which the axis is linear: most own items lie within, others' hundreds below
BINS = 60
TICKS = (-1000, -300, -100, -30, -10, -3, 0, 3, 10)


def told_apart(run: Trained) -> tuple[np.ndarray, np.ndarray]:
    """z of the test items of all tasks (B,): under their own group, and under the best of the others."""
    network = run.network
    if not isinstance(network, Grouped) or network.owner is None or not isinstance(run.stream, ClassStream):
        raise ValueError("energies are drawn of runs whose memories stand in groups: of allocation")
    own, others, owner = [], [], network.owner[0].tolist()
    for task in range(len(run.stream)):
        known = network.known(run.theta, run.stream.test(task).probe)[0].numpy()  # (B,G)
        mine = sorted({owner[same] for same in run.stream.same(task)})  # a task that came again may have two
        if known.shape[1] == len(mine):
            raise ValueError("energies are drawn of tasks with groups apart: here all have learned the same")
        own.append(known[:, mine].max(1))
        others.append(np.delete(known, mine, 1).max(1))
    return np.concatenate(own), np.concatenate(others)


def _folded(z: np.ndarray) -> np.ndarray:
    """Linear up to LINEAR and logarithmic beyond, as matplotlib's symlog: so that bins are equally wide."""
    size = np.abs(z) / LINEAR
    return np.sign(z) * np.where(size > 1, 1 + np.log10(np.maximum(size, 1)), size)


def _unfolded(place: np.ndarray) -> np.ndarray:
    size = np.abs(place)
    return np.sign(place) * LINEAR * np.where(size > 1, 10 ** (size - 1), size)


@style.styled
def energy_tells(records: Sequence[Recorded], data_dir: Path | str | None = None) -> Figure:
    """The calibrated energy of test items, in deviations from the items a group has learned: under the group
    of their own task, and under the best of all others. A panel for each setting, of its first seed whose
    memories were kept."""
    differ = list(trials.differing(records))
    found: dict[str, Trained] = {}
    for runs in (trials.group(records, *differ) if differ else {"": list(records)}).values():
        for record in sorted(runs, key=lambda r: trials.setting(r, "seed")):
            if record.diverged is None and record.memories(trials.setting(record, "tasks") - 1) is not None:
                found[_title(record)] = trained(record, data_dir)
                break
    if not found:
        raise ValueError("no record has its memories: run with --keep-memories to keep them")
    figure, axes = style.panels(len(found), 1.7)
    for place, (title, run) in zip(axes, sorted(found.items()), strict=True):
        own, others = told_apart(run)
        ends = np.array([min(own.min(), others.min()), max(own.max(), others.max())])
        low, high = _folded(ends).tolist()
        edges = _unfolded(np.linspace(low, high, BINS))
        edges[[0, -1]] = ends  # exactly, or rounding loses the outermost items
        for z, colour, name in (
            (own, style.COLOURS[0], "under the group of its task"),
            (others, style.COLOURS[1], "under the best of the others"),
        ):
            shares = np.full(len(z), 1 / len(z))
            place.hist(z, edges.tolist(), weights=shares, color=colour, alpha=0.6, label=name)
        place.set_xscale("symlog", linthresh=LINEAR)
        place.set_xticks(ticks := [z for z in TICKS if edges[0] <= z <= edges[-1]], [f"{z:g}" for z in ticks])
        place.set_xticks([], minor=True)
        place.set_title(f"{title}: named {(own > others).mean():.3f}")
        style.edge_labels(place, "calibrated energy (deviations)", "share of items")
    style.legend_below(figure, axes[0])
    return figure


def _title(record: Recorded) -> str:
    stream, angle = trials.setting(record, "stream"), trials.setting(record, "angle")
    turned = f" by {angle:g}°" if stream == "rotated" else ""
    return style.literal(f"{stream}{turned}") + f", ${labels.vertex(trials.setting(record, 'vertex'))}$"
