"""Watching a run: a dashboard in the terminal, curves for TensorBoard. Both see the same three calls.

    start(experiments, built)   a pack of replicas begins
    update(moment, scores)      after every epoch; scores {name: (R,T)} where just measured, else None
    stop()                      the pack is done

The loss is computed when scores are, not every epoch: watching costs next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from torch import Tensor

from engramma.checks import visible
from engramma.experiment import VARYING, Experiment
from engramma.runs.pack import Watcher
from engramma.runs.setup import Built
from engramma.runs.study import Work
from engramma.runs.terminal import Terminal
from engramma.train import Moment


class Reading(NamedTuple):
    """What is known of a pack when its scores are measured; one entry a replica, on the CPU."""

    loss: list[float]
    own: list[float]  # of the task being learned
    average: list[float]  # of the tasks learned so far, this one included
    tasks: list[list[float]]  # of every task


def reading(built: Built, moment: Moment, scores: Mapping[str, Tensor]) -> Reading:
    found = next(iter(scores.values())).double().cpu()
    with torch.no_grad():
        loss = moment.network.loss(moment.theta, built.stream[moment.task].train).double().cpu()
    return Reading(
        loss.tolist(),
        found[:, moment.task].tolist(),
        found[:, : moment.task + 1].mean(1).tolist(),
        found.tolist(),
    )


class Dashboard:
    """A table of the replicas in training, redrawn in place. Use as a context: `with Dashboard() as watch`.

    `work` says how far the whole study is, (done, total) in any unit; without it, how far the pack is.
    """

    def __init__(
        self,
        work: Callable[[], tuple[float, float]] | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Terminal(stderr=True)
        self.work, self.clock = work, clock
        self.experiments: list[Experiment] = []
        self.built: Built | None = None
        self.place: tuple[int, int] | None = None  # (task, epoch) where training stands
        self.last: Reading | None = None
        self.began = clock()
        self.at_start: float | None = None  # work that was done before we began to watch
        self.live = Live(console=self.console, get_renderable=self.render, refresh_per_second=4)

    def __enter__(self) -> Dashboard:
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()

    def start(self, experiments: Sequence[Experiment], built: Built) -> None:
        self.experiments, self.built = list(experiments), built
        self.place, self.last = None, None
        if self.work is None:
            self.began, self.at_start = self.clock(), None

    def update(self, moment: Moment, scores: Mapping[str, Tensor] | None) -> None:
        self.place = moment.task, moment.epoch  # the memories are not held on to
        if scores is not None and self.built is not None:
            self.last = reading(self.built, moment, scores)

    def stop(self) -> None:
        self.live.refresh()

    def progress(self) -> tuple[float, float]:
        """(done, total): of the study where it is known, else of the pack in epochs."""
        if self.work is not None:
            return self.work()
        if not self.experiments:
            return 0.0, 1.0
        first, (task, epoch) = self.experiments[0], self.place or (0, 0)
        return float(task * first.epochs + epoch), float(first.tasks * first.epochs)

    def left(self) -> float | None:
        """Seconds to go, from the pace so far; None before there is one."""
        done, total = self.progress()
        if self.at_start is None:
            self.at_start, self.began = done, self.clock()
        pace = done - self.at_start
        return (self.clock() - self.began) * (total - done) / pace if pace > 0 else None

    def render(self) -> RenderableType:
        done, total = self.progress()
        left = self.left()
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(total, 1e-9), completed=done, width=40),
            f"{done / total if total else 0:4.0%}",
            "time left unknown" if left is None else f"{duration(left)} left",
        )
        if not self.experiments:
            return Group(Text("preparing"), bar)
        first, place = self.experiments[0], "preparing"
        if self.place is not None:
            task, epoch = self.place
            place = f"task {task + 1}/{first.tasks}, epoch {epoch}/{first.epochs}"
        head = Text(
            visible(f"{first.method}, n = {first.vertex:g}, {first.data}: ")
            + f"{len(self.experiments)} replicas; {place}"
        )
        return Group(head, bar, self._replicas())

    def _replicas(self) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="bold")
        varying = [k for k in VARYING if k == "seed" or len({getattr(e, k) for e in self.experiments}) > 1]
        for name in (*(v.replace("_", " ") for v in varying), "loss", "own", "average so far"):
            table.add_column(name, justify="right")
        room = max(3, self.console.height - 6)
        count = len(self.experiments)
        fit = count if count <= room else room - 1
        for row, experiment in enumerate(self.experiments[:fit]):
            settings = [_short(getattr(experiment, k)) for k in varying]
            table.add_row(*(Text(s) for s in settings), *self._numbers(row))
        if count > 1 and self.last is not None:
            means = [sum(values) / count for values in self.last[:3]]
            more = f"mean of {count}" if fit == count else f"mean of {count}, {count - fit} not shown"
            table.add_row(more, *[""] * (len(varying) - 1), *(f"{m:.4g}" for m in means), style="bold")
        return table

    def _numbers(self, row: int) -> list[str]:
        if self.last is None:
            return ["", "", ""]
        return [f"{self.last.loss[row]:.4g}", f"{self.last.own[row]:.3f}", f"{self.last.average[row]:.3f}"]


class TensorBoard:
    """Scalars of every replica, one run each, under `folder`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise ValueError(
                "tensorboard must be installed for --tensorboard: pip install 'engramma[tensorboard]'"
            ) from None
        self.folder, self.writer_class = Path(folder), SummaryWriter
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"tensorboard must be a folder, not the file {self.folder}")
        self.writers: list[Any] = []
        self.built: Built | None = None

    def start(self, experiments: Sequence[Experiment], built: Built) -> None:
        self.stop()
        self.built = built
        self.epochs = experiments[0].epochs
        self.writers = [self.writer_class(str(self.folder / run_name(e))) for e in experiments]

    def update(self, moment: Moment, scores: Mapping[str, Tensor] | None) -> None:
        if scores is None or self.built is None:
            return
        now, found = moment.task * self.epochs + moment.epoch, reading(self.built, moment, scores)
        for row, writer in enumerate(self.writers):
            writer.add_scalar("loss", found.loss[row], now)
            writer.add_scalar("own", found.own[row], now)
            writer.add_scalar("average so far", found.average[row], now)
            for task, score in enumerate(found.tasks[row]):
                writer.add_scalar(f"task/{task + 1}", score, now)

    def stop(self) -> None:
        for writer in self.writers:
            writer.close()
        self.writers = []


class Several:
    """Watchers that watch together."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = watchers

    def start(self, experiments: Sequence[Experiment], built: Built) -> None:
        for watcher in self.watchers:
            watcher.start(experiments, built)

    def update(self, moment: Moment, scores: Mapping[str, Tensor] | None) -> None:
        for watcher in self.watchers:
            watcher.update(moment, scores)

    def stop(self) -> None:
        for watcher in self.watchers:
            watcher.stop()


@contextmanager
def watching(
    work: Work,
    dashboard: bool = False,
    tensorboard: str | Path | None = None,
    console: Console | None = None,
) -> Iterator[Watcher]:
    """What `study.run(..., watch=work, watcher=...)` takes; the terminal is given back at the end."""
    logs: list[Watcher] = [] if tensorboard is None else [TensorBoard(tensorboard)]
    try:
        if dashboard:
            with Dashboard(lambda: (work.done, work.total), console) as board:
                yield Several([board, *logs])
        else:
            yield Several(logs)
    finally:
        for log in logs:
            log.stop()


def run_name(experiment: Experiment) -> str:
    """A folder's name that a person can read and that no other run has."""
    method = "".join(c if c.isalnum() else "-" for c in experiment.method)
    strength = "" if experiment.strength is None else f"-{experiment.strength:g}"
    return f"{method}{strength}-n{experiment.vertex:g}-seed{experiment.seed}-{experiment.name[:8]}"


def duration(seconds: float) -> str:
    """About how long, in the unit that fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
