"""A method of one's own tried: its strength searched on few runs, then beside other methods.

All runs have the settings of Table 2's study at the scale demo, or smaller ones to be quick; where a class
says what suits it, that comes before, and what is told before everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engramma import studies
from engramma.checks import method_class
from engramma.experiment import Experiment, read
from engramma.search import spaces
from engramma.search.smooth import Response, smooth
from engramma.search.spaces import Search
from engramma.store.records import Record
from engramma.store.scores import value

BESIDE = ("vanilla", "rehearsal", "pseudorehearsal", "gem", "agem", "l2", "ewc", "mas", "si", "allocation")
SCALE = "demo"
# Enough to see what a method is about, and no more.
QUICK: dict[str, Any] = {"tasks": 3, "items": 200, "memories": 64, "epochs": 100}
SEARCHED = ("items", "memories", "epochs", "tasks", "data", "stream")  # of what the others' lambdas hang on


@dataclass(frozen=True)
class Trial:
    """What is run: with which settings, at which vertices, on which seeds."""

    method: str
    vertices: tuple[float, ...]
    seeds: tuple[int, ...]
    told: Mapping[str, Any] = field(default_factory=dict)  # settings of all runs
    own: Mapping[str, Any] = field(default_factory=dict)  # settings of the method
    quick: bool = False

    def __post_init__(self) -> None:
        method_class(self.method)
        if len(set(self.vertices)) < len(self.vertices):
            raise ValueError("vertices must differ")

    @property
    def strength_name(self) -> str | None:
        return method_class(self.method).strength_name

    def experiment(self, method: str, vertex: float, strength: float | None, seed: int = 0) -> Experiment:
        """A run of a method as it is compared."""
        of = studies.load("allocation" if method == "allocation" else "table2")
        cls = method_class(method)
        return read(
            of.settings,
            of.scales[SCALE].settings,
            cls.suits,
            QUICK if self.quick else {},
            dict(self.told),
            {"settings": dict(self.own)} if method == self.method and self.own else {},
            {"method": method, "vertex": vertex, "strength": strength, "seed": seed},
        )

    def searches(self, trials: int, seeds: int, span: tuple[float, float] | None = None) -> list[Search]:
        """For its strength, at each vertex, at evenly spaced values; on seeds that no table counts."""
        chosen = tuple(range(spaces.FIRST_SEED, spaces.FIRST_SEED + seeds))
        if both := set(chosen) & set(self.seeds):
            raise ValueError(
                f"seeds must be others than {', '.join(map(str, sorted(both)))}, on which strengths are tuned"
            )
        made = []
        for vertex in self.vertices:
            # Of no account, but a run must have one: the search is for it.
            even = spaces.strength_kind(self.method) == "proportion"
            start = sum(span or spaces.span_of(self.method) or (0.0, 1.0)) / 2 if even else 1.0
            base = self.experiment(self.method, vertex, start)
            search = spaces.strength_search(base, SCALE, chosen, trials, span)
            if search.kind == "lambda":
                ratio = search.high / search.low
                steps = [search.low * ratio ** ((k + 0.5) / trials) for k in range(trials)]
                search = replace(search, points=tuple((("strength", float(f"{s:.6g}")),) for s in steps))
            made.append(search)
        return made

    def compared(self, strengths: Mapping[float, float | None], beside: Sequence[str]) -> list[Experiment]:
        """The method at its strength at each vertex, then all others, over the same seeds."""
        runs = [(self.method, vertex, strengths[vertex]) for vertex in self.vertices]
        for text in beside:
            name, strength = _named(text)
            if name == self.method:
                raise ValueError(f"beside must be other methods than {name}")
            for vertex in self.vertices:
                runs.append((name, vertex, strength if strength is not None else _known(name, vertex)))
        return [self.experiment(*run, seed) for run in runs for seed in self.seeds]

    @property
    def unlike(self) -> list[str]:
        """Settings in which the runs are not those for which the others' lambdas were searched."""
        of = studies.load("table2")
        known = read(of.settings, of.scales[SCALE].settings)
        run = self.experiment("vanilla", self.vertices[0], None)
        return [f"{name} {getattr(known, name)}" for name in SEARCHED
                if getattr(run, name) != getattr(known, name)]  # fmt: skip


def experiments(search: Search) -> list[Experiment]:
    """All runs of a search: at each of its points, on each of its seeds."""
    return [e for point in search.points for e in search.experiments(dict(point))]


def response(search: Search, records: Sequence[Record]) -> Response:
    """The smoothed average over the strengths, from the runs of `experiments`, in their order; a run that
    diverged counts 0."""
    found = np.nan_to_num([value(record, search.measure) for record in records])
    strengths = np.array([dict(point)["strength"] for point in search.points], dtype=float)
    return smooth(strengths, found.reshape(len(strengths), -1), log=search.kind == "lambda")


def _named(text: str) -> tuple[str, float | None]:
    """ewc, or gem@0.5: a method and its strength."""
    name, at, strength = text.strip().rpartition("@")
    try:
        return (name, float(strength)) if at else (strength, None)
    except ValueError:
        raise ValueError(
            f"beside must be methods, or methods at a strength (gem@0.5), not {text!r}"
        ) from None


def _known(method: str, vertex: float) -> float | None:
    """The lambda of Table 2 at the scale demo, at the vertex nearest; None where it has none, and a method
    its own proportion."""
    of = studies.load("table2")
    given = of.scales[SCALE].strengths.get(method)
    if not isinstance(given, dict):
        return None
    found = given[spaces.nearest(given, vertex)]
    return float(found if not isinstance(found, list) else found[0])
