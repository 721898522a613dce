"""What searches chose: written, read back, used by other commands; what is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from engramma import studies
from engramma.cli import app
from engramma.experiment import read
from engramma.search import choice as chosen
from engramma.search.smooth import smooth
from engramma.search.spaces import FIRST_SEED, grid_search, strength_search
from engramma.search.tune import Found
from engramma.show import tables
from engramma.store.records import Store

SEEDS = (FIRST_SEED, FIRST_SEED + 1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def engramma(text: str) -> Result:
    return CliRunner().invoke(app, text.split())


SMALL = "--data digits --tasks 2 --items 40 --memories 4 --epochs 2 --device cpu"


def test_chosen_values_go_round_into_run_reproduce_and_table(here: Path) -> None:
    done = engramma(f"tune {SMALL} --method ewc,l2 --vertices 2,20 --trials 4 --unit-importance")
    assert done.exit_code == 0, done.output
    choices = chosen.load(here / "chosen.toml")
    assert [(c.method, c.vertex) for c in choices] == [("ewc", 2), ("ewc", 20), ("l2", 2), ("l2", 20)]
    assert all(c.settings["unit"] and c.search["seeds"] == list(SEEDS) for c in choices)
    assert "1000, 1001" in done.output
    assert (here / "figures" / "tune-ewc-l2.png").stat().st_size > 10_000
    strength = {(c.method, c.vertex): c.strength for c in choices}

    again = engramma("run --config chosen.toml --method ewc --seeds 2 --store final --device cpu")
    assert again.exit_code == 0, again.output
    made = [r.description for r in Store(here / "final")]
    assert sorted((d["vertex"], d["seed"]) for d in made) == [(2, 0), (2, 1), (20, 0), (20, 1)]
    for told in made:
        assert told["strength"] == strength["ewc", told["vertex"]]
        assert told["settings"]["unit"] is True
        assert (told["items"], told["memories"]) == (40, 4)

    runs = studies.load("table2").runs("demo", seeds=[0], chosen=choices)
    of = {(r.row, r.experiment.vertex): r.experiment for r in runs}
    plain = {
        (r.row, r.experiment.vertex): r.experiment for r in studies.load("table2").runs("demo", seeds=[0])
    }
    for place, e in of.items():
        if place in strength:
            assert e.strength == strength[place]
            assert e.settings["unit"]
            assert e.but(strength=plain[place].strength, settings=plain[place].settings) == plain[place]
        else:
            assert e == plain[place]
    dry = engramma("reproduce table2 --strengths chosen.toml --dry-run --device cpu")
    assert dry.exit_code == 0, dry.output
    assert f"ewc n = 2: {strength['ewc', 2]:g}" in dry.output

    one = engramma("table table1 --strengths chosen.toml --format csv")
    assert one.exit_code == 0, one.output
    rows = [row.split(",") for row in one.stdout.splitlines()]
    head = rows[0]
    found = {(r[1], r[2]): r[head.index("lambda")] for r in rows[1:] if len(r) == len(head)}
    assert float(found["EWC", "n=20"]) == strength["ewc", 20]
    assert float(found["L2", "n=2"]) == strength["l2", 2]


def test_another_search_adds_to_the_file(here: Path) -> None:
    for text in (
        "--method ewc --vertices 2 --trials 3",
        "--grid --vertices 2 --rates 0.05,0.1 --temperatures 0.9",
        "--method ewc --vertices 2 --trials 4",
    ):
        done = engramma(f"tune {SMALL} {text}")
        assert done.exit_code == 0, done.output
    first, second = chosen.load(here / "chosen.toml")
    assert (first.kind, second.kind) == ("lambda", "grid")
    assert first.search["trials"] == 4
    assert (here / "figures" / "tune-grid-vanilla.png").is_file()
    # The grid's learning rate is for every row at its vertex, the lambda for its own.
    made = studies.load("table2").runs("demo", seeds=[0], vertices=[2.0], chosen=[first, second])
    assert {r.experiment.learning_rate for r in made} == {second.learning_rate}
    assert {r.experiment.initial_temperature for r in made} == {0.9}
    assert [r.experiment.strength for r in made if r.row == "ewc"] == [first.strength]


def test_table_one_from_choices_compares_with_the_paper() -> None:
    told = {"mean": 0.6, "standard_error": 0.01, "trials": 100}
    good = chosen.Choice(
        method="ewc", vertex=2, kind="lambda", strength=2200.0, search={**told, "mean_at_paper": 0.58}
    )
    bad = chosen.Choice(
        method="l2", vertex=5, kind="lambda", strength=1.0, search={**told, "mean_at_paper": 0.5}
    )
    made = tables.table1_chosen([good, bad])
    assert made.agreeing == (1, 2)
    cells = {line.label: line.cells for line in made.lines}
    assert cells["EWC"][0].ratio == 2
    assert cells["EWC"][1].missing


def test_a_choice_is_the_run_that_was_searched() -> None:
    """With what is not searched as it was set: a learning rate, a temperature, the method's own settings."""
    set_ = {"data": "digits", "items": 50, "learning_rate": 0.2, "initial_temperature": 0.7, "vertex": 5}
    base = read(set_, {"method": "ewc", "strength": 3.0, "settings": {"decay": 0.5}})
    strengths, values = [1.0, 10.0, 100.0], np.array([[0.1, 0.2], [0.5, 0.7], [0.2, 0.3]])
    search = strength_search(base, "demo", SEEDS, 3)
    response = smooth(np.array(strengths), values, log=True)
    of_strength = Found(search, [{"strength": s} for s in strengths], values, 4, response)
    cells = grid_search(base, SEEDS, [0.05], [0.4, 0.6, 0.8])
    of_cell = Found(cells, [dict(point) for point in cells.points], values, 0)
    for found, best in (
        (of_strength, {"strength": 10.0}),
        (of_cell, {"learning_rate": 0.05, "temperature": 0.6}),
    ):
        made = chosen.choice(found)
        assert found.best == pytest.approx(best)
        assert read(made.parts(), {"seed": SEEDS[1]}) == found.search.experiments(best)[1]
        assert (made.search["mean"], made.search["trials"]) == (0.6, 3)
        assert made.search["pruned"] == found.pruned
        assert made.search["measure"] == found.search.measure


def test_choices_are_picked_by_method_and_vertex(tmp_path: Path) -> None:
    kinds = [("ewc", 2.0), ("ewc", 20.0), ("l2", 2.0)]
    choices = [chosen.Choice(method=m, vertex=v, kind="lambda", strength=1.0) for m, v in kinds]
    for told, count in (
        ({}, 3),
        ({"method": "ewc"}, 2),
        ({"vertex": 2}, 2),
        ({"method": "l2", "vertex": 2}, 1),
    ):
        found = chosen.select(choices, {**told, "items": 7}, tmp_path)
        assert len(found) == count
        assert all(parts[name] == value for parts in found for name, value in told.items())
    for told in (
        {"method": "agem"},
        {"method": "mas"},
        {"vertex": 1},
        {"vertex": 30},
        {"method": "l2", "vertex": 20},
    ):
        with pytest.raises(ValueError, match="which has ewc at n = 2, ewc at n = 20, l2 at n = 2"):
            chosen.select(choices, told, tmp_path)


def test_a_choice_is_of_use_to_runs_that_have_its_values(tmp_path: Path) -> None:
    told = {"experiment": {"data": "digits"}, "method": "ewc", "vertex": 2.0}
    of_lambda = chosen.Choice(kind="lambda", strength=5.0, **told)
    of_cell = chosen.Choice(kind="grid", learning_rate=0.05, temperature=0.6, strength=5.0, **told)
    heat = {"learning_rate": 0.05, "initial_temperature": 0.6, "final_temperature": 0.6}

    def fits(choice: chosen.Choice, **settings: object) -> bool:
        run = read({"data": "digits", "items": 50, "method": "ewc", "strength": 5.0, **settings})
        try:
            return len(chosen.used([choice], [run, run.but(seed=7)], tmp_path)) == 1
        except ValueError as error:
            return "has none that fits" not in str(error)

    assert fits(of_lambda)
    assert not fits(of_lambda, strength=6.0)
    assert not fits(of_lambda, method="l2")
    assert not fits(of_lambda, vertex=5.0)
    assert fits(of_cell, **heat)
    assert fits(of_cell, **heat, strength=6.0)  # which was set for the search, and not searched
    assert fits(of_cell, **heat, method="l2")  # learning rate and temperature are any method's
    assert not fits(of_cell, **{**heat, "learning_rate": 0.06})
    assert not fits(of_cell, **{**heat, "final_temperature": 0.7})
    assert not fits(of_cell, **heat, vertex=5.0)


def refused(result: Result, says: str) -> None:
    assert result.exit_code == 2, result.output
    said = [text for text in result.stderr.splitlines() if text.startswith("engramma:")]
    assert len(said) == 1, result.stderr
    assert re.search(says, said[0]), said[0]
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "method must be named"),
        ("--method ewd", "method must be one of .*did you mean ewc"),
        ("--method vanilla", "method must have a strength to be tuned, and vanilla has none"),
        ("--method ewc --vertices two", "vertices must be numbers"),
        ("--method ewc --range 5,1", "range must be two numbers above 0"),
        ("--method ewc --range 0,1", "range must be two numbers above 0"),
        ("--method ewc --range 7", "range must be two numbers such as"),
        ("--method gem --range 0,2", "range must be two numbers between 0 and 1"),
        ("--method ewc --scale huge", "scale must be one of demo, small, paper"),
        ("--method ewc --seeds 0", "seeds must be how many"),
        ("--method gem --unit-importance", "unknown setting settings.unit of gem"),
        ("--method gem --prune --trials 2", "prune must be left out for gem"),
        ("--grid --trials 4", "trials and range must be left out of a grid"),
        ("--grid --rates fast", "rates must be numbers"),
        ("--method ewc --storage nonsense", "storage must be an Optuna URL"),
        ("--method ewc --storage sqlite:////no/such/folder/x.db", "storage must be .* cannot"),
    ],
)
@pytest.mark.usefixtures("here")
def test_bad_input_is_refused_in_one_line(text: str, says: str) -> None:
    refused(engramma(f"tune {SMALL} {text}"), says)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@127.0.0.1:1/base",
        "postgresql://127.0.0.1:1/base?user=me&password=hush",
        "nosuchbase://me:hush@127.0.0.1/base",
        "postgresql://me:hush@127.0.0.1:port/base",
    ],
)
@pytest.mark.usefixtures("here")
def test_a_storage_that_cannot_be_opened_does_not_give_its_password_away(url: str) -> None:
    result = engramma(f"tune {SMALL} --method ewc --trials 2 --vertices 2 --storage {url}")
    refused(result, "storage must be")
    assert "hush" not in result.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"must have \[\[chosen\]\] entries"),
        ("strength = 3", r"must have \[\[chosen\]\] entries"),
        ("[[chosen]]\nmethod = 'ewc'", "vertex"),
        (
            "[[chosen]]\nmethod = 'ewc'\nvertex = 2\nkind = 'lambda'",
            "strength must be there: it is what a search of kind lambda chose",
        ),
        (
            "[[chosen]]\nmethod = 'ewc'\nvertex = 2\nkind = 'lambda'\nstrenth = 1",
            "unknown setting strenth.*did you mean strength",
        ),
        ("[[chosen]]\nmethod = 'ewc'\nvertex = 3\nkind = 'lambda'\nstrength = 1", "has none that fits"),
        (
            "[[chosen]]\nmethod = 'ewc'\nvertex = 2\nkind = 'lambda'\nstrength = 1",
            "data, digits, not on mnist",
        ),
        ("not toml", "not valid TOML"),
    ],
)
def test_bad_files_of_choices_are_refused(text: str, says: str, here: Path) -> None:
    (here / "chosen.toml").write_text(text)
    refused(engramma("reproduce table2 --strengths chosen.toml --dry-run"), says)


def test_a_run_asks_for_what_the_file_has(here: Path) -> None:
    chosen.write([chosen.Choice(method="ewc", vertex=2, kind="lambda", strength=5.0)], here / "chosen.toml")
    assert tomllib.loads((here / "chosen.toml").read_text())["chosen"][0]["strength"] == 5.0
    refused(engramma("run --config chosen.toml --method mas"), "which has ewc at n = 2")
