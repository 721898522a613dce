"""Mutated inputs: whatever a file or a setting says, the command line answers with a result or in one line.

Every case is a command given in the process itself, in a folder of its own, on one mutated input. Nothing may
be raised but what the command line turns into words; nothing may be written outside the folder, run or
imported; nothing may take longer than LIMIT seconds or ROOM bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

import engramma
from benchmarks.faults import stored
from benchmarks.faults.asked import settings, toml
from benchmarks.faults.sent import archives, arrays
from benchmarks.faults.stored import Case, checkpoints, records
from benchmarks.faults.warm import memory
from engramma.cli import app
from engramma.runs import study

LIMIT = 60.0  # seconds of one case; an honest one takes a hundredth of a second
ROOM = 2**30  # bytes that one case may add to the process
LONG = 2e7  # multiplications of a run that is trained; of a longer one it is enough that it would be
MANY = 50  # packs, likewise: of a search with very many trials
MOST = 2000  # runs, likewise: each has a record to be written
COUNT = {
    "records": 6000,
    "checkpoints": 3500,
    "archives": 4000,
    "arrays": 2500,
    "toml": 3000,
    "settings": 3000,
}

KINDS: dict[str, Callable[[Path, Path, random.Random], Case]] = {
    "records": records,
    "checkpoints": checkpoints,
    "archives": archives,
    "arrays": arrays,
    "toml": toml,
    "settings": settings,
}
UNPACKED = re.compile(  # all that may be there when an archive has been
    r"a\.tgz|runs|runs/(claims|claims/guard|checkpoints|set-aside.*)"
    r"|runs/[0-9a-f]{20}(/(record\.json|(arrays|memories)\.safetensors|SHA256SUMS))?"
)

# What no file and no setting has a reason to do.
RUNS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class",
        "socket.connect", "ctypes.dlopen", "webbrowser.open"}  # fmt: skip
CACHE = ("numba.", "numpy", "copyreg", "builtins")  # of compiled loops that numba keeps
COMPILED = [str(Path(p).resolve()) + os.sep for p in [os.environ.get("NUMBA_CACHE_DIR")] if p]  # and where
WRITES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
          "os.chmod", "os.chown", "os.utime", "shutil.rmtree", "shutil.copyfile", "shutil.move",
          "sqlite3.connect"}  # fmt: skip
TWO = ("os.rename", "os.link", "shutil.move", "shutil.copyfile")  # paths that they are given
ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a terminal may act on them


PACKAGE = str(Path(engramma.__file__).parent)
COMMAND = typer.main.get_command(app)  # made anew at every call of the app


class Enough(BaseException):
    """A run that would take long has begun: its settings were taken."""


def make(kind: str, seed: int, given: Path, room: Path) -> Callable[[int], Callable[[int], dict[str, Any]]]:
    """What does one case of a kind, in a process of its own."""

    def begin(lane: int) -> Callable[[int], dict[str, Any]]:
        home = (room / f"{kind}-{lane}").resolve()
        shutil.rmtree(home, ignore_errors=True)
        inside = home / "outer" / "inside"
        (home / "outer").mkdir(parents=True)
        watch = Watch(inside)
        anew = _short_runs()
        # Once through, so that what is imported and compiled late is not the first case's.
        inside.mkdir()
        os.chdir(inside)
        tempfile.tempdir = str(inside)
        shutil.copytree(given, inside, dirs_exist_ok=True)
        with watch:
            for words in (
                stored.WORDS["records"],
                "report --from ewc --out r.html",
                "table scores --from ewc",
            ):
                _answer(shlex.split(words))
        base = memory("VmRSS")

        def one(number: int) -> dict[str, Any]:
            chance = random.Random(f"{seed} {kind} {number}")
            _clear(inside)
            words, what = KINDS[kind](given, inside, chance)
            begun = room / f"{kind}:{number}"  # for whoever finds this process dead
            begun.write_text(shlex.join(words), errors="backslashreplace")
            before = _outside(home, inside)
            anew()
            with watch:
                fault, code, said, trace = _answer(words)
            found = [fault] if fault else []
            found += [f"outside: {event}" for event in watch.seen]
            if (after := _outside(home, inside)) != before:
                found.append(f"outside: {sorted(after ^ before)[:3]}")
            found += [f"left behind: {left}" for left in _left(kind, inside)]
            if (peak := memory("VmHWM") - base) > ROOM:
                found.append(f"memory: {peak / 2**20:.0f} MiB")
                Path("/proc/self/clear_refs").write_text("5")  # the next case is measured from here
            begun.unlink()
            return {"faults": found, "what": what, "words": words, "code": code, "said": said, "trace": trace}

        return one

    return begin


def _short_runs() -> Callable[[], None]:
    """Runs that would take long, one or all of a case, are not trained; the others are in this process.
    What it gives is to be called when a case begins."""
    true, crew = study.run_pack, study.crew
    packs: list[tuple[float, int]] = []  # (work, runs) of each, of this case

    def brief(pack: Any, *given: Any, **options: Any) -> Any:
        packs.append((sum(map(study.total_work, pack)), len(pack)))
        work, runs = map(sum, zip(*packs, strict=True))
        if work > LONG or runs > MOST or len(packs) > MANY or any(e.epochs * e.tasks > 200 for e in pack):
            raise Enough
        return true(pack, *given, **options)

    def alone(size: int, *given: Any, **options: Any) -> Any:
        """No further processes: nothing that they do would be seen. This one does their share."""
        del size
        return crew(0, *given, **options)

    study.run_pack, study.crew = brief, alone
    return packs.clear


class Watch:
    """Refuses, while it is entered, whatever writes outside a folder or runs anything, and takes note of it.

    An operation is announced before it is done: raising here is what keeps it from being done.
    """

    def __init__(self, inside: Path) -> None:
        self.home, self.seen, self.on = str(inside), [], False
        sys.addaudithook(self._hear)

    def __enter__(self) -> Watch:
        self.seen, self.on = [], True
        return self

    def __exit__(self, *_: object) -> None:
        self.on = False

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in RUNS and not (event == "pickle.find_class" and given[0].startswith(CACHE)):
            self._refuse(f"{event} {str(given)[:100]}")
        elif event == "import" and given[0] in ("antigravity", "this"):
            self._refuse(f"import {given[0]}")
        elif event == "open":
            path, _, flags = given
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                self._check(event, path)
        elif event in WRITES:
            paths = given[1:2] if event == "os.symlink" else given[:2] if event in TWO else given[:1]
            for path in paths:
                self._check(event, path)

    def _check(self, event: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.abspath(os.fsdecode(path))
        kept = name == self.home or name.startswith((self.home + os.sep, "/dev/", *COMPILED))
        if not kept and "__pycache__" not in name:
            self._refuse(f"{event} {name}")

    def _refuse(self, what: str) -> None:
        self.seen.append(what)
        raise PermissionError(f"refused: {what}")


def _clear(inside: Path) -> None:
    for path in inside.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _outside(home: Path, inside: Path) -> set[str]:
    found = set()
    for folder, names, files in os.walk(home):
        if Path(folder) == inside.parent:
            names.remove(inside.name)
        found |= {os.path.join(folder, name) for name in (*names, *files)}
    return found


def _left(kind: str, inside: Path) -> Iterator[str]:
    """What no command leaves: half-written files, and links and strangers out of an archive."""
    for folder, names, files in os.walk(inside):
        for name in (*names, *files):
            path = Path(folder) / name
            if name.startswith((".tmp-", "unpack-")) or name.endswith((".lock", ".owner", ".probe", ".part")):
                yield str(path.relative_to(inside))
            elif path.is_symlink():
                yield f"a link, {path.relative_to(inside)}"
    if kind == "archives":
        for path in inside.rglob("*"):
            if not UNPACKED.fullmatch(str(path.relative_to(inside))):
                yield str(path.relative_to(inside))


def _answer(words: list[str]) -> tuple[str, int, str, str]:
    """(what is wrong with the answer, exit status, what was said, traceback)."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors=e) for e in ("strict", "backslashreplace"))
    fault, code, trace = "", 0, ""
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            COMMAND(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Enough:
        pass
    except BaseException as error:
        fault, code, trace = "traceback: " + _where(error), 1, traceback.format_exc()
    said = []
    for each in (out, err):
        with contextlib.suppress(Exception):
            each.flush()
        said.append(each.buffer.getvalue().decode("utf-8", "replace"))
    text = "\n".join(said)
    if not fault and (odd := ODD.search(text)):
        at = max(0, odd.start() - 30)
        fault = f"control character: {text[at : odd.end() + 20]!r}"
    if not fault and code not in (0, 2) and not (code == 1 and words[:2] == ["runs", "verify"]):
        fault = f"not one line: exit status {code}"
    if not fault and code == 2:
        lines = [line for line in said[1].splitlines() if line.strip()]
        usage = any(line.startswith("Usage:") for line in lines)
        if not usage and not (
            lines and lines[-1].startswith("engramma: ") and len(lines[-1]) < 5000 + len(" ".join(words))
        ):
            fault = f"not one line: {lines[-1][:200] if lines else 'nothing said'}"
        elif "MemoryError" in text:
            fault = "memory: MemoryError"
    return fault, code, text[-20_000:], trace


def _where(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} in {place}: {' '.join(str(error).split())[:200]}"
