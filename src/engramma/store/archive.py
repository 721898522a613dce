"""A store as one file: records to publish, to send, or to keep beside a paper.

Equal records make equal files: names are in order, and nothing of when or by whom is kept but what the
records say themselves.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import tempfile
from pathlib import Path

from engramma.store.files import Damaged
from engramma.store.records import Store

MEMBER = re.compile(r"([0-9a-f]{20})/(record\.json|(arrays|memories)\.safetensors|SHA256SUMS)")
LARGEST = 2**30  # bytes of one file of a record


def pack(store: Store, file: Path) -> int:
    """Write every record into `file`, all or nothing; a damaged one stops it."""
    names = store.names()
    if not names:
        raise ValueError(f"store {store.path} has no records to pack")
    for _, fault in store.verify(names):
        if fault:
            raise ValueError(f"{fault}; `engramma runs verify` sets it aside")
    fresh = file.with_name(f"{file.name}.{store.owner}")
    try:
        with (
            fresh.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for path in (p for name in names for p in sorted((store.path / name).iterdir())):
                member = tarfile.TarInfo(f"{path.parent.name}/{path.name}")
                content = path.read_bytes()
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        os.replace(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)
    return len(names)


def unpack(file: Path, store: Store) -> tuple[int, int]:
    """Put the records of `file` into the store: (added, there already). Each is checked before it enters.

    Nothing but the files of a record is taken, whatever the archive holds: no links, no other paths.
    """
    store.open()
    added = there = 0
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=store.path) as room:
        try:
            with tarfile.open(file, "r:gz") as tar:
                for member in tar:
                    found = MEMBER.fullmatch(member.name)
                    if not (found and member.isreg() and member.size <= LARGEST):
                        raise ValueError(f"{file}: {member.name!r} is not a file of a record")
                    content = tar.extractfile(member)
                    assert content is not None
                    place = Path(room) / found[1]
                    place.mkdir(exist_ok=True)
                    (place / found[2]).write_bytes(content.read())
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, OSError) as error:
            raise ValueError(f"{file}: not an archive of records ({error})") from None
        inside = Store(room)
        for _, fault in inside.verify():
            if fault:
                raise Damaged(f"{file}: {fault.removeprefix(room + os.sep)}; nothing was unpacked")
        for name in inside.names():
            if (store.path / name).exists():
                there += 1
                continue
            os.rename(Path(room) / name, store.path / name)
            added += 1
    return added, there
