"""Archives of records, read as they are: every file in memory, nothing on the disk.

What a store reads of a folder on the disk it reads of these: a published table is one file.
"""

from __future__ import annotations

import functools
import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from engramma.store.files import HEAD, SUMS, Packed

SUFFIX = ".tar.gz"
MEMBER = re.compile(r"([0-9a-f]{20})/(record\.json|(arrays|memories)\.safetensors|SHA256SUMS)")
LIMIT = 2**30  # bytes that an archive may hold, where nothing else is said
ROOM = 2**15  # what a file counts beside its content: even an empty one takes room, and time to make
ARRAYS = 8  # the arrays of a record, which are read whole, may be this part of the limit
BLOCK = tarfile.BLOCKSIZE
STEP = 2**20


def records(file: Path) -> dict[str, Packed]:
    """The records of an archive by name, whether they are sound or not; read once in a process."""
    about = file.stat()
    return _records(file.absolute(), file, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=16)
def _records(_where: Path, file: Path, *_stamp: int) -> dict[str, Packed]:
    found: dict[str, Packed] = {}
    for record, name, _, content in members(file):
        place = found.setdefault(record, Packed(file, record, {}))
        place.files[name] = b"".join(content)
    return found


def members(file: Path, limit: int = LIMIT) -> Iterator[tuple[str, str, int, Iterator[bytes]]]:
    """(record, name, size, content piece by piece) of the files in an archive. The content must be taken
    before the next.

    Nothing but the files of a record is taken, whatever the archive holds: no links, no other paths, and no
    more than `limit` bytes. It is read a little at a time: a small file may say that it holds very much.
    """
    taken, seen = 0, set()
    for name, size, content in _members(file):
        found = MEMBER.fullmatch(name)
        if not found:
            raise ValueError(f"{file}: {name!r} is not a file of a record")
        taken += size + ROOM
        most = {"record.json": HEAD, SUMS: HEAD, "arrays.safetensors": limit // ARRAYS}
        if taken > limit or size > most.get(found[2], size):
            raise ValueError(
                f"{file} must unpack to at most {limit / 2**30:.3g} GiB (runs unpack --limit), a part of it "
                f"for each file; with {name}, {size} bytes, it is more; nothing was taken"
            )
        if name in seen:
            raise ValueError(f"{file}: {name!r} is there twice")
        seen.add(name)
        yield found[1], found[2], size, content


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
