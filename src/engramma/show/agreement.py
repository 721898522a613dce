"""What a table is: lines of cells, each with its trials and what the paper printed there.

A cell of Table 2 agrees with the paper when |difference| <= max(0.03, 2 pooled sd),
pooled sd = sqrt((s1^2 + s2^2) / 2), with s1 our sample standard deviation and s2 the paper's. That allows the
more, the more our own trials differ; so a table also says how near it lies by other measures (`Nearness`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from engramma.paper import numbers as paper
from engramma.show import select as trials
from engramma.show.statistics import SIGNIFICANT, student
from engramma.store.scores import OF_DESCRIPTION, Recorded, diverged, values

FLOOR = 0.03  # a difference this small is never held against a cell
RULE = f"|difference| ≤ max({FLOOR:g}, 2 · pooled sd), with pooled sd = √((s₁² + s₂²)/2)"
WITHIN = (0.03, 0.05)  # how far from the paper cells are counted, their deviations left aside
DRAWS = 2000  # by which the sureness of a count is judged


def _pooled(own: Any, printed: float) -> Any:
    return np.sqrt((own**2 + printed**2) / 2)


def _inside(difference: Any, pooled: Any) -> Any:
    # Printed numbers have three decimals: do not let the last bit of a sum decide.
    return np.abs(difference) <= np.maximum(FLOOR, 2 * pooled) + 1e-12


@dataclass(frozen=True)
class Cell:
    """The trials of one cell, and what the paper printed there."""

    values: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (trials,) that finished
    diverged: int = 0
    printed: paper.Printed | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # further columns of the CSV
    best: bool = False
    alike: bool = True  # the runs had the paper's settings: else its number is shown, and nothing is judged
    digits: int = 3  # of the mean, as it is written

    @classmethod
    def of(
        cls,
        records: Sequence[Recorded],
        where: str,
        measure: str = "average",
        score: str | None = None,
        **known: Any,
    ) -> Cell:
        """What runs scored that differ in nothing but their seed; others are refused."""
        trials.check_alike(records, where)
        digits = 0 if measure in OF_DESCRIPTION else 3
        return cls(values(records, measure, score), diverged(records), digits=digits, **known)

    @property
    def missing(self) -> bool:
        return len(self.values) == 0 and self.diverged == 0

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if len(self.values) else math.nan

    @property
    def sd(self) -> float:
        """Sample standard deviation; NaN for fewer than two trials."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def difference(self) -> float:
        return self.mean - self.printed.mean if self.printed else math.nan

    @property
    def pooled_sd(self) -> float:
        """sqrt((s1^2 + s2^2) / 2). A single trial has no s1: the paper's stands for both."""
        if self.printed is None:
            return math.nan
        own = self.printed.sd if math.isnan(self.sd) else self.sd
        return float(_pooled(own, self.printed.sd))

    @property
    def agrees(self) -> bool | None:
        """None where there is nothing to compare."""
        if self.printed is None or not len(self.values) or not self.alike:
            return None
        return bool(_inside(self.difference, self.pooled_sd))

    def redrawn(self, draws: int, rng: np.random.Generator) -> np.ndarray:
        """(draws,) bool: whether it agrees where its trials are drawn again, with replacement."""
        assert self.printed is not None
        # Sorted: the order in which records are read must not change what is drawn.
        drawn = rng.choice(np.sort(self.values), (draws, len(self.values)))
        pooled = _pooled(drawn.std(1, ddof=1), self.printed.sd)
        return _inside(drawn.mean(1) - self.printed.mean, pooled)

    @property
    def welch(self) -> tuple[float, float]:
        """Welch's t of our mean against the paper's, and its degrees of freedom."""
        n, m = len(self.values), paper.trials()
        if self.printed is None or n < 2:
            return math.nan, math.nan
        own, theirs = self.sd**2 / n, self.printed.sd**2 / m
        if own + theirs == 0:
            return math.nan, math.nan
        freedom = (own + theirs) ** 2 / (own**2 / (n - 1) + theirs**2 / (m - 1))
        return self.difference / math.sqrt(own + theirs), freedom

    @property
    def p(self) -> float:
        """Of Welch's test; NaN where there is none."""
        return student(*self.welch)


@dataclass(frozen=True)
class LambdaCell:
    """The lambda a search chose, and the paper's."""

    chosen: float = math.nan
    printed: float | None = None
    mean: float = math.nan  # accuracy where it was chosen
    mean_there: float = math.nan  # accuracy at the paper's lambda, NaN outside the search
    sd: float = math.nan
    count: int = 0
    diverged: int = 0
    best: bool = False
    alike: bool = True  # as of a Cell

    @property
    def missing(self) -> bool:
        return self.count + self.diverged == 0

    @property
    def ratio(self) -> float:
        return self.chosen / self.printed if self.printed else math.nan

    @property
    def agrees(self) -> bool | None:
        if math.isnan(self.mean_there) or not self.alike:
            return None
        return self.mean - self.mean_there <= max(FLOOR, 2 * self.sd)


@dataclass(frozen=True)
class Line:
    label: str
    cells: tuple[Cell, ...] | tuple[LambdaCell, ...]
    category: str = ""


class Nearness(NamedTuple):
    """How near the cells that can be compared lie to the paper's, whatever the rule says of them."""

    within: tuple[int, int]  # how many lie within each of `WITHIN`
    mean: float  # |difference|
    alike: int | None  # how many Welch's test does not tell from the paper's; None: some cannot be tested


@dataclass(frozen=True)
class Table:
    name: str
    caption: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    headings: dict[str, str] = field(default_factory=dict)  # category: its heading
    head: str = ""  # what a reader has to know before any number

    @property
    def cells(self) -> list[Cell | LambdaCell]:
        return [cell for line in self.lines for cell in line.cells]

    @property
    def agreeing(self) -> tuple[int, int]:
        """(cells that agree with the paper, cells that can be compared)."""
        judged = [cell.agrees for cell in self.cells if cell.agrees is not None]
        return sum(judged), len(judged)

    @property
    def nearness(self) -> Nearness | None:
        judged = self._judged
        if not judged:
            return None
        apart = np.abs([cell.difference for cell in judged])
        p = np.array([cell.p for cell in judged])
        close, fair = (int((apart <= limit + 1e-12).sum()) for limit in WITHIN)
        alike = None if np.isnan(p).any() else int((p >= SIGNIFICANT).sum())
        return Nearness((close, fair), float(apart.mean()), alike)

    def redrawn(self, draws: int = DRAWS) -> tuple[int, int] | None:
        """How many cells agree where the trials of each are drawn again, with replacement: from the lowest
        to the highest number that 95 % of the draws give. None where cells have fewer than three trials."""
        judged = self._judged
        if not judged or min(len(cell.values) for cell in judged) < 3:
            return None
        rng = np.random.default_rng(0)
        counts = np.sum([cell.redrawn(draws, rng) for cell in judged], 0)
        low, high = np.percentile(counts, (2.5, 97.5), method="inverted_cdf")  # counts, none between two
        return int(low), int(high)

    @property
    def _judged(self) -> list[Cell]:
        return [cell for cell in self.cells if isinstance(cell, Cell) and cell.agrees is not None]

    @property
    def count(self) -> str:
        """How many cells agree, and how sure that is."""
        agree, judged = self.agreeing
        said = f"{agree} of {judged} cells agree"
        if spread := self.redrawn():
            said += (
                f" ({spread[0]} to {spread[1]} where the trials of each are drawn again, in 95 % of "
                f"{DRAWS:,} draws)"
            )
        return said

    @property
    def caution(self) -> str:
        """What else must be known of that count: sentences, or nothing where nothing is compared."""
        if (near := self.nearness) is None:
            return ""
        (close, fair), (here, there) = near.within, WITHIN
        said = (
            "The rule allows more where our own trials differ more. Whatever they do, "
            f"{close} cells lie within {here:g} of the paper's mean and {fair} within {there:g}, and all lie "
            f"{near.mean:.3f} from it on average"
        )
        if near.alike is not None:
            said += f"; Welch's test finds no difference in {near.alike} at {100 * SIGNIFICANT:g} %"
        return f"{said}."
