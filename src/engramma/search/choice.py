"""Chosen values: what searches found best, in a TOML that run, reproduce and table read.

[[chosen]]
method, vertex, kind              of the search: lambda, proportion or grid
strength                          or, of a grid, learning_rate and temperature
settings                          the method's other settings
experiment                        the other settings of the runs it was chosen on
search                            how it was chosen; `flat` is the range that does as well
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from engramma.checks import explain
from engramma.experiment import VARYING, Experiment, read_toml
from engramma.paper import numbers as paper
from engramma.store.outputs import whole
from engramma.store.records import Store

if TYPE_CHECKING:
    from engramma.search.tune import Found

_SAID = {*VARYING, "method", "vertex", "settings", "fork", "autoassociative"}  # in the entry itself, or never


class Choice(BaseModel):
    """What one search chose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    vertex: float
    kind: Literal["lambda", "proportion", "grid"]
    strength: float | None = None
    learning_rate: float | None = None
    temperature: float | str | None = None  # or auto
    settings: dict[str, Any] = {}
    experiment: dict[str, Any] = {}
    search: dict[str, Any] = {}

    @model_validator(mode="after")
    def _says_what_was_chosen(self) -> Choice:
        needed = ("learning_rate", "temperature") if self.kind == "grid" else ("strength",)
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(
                f"{', '.join(missing)} must be there: it is what a search of kind {self.kind} chose"
            )
        return self

    @property
    def values(self) -> dict[str, Any]:
        """What was chosen, as settings of an experiment."""
        told = {"strength": self.strength, "learning_rate": self.learning_rate}
        told |= dict.fromkeys(("initial_temperature", "final_temperature"), self.temperature)
        return {name: value for name, value in told.items() if value is not None}

    def parts(self) -> dict[str, Any]:
        """The settings of a run with what was chosen; its seed is left to whoever runs it."""
        about = {"method": self.method, "vertex": self.vertex, "settings": self.settings}
        return {**self.experiment, **about, **self.values}

    def fits(self, method: str, vertex: float, strengths: Sequence[float | None]) -> bool:
        """Whether it says the lambda of a row that has one: a proportion is not for choosing in a table."""
        mine = (self.method, self.vertex) == (method, vertex)
        return self.kind == "lambda" and mine and len(strengths) == 1


def choice(found: Found) -> Choice:
    """What a search chose, with how."""
    search, base = found.search, found.search.base
    mean, error = found.top
    about: dict[str, Any] = {
        "measure": search.measure,
        "mean": round(mean, 4),
        "standard_error": round(error, 4),
        "trials": len(found.params),
        "pruned": found.pruned,
        "seeds": list(search.seeds),
    }
    if found.response is None:
        about["flat"] = [[cell["learning_rate"], cell["temperature"]] for cell in found.flat_cells]
    else:
        about |= {"flat": list(found.response.flat), "range": [search.low, search.high]}
        about["bandwidth"] = round(found.response.bandwidth, 4)
        printed = None if base.settings.get("unit") else paper.chosen_lambda(base.method, base.vertex)
        if printed is not None and not math.isnan(there := found.response.at(printed)):
            about["mean_at_paper"] = round(there, 4)
    default = {k: f.default for k, f in Experiment.model_fields.items()}
    told = {k: v for k, v in base.model_dump().items() if k not in _SAID and v != default[k]}
    for name in VARYING[2:]:  # a learning rate or temperature that was set and not searched
        if search.kind != "grid" and getattr(base, name) != default[name]:
            told[name] = getattr(base, name)
    strength = {"strength": base.strength} if search.kind == "grid" and base.strength is not None else {}
    return Choice(
        method=base.method, vertex=base.vertex, kind=search.kind, settings=base.settings,
        experiment=told, search=about, **{**strength, **found.best},
    )  # fmt: skip


def tune(
    method: str,
    vertices: float | Sequence[float] = 2.0,
    trials: int | None = None,
    seeds: int | Sequence[int] = 2,
    store: str | Path | Store = "runs",
    **told: Any,
) -> list[Choice]:
    """Search for a method's strength at each vertex, as `engramma tune` does, and say what was chosen.

    `Experiment(**chosen.parts())` is a run with it. `seeds` are how many, counted from 1000, or which. A
    search that was stopped goes on in its `store`, where its trials are kept in tune.db. By name can also be
    told how the search goes (span, scale, batch, prune: `How`), how it is carried out (device, kernel,
    data_dir: `Options`), and any setting of the runs. Where these say nothing, their sizes are those of the
    paper's searches at `scale`.
    """
    from engramma.runs.options import Options
    from engramma.search.spaces import FIRST_SEED, How, strength_of
    from engramma.search.tune import tune as searched

    chosen = range(FIRST_SEED, FIRST_SEED + seeds) if isinstance(seeds, int) else seeds
    how = How(tuple(chosen), trials, **_taken(told, How))
    options = Options(**{"device": "auto", **_taken(told, Options)})
    many = vertices if isinstance(vertices, Sequence) else [vertices]
    searches = [strength_of(method, float(vertex), told, how) for vertex in many]
    place = store if isinstance(store, Store) else Store(store)
    return [choice(each) for each in searched(searches, place, options)]


def _taken(told: dict[str, Any], kind: type) -> dict[str, Any]:
    """What is told of the fields of a dataclass, taken out of the rest."""
    return {field.name: told.pop(field.name) for field in fields(kind) if field.name in told}


def write(choices: Iterable[Choice], path: Path) -> Path:
    """Write choices; those of other methods, vertices and kinds that the file has already stay in it."""
    fresh = {(c.kind, c.method, c.vertex): c for c in choices}
    kept = {(c.kind, c.method, c.vertex): c for c in load(path)} if path.is_file() else {}
    lines = ["# Written by `engramma tune`. Read it with `engramma run --config`,",
             "# `engramma reproduce --strengths` and `engramma table table1 --strengths`."]  # fmt: skip
    for each in {**kept, **fresh}.values():
        lines += ["", "[[chosen]]"]
        told = each.model_dump(exclude_none=True)
        lines += [f"{name} = {_toml(value)}" for name, value in told.items() if value != {}]
    with whole(path) as beside:
        beside.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def load(path: Path) -> list[Choice]:
    return parse(read_toml(path), path)


def parse(told: dict[str, Any], path: Path) -> list[Choice]:
    entries = told.get("chosen")
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path} must have [[chosen]] entries, as engramma tune writes them")
    if extra := set(told) - {"chosen"}:
        raise ValueError(f"{path}: unknown setting {', '.join(sorted(extra))} beside its [[chosen]] entries")
    try:
        return [Choice.model_validate(entry) for entry in entries]
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error, list(Choice.model_fields))}") from None


def select(choices: Sequence[Choice], told: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """The settings of a run for each choice, of those with the method and vertex told, where any is."""
    found = [c for c in choices if all(told.get(k, v) == v for k, v in c.model_dump(include=_PICK).items())]
    if not found:
        there = ", ".join(f"{c.method} at n = {c.vertex:g}" for c in choices)
        raise ValueError(f"method and vertex must be in {path}, which has {there}")
    return [c.parts() for c in found]


_PICK = {"method", "vertex"}


def used(choices: Sequence[Choice], experiments: Iterable[Experiment], path: Path) -> list[str]:
    """Which choices a study's runs made use of, in words. A value chosen on one kind of tasks is not for
    another, and a study that has no use for any is not the one that was meant."""
    places = {}
    for e in experiments:
        for c in choices:
            mine = (c.vertex == e.vertex and (c.kind == "grid" or c.method == e.method)) and all(
                getattr(e, name) == value for name, value in c.values.items()
                if c.kind != "grid" or name != "strength"
            )  # fmt: skip
            if not mine:
                continue
            for name, was in (("data", c.experiment.get("data", "mnist")),
                              ("stream", c.experiment.get("stream", "permuted"))):  # fmt: skip
                if was != (now := getattr(e, name)):
                    raise ValueError(f"strengths must be chosen on the study's {name}, {now}, not on {was}")
            told = (v for k, v in c.values.items() if k != "final_temperature")
            values = ", ".join(v if isinstance(v, str) else f"{v:g}" for v in told)
            places[c.kind, c.method, c.vertex] = f"{c.method} n = {c.vertex:g}: {values}"
    if not places:
        raise ValueError(f"strengths must have a lambda for a row of the study; {path} has none that fits")
    return list(places.values())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return '"none"'
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
