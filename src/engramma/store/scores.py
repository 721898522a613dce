"""What a record says, as one number: its average, its forgetting, any score it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from engramma import measures
from engramma.checks import method_class, stream_class, unknown
from engramma.methods.method import NUMBER, Size


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


Tensor = torch.Tensor


def bytes_kept(told: Mapping[str, Any]) -> float:
    """What the method of a run has to keep after its last task, beside the network; NaN where it does not
    say."""
    method = method_class(told["method"])
    return float(method.kept(told["settings"], told["strength"], size_of(told)))


def size_of(told: Mapping[str, Any]) -> Size:
    """The size of a run, by its description."""
    method, stream = method_class(told["method"]), stream_class(told["stream"])
    neurons, scored, items = stream.sizes(told)
    return Size(
        *method.memories(told["settings"], told["memories"], told["tasks"]),
        neurons,
        neurons if stream.autoassociative else neurons - scored,
        scored,
        items,
        told["tasks"],
        1 if told["binary"] else 8 * NUMBER,
    )


def items_learned(told: Mapping[str, Any]) -> float:
    """How many items a run shows to all of its memories: each counts once an epoch, those of the task, those
    learned beside it and those that the method looks at in a step; of fewer memories, which cost less, as
    many as they are a share of those the run asks for."""
    method, (_, _, items) = method_class(told["method"]), stream_class(told["stream"]).sizes(told)
    awake = method.memories(told["settings"], told["memories"], told["tasks"])[1]
    shown, size = 0.0, told["batch_size"]
    for task in range(told["tasks"]):
        beside, guarded = method.rehearsed(told["settings"], told["strength"], items, task)
        batch = items if size is None else items + beside if size == "all" else size
        shown += items + beside + math.ceil((items + beside) / batch) * guarded
    return told["epochs"] * shown * awake / told["memories"]


OF_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "average": measures.average,
    "smallest_own": measures.smallest_own,
    "plasticity": measures.plasticity,
    "forgetting": measures.forgetting,
    "backward_transfer": measures.backward_transfer,
}
OF_CURVES: dict[str, Callable[[Tensor, Sequence[int]], Tensor]] = {
    "min_accuracy": measures.min_accuracy,
    "stability_gap": measures.stability_gap,
}
OF_DESCRIPTION: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "bytes_kept": bytes_kept,
    "items_learned": items_learned,
}
MEASURES = (*OF_SCORES, "forward_transfer", *OF_CURVES, *OF_DESCRIPTION)
LOW = ("forgetting", "stability_gap", *OF_DESCRIPTION)  # the lower, the better


def value(record: Recorded, measure: str = "average", score: str | None = None) -> float:
    """One number for a run; NaN where it diverged, and forward transfer where its curves do not say how an
    untrained network scores. `score` None takes the record's first."""
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    name = score or next(iter(record.scores), "")
    if name not in record.scores:
        raise unknown("score", name, record.scores)
    if record.diverged is not None:
        return float("nan")
    if measure in OF_DESCRIPTION:
        return OF_DESCRIPTION[measure](record.description)
    table = _tensor(record.scores[name])
    if measure in OF_SCORES:
        return float(OF_SCORES[measure](table))
    if measure == "forward_transfer":
        return float(measures.forward_transfer(table, _tensor(_untrained(record, name))))
    if name not in record.curves:
        raise ValueError(f"{measure} must be left out: run {_named(record)} has no curve of {name}")
    return float(OF_CURVES[measure](_tensor(record.curves[name]), _ends(record)))


def _tensor(array: np.ndarray) -> Tensor:
    return torch.as_tensor(np.asarray(array, dtype=np.float64))


def _named(record: Recorded) -> str:
    told = record.description
    return f"{told.get('method')}, n = {told.get('vertex')}, seed {told.get('seed')}"


def _ends(record: Recorded) -> list[int]:
    """Which points of its curves are those after each task."""
    if not followed(record):
        raise ValueError(f"run {_named(record)} was not measured after each of its tasks")
    marks = record.curves["epoch"].tolist()
    return [marks.index(mark) for mark in _last_epochs(record)]


def followed(record: Recorded) -> bool:
    """Whether its curves were measured after each task, as those of any run of ours are."""
    return set(_last_epochs(record)) <= set(record.curves.get("epoch", np.zeros(0)).tolist())


def _last_epochs(record: Recorded) -> list[int]:
    told = record.description
    return [int(told["epochs"]) * (task + 1) for task in range(int(told["tasks"]))]


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
