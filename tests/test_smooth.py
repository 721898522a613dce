"""Smoothed responses: where their top is, how sure that is, and whether a search finds it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engramma.experiment import read
from engramma.runs.options import Options
from engramma.runs.study import run
from engramma.search.smooth import LEVEL, SHARES, Response, smooth
from engramma.search.spaces import FIRST_SEED, strength_search
from engramma.search.tune import tune
from engramma.store.records import Store

SEEDS = (FIRST_SEED, FIRST_SEED + 1)


def noisy(seed: int, noise: float = 0.03, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """A peak of height 0.6 at 100, a decade wide either way."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(-2, 6, count)
    return 10**u, hill(10**u) + noise * rng.standard_normal(count)


def hill(x: np.ndarray | float) -> Any:
    return 0.2 + 0.4 * np.exp(-((np.log10(x) - 2) ** 2) / 2)


def test_the_top_of_a_noisy_response_is_found_better_than_by_its_highest_point() -> None:
    smoothed, highest = [], []
    for seed in range(40):
        x, y = noisy(seed)
        smoothed.append(abs(np.log10(smooth(x, y, log=True).chosen) - 2))
        highest.append(abs(np.log10(x[y.argmax()]) - 2))
    assert np.mean(smoothed) < 0.7 * np.mean(highest)
    assert np.mean(smoothed) < 0.25


def test_the_band_covers_the_truth_about_as_often_as_it_says() -> None:
    inside = []
    for seed in range(100):
        x, y = noisy(seed)
        curve = smooth(x, y, log=True)
        middle = slice(60, -60)  # away from the ends
        inside.append(np.abs(curve.mean - hill(curve.x))[middle] <= 1.96 * curve.error[middle])
    assert 0.85 < np.mean(inside) < 0.99


def test_the_flat_top_is_where_the_response_is_within_an_error_of_its_top() -> None:
    x, y = noisy(3, noise=0.0)
    curve = smooth(x, y, log=True)
    low, high = (int(np.abs(np.log(curve.x / end)).argmin()) for end in curve.flat)
    assert 0 < low < curve.mean.argmax() < high < len(curve.x) - 1
    assert curve.chosen == pytest.approx(curve.x[curve.mean.argmax()], rel=0.01)
    assert curve.top == curve.mean.max() == pytest.approx(curve.at(curve.chosen), abs=1e-4)
    level = curve.top - max(curve.top_error, LEVEL)
    assert curve.mean[low : high + 1].min() >= level > max(curve.mean[low - 1], curve.mean[high + 1])
    assert np.isnan(curve.at(1e9))
    assert np.isnan(curve.at(1e-9))
    plateau = smooth(x, np.full(len(x), 0.3), log=True)
    assert plateau.flat[0] < 1.1 * x.min()
    assert plateau.flat[1] > 0.9 * x.max()


@pytest.mark.parametrize("count", [12, 30])
def test_the_response_is_weighted_least_squares_as_its_page_has_it(count: int) -> None:
    """Lines fitted place by place: their values, the bandwidth that leaves points out best, the band."""
    rng = np.random.default_rng(4)
    u = np.sort(rng.uniform(-2, 6, count))
    each = hill(10**u)[:, None] + 0.03 * rng.standard_normal((count, 3))
    y, seeds = each.mean(1), each.shape[1]

    def line(at: float, width: float, known: np.ndarray, values: np.ndarray) -> float:
        apart = u[known] - at
        return float(np.polyfit(apart, values[known], 1, w=np.exp(-((apart / width) ** 2) / 4))[1])

    def matrix(places: np.ndarray, width: float) -> np.ndarray:
        return np.array([[line(p, width, u == u, one) for one in np.eye(count)] for p in places])

    wide = [share * np.ptp(u) for share in SHARES if share * count >= 1]
    missed = [np.mean([(y[i] - line(u[i], h, u != u[i], y)) ** 2 for i in range(count)]) for h in wide]
    width = wide[int(np.argmin(missed))]
    curve = smooth(10**u, each, log=True)
    assert curve.bandwidth == pytest.approx(width)
    rows = matrix(np.log10(curve.x), width)
    np.testing.assert_allclose(curve.mean, rows @ y, rtol=1e-3)

    hat = matrix(u, width)
    sigma = ((y - hat @ y) ** 2).sum() / (count - np.trace(2 * hat - hat @ hat.T))
    noise = sigma * (rows**2).sum(1)
    alone = smooth(10**u, y, log=True)
    np.testing.assert_allclose(alone.error, np.sqrt(noise), rtol=0.01)
    own = rows @ (each - each.mean(0))
    tau = max(0.0, np.mean(own.var(1, ddof=1) - seeds * noise))
    np.testing.assert_allclose(curve.error, np.sqrt(noise + tau / seeds), rtol=0.01)


def test_a_straight_line_stays_one_and_its_top_is_at_the_edge() -> None:
    x = np.logspace(-1, 2, 9)
    curve = smooth(x, 0.1 * np.log10(x) + 0.4, log=True)
    np.testing.assert_allclose(curve.mean, 0.1 * np.log10(curve.x) + 0.4, atol=1e-5)
    assert curve.at_edge
    assert smooth(x, 0.4 - 0.1 * np.log10(x), log=True).at_edge
    inside = [1.0, 2.0, 3.0, 10.0]  # of three places or more: the last but one is no edge
    assert not smooth(np.array(inside), np.array([0.1, 0.1, 0.5, 0.1]), log=True).at_edge
    assert not curve._replace(mean=np.array([0.1, 0.2, 0.3, 0.1])).at_edge
    assert not smooth(*noisy(1), log=True).at_edge


def test_the_band_knows_that_seeds_differ_in_shape_but_not_in_level() -> None:
    """Where peaks lie apart it covers the mean of many seeds better; a shift of level widens nothing."""
    rng = np.random.default_rng(0)
    x = np.logspace(-2, 6, 40)

    def seed() -> np.ndarray:
        return hill(x / 10 ** rng.normal(0, 0.4)) + 0.01 * rng.standard_normal(len(x))

    truth = np.mean([hill(x / 10 ** rng.normal(0, 0.4)) for _ in range(2000)], axis=0)
    covered, without = [], []
    for _ in range(60):
        values = np.stack([seed() for _ in range(4)], axis=1)
        curve, plain = smooth(x, values, log=True), smooth(x, values.mean(1), log=True)
        off = np.abs(curve.mean - np.interp(np.log(curve.x), np.log(x), truth))[60:-60]
        covered.append(off <= 1.96 * curve.error[60:-60])
        without.append(off <= 1.96 * plain.error[60:-60])
        lifted = smooth(x, values + np.array([0.0, 0.1, -0.1, 0.2]), log=True)
        np.testing.assert_allclose(lifted.error, curve.error, atol=1e-9)
    assert np.mean(covered) > 0.75  # tau is an average over x: too small on the flanks
    assert np.mean(without) < 0.6


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_trials_are_enough_to_choose(count: int) -> None:
    curve = smooth(np.array([1.0, 10.0, 100.0])[:count], np.array([0.2, 0.5, 0.3])[:count], log=True)
    assert np.isfinite(curve.mean).all()
    assert curve.chosen == pytest.approx([1.0, 10.0, 10.0][count - 1], rel=0.01)
    assert curve.top == pytest.approx([0.2, 0.5, 0.5][count - 1])


# Does it find the top?

# Learned well enough to be forgotten: the average rises from 0.35 to 0.53 and falls to 0.30.
LEARNT: dict[str, Any] = {
    "data": "digits",
    "tasks": 3,
    "items": 400,
    "memories": 32,
    "epochs": 100,
    "learning_rate": 0.3,
    "method": "ewc",
}


@pytest.fixture(scope="module")
def dense() -> Response:
    """Six lambdas a decade over five decades, on the seeds of the search: the very objective it looks for."""
    strengths = np.logspace(0, 5, 31)
    runs = [read(LEARNT, {"strength": float(s), "seed": seed}) for s in strengths for seed in SEEDS]
    with tempfile.TemporaryDirectory() as place:
        records = run(runs, Store(place), Options(curve_every=100)).records
    return smooth(strengths, np.array([r.average for r in records]).reshape(-1, 2), log=True)


@pytest.mark.parametrize("batch", [1, 10])
def test_the_chosen_strength_is_within_the_flat_top_of_a_dense_grid(
    batch: int, dense: Response, tmp_path: Path
) -> None:
    """With batches of one and of ten: so both find the same region."""
    search = strength_search(read(LEARNT), "demo", SEEDS, 20, (1.0, 1e5))
    (found,) = tune([replace(search, batch=batch)], Store(tmp_path))
    assert found.response is not None
    assert 20 < dense.flat[0] < dense.flat[1] < 500  # the grid has a top to be missed
    assert dense.flat[0] <= found.response.chosen <= dense.flat[1]
    assert not found.response.at_edge
