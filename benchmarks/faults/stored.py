"""Valid inputs, and hostile ones among what is stored: records and checkpoints."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load

from benchmarks.faults import mutate

TINY = "--data digits --items 20 --memories 3 --tasks 3 --epochs 2"
WITH = "--with items=20 --with memories=3 --with tasks=3 --with epochs=2"
STATES = "--stream states --size 6 --items 2 --memories 2 --tasks 3 --epochs 2"
WORDS = {  # what makes the valid inputs; each ends in the store of its name
    "records": f"run {TINY} --method ewc --strength 10 --keep-memories",
    "ewc": f"run {TINY} --method ewc --strength 10 --keep-memories --seeds 2 --store ewc",
    "si": f"run {STATES} --method si --strength 1 --keep-checkpoints --store si",
    "gem": f"run {STATES} --method gem --strength 0.5 --keep-checkpoints --seeds 2 --store gem",
    "pseudorehearsal": f"run {TINY} --method pseudorehearsal --strength 0.5 --keep-checkpoints "
    "--store pseudorehearsal",
    "mas": f"run {TINY} --method mas --strength 1 --keep-checkpoints --keep-memories --store mas",
    "allocation": f"run {TINY} --method allocation --keep-checkpoints --keep-memories --store allocation",
    "xdg": f"run {TINY} --method xdg --strength 1 --set beside=ewc_moments --keep-checkpoints --store xdg",
    "dreams": f"run {TINY} --method dreams --keep-checkpoints --store dreams",
}
SUMS = "SHA256SUMS"
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
    with tarfile.open(given / "much.tgz", "w:gz", compresslevel=1) as tar:  # much out of little
        for number in range(5):
            member = tarfile.TarInfo(f"{number:020}/arrays.safetensors")
            member.size = 300 * 2**20
            with open("/dev/zero", "rb") as zeros:
                tar.addfile(member, zeros)


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
            part = chance.choice(
                [None, "description", "description", "facts", "scores", "curves", "diverged"]
            )
            if not isinstance(head, dict) or part not in head:
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
    again = WORDS["ewc"].replace("--store ewc", "")
    dry = f"reproduce table2 --rows ewc --vertices 2 --seeds 2 --dry-run {WITH}"
    words = chance.choice([
        "runs list", "runs list --method ewc", f"runs show {name}", f"runs show {name}", "runs verify",
        "table scores", "table table2", "table ewc", "table scores --format csv",
        "table scores --format latex",
        "report --networks 2", "report --networks 0", "runs pack a.tgz", again, "runs prune --dry-run",
        f"runs prune {name}", "figure memories", "figure tasks", f"fork {name} --after 1", dry,
    ])  # fmt: skip
    if words.startswith("figure") and chance.random() < 0.9:  # drawing takes long
        words = f"runs show {name}"
    return shlex.split(words), what


def checkpoints(given: Path, inside: Path, chance: random.Random) -> Case:
    """A run that was broken off, or kept its checkpoints, and an odd one among them."""
    method = chance.choice(
        ["si", "si", "gem", "gem", "pseudorehearsal", "mas", "allocation", "xdg", "dreams"]
    )
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
    prune = f"runs prune --store {method}"
    words = chance.choice([*[again] * 4, f"{again} --keep-memories", prune, f"{prune} --checkpoints", "fork"])
    runs = [p for p in store.iterdir() if RECORD.fullmatch(p.name)]
    if words == "fork":
        words = f"fork {runs[0].name} --after {chance.choice([1, 2])} --store {method}"
        words += chance.choice(["", " --method l2 --strength 1", " --method gem --strength 0.5",
                                " --method xdg --strength 1", " --method dreams"])  # fmt: skip
    elif words.startswith("run "):
        for run in runs if chance.random() < 0.9 else runs[:1]:
            shutil.rmtree(run)
    return shlex.split(words), f"stage {place.name} of {method}: {what}"


def _shapes(before: bytes, after: bytes) -> str:
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
