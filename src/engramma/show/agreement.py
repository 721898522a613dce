"""What a table is: lines of cells, each with its trials and what the paper printed there.

A cell of Table 2 agrees with the paper when |difference| <= max(0.03, 2 pooled sd),
pooled sd = sqrt((s1^2 + s2^2) / 2), with s1 our sample standard deviation and s2 the paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engramma.paper import numbers as paper

FLOOR = 0.03  # a difference this small is never held against a cell
DRAWS = 2000  # by which the sureness of a count is judged


def _pooled(own: Any, printed: float) -> Any:
    return np.sqrt((own**2 + printed**2) / 2)


def _inside(difference: Any, pooled: Any) -> Any:
    # Printed numbers have three decimals: do not let the last bit of a sum decide.
    return np.abs(difference) <= np.maximum(FLOOR, 2 * pooled) + 1e-12


def agreement(difference: float, own: float, printed: float) -> bool:
    """The rule of Table 2, of a difference and the two standard deviations."""
    return bool(_inside(difference, _pooled(own, printed)))


@dataclass(frozen=True)
class Cell:
    """The trials of one cell, and what the paper printed there."""

    values: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (trials,) that finished
    diverged: int = 0
    printed: paper.Printed | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # further columns of the CSV
    best: bool = False
    alike: bool = True  # the runs had the paper's settings: else its number is shown, and nothing is judged

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


@dataclass(frozen=True)
class Table:
    name: str
    caption: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    headings: dict[str, str] = field(default_factory=dict)  # category: its heading

    @property
    def cells(self) -> list[Cell | LambdaCell]:
        return [cell for line in self.lines for cell in line.cells]

    @property
    def agreeing(self) -> tuple[int, int]:
        """(cells that agree with the paper, cells that can be compared)."""
        judged = [cell.agrees for cell in self.cells if cell.agrees is not None]
        return sum(judged), len(judged)

    def redrawn(self, draws: int = DRAWS) -> tuple[int, int] | None:
        """How many cells agree where the trials of each are drawn again, with replacement: from the lowest
        to the highest number that 95 % of the draws give. None where cells have fewer than three trials."""
        judged = [c for c in self.cells if isinstance(c, Cell) and c.agrees is not None]
        if not judged or min(len(cell.values) for cell in judged) < 3:
            return None
        rng = np.random.default_rng(0)
        counts = np.sum([cell.redrawn(draws, rng) for cell in judged], 0)
        low, high = np.percentile(counts, (2.5, 97.5), method="inverted_cdf")  # counts, none between two
        return int(low), int(high)
