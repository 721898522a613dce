"""Hostile inputs that a person gives: settings in files and on the command line."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from pathlib import Path
from typing import Any

from benchmarks.faults import mutate
from benchmarks.faults.stored import RECORD, STATES, TINY, Case

SMALL = "0 1e-320 1e-300 1e-39 1e-9 0.001 0.5 1 1.5 2 100 1e9 1e39 1e155 1e300 1.7e308 -1 none"
COUNTED = "0 1 2 3 7 20 1000 1001 1798 100000 2000000000 9223372036854775807 9223372036854775808 1.0 -1"


def _table(text: str) -> dict[str, list[str]]:
    """{option: values} of lines that begin with the option."""
    lines = (line.split() for line in text.strip().splitlines())
    sets = {"SMALL": SMALL.split(), "COUNTED": COUNTED.split()}
    found: dict[str, list[str]] = {}
    for option, *values in lines:
        found.setdefault(option, []).extend(each for value in values for each in sets.get(value, [value]))
    return found


# Values at the ends of what is allowed, and beyond.
OPTIONS = _table("""
data                 mnist digits states own.npz nowhere.npz chosen.toml
stream               permuted rotated split states
tasks                COUNTED
items                COUNTED
test-share           0 1e-9 0.01 0.5 0.99 0.999999 1
fraction             0 1e-9 0.5 1 1.1
angle                SMALL 90 360 -1e300
threshold            SMALL -1e300 255
flips                COUNTED
size                 COUNTED
vertex               SMALL 20 200 2000
interaction          leaky rectified polynomial
leak                 SMALL -1e300
recall-leak          SMALL
memories             COUNTED
spread               SMALL
loss                 squared logistic
method               vanilla l2 ewc mas si gem agem rehearsal pseudorehearsal allocation
method               ewc_moments mas_moments si_moments der lwf xdg dreams
method               os:system json:loads x:y engramma.methods:EWC
strength             SMALL
learning-rate        SMALL
decay                0 1e-300 1e-9 0.5 1 1.1
momentum             0 0.5 0.999999999 1
initial-temperature  SMALL
final-temperature    SMALL
epochs               COUNTED
batch-size           COUNTED all none
clamp                SMALL
normalise            mean velocity gradient both
dtype                float64 float32 mixed
seeds                COUNTED 0,1 5,5 9223372036854775807, 9223372036854775808,1
strengths            0,1 1e300,1e-300 none 1, nan,1
set                  fisher=item fisher=batch fisher= =1 unit=true unit=1 damping=0 damping=1e-300
set                  damping=1e300
set                  a=[1,2 strength=1 proportion=0.5 fisher=[[1]] pool=1e9 items=0 refresh=0
set                  groups=2 groups=0 groups=1e9 grow=true wake=id begin=noise begin=nearest boundaries=found
set                  alarm=1e-300 alarm=1e30 beside=ewc beside=gem beside_strength=1 share=0.5 share=1e-300
set                  of=memories of=nobody label=0 label=1 label=2 noise=1e-300 noise=1e30 noise=0
set                  alpha=0 alpha=1e30 beta=1e30 beta=1e-300 capacity=1 capacity=1e30 sweep=1 merge=online
config               run.toml chosen.toml own.npz .
device               cpu auto cuda cuda:99 meta mps
kernel               auto reference numba triton
data-dir             . nowhere own.npz
curve-every          COUNTED
store                . there runs/claims own.npz nowhere/deep/er
processes            1 -1 x
""")
OTHER = _table("""
scale         demo small paper
vertices      2 2,20 2,2 1e300 3 0 nan
trials        COUNTED
batch         COUNTED
range         1,1e6 1,1 1e-320,1e308 0,1 -1,1 1e308,1e309 2,1 1e-300,1e300
rates         0.1 0.1,0.1 1e300 0 1e-320 nan
temperatures  0.5 0.5,1e300 1e-320 0
rows          vanilla,ewc ewc gem@0.5 all , vanilla,vanilla
with          memories=1e9 memories=1000000000 items=3 items=1797 vertex=2000 epochs=1000000000 tasks=1000
with          seed=3 method=si data=digits dtype=mixed strength=1 batch_size=none settings=1 fork=1 a
format        md latex csv rich
score         accuracy macro_f1 recalled none
out           x.md x.csv . there/x.tex there/x.html own.npz/x
title         x
networks      COUNTED
from          runs . nowhere own.npz
after         0 1 2 3 -1 1000000 x
strengths     chosen.toml run.toml own.npz
""")
NAMED = "reproduce ?|runs show ?|runs unpack ?|table ?|figure ?|fork ? --after 1|runs prune ?|runs pack ?|" \
        "report --title ?|runs list --method ?|info ?"  # fmt: skip
SAID = [*{text for table in (OPTIONS, OTHER) for values in table.values() for text in values}]
SAID = [*sorted(SAID), "99999999999999999999", "9" * 400, "1=1]\nb=2", "{a=1}", "[[1]]", "1,,2", ","]
OWN = (
    "task_id",
    "binary",
    "autoassociative",
    "restart",
    "settings",
    "seed",
    "fork",
)  # in a file, with others
KEYS = [*(option.replace("-", "_") for option in OPTIONS), *OWN]
LINES = ("[[chosen]]", "[settings]", "[a.b.c]", "chosen = 1", "[chosen]", "x = [" * 900, "'' = 1",
         "seeds = 9", "a = " + "[" * 5000 + "]" * 5000, "[experiment]")  # fmt: skip


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
                lines.insert(at, chance.choice(LINES))
        text = "\n".join(lines).encode("utf-8", "surrogatepass")
    (inside / "a.toml").write_bytes(text)
    words = ["run --config a.toml", f"run --config a.toml {TINY}"]
    if chosen:
        dry = "reproduce table2 --dry-run --seeds 1 --vertices 2 --strengths a.toml"
        words += [dry, "table table1 --strengths a.toml", f"{words[1]} --vertex 2 --method ewc"]
    words = chance.choice(words)
    return shlex.split(words), f"a.toml is {text[:2000]!r}"


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


def settings(given: Path, inside: Path, chance: random.Random) -> Case:
    """A command with odd values of its options."""
    shutil.copytree(given / "mas", inside / "runs")
    shutil.rmtree(inside / "runs" / "checkpoints")
    for name in ("own.npz", "run.toml", "chosen.toml"):
        shutil.copy(given / name, inside)
    (run,) = (p.name for p in (inside / "runs").iterdir() if RECORD.fullmatch(p.name))
    often = ["tasks", "items", "memories", "vertex", "learning-rate", "strength", "initial-temperature"]
    search = "tune --vertices 2 --seeds 1"
    start, options = chance.choice([
        *((f"run {TINY}{more}", [*OPTIONS, *often]) for more in ("", "", " --method ewc --strength 1",
                                                                 " --method rehearsal --strength 0.5") * 4),
        *((f"run {STATES}{more}", [*OPTIONS, *often]) for more in ("", " --method gem --strength 1") * 4),
        *((f"run {each} --method {method}", [*OPTIONS, *often, "set", "set", "set"])
          for each in (TINY, STATES)
          for method in ("allocation", "xdg --strength 1", "dreams", "lwf --strength 1", "der",
                         "ewc_moments --strength 1")),
        *((f"{search} {TINY} --method ewc --trials 3 --batch 3",
           [*OPTIONS, "vertices", "trials", "batch", "range", "scale"]),
          (f"{search} {TINY} --grid --rates 0.1 --temperatures 0.5",
           ["rates", "temperatures", "vertices", "seeds", "batch", "tasks"]),
          ("reproduce table2 --dry-run --seeds 1",
           ["scale", "seeds", "vertices", "rows", "strengths", "with", "with", "dtype",
            "processes", "device", "kernel"])) * 2,
        ("table scores", ["format", "score", "out", "scale", "rows", "with", "strengths", "from"]),
        ("table table2", ["format", "score", "out", "scale", "rows", "with", "from"]),
        ("report", ["title", "networks", "out", "from"]), ("runs list", ["method", "vertex", "store"]),
        (f"runs show {run}", ["store"]), (f"fork {run}", ["after", "method", "strength", "set"]),
        (chance.choice(NAMED.split("|")), []),
    ])  # fmt: skip

    def odd(option: str = "") -> str:
        likely = OPTIONS | OTHER if start.startswith(("table", "reproduce")) else OTHER | OPTIONS
        if option and chance.random() < 0.8:
            return chance.choice(likely[option])
        text = chance.choice(SAID) if chance.random() < 0.5 else str(mutate.value(chance))
        if text.startswith("/") or ".." in text:  # a person may name any place, and is obeyed: not here
            text = "a/place"
        return text.replace("\0", "").replace("\ud800", "\udcff")  # what a shell can pass on

    words = [odd() if word == "?" else word for word in shlex.split(start)]
    for _ in range(chance.choice([1, 1, 1, 2, 3]) if options else 0):
        option = chance.choice(options)
        words += [f"--{option}", odd(option)]
    return words, ""
