"""engramma try: a method of one's own tuned on seeds apart, beside others, with all that comes of it."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import page
import pytest
from typer.testing import CliRunner, Result

from engramma.checks import module_name
from engramma.cli import app
from engramma.search import spaces, trial
from engramma.store.records import Store
from engramma.store.select import where

SMALL = "--tasks 2 --items 60 --memories 8 --epochs 5 --device cpu --kernel reference --processes 1"
OTHERS = """
from dataclasses import dataclass
from engramma.methods import Penalty, Vanilla, L2

class Plain(Vanilla):
    "No strength of its own."

class Pull(L2):
    "A lambda of its own."

class Dial(Pull):
    strength_span = (0.01, 100.0)

class Share(Pull):
    strength_kind = "proportion"
    strength_span = (0.0, 5.0)

class Wrong(Pull):
    strength_span = "wide"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the class of the page on adding a method, and others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "freeze.py").write_text(page.blocks()[0])
    (tmp_path / "others.py").write_text(OTHERS)
    yield tmp_path
    for file in ("./freeze.py", "./others.py"):
        sys.modules.pop(module_name(file), None)


def engramma(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


def test_from_nothing_to_a_page_and_a_row(here: Path) -> None:
    (told,) = re.findall("^engramma (try .*--quick)$", page.PAGE.read_text(), flags=re.M)
    line = f"{told} {SMALL} --beside vanilla,rehearsal@0.5,ewc --vertices 2,5"
    said = engramma(line)
    assert said.exit_code == 0, said.output
    assert max(len(row) for row in said.stdout.splitlines() if "LaTeX" not in row) <= 80
    assert "…" not in said.stdout
    words = " ".join(said.stdout.split())
    assert "its share is searched from 0 to 1, evenly: 5 values at each vertex, on seed 1000" in words
    assert "Freeze beside 3 others, on seeds 0, 1, 2: 24 runs" in said.stdout
    records = list(Store(here / "runs"))
    tuned = [r for r in records if r.description["seed"] == spaces.FIRST_SEED]
    beside = [r for r in records if r.description["seed"] < 3]
    assert len(tuned) == 10
    assert len(beside) == 24
    assert {r.description["method"] for r in tuned} == {"./freeze.py:Freeze"}
    assert {r.description["strength"] for r in tuned} == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert not any(r.memories(0) is not None for r in tuned)
    assert all(r.memories(1) is not None for r in beside)
    for vertex in (2, 5):  # the strength that the search says is the one that is compared
        own = where(beside, {"method": "Freeze", "vertex": vertex})
        (chosen,) = {r.description["strength"] for r in own}
        assert f"n={vertex}: share {chosen:g}, average" in said.stdout
    out = here / "output" / "try-Freeze"
    assert sorted(p.name for p in out.iterdir()) == [
        "average.csv", "average.tex", "comparison.csv", "comparison.tex", "forgetting.csv", "forgetting.tex",
        "report.html"]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO((out / "comparison.csv").read_text())))
    assert [(row["other"], row["vertex"], row["seeds"]) for row in rows] == [
        (name, vertex, "3") for name in ("Vanilla", "Rehearsal 0.5", "EWC") for vertex in ("2.0", "5.0")
    ]
    averages = csv.DictReader(io.StringIO((out / "average.csv").read_text()))
    cells = {(row["row"], row["column"]): float(row["mean"]) for row in averages}
    means = [np.mean([r.average for r in where(beside, {"method": "Freeze", "vertex": v})]) for v in (2, 5)]
    assert [cells["Freeze", "n=2"], cells["Freeze", "n=5"]] == pytest.approx(means)
    (row,) = (line for line in said.stdout.splitlines() if "row of LaTeX" in line)
    assert row.endswith(r" \\")
    assert [f"{mean:.3f}" in row for mean in means] == [True, True]
    assert row.partition(": ")[2] in (out / "average.tex").read_text()
    again = engramma(line)
    assert "0 runs trained, 24 found" in again.stdout
    assert len(Store(here / "runs")) == 34


def test_a_method_without_a_strength_and_one_that_is_given(here: Path) -> None:
    said = engramma(f"try ./others.py:Plain {SMALL} --beside vanilla --vertices 2 --seeds 1 --out here")
    assert said.exit_code == 0, said.output
    assert "Plain has no strength: nothing is tuned" in said.stdout
    assert "Plain beside 1 other, on seed 0: 2 runs" in said.stdout
    (row,) = csv.DictReader(io.StringIO((here / "here" / "comparison.csv").read_text()))
    assert float(row["difference"]) == 0  # it is vanilla
    assert row["low"] == row["high"] == ""
    refused = engramma(f"try ./others.py:Plain {SMALL} --strength 1")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "strength must be left out for ./others.py:Plain, which has none" in refused.stderr
    told = "try ./others.py:Pull --strength 0.3 --set fisher=1"
    assert "unknown setting settings.fisher of ./others.py:Pull" in engramma(told).stderr
    said = engramma(f"try ./others.py:Pull {SMALL} --strength 0.3 --beside vanilla --vertices 2 --seeds 1")
    assert "searched" not in said.stdout.split("The strengths")[0]
    assert {r.description["strength"] for r in Store(here / "runs")} == {None, 0.3}


@pytest.mark.usefixtures("here")
def test_a_class_says_where_its_strength_is_searched() -> None:
    def points(name: str, span: tuple[float, float] | None = None) -> list[float]:
        made = trial.Trial(f"./others.py:{name}", (2.0,), (0,), {"data": "digits"})
        (search,) = made.searches(4, 1, span)
        strengths = [e.strength for e in trial.experiments(search)]
        assert all(s is not None for s in strengths)
        return [float(s or 0) for s in strengths]

    np.testing.assert_allclose(np.diff(np.log10(points("Pull"))), 2)  # eight decades around 1
    np.testing.assert_allclose(points("Dial"), [10**k for k in (-1.5, -0.5, 0.5, 1.5)], rtol=1e-5)
    np.testing.assert_allclose(points("Share"), [0, 5 / 3, 10 / 3, 5], rtol=1e-5)
    np.testing.assert_allclose(points("Share", (1.0, 2.0)), [1, 4 / 3, 5 / 3, 2], rtol=1e-5)
    with pytest.raises(ValueError, match="range must be two numbers between 0 and 5"):
        points("Share", (1.0, 7.0))
    with pytest.raises(ValueError, match=r"strength_span of ./others.py:Wrong must be two numbers"):
        points("Wrong")


def test_others_have_what_was_found_for_them() -> None:
    """The lambda of the nearest vertex, the settings that suit a method, and what is told before all."""
    made = trial.Trial("vanilla", (3.0, 20.0), (0,), {"learning_rate": 0.5, "data": "digits"})
    runs = {(e.method, e.vertex): e for e in made.compared({3.0: None, 20.0: None}, trial.BESIDE[1:])}
    assert {method for method, _ in runs} == set(trial.BESIDE)
    assert [runs["ewc", n].strength for n in (3.0, 20.0)] == [300.0, 10.0]
    assert {runs[m, 3.0].strength for m in ("rehearsal", "gem", "agem", "pseudorehearsal")} == {0.05}
    assert {e.learning_rate for e in runs.values()} == {0.5}
    assert runs["allocation", 3.0].initial_temperature == "auto"
    assert runs["ewc", 3.0].normalise == "velocity"
    (gated, _) = made.compared({3.0: None, 20.0: None}, ["xdg"])[2:]  # what suits a class, before the study's
    assert (gated.initial_temperature, gated.learning_rate) == ("auto", 0.5)
    assert made.unlike == []
    assert "epochs 100" in trial.Trial("vanilla", (2.0,), (0,), {"epochs": 9}).unlike


def test_the_chosen_strength_is_the_best_of_the_smoothed_response() -> None:
    from stand_in import record

    made = trial.Trial("rehearsal", (2.0,), (0,), {"data": "digits"})
    (search,) = made.searches(11, 2)
    runs = trial.experiments(search)
    found = [record(0.8 - (float(e.strength or 0) - 0.4) ** 2, **e.describe()) for e in runs]
    curve = trial.response(search, found)  # type: ignore[arg-type]
    assert curve.chosen == pytest.approx(0.4, abs=0.05)
    lost = [
        record(diverged=True, **e.describe()) if e.strength == 0.4 else r
        for e, r in zip(runs, found, strict=True)
    ]
    assert trial.response(search, lost).top < curve.top  # type: ignore[arg-type]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("try sleep", "method must be one of vanilla, "),
        ("try ./gone.py:Mine", "there is no file"),
        ("try ./freeze.py:Frieze", "has no Frieze"),
        ("try ./freeze.py:Freeze --beside ewcc", "method must be one of .*did you mean ewc"),
        ("try ./freeze.py:Freeze --beside gem@much", "beside must be methods, or methods at a strength"),
        ("try ./freeze.py:Freeze --beside ./freeze.py:Freeze", "beside must be other methods than"),
        ("try ./freeze.py:Freeze --vertices two", "vertices must be numbers such as"),
        ("try ./freeze.py:Freeze --vertices 2,2", "vertices must differ"),
        ("try ./freeze.py:Freeze --range 5", "range must be two numbers such as"),
        ("try ./freeze.py:Freeze --range 1,5", "range must be two numbers between 0 and 1"),
        ("try ./freeze.py:Freeze --seeds 1000,1001,1002", "seeds must be others than 1000, 1001"),
        ("try ./freeze.py:Freeze --items 5000", "items must be at most 1797"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(line: str, says: str, here: Path) -> None:
    said = engramma(f"{line} --device cpu")
    assert said.exit_code == 2, said.output
    lines = [each for each in said.stderr.splitlines() if each.startswith("engramma:")]
    assert len(lines) == 1
    assert re.search(says, lines[0]), lines[0]
    assert not list(Store(here / "runs").names()) if (here / "runs").is_dir() else True
