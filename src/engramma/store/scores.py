"""What a record says, as one number: its average, its forgetting, any score it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from engramma import measures
from engramma.checks import unknown


class Recorded(Protocol):
    """What is asked of a record: one run of one replica."""

    @property
    def description(self) -> Mapping[str, Any]: ...
    @property
    def scores(self) -> Mapping[str, np.ndarray]: ...  # (T,T): task j after task k
    @property
    def curves(self) -> Mapping[str, np.ndarray]: ...  # "epoch" (E,), others (E,T)
    @property
    def facts(self) -> Mapping[str, Any]: ...  # of how it went, among them its method's report
    @property
    def diverged(self) -> Mapping[str, Any] | None: ...

    def memories(self, task: int) -> np.ndarray | None: ...


MEASURES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "average": measures.average,
    "smallest_own": measures.smallest_own,
    "forgetting": measures.forgetting,
    "backward_transfer": measures.backward_transfer,
}


def value(record: Recorded, measure: str = "average", score: str | None = None) -> float:
    """One number for a run; NaN where it diverged. `score` None takes the record's first."""
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    name = score or next(iter(record.scores), "")
    if name not in record.scores:
        raise unknown("score", name, record.scores)
    if record.diverged is not None:
        return float("nan")
    table = torch.as_tensor(np.asarray(record.scores[name], dtype=np.float64))
    return float(MEASURES[measure](table[None])[0])


def values(records: Iterable[Recorded], measure: str = "average", score: str | None = None) -> np.ndarray:
    """(trials,) of the runs that finished: a diverged one has no value."""
    found = np.array([value(record, measure, score) for record in records], dtype=np.float64)
    return found[np.isfinite(found)]


def scored(records: Sequence[Recorded], score: str | None) -> list[Recorded]:
    """Those that have a score, which not every method's do; all where none does, or none is named."""
    return [record for record in records if score in record.scores] or list(records)


def diverged(records: Iterable[Recorded]) -> int:
    return sum(not np.isfinite(value(record)) for record in records)
