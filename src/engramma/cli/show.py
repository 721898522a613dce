"""What is seen in the terminal: progress with the time left, tables of accuracies, measures."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from engramma.checks import visible
from engramma.runs.terminal import Terminal

if TYPE_CHECKING:
    from engramma.experiment import Experiment
    from engramma.runs.study import Outcome, Work
    from engramma.store.records import Record
    from engramma.studies import Run

out = Terminal()
err = Terminal(stderr=True)


def outcome(found: Outcome, store: Path) -> None:
    """How many runs were trained, and where they are."""
    out.print(f"{runs(found.ran)} trained, {found.found} found; records in {store}", soft_wrap=True)


def runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def thresholds(experiments: Sequence[Experiment]) -> None:
    """What was chosen for data of the user's own, where it was left to us."""
    from engramma.checks import stream_class
    from engramma.streams import ClassStream
    from engramma.streams.datasets import is_path, kept

    ours = [e for e in experiments if issubclass(stream_class(e.stream), ClassStream)]
    for path in sorted({e.data for e in ours if e.binary and e.threshold is None and is_path(e.data)}):
        if not os.path.exists(path):
            continue  # what was run on them may still be shown
        own = kept(path)
        low, high = float(own.x.min()), float(own.x.max())
        out.print(
            f"{path}: a pixel above {own.threshold:g} is on, the middle of {low:g} to {high:g} "
            "(--threshold sets another)",
            markup=False, soft_wrap=True,
        )  # fmt: skip


class Log(logging.Handler):
    """Warnings, above the progress bar and not through it."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(f"engramma: {visible(record.getMessage())}", style="yellow", soft_wrap=True)


@contextmanager
def warnings() -> Iterator[None]:
    """What the package warns of, shown as everything else is."""
    log, handler = logging.getLogger("engramma"), Log()
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before


@contextmanager
def progress() -> Iterator[Work]:
    """A bar with the time left, moved by what a study tells of its work. It is there while there is work: of
    a study that finds all its runs nothing is seen, and when the work ends the bar says how long it took."""
    from rich import progress as bars

    from engramma.runs.study import Work

    class Left(bars.TimeRemainingColumn):
        def render(self, task: bars.Task) -> Text:
            return Text("") if task.finished else super().render(task).append(" left")

    columns = (
        bars.TextColumn("{task.description}", markup=False, table_column=None),
        bars.BarColumn(bar_width=None),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        Left(compact=True),
    )
    shown = bars.Progress(*columns, console=err, expand=True)
    task = shown.add_task("getting ready", total=None, start=False)
    work = Work()

    def change(work: Work) -> None:
        if not shown.live.is_started:
            shown.start_task(task)
            shown.start()
        doing = visible(work.doing) or "getting ready"
        shown.update(task, total=work.total, completed=work.done, description=doing)

    work.on_change = change
    try:
        yield work
        if shown.live.is_started:
            shown.update(task, total=1, completed=1, description="done")
    finally:
        if shown.live.is_started:
            shown.stop()


def spread(values: Sequence[float] | np.ndarray, digits: int = 3) -> str:
    """mean+-sd of trials; diverged ones are left out and counted."""
    from engramma.show import labels
    from engramma.show.agreement import Cell

    sound = [v for v in values if not np.isnan(v)]
    lost = f" ({len(values) - len(sound)} diverged)" if len(sound) < len(values) else ""
    if not sound:
        return "diverged"
    cell = Cell(np.array(sound))
    return f"{labels.spread(cell.mean, cell.sd, digits)}{lost}"


def label(record: Record) -> str:
    from engramma.show import labels

    told = record.description
    return f"{visible(labels.run(told['method'], told['strength']))}, {labels.vertex(told['vertex'])}"


def results(records: Sequence[Record]) -> None:
    """Every task after every task, and the measures, for each setting over its seeds."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        key = {k: v for k, v in record.description.items() if k not in ("seed", "fork")}
        name, first = next(iter(record.scores.items()))
        groups.setdefault(repr((key, name, first.shape)), []).append(record)
    for group in groups.values():
        matrix(group)
        measures(group)


def matrix(records: Sequence[Record]) -> None:
    """Score of each task (columns) after each task (rows), mean and sd over the records."""
    name, first = next(iter(records[0].scores.items()))
    tasks = len(first)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        title=f"{label(records[0])}: {visible(name)} of each task after each, {_seeds(records)}",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("after")
    shown = range(tasks) if tasks <= 10 else range(tasks - 10, tasks)
    for j in shown:
        table.add_column(f"task {j + 1}" if tasks <= 5 else str(j + 1), justify="right", no_wrap=True)
    for k in range(tasks):
        cells = [[float(r.scores[name][k, j]) for r in records] for j in shown]
        texts = [spread(cell) if tasks <= 5 else spread(cell, 2).partition("±")[0] for cell in cells]
        table.add_row(f"task {k + 1}" if tasks <= 5 else str(k + 1), *texts)
    out.print(table)


def measures(records: Sequence[Record]) -> None:
    """What the scores say, mean and sd over the records; and the curves, where all have them."""
    from engramma.store.scores import OF_CURVES, OF_SCORES, followed, value

    name = next(iter(records[0].scores))
    rows = [
        (f"average {name}", "average", "all tasks, at the end"),
        (f"smallest own {name}", "smallest_own", "the worst task just after it was learned"),
        ("forgetting", "forgetting", "best before the last task, less the final"),
        ("backward transfer", "backward_transfer", "final, less just after learning"),
        ("forward transfer", "forward_transfer", "just before learning, less untrained"),
        (f"worst {name} since", "min_accuracy", "of a task after it was learned, at any evaluation"),
        ("stability gap", "stability_gap", "lost while another task is learned, and there again after it"),
    ]
    curved = all(name in r.curves for r in records)
    whole = curved and all(followed(r) for r in records)
    rows = [row for row in rows if row[1] in OF_SCORES or (whole if row[1] in OF_CURVES else curved)]
    table = Table(box=None, show_header=False, padding=(0, 1))
    for title, measure, meaning in rows:
        values = [value(record, measure, name) for record in records]
        table.add_row(visible(title), spread(values), Text(meaning, "dim"))
    out.print(table)
    for record in records:
        if record.diverged:
            where = record.diverged
            out.print(
                f" seed {record.description['seed']} diverged in task {where['task'] + 1}, "
                f"epoch {where['epoch']}: left out",
                style="yellow",
            )
    out.print()


def overview(title: str, runs: Sequence[Run], records: Sequence[Record]) -> None:
    """Rows by vertices: mean and sd of the final average; of several strengths the best, which is named."""
    from engramma.show import labels

    cells: dict[tuple[str, float], dict[Any, list[float]]] = {}
    for run, record in zip(runs, records, strict=True):
        e = run.experiment
        varied = (e.strength, e.learning_rate, e.initial_temperature)
        cells.setdefault((run.row, e.vertex), {}).setdefault(varied, []).append(record.average)
    vertices = sorted({vertex for _, vertex in cells})
    several = any(len(found) > 1 for found in cells.values())
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title=title, title_justify="left", title_style="bold")
    table.add_column("" if not several else "best of")
    for vertex in vertices:
        table.add_column(labels.vertex(vertex), justify="right", no_wrap=True)
    for row in dict.fromkeys(row for row, _ in cells):
        texts = []
        for vertex in vertices:
            found = cells.get((row, vertex), {})
            means = {k: np.nanmean(v) for k, v in found.items() if not np.isnan(v).all()}
            best = max(means, key=lambda k: means[k]) if means else next(iter(found), None)
            text = Text(spread(found[best]) if found else "-")
            if several and best and len(found) > 1:
                where = f"at {best[0]:g}" if best[0] is not None else f"at {best[1]:g}, T {best[2]:g}"
                text.append(f"\n{where}", "dim")
            texts.append(text)
        table.add_row(row, *texts)
    out.print(table)


def _seeds(records: Sequence[Record]) -> str:
    return f"{len(records)} seeds" if len(records) > 1 else f"seed {records[0].description['seed']}"


def seconds(value: float) -> str:
    """About how long, in words."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if value >= 1.5 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} seconds"


def size(value: float) -> str:
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
