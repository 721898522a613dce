"""Points measured once and kept: a folder each in the store, whole or not at all.

<store>/laws/<20 hex digits>/point.json  SHA256SUMS
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from engramma.experiment import digest
from engramma.laws.law import Law, Point, Row, Where
from engramma.store.files import Damaged, pack_json, read_folder, remove_folder, unpack_json, write_folder

log = logging.getLogger("engramma")
FILE = "point.json"


def place(law: Law, point: Point, store: Path) -> Path:
    """Where what is measured at a point is kept: named by the hash of the law's name and the point."""
    return store / "laws" / digest({"law": law.name, "point": point})[:20]


def find(law: Law, point: Point, store: Path) -> Row | None:
    """What was measured at a point, None where it has to be measured. A damaged folder is removed."""
    folder = place(law, point, store)
    if not folder.is_dir():
        return None
    try:
        told = unpack_json(read_folder(folder, FILE)[FILE])
        if not isinstance(told, dict) or {"law": told.get("law"), "point": told.get("point")} != {
            "law": law.name,
            "point": point,
        }:
            raise Damaged(f"{folder}: it is of another point")
        return {**point, **told["found"]}
    except (Damaged, ValueError, KeyError, TypeError) as fault:
        log.warning("%s (measured again)", fault)
        remove_folder(folder, _owner())
        return None


def measured(law: Law, points: list[Point], store: Path, where: Where) -> Iterator[tuple[Row, bool]]:
    """A row for each point, and whether it was measured now: what the store has is read, the rest measured
    and kept one by one, so that what was stopped goes on from there."""
    for point in points:
        row = find(law, point, store)
        if row is not None:
            yield row, False
            continue
        content = pack_json({"law": law.name, "point": point, "found": law.measure(point, where)})
        write_folder(place(law, point, store), {FILE: content}, _owner())
        yield {**point, **unpack_json(content)["found"]}, True  # as it was written: what is drawn is kept


def _owner() -> str:
    return f"{os.getpid()}-{os.urandom(4).hex()}-l"
