"""Kills: a command is killed at any moment, again and again, then given once more: all is as if nothing was.

A case is one folder in which a command is started several times, by one, two or three processes at once, of
which one or all are killed; the last start runs to its end. What the folder then holds is compared with what
an uninterrupted `python -m engramma` left.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults.compare import faults, held
from benchmarks.faults.warm import LIMIT, Started, start

SMALL = "--data digits --items 60 --memories 8 --tasks 3 --epochs 4"
WITH = "--with items=60 --with memories=8 --with epochs=3 --with tasks=2"
KEEP = "--keep-checkpoints"
TABLE2 = "reproduce table2 --vertices 2,5"
TUNE = f"tune {SMALL} --vertices 2"
KEPT = f"run {SMALL} --method ewc --strength 10 --seeds 3 --keep-memories"
# Python lets no signal out of a callback: what it ignores there is said, and the interruption still heard.
TRACE = re.compile(r"^(?!Exception ignored).*\nTraceback|\ATraceback", re.M)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Scenario:
    """A command, and the commands that make what it starts from."""

    words: str
    before: tuple[str, ...] = ()
    most: int = 3  # processes at once
    search: bool = False


SPLIT = "--data digits --stream split --items 100 --memories 8 --tasks 3 --epochs 4"
STATES = "--stream states --size 20 --items 4 --memories 6 --tasks 3 --epochs 10"
SCENARIOS = {
    "run-ewc": Scenario(f"run {SMALL} --method ewc --strengths 1,10 --seeds 2"),
    "run-si": Scenario(f"run {SMALL} --method si --strength 1 --seeds 2 --keep-memories"),
    "run-rehearsal": Scenario(f"run {SMALL} --method rehearsal --strength 0.5 --batch-size 16 {KEEP}"),
    "run-gem": Scenario(f"run {SMALL} --method gem --strength 0.5 --curve-every 1 --seeds 2"),
    "run-states": Scenario(f"run {STATES} --method mas --strength 1 --seeds 3"),
    "run-split": Scenario(f"run {SPLIT} --method pseudorehearsal --strength 0.5 --vertex 3"),
    "reproduce-table": Scenario(f"{TABLE2} --rows vanilla,ewc,gem@0.5 --seeds 2 {WITH}"),
    "reproduce-curves": Scenario(f"reproduce curves-ewc --seeds 1 {WITH}"),
    "reproduce-crew": Scenario(
        f"{TABLE2} --rows vanilla,ewc,l2 --seeds 1 {WITH} --with epochs=40 --processes 2", most=1
    ),
    "tune-lambda": Scenario(f"{TUNE} --method ewc --trials 13 --batch 3 --seeds 2", search=True),
    "tune-two": Scenario(f"{TUNE} --method mas,rehearsal --trials 4 --batch 2 --seeds 1", search=True),
    "tune-prune": Scenario(f"{TUNE} --method ewc --trials 6 --batch 3 --seeds 1 --prune", search=True),
    "tune-grid": Scenario(
        f"{TUNE} --grid --rates 0.05,0.1 --temperatures 0.5,0.9 --batch 2 --seeds 1", search=True
    ),
    "pack": Scenario("runs pack p.tgz", (KEPT,)),
    "unpack": Scenario("runs unpack p.tgz --store there/runs", (KEPT, "runs pack p.tgz")),
    "report": Scenario("report --out page/report.html", (KEPT,)),
}


@dataclass
class Reference:
    """What a scenario comes to when nothing happens to it."""

    touches: int  # how often the command touches a file of its folder
    seconds: float


def prepare(name: str, room: Path) -> Reference:
    """Run a scenario from a cold start, and once more from a warm one: both must come to the same."""
    scenario, place = SCENARIOS[name], room / name
    given = place / "given"
    given.mkdir(parents=True)
    for words in scenario.before:
        cold(words, given, place / "given.txt")
    shutil.copytree(given, place / "cold")
    shutil.copytree(given, place / "warm")
    cold(scenario.words, place / "cold", place / "cold.txt")
    began = time.monotonic()
    again = start(scenario.words.split(), place / "warm", place / "warm.txt", count=place / "touches")
    if not again.wait() or again.code:
        raise RuntimeError(f"{name}: the command does not end well from a warm start\n{again.said()}")
    seconds = time.monotonic() - began
    several = "--processes" in scenario.words
    if wrong := faults(held(place / "cold", several), held(place / "warm", several)):
        raise RuntimeError(f"{name}: a warm start does not come to the same as a cold one: {wrong}")
    return Reference(int((place / "touches").read_text()), seconds)


def cold(words: str, folder: Path, out: Path) -> None:
    with out.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "engramma", *words.split()],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=4 * LIMIT, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{words}: exit status {done.returncode}\n{out.read_text()}")


@dataclass(frozen=True)
class Stop:
    """A signal, before a file is touched for the `touch`-th time or, where that is 0, after a time."""

    signal: signal.Signals
    touch: int
    after: float

    def __str__(self) -> str:
        return (
            f"{self.signal.name} at touch {self.touch}"
            if self.touch
            else f"{self.signal.name} at {self.after:.3f} s"
        )


def case(name: str, number: int, seed: int, room: Path, reference: Reference) -> dict[str, Any]:
    """Kill, begin again, and so on: {"kills": {signal: count}, "faults": {kind: [what]}, "story": [...]}."""
    chance = random.Random(f"{seed} {name} {number}")
    scenario, place = SCENARIOS[name], room / name / f"case-{number}"
    folder, outs = place / "folder", place / "said"
    shutil.copytree(room / name / "given", folder)
    outs.mkdir()
    kills: list[str] = []
    story: list[str] = []
    wrong: dict[str, list[str]] = {}

    def say(kind: str, what: str) -> None:
        wrong.setdefault(kind, []).append(what)

    def ended(each: Started, which: str, stop: Stop | None = None) -> None:
        if not each.wait():
            say("hang", which)
        elif stop and each.code in (-stop.signal, 130 if stop.signal == signal.SIGINT else -stop.signal):
            kills.append(stop.signal.name)
        elif each.code:
            say("error", f"{which}: {_last(each)}")
        if TRACE.search(each.said()):
            say("traceback", f"{which}: {_last(each)}")

    most = 1
    for turn in range(1, chance.choice([1, 1, 2, 2, 3, 4]) + 1):
        count = chance.choice(range(1, scenario.most + 1))
        most = max(most, count)
        killed = count if chance.random() < 0.6 else 1  # the others go on
        stops = [_stop(chance, reference) for _ in range(killed)]
        story.append(f"start {turn}: {count} at once, {', '.join(map(str, stops))}")
        begun = []
        for k in range(count):
            touch = (stops[k].touch, int(stops[k].signal)) if k < killed and stops[k].touch else None
            begun.append(start(scenario.words.split(), folder, outs / f"{turn}-{k}.txt", touch))
        _at_times([(each.began + stop.after, stop.signal, each)
                   for each, stop in zip(begun, stops, strict=False) if not stop.touch])  # fmt: skip
        for k, each in enumerate(begun):
            ended(each, f"start {turn}, process {k + 1}", stops[k] if k < killed else None)
    ended(start(scenario.words.split(), folder, outs / "last.txt"), "the last start")
    several = most > 1 or "--processes" in scenario.words
    wanted, got = held(room / name / "cold", several), held(folder, several)
    for kind, what in faults(wanted, got, several and scenario.search).items():
        wrong.setdefault(kind, []).extend(what)
    if not wrong:
        shutil.rmtree(place)
    return {"kills": kills, "faults": wrong, "story": story}


def _stop(chance: random.Random, reference: Reference) -> Stop:
    which, at_file = chance.choice(SIGNALS), chance.random() < 0.7
    touch, after = chance.randint(1, reference.touches), chance.uniform(0, 1.1 * reference.seconds)
    return Stop(which, touch if at_file else 0, after)


def _at_times(due: list[tuple[float, signal.Signals, Started]]) -> None:
    for at, number, each in sorted(due, key=lambda one: one[0]):
        while time.monotonic() < at and not each.poll():
            time.sleep(min(0.002, max(0.0, at - time.monotonic())))
        each.kill(number)


def _last(each: Started) -> str:
    lines = [line for line in each.said().splitlines() if line.strip()]
    return f"status {each.code}: {lines[-1][:300] if lines else 'nothing said'}"
