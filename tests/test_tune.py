"""Searches: asked in batches, told means, killed and gone on with, smoothed, chosen, read back."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import holding
import numpy as np
import optuna
import pytest
from typer.testing import CliRunner, Result

from engramma import checkpoints, chosen, prune, studies, tables
from engramma.cli import app
from engramma.experiment import read
from engramma.records import Store
from engramma.searches import FIRST_SEED, Search, grid_search, strength_search
from engramma.smooth import LEVEL, Response, smooth
from engramma.study import Work, run
from engramma.tune import tune

TINY: dict[str, Any] = {"data": "digits", "tasks": 3, "items": 40, "memories": 4, "epochs": 2}
SEEDS = (FIRST_SEED, FIRST_SEED + 1)


def tiny(method: str = "ewc", trials: int = 12, **changes: Any) -> Search:
    return strength_search(read(TINY, {"method": method}, changes), "demo", SEEDS, trials)


def stored(store: Store) -> list[optuna.Study]:
    url = f"sqlite:///{store.path / 'tune.db'}"
    return [optuna.load_study(study_name=n, storage=url) for n in optuna.get_all_study_names(url)]


def states(store: Store) -> dict[str, int]:
    (found,) = stored(store)
    counts: dict[str, int] = {}
    for trial in found.trials:
        counts[trial.state.name] = counts.get(trial.state.name, 0) + 1
    return counts


# The smoothed response


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


# Ask and tell


def test_values_told_are_means_over_seeds_of_the_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    search = tiny(trials=12)
    (found,) = tune([search], store, batch=5)
    (trialled,) = stored(store)
    assert [t.state.name for t in trialled.trials] == ["COMPLETE"] * 12
    assert len(store) == 12 * len(SEEDS)
    for trial, params, values in zip(trialled.trials, found.params, found.values, strict=True):
        records = [store.find(e) for e in search.experiments(params)]
        assert [r.description["seed"] for r in records if r] == list(SEEDS)
        np.testing.assert_allclose([r.average for r in records if r], values)
        assert trial.value == pytest.approx(values.mean())
    strengths = [params["strength"] for params in found.params]
    assert len(set(strengths)) == 12
    assert search.low <= min(strengths) < max(strengths) <= search.high


def test_a_search_that_is_done_trains_nothing_and_more_trials_go_on_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = tune([tiny(trials=6)], store)[0]
    done: list[float] = []
    again = tune([tiny(trials=6)], store, watch=Work(on_change=lambda work: done.append(work.done)))[0]
    assert again.params == first.params
    assert not done
    more = tune([tiny(trials=8)], store)[0]
    assert more.params[:6] == first.params
    assert states(store) == {"COMPLETE": 8}


def test_a_trial_does_not_depend_on_what_was_searched_before(tmp_path: Path) -> None:
    """Twelve at a stretch, or ten and then two: the same strengths are asked."""
    whole = tune([tiny(trials=12)], Store(tmp_path / "a"), batch=1)[0]
    store = Store(tmp_path / "b")
    tune([tiny(trials=10)], store, batch=1)
    assert tune([tiny(trials=12)], store, batch=1)[0].params == whole.params


def test_the_bar_ends_full_over_all_searches(tmp_path: Path) -> None:
    work = Work()
    seen: list[float] = []
    work.on_change = lambda w: seen.append(w.done / w.total)
    tune([tiny(trials=3), tiny("l2", trials=3)], Store(tmp_path), batch=2, watch=work)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)


class Stop(Exception):
    pass


@pytest.mark.parametrize("when", ["create", "enqueue", "params", "trained", "tell"])
def test_broken_off_anywhere_it_ends_with_the_trials_it_would_have_had(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step a process dies after, the next one finds its way: same strengths, same values."""
    whole = tune([tiny(trials=12)], Store(tmp_path / "a"), batch=4)[0]
    place = {
        "create": ("optuna.trial.Trial", "_suggest"),
        "enqueue": ("optuna.study.Study", "ask"),
        "params": ("engramma.study", "run_pack"),
        "trained": ("optuna.study.Study", "tell"),
        "tell": ("optuna.study.Study", "tell"),
    }[when]
    module, _, name = place[0].rpartition(".")
    target = getattr(importlib.import_module(module), name)
    true, calls = getattr(target, place[1]), []

    def dies(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == (6 if when != "params" else 2):
            if when == "tell":
                true(*args, **kwargs)
            raise Stop
        return true(*args, **kwargs)

    store = Store(tmp_path / "b")
    monkeypatch.setattr(target, place[1], dies)
    with pytest.raises(Stop):
        tune([tiny(trials=12)], store, batch=4)
    monkeypatch.undo()
    found = tune([tiny(trials=12)], store, batch=4)[0]
    assert states(store) == {"COMPLETE": 12}
    assert found.params[:8] == whole.params[:8]  # the later ones depend on how the batches fell
    assert len({p["strength"] for p in found.params}) == 12
    np.testing.assert_allclose(found.values[:8], whole.values[:8])


def line(store: Path, trials: int) -> list[str]:
    text = (
        "tune --data digits --tasks 3 --items 60 --memories 6 --epochs 12 --method ewc --vertices 2"
        f" --device cpu --trials {trials} --batch 3 --store {store} --out {store}.toml --figures {store}-f"
    )
    return [sys.executable, "-c", "from engramma.cli import main; main()", *text.split()]


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_killed_and_started_again_it_has_exactly_its_trials(tmp_path: Path) -> None:
    store = Store(tmp_path / "killed")
    killed = 0
    for wanted in (1, 5, 9):  # records in the store, of 24
        process = subprocess.Popen(line(store.path, 12), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(store) < wanted * 2:
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed >= 2
    subprocess.run(line(store.path, 12), check=True, capture_output=True)
    assert states(store) == {"COMPLETE": 12}
    (trialled,) = stored(store)
    assert len({t.params["strength"] for t in trialled.trials}) == 12
    assert sorted(t.number for t in trialled.trials) == list(range(12))
    named = [run for t in trialled.trials for run in t.user_attrs["runs"]]
    assert sorted(named) == store.names()  # nothing was trained that no trial tells of


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_several_processes_share_one_search(tmp_path: Path) -> None:
    """Two of them, of which one is killed with trials in hand: every trial is told, and told once."""
    store = Store(tmp_path / "shared")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_tune import Store, holding, tiny, tune\n"
        "if len(sys.argv) > 3: holding.dask_setup()\n"
        "states = {'data': 'states', 'stream': 'states', 'items': 5, 'size': 20, 'flips': 1}\n"
        "tune([tiny(trials=12, epochs=60, **states)], Store(sys.argv[2]), batch=3)"
    )
    arguments = [sys.executable, "-W", "ignore", "-c", program, str(Path(__file__).parent), str(store.path)]
    holding.hold(store)
    victim = subprocess.Popen([*arguments, "held"])
    while victim.poll() is None and not held_by(store, victim.pid):
        time.sleep(0.005)
    other = subprocess.Popen(arguments)
    while other.poll() is None and not len(store):
        time.sleep(0.005)
    victim.kill()
    assert [process.wait(120) for process in (victim, other)] == [-signal.SIGKILL, 0]
    assert states(store) == {"COMPLETE": 12}
    (trialled,) = stored(store)
    assert len({t.params["strength"] for t in trialled.trials}) == 12
    named = [run for t in trialled.trials for run in t.user_attrs["runs"]]
    assert sorted(named) == store.names()
    for t in trialled.trials:
        each = [store.get(run).average for run in t.user_attrs["runs"]]
        assert t.value == pytest.approx(np.mean(each))
    assert not held_by(store)


def held_by(store: Store, *owner: int) -> list[str]:
    """Claims on trials: all, or those of a process."""
    found = []
    for lock in store.claims.glob("tune-*-*.lock"):
        try:
            found += [lock.stem] if not owner or lock.read_text().startswith(f"{owner[0]}-") else []
        except OSError:
            continue
    return found


# Proportions and grids


def test_proportions_are_tried_one_by_one(tmp_path: Path) -> None:
    base = read(TINY, {"method": "rehearsal"})
    (found,) = tune([strength_search(base, "demo", SEEDS, None)], Store(tmp_path))
    assert sorted(p["strength"] for p in found.params) == [round(k / 10, 6) for k in range(11)]
    assert 0 <= found.best["strength"] <= 1


def test_a_grid_has_every_cell_and_takes_the_smallest_own_accuracy(tmp_path: Path) -> None:
    store = Store(tmp_path)
    search = grid_search(read(TINY), SEEDS, [0.02, 0.1], [0.5, 0.95, 1.2])
    (found,) = tune([search], store, batch=4)
    cells = [(p["learning_rate"], p["temperature"]) for p in found.params]
    assert sorted(cells) == [(r, t) for r in (0.02, 0.1) for t in (0.5, 0.95, 1.2)]
    assert states(store) == {"COMPLETE": 6}
    means = {}
    for record in store:
        told = record.description
        assert told["initial_temperature"] == told["final_temperature"]
        cell = told["learning_rate"], told["initial_temperature"]
        means.setdefault(cell, []).append(np.diag(record.scores["accuracy"]).min())
    best = max(means, key=lambda cell: np.mean(means[cell]))
    assert np.mean(means[best]) == pytest.approx(found.top[0])
    assert found.best in found.flat_cells


# Pruning


def test_pruned_strengths_make_room_and_the_others_find_what_they_would_have(tmp_path: Path) -> None:
    """A lambda so large that nothing new is learned is given up after task 2."""
    big = {"data": "digits", "tasks": 3, "items": 300, "memories": 32, "epochs": 60, "learning_rate": 0.3}
    search = strength_search(read(big, {"method": "ewc"}), "demo", SEEDS, 6, (1.0, 1e6))
    plain, pruned = Store(tmp_path / "plain"), Store(tmp_path / "pruned")
    tune([search], plain, batch=6)
    (found,) = tune([search], pruned, batch=6, prune=True)
    counts = states(pruned)
    assert counts["COMPLETE"] == 6
    assert counts["PRUNED"] == found.pruned >= 1
    assert len(pruned) == 6 * len(SEEDS)  # the pruned have no record
    both = [(a, b) for a in plain if (b := pruned.find(a.experiment)) is not None]
    assert len(both) >= 4  # two strengths or more of the first six go on
    assert not {r.description["strength"] for r in pruned} & {7943.28, 501187.0}
    for one, two in both:
        assert list(one.scores) == list(two.scores)
        np.testing.assert_allclose(one.scores["accuracy"], two.scores["accuracy"], atol=1e-9)
    assert not checkpoints.packs(pruned)


def test_forgotten_means_at_chance_over_the_seeds() -> None:
    pack = [
        read(TINY, {"items": 1000, "method": "ewc", "strength": s, "seed": k})
        for k in (0, 1)
        for s in (1.0, 2.0, 3.0)
    ]
    after = {1.0: (0.6, 0.5), 2.0: (0.11, 0.7), 3.0: (0.7, 0.12)}
    import torch

    scores = torch.full((6, 3, 3), torch.nan, dtype=torch.float64)
    for row, e in enumerate(pack):
        scores[row, 1, :2] = torch.tensor(after[float(e.strength or 0)])
    point = checkpoints.Checkpoint(
        tuple(e.name for e in pack), 2, None, None, {"scores/accuracy": scores}, {}
    )
    assert prune.forgotten(pack, point) == {2.0, 3.0}


# What was chosen


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
        ("[[chosen]]\nmethod = 'ewc'\nvertex = 2\nkind = 'lambda'\nstrenth = 1", "did you mean|strenth"),
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
