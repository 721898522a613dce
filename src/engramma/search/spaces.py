"""What is searched: the space of a method's strength, or the grid of learning rate and temperature."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from engramma import studies
from engramma.checks import LARGE, method_class, unknown
from engramma.experiment import Experiment, read

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FIRST_SEED = 1000  # tables count their seeds from 0: a strength is chosen on others
START = 10  # trials evenly over the range, before the sampler has anything to go by
EVEN = 13  # trials of a search that has no sampler
DECADES = 8.0  # of a lambda, around the method's centre
UNIT_CENTRE = {"demo": 1e-4, "small": 1e-6, "paper": 1e-6}  # of a lambda on importances with a mean of 1
TEMPERATURE = ("initial_temperature", "final_temperature")

Kind = Literal["lambda", "proportion", "grid"]


@dataclass(frozen=True)
class How:
    """How searches go, of whatever method and vertex."""

    seeds: tuple[int, ...]
    trials: int | None = None  # None: 100, or 11 proportions
    span: Sequence[float] | None = None  # of strengths, the smaller first; None: what suits the method
    scale: str | None = None  # of the paper's searches, whose settings hold where nothing is told
    batch: int = 10
    prune: bool = False
    even: bool = False  # strengths evenly over the range, all at once, without a sampler


@dataclass(frozen=True)
class Search:
    """One search: a method at a vertex."""

    base: Experiment  # its strength and seed are of no account
    kind: Kind
    seeds: tuple[int, ...]
    trials: int
    low: float = 0.0
    high: float = 1.0
    # Tried first; for a grid, all there is. A temperature may be "auto".
    points: tuple[tuple[tuple[str, float | str], ...], ...] = ()
    batch: int = 10  # trials trained at once, and asked for before any of them has its value
    prune: bool = False  # whether a lambda that has forgotten everything after task 2 makes room for another
    even: bool = False  # the points are all there is, and are trained together: nothing is asked of a sampler

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch}")
        if self.prune and not self._of_a_penalty:
            raise ValueError(
                f"prune must be left out for {self.base.method}: only a penalty's lambda can be pruned"
            )
        if self.prune and self.even:
            raise ValueError("prune must be left out of an even search: it asks for no other strengths")
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, not {self.trials}")
        if not self.seeds:
            raise ValueError("seeds must be at least 1")
        own = None if self.kind == "grid" else span_of(self.base.method)
        bound = LARGE if self.kind != "proportion" else 1.0 if own is None else max(own)
        if not (0 <= self.low < self.high <= bound) or (self.kind == "lambda" and self.low == 0):
            allowed = f"between 0 and {bound:g}" if self.kind == "proportion" else f"above 0, to {LARGE:g}"
            raise ValueError(
                f"range must be two numbers {allowed}, the smaller first, not {self.low:g},{self.high:g}"
            )

    @property
    def _of_a_penalty(self) -> bool:
        from engramma.methods import Penalty

        return self.kind == "lambda" and issubclass(method_class(self.base.method), Penalty)

    @property
    def name(self) -> str:
        """Of its Optuna study. More trials of a lambda go on with it; anything else makes another study."""
        varied = ("learning_rate", *TEMPERATURE) if self.kind == "grid" else ("strength",)
        points = None if self.kind == "lambda" else self.points
        told = [self.base.canonical("seed", *varied), self.seeds, self.low, self.high, points]
        mark = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:8]
        what = "learning-rate-temperature" if self.kind == "grid" else self.kind
        return f"{self.base.method} n={self.base.vertex:g} {what} {mark}"

    @property
    def measure(self) -> str:
        return "smallest_own" if self.kind == "grid" else "average"

    def distributions(self) -> dict[str, BaseDistribution]:
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        if self.kind != "grid":
            return {"strength": FloatDistribution(self.low, self.high, log=self.kind == "lambda")}
        names = [name for name, _ in self.points[0]]
        values = {name: {dict(point)[name] for point in self.points} for name in names}
        # Numbers before "auto".
        told = {n: sorted(found, key=lambda v: (isinstance(v, str), v)) for n, found in values.items()}
        return {name: CategoricalDistribution(found) for name, found in told.items()}

    def experiments(self, params: dict[str, Any]) -> list[Experiment]:
        """The runs of a trial, one a seed."""
        changes = rounded(params)
        if (temperature := changes.pop("temperature", None)) is not None:
            changes |= dict.fromkeys(TEMPERATURE, temperature)
        return [self.base.but(**changes, seed=seed) for seed in self.seeds]


def rounded(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a trial asked for, as its runs have it."""
    return {k: v if isinstance(v, str) else float(f"{v:.6g}") for k, v in params.items()}


def _base(
    study_name: str, method: str, vertex: float, told: Mapping[str, Any], scale: str | None
) -> tuple[Experiment, str]:
    """(the experiment to search with, its scale): the study's at the scale, then what was told."""
    if scale is None:
        scale = "paper" if told.get("data", "digits") == "mnist" else "demo"
    if scale not in studies.SCALES:
        raise unknown("scale", scale, studies.SCALES)
    of = studies.load(study_name)
    return read(
        of.settings, of.scales[scale].settings, dict(told), {"method": method, "vertex": vertex}
    ), scale  # type: ignore[index]


def strength_of(method: str, vertex: float, told: Mapping[str, Any], how: How) -> Search:
    """A search for a method's strength, with the sizes of the paper's where nothing else is told."""
    if strength_kind(method) == "lambda":
        told = {**told, "strength": 1.0}  # of no account: the search is for it
    known = method if study_of(method) else "ewc"  # one of one's own: the sizes of the paper's searches
    base, scale = _base(known, method, vertex, told, how.scale)
    return _told(base, scale, how, pair(how.span))


def rows_of(
    name: str, rows: list[str] | None, vertices: list[float] | None, told: Mapping[str, Any], how: How
) -> list[Search]:
    """An even search for the strength of every row of a study that has one to be searched, or of the `rows`
    named, with the settings of its runs but for what was told. Between which strengths, says the study."""
    study, scale = studies.load(name), how.scale or "demo"
    runs = studies.changed(study.runs(scale, [how.seeds[0]], vertices, rows), told)
    found: dict[str, Search] = {}
    for row, base in runs:
        ends, key = pair(how.span) or study.searched(row, base.vertex, scale), base.canonical("strength")
        if ends and key not in found:
            found[key] = _told(base, scale, replace(how, even=True), ends)
    if not found:
        named = ", ".join(dict.fromkeys(run.row for run in runs))
        raise ValueError(f"study must say where strengths are searched; {study.name} does not for {named}")
    return list(found.values())


def _told(base: Experiment, scale: str, how: How, ends: tuple[float, float] | None) -> Search:
    trials = how.trials or (EVEN if how.even else None)
    made = replace(strength_search(base, scale, how.seeds, trials, ends), batch=how.batch, prune=how.prune)
    return even(made) if how.even else made


def even(search: Search) -> Search:
    """All its trials evenly from end to end of its range, to be trained together."""
    if search.kind != "lambda":
        return replace(search, even=True)
    low, high, last = search.low, search.high, max(search.trials - 1, 1)
    steps = [low * (high / low) ** (k / last) for k in range(search.trials)]
    return replace(search, even=True, points=tuple((("strength", float(f"{s:.3g}")),) for s in steps))


def pair(span: Sequence[float] | None) -> tuple[float, float] | None:
    if span is not None and len(span) != 2:
        raise ValueError(f"range must be two numbers such as 1,1e6, not {','.join(f'{x:g}' for x in span)}")
    return None if span is None else (span[0], span[1])


def grid_of(
    method: str,
    vertex: float,
    told: Mapping[str, Any],
    how: How,
    rates: Sequence[float] | None = None,
    temperatures: Sequence[float | str] | None = None,
) -> Search:
    """A search of learning rate and temperature, likewise."""
    base, scale = _base("general-smallest", method, vertex, told, how.scale)
    of = studies.load("general-smallest")
    default = {**of.rows[0].grid, **of.scales[scale].grid}  # type: ignore[index]
    rates, temperatures = rates or default["learning_rate"], temperatures or default["temperature"]
    made = grid_search(base, how.seeds, list(rates), list(temperatures))
    return replace(made, batch=how.batch, prune=how.prune)


def strength_kind(method: str) -> Kind:
    """lambda, searched by decades, or proportion, searched evenly; a method without either has nothing to
    tune."""
    kind = method_class(method)
    if kind.strength_name is None:
        raise ValueError(
            f"method must have a strength to be tuned, and {method} has none (--grid searches learning rate "
            "and temperature, for any method)"
        )
    if kind.strength_kind not in ("lambda", "proportion"):
        raise ValueError(
            f"strength_kind of {method} must be lambda or proportion, not {kind.strength_kind!r}"
        )
    return "proportion" if kind.strength_kind == "proportion" else "lambda"


def span_of(method: str) -> tuple[float, float] | None:
    """From where to where the class of a method has its strength searched, where it says so."""
    span = method_class(method).strength_span
    if span is not None and not (
        isinstance(span, tuple) and len(span) == 2 and all(type(v) in (int, float) for v in span)
    ):
        raise ValueError(
            f"strength_span of {method} must be two numbers such as (0.0, 1.0), not {span!r:.60}"
        )
    return span


def strength_search(
    base: Experiment,
    scale: str,
    seeds: tuple[int, ...],
    trials: int | None = None,
    span: tuple[float, float] | None = None,
) -> Search:
    """Over lambda: START evenly spaced, then as the sampler says. Over proportions: all evenly spaced."""
    kind = strength_kind(base.method)
    if kind == "proportion":
        low, high = span or span_of(base.method) or (0.0, 1.0)
        count = trials or 11
        steps = [low + (high - low) * k / max(count - 1, 1) for k in range(count)]
        points = tuple((("strength", min(max(round(step, 6), low), high)),) for step in steps)
        return Search(base, kind, seeds, count, low, high, points)
    low, high = span or default_range(base, scale)
    count = 100 if trials is None else trials
    steps = [low * (high / low) ** ((k + 0.5) / START) for k in range(START)] if 0 < low < high else []
    points = tuple((("strength", float(f"{step:.6g}")),) for step in _scattered(steps))
    return Search(base, kind, seeds, count, low, high, points)


def _scattered(steps: list[float]) -> list[float]:
    """Every third, and round again: few of them cover the range too, whatever the batch."""
    return [step for first in range(3) for step in steps[first::3]]


def grid_search(
    base: Experiment, seeds: tuple[int, ...], rates: list[float], temperatures: list[float | str]
) -> Search:
    """Every learning rate with every temperature, for the smallest own-task accuracy."""
    cells = itertools.product(dict.fromkeys(rates), dict.fromkeys(temperatures))
    points = tuple((("learning_rate", rate), ("temperature", heat)) for rate, heat in cells)
    return Search(base, "grid", seeds, len(points), points=points)


def study_of(method: str) -> studies.Study | None:
    """The paper's search over a method's strength, where it has one."""
    return studies.load(method) if method in studies.names() else None


def default_range(base: Experiment, scale: str) -> tuple[float, float]:
    """DECADES of lambda around the centre of the paper's search at the nearest vertex and this scale.

    Importances of mean 1 have one range for all methods and vertices; a method of one's own has 1.
    """
    if (span := span_of(base.method)) is not None and not base.settings.get("unit"):
        return span
    centre, study = 1.0, study_of(base.method)
    if base.settings.get("unit"):
        centre = UNIT_CENTRE[scale]
    elif study is not None:
        row = study.rows[0]
        given = study.scales[scale].strengths.get(row.name, row.strengths)  # type: ignore[index]
        if isinstance(given, studies.Spread):
            by_vertex = given.centre if isinstance(given.centre, dict) else {"2": given.centre}
            centre = by_vertex[nearest(by_vertex, base.vertex)]
    return float(f"{centre * 10 ** (-DECADES / 2):.6g}"), float(f"{centre * 10 ** (DECADES / 2):.6g}")


def nearest(vertices: Iterable[str], vertex: float) -> str:
    """Of vertices, as a study writes them, the one nearest to a vertex: by their ratio."""
    return min(vertices, key=lambda v: abs(math.log(float(v) / vertex)))
