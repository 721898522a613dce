from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from engramma.experiment import Experiment
from engramma.store.archive import pack, unpack
from engramma.store.files import Damaged
from engramma.store.records import Record, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "runs")
    store.open()
    for seed in range(3):
        told = Experiment(data="digits", items=50, memories=3, epochs=1, seed=seed).describe()
        scores = {"accuracy": np.full((5, 5), seed / 10)}
        store.write(Record(told, scores, {"epoch": np.arange(3)}, {"seconds": 1.0}, None))
    return store


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    return path


def test_there_and_back(store: Store, tmp_path: Path) -> None:
    file, other = tmp_path / "a.tar.gz", Store(tmp_path / "other")
    assert pack(store, file) == 3
    assert unpack(file, other) == (3, 0)
    assert [r.average for r in other] == [r.average for r in store]
    assert [fault for _, fault in other.verify()] == [None] * 3
    assert unpack(file, other) == (0, 3)
    again = tmp_path / "b.tar.gz"
    pack(other, again)
    assert again.read_bytes() == file.read_bytes()
    assert sorted(p.name for p in other.path.iterdir() if p.name != "claims") == other.names()


def test_an_empty_store_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no records to pack"):
        pack(Store(tmp_path), tmp_path / "a.tar.gz")
    assert not list(tmp_path.iterdir())


def test_a_damaged_record_is_not_packed(store: Store, tmp_path: Path) -> None:
    damaged = store.path / store.names()[1] / "record.json"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.raises(ValueError, match="runs verify"):
        pack(store, tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()


@pytest.mark.parametrize(
    "name", ["../../out", "/out", "0" * 20 + "/../../out", "0" * 20 + "/other", "0" * 19 + "g/record.json"]
)
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_only_files_of_records_come_out(name: str, kind: bytes, tmp_path: Path) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    file = archive(tmp_path / "bad.tar.gz", (member, b"x"))
    with pytest.raises(ValueError, match="not a file of a record"):
        unpack(file, Store(tmp_path / "runs"))
    left = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    assert left == [Path("bad.tar.gz"), Path("runs"), Path("runs/claims")]


def test_a_link_with_the_name_of_a_record_does_not_come_out(tmp_path: Path) -> None:
    member = tarfile.TarInfo("0" * 20 + "/record.json")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(ValueError, match="not a file of a record"):
        unpack(archive(tmp_path / "bad.tar.gz", (member, b"")), Store(tmp_path / "runs"))


def test_altered_records_stay_out(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    pack(store, file)
    with tarfile.open(file) as tar:
        members = [(m, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]
    member, content = next(x for x in members if x[0].name.endswith("record.json"))
    altered = [(m, c.replace(b"digits", b"digitz") if m is member else c) for m, c in members]
    assert content not in [c for _, c in altered]
    other = Store(tmp_path / "other")
    with pytest.raises(Damaged, match="nothing was unpacked"):
        unpack(archive(tmp_path / "b.tar.gz", *altered), other)
    assert not other.names()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_a_torn_archive_is_named(share: float, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    pack(store, file)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    other = Store(tmp_path / "other")
    with pytest.raises((ValueError, Damaged), match=r"a\.tar\.gz"):
        unpack(file, other)
    assert not other.names()
