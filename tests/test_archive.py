from __future__ import annotations

import gzip
import hashlib
import io
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from engramma.experiment import Experiment
from engramma.runs.options import Options
from engramma.runs.study import run
from engramma.store.archive import pack, unpack
from engramma.store.claims import part
from engramma.store.files import Damaged
from engramma.store.records import Record, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "runs")
    store.open()
    for seed in range(3):
        told = Experiment(data="digits", items=50, memories=3, epochs=1, seed=seed).describe()
        scores = {"accuracy": np.full((5, 5), seed / 10)}
        curves = {"epoch": np.arange(3), "accuracy": np.zeros((3, 5))}
        store.write(Record(told, scores, curves, {"seconds": 1.0}, None))
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
    member.type, member.linkname = kind, str(tmp_path / "elsewhere")
    file = archive(tmp_path / "bad.tar.gz", (member, b"x"))
    with pytest.raises(ValueError, match="not a file of a record"):
        unpack(file, Store(tmp_path / "runs"))
    left = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    assert left == [Path("bad.tar.gz"), Path("runs"), Path("runs/claims")]


def test_a_link_with_the_name_of_a_record_does_not_come_out(tmp_path: Path) -> None:
    member = tarfile.TarInfo("0" * 20 + "/record.json")
    member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path / "elsewhere")
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


def members(file: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(file) as tar:
        return [(m, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]


@pytest.mark.parametrize("listed", [False, True])
def test_junk_beside_a_record_stays_out(listed: bool, store: Store, tmp_path: Path) -> None:
    """Whether its checksum is there or not: neither is a store with it packed, nor an archive unpacked."""
    file, junk, name = tmp_path / "a.tar.gz", b"junk", store.names()[0]
    pack(store, file)
    parts = members(file)
    if listed:
        line = f"{hashlib.sha256(junk).hexdigest()}  memories.safetensors\n".encode()
        parts = [(m, c + line if m.name == f"{name}/SHA256SUMS" else c) for m, c in parts]
    parts.append((tarfile.TarInfo(f"{name}/memories.safetensors"), junk))
    other = Store(tmp_path / "other")
    with pytest.raises(Damaged, match=r"memories\.safetensors.*nothing was unpacked"):
        unpack(archive(tmp_path / "b.tar.gz", *parts), other)
    assert not other.names()
    for member, content in parts:
        (store.path / member.name).write_bytes(content)
    with pytest.raises(ValueError, match=r"memories\.safetensors"):
        pack(store, tmp_path / "c.tar.gz")
    assert [name for name, fault in store.verify() if fault] == [name]


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """That of a member whose content need not follow: what it says is enough."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("name", ["record.json", "SHA256SUMS", "arrays.safetensors", "memories.safetensors"])
def test_what_is_too_large_is_refused_by_what_it_says(name: str, tmp_path: Path) -> None:
    file, store = tmp_path / "large.tar.gz", Store(tmp_path / "runs")
    file.write_bytes(gzip.compress(header(f"{'0' * 20}/{name}", 2**31)))
    with pytest.raises(ValueError, match=r"large\.tar\.gz must unpack to at most 1 GiB \(runs"):
        unpack(file, store)
    with pytest.raises(ValueError, match="ends too early" if name.startswith("mem") else "must unpack"):
        unpack(file, store, limit=2**32)


def test_many_small_files_are_too_large_together(tmp_path: Path) -> None:
    """A file of nothing takes some of the disk, too."""
    file, store = tmp_path / "many.tar.gz", Store(tmp_path / "runs")
    content = b"".join(header(f"{number:020x}/record.json", 0) for number in range(300))
    file.write_bytes(gzip.compress(content + bytes(1024)))
    with pytest.raises(ValueError, match="must unpack to at most"):
        unpack(file, store, limit=2**20)
    assert [path.name for path in store.path.iterdir()] == ["claims"]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
def test_nothing_but_plain_files_is_read_of_an_archive(kind: bytes, tmp_path: Path) -> None:
    """A header of four hundred megabytes is one that tarfile would hold in memory."""
    file = tmp_path / "odd.tar.gz"
    file.write_bytes(gzip.compress(header("0" * 20 + "/record.json", 4 * 10**8, kind)))
    with pytest.raises(ValueError, match="not a file of a record"):
        unpack(file, Store(tmp_path / "runs"))


def test_a_file_that_is_there_twice_is_refused(store: Store, tmp_path: Path) -> None:
    pack(store, tmp_path / "a.tar.gz")
    parts = members(tmp_path / "a.tar.gz")
    with pytest.raises(ValueError, match="is there twice"):
        unpack(archive(tmp_path / "b.tar.gz", *parts, parts[0]), Store(tmp_path / "other"))


@pytest.mark.parametrize("extra", [b"x", bytes(2**21)])
def test_an_archive_that_goes_on_after_its_end_is_refused(extra: bytes, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    pack(store, file)
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()) + extra))
    with pytest.raises(ValueError, match=r"a\.tar\.gz: not an archive of records"):
        unpack(file, Store(tmp_path / "other"))


def test_a_bit_turned_over_anywhere_is_said_in_one_line(store: Store, tmp_path: Path) -> None:
    """Or it changes nothing that anybody reads."""
    file, chance, said = tmp_path / "a.tar.gz", random.Random(0), []
    pack(store, file)
    whole = file.read_bytes()
    for number in range(300):
        data = bytearray(whole if number % 3 else gzip.decompress(whole))
        data[number if number < 30 else chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data if number % 3 else gzip.compress(data, 1))
        try:
            assert unpack(file, Store(tmp_path / f"other-{number}")) == (3, 0)
        except (ValueError, Damaged) as error:
            said.append(str(error))
    assert len(said) > 200
    assert all("a.tar.gz" in line and line.isprintable() for line in said)


def test_every_archive_of_ours_unpacks(tmp_path: Path) -> None:
    archives = Path(__file__).parents[1].glob("results/**/*.tar.gz")
    smallest = min(archives, key=lambda path: path.stat().st_size)
    with tarfile.open(smallest) as tar:
        held = sum(member.name.endswith("record.json") for member in tar)
    assert unpack(smallest, Store(tmp_path)) == (held, 0)


def test_what_a_killed_command_left_is_removed_by_the_next(store: Store, tmp_path: Path) -> None:
    """Both beside an archive and in a store; what a living process has in hand stays."""
    code = (
        "import os, sys; from pathlib import Path; from engramma.store.claims import part\n"
        "part(Path(sys.argv[1]), '.gz').write_text(''); part(Path(sys.argv[2])).mkdir()\n"
        "part(Path(sys.argv[3])).touch(); os._exit(9)"
    )
    out, other = tmp_path / "out", Store(tmp_path / "other")
    for folder in (out, other.path, other.claims):
        folder.mkdir()
    subprocess.run([sys.executable, "-c", code, *map(str, (out, other.path, other.claims))], check=False)
    mine = part(out)
    mine.write_text("")
    assert [len(list(folder.glob(".part-*"))) for folder in (out, other.path)] == [2, 1]
    pack(store, out / "a.tar.gz")
    unpack(out / "a.tar.gz", other)
    assert sorted(out.iterdir()) == sorted([mine, out / "a.tar.gz"])
    assert not list(other.path.rglob(".part-*"))


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(p.relative_to(folder)), p.stat().st_mtime_ns) for p in folder.rglob("*"))


@pytest.fixture
def packed(store: Store, tmp_path: Path) -> Path:
    """The archive of a store, alone in a folder."""
    file = tmp_path / "packed" / "table.tar.gz"
    pack(store, file)
    return file


@pytest.mark.parametrize("named", ["the archive", "its folder", "beside another"])
def test_an_archive_is_read_as_it_is(named: str, store: Store, packed: Path, tmp_path: Path) -> None:
    """The same records by every way of asking, and nothing comes onto the disk."""
    (tmp_path / "empty").mkdir()
    read = {
        "the archive": Store(packed),
        "its folder": Store(packed.parent),
        "beside another": Store(tmp_path / "empty", packed),
    }[named]
    before = everything(tmp_path)
    assert read.names() == store.names()
    assert [fault for _, fault in read.verify()] == [None] * 3
    for here, there in zip(read, store, strict=True):
        assert (here.description, here.facts) == (there.description, there.facts)
        assert all((here.scores[k] == there.scores[k]).all() for k in there.scores)
        assert all((here.curves[k] == there.curves[k]).all() for k in there.curves)
        assert here.experiment in read
        found = read.find(here.experiment)
        assert found is not None
        assert found.name == read.get(here.name[:12]).name == here.name
        assert read.find(here.experiment, memories=True) is here.memories(0) is None
    assert everything(tmp_path) == before
    again = tmp_path / "again.tar.gz"
    assert pack(read, again) == 3
    assert again.read_bytes() == packed.read_bytes()


def test_a_run_in_an_archive_is_not_run_again(store: Store, packed: Path) -> None:
    runs = [record.experiment for record in store]
    assert run(runs, Store(packed.parent)).ran == 0


def test_memories_are_read_of_an_archive(tmp_path: Path) -> None:
    experiment = Experiment(data="digits", items=50, memories=3, epochs=1, tasks=2)
    (made,) = run([experiment], Store(tmp_path / "runs"), Options(keep_memories=True)).records
    pack(Store(tmp_path / "runs"), tmp_path / "a.tar.gz")
    found = Store(tmp_path / "a.tar.gz").find(experiment, memories=True)
    assert found is not None
    for task in range(2):
        assert (found.memories(task) == made.memories(task)).all()  # type: ignore[union-attr]


def test_of_a_run_that_is_there_twice_the_folder_is_read(
    store: Store, packed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And where it is damaged, the archive, once it was set aside."""
    both, name = Store(store.path, packed), store.names()[0]
    assert both.names() == store.names()
    record = both.get(name)
    assert record.folder == store.path / name
    (store.path / name / "record.json").write_text("{}")
    assert both.find(record.experiment) is not None
    assert "set aside" in caplog.text
    assert not (store.path / name).exists()


def test_what_is_damaged_in_an_archive_is_left_out(
    packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = members(packed)
    spoilt = [(m, c.replace(b"digits", b"digitz") if m is parts[2][0] else c) for m, c in parts]
    file = archive(tmp_path / "b.tar.gz", *spoilt)
    before = everything(tmp_path)
    name = parts[2][0].name[:20]
    assert [r.name for r in Store(file)] == [n for n in Store(packed).names() if n != name]
    assert f"b.tar.gz:{name}: record.json is not what its checksum says" in caplog.text
    assert Store(file).find(Store(packed).get(name).experiment) is None
    assert everything(tmp_path) == before


def test_other_files_in_a_store_are_named_and_left_out(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive(store.path / "letters.tar.gz", (tarfile.TarInfo("letters/to-a-friend.txt"), b"x"))
    assert len(store) == 3
    assert "letters.tar.gz: 'letters/to-a-friend.txt' is not a file of a record (left out)" in caplog.text
    with pytest.raises(ValueError, match="not a file of a record"):
        Store(store.path / "letters.tar.gz").names()


def test_no_more_is_read_than_would_be_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "large.tar.gz"
    file.write_bytes(gzip.compress(header(f"{'0' * 20}/memories.safetensors", 2**31)))
    with pytest.raises(ValueError, match=r"large\.tar\.gz must unpack to at most 1 GiB"):
        Store(file).names()


def test_a_new_archive_under_an_old_name_is_read_anew(store: Store, packed: Path) -> None:
    assert len(Store(packed)) == 3
    store.remove(store.names()[0])
    pack(store, packed)
    assert len(Store(packed)) == 2


def test_nothing_is_removed_of_an_archive(store: Store, packed: Path) -> None:
    with pytest.raises(ValueError, match=r"lies in the archive .*table\.tar\.gz, which is only read"):
        Store(packed.parent).remove(store.names()[0])
    assert len(Store(packed)) == 3
