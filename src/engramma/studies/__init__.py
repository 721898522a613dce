"""Tables and figures as files: one TOML each, at three scales, expanded into experiments.

    title, paper             what it is, and where in the paper
    tables, figures          what to draw from its records
    runs_of, only            runs of these studies (of their rows named in `only`), before its own
    like                     its rows are also those of this study (those named in `only`), with the settings
                             of this one in place of its own, and in as many ways as there are `variants`
    vertices                 n of the interaction function
    [settings]               that all its experiments share
    [[rows]]                 name, method, settings, strengths; `run`: other settings of its runs than the
                             study's; `grid`: the same, every combination
    [searches]               ROW: the strengths that `engramma tune --study` searches between
    [scales.NAME]            seeds, vertices, settings; strengths.ROW, searches.ROW in place of those above;
                             methods.METHOD: settings of its own, methods.ROW: of that row alone

Strengths are a list; a table with one entry a vertex; or `centre`, `decades` and `points`: so many of
them evenly spaced on a log scale over so many decades around the centre. A search has two strengths, or a
table with two for each vertex.
"""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engramma.checks import explain, near, unknown
from engramma.experiment import Experiment, read

SCALES = ("demo", "small", "paper")
DECIDED = ("method", "settings", "strength", "vertex", "seed", "fork")  # by a study's rows, never by a change


class Spread(BaseModel):
    model_config = ConfigDict(extra="forbid")

    centre: float | dict[str, float]
    decades: float = Field(gt=0)
    points: int = Field(ge=2)

    def at(self, vertex: float) -> list[float]:
        centre = self.centre[f"{vertex:g}"] if isinstance(self.centre, dict) else self.centre
        steps = [self.decades * (k / (self.points - 1) - 0.5) for k in range(self.points)]
        return [float(f"{centre * 10**step:.3g}") for step in steps]


Strengths = Spread | list[float] | dict[str, float | list[float]]
Ends = tuple[float, float]
Ranges = Ends | dict[str, Ends]


class Row(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    method: str
    settings: dict[str, Any] = {}
    strengths: Strengths | None = None
    run: dict[str, Any] = {}
    grid: dict[str, list[int] | list[float]] = {}  # "temperature" is both of them


class Scale(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seeds: int = Field(ge=1)
    vertices: list[float] | None = None
    settings: dict[str, Any] = {}
    strengths: dict[str, Strengths] = {}
    searches: dict[str, Ranges] = {}
    variants: list[dict[str, Any]] = []
    methods: dict[str, dict[str, Any]] = {}
    grid: dict[str, list[int] | list[float]] = {}


class Chosen(Protocol):
    """What a search found, as a study may take it over."""

    @property
    def kind(self) -> str: ...
    @property
    def vertex(self) -> float: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def values(self) -> dict[str, float]: ...

    def fits(self, method: str, vertex: float, strengths: Sequence[float | None]) -> bool: ...


class Run(NamedTuple):
    """An experiment and where in its study it belongs."""

    row: str
    experiment: Experiment


class Study(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    title: str
    paper: str
    tables: list[str] = []
    figures: list[str] = []
    runs_of: list[str] = []
    only: list[str] = []
    like: str = ""
    variants: list[dict[str, Any]] = []
    vertices: list[float] = []
    settings: dict[str, Any] = {}
    rows: list[Row] = []
    searches: dict[str, Ranges] = {}
    scales: dict[Literal["demo", "small", "paper"], Scale] = {}

    @model_validator(mode="after")
    def _names_of_rows(self) -> Study:
        """A misspelt row or method in a scale would change nothing, and say nothing."""
        for name, scale in self.scales.items():
            for part, known in (
                ("strengths", {row.name for row in self.rows}),
                ("methods", {name for row in self.rows for name in (row.method, row.name)}),
            ):
                if strange := getattr(scale, part).keys() - known:
                    raise ValueError(
                        f"scales.{name}.{part} must name what its rows are, not {', '.join(strange)}"
                    )
        return self

    def runs(
        self,
        scale: str = "demo",
        seeds: list[int] | None = None,
        vertices: list[float] | None = None,
        rows: list[str] | None = None,
        chosen: Sequence[Chosen] = (),
    ) -> list[Run]:
        """Its experiments; only those of some seeds, vertices and rows, where these are given: gem is
        gem@0.05 and gem@0.5. `chosen`: what a search found, in place of a row's own lambda, learning rate
        and temperature."""
        if scale not in SCALES:
            raise unknown("scale", scale, SCALES)
        parts = [load(name).runs(scale, seeds, vertices, chosen=chosen) for name in self.runs_of]
        found = [run for part in parts for run in part if not self.only or run.row in self.only]
        if self.like:
            found += self._likened(scale, seeds, vertices, chosen)
        if self.rows:
            found += self._expand(self.scales[scale], seeds, vertices, chosen)
        known = list(dict.fromkeys(run.row for run in found))
        named = {
            name: {row for row in known if name in (row, row.partition("@")[0])} for name in rows or known
        }
        if strange := [name for name, fitting in named.items() if not fitting]:
            raise ValueError(
                f"rows must be some of {', '.join(known)}, not {', '.join(strange)}{near(strange[0], known)}"
            )
        wanted = set().union(*named.values())
        return [run for run in found if run.row in wanted]

    def _likened(
        self,
        name: str,
        seeds: list[int] | None,
        vertices: list[float] | None,
        chosen: Sequence[Chosen],
    ) -> list[Run]:
        """The runs of another study with this one's settings."""
        scale = self.scales[name]  # type: ignore[index]
        where = vertices or scale.vertices or self.vertices or None
        theirs = load(self.like).runs(name, seeds or list(range(scale.seeds)), where, chosen=chosen)
        shared = {**self.settings, **scale.settings}
        return [
            run._replace(experiment=run.experiment.but(**{**shared, **variant}))
            for run in theirs
            for variant in scale.variants or self.variants or [{}]
            if not self.only or run.row in self.only
        ]

    def _expand(
        self,
        scale: Scale,
        seeds: list[int] | None,
        vertices: list[float] | None,
        chosen: Sequence[Chosen],
    ) -> list[Run]:
        own = scale.vertices or self.vertices
        if strange := [v for v in vertices or () if v not in own]:
            allowed = ", ".join(f"{v:g}" for v in own)
            raise ValueError(
                f"vertices must be some of {allowed}, not {', '.join(f'{v:g}' for v in strange)}"
            )
        runs = []
        for row, vertex in itertools.product(self.rows, vertices or own):
            strengths = _strengths(scale.strengths.get(row.name, row.strengths), vertex)
            of_method, of_row = (scale.methods.get(name, {}) for name in (row.method, row.name))
            settings, general = {**row.settings, **of_method, **of_row}, {}
            for choice in chosen:
                if choice.fits(row.method, vertex, strengths):
                    strengths, settings = [choice.values["strength"]], {**settings, **choice.settings}
                elif choice.kind == "grid" and choice.vertex == vertex:
                    general = {k: v for k, v in choice.values.items() if k != "strength"}
            grid = {**row.grid, **scale.grid}
            for values in itertools.product(*grid.values()):
                cell = dict(zip(grid, values, strict=True))
                if (temperature := cell.pop("temperature", None)) is not None:
                    cell |= {"initial_temperature": temperature, "final_temperature": temperature}
                method = {"method": row.method, "settings": settings, "vertex": vertex}
                for strength, seed in itertools.product(strengths, seeds or range(scale.seeds)):
                    chance = {"strength": strength, "seed": seed}
                    made = read(self.settings, scale.settings, row.run, method, general, cell, chance)
                    runs.append(Run(row.name, made))
        return runs

    def searched(self, row: str, vertex: float, scale: str) -> Ends | None:
        """The strengths between which that of a row is searched, where the study says them."""
        found = {**self.searches, **self.scales[scale].searches}.get(row)  # type: ignore[index]
        if found is None and self.like:
            return load(self.like).searched(row, vertex, scale)
        return found.get(f"{vertex:g}") if isinstance(found, dict) else found


def changed(runs: list[Run], changes: Mapping[str, Any]) -> list[Run]:
    """The same runs with another value of any setting, or, as si.damping, of a setting of one method."""
    general = {name: value for name, value in changes.items() if "." not in name}
    for name in general:
        if name in DECIDED or len({getattr(run.experiment, name, None) for run in runs}) > 1:
            raise ValueError(f"with must leave {name} to the study, which decides or varies it")
    own: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if "." in name:
            method, _, setting = name.rpartition(".")
            own.setdefault(method, {})[setting] = value
    known = {run.experiment.method for run in runs}
    if strange := sorted(own.keys() - known):
        raise ValueError(
            "with must name settings of methods that are run, not of "
            f"{', '.join(strange)}{near(strange[0], known)}"
        )
    if not changes:
        return runs
    made = []
    for run in runs:
        settings = {**run.experiment.settings, **own.get(run.experiment.method, {})}
        made.append(run._replace(experiment=run.experiment.but(**general, settings=settings)))
    return made


def variant(name: str, changes: Mapping[str, Any], strengths: Path | None = None) -> str:
    """What a study's tables and figures are called where settings were changed, or strengths were chosen by a
    search: table2-normalise=velocity-si.damping=1."""
    told = [f"{setting}={value}" for setting, value in sorted(changes.items())]
    if strengths is not None:
        told.append(f"strengths={strengths.stem}")
    return "-".join([name, *(re.sub(r"[^\w.=-]+", "_", each) for each in told)])


def _strengths(given: Strengths | None, vertex: float) -> list[float] | list[None]:
    if given is None:
        return [None]
    if isinstance(given, Spread):
        return given.at(vertex)
    if isinstance(given, dict):
        own = given[f"{vertex:g}"]
        return own if isinstance(own, list) else [own]
    return given


# Tables first, then figures in the order of the paper.
_SEARCHES = "rehearsal pseudorehearsal pseudorehearsal-small-n pseudorehearsal-large-n gem agem l2 ewc mas si"
_CURVES = "vanilla rehearsal pseudorehearsal gem agem l2 ewc mas si"
ORDER = [
    *("table1", "table2", *_SEARCHES.split(), "ewc-10000", "lost-attractors", "general-smallest"),
    *("general-average", *(f"curves-{name}" for name in _CURVES.split())),
]


def names() -> list[str]:
    """The studies there are."""
    files = resources.files(__name__).iterdir()
    found = [f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")]
    place = {name: i for i, name in enumerate(ORDER)}
    return sorted(found, key=lambda name: (place.get(name.partition("-0.")[0], len(place)), name))


@functools.cache
def load(name: str) -> Study:
    """A study by its name."""
    if name not in names():
        raise unknown("study", name, names())
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8")
    try:
        return Study.model_validate({"name": name, **tomllib.loads(text)})
    except ValidationError as error:
        raise ValueError(f"studies/{name}.toml: {explain(error)}") from None
