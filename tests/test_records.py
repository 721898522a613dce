"""Records: whole or not there, checked by their sums, shared by processes, never outside their store."""

from __future__ import annotations

import contextlib
import errno
import json
import os
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

from engramma import checkpoints, files
from engramma.checkpoints import flatten, known, unflatten
from engramma.claims import Claims
from engramma.experiment import Experiment, read
from engramma.methods import METHODS, Anchored, Buffer
from engramma.records import Record, Store
from engramma.study import run

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


def test_checksums_may_not_point_outside(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    place = store.write(record())
    (tmp_path / "secret").write_text("x")
    with open(place / "SHA256SUMS", "a") as file:
        file.write(f"{'0' * 64}  ../../secret\n")
    ((_, fault),) = list(store.verify())
    assert fault is not None
    assert "not a plain name" in fault


@given(st.text(max_size=30))
def test_no_name_leaves_the_store(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "outside").mkdir()
        store = Store(Path(folder) / "store")
        for call in (store.get, store.remove):
            with contextlib.suppress(ValueError):
                call(text)
        assert [p.name for p in Path(folder).iterdir()] == ["outside"]


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
    with pytest.raises(OSError, match="must be a folder"):
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
        "import sys, time; from pathlib import Path; from engramma.claims import Claims\n"
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


# The state of a method as JSON and tensors


def test_states_come_back_as_they_were(tmp_path: Path) -> None:
    zero = torch.zeros(2, 3)
    view = torch.arange(12.0).reshape(2, 6)[:, ::2]
    items = torch.tensor([[1.0, -1.0]])
    state = {
        "anchored": Anchored(zero, zero, None, view, torch.tensor([1, 2]), None),
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
    assert checkpoints.latest(store, "b" * 20, METHODS["vanilla"](), "cpu") is None
    assert "set aside" in caplog.text


def test_no_pickle_is_read_or_written(tmp_path: Path) -> None:
    run([experiment()], Store(tmp_path), keep_checkpoints=True, keep_memories=True)
    kinds = {path.suffix or path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds <= {".json", ".safetensors", "SHA256SUMS", "guard"}
    source = "".join(p.read_text() for p in Path(files.__file__).parent.glob("*.py"))
    assert "import pickle" not in source
    assert "torch.load" not in source
