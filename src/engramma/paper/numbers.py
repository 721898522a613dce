"""The numbers the paper printed, to set beside ours. They live in paper.json."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Printed(NamedTuple):
    """One cell of the paper's Table 2."""

    mean: float
    sd: float  # sample standard deviation over `TRIALS` trials


class Row(NamedTuple):
    """One row of Table 2: a method, with its proportion where it has one."""

    method: str
    proportion: float | None
    label: str
    category: str

    @property
    def key(self) -> tuple[str, float | None]:
        return self.method, self.proportion


@cache
def reference() -> dict[str, Any]:
    """The whole file."""
    return json.loads((files(__package__ or "") / "paper.json").read_text("utf-8"))


def vertices() -> tuple[int, ...]:
    return tuple(reference()["vertices"])


def trials() -> int:
    return reference()["trials"]


def setting() -> dict[str, Any]:
    """Data and sizes behind Table 2, by the names an experiment has for them."""
    return reference()["setting"]


def categories() -> dict[str, str]:
    """{name: heading} in the paper's order."""
    return reference()["categories"]


def rows() -> tuple[Row, ...]:
    """The 13 rows of Table 2 in the paper's order."""
    return tuple(
        Row(r["method"], r["proportion"], r["label"], r["category"]) for r in reference()["average_accuracy"]
    )


def labels() -> dict[str, str]:
    """{method: how it is written}."""
    return {row.method: row.label for row in rows()}


def printed(row: Row, vertex: float) -> Printed | None:
    """Table 2's cell, or None for a vertex the paper did not use."""
    if vertex not in vertices():
        return None
    column = vertices().index(int(vertex))
    for r in reference()["average_accuracy"]:
        if (r["method"], r["proportion"]) == row.key:
            return Printed(r["mean"][column], r["sd"][column])
    return None


def chosen_lambda(method: str, vertex: float) -> float | None:
    """Table 1's lambda of a regularisation method."""
    column = reference()["lambda"].get(method)
    return column[vertices().index(int(vertex))] if column and vertex in vertices() else None
