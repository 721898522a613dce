"""Smoothed responses: where their top is, how sure that is, and whether a search finds it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engramma.experiment import read
from engramma.runs.study import run
from engramma.search.smooth import LEVEL, Response, smooth
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
    low, high = curve.flat
    assert low < curve.chosen < high
    level = curve.top - max(curve.top_error, LEVEL)
    assert curve.at(low * 1.01) >= level - 1e-3 > curve.at(low * 0.9) - 2e-3
    assert curve.at(high * 0.99) >= level - 1e-3 > curve.at(high * 1.1) - 2e-3
    assert np.isnan(curve.at(1e9))
    plateau = smooth(x, np.full(len(x), 0.3), log=True)
    assert plateau.flat[0] < 1.1 * x.min()
    assert plateau.flat[1] > 0.9 * x.max()


def test_a_straight_line_stays_one_and_its_top_is_at_the_edge() -> None:
    x = np.logspace(-1, 2, 9)
    curve = smooth(x, 0.1 * np.log10(x) + 0.4, log=True)
    np.testing.assert_allclose(curve.mean, 0.1 * np.log10(curve.x) + 0.4, atol=1e-5)
    assert curve.at_edge
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
    assert curve.chosen == pytest.approx([1.0, 10.0, 10.0][count - 1], rel=0.7)


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
        records = run(runs, Store(place), curve_every=100).records
    return smooth(strengths, np.array([r.average for r in records]).reshape(-1, 2), log=True)


@pytest.mark.parametrize("batch", [1, 10])
def test_the_chosen_strength_is_within_the_flat_top_of_a_dense_grid(
    batch: int, dense: Response, tmp_path: Path
) -> None:
    """With batches of one and of ten: so both find the same region."""
    search = strength_search(read(LEARNT), "demo", SEEDS, 20, (1.0, 1e5))
    (found,) = tune([search], Store(tmp_path), batch=batch)
    assert found.response is not None
    assert 20 < dense.flat[0] < dense.flat[1] < 500  # the grid has a top to be missed
    assert dense.flat[0] <= found.response.chosen <= dense.flat[1]
    assert not found.response.at_edge
