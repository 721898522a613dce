"""Folders that are there whole or not at all: written beside their place, synced, checksummed, renamed in.

Only JSON and safetensors: nothing that is read can run code.
"""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import json
import math
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from engramma.checks import visible

SUMS = "SHA256SUMS"
HEAD = 4 * 2**20  # bytes of JSON, and of the head of a file of tensors: many times what any of them needs
_count = itertools.count()


class Damaged(Exception):
    """A folder's files are not what they must be. The message names the folder and the fault, in one line."""

    def __init__(self, message: str) -> None:  # which may quote a hostile file: a line of it will do
        told = visible(message)
        super().__init__(told if len(told) < 1000 else told[:997] + "...")


@dataclass(frozen=True)
class Packed:
    """A folder that lies in an archive: its files are in memory, and read as those on the disk are."""

    archive: Path
    name: str
    files: dict[str, bytes]

    def __str__(self) -> str:
        return f"{self.archive}:{self.name}"


Folder = Path | Packed


def holds(place: Folder, name: str) -> bool:
    return name in place.files if isinstance(place, Packed) else (place / name).is_file()


def write_folder(place: Path, files: dict[str, bytes], owner: str, replace: bool = False) -> bool:
    """Write `files` as the folder `place`, whole or not at all; False where it was already there.

    `owner` names the writing process, so that what a killed one left behind can be told from work in hand.
    """
    for left in range(2, -1, -1):
        try:
            return _written(place, files, owner, replace)
        except FileNotFoundError:  # another process took the folder around it away: a pack's checkpoints
            if not left:
                raise
    raise AssertionError


def _written(place: Path, files: dict[str, bytes], owner: str, replace: bool) -> bool:
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


def read_folder(place: Folder, *names: str, further: Collection[str] = ()) -> dict[str, bytes]:
    """The named files. Every file of the folder is checked by its checksum, and it may hold no others than
    those named and `further` ones, which need not be there."""
    listed: dict[str, str] = {}
    try:
        for line in _read(place, SUMS, HEAD).decode().splitlines():
            expected, name = line.split("  ", 1)
            listed[name] = expected
        there = listed_in(place)
    except (OSError, ValueError) as error:
        raise Damaged(f"{place}: {SUMS} is missing or unreadable ({type(error).__name__})") from None
    if unlisted := {*names, *there} - {SUMS} - set(listed):
        raise Damaged(f"{place}: {', '.join(sorted(unlisted))} is not listed in {SUMS}")
    found: dict[str, bytes] = {}
    for name, expected in listed.items():
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise Damaged(f"{place}: {SUMS} lists {name!r}, which is not a plain name")
        if name not in names and name not in further:
            raise Damaged(f"{place}: {SUMS} lists {name!r}, which has no place here")
        try:
            if name in names:
                found[name] = _read(place, name, HEAD if name.endswith(".json") else None)
                actual = hashlib.sha256(found[name])
            else:
                with opened(place, name) as file:
                    actual = hashlib.file_digest(file, "sha256")
        except (OSError, ValueError) as error:
            raise Damaged(f"{place}: {name!r} cannot be read ({error})") from None
        if actual.hexdigest() != expected:
            raise Damaged(f"{place}: {name} is not what its checksum says")
    return found


def listed_in(place: Folder) -> list[str]:
    return sorted(place.files if isinstance(place, Packed) else (path.name for path in place.iterdir()))


def opened(place: Folder, name: str) -> BufferedReader | io.BytesIO:
    if not holds(place, name):  # a pipe would be waited for
        raise OSError("no such file")
    return io.BytesIO(place.files[name]) if isinstance(place, Packed) else open(place / name, "rb")


def _read(place: Folder, name: str, most: int | None) -> bytes:
    with opened(place, name) as file:
        if most is not None and file.seek(0, os.SEEK_END) > most:
            raise ValueError(f"larger than {most} bytes")
        file.seek(0)
        return file.read()


def _sync(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def pack_json(content: Any) -> bytes:
    packed = (json.dumps(plain(content), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    if len(packed) > HEAD:
        raise ValueError(
            f"a description and its facts must be at most {HEAD} bytes of JSON, not {len(packed)}"
        )
    return packed


def unpack_json(data: bytes) -> Any:
    """Whatever is wrong with it is a ValueError."""
    if len(data) > HEAD:
        raise ValueError(f"larger than {HEAD} bytes")
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
        _check_head(data[:8])
        return from_bytes(data)
    except TENSOR_FAULTS as error:
        raise Damaged(f"not readable as safetensors ({error})") from None


class Form(NamedTuple):
    """What a file of tensors says of one of them."""

    dtype: str  # in the format's own words: F64
    shape: tuple[int, ...]


def forms(place: Folder, file: str) -> dict[str, Form]:
    """Of every tensor of a file, on the disk from its head alone."""
    try:
        if isinstance(place, Packed):
            _check_head(place.files[file][:8])
            told = deserialize(place.files[file])
            return {name: Form(part["dtype"], tuple(part["shape"])) for name, part in told}
        with opened(place, file) as head:
            _check_head(head.read(8))
        with safe_open(place / file, "np") as tensors:
            parts = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            return {name: Form(part.get_dtype(), tuple(part.get_shape())) for name, part in parts.items()}
    except TENSOR_FAULTS as error:
        raise Damaged(f"{place}: {file} is not readable as safetensors ({error})") from None


def one_tensor(place: Folder, file: str, name: str) -> Tensor | None:
    """One tensor of a file that may hold many."""
    try:
        if isinstance(place, Packed):
            return unpack_tensors(place.files[file]).get(name)
        with safe_open(place / file, "pt") as tensors:
            return tensors.get_tensor(name).clone() if name in tensors.keys() else None  # noqa: SIM118
    except TENSOR_FAULTS as error:
        raise Damaged(f"{place}: {file} is not readable as safetensors ({error})") from None


# Types and shapes that the format knows and PyTorch does not are errors of all these kinds.
TENSOR_FAULTS = (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError)


def _check_head(start: bytes) -> None:
    """Its length comes first: a long one is not to be read at all."""
    if len(start) < 8 or int.from_bytes(start, "little") > HEAD:
        raise ValueError(f"its head is none, or longer than {HEAD} bytes")
