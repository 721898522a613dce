"""Folders that are there whole or not at all: written beside their place, synced, checksummed, renamed in.

Only JSON and safetensors: nothing that is read can run code.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

SUMS = "SHA256SUMS"
_count = itertools.count()


class Damaged(Exception):
    """A folder's files are not what its checksums say. The message names the folder and the fault."""

    def __init__(self, message: str) -> None:  # which may quote a hostile file: a line of it will do
        super().__init__(message if len(message) < 1000 else message[:997] + "...")


def write_folder(place: Path, files: dict[str, bytes], owner: str, replace: bool = False) -> bool:
    """Write `files` as the folder `place`, whole or not at all; False where it was already there.

    `owner` names the writing process, so that what a killed one left behind can be told from work in hand.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.parent / f".tmp-{owner}-{next(_count)}"
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    try:
        fresh.mkdir()
        for name, data in {**files, SUMS: sums.encode()}.items():
            with open(fresh / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(fresh)
        if replace and place.exists():
            remove_folder(place, owner)
        try:
            os.rename(fresh, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES) or not place.is_dir():
                raise
            shutil.rmtree(fresh)  # another process was first with the same run
            return False
        _sync(place.parent)
        return True
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise OSError(
            error.errno, f"cannot write {place}: {error.strerror or error}; nothing was harmed"
        ) from None


def remove_folder(place: Path, owner: str) -> None:
    """Out of sight in one rename, then deleted: never seen half there."""
    gone = place.parent / f".tmp-{owner}-{next(_count)}"
    try:
        os.rename(place, gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def read_folder(place: Path, *names: str) -> dict[str, bytes]:
    """The named files (all of them where none is named), every file of the folder checked by its checksum."""
    listed: dict[str, str] = {}
    try:
        for line in (place / SUMS).read_text("utf-8").splitlines():
            expected, name = line.split("  ", 1)
            listed[name] = expected
    except (OSError, ValueError) as error:
        raise Damaged(f"{place}: {SUMS} is missing or unreadable ({type(error).__name__})") from None
    found: dict[str, bytes] = {}
    if unlisted := set(names) - set(listed):
        raise Damaged(f"{place}: {', '.join(sorted(unlisted))} is not listed in {SUMS}")
    for name, expected in listed.items():
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise Damaged(f"{place}: {SUMS} lists {name!r}, which is not a plain name")
        try:
            data = (place / name).read_bytes()
        except (OSError, ValueError) as error:
            raise Damaged(f"{place}: {name!r} cannot be read ({error})") from None
        if hashlib.sha256(data).hexdigest() != expected:
            raise Damaged(f"{place}: {name} is not what its checksum says")
        if not names or name in names:
            found[name] = data
    return found


def _sync(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def pack_json(content: Any) -> bytes:
    return (json.dumps(plain(content), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def unpack_json(data: bytes) -> Any:
    """Whatever is wrong with it is a ValueError."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def pack_tensors(tensors: dict[str, Tensor]) -> bytes:
    # A copy of each: safetensors refuses tensors that share their memory, as views and expansions do.
    return to_bytes({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})


def unpack_tensors(data: bytes) -> dict[str, Tensor]:
    """From bytes that were read and checked: a mapped file would change under the tensors with the disk."""
    try:
        return from_bytes(data)
    except SafetensorError as error:
        raise Damaged(f"not readable as safetensors ({error})") from None


def one_tensor(path: Path, name: str) -> Tensor | None:
    """One tensor of a file that may hold many."""
    try:
        with safe_open(path, "pt") as file:
            return file.get_tensor(name).clone() if name in file.keys() else None  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise Damaged(f"{path}: not readable as safetensors ({error})") from None
