"""Whether a mean difference could be chance: from the differences of pairs alone, in NumPy.

With the differences d_1 .. d_n of n pairs (the same seed, with one method and with another):

    sign flips   had neither method an effect, each d_i might as well have the other sign. The p is the share
                 of the 2^n ways to choose the signs that give a |mean| at least as large: exact, and with no
                 thought of a distribution. The least that it can be is 2 / 2^n.
    interval     the mean of the differences drawn again, with replacement: percentiles of many draws. These
                 are too narrow by about sqrt((n - 1) / n), and as wide as a normal distribution of known
                 variance has it; so percentiles further out are taken, alpha/2 = Phi(-sqrt(n / (n - 1)) t),
                 with t Student's at n - 1 degrees of freedom (Hesterberg, 2015).
    Holm         of m comparisons, in the order of their p: max over the first k of (m - j + 1) p_j. The
                 chance that any true equality is taken for a difference stays below the level.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

SIGNIFICANT = 0.05  # two means are told apart where p is lower
EXACT = 16  # so many pairs have all their signs looked at; of more a part is drawn
DRAWS = 10_000  # of an interval
FLIPS = 100_000  # of signs, where these are drawn


def student(t: float, freedom: float) -> float:
    """The probability of a |t| at least as large under Student's distribution. With t = sqrt(freedom) tan(x)
    its density is cos(x)^(freedom - 1) but for a factor; Gauss and Legendre's rule integrates it up to t."""
    node, weight = _rule()
    half = math.atan(abs(t) / math.sqrt(freedom)) / 2
    inside = half * float(weight @ np.cos(half * (node + 1)) ** (freedom - 1))
    whole = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)) * math.sqrt(math.pi) / 2
    return max(1 - inside / whole, 0.0)


@functools.cache  # some milliseconds, and asked for a hundred times over
def _rule() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(100)


def sign_flips(differences: Sequence[float] | np.ndarray, seed: int = 0) -> float:
    """The two-sided p of a mean difference of pairs; NaN of none."""
    d = np.asarray(differences, dtype=float)
    n = len(d)
    if n == 0:
        return math.nan
    if n <= EXACT:
        # Half of them: turning all signs over gives the same |mean|.
        signs = 1 - 2 * (np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1) & 1)
        sums = np.abs(d[0] + signs @ d[1:])
        there, of = 0, 0
    else:
        rng = np.random.default_rng(seed)
        sums = np.concatenate(
            [np.abs(rng.choice([1.0, -1.0], (FLIPS // 10, n)) @ np.sort(d)) for _ in range(10)]
        )
        there = of = 1  # the signs as they are
    # Sums that are equal but for the order of their terms must count as equal.
    least = abs(d.sum()) - 1e-9 * np.abs(d).sum()
    return float((np.count_nonzero(sums >= least) + there) / (len(sums) + of))


def bootstrap(
    differences: Sequence[float] | np.ndarray, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Between which two numbers the mean difference lies, at this level; NaN of fewer than two pairs."""
    d = np.sort(np.asarray(differences, dtype=float))  # the order in which runs are read changes no draw
    n = len(d)
    if n < 2:
        return math.nan, math.nan
    means = np.random.default_rng(seed).choice(d, (DRAWS, n)).mean(1)
    far = math.sqrt(n / (n - 1)) * _quantile(1 - level, n - 1)
    tail = math.erfc(far / math.sqrt(2)) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)


@functools.cache
def _quantile(p: float, freedom: float) -> float:
    """The t with `student(t, freedom) == p`."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, freedom) > p else (low, middle)
    return high


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """The p of several comparisons, corrected for their number. Those that are NaN count for none."""
    given = np.asarray(p, dtype=float)
    found = np.full_like(given, np.nan)
    order = [i for i in np.argsort(given, kind="stable") if not np.isnan(given[i])]
    highest = 0.0
    for k, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - k) * given[i]))
        found[i] = highest
    return found


def least(seeds: int) -> float:
    """The lowest p that so many pairs can have."""
    return 2.0 ** (1 - seeds)


def enough(comparisons: int, level: float = SIGNIFICANT) -> int:
    """How many pairs each of so many comparisons needs for Holm's p to be able to lie below the level."""
    return math.ceil(math.log2(2 * comparisons / level))
