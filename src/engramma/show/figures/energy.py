"""How the energy falls while states relax."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from engramma.replicas import generator
from engramma.show import labels
from engramma.show.figures import style
from engramma.show.figures.memories import Trained, by_vertex
from engramma.store.scores import Recorded


def along(run: Trained, start: Tensor, steps: int, order: str) -> np.ndarray:
    """(steps + 1, B): the energy of each state before the first update and after every one."""
    state = start.to(run.theta).expand(1, -1, -1)
    found = [run.network.energy(run.theta, state)[0]]
    for _ in range(steps):
        state = run.network.relax(run.theta, state, 1, order=order).state
        found.append(run.network.energy(run.theta, state)[0])
    return torch.stack(found).numpy()


def starts(run: Trained, count: int, noise: float) -> dict[str, Tensor]:
    """Random states, and test items of the first and the last task with some neurons turned over."""
    draw = generator(run.seed, "energy")
    random = draw.integers(0, 2, (1, count, run.network.neurons)) * 2 - 1
    found = {"random states": torch.as_tensor(random).to(run.theta)}
    for task in dict.fromkeys((0, len(run.stream) - 1)):
        test = run.stream.test(task)
        items = test.probe if run.stream.classes else test.target
        items = items[:1, :count].to(run.theta)
        turned = torch.as_tensor(draw.random(tuple(items.shape)) < noise)
        found[f"items of task {task + 1}"] = torch.where(turned, -items, items)
    return found


@style.styled
def energy_curves(
    records: Sequence[Recorded],
    count: int = 16,
    steps: int = 8,
    noise: float = 0.1,
    data_dir: Path | str | None = None,
) -> Figure:
    """Median energy of `count` states over updates of all neurons, at once (solid) and one after the other
    (dashed, which never rises); bands hold the middle half. One panel a vertex, after the last task."""
    runs = by_vertex(records, False, data_dir)
    figure, axes = style.panels(len(runs), 2.0)
    x = np.arange(steps + 1)
    for place, (vertex, run) in zip(axes, runs.items(), strict=True):
        for colour, (name, start) in zip(style.COLOURS, starts(run, count, noise).items(), strict=False):
            for order, dash in (("synchronous", "-"), ("asynchronous", "--")):
                found = along(run, start, steps, order)
                label = name if dash == "-" else None
                place.plot(x, np.median(found, 1), dash, color=colour, label=label)
                if dash == "-":
                    low, high = np.quantile(found, (0.25, 0.75), axis=1)
                    place.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        place.plot([], [], "-", color="0.4", label="all neurons at once")
        place.plot([], [], "--", color="0.4", label="one after the other")
        place.set_xlim(0, steps)
        place.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
        place.set_title(f"${labels.vertex(vertex)}$")
        style.edge_labels(place, "updates of every neuron", "energy")
    figure.suptitle(next(iter(runs.values())).label)
    style.legend_below(figure, axes[0])
    return figure
