"""Runs as rows: of what they were told and what they found, ready for a data frame, CSV or JSON.

runs      a row for each run: every setting, its measures, the final score of every task
scores    a row for each run, task learned and task tested: all scores
curves    a row for each run, epoch and task: all scores, measured while they learned
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engramma.store.records import Record
from engramma.store.scores import MEASURES, value

KINDS = ("runs", "scores", "curves")
Rows = list[dict[str, Any]]


def rows(records: Sequence[Record], what: str = "runs") -> Rows:
    """Of one kind. Those of scores and curves have the settings in which the runs differ."""
    if what not in KINDS:
        raise ValueError(f"frame must be of {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {what!r}")
    told = [_settings(record) for record in records]
    names = list(dict.fromkeys(name for each in told for name in each))
    about = [{name: each.get(name) for name in names} for each in told]
    if what == "runs":
        return _runs(records, about)
    varied = [name for name in names if any(each[name] != about[0][name] for each in about)]
    scores = list(dict.fromkeys(name for record in records for name in record.scores))
    found: Rows = []
    for each, record in zip(about, records, strict=True):
        own = {"run": record.name, **{name: each[name] for name in varied}}
        found += [{**own, **row} for row in (_points if what == "curves" else _tables)(record, scores)]
    return found


def table(rows: Rows) -> Any:
    """Rows as a pandas DataFrame, or where there is no pandas as {column: list}."""
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    try:
        import pandas  # type: ignore[import-not-found]
    except ImportError:
        return columns
    return pandas.DataFrame(columns)


def _runs(records: Sequence[Record], about: Rows) -> Rows:
    most = max((len(_first(record)) for record in records), default=0)
    found: Rows = []
    for each, record in zip(about, records, strict=True):
        last = _first(record)[-1].tolist() if record.diverged is None else []
        finals = {f"final.{k}": last[k] if k < len(last) else float("nan") for k in range(most)}
        measured = {measure: _measured(record, measure) for measure in MEASURES}
        seconds = record.facts.get("seconds")
        found.append(
            {
                "run": record.name,
                **each,
                "score": next(iter(record.scores)),
                **measured,
                **finals,
                "seconds": seconds if isinstance(seconds, int | float) else None,
                "diverged": record.diverged is not None,
            }
        )
    return found


def _measured(record: Record, measure: str) -> float:
    try:
        return value(record, measure)
    except ValueError:  # it hangs on points of a curve that this run does not have
        return float("nan")


def _tables(record: Record, scores: Sequence[str]) -> Rows:
    size = len(_first(record))
    return [
        {"after": k, "task": j, **{name: _number(record.scores.get(name), k, j) for name in scores}}
        for k in range(size)
        for j in range(size)
    ]


def _points(record: Record, scores: Sequence[str]) -> Rows:
    return [
        {"epoch": epoch, "task": task, **{name: _number(record.curves.get(name), k, task) for name in scores}}
        for k, epoch in enumerate(record.curves["epoch"].tolist())
        for task in range(len(_first(record)))
    ]


def _first(record: Record) -> np.ndarray:
    return next(iter(record.scores.values()))


def _settings(record: Record) -> dict[str, Any]:
    """As one row: a method's own are named settings.NAME."""
    told = dict(record.description)
    own = told.pop("settings", None) or {}
    return {**told, **{f"settings.{name}": given for name, given in own.items()}}


def _number(scores: np.ndarray | None, row: int, column: int) -> float:
    return float("nan") if scores is None else float(scores[row, column])
