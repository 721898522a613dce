"""Hostile inputs that are sent: archives to unpack, and arrays of the user's own."""

from __future__ import annotations

import gzip
import io
import random
import shlex
import shutil
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults import mutate
from benchmarks.faults.stored import RECORD, SUMS, Case, odd_record, read, sums

SHAPES = ("(40, 6)", "(10000000000, 6)", "(-1, 6)", "(40,)", "()", "(0, 6)", "(6, 40)", "(1,) * 99",
          "(2**70,)", "(3, 3, 3)", "(" * 300)  # fmt: skip
DTYPES = ("'|u1'", "'<f8'", "'|O'", "'<M8[s]'", "[('a', '<i4')]", "'<c16'", "'|V8'", "'<U9'", "'>f2'",
          "'<f16'", "'|S0'", "'|b1'", "'x'", "__import__('os').system('true')")  # fmt: skip


def archives(given: Path, inside: Path, chance: random.Random) -> Case:
    """An archive to unpack: mutated in its bytes, or made of odd members."""
    path, words = inside / "a.tgz", ["runs", "unpack", "a.tgz"]
    valid = (given / "ewc.tgz").read_bytes()
    if chance.random() < 0.002:
        shutil.copy(given / "much.tgz", path)
        return words, "1.5 GiB of zeros"
    turn = chance.randrange(10)
    if turn < 2:
        path.write_bytes(mutate.blind(valid, chance, valid))
        return words, "the file blindly mutated"
    if turn < 4:
        path.write_bytes(gzip.compress(mutate.blind(gzip.decompress(valid), chance, valid), 1))
        return words, "the tar within blindly mutated"
    stores = sorted(p for p in (given / "ewc").iterdir() if RECORD.fullmatch(p.name))
    members: list[tuple[str, bytes, dict[str, Any]]] = []
    what = "two records"
    for folder in stores:
        name, files, listed, done = odd_record(folder, chance)
        if chance.random() < 0.4:
            name, files, listed, done = folder.name, read(folder), None, "sound"
        what += f"; {done}"
        files[SUMS] = sums(files) if listed is None else listed
        members += [(f"{name or folder.name}/{file}", data, {}) for file, data in files.items()]
    if turn > 5:
        name, extra = _member(chance, members)
        at = chance.randrange(len(members) + 1)
        data = chance.choice([b"", b"x", members[0][1]])
        members.insert(at, (name, data, extra))
        what += f"; member {name[:300]!r} {extra}"
    if chance.random() < 0.2:
        chance.shuffle(members)
    out = io.BytesIO()
    kind = chance.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    try:
        with tarfile.open(fileobj=out, mode="w", format=kind, errors="surrogateescape") as tar:
            for name, data, extra in members:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                for key, value in extra.items():
                    setattr(member, key, value)
                tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    except (ValueError, OverflowError, struct.error, UnicodeError, OSError):
        out.write(b"\0" * 1024)
    data = out.getvalue()
    if chance.random() < 0.03:
        big = tarfile.TarInfo(f"{stores[0].name}/arrays.safetensors")
        big.size = chance.choice([2**28, 2**30])
        data = big.tobuf() + b"\0" * 2**20 + data
        what += f"; a member that says it has {big.size} bytes"
    wrap = chance.random()
    if wrap < 0.9:
        data = gzip.compress(data, 1)
    elif wrap < 0.95:
        data = gzip.compress(data, 1) + gzip.compress(data, 1)
    path.write_bytes(data)
    return words, what


def _member(chance: random.Random, members: list[Any]) -> tuple[str, dict[str, Any]]:
    name = chance.choice(members)[0]
    run, _, file = name.partition("/")
    names = [
        f"../{name}", f"/{name}", f"../../outside/{file}", f"{run}/../../{file}",
        f"./{name}", f"{run}//{file}",
        f"{run}/{SUMS}/x", f"{run}/.{file}", f"{run}/{file}\n", f"{run.upper()}/{file}", f"{run}", f"{run}/",
        name, f"{run}/tune.db", f"claims/{file}", "checkpoints/x", ".tmp-1-2-3", f"{run}\0/{file}", "x" * 300,
        chance.choice(mutate.TEXTS) or "x", f"{run}/{chance.choice(mutate.TEXTS)}", f"{'0' * 20}/record.json",
        "C:" + name, name.replace("/", "\\"),
    ]  # fmt: skip
    kinds = [tarfile.REGTYPE] * 4 + [
        tarfile.AREGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE,
        tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"9", b"\xff",
    ]  # fmt: skip
    extra: dict[str, Any] = {"type": chance.choice(kinds)}
    if extra["type"] in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        extra["linkname"] = chance.choice(["/etc/passwd", "../../..", name, "/", ".", "../outside"])
    if chance.random() < 0.2:
        extra |= chance.choice([{"mode": 0o7777}, {"uid": -1}, {"mtime": 2**40}, {"size": 2**33}, {"mode": 0},
                                {"pax_headers": {"size": "99999999999", "path": "../../up"}},
                                {"pax_headers": {"GNU.sparse.realsize": "1000000000000"}}])  # fmt: skip
    return chance.choice(names), extra


def arrays(given: Path, inside: Path, chance: random.Random) -> Case:
    """An .npz of the user's own: mutated in its bytes, or of odd arrays."""
    states = chance.random() < 0.3
    source = given / ("states.npz" if states else "own.npz")
    path = inside / "own.npz"
    valid = source.read_bytes()
    words = "run --items 20 --memories 3 --tasks 2 --epochs 1"
    others = ["", "", "--stream rotated", "--stream split", "--no-binary", "--batch-size 7", "--threshold 3"]
    words += " --stream states --size 6 --items 4 --flips 1 " if states else f" {chance.choice(others)} "
    words += " --data own.npz"
    turn = chance.randrange(10)
    if turn < 3:
        path.write_bytes(mutate.blind(valid, chance, valid))
        return shlex.split(words), "the file blindly mutated"
    with zipfile.ZipFile(source) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    if turn < 5:
        name = chance.choice(sorted(parts))
        if chance.random() < 0.5:
            parts[name] = mutate.blind(parts[name], chance, valid)
            what = f"{name} blindly mutated"
        else:
            order = chance.choice(["False", "True", "1", "None"])
            kind, shape = chance.choice(DTYPES), chance.choice(SHAPES)
            told = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
            told = told.ljust(117) + b"\n"
            version = bytes([chance.choice([1, 1, 2, 3, 9]), 0])
            rest = parts[name][128:]
            parts[name] = b"\x93NUMPY" + version + struct.pack("<H", len(told)) + told + rest
            what = f"{name} says {told.decode().strip()}"
    else:
        x, y = np.load(source)["x" if not states else "states"], np.arange(40) % 4
        odd = chance.choice([x, _array(x, chance)])
        label = y if odd is not x and chance.random() < 0.8 else _labels(y, chance)
        made = {"states": odd} if states else {"x": odd, "y": label}
        if chance.random() < 0.1:
            made[chance.choice(["x", "y", "z", "../../outside", "states", "/etc/x"])] = odd
        parts = {}
        for key, array in made.items():
            out = io.BytesIO()
            np.lib.format.write_array(out, np.asarray(array), allow_pickle=True)
            parts[f"{key}.npy"] = out.getvalue()
        what = ", ".join(f"{k} {np.asarray(v).dtype}{list(np.shape(v))}" for k, v in made.items())
    packed = zipfile.ZIP_DEFLATED if chance.random() < 0.3 else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", packed) as file:
        for name, data in parts.items():
            file.writestr(name, data)
            if chance.random() < 0.02:
                file.writestr(name, data[:-3])
    return shlex.split(words), what


def _array(x: Any, chance: random.Random) -> Any:
    kinds = ["f8", "f4", "f2", "i1", "i8", "u8", "u4", "?", "c8", "O", "U3", "S2",
             "M8[s]", ">f8", ">u4", "f16", "u2"]  # fmt: skip
    turn = chance.randrange(8)
    if turn <= 2:
        with np.errstate(all="ignore"):
            return x.astype(chance.choice(kinds))
    if turn == 3:
        shapes = [(), (0,), (0, 6), (40,), (40, 0), (40, 1), (40, 2, 3), (40, 3, 2), (1, 6), (40, 6, 0)]
        return np.zeros(chance.choice(shapes))
    out = x.astype(float)
    if turn == 4:
        out[chance.randrange(len(out)), 0] = chance.choice([np.nan, np.inf, 1e308, -1e308, 1e-320])
        return out
    if turn == 5:
        return np.full(x.shape, chance.choice([0, 1e308, -1e308, 1e39, 2**63, 1e-320]))
    return out * chance.choice([1e300, 1e-300, 0, -1]) if turn == 6 else out[: chance.randrange(40)]


def _labels(y: Any, chance: random.Random) -> Any:
    texts = [chance.choice(mutate.TEXTS).replace("\ud800", "?") or "x" for _ in range(40)]
    return chance.choice([
        y.astype(chance.choice(["f8", "U3", "S2", "?", "u8", "O", "c8", "i1"])), y[:-1], y[None],
        np.zeros(40, int), np.arange(40), y + 2**62, -y, np.array(texts), np.array(3), np.where(y == 0, 0, 1),
        np.r_[0, np.ones(39, int)],
    ])  # fmt: skip
