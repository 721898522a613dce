"""Searches: asked in batches, told means, killed and gone on with."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import holding
import numpy as np
import optuna
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from engramma.cli import app
from engramma.cli import tune as cli
from engramma.experiment import Experiment, read
from engramma.methods import Anchored
from engramma.runs import pack as packs
from engramma.runs.study import Outcome, Work, total_work
from engramma.search import pruning as prune
from engramma.search import storage
from engramma.search.choice import choice, load, used, write
from engramma.search.spaces import FIRST_SEED, Search, even, grid_search, strength_search
from engramma.search.tune import Found, _tell, tune
from engramma.show.figures import draw
from engramma.store import checkpoints
from engramma.store.records import Record, Store

TINY: dict[str, Any] = {"data": "digits", "tasks": 3, "items": 40, "memories": 4, "epochs": 2}
SEEDS = (FIRST_SEED, FIRST_SEED + 1)


def tiny(method: str = "ewc", trials: int = 12, batch: int = 10, **changes: Any) -> Search:
    search = strength_search(read(TINY, {"method": method}, changes), "demo", SEEDS, trials)
    return replace(search, batch=batch)


def stored(store: Store) -> list[optuna.Study]:
    url = f"sqlite:///{store.path / 'tune.db'}"
    return [optuna.load_study(study_name=n, storage=url) for n in optuna.get_all_study_names(url)]


def states(store: Store) -> dict[str, int]:
    (found,) = stored(store)
    counts: dict[str, int] = {}
    for trial in found.trials:
        counts[trial.state.name] = counts.get(trial.state.name, 0) + 1
    return counts


# Ask and tell


def test_values_told_are_means_over_seeds_of_the_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    search = tiny(trials=12)
    (found,) = tune([replace(search, batch=5)], store)
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


def test_a_search_that_is_done_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    store = Store(tmp_path)
    tune([tiny(trials=4)], store)
    dead = store.claims / "1-0-0.owner"
    dead.write_text("{}")
    half = store.checkpoints / ("0" * 20) / ".tmp-1-0-0-0"  # all there was of a checkpoint
    half.mkdir(parents=True)
    tune([tiny(trials=4)], store)
    assert not dead.exists()
    assert not half.parent.exists()


def test_a_trial_does_not_depend_on_what_was_searched_before(tmp_path: Path) -> None:
    """Twelve at a stretch, or ten and then two: the same strengths are asked."""
    whole = tune([tiny(trials=12, batch=1)], Store(tmp_path / "a"))[0]
    store = Store(tmp_path / "b")
    tune([tiny(trials=10, batch=1)], store)
    assert tune([tiny(trials=12, batch=1)], store)[0].params == whole.params


def test_the_bar_ends_full_over_all_searches(tmp_path: Path) -> None:
    work = Work()
    seen: list[float] = []
    work.on_change = lambda w: seen.append(w.done / w.total)
    tune([tiny(trials=3, batch=2), tiny("l2", trials=3, batch=2)], Store(tmp_path), watch=work)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)


def test_the_bar_knows_that_larger_buffers_are_more_work(tmp_path: Path) -> None:
    search = strength_search(read(TINY, {"method": "rehearsal"}), "demo", SEEDS[:1], 7, (0.0, 0.71))
    work = Work()
    tune([replace(search, batch=7)], Store(tmp_path), watch=work)
    runs = [e for point in search.points for e in search.experiments(dict(point))]
    assert len({total_work(e) for e in runs}) == 7
    assert work.total == pytest.approx(sum(map(total_work, runs)), rel=1e-12)
    assert work.done == pytest.approx(work.total)


# Killed and gone on with

Told = list[tuple[int, str, dict[str, Any], float | None, dict[str, Any]]]


def told(store: Store) -> Told:
    """Everything that a search's storage says of its trials, but for when."""
    (found,) = stored(store)
    return [(t.number, t.state.name, t.params, t.value, t.user_attrs) for t in found.trials]


class Killed(BaseException):
    """No `except Exception` hears of it."""


def dying(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """From now on the process dies of its step-th lasting step: a commit to the storage, or a folder put in
    its place or out of the way. The dead leave their last step done or not done by turns."""
    left = iter(range(step))

    def lasting(true: Any) -> Any:
        def may_die(*args: Any, **kwargs: Any) -> Any:
            number = next(left, None)
            if number is None and step % 2:
                raise Killed
            result = true(*args, **kwargs)
            if number is None:
                raise Killed
            return result

        return may_die

    monkeypatch.setattr(Session, "commit", lasting(Session.commit))
    monkeypatch.setattr(os, "rename", lasting(os.rename))


def killed_again_and_again(
    search: Search, store: Store, monkeypatch: pytest.MonkeyPatch, first: int, **options: Any
) -> tuple[Found, int]:
    """What the last of many processes finds, of which each died some steps further than the one before it."""
    for deaths in itertools.count():
        try:
            with monkeypatch.context() as patch:
                dying(patch, first + deaths)
                return tune([search], store, **options)[0], deaths
        except Killed:
            continue
    raise AssertionError


def valued(experiments: list[Experiment], store: Store, **_: Any) -> Outcome:
    """Records at once, with an accuracy that hangs on the strength and the seed."""
    records = []
    for e in experiments:
        accuracy = 0.5 + 0.4 * np.sin(np.log(e.strength or 1.0) + 0.1 * e.seed)
        records.append(Record(e.describe(), {"accuracy": np.full((e.tasks, e.tasks), accuracy)}, {}))
    return Outcome(records, len(records), 0)


@pytest.fixture(autouse=True)
def unsynced() -> Iterator[None]:
    """No trial here outlives the machine: no waiting for its disk."""

    def never(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", never)
    yield
    event.remove(Engine, "connect", never)


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_a_search_killed_anywhere_is_the_same_search(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trial by trial: the same strengths, values and states; and so the same choice."""
    search, given = tiny(trials=17, batch=batch), {"run": valued}
    (whole,) = tune([search], Store(tmp_path / "a"), **given)
    killed, deaths = killed_again_and_again(search, Store(tmp_path / "b"), monkeypatch, 20, **given)
    assert deaths >= 3
    assert told(Store(tmp_path / "b")) == told(Store(tmp_path / "a"))
    assert killed.best == whole.best
    np.testing.assert_array_equal(killed.values, whole.values)


def test_a_search_that_prunes_killed_anywhere_is_the_same_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was pruned, up to where no more may be, and with what was trained on the way."""
    sizes = {"items": 100, "memories": 8, "epochs": 30, "learning_rate": 0.3}
    search = strength_search(read(TINY, sizes, {"method": "ewc"}), "demo", SEEDS, 6, (1.0, 1e6))
    search = replace(search, batch=3, prune=True)
    one, two = Store(tmp_path / "a"), Store(tmp_path / "b")
    (whole,) = tune([search], one)
    killed, deaths = killed_again_and_again(search, two, monkeypatch, 26)
    assert deaths >= 3
    assert killed.pruned == whole.pruned >= 3
    assert told(two) == told(one)
    assert killed.best == whole.best
    assert two.names() == one.names()
    for a, b in zip(one, two, strict=True):
        assert all(np.array_equal(a.scores[k], b.scores[k]) for k in a.scores)
    assert not checkpoints.packs(two)


def test_more_trials_are_those_that_there_would_have_been(tmp_path: Path) -> None:
    """Whatever the batch: one that was not full is filled."""
    whole = tune([tiny(trials=20, batch=5)], Store(tmp_path / "a"), run=valued)[0]
    for trials in (12, 13, 20):
        more = tune([tiny(trials=trials, batch=5)], Store(tmp_path / "b"), run=valued)[0]
        assert more.params == whole.params[:trials]


def test_what_a_trial_was_told_once_stays(tmp_path: Path) -> None:
    """Pruned or not: a second word, of whatever process, changes nothing."""
    search, store = tiny(trials=3), Store(tmp_path)
    tune([search], store, run=valued)
    (trialled,) = stored(store)
    trialled.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING))
    runs: list[Record | None] = [*valued(search.experiments({"strength": 7.0}), store).records]
    complete, running = trialled.trials[0], trialled.trials[3]
    _tell(trialled, search, running, [None, *runs[1:]])
    pruned = told(store)
    assert [state for _, state, *_ in pruned] == ["COMPLETE"] * 3 + ["PRUNED"]
    for trial in (running, complete):
        _tell(trialled, search, trial, runs)
        _tell(trialled, search, trial, [None, *runs[1:]])
    assert told(store) == pruned


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
    undisturbed = Store(tmp_path / "undisturbed")
    for place in (store, undisturbed):
        done = CliRunner().invoke(app, line(place.path, 12)[3:])
        assert done.exit_code == 0, done.output
    assert states(store) == {"COMPLETE": 12}
    assert told(store) == told(undisturbed)
    chosen = [Path(f"{s.path}.toml").read_text() for s in (store, undisturbed)]
    assert chosen[0] == chosen[1]
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
        "tune([tiny(trials=12, batch=3, epochs=60, **states)], Store(sys.argv[2]))"
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


# Even searches, which ask no sampler


def test_an_even_search_is_one_pack_and_its_records_are_all_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)  # whoever imports it fails
    store = Store(tmp_path)
    search = even(tiny(trials=6))
    (found,) = tune([search], store)
    records = [store.find(e) for params in found.params for e in search.experiments(params)]
    np.testing.assert_array_equal([r.average for r in records if r], found.values.flatten())
    assert len({r.facts["pack"] for r in records if r}) == 1
    assert [r.name for r in records if r] == found.runs
    assert search.low == found.params[0]["strength"] < found.params[-1]["strength"] == search.high
    done: list[float] = []
    (again,) = tune([search], store, watch=Work(on_change=lambda work: done.append(work.own)))
    assert again.best == found.best
    assert not done
    assert not (tmp_path / "tune.db").exists()
    with pytest.raises(ValueError, match="all even, or none"):
        tune([search, tiny()], store)


def test_a_study_is_searched_and_run_with_what_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = "--items 40 --memories 4 --epochs 2 --device cpu"

    def ask(text: str) -> Any:
        return CliRunner().invoke(app, text.split())

    rows = "--study beyond --rows ewc_moments,der --vertices 2,20 --seeds 100,101 --trials 3"
    done = ask(f"tune {rows} {small}")
    assert done.exit_code == 0, done.output
    choices = load(tmp_path / "chosen.toml")
    assert [(c.method, c.vertex, c.search["seeds"]) for c in choices] == [
        ("ewc_moments", 2, [100, 101]),
        ("ewc_moments", 20, [100, 101]),
    ]
    like = "--with items=40 --with memories=4 --with epochs=2 --device cpu"
    some = "--rows ewc_moments --vertices 2,20 --seeds 1"
    done = ask(f"reproduce beyond {some} --strengths chosen.toml --store made {like}")
    assert done.exit_code == 0, done.output
    made = {(r.description["vertex"], r.description["strength"]) for r in Store(tmp_path / "made")}
    assert made == {(c.vertex, c.strength) for c in choices}
    for text, says in (
        ("tune --study beyond --method ewc", "must be left out with a study"),
        ("tune --method ewc --rows ewc", "rows must be left out"),
        ("tune --study beyond --rows der", "does not for der"),
    ):
        wrong = ask(text)
        assert wrong.exit_code == 2
        assert says in wrong.stderr


# Proportions and grids


def test_proportions_are_tried_one_by_one(tmp_path: Path) -> None:
    base = read(TINY, {"method": "rehearsal"})
    (found,) = tune([strength_search(base, "demo", SEEDS, None)], Store(tmp_path))
    assert sorted(p["strength"] for p in found.params) == [round(k / 10, 6) for k in range(11)]
    assert 0 <= found.best["strength"] <= 1


def test_a_grid_has_every_cell_and_takes_the_smallest_own_accuracy(tmp_path: Path) -> None:
    store = Store(tmp_path)
    search = grid_search(read(TINY), SEEDS, [0.02, 0.1], [0.5, 0.95, 1.2])
    (found,) = tune([replace(search, batch=4)], store)
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


def test_the_figure_of_a_grid_is_of_the_records_in_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is opened again; but those of an earlier search are, of which nothing is in hand."""
    store, search = Store(tmp_path), grid_search(read(TINY), SEEDS, [0.02, 0.1], [0.5, 1.2])
    (found,) = tune([search], store)
    assert sorted(found.runs) == sorted(found.held) == store.names()
    (again,) = tune([search], store)
    assert (again.runs, again.held) == (found.runs, {})
    assert cli._draw([again], store, tmp_path / "again")
    monkeypatch.setattr(Store, "find", lambda *_: pytest.fail("opened again"))
    assert cli._draw([found], store, tmp_path / "figures")


def test_a_grid_may_try_the_automatic_temperature(tmp_path: Path) -> None:
    """Beside numbers, and what was chosen is written, read and drawn like any other."""
    store = Store(tmp_path)
    enough = {**TINY, "tasks": 1, "items": 200, "memories": 20, "epochs": 20}
    search = grid_search(read(enough), SEEDS[:1], [0.1], ["auto", 40.0])
    assert search.distributions()["temperature"].__dict__["choices"] == (40.0, "auto")
    (found,) = tune([search], store)
    assert [p["temperature"] for p in found.params] == ["auto", 40.0]
    assert {r.description["initial_temperature"] for r in store} == {"auto", 40.0}
    assert found.best == {"learning_rate": 0.1, "temperature": "auto"}
    chosen = write([choice(found)], tmp_path / "chosen.toml")
    (again,) = load(chosen)
    assert read(enough, again.parts()).initial_temperature == "auto"
    assert used([again], [read(enough, again.parts())], chosen) == ["vanilla n = 2: 0.1, auto"]
    (figure, *_) = draw("grid", list(store), tmp_path / "figures", "grid")
    assert figure.is_file()
    assert cli._temperatures("0.5, auto,2") == [0.5, "auto", 2.0]
    with pytest.raises(ValueError, match="temperatures must be numbers such as"):
        cli._temperatures("0.5,warm")


# Pruning


def test_pruned_strengths_make_room_and_the_others_find_what_they_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lambda so large that nothing new is learned is given up after task 2, by its checkpoint, whatever
    that costs to write."""
    monkeypatch.setattr(packs, "LIGHT", 0)
    monkeypatch.setattr(packs, "PACE", 1e-9)
    big = {"data": "digits", "tasks": 3, "items": 300, "memories": 32, "epochs": 60, "learning_rate": 0.3}
    search = strength_search(read(big, {"method": "ewc"}), "demo", SEEDS, 6, (1.0, 1e6))
    plain, pruned = Store(tmp_path / "plain"), Store(tmp_path / "pruned")
    tune([replace(search, batch=6)], plain)
    (found,) = tune([replace(search, batch=6, prune=True)], pruned)
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


def test_what_is_cut_out_of_a_checkpoint_is_of_the_rows_alone() -> None:
    import torch

    theta = torch.arange(3.0)[:, None, None].expand(3, 4, 5)
    state = Anchored(theta + 10, theta + 20, None, None, torch.arange(3.0))
    measured = {
        "scores/accuracy": theta + 30,
        "curves/accuracy": torch.arange(3.0).expand(3, 3),  # (marks, R)
        "marks": torch.tensor([0, 1, 2]),
        "broke": torch.tensor([0, 7, 8]),
    }
    report = {"each": [0, 1, 2], "longer": [0, 1, 2, 3], "shorter": [0, 1], "plain": 4}
    facts = {"report": report, "seconds": [1.0, 2.0], "seeds": [7, 8, 9]}
    part = prune.cut(checkpoints.Checkpoint(("a", "b", "c"), 2, theta, state, measured, facts), [0, 2])
    assert (part.runs, part.done) == (("a", "c"), 2)
    assert torch.equal(torch.as_tensor(part.theta), theta[[0, 2]])
    for found, whole in zip(part.state[:2], state[:2], strict=True):
        assert torch.equal(found, whole[[0, 2]])
    assert part.state[2:4] == (None, None)
    assert part.state[4].tolist() == [0, 2]
    assert torch.equal(part.measured["scores/accuracy"], measured["scores/accuracy"][[0, 2]])
    assert part.measured["curves/accuracy"].tolist() == [[0, 2]] * 3
    assert part.measured["marks"].tolist() == [0, 1, 2]
    assert part.measured["broke"].tolist() == [0, 8]
    assert part.facts == {"report": {**report, "each": [0, 2]}, "seconds": [1.0, 2.0], "seeds": [7, 9]}


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


SECRET = "pA55word"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:{}@127.0.0.1:1/base",
        "postgresql://user:{}@127.0.0.1:port/base",
        "postgresql://user@127.0.0.1:1/base?password={}",
        "postgresql://user@127.0.0.1:1/base?{}=1",
        "postgresql://user@127.0.0.1:1/base:{}",
        "postgresql://user@127.0.0.1:1/{}@base",
        "postgresql://user:x@{}@127.0.0.1:1/base",
        "postgresql:/user:{}@127.0.0.1:1/base",
        "postgresql:user:{}@127.0.0.1:1/base",
        "postgresql+{}://user@127.0.0.1:1/base",
        "{}://user@127.0.0.1:1/base",
        "{}",
        "user:{}@127.0.0.1",
        "sqlite:///user:{}@127.0.0.1/nowhere/base",
        "sqlite:///nowhere/{}/base",
        "sqlite:///:memory:?{}=1",
        "sqlite:///:memory:?timeout={}",
        "sqlite://user:{}@127.0.0.1/nowhere/base",
    ],
)
def test_no_part_of_a_url_that_may_be_a_password_is_shown(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(ValueError, match="storage must be an Optuna URL") as caught,
        storage.opened(url.format(SECRET), Store(tmp_path)),
    ):
        pass
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert SECRET not in "".join(capfd.readouterr())
    assert str(caught.value).isprintable()
