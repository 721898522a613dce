"""Records made up for tests of tables and figures: what a record promises, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from engramma.replicas import Replicas
from engramma.show.figures import style
from engramma.streams import ClassStream

BASE: dict[str, Any] = {
    "data": "mnist",
    "stream": "permuted",
    "tasks": 5,
    "items": 10000,
    "test_share": 0.2,
    "task_id": True,
    "binary": True,
    "batch_size": "all",
    "memories": 512,
    "epochs": 500,
    "vertex": 2,
    "interaction": "leaky",
    "leak": 0.01,
    "method": "vanilla",
    "settings": {},
    "strength": None,
    "learning_rate": 0.08,
    "initial_temperature": 0.95,
    "final_temperature": 0.95,
    "seed": 0,
}


@dataclass(frozen=True)
class StandIn:
    description: dict[str, Any]
    scores: dict[str, np.ndarray]
    curves: dict[str, np.ndarray] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    diverged: dict[str, int] | None = None
    kept: np.ndarray | None = None  # (T,M,N)

    def memories(self, task: int) -> np.ndarray | None:
        return None if self.kept is None else self.kept[task]


def record(average: float = 0.5, diverged: bool = False, **settings: Any) -> StandIn:
    """A run whose average accuracy is `average`; its other scores vary around it."""
    description = {**BASE, **settings}
    tasks = description["tasks"]
    spread = np.linspace(-0.1, 0.1, tasks)
    table = np.stack([np.clip(average + 0.3 * (np.arange(tasks) == k) + spread, 0, 1) for k in range(tasks)])
    table[-1] = average + spread
    if diverged:
        table[-1] = np.nan
    epoch = np.arange(0, tasks * 20 + 1, 5)
    rise = 1 - np.exp(-epoch / 30)
    curves = {"epoch": epoch, "accuracy": rise[:, None] * (average + spread)}
    return StandIn(
        description, {"accuracy": table}, curves, {}, {"task": 4, "epoch": 7} if diverged else None
    )


def legible(figure: Figure) -> None:
    """Nothing cut off, no empty panel, finite limits, every panel with a title or labels, the right width."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.get_tightbbox(canvas.get_renderer())
    wide, high = figure.get_size_inches()
    assert wide in (style.COLUMN, style.FULL)
    assert box.x0 >= -0.01, "cut off on the left"
    assert box.y0 >= -0.01, "cut off below"
    assert box.x1 <= wide + 0.01, "cut off on the right"
    assert box.y1 <= high + 0.01, "cut off above"
    for axes in figure.axes:
        assert axes.has_data() or axes.texts, "an empty panel"
        assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()
        for text in [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.title, axes.xaxis.label]:
            assert not text.get_text() or text.get_fontsize() >= 5
    assert any(axes.get_ylabel() or axes.get_yticklabels() for axes in figure.axes)


DIGITS = {"data": "digits", "items": 200, "memories": 100, "tasks": 2, "epochs": 3, "seed": 3}


def stream_of(run: StandIn) -> ClassStream:
    from engramma.streams.datasets import digits

    return ClassStream(digits(), Replicas((run.description["seed"],)), tasks=2, items=200)


def with_memories(vertex: float = 10.0) -> StandIn:
    """Memories that are the items themselves: 4 of every class and task, so it is known what they show."""
    run = record(0.5, vertex=vertex, **DIGITS)
    stream = stream_of(run)
    rows = []
    for task in range(2):
        train = stream[task].train
        truth = train.target[0].argmax(-1)
        for c in range(10):
            some = train.probe[0, truth == c][:4].double()
            some[:, stream.pixels + 2 :] = -1
            some[:, stream.pixels + 2 + c] = 1
            rows.append(some)
    kept = torch.cat(rows).numpy()
    return StandIn(run.description, run.scores, run.curves, kept=np.stack([kept, kept]))
