"""Hostile inputs of each kind: what is put into a folder, and the command that comes upon it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import re
import shlex
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults import mutate

TINY = "--data digits --items 20 --memories 3 --tasks 3 --epochs 2"
STATES = "--stream states --size 6 --items 2 --memories 2 --tasks 3 --epochs 2"
WORDS = {  # what makes the valid inputs; each ends in the store of its name
    "records": f"run {TINY} --method ewc --strength 10 --keep-memories",
    "ewc": f"run {TINY} --method ewc --strength 10 --keep-memories --seeds 2 --store ewc",
    "si": f"run {STATES} --method si --strength 1 --keep-checkpoints --store si",
    "gem": f"run {STATES} --method gem --strength 0.5 --keep-checkpoints --seeds 2 --store gem",
    "pseudorehearsal": f"run {TINY} --method pseudorehearsal --strength 0.5 --keep-checkpoints --store pseudorehearsal",
    "mas": f"run {TINY} --method mas --strength 1 --keep-checkpoints --keep-memories --store mas",
}
SUMS = "SHA256SUMS"
LINK = "link-of-ours"
UNPACKED = re.compile(
    r"a\.tgz|runs|runs/(claims|claims/guard|checkpoints|set-aside.*)"
    r"|runs/[0-9a-f]{20}(/(record\.json|(arrays|memories)\.safetensors|SHA256SUMS))?"
)
RECORD = re.compile(r"[0-9a-f]{20}")
Case = tuple[list[str], str]  # (command, what was done to its input)


def prepare(given: Path, run: Callable[[str, Path], None]) -> None:
    """Valid inputs, made by the command line itself."""
    for name, words in WORDS.items():
        if name != "records":
            run(words, given)
    run("runs pack ewc.tgz --store ewc", given)
    chance = np.random.default_rng(0)
    x, y = chance.integers(0, 17, (40, 6)).astype(np.uint8), np.arange(40) % 4
    np.savez(given / "own.npz", x=x, y=y)
    np.savez(given / "states.npz", states=np.sign(chance.standard_normal((30, 6))))
    run(f"tune {TINY} --method ewc --vertices 2 --trials 3 --seeds 1 --store tuned --out chosen.toml "
        "--figures figures", given)  # fmt: skip
    shutil.rmtree(given / "tuned")
    shutil.rmtree(given / "figures")
    (given / "run.toml").write_text(RUN_TOML)


RUN_TOML = """\
data = "digits"
tasks = 2
items = 20
memories = 3
epochs = 2
threshold = "none"
vertex = 2.5
method = "ewc"
strength = 1.5
settings = { fisher = "batch" }
batch_size = 8
learning_rate = 0.1
seeds = [0, 1]
strengths = [1.0, 2.0]
"""


def sums(files: dict[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(d).hexdigest()}  {n}\n" for n, d in sorted(files.items())).encode()


def read(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file() and p.name != SUMS}


def put(folder: Path, files: dict[str, bytes], listed: bytes | None = None) -> None:
    """Files with checksums that fit, or with those given."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**files, SUMS: sums(files) if listed is None else listed}.items():
        (folder / name).write_bytes(data)


def told_name(head: Any) -> str | None:
    """The name that a record must have to be let in, where its description can have one."""
    try:
        text = json.dumps(head["description"], sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:20]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def odd_record(folder: Path, chance: random.Random) -> tuple[str | None, dict[str, bytes], bytes | None, str]:
    """(name, files, their checksums where they are not to fit, what was done) of a mutated record."""
    files, name = read(folder), folder.name
    turn = chance.randrange(10)
    if turn < 5:
        head = json.loads(files["record.json"])
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            part = chance.choice([None, "description", "description", "facts", "scores", "curves", "diverged"])
            if part is None or not isinstance(head, dict) or part not in head:
                head = mutate.warp(head, chance)
            elif part == "description" and chance.random() < 0.5 and isinstance(head[part], dict):
                key = chance.choice(sorted(head[part]) or [""])
                head[part] = {**head[part], key: mutate.value(chance)}
            else:
                head[part] = mutate.warp(head[part], chance)
        files["record.json"] = mutate.text(head, chance)
        return told_name(head) or name, files, None, f"record.json is {files['record.json'][:1500]!r}"
    if turn < 8:
        which = chance.choice(["arrays.safetensors", "arrays.safetensors", "memories.safetensors"])
        for _ in range(chance.choice([1, 1, 2])):
            files[which] = mutate.tensors(files[which], chance) if len(files[which]) > 16 else b""
        return name, files, None, f"{which} has other tensors"
    which = chance.choice(sorted(files))
    files[which] = mutate.blind(files[which], chance, files["arrays.safetensors"])
    if chance.random() < 0.7:
        return name, files, None, f"{which} blindly mutated, its checksum made to fit"
    listed = sums(read(folder))
    if chance.random() < 0.5:
        files, listed = read(folder), mutate.blind(listed, chance)
        return name, files, listed, f"{SUMS} is {listed[:600]!r}"
    return name, files, listed, f"{which} blindly mutated"


def records(given: Path, inside: Path, chance: random.Random) -> Case:
    """A store with a sound record and an odd one, and a command that reads it."""
    one, two = sorted(p for p in (given / "ewc").iterdir() if RECORD.fullmatch(p.name))
    shutil.copytree(one, inside / "runs" / one.name)
    name, files, listed, what = odd_record(two, chance)
    put(inside / "runs" / (name or two.name), files, listed)
    words = chance.choice([
        "runs list", "runs list --method ewc", f"runs show {name}", f"runs show {name}", "runs verify",
        "table scores", "table table2", "table scores --format csv", "table scores --format latex",
        "report --networks 2", "report --networks 0", "runs pack a.tgz", WORDS["ewc"].replace("--store ewc", ""),
        "runs prune --dry-run", f"runs prune {name}", "figure memories", f"fork {name} --after 1",
        f"reproduce table2 --rows ewc --vertices 2 --seeds 2 --dry-run --with items=20 --with memories=3 "
        f"--with tasks=3 --with epochs=2",
        "table ewc", "figure tasks",
    ])  # fmt: skip
    if words.startswith("figure") and chance.random() < 0.9:  # drawing takes long
        words = f"runs show {name}"
    return shlex.split(words), what


def checkpoints(given: Path, inside: Path, chance: random.Random) -> Case:
    """A run that was broken off, or kept its checkpoints, and an odd one among them."""
    method = chance.choice(["ewc", "si", "gem", "pseudorehearsal", "mas", "si", "gem"])
    method = "mas" if method == "ewc" else method
    store = inside / method
    shutil.copytree(given / method, store)
    (pack,) = (p for p in (store / "checkpoints").iterdir() if RECORD.fullmatch(p.name))
    last = chance.choice([1, 2, 2, 3])
    for stage in list(pack.iterdir()):
        if int(stage.name) > last:
            shutil.rmtree(stage)
    place = pack / str(chance.choice([last, last, last, 1]))
    files, listed, what = read(place), None, ""
    turn = chance.randrange(10)
    if turn < 5:
        head = json.loads(files["checkpoint.json"])
        for _ in range(chance.choice([1, 1, 2, 4])):
            part = chance.choice(sorted(head)) if isinstance(head, dict) and head else None
            if part is None or chance.random() < 0.1:
                head = mutate.warp(head, chance)
            else:
                head[part] = mutate.warp(head[part], chance)
        files["checkpoint.json"] = mutate.text(head, chance)
        what = f"checkpoint.json is {files['checkpoint.json'][:1500]!r}"
    elif turn < 9:
        before = files["tensors.safetensors"]
        files["tensors.safetensors"] = mutate.tensors(before, chance)
        what = f"other tensors: {_shapes(before, files['tensors.safetensors'])}"
    else:
        which = chance.choice(sorted(files))
        files[which] = mutate.blind(files[which], chance, files["tensors.safetensors"])
        listed = sums(read(place)) if chance.random() < 0.2 else None
        what = f"{which} blindly mutated{', its checksum made to fit' if listed is None else ''}"
    put(place, files, listed)
    again = WORDS[method]
    if chance.random() < 0.3:
        again = again.replace(" --keep-checkpoints", "")
    words = chance.choice([again, again, again, again, again + " --keep-memories", f"runs prune --store {method}",
                           f"runs prune --checkpoints --store {method}", "fork"])  # fmt: skip
    runs = [p for p in store.iterdir() if RECORD.fullmatch(p.name)]
    if words == "fork":
        words = f"fork {runs[0].name} --after {chance.choice([1, 2])} --store {method}"
        words += chance.choice(["", " --method l2 --strength 1", " --method gem --strength 0.5"])
    elif words.startswith("run "):
        for run in runs if chance.random() < 0.9 else runs[:1]:
            shutil.rmtree(run)
    return shlex.split(words), f"stage {place.name} of {method}: {what}"


def _shapes(before: bytes, after: bytes) -> str:
    from safetensors.torch import load

    was, now = load(before), load(after)
    said = []
    for name in sorted({*was, *now}):
        a, b = was.get(name), now.get(name)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or a.tolist() != b.tolist():
            said.append(f"{name} {_one(a)} -> {_one(b)}")
    return "; ".join(said)[:1500]


def _one(tensor: Any) -> str:
    if tensor is None:
        return "none"
    few = tensor.flatten()[:4].tolist()
    return f"{str(tensor.dtype)[6:]}{list(tensor.shape)} {few}"


def archives(given: Path, inside: Path, chance: random.Random) -> Case:
    """An archive to unpack: mutated in its bytes, or made of odd members."""
    path, words = inside / "a.tgz", ["runs", "unpack", "a.tgz"]
    valid = (given / "ewc.tgz").read_bytes()
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
        name, files, listed, done = odd_record(folder, chance) if chance.random() < 0.6 else (folder.name, read(folder), None, "")
        what += f"; {done}" if done else ""
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
    if chance.random() < 0.03:  # much out of little: 3 GiB of zeros in one member or in many
        name = stores[0].name
        big = tarfile.TarInfo(f"{name}/arrays.safetensors")
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
        f"../{name}", f"/{name}", f"../../outside/{file}", f"{run}/../../{file}", f"./{name}", f"{run}//{file}",
        f"{run}/{SUMS}/x", f"{run}/.{file}", f"{run}/{file}\n", f"{run.upper()}/{file}", f"{run}", f"{run}/",
        name, f"{run}/tune.db", f"claims/{file}", "checkpoints/x", ".tmp-1-2-3", f"{run}\0/{file}", "x" * 300,
        chance.choice(mutate.TEXTS) or "x", f"{run}/{chance.choice(mutate.TEXTS)}", f"{'0' * 20}/record.json",
        "C:" + name, name.replace("/", "\\"),
    ]  # fmt: skip
    kinds = [tarfile.REGTYPE] * 4 + [
        tarfile.AREGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE,
        tarfile.BLKTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"9", b"\xff",
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
    words += " --stream states --size 6 --items 4 --flips 1" if states else chance.choice(["", "", " --stream rotated", " --stream split", " --no-binary",
                                                             " --batch-size 7", " --threshold 3"])  # fmt: skip
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
            shape = chance.choice(["(40, 6)", "(10000000000, 6)", "(-1, 6)", "(40,)", "()", "(0, 6)", "(6, 40)", "(1,) * 99",
                                   "(2**70,)", "(3, 3, 3)", "(" * 300])  # fmt: skip
            kind = chance.choice(["'|u1'", "'<f8'", "'|O'", "'<M8[s]'", "[('a', '<i4')]", "'<c16'", "'|V8'", "'<U9'",
                                  "'>f2'", "'<f16'", "'|S0'", "'|b1'", "'x'", "__import__('os').system('true')"])  # fmt: skip
            order = chance.choice(["False", "True", "1", "None"])
            told = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
            parts[name] = b"\x93NUMPY" + bytes([chance.choice([1, 1, 2, 3, 9]), 0]) + struct.pack("<H", len(told)) + told + parts[name][128:]
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
    kinds = ["f8", "f4", "f2", "i1", "i8", "u8", "u4", "?", "c8", "O", "U3", "S2", "M8[s]", ">f8", ">u4", "f16", "u2"]
    turn = chance.randrange(8)
    if turn <= 2:
        with np.errstate(all="ignore"):
            return x.astype(chance.choice(kinds))
    if turn == 3:
        return np.zeros(chance.choice([(), (0,), (0, 6), (40,), (40, 0), (40, 1), (40, 2, 3), (40, 3, 2), (40, 1, 1, 1), (1, 6), (40, 6, 0)]))
    out = x.astype(float)
    if turn == 4:
        out[chance.randrange(len(out)), 0] = chance.choice([np.nan, np.inf, 1e308, -1e308, 1e-320])
        return out
    if turn == 5:
        return np.full(x.shape, chance.choice([0, 1e308, -1e308, 1e39, 2**63, 1e-320]))
    return out * chance.choice([1e300, 1e-300, 0, -1]) if turn == 6 else out[: chance.randrange(40)]


def _labels(y: Any, chance: random.Random) -> Any:
    return chance.choice([
        y.astype(chance.choice(["f8", "U3", "S2", "?", "u8", "O", "c8", "i1"])), y[:-1], y[None], np.zeros(40, int),
        np.arange(40), y + 2**62, -y, np.array([chance.choice(mutate.TEXTS[:30]).replace("\ud800", "?") or "x" for _ in range(40)]),
        np.array(3), np.where(y == 0, 0, 1), np.r_[0, np.ones(39, int)],
    ])  # fmt: skip


def toml(given: Path, inside: Path, chance: random.Random) -> Case:
    """Settings in a TOML file, or a file of chosen values."""
    chosen = chance.random() < 0.45
    text = (given / ("chosen.toml" if chosen else "run.toml")).read_bytes()
    if chance.random() < 0.45:
        text = mutate.blind(text, chance, text)
    else:
        lines = text.decode().splitlines()
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            at = chance.randrange(len(lines))
            key, equals, _ = lines[at].partition(" = ")
            turn = chance.random()
            if turn < 0.7 and equals:
                lines[at] = f"{key} = {_toml(mutate.value(chance))}"
            elif turn < 0.8:
                lines.insert(at, f"{chance.choice(KEYS)} = {_toml(mutate.value(chance))}")
            elif turn < 0.9:
                del lines[at]
                lines = lines or [""]
            else:
                lines.insert(at, chance.choice(["[[chosen]]", "[settings]", "[a.b.c]", "chosen = 1", "[chosen]", "x = [" * 900,
                                                "a = " + "[" * 5000 + "]" * 5000, "'' = 1", "seeds = 9", "[experiment]"]))  # fmt: skip
        text = "\n".join(lines).encode("utf-8", "surrogatepass")
    (inside / "a.toml").write_bytes(text)
    words = chance.choice([
        "run --config a.toml", "run --config a.toml", f"run --config a.toml {TINY}",
        "reproduce table2 --dry-run --strengths a.toml --seeds 1 --vertices 2", "table table1 --strengths a.toml",
        f"run --config a.toml --vertex 2 --method ewc {TINY}",
    ] if chosen else ["run --config a.toml", f"run --config a.toml {TINY}", "run --config a.toml --set fisher=item"])  # fmt: skip
    return shlex.split(words), f"a.toml is {text[:2000]!r}"


KEYS = ["data", "stream", "tasks", "items", "test_share", "fraction", "angle", "task_id", "threshold", "binary",
        "flips", "size", "vertex", "interaction", "leak", "recall_leak", "memories", "spread", "loss", "exponent",
        "autoassociative", "method", "settings", "strength", "learning_rate", "decay", "momentum",
        "initial_temperature", "final_temperature", "epochs", "batch_size", "cut", "clamp", "restart", "normalise",
        "dtype", "seed", "fork", "seeds", "strengths"]  # fmt: skip


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return '"none"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


OPTIONS = ["data", "stream", "tasks", "items", "test-share", "fraction", "angle", "threshold", "flips", "size", "vertex",
           "interaction", "leak", "recall-leak", "memories", "spread", "loss", "exponent", "method", "strength",
           "learning-rate", "decay", "momentum", "initial-temperature", "final-temperature", "epochs", "batch-size",
           "cut", "clamp", "normalise", "dtype", "seeds", "strengths", "set", "config", "device", "kernel", "data-dir",
           "curve-every", "store", "processes"]  # fmt: skip
SAID = [  # values that fit some setting, beside those that fit none
    "0", "1", "2", "3", "-1", "0.5", "1.5", "1e-9", "1e9", "1e300", "1e-300", "1e308", "nan", "inf", "none", "all", "2,3",
    "2,20", "0,1,2", "1,1e6", "100000", "2000000000", "99999999999999999999", "9" * 400, "0.999999", "1e-320", "digits",
    "states", "split", "rotated", "permuted", "leaky", "rectified", "polynomial", "logistic", "squared", "gem", "agem",
    "si", "mas", "l2", "rehearsal", "pseudorehearsal", "even", "velocity", "gradient", "both", "float32", "mixed", "cpu",
    "cuda", "cuda:99", "meta", "reference", "numba", "triton", "fisher=item", "fisher=", "=1", "unit=true", "a=[1,2",
    "damping=0", "damping=1e-300", "vanilla,ewc", "ewc,ewc", "1=1]\nb=2", "{a=1}", "[[1]]", "1,,2", ",", "demo", "small",
    "memories=1e9", "items=3", "vertex=2000", "epochs=100000000", "tasks=1000", "seed=3", "method=si", "data=digits",
]  # fmt: skip


def settings(given: Path, inside: Path, chance: random.Random) -> Case:
    """A command with odd values of its options."""
    shutil.copytree(given / "mas", inside / "runs")
    shutil.rmtree(inside / "runs" / "checkpoints")
    (run,) = (p.name for p in (inside / "runs").iterdir() if RECORD.fullmatch(p.name))

    def odd() -> str:
        text = chance.choice(SAID) if chance.random() < 0.75 else str(mutate.value(chance))
        return text.replace("\0", "").replace("\ud800", "\udcff")  # what a shell can pass on

    start, options = chance.choice([
        (f"run {TINY}", OPTIONS), (f"run {TINY}", OPTIONS), (f"run {TINY} --method ewc --strength 1", OPTIONS),
        (f"run {STATES}", OPTIONS), (f"run {TINY} --method rehearsal --strength 0.5", OPTIONS),
        ("reproduce table2 --dry-run --seeds 1", ["scale", "seeds", "vertices", "rows", "strengths", "with", "with",
                                                 "dtype", "processes", "device", "kernel"]),
        (f"tune {TINY} --method ewc --vertices 2 --seeds 1 --trials 3 --batch 3",
         [*OPTIONS, "vertices", "trials", "batch", "range", "scale"]),
        (f"tune {TINY} --grid --vertices 2 --seeds 1 --rates 0.1 --temperatures 0.5",
         ["rates", "temperatures", "vertices", "seeds", "batch", "tasks"]),
        ("table scores", ["format", "score", "out", "scale", "rows", "with", "strengths"]),
        ("table table2", ["format", "score", "out", "scale", "rows", "with", "from"]),
        ("report", ["title", "networks", "out", "from"]),
        ("runs list", ["method", "vertex", "store"]), (f"runs show {run}", ["store"]),
        (f"fork {run}", ["after", "method", "strength", "set"]), ("estimate", []),
        ("info", ["x"]), ("runs prune", ["store"]),
    ])  # fmt: skip
    words = shlex.split(start)
    if start == "estimate":
        words = shlex.split(chance.choice(["reproduce", "runs show", "runs unpack", "table", "figure", "fork", "runs prune", "runs pack"])) + [odd()]
        options = ["store"]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if options:
            words += [f"--{chance.choice(options)}", odd()]
    if words[0] in ("run", "tune", "reproduce") and "--processes" not in words and words[0] != "tune" and "--dry-run" not in words:
        words += ["--processes", "1"]
    return words, ""


KINDS: dict[str, Callable[[Path, Path, random.Random], Case]] = {
    "records": records,
    "checkpoints": checkpoints,
    "archives": archives,
    "arrays": arrays,
    "toml": toml,
    "settings": settings,
}
