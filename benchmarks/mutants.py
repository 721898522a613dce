"""Mutation testing: small faults put into the sources, one at a time, to see whether the tests notice.

    make mutants                    the sample that mutants.toml says; stopped and started again, it goes on
    make mutants ARGS=--again       those that survived, once more, after the tests were mended

The operators are cosmic-ray's, and one that leaves a statement out. Every place where one applies gets a
number by hashing the seed with what stands there, and those with the smallest numbers are the sample: it
stays as it is when code elsewhere changes and when modules move, and a larger sample holds the smaller. The
sources are changed in copies of the tree under .mutants/, where what was found is kept too. A mutant is
caught where a test of its module fails, or hangs.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names
from parso.python.tree import Keyword

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".mutants"
RESULT = ROOT / "benchmarks" / "results" / "mutants.json"
PATIENCE = 60, 3  # seconds, and times what the tests take by themselves: beyond, they hang
MEMORY = 12 << 20  # kilobytes that the tests of a mutant may take
KINSHIP = ("Add Sub Mul Div FloorDiv Mod Pow", "BitOr BitAnd BitXor LShift RShift")  # one for another alone


class LeaveOut(Operator):
    """A call, return, raise, deletion, or assignment to what exists already, replaced by `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and self._does_something(node.children[0]):
            yield node.start_pos, node.end_pos

    @staticmethod
    def _does_something(statement: Any) -> bool:
        if statement.type == "expr_stmt":
            target, sign = statement.children[:2]
            return target.type == "atom_expr" or getattr(sign, "value", "=") != "="
        return statement.type in ("atom_expr", "return_stmt", "raise_stmt", "del_stmt")

    def mutate(self, node: Any, index: int) -> Any:
        first = node.get_first_leaf()
        node.children[0] = Keyword("pass", first.start_pos, first.prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def operators() -> dict[str, Operator]:
    """By name. Left out: `is` for `==`, which of small numbers and names is the same by chance, and
    arithmetic for logic, which is hardly ever more than a TypeError."""
    found: dict[str, Operator] = {"LeaveOut": LeaveOut()}
    for name in operator_names():
        made, (kind, *parts) = get_operator(name), name.removeprefix("core/").split("_")
        kin = kind != "ReplaceBinaryOperator" or any(set(parts) <= set(each.split()) for each in KINSHIP)
        if not made.arguments() and kin and parts[-1:] not in (["Is"], ["IsNot"]):
            found["_".join((kind, *parts))] = made()
    return found


@dataclass(frozen=True)
class Place:
    """Where an operator applies."""

    rank: str  # hash of the seed and of what stands there: the smallest are the sample
    module: str
    line: int
    where: str  # function or class
    operator: Operator
    occurrence: int


@dataclass(frozen=True)
class Mutant:
    place: Place
    source: str  # of the module
    text: str  # with the fault in it
    diff: list[str]

    def __str__(self) -> str:
        head = f"{path_of(self.place.module, Path())}:{self.place.line} in {self.place.where}"
        return "\n    ".join([head, *self.diff])


def path_of(module: str, root: Path = ROOT) -> Path:
    path = Path("src", *module.split("."))
    return root / path / "__init__.py" if (ROOT / path).is_dir() else root / path.with_suffix(".py")


def places(module: str, seed: int, known: dict[str, Operator], met: Counter[str]) -> list[Place]:
    """Every place of a module where an operator applies; of those of one kind at one spot, one."""
    source = path_of(module).read_text()
    lines, nodes = source.splitlines(), list(ast_nodes(get_ast(source)))
    found: dict[tuple[str, int, int], Place] = {}
    for name, operator in known.items():
        spots = [(node, *spot[0]) for node in nodes for spot in operator.mutation_positions(node)]
        for occurrence, (node, line, column) in enumerate(spots):
            text, where = lines[line - 1].strip(), _where(node)
            if "TYPE_CHECKING" in text or text.startswith("assert ") or _annotates(node):
                continue  # for those who check types
            said = f"{seed} {name} {where} {column - lines[line - 1].index(text)} {text}"
            met[said] += 1
            rank = hashlib.sha256(f"{said} {met[said]}".encode()).hexdigest()[:16]
            spot, fresh = (name[:16], line, column), Place(rank, module, line, where, operator, occurrence)
            found[spot] = min(found.get(spot, fresh), fresh, key=lambda p: p.rank)
    return list(found.values())


def _annotates(node: Any) -> bool:
    """Whether it stands in an annotation, which nothing evaluates."""
    while above := node.parent:
        if above.type == "tfpdef" or (above.type == "annassign" and node is above.children[1]):
            return True
        if above.type == "funcdef" and node is above.annotation:
            return True
        node = above
    return False


def _where(node: Any) -> str:
    names = []
    while node := node.parent:
        if node.type in ("funcdef", "classdef"):
            names.append(node.name.value)
    return ".".join(reversed(names)) or "module"


def mutant(place: Place) -> Mutant | None:
    """The mutant of a place; None for what is no Python, or the same."""
    source = path_of(place.module).read_text()
    text = mutate_code(source, place.operator, place.occurrence) or source
    try:
        compile(text, place.module, "exec")
    except SyntaxError:
        return None
    lines = list(difflib.unified_diff(source.splitlines(), text.splitlines(), n=0, lineterm=""))[2:]
    diff = [line for line in lines if line[0] in "+-" and line[1:].strip()]
    return Mutant(place, source, text, diff) if diff else None


def sample(table: dict[str, Any]) -> tuple[list[Mutant], int]:
    """The mutants to be tried, in the order of their ranks, and how many places there are."""
    known, met = operators(), Counter[str]()
    every = [p for module in table["tests"] for p in places(module, table["seed"], known, met)]
    chosen: list[Mutant] = []
    for place in sorted(every, key=lambda p: p.rank):
        if len(chosen) < table["number"] and (made := mutant(place)):
            chosen.append(made)
    return chosen, len(every)


class Log:
    """What was found, a line of JSON each, a later one in place of an earlier one of the same key."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        told = path.read_text().splitlines() if path.is_file() else []
        self.rows = {row["key"]: row for row in map(json.loads, told)}

    def add(self, key: str, **row: Any) -> None:
        with self._lock, self.path.open("a") as file:
            self.rows[key] = {"key": key, **row}
            file.write(json.dumps(self.rows[key]) + "\n")


class Copy:
    """A copy of the tree, in which tests run."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self.python = folder, python
        shutil.rmtree(folder, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)  # with its time: numba's cache goes by it

    def put(self, module: str, text: str) -> None:
        path = path_of(module, self.folder)
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()  # Python would go by the size, and the time in seconds

    def test(self, files: list[str], limit: float | None = None) -> dict[str, Any]:
        """Run test files until a test fails: how it ended, at which test, after how many seconds."""
        options = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "mutants")
        command = [self.python, "-m", "pytest", *options, "--basetemp", f"{self.folder}.tmp", *files]
        places = {"PYTHONPATH": str(self.folder / "src"), "NUMBA_CACHE_DIR": str(FOLDER / "numba")}
        began = time.perf_counter()
        process = subprocess.Popen(
            ["sh", "-c", f'ulimit -d {MEMORY}; exec "$@"', "sh", *command],
            cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1", **places}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        result, said = "hung", ""
        try:
            said = process.communicate(timeout=limit)[0]
            result = "failed" if process.returncode else "passed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        named = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        by = (named or said.splitlines()[-1:] or [""])[0] if result == "failed" else ""
        return {"result": result, "by": by[:200], "seconds": round(time.perf_counter() - began, 1)}


def reason(m: Mutant, table: dict[str, Any]) -> str:
    """Why a mutant does the same as the original, where mutants.toml says so."""
    was, now = (" ".join(line[1:].strip() for line in m.diff if line[0] == sign) for sign in "-+")
    for each in table.get("equivalent", ()):
        if (each["in"], each["was"], each["now"]) == (m.place.where, was, now):
            return each["why"]
    return ""


def report(mutants: list[Mutant], count: int, table: dict[str, Any], log: Log) -> None:
    """Print what survived, and write all of it to benchmarks/results/."""
    tried = [m for m in mutants if m.place.rank in log.rows]
    survived = [m for m in tried if log.rows[m.place.rank]["result"] == "passed"]
    unlike = [m for m in survived if not reason(m, table)]
    alike = [{"mutant": str(m).splitlines(), "why": w} for m in survived if (w := reason(m, table))]
    every, left = (Counter(m.place.module for m in some) for some in (tried, unlike))
    for each in sorted(map(str, unlike)):
        print(each)
    share = 1 - len(unlike) / max(len(tried), 1)
    print(f"{len(tried)} of {count} places: {len(tried) - len(survived)} caught, {len(alike)} equivalent, "
          f"{len(unlike)} survived: {share:.1%} caught or equivalent")  # fmt: skip
    told = {
        "command": "make mutants", "seed": table["seed"], "places": count, "mutants": len(tried),
        "hung": sum(log.rows[m.place.rank]["result"] == "hung" for m in tried),
        "equivalent": len(alike), "survived": len(unlike), "caught_or_equivalent": round(share, 4),
        "modules": {name: {"mutants": every[name], "survived": left[name]} for name in sorted(every)},
        "survivors": [str(m).splitlines() for m in unlike], "equivalents": alike,
    }  # fmt: skip
    RESULT.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    print(f"-> {RESULT.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, help="how many, in place of the table's")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--python", default=str(ROOT / ".venv" / "bin" / "python"), help="that runs the tests"
    )
    parser.add_argument("--only", nargs="+", metavar="MODULE", help="of the sample, the mutants in these")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    parser.add_argument("--list", action="store_true", help="show the sample, and try nothing")
    told = parser.parse_args()
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    table["number"] = told.number or table["number"]
    mutants, count = sample(table)
    chosen = [m for m in mutants if not told.only or m.place.module in told.only]
    if told.list:
        print(*chosen, sep="\n")
        return 0
    FOLDER.mkdir(exist_ok=True)
    log, copies = Log(FOLDER / "log.jsonl"), queue.SimpleQueue[Copy]()
    for number in range(told.workers):
        copies.put(Copy(FOLDER / f"tree{number}", os.path.abspath(told.python)))

    def alone(file: str) -> None:
        """What a file of tests takes without any fault."""
        copy = copies.get()
        try:
            found = copy.test([file])
            if found["result"] != "passed":
                raise RuntimeError(f"{file} fails without any mutant: {found['by']}")
            log.add(file, **found)
        finally:
            copies.put(copy)

    def cost(m: Mutant) -> float:
        return sum(log.rows[file]["seconds"] for file in table["tests"][m.place.module])

    def trial(m: Mutant) -> None:
        copy, place = copies.get(), m.place
        try:
            files = sorted(table["tests"][place.module], key=lambda file: log.rows[file]["seconds"])
            copy.put(place.module, m.text)
            found = copy.test(files, PATIENCE[0] + PATIENCE[1] * cost(m))
            log.add(place.rank, **found, mutant=str(m))
            print(found["result"], f"{place.module}:{place.line}", found["by"], flush=True)
        finally:
            copy.put(place.module, m.source)
            copies.put(copy)

    def open_to_trial(m: Mutant) -> bool:
        row = log.rows.get(m.place.rank)
        return row is None or (told.again and row["result"] == "passed" and not reason(m, table))

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stopped = ""
    with ThreadPoolExecutor(told.workers) as pool:
        try:
            list(
                pool.map(alone, {f for m in chosen for f in table["tests"][m.place.module]} - log.rows.keys())
            )
            list(pool.map(trial, sorted(filter(open_to_trial, chosen), key=cost)))
        except (KeyboardInterrupt, RuntimeError) as error:
            stopped = str(error) or "stopped: started again, it goes on from here"
            pool.shutdown(cancel_futures=True)  # those under way come to their end first
    report(mutants, count, table, log)
    if stopped:
        print(stopped, file=sys.stderr)
    return int(bool(stopped))


if __name__ == "__main__":
    sys.exit(main())
