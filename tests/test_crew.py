"""A crew: processes started for small packs share the work, say how far they are, leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_parts import owners

from engramma.experiment import Experiment, read
from engramma.runs import crew, planning
from engramma.runs import estimate as estimates
from engramma.runs.estimate import estimate
from engramma.runs.options import Options
from engramma.runs.study import Work, run, total_work
from engramma.store.records import Record, Store

SMALL: dict[str, Any] = {"data": "digits", "tasks": 3, "items": 60, "memories": 6, "epochs": 4}
OWN = """
from engramma.methods import Vanilla

class Stubborn(Vanilla):
    def consolidate(self, *args, **options):
        raise ValueError("stubborn must not be asked twice")
"""


def small(**changes: Any) -> Experiment:
    return read(SMALL, changes)


def grid() -> list[Experiment]:
    return [small(vertex=v, seed=s, epochs=20) for v in (2.0, 3.0, 5.0, 10.0, 20.0, 30.0) for s in (0, 1)]


def same(one: Record, two: Record) -> bool:
    """Equal but for when and how fast."""
    arrays = [(one.scores, two.scores), (one.curves, two.curves)]
    return one.description == two.description and all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k], True) for k in a) for a, b in arrays
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """The members that were started."""
    members: list[subprocess.Popen[str]] = []
    start = crew._start

    def note() -> subprocess.Popen[str]:
        members.append(start())
        return members[-1]

    monkeypatch.setattr(crew, "_start", note)
    return members


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return run(grid(), Store(tmp_path_factory.mktemp("alone"))).records


def wait_for(member: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """The first process rests, the other thread listens: a member takes seconds to start."""
    while threading.current_thread() is threading.main_thread() and not until() and member.poll() is None:
        time.sleep(0.02)


def test_records_equal_those_of_one_process(
    tmp_path: Path, alone: list[Record], started: list[subprocess.Popen[str]]
) -> None:
    seen: list[float] = []

    def change(work: Work) -> None:
        wait_for(started[0], lambda: work.apart > 0)
        seen.append(work.done)

    watch, store = Work(on_change=change), Store(tmp_path)
    outcome = run(grid(), store, Options(processes=2), watch)
    assert len(started) == 1  # which has ended: by itself, or on a busy machine because it took too long
    assert started[0].returncode is not None
    assert len(watch.ran) < outcome.ran == 12  # both had a part
    assert outcome.found == 0
    assert all(same(a, b) for a, b in zip(alone, outcome.records, strict=True))
    assert seen == sorted(seen)  # a bar that never goes back,
    assert seen[-1] == watch.total == sum(map(total_work, grid()))  # and ends at the end
    assert not list(store.claims.glob("*.*"))
    assert not list(store.checkpoints.glob("*"))


def test_a_killed_member_loses_nothing(
    tmp_path: Path, alone: list[Record], started: list[subprocess.Popen[str]]
) -> None:
    def change(work: Work) -> None:
        wait_for(started[0], lambda: work.apart > 0)
        started[0].kill()

    outcome = run(grid(), Store(tmp_path), Options(processes=2), Work(on_change=change))
    assert started[0].returncode == -signal.SIGKILL
    assert all(same(a, b) for a, b in zip(alone, outcome.records, strict=True))


def test_a_member_ends_with_its_first_process(tmp_path: Path) -> None:
    member = crew._start()
    told = {"path": sys.path, "store": str(tmp_path), "threads": 1, "options": {"kernel": "reference"}}
    assert member.stdin is not None
    member.stdin.write(json.dumps({**told, "experiments": [small(epochs=10**6).describe()]}) + "\n")
    member.stdin.flush()
    while not list(tmp_path.glob("claims/*.lock")):
        assert member.poll() is None
        time.sleep(0.01)
    member.communicate(timeout=60)  # closes its input
    assert member.returncode == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    store = tmp_path / "store"
    start = "from engramma.cli import main; main()"
    command = ["-c", start, "reproduce", "table2", "--scale", "demo", "--rows", "vanilla,ewc", "--seeds"]
    where = ["1", "--store", str(store), "--out", str(tmp_path), "--kernel", "reference", "--processes", "2"]
    first = subprocess.Popen([sys.executable, *command, *where], stderr=subprocess.PIPE, text=True)
    workers: set[int] = set()
    while len(workers) < 2:  # until both work on a run
        assert first.poll() is None
        time.sleep(0.01)
        workers = owners(Store(store))
    os.kill(first.pid, signal.SIGINT)
    said = first.communicate(timeout=60)[1]
    assert first.returncode == 130
    assert "of this command kept in" in " ".join(said.split())
    assert "Traceback" not in said
    for _ in range(600):
        if not any(map(alive, workers)):
            break
        time.sleep(0.1)
    assert not any(map(alive, workers))


def test_what_goes_wrong_is_said_by_the_first_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    started: list[subprocess.Popen[str]],
) -> None:
    (tmp_path / "stubborn.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    easy = [small(vertex=v) for v in (2.0, 3.0, 5.0, 10.0)]
    hard = small(method="stubborn:Stubborn")

    def wait(work: Work) -> None:
        """Until the member has come to the hard run."""
        wait_for(started[0], lambda: bool(caplog.records))

    with pytest.raises(ValueError, match="stubborn must not be asked twice"):
        run([easy[0], hard, *easy[1:]], Store(tmp_path / "s"), Options(processes=2), Work(on_change=wait))
    assert "the others go on: stubborn must not" in caplog.text
    assert started[0].returncode is not None
    assert len(Store(tmp_path / "s")) >= 1  # what was finished before is kept


def test_members_share_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = [small(vertex=v, seed=s) for v in (2.0, 3.0) for s in range(8)]
    room = planning.memory(pack[:8])  # enough for one process with all seeds at once
    monkeypatch.setattr("engramma.runs.estimate.free_memory", lambda device: room)
    one, two = (estimate(pack, Store(tmp_path), Options(processes=count)) for count in (1, 2))
    assert (one.packs, one.replicas) == (2, 8)
    assert (two.packs, two.replicas) == (4, 4)
    assert one.memory <= room
    assert two.memory <= room
    assert two.memory == 2 * planning.memory(pack[:4])


def test_no_more_is_tried_for_an_estimate_than_tells_how_long_all_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand runs at once would take gigabytes, and are not to be trained."""
    runs = [small(seed=seed) for seed in range(40)]
    most = planning.memory(runs[:10])
    tried: list[list[Experiment]] = []
    build = estimates.build
    monkeypatch.setattr(estimates, "TRIED", most)
    monkeypatch.setattr(estimates, "build", lambda pack, *place: (tried.append(pack), build(pack, *place))[1])
    found = estimate(runs, Store(tmp_path), Options(device="cpu"))
    assert found.seconds is not None
    assert (found.missing, found.replicas) == (40, 40)
    (pack,) = tried
    assert len(pack) > 1
    assert planning.memory(pack) <= most


def test_large_packs_have_no_crew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew.os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    little, large = [small()], [small(memories=512, items=1500)]
    packs = {1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 8: 4, 100: 4}  # two packs a process or more, a process a core
    assert {count: crew.suited("cpu", [little] * count) for count in packs} == packs
    assert crew.suited("cuda", [little] * 100) == crew.suited("cpu", []) == 1
    assert crew.suited("cpu", [little] * 100 + [large * 50]) == 1
    assert crew.suited("cuda", [little] * 100) == 1
