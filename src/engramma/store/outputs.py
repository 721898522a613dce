"""What leaves the package: files, each there whole or not at all, and rows for other programs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engramma.checks import visible
from engramma.store.claims import clear, part
from engramma.store.files import plain


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, moved into its place when all went well."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # a device or a pipe, not to be replaced
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    clear(path.parent)
    fresh = part(path.parent, path.suffix)
    try:
        yield fresh
        os.replace(fresh, path)
    except OSError as error:
        if error.filename == str(fresh):  # a name that nobody has given
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        fresh.unlink(missing_ok=True)


def in_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each row under the names of all columns; what is not known, or no number, is empty."""
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | dict):
        return json.dumps(plain(value))
    return visible(value) if isinstance(value, str) else value


def in_json(found: Any) -> str:
    """What is no number is null."""
    return json.dumps(plain(found), indent=1, allow_nan=False) + "\n"
