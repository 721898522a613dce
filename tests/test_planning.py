"""What experiments need, as it is foretold: against what they then take."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from engramma.experiment import Experiment, read
from engramma.runs import planning
from engramma.runs.setup import build
from engramma.train import train

SMALL: dict[str, Any] = {"data": "digits", "tasks": 3, "items": 60, "memories": 6, "epochs": 1}
STATES: dict[str, Any] = {"data": "states", "stream": "states", "size": 40, "flips": 2, "items": 30}


def small(**changes: Any) -> Experiment:
    return read(SMALL, changes)


class Live(TorchDispatchMode):
    """Bytes of all tensors that are alive at once, at the most."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for part in made if isinstance(made, tuple | list) else (made,):
            if isinstance(part, torch.Tensor):
                storage = part.untyped_storage()
                self.there[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.there = {key: held for key, held in self.there.items() if not held[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.there.values()))
        return made


def taken(pack: list[Experiment]) -> int:
    first = pack[0]
    with Live() as live:
        built = build(pack, "cpu", "reference")
        for moment in train(
            built.network, built.stream, built.method, built.optimiser, built.replicas, built.theta,
            first.batch_size,
        ):  # fmt: skip
            if moment.ends_task:
                built.stream.evaluate(moment.network, moment.theta)
    return live.peak


@pytest.mark.parametrize(
    ("spare", "changes"),
    [
        (1.7, {"memories": 400, "items": 20}),
        (1.9, {"memories": 8, "items": 1500}),
        (1.4, {"memories": 300, "items": 600, "batch_size": "all", "tasks": 2}),
        (1.4, {"memories": 300, "items": 600, "batch_size": "all", "tasks": 2, "dtype": "float32"}),
        (2.3, {**STATES, "memories": 200, "size": 20, "tasks": 2}),
        (1.9, {**STATES, "memories": 4, "items": 400, "size": 24, "tasks": 3}),
        (1.7, {"method": "ewc", "strength": 1.0, "memories": 400, "items": 20}),
        (1.3, {"method": "si", "strength": 1.0, "memories": 400, "items": 20}),
        (2.7, {"method": "gem", "strength": 1.0, "memories": 200, "items": 20, "tasks": 5}),
        (2.0, {"method": "gem", "strength": 1.0, "memories": 50, "items": 400, "tasks": 4}),
        (2.5, {"method": "agem", "strength": 1.0, "memories": 200, "items": 20, "tasks": 5}),
        (1.2, {"method": "rehearsal", "strength": 1.0, "memories": 50, "items": 400, "tasks": 4}),
        (1.6, {"method": "ewc", "strength": 1.0, "memories": 100, "items": 200, "batch_size": 10}),
        (1.7, {"method": "pseudorehearsal", "strength": 1.0, "items": 300, "tasks": 2}),
        (2.2, {"method": "ewc_moments", "strength": 1.0, "items": 20, "tasks": 6}),
        (1.5, {"method": "der", "strength": 0.5, "memories": 50, "items": 100}),
        (1.5, {"method": "lwf", "strength": 1.0, "memories": 50, "items": 100}),
        (1.7, {"method": "dreams", "strength": 0.5, "memories": 50, "items": 60}),
        (1.8, {"method": "xdg", "strength": 1.0, "memories": 100, "items": 20}),
        (1.6, {"method": "allocation", "memories": 50, "items": 60, "tasks": 4}),
        (1.5, {"method": "allocation", "settings": {"groups": 1, "beside": "si", "beside_strength": 0.5},
               "memories": 100, "items": 20}),
        (1.5, {"method": "allocation", "settings": {"groups": 2, "beside": "rehearsal", "beside_strength": 1},
               "memories": 50, "items": 100, "tasks": 5}),
    ],
)  # fmt: skip
def test_a_pack_takes_the_memory_that_was_planned_for_and_not_much_less(
    spare: float, changes: dict[str, Any]
) -> None:
    pack = [small(**changes, seed=seed) for seed in (0, 1)]
    found = taken(pack)
    assert found <= planning.memory(pack) <= spare * found


@pytest.mark.parametrize("method", ["pseudorehearsal", "der", "lwf", "dreams"])
def test_replicas_of_one_seed_have_items_of_their_own_where_networks_make_them(method: str) -> None:
    pack = [small(method=method, strength=0.5, items=200, learning_rate=rate) for rate in (0.1, 0.2, 0.3)]
    found = taken(pack)
    assert found <= planning.memory(pack) <= 1.8 * found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task_id": False},
        {"tasks": 12, "items": 10},
        {"tasks": 5, "items": 100, "test_share": 0.25},
        {"stream": "rotated"},
        STATES,
    ],
)
def test_sizes_are_those_of_what_is_built(changes: dict[str, Any]) -> None:
    e = small(**changes)
    built = build([e], "cpu", "reference")
    train_items = built.stream[0].train
    scored = built.network.neurons - built.network.first_scored
    assert planning.sizes(e) == (built.network.neurons, scored, train_items.probe.shape[1])


@pytest.mark.parametrize("settings", [{}, {"capacity": 24}, {"sweep": 20}, {"capacity": 24, "sweep": 30}])
def test_as_many_items_are_rehearsed_as_was_planned(settings: dict[str, int]) -> None:
    e = small(method="rehearsal", strength=0.5, settings=settings)
    built = build([e], "cpu", "reference")
    rehearse, seen = type(built.method).rehearse, {}

    class Watched(type(built.method)):
        def rehearse(self, state: Any, now: Any) -> Any:
            items = rehearse(self, state, now)
            seen[now.task.index] = 0 if items is None else float(items.weight.sum())
            return items

    object.__setattr__(built.method, "__class__", Watched)
    for _ in train(built.network, built.stream, built.method, built.optimiser, built.replicas, built.theta):
        pass
    assert seen == {task: planning.rehearsed(e, task)[0] for task in range(3)}
    assert [planning.rehearsed(e, task)[1] for task in range(3)] == [0, 0, 0]


def test_gem_compares_with_all_it_has_kept_and_the_others_with_nothing() -> None:
    for method in ("gem", "agem"):
        e = small(method=method, strength=0.5)
        assert [planning.rehearsed(e, task) for task in range(3)] == [(0, 0), (0, 24), (0, 48)]
    assert planning.rehearsed(small(method="ewc", strength=0.5), 2) == (0, 0)
    assert planning.rehearsed(small(), 2) == (0, 0)


def test_work_is_a_share_of_items_times_memories() -> None:
    """Twice the memories, twice the work; so for items; what is rehearsed counts like the task's own, what
    GEM looks back at once a step."""
    plain = planning.work(small(), 0)
    assert planning.work(small(memories=12), 0) == pytest.approx(2 * plain)
    assert planning.work(small(items=120), 0) == pytest.approx(2 * plain)
    assert planning.work(small(epochs=9), 2) == plain
    rehearsing = small(method="rehearsal", strength=0.5)
    assert [planning.work(rehearsing, task) / plain for task in range(3)] == pytest.approx([1, 1.5, 2])
    for batch, steps in ((None, 1), ("all", 1), (48, 1), (47, 2), (12, 4), (7, 7), (1000, 1)):
        gem = small(method="gem", strength=0.5, batch_size=batch)
        expected = [1 + 0.5 * steps * task for task in range(3)]
        assert [planning.work(gem, task) / plain for task in range(3)] == pytest.approx(expected)


def test_half_of_what_a_machine_has_free_is_there_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "MemTotal: 16000 kB\nMemFree: 1 kB\nMemAvailable:   3000 kB\nSwapFree: 7 kB\n"
    true = Path.read_text
    monkeypatch.setattr(planning, "_limit", lambda *_: 1 << 62, raising=False)
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: told if self.name == "meminfo" else true(self, *a, **k)
    )
    assert planning.free_memory("cpu") == 3000 * 1024 / 2


def test_no_buffer_and_a_full_one_are_not_packed_on_a_cpu() -> None:
    grid = [small(method="rehearsal", strength=g, seed=s) for g in (0.0, 1.0) for s in (0, 1)]
    packs = planning.plan(grid, "cpu", 1 << 40)
    assert [[e.strength for e in pack] for pack in packs] == [[0, 0], [1, 1]]
    penalties = [small(method="ewc", strength=g) for g in (0.5, 1.0)]
    assert len(planning.plan(penalties, "cpu", 1 << 40)) == 1


def test_buffers_are_packed_on_a_gpu_until_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = [small(method="rehearsal", strength=g, seed=s) for g in (0.3, 0.1, 0.2) for s in (0, 1)]
    items = planning.sizes(grid[0])[2]
    for full, expected in ((2 * items, [2, 2, 2]), (2 * items + 1, [4, 2]), (4 * items + 1, [6])):
        monkeypatch.setattr(planning, "FULL", full)
        packs = planning.plan(grid, "cuda", 1 << 40)
        assert [len(pack) for pack in packs] == expected
        strengths = [x for pack in packs for x in sorted({float(e.strength or 0) for e in pack})]
        assert strengths == [0.1, 0.2, 0.3]  # the alike together


def test_halves_are_between_seeds_and_of_one_seed_in_the_middle() -> None:
    pack = [small(seed=s, learning_rate=r) for s in (3, 1, 2) for r in (0.1, 0.2)]
    one, two = planning.halves(pack)
    assert [{e.seed for e in half} for half in (one, two)] == [{3, 1}, {2}]
    assert one + two == pack
    same = [small(learning_rate=r / 100) for r in range(1, 6)]
    assert planning.halves(same) == [same[:3], same[3:]]


def test_a_share_for_testing_that_leaves_nothing_to_learn_is_still_planned_for() -> None:
    """The stream refuses it, in one line, when it is made."""
    run = read({"data": "digits", "items": 20, "test_share": 0.999999})
    assert math.isfinite(planning.work(run, 0))
