"""Searches: asked in batches, told means, killed and gone on with."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import holding
import numpy as np
import optuna
import pytest

from engramma import checkpoints, packs, prune
from engramma.experiment import read
from engramma.methods import Anchored
from engramma.records import Store
from engramma.searches import FIRST_SEED, Search, grid_search, strength_search
from engramma.study import Work, total_work
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


def test_the_bar_knows_that_larger_buffers_are_more_work(tmp_path: Path) -> None:
    search = strength_search(read(TINY, {"method": "rehearsal"}), "demo", SEEDS[:1], 7, (0.0, 0.71))
    work = Work()
    tune([search], Store(tmp_path), batch=7, watch=work)
    runs = [e for point in search.points for e in search.experiments(dict(point))]
    assert len({total_work(e) for e in runs}) == 7
    assert work.total == pytest.approx(sum(map(total_work, runs)), rel=1e-12)
    assert work.done == pytest.approx(work.total)


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


def test_what_is_cut_out_of_a_checkpoint_is_of_the_rows_alone() -> None:
    import torch

    theta = torch.arange(3.0)[:, None, None].expand(3, 4, 5)
    state = Anchored(theta + 10, theta + 20, None, None, torch.arange(3.0), torch.zeros(4))
    measured = {
        "scores/accuracy": theta + 30,
        "curves/accuracy": torch.arange(3.0).expand(3, 3),  # (marks, R)
        "marks": torch.tensor([0, 1, 2]),
        "broke": torch.tensor([0, 7, 8]),
    }
    report = {"each": [0, 1, 2], "longer": [0, 1, 2, 3], "shorter": [0, 1], "plain": 4}
    facts = {"report": report, "seconds": [1.0, 2.0]}
    part = prune.cut(checkpoints.Checkpoint(("a", "b", "c"), 2, theta, state, measured, facts), [0, 2])
    assert (part.runs, part.done) == (("a", "c"), 2)
    assert torch.equal(torch.as_tensor(part.theta), theta[[0, 2]])
    for found, whole in zip(part.state[:2], state[:2], strict=True):
        assert torch.equal(found, whole[[0, 2]])
    assert part.state[2:4] == (None, None)
    assert part.state[4].tolist() == [0, 2]
    assert part.state[5].shape == (4,)
    assert torch.equal(part.measured["scores/accuracy"], measured["scores/accuracy"][[0, 2]])
    assert part.measured["curves/accuracy"].tolist() == [[0, 2]] * 3
    assert part.measured["marks"].tolist() == [0, 1, 2]
    assert part.measured["broke"].tolist() == [0, 8]
    assert part.facts == {"report": {**report, "each": [0, 2]}, "seconds": [1.0, 2.0]}


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
