"""Hostile files: whatever is in a record, a checkpoint, a TOML or a safetensors file, the answer is words.

Ten thousand inputs: valid ones with bytes turned over, cut out, doubled and swapped, valid JSON with values
of other kinds in it, and noise. The checksums are made to fit, or hardly one would be looked into.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engramma.experiment import Experiment, read, read_toml
from engramma.methods import METHODS, Moments
from engramma.runs import pack as packs
from engramma.runs import study
from engramma.runs.estimate import estimate
from engramma.runs.setup import build
from engramma.search import choice as chosen
from engramma.store import checkpoints, files, scores
from engramma.store.files import Damaged
from engramma.store.records import Record, Store

COUNT = {"json": 2500, "tensors": 2500, "folder": 1000, "toml": 2500, "chosen": 1000, "checkpoint": 1000}
WORDS = [
    "antigravity:Popen", "this:s", None, True, -1, 0,
    1e308, 10**400, "", "x" * 3000, "../../outside", "/nowhere/outside", "os:system", "\ud800",
    [], [[]], [None], {}, {"": {}}, {"tensor": "theta"}, {"named": "Popen", "parts": [["true"]]},
    {"named": "Items", "parts": [{"plain": 1}] * 4}, {"float": "nan"}, {"dict": [["a", {"plain": 1}]]},
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_runs(
    monkeypatch: pytest.MonkeyPatch, written: tuple[Store, Record, dict[str, bytes]]
) -> Iterator[None]:
    """No process, no code, no pickle: whoever tries is found out.

    But for numba, which reads what it compiled from pickles of its own: when `written` is made, before.
    """

    def caught(*_: Any, **__: Any) -> None:
        raise AssertionError("something was executed")

    import pickle

    for module, name in [(os, "system"), (subprocess, "Popen"), (pickle, "loads"), (pickle, "load"),
                         (pickle, "Unpickler")]:  # fmt: skip
        monkeypatch.setattr(module, name, caught)
    yield
    assert not {"antigravity", "this"} & set(sys.modules)  # named by hostile descriptions


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Bytes turned over, cut out, doubled, swapped for others, or all of them noise."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        if not out:
            break
        at, kind = chance.randrange(len(out)), chance.randrange(8)
        span = chance.choice([1, 1, 2, 8, 50])
        if kind == 0:
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del out[at : at + span]
        elif kind == 2:
            out[at:at] = out[at : at + span] * chance.choice([1, 2, 300])
        elif kind == 3:
            out[at : at + span] = chance.randbytes(span)
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            out[at:at] = chance.choice(
                [b"\0", b"\xff", b"[", b"{" * 3000, b"[" * 100_000, b'"', b"1e999", b"-"]
            )
        elif kind == 6:
            out[at : at + 8] = struct.pack("<Q", chance.choice([0, 1, 2**31, 2**63, 2**64 - 1]))
        else:
            out = bytearray(chance.randbytes(chance.choice([0, 1, 8, 100])))
    return bytes(out)


def warp(value: Any, chance: random.Random) -> Any:
    """A valid structure with one of its values of another kind, or gone."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        if chance.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: warp(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        at = chance.randrange(len(value))
        return [*value[:at], warp(value[at], chance), *value[at + 1 :]]
    return chance.choice(WORDS)


def folder(place: Path, content: dict[str, bytes]) -> None:
    """Files, with checksums that fit."""
    place.mkdir(exist_ok=True)
    sums = "".join(f"{hashlib.sha256(d).hexdigest()}  {n}\n" for n, d in content.items() if n != files.SUMS)
    for name, data in {files.SUMS: sums.encode(), **content}.items():
        write(place / name, data)


def write(path: Path, data: bytes) -> None:
    """As a new file: some disks flush one that is written over."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def answers(call: Callable[[], Any], *kinds: type[Exception]) -> bool:
    """Whether it went well; an error must be one of those foreseen, and say something in one line."""
    try:
        call()
    except kinds as error:
        text = str(error)
        assert text.strip()
        assert len(text) < 5000
        return False
    return True


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Record, dict[str, bytes]]:
    store = Store(tmp_path_factory.mktemp("fuzz"))
    run = read({"data": "states", "stream": "states", "size": 6, "items": 2, "memories": 2, "epochs": 2})
    (record,) = study.run([run], store).records
    assert record.folder is not None
    return store, record, {p.name: p.read_bytes() for p in record.folder.iterdir() if p.name != files.SUMS}


def looked_at(store: Store, name: str) -> Callable[[], Any]:
    """Everything that is done with a record, from listing to drawing."""

    def look() -> Any:
        record = store._read(name)
        for table in (*record.scores.values(), *record.curves.values()):
            np.asarray(table).sum()
        return record.average, record.memories(0), scores.value(record)

    return look


@pytest.mark.parametrize("what", ["json", "tensors", "folder"])
def test_hostile_records(what: str, written: tuple[Store, Record, dict[str, bytes]], tmp_path: Path) -> None:
    _, record, valid = written
    store, chance = Store(tmp_path), random.Random(what)
    place = tmp_path / record.name
    sums = "".join(f"{hashlib.sha256(d).hexdigest()}  {n}\n" for n, d in valid.items()).encode()
    head, sound = json.loads(valid["record.json"]), 0
    for number in range(COUNT[what]):
        content = dict(valid)
        if what == "json":
            odd = number % 2
            content["record.json"] = (
                mutate(valid["record.json"], chance) if odd else json.dumps(warp(head, chance)).encode()
            )
        elif what == "tensors":
            content["arrays.safetensors"] = mutate(valid["arrays.safetensors"], chance)
        else:
            content[files.SUMS] = mutate(sums, chance)
        folder(place, content)
        if answers(looked_at(store, record.name), Damaged):
            sound += 1
            answers(lambda: store._read(record.name).experiment, ValueError)
        if what == "json" and not odd:  # under the name that it says it has, too
            told = json.loads(content["record.json"])
            forged = Record(told.get("description") if isinstance(told, dict) else told, {}, {})
            if answers(lambda f=forged: f.name, ValueError, TypeError) and forged.name != record.name:
                folder(tmp_path / forged.name, content)
                answers(looked_at(store, forged.name), Damaged)
                answers(lambda f=forged.name: store._read(f).experiment, Damaged, ValueError)
                shutil.rmtree(tmp_path / forged.name)
    assert sound < COUNT[what] / 2


def test_a_record_does_not_have_anything_imported(
    written: tuple[Store, Record, dict[str, bytes]], tmp_path: Path
) -> None:
    """A method of one's own is a module's name: whoever can write a record could have any module run."""
    _, record, _ = written
    (tmp_path / "trap.py").write_text("raise RuntimeError('imported')")
    store = Store(tmp_path / "store")
    told = {**record.description, "method": "trap:Method", "settings": {}}
    forged = Record(told, record.scores, record.curves, record.facts)
    store.write(forged)
    sys.path.insert(0, str(tmp_path))
    try:
        (found,) = list(store)
        assert estimate([record.experiment], store).missing == 1
        with pytest.raises(ValueError, match="name it"):
            _ = found.experiment
        with pytest.raises(RuntimeError, match="imported"):  # the trap is one
            read(told)
    finally:
        sys.path.remove(str(tmp_path))


def test_hostile_toml(tmp_path: Path) -> None:
    chance, path = random.Random("toml"), tmp_path / "run.toml"
    valid = b"""
data = "digits"
tasks = 3
items = 1000
threshold = "none"
method = "ewc"
strength = 1.5e3
settings = { fisher = "batch" }
epochs = 10
seeds = [0, 1]
"""
    for number in range(COUNT["toml"]):
        write(path, mutate(valid, chance))
        told = None

        def look() -> None:
            nonlocal told
            told = read_toml(path)

        if answers(look, ValueError) and told is not None:
            given = {k: v for k, v in told.items() if k != "seeds"}
            if number % 3 == 0 and given:
                given[chance.choice(list(given))] = chance.choice(WORDS)
            answers(lambda given=given: read(given), ValueError)


def test_hostile_choices(tmp_path: Path) -> None:
    chance, path = random.Random("chosen"), tmp_path / "chosen.toml"
    valid = b"""
[[chosen]]
method = "ewc"
vertex = 2.0
kind = "lambda"
strength = 100.0
settings = { fisher = "item" }
experiment = { data = "digits", epochs = 10 }
search = { trials = 20, flat = [1.0, 2.0] }
"""
    path.write_bytes(valid)
    assert chosen.load(path)
    for _ in range(COUNT["chosen"]):
        write(path, mutate(valid, chance))

        def look() -> None:
            for told in chosen.select(chosen.load(path), {}, path):
                read(told)

        answers(look, ValueError)


class Stop(Exception): ...


@pytest.fixture(scope="module", params=METHODS)
def broken_off(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Store, list[Experiment], Path]:
    """A pack that was stopped in its third task, and the checkpoint that it left."""
    sizes: dict[str, Any] = {"data": "digits", "items": 20, "memories": 3, "epochs": 2, "tasks": 3}
    sizes |= {"strength": 1.0} if issubclass(METHODS[request.param], Moments) else {}
    pack = [read(sizes, {"method": request.param, "seed": seed}) for seed in (0, 1)]

    def stop(e: Any, replicas: int, task: int, epoch: int) -> None:
        if task == 2:
            raise Stop

    store = Store(tmp_path_factory.mktemp(request.param))
    with pytest.raises(Stop):
        packs.run_pack(pack, store, tick=stop)
    return store, pack, store.checkpoints / packs.pack_name(pack) / "2"


def reshaped(tensor: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """The same or other numbers in another shape, or of another type."""
    kind = chance.randrange(6)
    if kind == 0:
        return tensor[:0]
    if kind == 1:
        return tensor[None]
    if kind == 2:
        return tensor.flatten()
    if kind == 3:
        return torch.cat([tensor, tensor], chance.randrange(tensor.ndim))
    if kind == 4:
        return tensor.to(chance.choice([torch.int32, torch.float16, torch.bool, torch.complex64]))
    return torch.zeros((), dtype=tensor.dtype)


def warped(valid: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """The files of a checkpoint, of which one is not what it was."""
    content, kind = dict(valid), chance.randrange(4)
    head, tensors = json.loads(valid["checkpoint.json"]), files.unpack_tensors(valid["tensors.safetensors"])
    if kind == 0:
        name = chance.choice(sorted(valid))
        content[name] = mutate(valid[name], chance)
    elif kind == 1:
        content["checkpoint.json"] = json.dumps(warp(head, chance)).encode()
    else:
        name = chance.choice(sorted(tensors))
        full = {name: tensors[name].to(getattr(torch, kind)) for name, kind in head["types"]}
        if kind == 2:
            full[name] = reshaped(full[name], chance)
        else:
            full[name] = full[chance.choice(sorted(tensors))]
        types = [[n, str(full[n].dtype).removeprefix("torch.")] for n, _ in head["types"]]
        content["checkpoint.json"] = json.dumps({**head, "types": types}).encode()
        content["tensors.safetensors"] = files.pack_tensors(full)
    return content


def test_hostile_checkpoints(
    broken_off: tuple[Store, list[Experiment], Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that is not sound is set aside in one line, and the pack begins anew; nothing it names is made."""
    store, pack, place = broken_off
    chance, built = random.Random(pack[0].method), build(pack)
    valid = {p.name: p.read_bytes() for p in place.iterdir() if p.name != files.SUMS}
    sound = tries = COUNT["checkpoint"] // len(METHODS)
    for _ in range(tries):
        place.mkdir(parents=True, exist_ok=True)
        folder(place, warped(valid, chance))
        checkpoints.packs(store)
        checkpoints.finished(store)
        if packs.resumable(store, pack, built) is None:
            sound -= 1
            assert not place.exists()
        else:  # whatever its numbers are: nothing goes wrong with them
            for record in packs.run_pack(pack, store):
                store.remove(record.name)
    assert sound < tries / 2
    assert "is damaged" in caplog.text
    assert "is not of its pack" in caplog.text
    assert not any("\n" in message for message in caplog.messages)


def test_ten_thousand_inputs_are_tried() -> None:
    assert sum(COUNT.values()) >= 10_000


@pytest.mark.parametrize(
    "name",
    ["..", "../outside", "a" * 19 + "/", "{outside}", "", "a" * 21, "A" * 20, "g" * 20, "a/../../b",
     "\0" * 20, "a" * 20 + "\n", "٠" * 20],
)  # fmt: skip
def test_no_name_reaches_out_of_the_store(name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    name = name.format(outside=outside / "kept")
    store = Store(tmp_path / "store").open()
    before = sorted(tmp_path.rglob("*"))
    for reach in (store.get, store.remove):
        with pytest.raises(ValueError, match="hexadecimal"):
            reach(name)
    with pytest.raises(ValueError, match="fork"):
        read({"data": "digits", "fork": f"{name}@1"})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_record_cannot_be_written_elsewhere_than_its_hash_says(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    tables, up = np.zeros((2, 2)), str(tmp_path / "up")
    told = {"data": "states", "stream": "states", "size": 6, "items": 2, "memories": 2, "epochs": 2}
    odd = Record({"method": "../../outside", "seed": up}, {"../../up": tables}, {up: tables})
    sound = Record(
        read(told).describe(), {"../../up": tables, up: tables}, {"epoch": np.arange(2), "../../up": tables}
    )
    for record in (odd, sound):
        assert store.write(record).parent == store.path
        assert [p.name for p in tmp_path.iterdir()] == ["store"]
    assert list(store._read(sound.name).scores) == ["../../up", up]
    assert [name for name, fault in store.verify() if fault] == [odd.name]
