"""What runs found, side by side: arrays over all of them, or a table with a row for each."""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engramma.experiment import Experiment
from engramma.runs import study
from engramma.runs.options import Options
from engramma.store import scores
from engramma.store.records import Record, Store
from engramma.store.select import parsed, setting, where

MEASURES = ("average", "forgetting", "backward_transfer")  # of each run, in its row


@dataclass(frozen=True, repr=False)
class Result:
    """The records of runs, in their order. Axis 0 of every array is the runs; one that diverged is NaN."""

    records: list[Record]

    def __post_init__(self) -> None:
        if not self.records:
            raise ValueError("a result must be of at least one run")

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        found = scores.values(self.records)  # of those that finished
        mean = f"average {found.mean():.3f}" if len(found) else "all diverged"
        return f"Result({len(self)} runs, {mean})"

    def __getitem__(self, place: int) -> Record:
        return self.records[place]

    def where(self, *named: str, **settings: Any) -> Result:
        """Those of the runs that have these settings: where(method="ewc", vertex=[2, 20]), or as the command
        line names them, where("ewc@100")."""
        found = self.records
        for wanted in (*map(parsed, named), settings):
            found = where(found, wanted)
        return Result(found)

    def by(self, *names: str) -> dict[Any, Result]:
        """The runs by the values that they have of a setting, or of several; in the order of the runs."""
        parts: dict[Any, list[Record]] = {}
        for record in self.records:
            told = tuple(setting(record, name) for name in names)
            key = tuple(v if isinstance(v, Hashable) else repr(v) for v in told)
            parts.setdefault(key if len(names) > 1 else key[0], []).append(record)
        return {key: Result(some) for key, some in parts.items()}

    @property
    def accuracy(self) -> np.ndarray:
        """(R,T,T): of task j after task k was learned. (Of a stream without classes, what it measures in
        its place: the share of states recalled.)"""
        return _alike([next(iter(r.scores.values())) for r in self.records], "equally many tasks")

    @property
    def average(self) -> np.ndarray:
        """(R,): mean over all tasks after the last one."""
        return self.measured("average")

    def measured(self, measure: str) -> np.ndarray:
        """(R,): average, forgetting, backward_transfer or smallest_own."""
        return np.array([scores.value(record, measure) for record in self.records])

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """{"epoch": (E,), "accuracy": (R,E,T), ...}: measured while they learned, epochs over all tasks; NaN
        where a run does not have the score."""
        found = {k: _alike([_curve(r, k) for r in self.records], "the same curves") for k in self._curves}
        if (found["epoch"] != found["epoch"][0]).any():
            raise ValueError(
                "curves must be measured at the same epochs to be one array: see frame('curves')"
            )
        return {**found, "epoch": found["epoch"][0]}

    @property
    def _curves(self) -> list[str]:
        return list(dict.fromkeys(name for record in self.records for name in record.curves))

    def frame(self, what: str = "runs") -> Any:
        """A pandas DataFrame, or where there is no pandas {column: list}.

        "runs": a row for each, with its settings and measures. "curves": a row for each run, epoch and task,
        with the settings in which the runs differ.
        """
        if what not in ("runs", "curves"):
            raise ValueError(f"frame must be of runs or curves, not {what!r}")
        settings = [_settings(record) for record in self.records]
        names = list(dict.fromkeys(name for told in settings for name in told))
        about = [{name: told.get(name) for name in names} for told in settings]
        rows: list[dict[str, Any]] = []
        if what == "runs":
            measured = {measure: self.measured(measure) for measure in MEASURES}
            for k, record in enumerate(self.records):
                found = {measure: float(values[k]) for measure, values in measured.items()}
                rows.append(
                    {"run": record.name, **about[k], **found, "diverged": record.diverged is not None}
                )
            return table(rows)
        varied = [name for name in names if any(told[name] != about[0][name] for told in about)]
        for told, record in zip(about, self.records, strict=True):
            own = {"run": record.name, **{name: told[name] for name in varied}}
            for point, epoch in enumerate(record.curves["epoch"].tolist()):
                for task in range(record.description["tasks"]):
                    found = {k: _number(record.curves, k, point, task) for k in self._curves if k != "epoch"}
                    rows.append({**own, "epoch": epoch, "task": task, **found})
        return table(rows)


def run(
    experiments: Experiment | Iterable[Experiment],
    store: str | Path | Store | None = None,
    device: str = "auto",
    kernel: str = "auto",
    data_dir: str | Path | None = None,
    processes: int = 0,
    **keep: Any,  # and whatever else `Options` has: curve_every, keep_memories, keep_checkpoints
) -> Result:
    """Train what has not been trained yet, as many runs at once as fit, and give what all of them found.

    With a `store` (a folder) records are kept, and what it has is not run again; without one they are in the
    result alone. `processes` share the work; 0: as many as suit it.
    """
    wanted = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    if strange := [e for e in wanted if not isinstance(e, Experiment)]:
        raise ValueError(f"runs must be Experiments, not {type(strange[0]).__name__}")
    if not wanted:
        raise ValueError("runs must be at least one Experiment")
    options = Options(device, kernel, data_dir, processes=processes, **keep)
    if store is not None:
        place = store if isinstance(store, Store) else Store(store)
        return Result(study.run(wanted, place, options).records)
    with tempfile.TemporaryDirectory(prefix="engramma-") as folder:
        return Result([_held(record) for record in study.run(wanted, Store(folder), options).records])


def load(store: str | Path | Store | Sequence[str | Path | Store] = "runs") -> Result:
    """All sound records of a store, or of several."""
    many = [store] if isinstance(store, str | Path | Store) else store
    found = {r.name: r for s in many for r in (s if isinstance(s, Store) else Store(s))}
    if not found:
        raise ValueError(f"there are no records in {', '.join(str(getattr(s, 'path', s)) for s in many)}")
    return Result(list(found.values()))


def _held(record: Record) -> Record:
    """With its memories in it, its folder being about to go."""
    tasks = range(record.description["tasks"])
    kept = [found for task in tasks if (found := record.memories(task)) is not None]
    return replace(record, kept=tuple(kept), folder=None)


def _alike(arrays: Sequence[np.ndarray | None], what: str) -> np.ndarray:
    there = [array for array in arrays if array is not None]
    if len(there) < len(arrays) or len({array.shape for array in there}) > 1:
        raise ValueError(f"runs must have {what} to be one array: look at them one by one, in `records`")
    return np.stack(there)


def _curve(record: Record, name: str) -> np.ndarray:
    found = record.curves.get(name)
    return np.full_like(record.curves[next(iter(record.scores))], np.nan) if found is None else found


def _settings(record: Record) -> dict[str, Any]:
    """As one row: a method's own are named settings.NAME."""
    told = dict(record.description)
    own = told.pop("settings", None) or {}
    return {**told, **{f"settings.{name}": value for name, value in own.items()}}


def _number(curves: Mapping[str, np.ndarray], name: str, point: int, task: int) -> float:
    return float(curves[name][point, task]) if name in curves else float("nan")


def table(rows: list[dict[str, Any]]) -> Any:
    """Rows as a pandas DataFrame, or where there is no pandas as {column: list}."""
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    try:
        import pandas  # type: ignore[import-not-found]
    except ImportError:
        return columns
    return pandas.DataFrame(columns)
