"""What a search looks at: its range, its first points, its runs and its name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engramma import studies
from engramma.experiment import Experiment, read
from engramma.search.spaces import (
    How,
    Search,
    default_range,
    even,
    grid_search,
    rows_of,
    strength_search,
)

SEEDS = (1000, 1001)


def base(method: str = "ewc", **changes: Any) -> Experiment:
    given = {"method": method, **({} if method == "vanilla" else {"strength": 0.5})}
    return read({"data": "digits", "tasks": 3, "items": 40, "memories": 4, "epochs": 2}, given, changes)


def strengths(search: Search) -> list[float]:
    return [dict(point)["strength"] for point in search.points]


@pytest.mark.parametrize("scale", ["demo", "small", "paper"])
@pytest.mark.parametrize("method", ["l2", "ewc", "mas", "si"])
def test_a_lambda_is_looked_for_eight_decades_around_the_papers(method: str, scale: studies.Scale) -> None:
    centres = {}
    for vertex in (2.0, 5.0, 20.0):
        low, high = default_range(base(method, vertex=vertex), scale)
        assert high / low == pytest.approx(1e8, rel=1e-4)
        centres[vertex] = math.sqrt(low * high)
    study = studies.load(method)
    asked = {v: {run.experiment.strength for run in study.runs(scale, vertices=[v])} for v in centres}
    for vertex, centre in centres.items():
        found = [float(strength or 0) for strength in asked[vertex]]
        assert min(found) < centre < max(found)
        assert centre == pytest.approx(math.sqrt(min(found) * max(found)), rel=0.01)  # its middle


def test_the_centre_is_that_of_the_nearest_vertex_and_of_none_where_there_is_no_study() -> None:
    assert default_range(base(vertex=19.0), "paper") == default_range(base(vertex=20.0), "paper")
    assert default_range(base(vertex=4.0), "paper") == default_range(base(vertex=5.0), "paper")
    ranges = {
        default_range(base(m, vertex=v, settings={"unit": True}), "paper")
        for m in ("l2", "mas")
        for v in (2.0, 20.0)
    }
    assert ranges == {(1e-10, 0.01)}
    assert default_range(base("vanilla"), "demo") == (1e-4, 1e4)


def test_the_first_lambdas_cover_the_range_evenly_however_few_of_them_are_run() -> None:
    search = strength_search(base(), "demo", SEEDS, span=(1e-3, 1e7))
    assert search.trials == 100
    assert strength_search(base(), "demo", SEEDS, 7).trials == 7
    assert len(search.points) == 10
    steps = sorted(math.log10(s) for s in strengths(search))
    assert steps == pytest.approx([k - 2.5 for k in range(10)], abs=1e-5)  # the middles of ten equal parts
    early = sorted(math.log10(s) for s in strengths(search)[:4])
    assert max(b - a for a, b in pairwise([-3, *early, 7])) <= 3  # none is far from all of the first four


def test_proportions_are_all_evenly_spaced_with_both_ends() -> None:
    search = strength_search(base("gem"), "demo", SEEDS, 6, (0.1, 0.6))
    assert (search.kind, search.trials) == ("proportion", 6)
    assert strengths(search) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert strengths(strength_search(base("gem"), "demo", SEEDS)) == pytest.approx(
        [k / 10 for k in range(11)]
    )
    assert strengths(strength_search(base("gem"), "demo", SEEDS, 1)) == [0.0]


def test_the_class_says_on_which_scale_it_is_searched(tmp_path: Path) -> None:
    body = "\n".join((
        "from dataclasses import dataclass", "from engramma.methods import Method", "@dataclass(frozen=True)",
        "class Own(Method):",
        "    strength_name, strength_kind = 'share', {kind!r}", "    share: float = 0.5",
    ))  # fmt: skip
    for kind, low, high in (("proportion", 0, 1), ("lambda", 1e-4, 1e4)):
        file = tmp_path / f"{kind}.py"
        file.write_text(body.format(kind=kind))
        search = strength_search(base(f"{file}:Own"), "demo", SEEDS)
        assert (search.kind, search.low, search.high) == (kind, low, high)
    file = tmp_path / "neither.py"
    file.write_text(body.format(kind="log"))
    with pytest.raises(ValueError, match="must be lambda or proportion, not 'log'"):
        strength_search(base(f"{file}:Own"), "demo", SEEDS)


def test_a_trial_is_a_run_a_seed_and_a_temperature_is_both_of_them() -> None:
    search = grid_search(base(), SEEDS, [0.1, 0.05, 0.1], [0.5, 0.9])
    assert search.trials == len(search.points) == 4  # each cell once
    runs = search.experiments({"learning_rate": 0.05, "temperature": 0.9})
    assert [(e.seed, e.learning_rate, e.initial_temperature, e.final_temperature) for e in runs] == [
        (1000, 0.05, 0.9, 0.9),
        (1001, 0.05, 0.9, 0.9),
    ]
    (one, _) = strength_search(base(), "demo", SEEDS).experiments({"strength": 1 / 3})
    assert one.strength == 0.333333  # what its file says is what was run
    assert one == base(strength=0.333333, seed=1000)


def test_the_space_holds_what_is_tried_and_is_logarithmic_for_a_lambda_alone() -> None:
    for search, log in ((strength_search(base(), "demo", SEEDS, 3), True),
                        (strength_search(base("gem"), "demo", SEEDS, 3), False)):  # fmt: skip
        space = search.distributions()["strength"].__dict__
        assert (space["low"], space["high"], space["log"]) == (search.low, search.high, log)
    cells = grid_search(base(), SEEDS, [0.1, 0.05], [0.9, 0.5, 0.7]).distributions()
    assert {name: kind.__dict__["choices"] for name, kind in cells.items()} == {
        "learning_rate": (0.05, 0.1),
        "temperature": (0.5, 0.7, 0.9),
    }


def test_what_is_maximised() -> None:
    assert strength_search(base(), "demo", SEEDS).measure == "average"
    assert strength_search(base("gem"), "demo", SEEDS).measure == "average"
    assert grid_search(base(), SEEDS, [0.1], [0.9]).measure == "smallest_own"


def test_a_name_says_what_is_searched_and_another_search_has_another() -> None:
    first = strength_search(base(), "demo", SEEDS, 5)
    assert first.name.startswith("ewc n=2 lambda ")
    assert grid_search(base(), SEEDS, [0.1], [0.9]).name.startswith("ewc n=2 learning-rate-temperature ")
    alike = [strength_search(base(seed=5, strength=3.0), "demo", SEEDS, 9)]  # neither is the search's own
    assert {s.name for s in alike} == {first.name}
    unlike: list[Callable[[], Search]] = [
        lambda: strength_search(base(), "demo", SEEDS[:1], 5),
        lambda: strength_search(base(), "demo", SEEDS, 5, (1.0, 2.0)),
        lambda: strength_search(base(items=50), "demo", SEEDS, 5),
        lambda: strength_search(base("l2"), "demo", SEEDS, 5),
        lambda: strength_search(base("gem"), "demo", SEEDS, 5),
        lambda: strength_search(base("gem"), "demo", SEEDS, 6),
        lambda: grid_search(base(), SEEDS, [0.1], [0.9]),
        lambda: grid_search(base(), SEEDS, [0.1], [0.8]),
    ]
    names = [first.name, *(make().name for make in unlike)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("method", "span", "fits"),
    [
        ("ewc", (1e-9, 1e9), True), ("ewc", (0.0, 1.0), False), ("ewc", (-1.0, 1.0), False),
        ("ewc", (2.0, 1.0), False), ("ewc", (1.0, 1.0), False),
        ("gem", (0.0, 1.0), True), ("gem", (0.2, 0.4), True), ("gem", (0.5, 1.1), False),
        ("gem", (-0.1, 0.5), False), ("gem", (0.5, 0.5), False), ("gem", (0.5, 0.1), False),
    ],
)  # fmt: skip
def test_a_range_is_two_numbers_in_order_and_within_bounds(
    method: str, span: tuple[float, float], fits: bool
) -> None:
    if fits:
        assert (made := strength_search(base(method), "demo", SEEDS, 3, span)).low == span[0]
        assert made.high == span[1]
        return
    allowed = {"ewc": r"above 0, to 1e\+30", "gem": "between 0 and 1"}[method]
    with pytest.raises(ValueError, match=f"range must be two numbers {allowed}, the smaller first, not "):
        strength_search(base(method), "demo", SEEDS, 3, span)


def test_no_trials_and_no_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="trials must be at least 1, not 0"):
        strength_search(base(), "demo", SEEDS, 0)
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        strength_search(base(), "demo", (), 3)


def test_an_even_search_reaches_both_ends_and_halves_every_decade_alike() -> None:
    search = even(strength_search(base(), "demo", SEEDS, 7, (0.1, 100.0)))
    assert strengths(search) == pytest.approx([0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0])
    assert strengths(even(strength_search(base("gem"), "demo", SEEDS, 3))) == [0.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="prune must be left out of an even search"):
        replace(search, prune=True)


def test_the_rows_of_a_study_are_searched_with_the_settings_of_its_runs() -> None:
    study, how = studies.load("beyond"), How((100, 101), 7, scale="paper")
    found = rows_of("beyond", None, None, {}, how)
    assert {s.base.method for s in found} == {row.partition("@")[0] for row in study.searches}
    own = {e.name for row, e in study.runs("paper", [100]) if row in study.searches}
    assert len(own) == len(found) == 4 * len(study.searches)
    for search in found:
        (run,) = [e for e in search.experiments({"strength": search.base.strength}) if e.seed == 100]
        assert run.name in own
        assert len(search.experiments({"strength": 1.0})) == 2
    with pytest.raises(ValueError, match="beyond does not for vanilla"):
        rows_of("beyond", ["vanilla"], None, {}, how)
    (one,) = rows_of("beyond", ["ewc"], [2.0], {"items": 50}, replace(how, span=(1.0, 10.0), trials=None))
    assert (one.low, one.high, one.base.items, one.even, one.trials) == (1.0, 10.0, 50, True, 13)
