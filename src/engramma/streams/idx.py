"""IDX files, MNIST's format: a head that says the kind and the shape, then the numbers.

0 0 KIND DIMENSIONS   then one big-endian 32-bit size a dimension, then big-endian numbers
"""

from __future__ import annotations

import gzip
import struct
import zlib
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from engramma.streams.errors import DataError

KINDS = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def file(path: Path) -> np.ndarray:
    """The array in an IDX file, plain or gzipped. ValueError where it is damaged, or none."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, zlib.error) as error:
            raise ValueError(f"{path.name} is cut short or damaged: {error}") from None
    if not _is_head(raw):
        raise ValueError(f"{path.name} is not an IDX file")
    kind, begin = np.dtype(KINDS[raw[2]]), 4 + 4 * raw[3]
    if len(raw) < begin:
        raise ValueError(f"{path.name} is cut short in its head")
    shape = struct.unpack(f">{raw[3]}I", raw[4:begin])
    wanted = kind.itemsize * int(np.prod(shape, dtype=object))
    if len(raw) - begin != wanted:
        raise ValueError(f"{path.name} says shape {shape}, {wanted} bytes, and has {len(raw) - begin}")
    return np.frombuffer(raw, kind, offset=begin).reshape(shape)


def folder(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n,...) and labels (n,) of a folder: of training and test items, or of one set, as one."""
    if not path.is_dir():
        what = "is no folder, and no .npz file" if path.exists() else "there is no such folder"
        raise DataError(f"{path}: {what}")
    try:
        there = {p.name.removesuffix(".gz"): p for p in sorted(path.iterdir(), reverse=True) if _is_idx(p)}
        found = {name: file(place) for name, place in sorted(there.items())}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from None
    images = {name: x for name, x in found.items() if x.ndim > 1}
    labels = {name: y for name, y in found.items() if y.ndim == 1}
    told = ", ".join(f"{name} {array.shape}" for name, array in found.items()) or "none"
    if not 1 <= len(images) <= 2 or len(labels) != len(images):
        raise DataError(
            f"{path}: must hold IDX files of one data set: images and labels, of training and of test items "
            f"or of one set alone; it has {told}"
        )
    # Training items first; each set's labels are those whose name is most like its own.
    order = sorted(images, key=lambda name: ("train" not in name.lower(), -len(images[name]), name))
    pairs, left = [], sorted(labels)
    for name in order:
        fit = [other for other in left if len(labels[other]) == len(images[name])]
        if not fit:
            raise DataError(
                f"{path}: no labels are as many as the {len(images[name])} of {name}; it has {told}"
            )
        one = max(fit, key=lambda other: SequenceMatcher(None, other, name).ratio())
        left.remove(one)
        pairs.append((images[name], labels[one]))
    if len({x.shape[1:] for x, _ in pairs}) > 1:
        raise DataError(f"{path}: images must be of one size; it has {told}")
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])


def _is_head(raw: bytes) -> bool:
    return len(raw) >= 4 and raw[:2] == b"\0\0" and raw[2] in KINDS and raw[3] > 0


def _is_idx(path: Path) -> bool:
    """By how it begins: no name is asked for."""
    if not path.is_file():
        return False
    with open(path, "rb") as plain:
        head = plain.read(4)
    if head[:2] != b"\x1f\x8b":
        return _is_head(head)
    try:
        with gzip.open(path) as packed:
            return _is_head(packed.read(4))
    except (OSError, EOFError, zlib.error):
        return False
