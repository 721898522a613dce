"""A store as one file: records to publish, to send, or to keep beside a paper.

Equal records make equal files: names are in order, and nothing of when or by whom is kept but what the
records say themselves.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from engramma.store.claims import clear, part
from engramma.store.files import HEAD, SUMS, Damaged
from engramma.store.outputs import whole
from engramma.store.records import Store

MEMBER = re.compile(r"([0-9a-f]{20})/(record\.json|(arrays|memories)\.safetensors|SHA256SUMS)")
LIMIT = 2**30  # bytes that unpacking may put on the disk, where nothing else is said
ROOM = 2**15  # what a file counts beside its content: even an empty one takes room, and time to make
ARRAYS = 8  # the arrays of a record, which are read whole, may be this part of the limit
BLOCK = tarfile.BLOCKSIZE
STEP = 2**20


def pack(store: Store, file: Path) -> int:
    """Write every record into `file`, all or nothing; a damaged one stops it."""
    names = store.names()
    if not names:
        raise ValueError(f"store {store.path} has no records to pack")
    for _, fault in store.verify(names):
        if fault:
            raise ValueError(f"{fault}; `engramma runs verify` sets it aside")
    with (
        whole(file) as fresh,
        fresh.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in (p for name in names for p in sorted((store.path / name).iterdir())):
            member = tarfile.TarInfo(f"{path.parent.name}/{path.name}")
            with path.open("rb") as content:
                member.size = os.fstat(content.fileno()).st_size
                tar.addfile(member, content)
    return len(names)


def unpack(file: Path, store: Store, limit: int = LIMIT) -> tuple[int, int]:
    """Put the records of `file` into the store: (added, there already). Each is checked before it enters.

    Nothing but the files of a record is taken, whatever the archive holds: no links, no other paths, and no
    more than `limit` bytes. It is read a little at a time: a small file may say that it holds very much.
    """
    store.open()
    clear(store.path)
    added = there = taken = 0
    room = part(store.path)
    room.mkdir()
    try:
        for name, size, content in _members(file):
            found = MEMBER.fullmatch(name)
            if not found:
                raise ValueError(f"{file}: {name!r} is not a file of a record")
            taken += size + ROOM
            most = {"record.json": HEAD, SUMS: HEAD, "arrays.safetensors": limit // ARRAYS}
            if taken > limit or size > most.get(found[2], size):
                raise ValueError(
                    f"{file} must unpack to at most {limit / 2**30:.3g} GiB (--limit), a part of it for each "
                    f"file; with {name}, {size} bytes, it is more; nothing was unpacked"
                )
            place = room / found[1]
            place.mkdir(exist_ok=True)
            if (place / found[2]).exists():
                raise ValueError(f"{file}: {name!r} is there twice")
            with (place / found[2]).open("xb") as out:
                for piece in content:
                    out.write(piece)
        inside = Store(room)
        for _, fault in inside.verify():
            if fault:
                raise Damaged(f"{file}: {fault.removeprefix(str(room) + os.sep)}; nothing was unpacked")
        for name in inside.names():
            place = store.path / name
            try:
                if not place.exists():
                    os.rename(room / name, place)
                    added += 1
                    continue
            except OSError:
                if not place.is_dir():  # else another process was first with the same run
                    raise
            there += 1
    finally:
        shutil.rmtree(room, ignore_errors=True)
    return added, there


def _members(file: Path) -> Iterator[tuple[str, int, Iterator[bytes]]]:
    """(name, size, content piece by piece) of the files in an archive. The content must be taken before the
    next. Whatever is wrong with the archive itself is a ValueError.

    Of the format only what `pack` writes is understood. What else it knows - long names, attributes, holes -
    comes in members that are read whole, however large they are, before anybody is asked.
    """
    with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) as packed:
        while any(block := _read(file, packed, BLOCK)):
            try:
                member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except (tarfile.HeaderError, ValueError) as error:
                raise _not_an_archive(file, error) from None
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
                raise ValueError(f"{file}: {member.name!r} is not a file of a record")
            yield member.name, member.size, _pieces(file, packed, member.size)
            _read(file, packed, -member.size % BLOCK)
        for _ in range(STEP // BLOCK):  # to the end, which has the sum of everything
            if not (rest := _read(file, packed, BLOCK, end=True)):
                return
            if any(rest):
                break
    raise _not_an_archive(file, "it goes on after its end")


def _pieces(file: Path, packed: gzip.GzipFile, size: int) -> Iterator[bytes]:
    for start in range(0, size, STEP):
        yield _read(file, packed, min(STEP, size - start))


def _read(file: Path, packed: BinaryIO | gzip.GzipFile, count: int, end: bool = False) -> bytes:
    """Exactly so many bytes; nothing at all only where it may `end`."""
    try:
        found = packed.read(count)
    except (OSError, EOFError, zlib.error) as error:
        raise _not_an_archive(file, error) from None
    if len(found) < count and (found or not end):
        raise _not_an_archive(file, "it ends too early")
    return found


def _not_an_archive(file: Path, why: object) -> ValueError:
    return ValueError(f"{file}: not an archive of records ({why})")
