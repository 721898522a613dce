"""Runs compared, pair by pair: the same seed, and so the same data and first memories, under one and another.

compare("ewc", "rehearsal", "gem@0.5")         runs of a store, the first against each of the others
compare(result, other)                         runs that are at hand
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engramma.runs.frames import table
from engramma.runs.results import Result, load
from engramma.show import labels, statistics
from engramma.show import select as trials
from engramma.show.pairing import Pairs, paired
from engramma.store.records import Store
from engramma.store.scores import Recorded
from engramma.store.select import parsed, where


@dataclass(frozen=True, repr=False)
class Comparison:
    """The first side against every other, place by place. Arrays have an entry for each comparison."""

    first: str
    measure: str
    pairs: tuple[Pairs, ...]
    notes: tuple[str, ...] = ()  # what must be known of it

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def difference(self) -> np.ndarray:
        """(K,): mean of first less other."""
        return np.array([each.difference for each in self.pairs])

    @property
    def interval(self) -> np.ndarray:
        """(K,2): between which two numbers it lies, at 95 %."""
        return np.array([each.interval for each in self.pairs])

    @property
    def p(self) -> np.ndarray:
        """(K,): of the sign-flip test."""
        return np.array([each.p for each in self.pairs])

    @property
    def p_holm(self) -> np.ndarray:
        """(K,): the same, by Holm's correction for K comparisons."""
        return np.array([each.p_holm for each in self.pairs])

    def rows(self) -> list[dict[str, Any]]:
        """One for each comparison, as JSON and CSV have it."""
        names = list(dict.fromkeys(name for each in self.pairs for name in each.place))
        return [
            {
                "first": self.first,
                "other": each.other,
                **{name: each.place.get(name) for name in names},
                "seeds": len(each.seeds),
                "first_mean": each.means[0],
                "other_mean": each.means[1],
                "difference": each.difference,
                "low": each.interval[0],
                "high": each.interval[1],
                "p": each.p,
                "p_holm": each.p_holm,
                "diverged": each.diverged,
            }
            for each in self.pairs
        ]

    def frame(self) -> Any:
        """A pandas DataFrame, or where there is no pandas {column: list}."""
        return table(self.rows())

    def __repr__(self) -> str:
        said = [
            f"{self.first} less {each.other}, {each.where}: {each.difference:+.3f} "
            f"[{each.interval[0]:+.3f}, {each.interval[1]:+.3f}], p {each.p:.3g}, Holm {each.p_holm:.3g}, "
            f"{len(each.seeds)} seeds"
            for each in self.pairs
        ]
        return "\n".join([*said, *self.notes])


def compare(
    first: str | Result,
    *others: str | Result,
    store: str | Path | Store | Sequence[str | Path | Store] = "runs",
    measure: str = "average",
) -> Comparison:
    """Set the first against each of the others, paired by seed.

    A side is a `Result`, or names runs of the store: a method ("ewc"), one at a strength ("gem@0.5"),
    settings ("vertex=20"), or both ("ewc:fisher=item,memories=64").
    """
    sides, named = {}, set[str]()
    there = load(store) if any(isinstance(side, str) for side in (first, *others)) else None
    for k, side in enumerate((first, *others)):
        if isinstance(side, str):
            assert there is not None
            wanted = parsed(side)
            named |= wanted.keys()
            name, records = named_side(side), where(there.records, wanted)
        else:
            records = side.records
            name = _common(records) or f"side {k + 1}"
            name = f"{name} ({k + 1})" if name in sides else name
        if name in sides:
            raise ValueError(f"compare must be of different runs, and {name} is named twice")
        sides[name] = records
    return compared(sides, measure, named)


def compared(
    sides: Mapping[str, Sequence[Recorded]], measure: str = "average", named: Collection[str] = ()
) -> Comparison:
    """The first of the sides against all others. `named`: settings in which they are meant to differ."""
    (first, own), *rest = sides.items()
    if not rest:
        raise ValueError("compare must be of two sides or more")
    pairs, notes = list[Pairs](), list[str]()
    for other, records in rest:
        if {id(r) for r in own} & {id(r) for r in records}:
            raise ValueError(
                f"compare must be of different runs, and {first} and {other} have some in common"
            )
        found, said = paired((first, other), (own, records), measure, named)
        pairs += found
        notes += said
    corrected = statistics.holm([each.p for each in pairs])
    pairs = [each._replace(p_holm=float(p)) for each, p in zip(pairs, corrected, strict=True)]
    return Comparison(first, measure, tuple(pairs), (*notes, *_caution(pairs)))


def named_side(text: str) -> str:
    """How a side is written that was named by a text."""
    told = parsed(text)
    if told.keys() <= {"method", "strength"} and "method" in told:
        name = str(told["method"]).rpartition(":")[2]
        return labels.run(name, told.get("strength"))
    return text


def _common(records: Sequence[Recorded]) -> str:
    """What all runs of a side are of, where it is one method."""
    methods = {str(trials.setting(r, "method")) for r in records}
    strengths = {trials.strength(r) for r in records}
    if len(methods) > 1:
        return ""
    name = methods.pop().rpartition(":")[2]
    return labels.run(name, strengths.pop()) if len(strengths) == 1 else labels.method(name)


def _caution(pairs: Sequence[Pairs]) -> list[str]:
    """How many pairs were lost, and what so few seeds cannot tell."""
    notes = []
    if lost := sum(each.diverged for each in pairs):
        notes.append(f"{lost} pair{'' if lost == 1 else 's'} left out: a run of them diverged")
    count, many = max(len(each.seeds) for each in pairs), len(pairs)
    if count and many * (lowest := statistics.least(count)) > statistics.SIGNIFICANT:
        said = f"no p can be below {lowest:.2g}"
        if many > 1:
            said += f", and none of Holm's for {many} comparisons below {min(1.0, many * lowest):.2g}"
        if lowest > statistics.SIGNIFICANT:
            said += "; no interval reaches beyond the smallest and the largest difference"
        notes.append(
            f"with {count} seed{'' if count == 1 else 's'} {said}: to tell at 5 % takes "
            f"{statistics.enough(many)} seeds or more"
        )
    return notes
