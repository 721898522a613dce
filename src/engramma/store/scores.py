"""What a record says, as one number: its average, its forgetting, any score it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from engramma import measures


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


Measure = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of scores (R,T,T) and untrained ones (R,T)
MEASURES: dict[str, Measure] = {
    "average": lambda scores, _: measures.average(scores),
    "smallest_own": lambda scores, _: measures.smallest_own(scores),
    "forgetting": lambda scores, _: measures.forgetting(scores),
    "backward_transfer": lambda scores, _: measures.backward_transfer(scores),
    "forward_transfer": measures.forward_transfer,
}


def value(record: Recorded, measure: str = "average", score: str | None = None) -> float:
    """One number for a run; NaN where it diverged, and forward transfer where its curves do not say how an
    untrained network scores. `score` None takes the record's first."""
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {', '.join(MEASURES)}, not {measure!r}")
    name = score or next(iter(record.scores), "")
    if name not in record.scores:
        raise ValueError(f"score must be one of {', '.join(record.scores)}, not {name!r}")
    if record.diverged is not None:
        return float("nan")
    table = torch.as_tensor(np.asarray(record.scores[name], dtype=np.float64))
    return float(MEASURES[measure](table[None], torch.as_tensor(_untrained(record, name))[None])[0])


def _untrained(record: Recorded, score: str) -> np.ndarray:
    """(T,): what it scored before anything was learned; NaN where that was not measured."""
    epoch, curve = record.curves.get("epoch"), record.curves.get(score)
    if epoch is None or curve is None or not len(epoch) or epoch[0] != 0:
        return np.full(len(record.scores[score]), np.nan)
    return np.asarray(curve[0], dtype=np.float64)


def values(records: Iterable[Recorded], measure: str = "average", score: str | None = None) -> np.ndarray:
    """(trials,) of the runs that finished: a diverged one has no value."""
    found = np.array([value(record, measure, score) for record in records], dtype=np.float64)
    return found[np.isfinite(found)]


def scored(records: Sequence[Recorded], score: str | None) -> list[Recorded]:
    """Those that have a score, which not every method's do; all where none does, or none is named."""
    return [record for record in records if score in record.scores] or list(records)


def diverged(records: Iterable[Recorded]) -> int:
    return sum(not np.isfinite(value(record)) for record in records)
