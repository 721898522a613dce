"""Records: whole or not there, checked by their sums, shared by processes, never outside their store."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engramma.experiment import Experiment, read
from engramma.methods import METHODS, Anchored, Buffer
from engramma.methods.state import flatten, known, unflatten
from engramma.runs.options import Options
from engramma.runs.study import run
from engramma.store import checkpoints, files
from engramma.store.claims import Claims, clear, part
from engramma.store.records import Record, Store

SMALL: dict[str, Any] = {"data": "digits", "tasks": 2, "items": 40, "memories": 4, "epochs": 2}


def experiment(seed: int = 0) -> Experiment:
    return read(SMALL, {"seed": seed})


def record(seed: int = 0, **changes: Any) -> Record:
    scores = {"accuracy": np.array([[0.5, np.nan], [0.25, 0.75]]), "macro_f1": np.full((2, 2), 0.5)}
    curves = {"epoch": np.arange(3), "accuracy": np.zeros((3, 2))}
    return replace(Record(experiment(seed).describe(), scores, curves, {"seconds": 1.5}), **changes)


def test_what_is_written_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "store")
    assert store.find(experiment()) is None
    assert len(store) == 0
    kept = (np.ones((4, 5)), np.zeros((4, 5)))
    store.write(record(kept=kept, diverged={"task": 1, "epoch": 2}, facts={"odd": float("nan")}))
    found = store.find(experiment())
    assert found is not None
    assert found.description == record().description
    assert found.experiment == experiment()
    assert list(found.scores) == ["accuracy", "macro_f1"]
    assert np.array_equal(found.scores["accuracy"], record().scores["accuracy"], equal_nan=True)
    assert found.average == 0.5
    assert found.diverged == {"task": 1, "epoch": 2}
    assert found.facts == {"odd": None}
    assert np.array_equal(found.memories(1), kept[1])  # type: ignore[arg-type]
    assert found.memories(7) is None
    assert found.folder == store.path / experiment().name
    assert [r.name for r in store] == [experiment().name]
    assert store.get(experiment().name[:5]).name == experiment().name


def test_the_first_of_two_equal_runs_stays(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    store.write(record(facts={"by": "first"}))
    other.write(record(facts={"by": "second"}))
    assert store.find(experiment()).facts == {"by": "first"}  # type: ignore[union-attr]
    assert not list(tmp_path.glob(".tmp*"))


@pytest.mark.parametrize("file", ["record.json", "arrays.safetensors", "SHA256SUMS"])
@pytest.mark.parametrize("harm", ["truncate", "alter", "remove"])
def test_a_damaged_record_is_named_set_aside_and_run_again(
    file: str, harm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    good = run([experiment(0), experiment(1)], store).records
    path = tmp_path / experiment().name / file
    data = path.read_bytes()
    if harm == "truncate":
        path.write_bytes(data[: len(data) // 2])
    elif harm == "alter":
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    else:
        path.unlink()
    assert [name for name, fault in store.verify() if fault] == [experiment().name]
    assert [r.name for r in store] == [experiment(1).name]
    outcome = run([experiment(0), experiment(1)], store)
    assert outcome.ran == 1
    assert experiment().name in caplog.text
    assert "set aside" in caplog.text
    assert len(list((tmp_path / "set-aside").iterdir())) == 1
    assert np.array_equal(outcome.records[0].scores["accuracy"], good[0].scores["accuracy"])
    assert dict(store.verify()) == {experiment(0).name: None, experiment(1).name: None}


def test_a_record_under_another_name_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record(0))
    os.rename(tmp_path / experiment(0).name, tmp_path / experiment(1).name)
    assert "description" in str(dict(store.verify())[experiment(1).name])
    assert store.find(experiment(1)) is None
    assert store.names() == []


@pytest.mark.parametrize(
    "odd",
    [
        {"diverged": {}},
        {"diverged": {"task": 0, "epoch": "1"}},
        {"scores": {"accuracy": np.zeros((2, 2), dtype=np.int64)}},
        {"curves": {"accuracy": np.zeros((3, 2), dtype=np.int64)}},
        {"curves": {"accuracy": np.zeros((3, 1))}},
        {"curves": {"accuracy": np.zeros((0, 2))}},
        {"curves": {"epoch": np.arange(2), "accuracy": np.zeros((3, 2))}},
        {"curves": {"epoch": np.zeros(3), "accuracy": np.zeros((3, 2))}},
    ],
)
def test_what_everybody_takes_a_record_to_hold_is_in_it(odd: dict[str, Any], tmp_path: Path) -> None:
    """The checksums fit: the file was written so."""
    store = Store(tmp_path)
    store.write(record(**odd))
    assert "is not a record" in str(dict(store.verify())[experiment().name])
    assert list(store) == []


def test_memories_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = (np.zeros((4, 3)), np.zeros((4, 3)))
    place = store.write(record(kept=kept))
    assert np.array_equal(store.get(record().name).memories(1), kept[1])  # type: ignore[arg-type]
    halves = files.pack_tensors({"after-1": torch.zeros(4, 3, dtype=torch.bfloat16)})
    for odd in (b"no tensors", halves):
        (place / "memories.safetensors").write_bytes(odd)
        content = {p.name: p.read_bytes() for p in place.iterdir() if p.name != files.SUMS}
        files.write_folder(place, content, "test", replace=True)
        with pytest.raises(ValueError, match=r"is not a record|memories"):
            store.get(record().name)


def test_a_folder_is_written_though_another_process_removes_the_one_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, true, struck = tmp_path / "pack" / "2", os.rename, []

    def rename(old: Path, new: Path) -> None:
        if not struck:
            struck.append(new)
            shutil.rmtree(tmp_path / "pack")
        true(old, new)

    monkeypatch.setattr(os, "rename", rename)
    assert files.write_folder(place, {"record.json": b"1"}, "test")
    assert (place / "record.json").read_bytes() == b"1"
    monkeypatch.setattr(os, "rename", lambda old, new: shutil.rmtree(tmp_path / "pack") or true(old, new))
    with pytest.raises(OSError, match=r"cannot write .*3: No such file or directory; nothing was harmed"):
        files.write_folder(tmp_path / "pack" / "3", {"record.json": b"1"}, "test")


def test_checksums_may_not_point_outside(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    place = store.write(record())
    (tmp_path / "secret").write_text("x")
    with open(place / "SHA256SUMS", "a") as file:
        file.write(f"{'0' * 64}  ../../secret\n")
    ((_, fault),) = list(store.verify())
    assert fault is not None
    assert "not a plain name" in fault


@given(
    st.text(st.characters(exclude_characters="/"), max_size=10),
    st.sampled_from(["{}", "{}../outside", "../outside{}", "{}/../../outside"]),
)
def test_no_name_leaves_the_store(text: str, form: str) -> None:
    """No name here is a place outside the folder, whatever becomes of it."""
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder) / "outside"
        outside.mkdir()
        (Path(folder) / "store").mkdir()
        store = Store(Path(folder) / "store")
        for name in (form.format(text), str(outside / text)):
            for call in (store.get, store.remove):
                with pytest.raises(ValueError, match=r"hexadecimal|no run starts"):
                    call(name)
        assert sorted(p.name for p in Path(folder).iterdir()) == ["outside", "store"]


def test_a_name_that_is_a_path_is_not_removed(tmp_path: Path) -> None:
    """Each of these is there and would be moved away, were it not for the look at the name."""
    outside, store = tmp_path / "outside", Store(tmp_path / "store")
    (store.path / "notes").mkdir(parents=True)
    outside.mkdir()
    for name in ("../outside", str(outside), "notes", "notes/../../outside", ".", ""):
        with pytest.raises(ValueError, match="20 hexadecimal digits"):
            store.remove(name)
    assert outside.is_dir()
    assert (store.path / "notes").is_dir()


def test_a_store_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file: not an archive of records"):
        Store(tmp_path / "file").names()
    with pytest.raises(OSError, match="must be a folder"):
        Store(tmp_path / "file").open()
    assert Store(tmp_path / "nothing").names() == []


ODD: dict[str, dict[str, Any]] = {
    "no method": {"method": "sleep"},
    "a method of another kind": {"method": None},
    "strength as a text": {"method": "ewc", "strength": "strong"},
    "strength of a method without": {"strength": 1.0},
    "vertex as a text": {"vertex": "two"},
    "vertex a list": {"vertex": [2.0]},
    "settings a list": {"settings": ["fisher"]},
    "data a number": {"data": 7},
    "an unknown setting": {"memmories": 3},
    "seed below 0": {"seed": -1},
    "one's own, strength a text": {"method": "mine:Method", "strength": "strong"},
    "one's own, settings a list": {"method": "mine:Method", "settings": []},
    "one's own, vertex a text": {"method": "mine:Method", "vertex": "two"},
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_description_costs_its_record(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    store.write(record(0))
    name = store.write(record(description={**record(1).description, **ODD[what]})).name
    assert [r.name for r in store] == [experiment(0).name]
    (line,) = caplog.messages
    assert name in line
    assert line.isprintable()
    assert [n for n, fault in store.verify() if fault] == [name]


def test_a_description_says_every_setting(tmp_path: Path) -> None:
    """One that is left out would be filled in by one reader and missed by another."""
    store, told = Store(tmp_path), record().description
    store.write(record(description={k: v for k, v in told.items() if k != "items"}))
    ((_, fault),) = store.verify()
    assert "every setting" in str(fault)


def test_a_method_of_one_s_own_is_sound_unseen(tmp_path: Path) -> None:
    store, told = Store(tmp_path), record().description
    store.write(record(description={**told, "method": "mine:Method", "settings": {"x": [1]}, "strength": 2}))
    assert [fault for _, fault in store.verify()] == [None]


TABLE, LINE = np.zeros((2, 2)), np.zeros((3, 2))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scores": {}}, "one at least"),
        ({"scores": {"accuracy": np.zeros((3, 3))}}, "2 by 2"),
        ({"scores": {"accuracy": np.array([[True, False]] * 2)}}, "floating-point numbers"),
        ({"scores": {"accuracy": np.eye(2, dtype=np.uint8)}}, "floating-point numbers"),
        ({"curves": {"epoch": np.arange(3)}}, "the first one at least"),
        ({"curves": {"accuracy": LINE}}, "of the epochs"),
        ({"curves": {"epoch": np.arange(3), "accuracy": LINE, "more": LINE}}, "of the epochs and of scores"),
        ({"curves": {"epoch": np.arange(4), "accuracy": LINE}}, "tables over the epochs"),
        ({"curves": {"epoch": np.arange(0), "accuracy": LINE[:0]}}, "tables over the epochs"),
        ({"curves": {"epoch": np.arange(3), "accuracy": LINE.T}}, "tables over the epochs"),
        ({"facts": ["seconds"]}, "facts must be a table"),
        ({"diverged": {}}, "diverged must be"),
        ({"diverged": {"task": 2, "epoch": 1}}, "diverged must be"),
        ({"diverged": {"task": "1", "epoch": 1}}, "diverged must be"),
        ({"kept": (np.zeros((4, 5)), np.zeros((4, 6)))}, "memories must be"),
        ({"kept": (np.zeros((3, 5)),) * 2}, "memories must be"),
        ({"kept": (np.zeros(4),) * 2}, "memories must be"),
        ({"kept": (np.zeros((4, 5), dtype=int),) * 2}, "memories must be"),
        ({"kept": (np.zeros((4, 5)),) * 3}, "memories must be those after each of the 2 tasks"),
    ],
)
def test_arrays_are_of_the_shapes_that_the_description_says(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    store.write(record(**changes))
    assert not list(store)
    ((_, fault),) = store.verify()
    assert says in str(fault)


def sums(place: Path) -> None:
    """Checksums that fit, of every file."""
    parts = sorted(p for p in place.iterdir() if p.name != files.SUMS)
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in parts]
    (place / files.SUMS).write_text("".join(lines))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["memories.safetensors", "notes.txt", ".hidden"])
def test_a_record_holds_nothing_but_its_files(name: str, listed: bool, tmp_path: Path) -> None:
    store = Store(tmp_path)
    place = store.write(record())
    (place / name).write_bytes(b"junk")
    if listed:
        sums(place)
    assert not list(store)
    ((_, fault),) = store.verify()
    assert fault is not None
    assert name in fault


@pytest.mark.parametrize("name", ["arrays.safetensors", "memories.safetensors"])
def test_a_long_head_of_tensors_is_not_read(name: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    place = store.write(record(kept=(np.zeros((4, 5)),) * 2))
    with (place / name).open("wb") as file:
        file.write((files.HEAD + 1).to_bytes(8, "little") + b'{"a":{"dtype":"F64"')
        file.truncate(files.HEAD + 9)
    sums(place)
    ((_, fault),) = store.verify()
    assert "its head is none, or longer" in str(fault)


def test_a_long_record_json_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    place = store.write(record())
    with (place / "record.json").open("ab") as file:
        file.truncate(files.HEAD + 1)
    sums(place)
    ((_, fault),) = store.verify()
    assert "larger than" in str(fault)
    with pytest.raises(ValueError, match="must be at most"):  # nor written
        store.write(record(1, facts={"report": "x" * files.HEAD}))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    place = store.write(record())
    (place / "record.json").unlink()
    os.mkfifo(place / "record.json")
    ((_, fault),) = store.verify()
    assert "cannot be read" in str(fault)


def test_a_finished_study_is_shown_from_a_store_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "runs")
    runs = [experiment(seed) for seed in range(2)]
    ours = run(runs, store).records

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for module, name in [(Path, "mkdir"), (Path, "write_text"), (os, "rename")]:
        monkeypatch.setattr(module, name, refuse)
    before = sorted(store.path.rglob("*"))
    outcome = run(runs, store)
    assert (outcome.ran, outcome.found) == (0, 2)
    assert [r.average for r in outcome.records] == [r.average for r in ours]
    assert sorted(store.path.rglob("*")) == before
    with pytest.raises(OSError, match="can be written: Read-only"):
        run([*runs, experiment(2)], store)
    (store.path / runs[0].name / "notes").touch()
    assert store.find(runs[0]) is None
    assert "cannot be set aside (Read-only file system)" in caplog.text


def test_only_plain_folders_are_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record())
    (tmp_path / "notes").mkdir()
    (tmp_path / ("f" * 20)).write_text("not a folder")
    assert store.names() == [experiment().name]


def full_disk_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(count))
    real = os.fsync

    def fsync(handle: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("written", [0, 1, 3, 4, 6])
def test_a_full_disk_harms_no_record(written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    run([experiment(5)], store)
    full_disk_after(written, monkeypatch)
    with pytest.raises(OSError, match=r"No space left.*nothing was harmed") as caught:
        run([experiment(s) for s in range(3)], store)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    found = dict(store.verify())
    assert experiment(5).name in found
    assert set(found.values()) == {None}
    assert not list(tmp_path.rglob(".tmp*"))
    run([experiment(s) for s in range(3)], store)
    assert len(store) == 4


@pytest.mark.skipif(os.name == "nt", reason="a folder cannot be synced there")
def test_files_are_on_the_disk_before_they_have_their_name_and_the_name_before_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename, seen = os.fsync, os.rename, []
    monkeypatch.setattr(os, "fsync", lambda handle: (seen.append(os.fstat(handle).st_ino), fsync(handle)))
    monkeypatch.setattr(os, "rename", lambda old, new: (seen.append("renamed"), rename(old, new)))
    place = tmp_path / "place"
    assert files.write_folder(place, {"a": b"1", "b": b"2"}, "me")
    named = seen.index("renamed")
    assert {p.stat().st_ino for p in (place, *place.iterdir())} <= set(seen[:named])
    assert tmp_path.stat().st_ino in seen[named:]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        store = Store(disk / "runs")
        run([experiment(9)], store)
        filler = disk / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
        with pytest.raises(OSError, match="No space left"):
            run([experiment(s) for s in range(3)], store)
        assert [fault for _, fault in store.verify()] == [None]
        filler.unlink()
        assert run([experiment(s) for s in range(3)], store).ran == 3
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="must be a folder that can be written"):
        run([experiment()], Store(tmp_path / "file" / "runs"))
    with pytest.raises(ValueError, match="not an archive of records"):
        run([experiment()], Store(tmp_path / "file"))


def test_bad_data_leave_no_store_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="items must be at most 1797"):
        run([experiment().but(items=5000)], Store(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


# Claims


def test_a_claim_is_one_process_s(tmp_path: Path) -> None:
    with Claims(tmp_path) as one, Claims(tmp_path) as two:
        assert one.take(["a", "b"]) == ["a", "b"]
        assert two.take(["a", "b", "c"]) == ["c"]
        assert one.take(["a"]) == ["a"]  # still its own
        one.release(["a"])
        assert two.take(["a", "b"]) == ["a"]
        two.release(["b"])  # not its own: nothing happens
        assert two.take(["b"]) == []
    with Claims(tmp_path) as three:
        assert three.take(["a", "b", "c"]) == ["a", "b", "c"]


def test_a_killed_owner_loses_its_claims_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from engramma.store.claims import Claims\n"
        "claims = Claims(Path(sys.argv[1])).__enter__(); claims.take(['a']); print('taken', flush=True)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    with Claims(tmp_path) as mine:
        assert mine.take(["a"]) == []
        process.kill()
        process.communicate()
        assert mine.take(["a"]) == ["a"]


def test_an_owner_elsewhere_lives_while_it_gives_signs(tmp_path: Path) -> None:
    with Claims(tmp_path, dead=60) as mine:
        far = {"machine": "another host", "pid": 1, "started": "1", "since": 0}
        life = tmp_path / "far.owner"
        life.write_text(json.dumps(far))
        (tmp_path / "a.lock").write_text("far")
        assert mine.take(["a"]) == []
        past = time.time() - 100
        os.utime(life, (past, past))
        assert mine.take(["a"]) == ["a"]


def test_sweeping_spares_the_living(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open()
    with Claims(store.claims) as mine, Claims(store.claims) as other:
        (tmp_path / f".tmp-{other.owner}-0").mkdir()
        dead = tmp_path / "claims" / "99999999-dead-0.owner"
        dead.write_text(json.dumps({**mine.me, "pid": 2**22 + 1}))
        (tmp_path / ".tmp-99999999-dead-0-3").mkdir()
        assert mine.sweep(tmp_path) == 1
        assert [p.name for p in tmp_path.glob(".tmp*")] == [f".tmp-{other.owner}-0"]
        assert not dead.exists()


def test_sweeping_takes_the_claims_of_the_dead_on_what_is_done(tmp_path: Path) -> None:
    """Nobody asks for the claim on a finished run again: it would lie there for ever."""
    with Claims(tmp_path) as mine, Claims(tmp_path) as other:
        dead = {**mine.me, "pid": 2**22 + 1}
        (tmp_path / "dead.owner").write_text(json.dumps(dead))
        (tmp_path / "a.lock").write_text("dead")
        (tmp_path / "b.lock").write_text("nobody")
        (tmp_path / "c.lock").write_text("")
        os.utime(tmp_path / "c.lock", (0, 0))
        other.take(["d"])
        (tmp_path / "e.lock").write_text("")  # just being taken
        mine.sweep()
        assert sorted(p.stem for p in tmp_path.glob("*.lock")) == ["d", "e"]
        assert len(list(tmp_path.glob("*.owner"))) == 2


def test_a_claim_dated_in_the_future_is_not_waited_for(tmp_path: Path) -> None:
    with Claims(tmp_path) as mine:
        ahead = time.time() + 1000
        (tmp_path / "a.lock").write_text("")
        os.utime(tmp_path / "a.lock", (ahead, ahead))
        far = {"machine": "another host", "pid": 1, "started": "1", "since": 0}
        (tmp_path / "far.owner").write_text(json.dumps(far))
        os.utime(tmp_path / "far.owner", (ahead, ahead))
        (tmp_path / "b.lock").write_text("far")
        (tmp_path / "c.lock").write_bytes(b"\xff\0")  # not a name
        assert mine.take(["a", "b", "c"]) == ["a", "b", "c"]


def test_what_others_have_in_hand_is_theirs_for_a_day(tmp_path: Path) -> None:
    """Of another machine's processes nothing can be asked but when they last wrote."""
    mine = part(tmp_path)
    there = tmp_path / mine.name.replace(mine.name[6:18], "0" * 12)
    for path in (mine, there):
        path.touch()
    assert clear(tmp_path) == 0
    old = time.time() - 2 * 86400
    for path in (mine, there):
        os.utime(path, (old, old))
    assert clear(tmp_path) == 1
    assert mine.exists()


# The state of a method as JSON and tensors


def test_states_come_back_as_they_were(tmp_path: Path) -> None:
    zero = torch.zeros(2, 3)
    view = torch.arange(12.0).reshape(2, 6)[:, ::2]
    items = torch.tensor([[1.0, -1.0]])
    state = {
        "anchored": Anchored(zero, zero, None, view, torch.tensor([1, 2])),
        "buffer": Buffer(None, torch.zeros(0, dtype=torch.long), items.expand(3, 2)),
        "plain": [1, 2.5, "text", True, None, (1, zero)],
    }
    store = Store(tmp_path)
    method = METHODS["si"]()
    point = checkpoints.Checkpoint(
        ("a" * 20,), 1, zero, state["anchored"], {"marks": torch.tensor([0])}, {"x": 1}
    )
    checkpoints.save(store, "b" * 20, point)
    back = checkpoints.load(store, "b" * 20, 1, method, "cpu")
    assert back is not None
    assert isinstance(back.state, Anchored)
    assert torch.equal(back.state.origin, view)  # type: ignore[arg-type]
    assert back.state.steps.dtype == torch.int64  # type: ignore[union-attr]
    assert back.state.path is None
    tensors: dict[str, torch.Tensor] = {}
    tree = json.loads(json.dumps(flatten(state, "s", tensors)))
    classes = {**known(method), **known(METHODS["rehearsal"]())}
    again = unflatten(tree, tensors, classes)
    assert isinstance(again["buffer"], Buffer)
    assert again["plain"][:5] == state["plain"][:5]
    assert torch.equal(again["plain"][5][1], zero)


def test_a_checkpoint_comes_back_to_the_bit_and_in_its_order(tmp_path: Path) -> None:
    """The first score is what averages are taken of; a method may go through its state in order too."""
    order = ["scores/b", "scores/a", "curves/b", "curves/a", "marks", "broke"]
    measured = {name: torch.tensor([float(k)]) for k, name in enumerate(order)}
    signed = torch.tensor([[[1.0, -0.0, 0.0]]])
    state = {"z": signed, "a": float("inf"), "m": float("nan"), "b": {"y": 1, "x": 0.5}}
    store = Store(tmp_path)
    checkpoints.save(store, "b" * 20, checkpoints.Checkpoint(("a" * 20,), 1, signed, state, measured, {}))
    back = checkpoints.load(store, "b" * 20, 1, METHODS["vanilla"](), "cpu")
    assert back is not None
    assert list(back.measured) == order
    assert list(back.state) == list(state)
    assert list(back.state["b"]) == ["y", "x"]
    assert back.state["a"] == float("inf")
    assert np.isnan(back.state["m"])
    for tensor in (back.theta, back.state["z"]):
        assert tensor is not None
        assert torch.equal(tensor.signbit(), signed.signbit())


def test_a_checkpoint_cannot_name_any_class() -> None:
    tree = {"named": "Popen", "parts": [{"plain": "true"}]}
    with pytest.raises(KeyError):
        unflatten(tree, {}, known(METHODS["ewc"]()))
    with pytest.raises(TypeError, match="is a set"):
        flatten({"odd": {1, 2}}, "state", {})


def test_a_damaged_checkpoint_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path)
    point = checkpoints.Checkpoint(("a" * 20,), 1, torch.zeros(1, 2, 3), None, {}, {})
    checkpoints.save(store, "b" * 20, point)
    (store.checkpoints / ("b" * 20) / "1" / "tensors.safetensors").write_bytes(b"nothing")
    assert checkpoints.load(store, "b" * 20, 1, METHODS["vanilla"](), "cpu") is None
    assert checkpoints.stages(store, "b" * 20) == []
    assert "set aside" in caplog.text


def test_no_pickle_is_read_or_written(tmp_path: Path) -> None:
    run([experiment()], Store(tmp_path), Options(keep_checkpoints=True, keep_memories=True))
    kinds = {path.suffix or path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds <= {".json", ".safetensors", "SHA256SUMS", "guard"}
    source = "".join(p.read_text() for p in Path(files.__file__).parent.glob("*.py"))
    assert "import pickle" not in source
    assert "torch.load" not in source
