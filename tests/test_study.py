"""Packs and studies: resumed, shared, split and forked, and still the same numbers."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engramma.checks import method_class
from engramma.experiment import Experiment, read
from engramma.methods import METHODS, Buffer, Method, Now, Replay
from engramma.network import Items
from engramma.replicas import Replicas
from engramma.runs import pack as packs
from engramma.runs import planning, study
from engramma.runs.forks import fork
from engramma.runs.options import Options, device_for
from engramma.runs.pack import run_pack
from engramma.runs.planning import seed_major
from engramma.runs.study import Work, run, total_work
from engramma.store import checkpoints, records
from engramma.store.records import Record, Store

SMALL: dict[str, Any] = {"data": "digits", "tasks": 3, "items": 60, "memories": 6, "epochs": 4}
STRENGTHS = {"l2": 1e-4, "ewc": 10.0, "mas": 1.0, "si": 1.0}


def small(**changes: Any) -> Experiment:
    method = changes.get("method", "vanilla")
    given = {"strength": STRENGTHS.get(method, 0.3)} if method_class(method).strength_name else {}
    return read(SMALL, given, changes)


def same(one: Record, two: Record) -> bool:
    """Equal but for when and how fast."""
    arrays = [(one.scores, two.scores), (one.curves, two.curves)]
    return (
        one.description == two.description
        and one.diverged == two.diverged
        and list(one.scores) == list(two.scores)  # the first is what tables and averages take
        and list(one.curves) == list(two.curves)
        and one.facts["report"] == two.facts["report"]
        and one.facts["stream_hash"] == two.facts["stream_hash"]
        and all(a.keys() == b.keys() and all(np.array_equal(a[k], b[k], True) for k in a) for a, b in arrays)
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the record of each run is opened, with its checksums."""
    true, seen = records.read_folder, Counter[str]()

    def read_folder(place: Any, *names: str, **options: Any) -> dict[str, bytes]:
        seen[place.name] += 1
        return true(place, *names, **options)

    monkeypatch.setattr(records, "read_folder", read_folder)
    return seen


class Stop(Exception):
    pass


def stop_at(task: int, epoch: int) -> packs.Tick:
    def tick(e: Experiment, replicas: int, now_task: int, now_epoch: int) -> None:
        if (now_task, now_epoch) == (task, epoch):
            raise Stop

    return tick


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seeds", [(0, 1), (0,)])
def test_resumed_equals_uninterrupted(method: str, seeds: tuple[int, ...], tmp_path: Path) -> None:
    pack = [small(method=method, seed=seed) for seed in seeds]
    whole = run_pack(pack, Store(tmp_path / "a"))
    broken = Store(tmp_path / "b")
    for task, epoch in ((0, 2), (1, 3), (2, 1)):
        with pytest.raises(Stop):
            run_pack(pack, broken, tick=stop_at(task, epoch))
        assert checkpoints.stages(broken, packs.pack_name(pack)) == ([task] if task else [])
    seen: list[tuple[int, int]] = []
    resumed = run_pack(pack, broken, tick=lambda e, r, task, epoch: seen.append((task, epoch)))
    assert seen == [(2, epoch) for epoch in range(1, 5)]
    assert all(same(a, b) for a, b in zip(whole, resumed, strict=True))
    assert not list(broken.checkpoints.iterdir())


def test_a_checkpoint_that_costs_more_than_its_share_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "LIGHT", 0)
    pack = [small(seed=seed) for seed in range(2)]
    whole = run_pack(pack, Store(tmp_path / "a"), Options(checkpoint_share=float("inf")))
    for name, share, kept in (("dear", 1e-12, []), ("cheap", 1e12, [1])):
        store = Store(tmp_path / name)
        with pytest.raises(Stop):
            run_pack(pack, store, Options(checkpoint_share=share), stop_at(1, 3))
        assert checkpoints.stages(store, packs.pack_name(pack)) == kept
        again = run_pack(pack, store, Options(checkpoint_share=share))
        assert all(same(a, b) for a, b in zip(whole, again, strict=True))


def test_a_checkpoint_may_take_its_share_of_the_time_since_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by a second at each look: three from the start to the end of a task, and one
    while a checkpoint is written, by which the next is known to take a second as well."""
    monkeypatch.setattr(packs, "LIGHT", 0)
    monkeypatch.setattr(packs, "PACE", 3.0)
    monkeypatch.setattr(checkpoints, "size", lambda point: 3)
    for share, task, kept in ((0.3, 1, []), (0.4, 1, [1]), (0.4, 2, [2])):
        clock = itertools.count(1000)
        monkeypatch.setattr(packs, "time", SimpleNamespace(perf_counter=lambda c=clock: float(next(c))))
        pack, store = [small(seed=seed) for seed in range(2)], Store(tmp_path / f"{share}-{task}")
        with pytest.raises(Stop):
            run_pack(pack, store, Options(checkpoint_share=share), stop_at(task, 1))
        assert checkpoints.stages(store, packs.pack_name(pack)) == kept


def test_a_pack_whose_checkpoints_are_kept_goes_on_from_the_last_if_all_are_there(tmp_path: Path) -> None:
    pack, store = [small()], Store(tmp_path)
    name = packs.pack_name(pack)
    for lost, begins in ((None, (2, 1)), ("1", (0, 1))):
        with pytest.raises(Stop):
            run_pack(pack, store, Options(keep_checkpoints=True), stop_at(2, 1))
        assert checkpoints.stages(store, name) == [1, 2]
        if lost:
            shutil.rmtree(store.checkpoints / name / lost)
        seen: list[tuple[int, int]] = []
        run_pack(pack, store, Options(keep_checkpoints=True), lambda e, r, *now: seen.append(now))  # noqa: B023
        assert seen[0] == begins
        assert checkpoints.stages(store, name) == [1, 2, 3]
        checkpoints.discard(store, name)


def test_a_checkpoint_from_before_a_score_was_measured_goes_on(tmp_path: Path) -> None:
    """Of what was not measured there is NaN; every other number is as if it had been."""
    pack, store = [small(method="allocation", seed=seed) for seed in (0, 1)], Store(tmp_path / "b")
    whole = run_pack(pack, Store(tmp_path / "a"))
    with pytest.raises(Stop):
        run_pack(pack, store, tick=stop_at(1, 1))
    (name,) = checkpoints.packs(store)
    point = checkpoints.load(store, name, 1, METHODS["allocation"](), "cpu")
    assert point is not None
    old = {k: v for k, v in point.measured.items() if not k.endswith("/named")}
    assert len(old) == len(point.measured) - 2
    checkpoints.save(store, name, replace(point, measured=old))
    seen: list[int] = []
    resumed = run_pack(pack, store, tick=lambda e, r, *now: seen.append(now[0]))
    assert min(seen) == 1
    for one, two in zip(whole, resumed, strict=True):
        assert list(one.scores) == list(two.scores) == ["accuracy", "macro_f1", "named"]
        assert np.isnan(two.scores["named"][0]).all()
        assert np.array_equal(one.scores["named"][1:], two.scores["named"][1:])
        late = one.curves["epoch"] > 4
        assert np.isnan(two.curves["named"][~late]).all()
        assert np.array_equal(one.curves["named"][late], two.curves["named"][late])
        for score in ("accuracy", "macro_f1"):
            assert np.array_equal(one.scores[score], two.scores[score])
            assert np.array_equal(one.curves[score], two.curves[score])


def test_a_checkpoint_that_is_not_the_pack_s_gives_way_to_an_earlier_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack = [small(seed=seed, method="si") for seed in range(2)]
    whole = run_pack(pack, Store(tmp_path / "a"))
    store = Store(tmp_path / "b")
    with pytest.raises(Stop):
        run_pack(pack, store, tick=stop_at(1, 1))
    (name,) = checkpoints.packs(store)
    point = checkpoints.load(store, name, 1, METHODS["si"](), "cpu")
    assert point is not None
    assert point.theta is not None
    later = {"done": 2, "facts": {**point.facts, "seconds": [1.0, 2.0]}}
    checkpoints.save(store, name, replace(point, **later, theta=point.theta[:1]))
    seen: list[int] = []
    again = run_pack(pack, store, tick=lambda e, r, task, epoch: seen.append(task))
    assert "its memories have another type or shape; set aside" in caplog.text
    assert min(seen) == 1
    assert all(same(a, b) for a, b in zip(whole, again, strict=True))


def test_a_study_opens_each_record_once(tmp_path: Path, opened: Counter[str]) -> None:
    """What it finds and what it writes; who helps opens what may be missing, and nothing that it writes."""
    pack, store = [small(seed=s, vertex=v) for v in (2.0, 3.0) for s in (0, 1, 2)], Store(tmp_path)
    for some, ran in ((pack[:2], 2), (pack, 4), (pack, 0)):
        opened.clear()
        outcome = run(some, store)
        assert (outcome.ran, outcome.found) == (ran, len(some) - ran)
        assert opened == Counter(e.name for e in some)
    opened.clear()
    more = small(seed=3)
    assert study.help_out([*pack[:2], more], store, Options(), Work()) == {more.name}
    assert opened == Counter(e.name for e in pack[:2])


def test_a_study_makes_what_it_needs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memories are drawn to see whether runs are right, and no description is made again of a record whose
    run is at hand."""
    pack, store, drawn = [small(seed=s) for s in (0, 1)], Store(tmp_path), []
    true = Replicas.memories
    monkeypatch.setattr(Replicas, "memories", lambda self, *a, **k: drawn.append(1) or true(self, *a, **k))
    monkeypatch.setattr(Experiment, "__init__", lambda *_, **__: pytest.fail("made again"))
    assert run(pack, store).ran == 2
    assert len(drawn) == 1
    assert run(pack, store).found == 2


class Shifty(Replay):
    """A method of one's own, whose report is of a kind that a file gives back as another."""

    def keep(self, now: Now, theta: torch.Tensor, count: int) -> tuple[Items, torch.Tensor]:
        return now.task.train.row(slice(0, count)), theta.new_zeros(0)

    def report(self, state: Buffer) -> dict[str, Any]:
        return {"sizes": tuple(state.sizes.tolist()), "odd": float("nan"), "by": {2: np.int64(1)}}


@pytest.mark.parametrize("method", [*METHODS, f"{__name__}:Shifty"])
def test_broken_off_while_records_are_written(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is trained again: scores, curves, the method's report and the seconds come from the file."""
    pack = [small(seed=seed, method=method) for seed in range(3)]
    whole = run(pack, Store(tmp_path / "a")).records
    assert bool(whole[0].facts["report"]) == (method_class(method).report is not Method.report)
    store = Store(tmp_path / "b")
    write = Store.write

    def fail(self: Store, record: Record) -> Path:
        if record.description["seed"] == 1:
            raise Stop
        return write(self, record)

    monkeypatch.setattr(Store, "write", fail)
    with pytest.raises(Stop):
        run(pack, store)
    monkeypatch.undo()
    assert len(store) == 1
    spent = store.find(pack[0]).facts["seconds_by_task"]  # type: ignore[union-attr]
    assert len(spent) == SMALL["tasks"]
    work = Work()
    outcome = run(pack, store, watch=work)
    assert [r.facts["seconds_by_task"] for r in outcome.records] == [spent] * 3
    assert [r.facts["seconds"] for r in outcome.records] == [sum(spent)] * 3
    assert (outcome.ran, outcome.found) == (2, 1)
    assert work.doing == ""  # nothing was trained again: the last checkpoint had all scores
    assert all(same(a, b) for a, b in zip(whole, outcome.records, strict=True))


@pytest.mark.parametrize("method", ["vanilla", "rehearsal", "gem", "ewc", "si", "allocation"])
def test_pack_equals_alone(method: str, tmp_path: Path) -> None:
    strengths = [None] if method in ("vanilla", "allocation") else [0.2, 0.6]
    rates = [0.08, 0.05]
    pack = [
        small(method=method, seed=s, strength=g, learning_rate=r)
        for g in strengths
        for r in rates
        for s in (0, 3)
    ]
    together = run_pack(pack, Store(tmp_path / "together"))
    for experiment, record in zip(pack, together, strict=True):
        assert record.description == experiment.describe()
        alone = run_pack([experiment], Store(tmp_path / "alone"))[0]
        assert list(record.scores) == list(alone.scores)
        for key in record.scores:
            np.testing.assert_allclose(record.scores[key], alone.scores[key], atol=1e-9)
            np.testing.assert_allclose(record.curves[key], alone.curves[key], atol=1e-9)
        assert record.facts["stream_hash"] == alone.facts["stream_hash"]


def test_a_diverged_replica_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    good, bad = small(vertex=20), small(vertex=20, learning_rate=1e30)
    together = run_pack([good, bad], Store(tmp_path / "a"))
    alone = run_pack([good], Store(tmp_path / "b"))[0]
    assert together[0].diverged is None
    np.testing.assert_allclose(together[0].scores["accuracy"], alone.scores["accuracy"])
    broke = together[1].diverged
    assert broke is not None
    assert 0 <= broke["task"] < 3
    assert 1 <= broke["epoch"] <= 4
    assert np.isnan(together[1].scores["accuracy"][broke["task"] :]).all()
    assert np.isnan(together[1].average)
    when = broke["task"] * 4 + broke["epoch"]
    curve, epochs = together[1].curves["accuracy"], together[1].curves["epoch"]
    assert np.isnan(curve[epochs >= when]).all()
    assert np.isfinite(curve[epochs < when]).all()
    assert Store(tmp_path / "a").find(bad).diverged == broke  # type: ignore[union-attr]


def test_curves_start_before_training_and_end_with_the_scores(tmp_path: Path) -> None:
    record = run_pack([small()], Store(tmp_path), Options(curve_every=3))[0]
    assert record.curves["epoch"].tolist() == [0, 3, 4, 7, 8, 11, 12]
    ends = np.isin(record.curves["epoch"], [4, 8, 12])
    assert np.array_equal(record.curves["accuracy"][ends], record.scores["accuracy"])


def test_a_record_holds_its_own_numbers_and_not_its_pack_s(tmp_path: Path) -> None:
    """Or the records of a pack of thousands would hold its curves thousands of times over."""
    for record in run_pack([small(seed=seed) for seed in range(5)], Store(tmp_path)):
        for values in record.curves.values():
            whole: Any = values.base  # a tensor, where PyTorch made it
            assert whole is None or torch.as_tensor(whole).untyped_storage().nbytes() == values.nbytes


def test_states_are_an_experiment_like_any_other(tmp_path: Path) -> None:
    experiment = read({"stream": "states", "size": 30, "items": 3, "memories": 20, "epochs": 60, "flips": 2})
    record = run([experiment], Store(tmp_path)).records[0]
    assert list(record.scores) == ["recalled", "stable"]
    assert record.scores["recalled"][0, 0] == 1
    assert record.scores["recalled"][1, 0] < record.scores["recalled"][0, 0]


def test_memories_are_kept_on_request_and_survive_a_resume(tmp_path: Path) -> None:
    pack = [small(seed=s) for s in (0, 1)]
    plain = run(pack, Store(tmp_path)).records
    assert plain[0].memories(0) is None
    with pytest.raises(Stop):
        run_pack(pack, Store(tmp_path), Options(keep_memories=True), stop_at(2, 1))
    assert run(pack, Store(tmp_path)).ran == 0  # leaves the work in hand alone
    assert checkpoints.stages(Store(tmp_path), packs.pack_name(pack)) == [1, 2]
    seen = Work(on_change=lambda work: marks.append(work.doing))
    marks: list[str] = []
    kept = run(pack, Store(tmp_path), Options(keep_memories=True), seen)
    assert kept.ran == 2
    assert {mark[-8:] for mark in marks[1:]} == {"task 3/3"}  # the first says that there is work
    final = kept.records[1].memories(2)
    assert final is not None
    assert final.shape == (6, 77)
    assert same(plain[1], kept.records[1])
    assert run(pack, Store(tmp_path)).ran == 0
    assert run(pack, Store(tmp_path), Options(keep_memories=True)).ran == 0


@pytest.mark.parametrize("method", ["ewc", "si", "rehearsal"])
def test_fork_with_the_same_method_equals_the_run_itself(method: str, tmp_path: Path) -> None:
    """With SI too, whose importances could not be worked out again."""
    store = Store(tmp_path)
    parents = run(
        [small(method=method, seed=s) for s in (0, 1)], store, Options(keep_checkpoints=True)
    ).records
    children = [fork(p.experiment, 1) for p in parents]
    assert {c.name for c in children}.isdisjoint(p.name for p in parents)
    for parent, child in zip(parents, run(children, store).records, strict=True):
        for key in parent.scores:
            assert np.array_equal(parent.scores[key], child.scores[key])
        assert parent.facts["report"] == child.facts["report"]  # the importances, where it has any


@pytest.mark.parametrize("method", ["rehearsal", "gem", "l2", "mas"])
def test_fork_with_another_method_looks_back(method: str, tmp_path: Path) -> None:
    """After task one every method stands where vanilla does: a fork there is the method's own run."""
    store = Store(tmp_path)
    parents = run([small(seed=s) for s in (0, 1)], store, Options(keep_checkpoints=True)).records
    strength = STRENGTHS.get(method, 0.3)
    forked = run([fork(p.experiment, 0, method, strength=strength) for p in parents], store).records
    alone = run([small(method=method, seed=s) for s in (0, 1)], store).records
    for one, two in zip(forked, alone, strict=True):
        assert np.array_equal(one.scores["accuracy"], two.scores["accuracy"])


def test_fork_refuses_what_does_not_fit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    parent = run([small()], store).records[0].experiment
    with pytest.raises(ValueError, match="keep-checkpoints"):
        run([fork(parent, 1)], store)
    with pytest.raises(ValueError, match="between 0 and 1"):
        fork(parent, 2)
    kept = run([small(seed=5)], store, Options(keep_checkpoints=True)).records[0].experiment
    with pytest.raises(ValueError, match="only the method"):
        run([fork(kept, 1, epochs=7)], store)
    with pytest.raises(ValueError, match="seed"):
        run([fork(kept, 1, seed=7)], store)
    (pack,) = checkpoints.packs(store)
    often = run([small(seed=6)], store, Options(keep_checkpoints=True, curve_every=2)).records[0].experiment
    with pytest.raises(ValueError, match="measured at the same epochs"):
        run([fork(kept, 1), fork(often, 1)], store)
    shutil.rmtree(store.checkpoints / pack / "1")
    with pytest.raises(ValueError, match=f"no checkpoint after task 0 of pack {pack} "):
        run([fork(kept, 1)], store)


def test_a_fork_of_what_named_tasks_keeps_what_was_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    parent = run([small(method="allocation")], store, Options(keep_checkpoints=True)).records[0]
    child = run([fork(parent.experiment, 1, "ewc", strength=1.0)], store).records[0]
    assert np.array_equal(child.scores["named"][:2], parent.scores["named"][:2])
    assert np.isnan(child.scores["named"][2]).all()
    assert len(child.curves["named"]) == len(child.curves["epoch"])


@pytest.mark.parametrize("part", ["theta", "rows", "state", "seeds", "setting", "seconds", "curves", "types"])
@pytest.mark.parametrize("method", ["si", "ewc"])
def test_fork_refuses_a_checkpoint_that_its_pack_would_not_have_left(
    part: str, method: str, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    parent = run([small(method="si")], store, Options(keep_checkpoints=True)).records[0].experiment
    (name,) = checkpoints.packs(store)
    point = checkpoints.load(store, name, 1, METHODS["si"](), "cpu")
    assert point is not None
    assert point.theta is not None
    told, measured = point.facts, point.measured
    odd: dict[str, Any] = {
        "theta": {"theta": point.theta[:0]},
        "rows": {"measured": {k: v if k == "marks" else v[:0] for k, v in measured.items()}},
        "state": {"state": point.state[:-1]},
        "curves": {"measured": {k: v for k, v in measured.items() if not k.startswith("curves/")}},
        "types": {"measured": {k: v.int() for k, v in measured.items()}},
    }
    cut = {"facts": {k: v for k, v in told.items() if k != part}}
    checkpoints.save(store, name, replace(point, **odd.get(part, cut)))
    child = fork(parent, 0, method, strength=1.0)
    if part == "state" and method != "si":  # another method has its own
        assert run([child], store).ran == 1
        return
    with pytest.raises(ValueError, match=r"^fork: "):
        run([child], store)


def test_packs_share_items_and_fit_the_room() -> None:
    grid = [small(method="ewc", strength=g, seed=s) for g in (1.0, 2.0) for s in (0, 1, 2)]
    (pack,) = planning.plan(grid, "cpu")
    assert [e.seed for e in pack] == [0, 0, 1, 1, 2, 2]
    room = planning.memory(pack) // 2
    parts = planning.plan(grid, "cpu", room)
    assert len(parts) > 1
    assert sorted(e.name for part in parts for e in part) == sorted(e.name for e in grid)
    assert all(planning.memory(part) <= room for part in parts)
    assert all(len({e.seed for e in part}) * 2 == len(part) for part in parts)
    assert [len(part) for part in planning.plan(grid, "cpu", 1)] == [1] * len(grid)


def test_unequal_buffers_are_not_packed_on_a_cpu() -> None:
    grid = [small(method="rehearsal", strength=g, seed=s) for g in (0.1, 0.5) for s in (0, 1)]
    assert [[e.strength for e in p] for p in planning.plan(grid, "cpu", 1 << 40)] == [[0.1, 0.1], [0.5, 0.5]]
    assert len(planning.plan(grid, "cuda", 1 << 40)) == 1


def test_the_bar_moves_by_what_each_epoch_is_worth_and_says_where_it_is(tmp_path: Path) -> None:
    first, second = [small(seed=s) for s in (0, 1)], [small(method="rehearsal", vertex=5.0)]
    seen: list[tuple[float, str]] = []
    watch = Work(on_change=lambda work: seen.append((work.own, work.doing)))
    run([*first, *second], Store(tmp_path), watch=watch)
    done, expected = 0.0, [(0.0, "")]  # there is work, and how much
    for pack, label in ((first, "vanilla, n = 2"), (second, "rehearsal, n = 5")):
        for task in range(3):
            for _ in range(pack[0].epochs):
                done += len(pack) * planning.work(pack[0], task)
                expected.append((pytest.approx(done), f"{label}, task {task + 1}/3"))
    distinct = [now for before, now in zip([None, *seen], seen, strict=False) if now != before]
    assert distinct == expected
    assert (watch.own, watch.apart) == (pytest.approx(watch.total), pytest.approx(0.0))


def test_small_packs_have_one_thread_and_leave_it_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        large = small(memories=512, items=1500, epochs=1)
        little = [small()]
        cases = (("cpu", little, 1), ("cpu", little * 10, 1), ("cpu", [large] * 50, 2), ("cuda", little, 2))
        for device, pack, threads in cases:
            with planning.suited_threads(device, pack):
                assert torch.get_num_threads() == threads
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_accuracy_is_measured_at_the_temperature_of_its_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engramma.streams import ClassStream

    true, seen = ClassStream.evaluate, []

    def evaluate(self: Any, network: Any, theta: Any) -> Any:
        seen.append(float(torch.as_tensor(network.beta).flatten()[0]))
        return true(self, network, theta)

    monkeypatch.setattr(ClassStream, "evaluate", evaluate)
    run_pack([small(tasks=2, initial_temperature=0.5, final_temperature=0.9)], Store(tmp_path))
    falling = [1 / (0.5 + 0.4 * epoch / 4) for epoch in range(5)]
    assert seen == pytest.approx([*falling, *falling[1:]])


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_halves_the_pack(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def scarce(pack: list[Experiment], *args: Any, **options: Any) -> list[Record]:
        sizes.append(len(pack))
        if len(pack) > 2:
            raise error
        return run_pack(pack, *args, **options)

    monkeypatch.setattr(study, "run_pack", scarce)
    outcome = run([small(seed=s) for s in range(5)], Store(tmp_path))
    assert sizes == [5, 3, 2, 1, 2]
    assert len(outcome.records) == outcome.ran == 5


def test_out_of_memory_of_a_single_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any, **options: Any) -> list[Record]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(study, "run_pack", none)
    monkeypatch.setattr(study, "memory", lambda pack: 5 * 2**29)
    with pytest.raises(MemoryError, match=r"does not fit the device \(2\.5 GiB or more\).*batch_size"):
        run([small()], Store(tmp_path))


def test_an_error_that_is_not_of_memory_is_nobodys_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def broken(pack: list[Experiment], *args: Any, **options: Any) -> list[Record]:
        asked.append(len(pack))
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(study, "run_pack", broken)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run([small(seed=s) for s in range(4)], Store(tmp_path))
    assert asked == [4]


def test_a_step_over_everything_is_planned_for() -> None:
    """All at once, rehearsed items too: room for all of them in one step, in which GEM looks back once."""
    whole, parted = (small(method="rehearsal", strength=1.0, tasks=5, batch_size=b) for b in ("all", None))
    assert planning.memory([whole]) > planning.memory([parted])
    once, often = (small(method="gem", strength=1.0, batch_size=b) for b in ("all", 7))
    assert planning.work(once, 1) < planning.work(often, 1)


OWN = """
from engramma.methods import EWC, GEM, Method, Pseudorehearsal

class MyGEM(GEM): ...
class MyEWC(EWC): ...
class Both(EWC):  # a penalty that rehearses too
    def rehearse(self, state, now): return None
class MyDreams(Pseudorehearsal): ...
class Nothing(Method): ...

class Small(Method):  # holds on to its last memories, and says that this is all
    def start(self, theta): return theta
    @classmethod
    def held(cls, settings, strength, size): return size.memories * size.neurons
    @classmethod
    def rehearsed(cls, settings, strength, items, task): return 0, 0

class Loose(Method):
    def start(self, theta): return None
    def rehearse(self, state, now): return None
    def steer(self, state, now, theta, grad): return grad
    def observe(self, state, now, grad, step, move): return state
    def consolidate(self, state, now, theta): return state
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_costs.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_costs"
    sys.modules.pop("own_costs", None)


@pytest.mark.parametrize(
    ("known", "its"),
    [("gem", "MyGEM"), ("ewc", "MyEWC"), ("pseudorehearsal", "MyDreams"), ("vanilla", "Nothing")],
)
def test_a_class_of_ones_own_needs_what_its_base_needs(known: str, its: str, own: str) -> None:
    given = {} if known == "vanilla" else {"strength": 0.5}
    base, mine = small(method=known, **given), small(method=f"{own}:{its}", **{"strength": None, **given})
    assert planning.memory([mine]) == planning.memory([base])
    assert planning.work(mine, 2) == planning.work(base, 2)


def test_an_unknown_method_is_thought_to_need_as_much_as_any(own: str) -> None:
    """Packed too tightly it would run out of memory; a class that says what it needs is believed."""
    loose = planning.memory([small(method=f"{own}:Loose", strength=None)])
    whole = dict.fromkeys(("rehearsal", "pseudorehearsal", "gem", "agem"), 1.0)
    for method, strength in {**STRENGTHS, **whole}.items():
        assert loose >= planning.memory([small(method=method, strength=strength)]), method
    both, ewc = (small(method=m, strength=1.0) for m in (f"{own}:Both", "ewc"))
    assert planning.rehearsed(both, 2) == (2 * 48, 0)
    assert planning.memory([both]) > planning.memory([ewc])
    vanilla, told = planning.memory([small()]), planning.memory([small(method=f"{own}:Small", strength=None)])
    assert vanilla < told < loose


def test_equal_buffers_are_packed_together() -> None:
    """A buffer of a fixed size is as large at every proportion; one of a share grows with it."""
    fixed = [small(method="rehearsal", strength=g, settings={"capacity": 9}) for g in (0.1, 0.5)]
    assert len(planning.plan(fixed, "cpu", 1 << 40)) == 1


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_container_s_memory_is_all_there_is(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "GROUPS", tmp_path)
    machine = planning.free_memory("cpu")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    for text, expected in (("max\n", None), ("9223372036854771712\n", None), ("64000000\n", 32_000_000)):
        (tmp_path / file).write_text(text)
        found = planning.free_memory("cpu")
        assert found == expected or (expected is None and found > machine / 2)  # what is free changes


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, auto in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        assert device_for("auto").type == auto
        assert device_for("cpu").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for("cuda").type == "cuda"
    with pytest.raises(ValueError, match="one of the 1 there are, not 'cuda:1'"):
        device_for("cuda:1")


def test_seed_major_keeps_seeds_together() -> None:
    mixed = [small(seed=s, learning_rate=r) for r in (0.1, 0.2) for s in (4, 2)]
    assert [e.seed for e in seed_major(mixed)] == [4, 4, 2, 2]


# Processes: a study of 12 runs in 6 packs, of which each is long enough to be killed in the middle.

WORKER = """
import sys, json, torch
torch.set_num_threads(1)
from engramma.experiment import read
from engramma.store.records import Store
from engramma.runs.options import Options
from engramma.runs.study import run
wanted = [read(told) for told in json.loads(sys.argv[2])]
print("begin", flush=True)
outcome = run(wanted, Store(sys.argv[1]), Options(processes=int(sys.argv[3])))
print("ran", outcome.ran, flush=True)
"""


def grid(epochs: int) -> list[Experiment]:
    size = {"items": 100, "memories": 8, "epochs": epochs}
    kinds = [(m, n, s) for m in ("vanilla", "rehearsal", "si") for n in (2.0, 5.0) for s in (0, 1)]
    return [read(SMALL, size, {"method": m, "vertex": n, "seed": s}) for m, n, s in kinds]


def worker(store: Path, epochs: int = 12, processes: int = 1) -> subprocess.Popen[str]:
    told = json.dumps([e.describe() for e in grid(epochs)])
    command = [sys.executable, "-c", WORKER, str(store), told, str(processes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> int:
    out = process.communicate(timeout=300)[0]
    assert process.returncode == 0, out
    return int(out.split()[-1])


def compare(one: Store, two: Store, count: int = 12) -> None:
    undisturbed = {record.name: record for record in one}
    found = {record.name: record for record in two}
    assert len(found) == len(two) == count
    assert undisturbed.keys() == found.keys()
    assert all(same(undisturbed[name], found[name]) for name in found)


def kill_often(tmp_path: Path, kills: int, epochs: int, processes: int = 1) -> None:
    run(grid(epochs), Store(tmp_path / "warm"))  # what is compiled and loaded once is not timed
    start = time.monotonic()
    run(grid(epochs), Store(tmp_path / "undisturbed"))
    lasts = time.monotonic() - start
    chance = random.Random(kills)
    killed = 0
    for _ in range(kills):
        process = worker(tmp_path / "killed", epochs, processes)
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        time.sleep(chance.random() * 3 * lasts / kills)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
    assert killed >= max(1, kills // 3)
    finish(worker(tmp_path / "killed", epochs, processes))
    store = Store(tmp_path / "killed")
    compare(Store(tmp_path / "undisturbed"), store)
    assert not list(store.checkpoints.glob("*"))
    assert not list(store.path.rglob(".tmp-*"))
    assert not list(store.claims.glob("*.lock"))


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_killed_and_restarted_equals_undisturbed(tmp_path: Path) -> None:
    kill_often(tmp_path, 4, 30)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_killed_twenty_times_equals_undisturbed(processes: int, tmp_path: Path) -> None:
    kill_often(tmp_path, 20, 150, processes)


def test_the_bar_counts_no_work_twice(tmp_path: Path) -> None:
    """Alone, nothing is done by others; with a record of theirs that comes between, just that is."""
    runs, seen = grid(4)[:6], []
    store, other = Store(tmp_path / "store"), Store(tmp_path / "other")
    run(runs, store, watch=Work(on_change=lambda work: seen.append((work.own, work.apart))))
    assert seen == sorted(seen)
    assert {apart for _, apart in seen} == {0.0}
    store, foreign, seen = Store(tmp_path / "second"), run(runs[-1:], other).records[0], []

    def come(work: Work) -> None:
        store.write(foreign)
        seen.append((work.own, work.apart))

    watch = Work(on_change=come)
    run(runs, store, Options(room=1), watch)
    assert {apart for _, apart in seen} == {0.0, total_work(runs[-1])}
    assert watch.done == watch.total


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    run(grid(12), Store(tmp_path / "one"))
    pair = [worker(tmp_path / "two"), worker(tmp_path / "two")]
    done = [finish(process) for process in pair]
    assert sum(done) == 12  # each run by one of them
    compare(Store(tmp_path / "one"), Store(tmp_path / "two"))
