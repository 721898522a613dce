"""Files for people: tables and pictures, each there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engramma.store.claims import clear, part


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
