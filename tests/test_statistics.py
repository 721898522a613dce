"""Whether a difference could be chance: against SciPy, and against what each thing is meant to do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engramma.show import statistics

NUMBERS = st.lists(
    st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=1, max_size=9
)  # as differences of accuracies are: rounded, so that some are alike


@given(NUMBERS)
def test_sign_flips_are_scipys_permutation_test(differences: list[float]) -> None:
    d = np.array(differences)
    if len(d) < 2:
        assert statistics.sign_flips(d) == 1.0
        return
    known = stats.permutation_test(
        (d,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert statistics.sign_flips(d) == pytest.approx(known.pvalue, abs=1e-12)


@given(NUMBERS)
def test_sign_flips_ask_for_no_order_no_sign_and_no_scale(differences: list[float]) -> None:
    d = np.array(differences)
    p = statistics.sign_flips(d)
    assert statistics.least(len(d)) <= p <= 1
    assert p == statistics.sign_flips(d[::-1]) == statistics.sign_flips(-d) == statistics.sign_flips(d * 37.3)


@pytest.mark.parametrize("n", range(1, 13))
def test_the_least_p_is_that_of_differences_of_one_sign(n: int) -> None:
    d = np.random.default_rng(n).uniform(0.1, 1, n)
    assert statistics.sign_flips(d) == statistics.least(n)
    enough = statistics.enough(n)  # pairs for each of n comparisons
    assert n * statistics.least(enough) <= statistics.SIGNIFICANT < n * statistics.least(enough - 1)


def test_of_many_pairs_a_part_of_the_signs_is_drawn() -> None:
    """And the p is that of Wilcoxon's cousin, the normal limit."""
    rng = np.random.default_rng(3)
    d = rng.normal(0.2, 1, 80)
    t = d.mean() / math.sqrt((d**2).mean() / len(d))
    assert statistics.sign_flips(d) == pytest.approx(2 * stats.norm.sf(abs(t)), abs=0.01)
    assert statistics.sign_flips(d) == statistics.sign_flips(d)
    assert 0 < statistics.sign_flips(np.full(80, 0.1)) < 1e-4


def test_under_no_effect_p_is_below_a_level_as_often_as_the_level() -> None:
    draw = np.random.default_rng(0)
    found = np.array([statistics.sign_flips(draw.standard_t(3, 8)) for _ in range(2000)])
    for level in (0.05, 0.25, 0.5):
        assert (found <= level).mean() == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 2000))


def by_definition(p: list[float]) -> list[float]:
    """Holm (1979): step down through the ordered p, as it is written in textbooks."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    found = [0.0] * len(p)
    for k, i in enumerate(order):
        found[i] = max(min((len(p) - j) * p[order[j]], 1.0) for j in range(k + 1))
    return found


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_its_definition(p: list[float]) -> None:
    np.testing.assert_allclose(statistics.holm(p), by_definition(p))
    spread = [each for pair in zip(p, [math.nan] * len(p), strict=True) for each in pair]
    with_gaps = statistics.holm(spread)
    np.testing.assert_array_equal(with_gaps[::2], statistics.holm(p))
    assert np.isnan(with_gaps[1::2]).all()


@pytest.mark.parametrize("freedom", [1, 2, 5, 30])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.5])
def test_the_quantile_of_student(freedom: int, level: float) -> None:
    assert statistics._quantile(level, freedom) == pytest.approx(stats.t.isf(level / 2, freedom), rel=1e-6)


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_an_interval_holds_the_mean_as_often_as_it_says(kind: str) -> None:
    """Of few differences whose mean is 0: plain percentiles of 8 hold it in 87 or 88 % of such draws."""
    draw = getattr(np.random.default_rng(8), kind)
    spans = [statistics.bootstrap(draw(size=8) - (0.5 if kind == "uniform" else 0)) for _ in range(400)]
    assert 0.91 <= np.mean([low <= 0 <= high for low, high in spans]) <= 0.975


@given(NUMBERS)
def test_an_interval_lies_around_the_mean_and_within_the_differences(differences: list[float]) -> None:
    d = np.array(differences)
    low, high = statistics.bootstrap(d)
    if len(d) < 2:
        assert math.isnan(low)
        assert math.isnan(high)
        return
    assert d.min() - 1e-12 <= low <= d.mean() + 1e-12
    assert d.mean() - 1e-12 <= high <= d.max() + 1e-12
    assert (low, high) == statistics.bootstrap(d[::-1])  # whatever order runs are read in
    wide = statistics.bootstrap(d, level=0.99)
    assert wide[0] <= low <= high <= wide[1]


def test_of_nothing_nothing_is_said() -> None:
    assert math.isnan(statistics.sign_flips([]))
    assert all(map(math.isnan, statistics.bootstrap([])))
    assert statistics.holm([]).shape == (0,)
