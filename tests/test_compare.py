"""Runs compared, seed by seed: what is set against what, what is refused, and what is said of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stand_in import record
from typer.testing import CliRunner, Result

import engramma as en
from engramma.cli import app
from engramma.experiment import read
from engramma.show import statistics
from engramma.show.compare import compared
from engramma.store.records import Record, Store
from engramma.store.select import parsed, where

VERTICES = (2, 20)


def kind(method: str, level: float, seeds: int = 6, vertices: tuple[float, ...] = VERTICES, **told: Any):
    """Runs of one kind, whose averages lie around a level, each with a chance of its own."""
    chance = np.random.default_rng(len(method))
    return [
        record(level + 0.01 * chance.standard_normal(), method=method, vertex=v, seed=s, **told)
        for v in vertices
        for s in range(seeds)
    ]


def test_each_seed_is_set_against_itself() -> None:
    """In whatever order runs come; the difference is of means, and interval and p are those of the pairs."""
    one, two = kind("rehearsal", 0.7, strength=0.5), kind("ewc", 0.4, strength=100.0)
    found = compared({"A": one, "B": two[::-1]})
    assert [each.place for each in found.pairs] == [{"vertex": 2}, {"vertex": 20}]
    assert [each.seeds for each in found.pairs] == [tuple(range(6))] * 2
    for k, each in enumerate(found.pairs):
        pairs = [
            (a.scores["accuracy"][-1].mean(), b.scores["accuracy"][-1].mean())
            for a, b in zip(one[6 * k : 6 * k + 6], two[6 * k : 6 * k + 6], strict=True)
        ]
        apart = np.array([a - b for a, b in pairs])
        np.testing.assert_allclose(each.differences, apart)
        assert found.difference[k] == pytest.approx(each.means[0] - each.means[1])
        assert found.p[k] == statistics.sign_flips(apart) == statistics.least(6)
        assert tuple(found.interval[k]) == pytest.approx(statistics.bootstrap(apart))
    np.testing.assert_array_equal(found.p_holm, statistics.holm(found.p))
    assert found.notes[0].startswith("with 6 seeds no p can be below 0.031, and none of Holm's")
    assert "to tell at 5 % takes 7 seeds" in found.notes[0]
    swapped = compared({"B": two, "A": one})
    np.testing.assert_allclose(swapped.difference, -found.difference)


def test_all_are_set_against_the_first_and_corrected_together() -> None:
    sides = {name: kind(name, level) for name, level in (("l2", 0.5), ("vanilla", 0.3), ("agem", 0.51))}
    found = compared(sides)
    assert [(each.other, each.place["vertex"]) for each in found.pairs] == [
        ("vanilla", 2), ("vanilla", 20), ("agem", 2), ("agem", 20)]  # fmt: skip
    np.testing.assert_array_equal(found.p_holm, statistics.holm(found.p))
    alone = compared({name: sides[name] for name in ("l2", "agem")})
    np.testing.assert_array_equal(alone.p, found.p[2:])
    assert (alone.p_holm <= found.p_holm[2:]).all()
    rows = found.rows()
    assert [row["difference"] for row in rows] == found.difference.tolist()
    assert {len(row) for row in rows} == {len(rows[0])}


def test_a_seed_or_a_place_without_a_partner_is_left_out_and_said() -> None:
    one = kind("ewc", 0.5, seeds=4, vertices=(2, 5))
    two = kind("agem", 0.4, seeds=6, vertices=(2, 20))
    del two[1]  # seed 1, at n=2 alone
    found = compared({"EWC": one, "A-GEM": two})
    (each,) = found.pairs
    assert each.seeds == (0, 2, 3)
    here = [where(side, {"vertex": 2}) for side in (one, two)]
    levels = [{r.description["seed"]: r.scores["accuracy"][-1].mean() for r in side} for side in here]
    np.testing.assert_allclose(each.differences, [levels[0][s] - levels[1][s] for s in (0, 2, 3)])
    assert "left out: n=5, which only EWC has" in found.notes
    assert "left out: n=20, which only A-GEM has" in found.notes


def test_runs_of_a_search_stand_in_nobody_s_way() -> None:
    """Their seeds are others than a table's; so it matters not that they are of many strengths."""
    one, two = kind("ewc", 0.5, strength=30.0), kind("mas", 0.4, strength=0.1)
    tried = [record(0.3, method="ewc", vertex=v, seed=s, strength=x)
             for v in VERTICES for s in (1000, 1001) for x in (1.0, 10.0, 100.0)]  # fmt: skip
    np.testing.assert_array_equal(
        compared({"A": [*tried, *one], "B": two}).difference, compared({"A": one, "B": two}).difference
    )


def test_a_run_that_diverged_takes_its_partner_with_it() -> None:
    one = [record(0.5 + s / 100, seed=s, method="ewc", diverged=s == 2) for s in range(4)]
    two = [record(0.4, seed=s, method="mas") for s in range(4)]
    found = compared({"A": one, "B": two})
    (each,) = found.pairs
    assert (each.seeds, each.diverged) == ((0, 1, 3), 1)
    assert each.means[0] == pytest.approx(np.mean([0.5, 0.51, 0.53]))
    assert "1 pair left out: a run of them diverged" in found.notes
    all_lost = compared({"A": [record(method="ewc", diverged=True)], "B": two[:1]})
    assert np.isnan(all_lost.difference).all()
    assert np.isnan(all_lost.p_holm).all()


def test_settings_in_which_the_sides_differ_are_named() -> None:
    one = kind("ewc", 0.5, strength=100.0, settings={"fisher": "item"}, learning_rate=0.1, memories=64)
    two = kind("mas", 0.4, strength=0.1, settings={"square": True}, learning_rate=0.15)
    (note, _) = compared({"EWC": one, "MAS": two}).notes
    assert note == "EWC and MAS also differ in learning_rate (0.1 and 0.15), memories (64 and 512)"
    (note, _) = compared({"EWC": one, "MAS": two}, named=["memories"]).notes
    assert note == "EWC and MAS also differ in learning_rate (0.1 and 0.15)"
    same = kind("ewc", 0.5, strength=100.0, settings={"fisher": "batch"}, learning_rate=0.1, memories=64)
    assert len(compared({"item": one, "batch": same}).notes) == 1  # of seeds: for its sake they are compared
    weaker = [record(0.4, **{**r.description, "strength": 10.0}) for r in same]
    (note, _) = compared({"item": one, "batch": weaker}).notes
    assert note == "item and batch also differ in fisher (item and batch), strength (100 and 10)"


def test_what_both_sides_have_several_of_makes_places() -> None:
    """Proportions, methods, any setting: each value against itself."""
    halves = [kind(m, 0.5, strength=s) for m in ("rehearsal", "gem") for s in (0.05, 0.5)]
    found = compared({"rehearsal": [*halves[0], *halves[1]], "gem": [*halves[3], *halves[2]]})
    assert [each.where for each in found.pairs] == [
        f"n={v}, strength {s}" for v in VERTICES for s in (0.05, 0.5)
    ]
    sizes = {str(m): [*kind("l2", 0.5, memories=m), *kind("agem", 0.5, memories=m)] for m in (64, 128)}
    assert {each.where for each in compared(sizes).pairs} == {
        f"n={v}, {m}" for v in VERTICES for m in ("L2", "A-GEM")
    }
    # A lambda is no part of a row: it may be another at another vertex, and is not what is paired by.
    lambdas = {v: [*kind("ewc", 0.5, vertices=(v,), strength=float(v)), *kind("l2", 0.4, vertices=(v,))]
               for v in VERTICES}  # fmt: skip
    found = compared({f"vertex={v}": some for v, some in lambdas.items()}, named=["vertex"])
    assert [each.place for each in found.pairs] == [{"method": "l2"}, {"method": "ewc"}]
    assert found.notes[0] == "vertex=2 and vertex=20 also differ in strength (2 and 20)"


@pytest.mark.parametrize(
    ("one", "two", "says"),
    [
        (
            [*kind("ewc", 0.5, strength=1.0), *kind("ewc", 0.5, strength=3.0)],
            kind("mas", 0.4),
            r"A, n=2: runs must differ in their seed alone, and differ in strength \(1, 3\); name one, "
            "such as ewc:strength=1",
        ),
        (kind("ewc", 0.5, vertices=(2, 5)), kind("mas", 0.4, vertices=(10, 20)), "differ in vertex"),
        (
            kind("ewc", 0.5, seeds=2),
            [record(method="mas", seed=9, vertex=2)],
            "nothing can be paired: A has the seed 0, 1, B has the seed 9",
        ),
    ],
)
def test_what_cannot_be_paired_is_refused(one: list[Any], two: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        compared({"A": one, "B": two})
    assert "\n" not in str(caught.value)


def test_sides_have_no_run_in_common() -> None:
    runs = kind("ewc", 0.5)
    with pytest.raises(ValueError, match="A and B have some in common"):
        compared({"A": runs, "B": runs[:1]})
    with pytest.raises(ValueError, match="two sides or more"):
        compared({"A": runs})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ewc", {"method": "ewc"}),
        ("gem@0.5", {"method": "gem", "strength": 0.5}),
        ("ewc:strength=100,fisher=item", {"method": "ewc", "strength": 100, "fisher": "item"}),
        ("vertex=20", {"vertex": 20}),
        ("vertex=[2,20],task_id=false", {"vertex": [2, 20], "task_id": False}),
        ("./mine.py:Mine", {"method": "./mine.py:Mine"}),
        ("./mine.py:Mine@0.5", {"method": "./mine.py:Mine", "strength": 0.5}),
        ("./mine.py:Mine:vertex=2", {"method": "./mine.py:Mine", "vertex": 2}),
        ("pack.age:Mine", {"method": "pack.age:Mine"}),
        ("clamp=none", {"clamp": "none"}),
    ],
)
def test_what_names_runs(text: str, told: dict[str, Any]) -> None:
    assert parsed(text) == told


def test_runs_by_their_settings() -> None:
    runs = [
        *kind("ewc", 0.5, settings={"fisher": "item"}, strength=100.0),
        *kind("./mine.py:Mine", 0.5, memories=64),
    ]
    assert where(runs, {}) == runs
    assert where(runs, {"method": "ewc"}) == where(runs, {"fisher": "item"}) == runs[:12]
    assert where(runs, {"method": "Mine"}) == where(runs, {"strength": "none"}) == runs[12:]
    assert where(runs, {"method": "ewc", "vertex": 20, "seed": range(2)}) == runs[6:8]
    assert where(runs, {"vertex": [2, 20]}) == runs
    for wanted, says in (
        ({"vertx": 2}, "unknown setting vertx of these runs; did you mean vertex?"),
        ({"method": "ewcc"}, "no run has the method ewcc; did you mean ewc?"),
        ({"vertex": 7}, "no run has the vertex 7; theirs: 2, 20"),
        ({"method": "Mine", "strength": 100}, "no run has the strength 100; theirs: none"),
    ):
        with pytest.raises(ValueError, match=says):
            where(runs, wanted)
    for text in ("", "ewc:=3", "ewc:a,b=3"):
        with pytest.raises(ValueError, match="method"):
            parsed(text)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records with scores by chance, of two vertices and eleven seeds."""
    place, chance = tmp_path_factory.mktemp("compared"), np.random.default_rng(0)
    for method, level in (("ewc", 0.5), ("mas", 0.52), ("rehearsal", 0.8)):
        for vertex in VERTICES:
            for seed in range(11):
                told = {"data": "digits", "method": method, "vertex": vertex, "seed": seed, "tasks": 3}
                told |= {"learning_rate": 0.2 if method == "rehearsal" else 0.1}
                scores = chance.normal(level, 0.02, (3, 3))
                curves = {"epoch": np.arange(1), "accuracy": np.zeros((1, 3))}
                described = read(told, {"strength": None if method == "rehearsal" else 10}).describe()
                Store(place).write(Record(described, {"accuracy": scores}, curves))
    return place


@pytest.fixture
def ask(store: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Result]:
    monkeypatch.setenv("COLUMNS", "80")
    return lambda line: CliRunner().invoke(app, [*f"compare {line} --store".split(), str(store)])


def test_from_the_command_line(ask: Callable[[str], Result]) -> None:
    said = ask("ewc mas rehearsal")
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in said.stdout
    assert lines[0].strip() == "EWC against others: average"
    assert "EWC and Rehearsal also differ in learning_rate (0.1 and 0.2)" in said.stdout
    assert said.stderr == ""
    two = ask("ewc@10 mas:strength=10,vertex=20")
    assert "EWC λ=10 against mas:strength=10,vertex=20: average" in two.stdout
    assert "Left out: n=2, which only EWC λ=10 has" in two.stdout


def test_the_same_numbers_in_every_form(ask: Callable[[str], Result], store: Path) -> None:
    found = en.compare("ewc", "rehearsal", "mas", store=store)
    told = json.loads(ask("ewc rehearsal mas --format json").stdout)
    assert told["rows"] == found.rows()
    assert told["notes"] == list(found.notes) != []
    lined = ask("ewc rehearsal mas --format csv")
    rows = list(csv.DictReader(io.StringIO(lined.stdout)))
    assert [float(row["difference"]) for row in rows] == found.difference.tolist()
    assert [float(row["p_holm"]) for row in rows] == found.p_holm.tolist()
    assert "also differ in learning_rate" in lined.stderr  # beside, where no program stumbles over it
    head, first, second = ask("ewc rehearsal mas --format latex").stdout.splitlines()
    assert head.startswith("% average:")
    assert first.count("&") == second.count("&") == 2
    assert first.endswith(r" \\")
    assert f"${found.difference[0]:+.3f}^{{*}}$" in first
    assert [f"{low:+.3f}, {high:+.3f}" in first for low, high in found.interval[:2]] == [True, True]
    frame = found.frame()
    assert list(frame["other"]) == ["Rehearsal", "Rehearsal", "MAS", "MAS"]
    assert len(repr(found).splitlines()) == len(found) + len(found.notes)
    forgot = ask("ewc mas --measure forgetting --format json")
    assert json.loads(forgot.stdout)["measure"] == "forgetting"


def test_results_are_compared_as_they_are(store: Path) -> None:
    everything = en.load(store)
    sides = [everything.where(method=name) for name in ("ewc", "rehearsal")]
    np.testing.assert_array_equal(en.compare(*sides).p, en.compare("ewc", "rehearsal", store=store).p)
    assert en.compare(*sides).first == "EWC λ=10"
    low, high = (everything.where("ewc", vertex=n) for n in VERTICES)
    (each,) = en.compare(low, high).pairs
    assert len(each.seeds) == 11
    assert each.place == {}
    assert not [note for note in en.compare(low, high).notes if "also differ" in note]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ewc", "compare must be of two sides or more"),
        ("ewc ewc", "compare must be of different runs, and EWC is named twice"),
        ("ewc vertex=2", "EWC and vertex=2 have some in common"),
        ("ewc sleep", "no run has the method sleep; theirs: "),
        ("ewc:vertx=2 mas", "unknown setting vertx"),
        ("ewc mas --format pdf", "format must be one of rich, csv, json, latex, not 'pdf'"),
        ("ewc mas --measure luck", "measure must be one of average, "),
        ("ewc mas:seed=9 --from nowhere", "--store must be a folder or an archive of records; there is none"),
        ("ewc:seed=1 mas:seed=9", "nothing can be paired: ewc:seed=1 has the seed 1, mas:seed=9 has the"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(ask: Callable[[str], Result], line: str, says: str) -> None:
    said = ask(line)
    assert said.exit_code == 2, said.output
    assert says in said.stderr
    assert said.stderr.count("\n") == 1
