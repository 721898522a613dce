"""Where machine code is kept if neither the package nor the user's home can be written, as in a container."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def folder() -> Path | None:
    """A temporary folder that is the user's alone; None where there can be none.

    What lies in it is loaded and run, so one that another user made, or may write to, will not do.
    """
    if not hasattr(os, "getuid"):
        return None
    try:
        place = Path(tempfile.gettempdir()) / f"engramma-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(place)
    except OSError:
        return None
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return place if mine and not found.st_mode & 0o077 else None


def numba_can_keep() -> bool:
    """See to it that numba finds a place; where there is none, every process compiles for itself."""
    from numba import config

    if _accepted():
        return True
    place = folder()
    if place is None:
        return False
    os.environ["NUMBA_CACHE_DIR"] = str(place)  # in the environment: processes that we start share it
    config.reload_config()
    return _accepted()


def _accepted() -> bool:
    from numba import njit

    try:
        njit(cache=True)(folder)  # which place is taken is decided now, long before anything is compiled
    except RuntimeError:
        return False
    return True
