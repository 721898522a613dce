"""Which run is set against which: two sides are sorted into places, and paired in each by seed.

A place holds what both sides have: a vertex, and where runs of a side differ in more than their seed, that
too. In a place a side is of runs that differ in nothing but their seed, or the pairing is refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from engramma.show import labels, statistics
from engramma.show import select as trials
from engramma.store.scores import Recorded, value
from engramma.store.select import settings, written

PROPORTION = "strength (proportion)"  # a strength that is part of a method's row, and no lambda


class Pairs(NamedTuple):
    """The first side and another in one place."""

    other: str
    place: dict[str, Any]  # the settings that make it
    means: tuple[float, float]  # of the seeds that are paired: of the first, of the other
    seeds: tuple[int, ...]
    differences: np.ndarray  # (seeds,) first less other
    interval: tuple[float, float]  # of their mean
    p: float
    p_holm: float  # corrected for the number of all comparisons
    diverged: int  # pairs that are left out because one of them did

    @property
    def difference(self) -> float:
        return float(self.differences.mean()) if len(self.differences) else math.nan

    @property
    def where(self) -> str:
        """The place in words."""
        return ", ".join(in_words(name, value) for name, value in self.place.items()) or "all"


class Run(NamedTuple):
    record: Recorded
    told: dict[str, Any]  # its settings, such that those of two seeds are equal

    @classmethod
    def of(cls, record: Recorded) -> Run:
        told = settings(record)
        share = told["strength"] if trials.is_proportion(told["method"]) else None
        fork = told.get("fork")  # the run that was forked is one seed's
        after = f"after task {int(str(fork).partition('@')[2]) + 1}" if fork else None
        return cls(record, {**told, PROPORTION: share, "fork": after})


Side = Sequence[Run]
Group = dict[int, Run]  # the runs of a side in one place, by seed


def paired(
    names: tuple[str, str],
    records: tuple[Sequence[Recorded], Sequence[Recorded]],
    measure: str,
    named: Collection[str] = (),
) -> tuple[list[Pairs], list[str]]:
    """The comparisons of two sides in all places that both have, and what must be known of them. `named`:
    settings in which they are meant to differ."""
    sides = [sorted(map(Run.of, side), key=_order) for side in records]
    seeds = set.intersection(*({run.told["seed"] for run in side} for side in sides))
    if not seeds:
        raise ValueError(_nothing(names, sides, ["seed"]))
    # Runs whose seed the other side has not, such as those of a search, are no concern of this.
    sides = [[run for run in side if run.told["seed"] in seeds] for side in sides]
    keys = _keys(sides)
    here, there = (_places(side, keys, name) for side, name in zip(sides, names, strict=True))
    shared = [(here[place], there[place]) for place in here if place in there]
    met = [(a, b) for a, b in shared if a.keys() & b.keys()]
    if not met:
        raise ValueError(_nothing(names, sides, [*(["seed"] if shared else []), *keys]))
    alone = [
        f"left out: {_words(keys, groups[place])}, which only {name} has"
        for name, groups, others in ((names[0], here, there), (names[1], there, here))
        for place in groups
        if place not in others
    ]
    pairs = [_pairs(names[1], keys, groups, measure) for groups in met]
    return pairs, [*_differing(names, met, named), *alone]


def _nothing(names: tuple[str, str], sides: Sequence[Side], keys: Sequence[str]) -> str:
    had = (
        f"{name} has {' and '.join(f'the {key} {_values(side, key)}' for key in keys)}"
        for name, side in zip(names, sides, strict=True)
    )
    return f"nothing can be paired: {', '.join(had)}"


def _order(run: Run) -> tuple[Any, ...]:
    method = run.told["method"]
    return run.told["vertex"], trials.in_paper(method), method, run.told["strength"] or 0.0, run.told["seed"]


def _keys(sides: Sequence[Side]) -> list[str]:
    """The settings that make a place: the vertex, and those of which a side has several values; each if the
    sides have one of its values in common."""
    every = sorted({name for side in sides for run in side for name in run.told} - {"seed"})
    keys: list[str] = []
    for name in dict.fromkeys(["vertex", "method", PROPORTION, "strength", *every]):
        one, other = ({repr(run.told.get(name)) for run in side} for side in sides)
        if one & other and (name == "vertex" or any(_several(side, keys, name) for side in sides)):
            keys.append(name)
    return keys


def _several(side: Side, keys: Sequence[str], name: str) -> bool:
    """Whether a setting has several values in a place."""
    found: dict[tuple[str, ...], set[str]] = {}
    for run in side:
        found.setdefault(_place(run, keys), set()).add(repr(run.told.get(name)))
    return max(map(len, found.values())) > 1


def _place(run: Run, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(run.told.get(key)) for key in keys)


def _places(side: Side, keys: Sequence[str], name: str) -> dict[tuple[str, ...], Group]:
    """A side place by place, in the order of its runs."""
    found: dict[tuple[str, ...], list[Run]] = {}
    for run in side:
        found.setdefault(_place(run, keys), []).append(run)
    for runs in found.values():
        for key in sorted(set().union(*(run.told for run in runs)) - {"seed", PROPORTION}):
            if len({repr(run.told.get(key)) for run in runs}) > 1:
                where = f", {words}" if (words := _words(keys, runs)) else ""
                raise ValueError(
                    f"{name}{where}: runs must differ in their seed alone, and differ in {key} "
                    f"({_values(runs, key)}); name one, such as "
                    f"{runs[0].told['method'].rpartition(':')[2]}:{key}={written(runs[0].told.get(key))}"
                )
    return {place: {run.told["seed"]: run for run in runs} for place, runs in found.items()}


def _pairs(other: str, keys: Sequence[str], groups: tuple[Group, Group], measure: str) -> Pairs:
    one, two = groups
    seeds = sorted(one.keys() & two.keys())
    both = np.array([[value(group[seed].record, measure) for seed in seeds] for group in groups])
    sound = np.isfinite(both).all(0)
    both = both[:, sound]
    apart = both[0] - both[1]
    means = both.mean(1) if sound.any() else np.full(2, math.nan)
    told = one[seeds[0]].told
    place = {"strength" if key == PROPORTION else key: told[key] for key in keys}
    return Pairs(
        other,
        {key: given for key, given in place.items() if given is not None},
        (float(means[0]), float(means[1])),
        tuple(np.array(seeds)[sound].tolist()),
        apart,
        statistics.bootstrap(apart),
        statistics.sign_flips(apart),
        math.nan,
        int((~sound).sum()),
    )


def _differing(
    names: tuple[str, str], places: Sequence[tuple[Group, Group]], named: Collection[str]
) -> list[str]:
    """A warning of the settings in which the sides differ besides method and strength.

    Runs of one method that differ in one setting are compared for its sake: there is nothing to warn of.
    """
    told = [tuple(next(iter(group.values())) for group in both) for both in places]
    alike = all(one.told["method"] == two.told["method"] for one, two in told)
    found: dict[str, list[str]] = {}
    for one, two in told:
        own = set() if alike else {"method", "strength", *_own(one), *_own(two)}
        for key in sorted((one.told.keys() | two.told.keys()) - own - {"seed", PROPORTION, *named}):
            here, there = (written(run.told.get(key)) for run in (one, two))
            if here != there:
                found.setdefault(key, []).append(f"{here} and {there}")
    if not found or (alike and len(found) == 1 and not named):
        return []
    said = ", ".join(f"{key} ({'; '.join(dict.fromkeys(values))})" for key, values in found.items())
    return [f"{names[0]} and {names[1]} also differ in {said}"]


def _own(run: Run) -> set[str]:
    """The settings of its method, as they stand among all."""
    return set(run.told) - set(run.record.description)


def _words(keys: Sequence[str], runs: Group | Sequence[Run]) -> str:
    """The place of some runs."""
    told = (next(iter(runs.values())) if isinstance(runs, dict) else runs[0]).told
    return ", ".join(in_words(key, told.get(key)) for key in keys)


def in_words(key: str, given: Any) -> str:
    if key == "vertex":
        return labels.vertex(given)
    if key == "method":
        return labels.method(str(given).rpartition(":")[2])
    return f"{'strength' if key == PROPORTION else key} {written(given)}"


def _values(runs: Sequence[Run], key: str) -> str:
    """The values of a setting that runs have, as many as fit a line."""
    found = list(dict.fromkeys(written(run.told.get(key)) for run in runs))
    return f"{', '.join(found[:6])}{', ...' if len(found) > 6 else ''}"
