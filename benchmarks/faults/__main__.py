"""python -m benchmarks.faults: kill processes and feed them hostile inputs, and count what goes wrong.

    python -m benchmarks.faults                     200 kills and 20,000 inputs at the least: minutes
    python -m benchmarks.faults --quick             a twentieth of that
    python -m benchmarks.faults kills               the kills alone; inputs: the inputs alone
    python -m benchmarks.faults --only archives:17  one case again, with all that it said

A case is made from --seed, its kind and its number alone. Exit status 1 where anything went wrong.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.faults import inputs, kills, stored, warm

CASES = 9  # of a scenario of kills
BAD = {  # what can go wrong, as it is said
    "kills": ("lost", "doubled", "left behind", "differs", "error", "traceback", "hang", "died"),
    "inputs": ("traceback", "hang", "died", "outside", "left behind", "memory", "not one line", "control"),
}
EXAMPLES = 5  # of one fault


def parser() -> argparse.ArgumentParser:
    parse = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description="Kill processes and feed them hostile inputs, and count what goes wrong.",
    )
    parse.add_argument("parts", nargs="*", choices=[[], "kills", "inputs"], metavar="kills|inputs")
    parse.add_argument("--quick", action="store_true", help="a twentieth of the cases")
    parse.add_argument("--seed", type=int, default=0, help="of all chance (default 0)")
    parse.add_argument("--lanes", type=int, default=2, help="processes side by side (default 2)")
    names = [*kills.SCENARIOS, *inputs.COUNT]
    only = f"only this, or these, of {', '.join(names)}"
    parse.add_argument("--kind", action="append", default=[], choices=names, metavar="NAME", help=only)
    parse.add_argument("--only", metavar="NAME:NUMBER", help="one case, with all that it said")
    parse.add_argument("--room", type=Path, help="folder to work in, which is left as it was at the end")
    return parse


class Tally:
    """What was done and what went wrong, by kind; a fault that is new is said with how to make it again."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.done: Counter[str] = Counter()
        self.wrong: dict[str, Counter[str]] = {}
        self.seen: Counter[str] = Counter()

    def fault(self, name: str, number: int, what: str, words: Sequence[str] = (), times: int = 1) -> None:
        kind = next((b for b in (*BAD["kills"], *BAD["inputs"]) if what.startswith(b)), "error")
        self.wrong.setdefault(name, Counter())[kind] += times
        like = re.sub(r"[0-9a-f]{20}|\d+(\.\d+)?", "#", f"{name} {what}")[:120]
        self.seen[like] += 1
        if self.seen[like] <= EXAMPLES:
            print(f"  {name}: {what[:400]}", flush=True)
            if words:
                print(f"    engramma {shlex.join(words)[:200]}")
            print(f"    python -m benchmarks.faults --seed {self.seed} --only {name}:{number}", flush=True)

    def failed(self) -> int:
        return sum(sum(each.values()) for each in self.wrong.values())

    def table(self, title: str, names: Sequence[str]) -> None:
        print(f"\n{title:<18}{'done':>8}" + "".join(f"{bad:>14}" for bad in BAD[title]))
        for name in (*names, "all"):
            mine = names if name == "all" else [name]
            counts = [sum(self.wrong.get(n, Counter())[bad] for n in mine) for bad in BAD[title]]
            print(
                f"{name:<18}{sum(self.done[n] for n in mine):>8}" + "".join(f"{c or '-':>14}" for c in counts)
            )


def kill(names: Sequence[str], count: int, room: Path, lanes: int, tally: Tally, only: int | None) -> None:
    """Every scenario once in peace, then `count` cases of each."""
    began = time.monotonic()
    ready: dict[str, kills.Reference] = {}
    for name, found, died in warm.share(
        names, lambda lane: lambda n: vars(kills.prepare(n, room)), lanes, 1200
    ):
        if died:
            tally.fault(name, -1, f"error: no uninterrupted run of it ({died}, see above)")
        else:
            ready[name] = kills.Reference(**found)
    print(f"{len(ready)} scenarios run in peace, {time.monotonic() - began:.0f} s", flush=True)
    jobs = [(name, number) for number in range(count) for name in ready]
    if only is not None:
        jobs = [(name, only) for name in ready]
    signals: Counter[str] = Counter()

    def work(lane: int) -> Any:
        return lambda job: kills.case(*job, tally.seed, room, ready[job[0]])

    for (name, number), found, died in warm.share(jobs, work, lanes, 3600):
        if died:
            tally.fault(name, number, died)
            continue
        tally.done[name] += len(found["kills"])
        signals.update(found["kills"])
        for kind, each in found["faults"].items():
            more = f" and {len(each) - 1} more" if len(each) > 1 else ""
            tally.fault(name, number, f"{kind}: {each[0]}{more}", times=len(each))
        if only is not None:
            print("\n".join(found["story"]))
            for said in sorted((room / name / f"case-{number}" / "said").glob("*")):
                print(f"--- {said.name}\n{said.read_text('utf-8', 'replace')}")
    tally.table("kills", list(names))
    by_signal = ", ".join(f"{count} {name[3:]}" for name, count in sorted(signals.items()))
    print(
        f"{sum(signals.values())} kills in {len(jobs)} cases ({by_signal}), {time.monotonic() - began:.0f} s"
    )


def feed(kinds: Sequence[str], share: float, room: Path, lanes: int, tally: Tally, only: int | None) -> None:
    """Mutated inputs of each kind, one after another."""
    began = time.monotonic()
    given = room / "given"
    given.mkdir()

    def run(words: str, folder: Path) -> None:
        one = warm.start(words.split(), folder, room / "said.txt")
        if not one.wait() or one.code:
            raise RuntimeError(f"{words}: {one.said()}")

    stored.prepare(given, run)
    answers: Counter[str] = Counter()
    for kind in kinds:
        jobs = list(range(int(inputs.COUNT[kind] * share))) if only is None else [only]
        begin = inputs.make(kind, tally.seed, given, room)
        for number, found, died in warm.share(jobs, begin, lanes, inputs.LIMIT, inputs.ROOM):
            tally.done[kind] += 1
            if died:
                begun = room / f"{kind}:{number}"
                tally.fault(kind, number, died, shlex.split(begun.read_text()) if begun.exists() else ())
                continue
            answers["a result" if found["code"] == 0 else "words"] += 1
            for what in found["faults"]:
                tally.fault(kind, number, what, found["words"])
            if only is not None:
                print(
                    f"{found['what']}\n$ engramma {shlex.join(found['words'])}",
                    found["said"],
                    found["trace"],
                    sep="\n",
                )
        print(f"{kind}: {len(jobs)} inputs, {time.monotonic() - began:.0f} s", flush=True)
    tally.table("inputs", list(kinds))
    said = ", ".join(f"{count} {name}" for name, count in sorted(answers.items()))
    print(
        f"{sum(tally.done[k] for k in kinds)} inputs (answered by {said}), {time.monotonic() - began:.0f} s"
    )


@contextmanager
def workroom(given: Path | None) -> Iterator[Path]:
    """A folder to work in: in memory where there is such a thing, for every record is synced to the disk."""
    memory = Path("/dev/shm")
    if given:
        given.mkdir(parents=True, exist_ok=True)
    home = given or (memory if memory.is_dir() else None)
    room = Path(tempfile.mkdtemp(prefix="faults-", dir=home))
    try:
        yield room
    finally:
        if not given:
            shutil.rmtree(room, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    asked = parser().parse_args(arguments)
    warm.steady(arguments)
    name, _, number = (asked.only or "").partition(":")
    wanted = [name] if asked.only else asked.kind
    if asked.only and (name not in (*kills.SCENARIOS, *inputs.COUNT) or not number.isdigit()):
        parser().error(f"--only must be NAME:NUMBER, not {asked.only!r}")
    parts = set(asked.parts) or {"kills", "inputs"}
    killed = [n for n in kills.SCENARIOS if "kills" in parts and (not wanted or n in wanted)]
    fed = [n for n in inputs.COUNT if "inputs" in parts and (not wanted or n in wanted)]
    only = int(number) if asked.only else None
    warm.warm()
    tally = Tally(asked.seed)
    with workroom(asked.room) as room:
        if killed:
            kill(killed, 1 if asked.quick else CASES, room, asked.lanes, tally, only)
        if fed:
            feed(fed, 0.05 if asked.quick else 1.0, room, asked.lanes, tally, only)
    print(f"{tally.failed()} faults" if tally.failed() else "no faults")
    return 1 if tally.failed() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
