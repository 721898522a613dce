"""A store as one file: records to publish, to send, or to keep beside a paper.

Equal records make equal files: names are in order, and nothing of when or by whom is kept but what the
records say themselves.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from pathlib import Path

from engramma.store.claims import clear, part
from engramma.store.files import Damaged, listed_in, opened
from engramma.store.outputs import whole
from engramma.store.packed import LIMIT, members
from engramma.store.records import Store


def pack(store: Store, file: Path) -> int:
    """Write every record into `file`, all or nothing; a damaged one stops it."""
    places = [place for name in store.names() if (place := store.place(name))]
    if not places:
        raise ValueError(f"store {store.path} has no records to pack")
    for _, fault in store.verify():
        if fault:
            raise ValueError(f"{fault}; `engramma runs verify` sets it aside")
    with (
        whole(file) as fresh,
        fresh.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for folder, name in ((place, name) for place in places for name in listed_in(place)):
            member = tarfile.TarInfo(f"{folder.name}/{name}")
            with opened(folder, name) as content:
                member.size = content.seek(0, os.SEEK_END)
                content.seek(0)
                tar.addfile(member, content)
    return len(places)


def unpack(file: Path, store: Store, limit: int = LIMIT) -> tuple[int, int]:
    """Put the records of `file` into the store: (added, there already). Each is checked before it enters."""
    store.open()
    clear(store.path)
    added = there = 0
    room = part(store.path)
    room.mkdir()
    try:
        for record, name, _, content in members(file, limit):
            place = room / record
            place.mkdir(exist_ok=True)
            with (place / name).open("xb") as out:
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
