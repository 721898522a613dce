"""What runs found, side by side: arrays over all of them, or a table with a row for each."""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engramma.experiment import Experiment
from engramma.runs import frames, study
from engramma.runs.opened import Run
from engramma.runs.options import Options
from engramma.store import scores
from engramma.store.records import Record, Store
from engramma.store.select import parsed, setting, where


@dataclass(frozen=True, repr=False)
class Result:
    """The records of runs, in their order. Axis 0 of every array is the runs; one that diverged is NaN."""

    records: list[Run]

    def __post_init__(self) -> None:
        if not self.records:
            raise ValueError("a result must be of at least one run")
        object.__setattr__(self, "records", [Run.of(record) for record in self.records])  # also by hand

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.records)

    def __repr__(self) -> str:
        found = scores.values(self.records)  # of those that finished
        mean = f"average {found.mean():.3f}" if len(found) else "all diverged"
        return f"Result({len(self)} runs, {mean})"

    def __getitem__(self, place: int) -> Run:
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
        parts: dict[Any, list[Run]] = {}
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
        """(R,): average, forgetting, backward_transfer, forward_transfer or smallest_own."""
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

    def rows(self, what: str = "runs") -> list[dict[str, Any]]:
        """The rows of `frame`, as they are."""
        return frames.rows(self.records, what)

    def frame(self, what: str = "runs") -> Any:
        """A pandas DataFrame, or where there is no pandas {column: list}.

        "runs": a row for each, with every setting, its measures and the final score of each task. "scores": a
        row for each run, task learned (`after`) and task tested. "curves": one for each run, epoch and task.
        """
        return frames.table(self.rows(what))


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
        return _of(study.run(wanted, place, options).records)
    with tempfile.TemporaryDirectory(prefix="engramma-") as folder:
        return _of([_held(record) for record in study.run(wanted, Store(folder), options).records])


def load(store: str | Path | Store | Sequence[str | Path | Store] = "runs") -> Result:
    """All sound records of a store, or of several."""
    many = [store] if isinstance(store, str | Path | Store) else store
    found = {r.name: r for s in many for r in (s if isinstance(s, Store) else Store(s))}
    if not found:
        raise ValueError(f"there are no records in {', '.join(str(getattr(s, 'path', s)) for s in many)}")
    return _of(found.values())


def _of(records: Iterable[Record]) -> Result:
    return Result([Run.of(record) for record in records])


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
