"""Claims: which process works on which run, so that several on one store share the work.

A claim is a file made with O_EXCL, which one process alone can do, on a shared folder too. It names its
owner; the owner keeps a file of its own fresh. A dead owner loses its claims: at once where its process
can be looked up, else when its file has not been touched for a while. Should two ever do the same run,
nothing is harmed: their records are equal and the second rename gives way.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

BEAT = 15.0  # seconds between two signs of life
DEAD = 120.0  # without one for so long an owner elsewhere is taken for dead
LEFT = 86400.0  # untouched for so long, what has no owner's file is taken for left behind elsewhere
TAKING = 5.0  # seconds between the making of a claim and the writing of its owner's name, at most
_number = itertools.count()


def _machine() -> str:
    """Processes that see each other's ids: one host, and on Linux one process namespace of it."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}".strip()


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's count: its id may be another's later. None: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return ""


def part(folder: Path, end: str = "") -> Path:
    """A name in `folder` for what is being written there. It says by whom, so that `clear` can tell."""
    return folder / f".part-{_mark()}-{os.getpid()}-{_started(os.getpid()) or ''}-{next(_number)}{end}"


PART = re.compile(r"\.part-([0-9a-f]{12})-(\d+)-(\d*)-\d+(\..*)?")


def clear(folder: Path) -> int:
    """Remove what dead processes were writing in `folder`. How many."""
    removed = 0
    for left in folder.glob(".part-*"):
        if (found := PART.fullmatch(left.name)) is None:
            continue
        with contextlib.suppress(OSError):  # another process was first
            machine, pid, started = found[1], int(found[2]), found[3]
            if machine == _mark():
                dead = _started(pid) != started
            else:
                dead = abs(time.time() - left.stat().st_mtime) > LEFT
            if dead:
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
                removed += 1
    return removed


def _mark() -> str:
    return hashlib.sha256(_machine().encode()).hexdigest()[:12]


class Claims:
    """The claims of this process in the folder `place`. Use as a context: leaving gives all of them back."""

    def __init__(self, place: Path, beat: float = BEAT, dead: float = DEAD) -> None:
        self.place, self.beat, self.dead = place, beat, dead
        me = {
            "machine": _machine(),
            "pid": os.getpid(),
            "started": _started(os.getpid()),
            "since": time.time(),
        }
        self.me = me
        self.owner = f"{os.getpid()}-{os.urandom(4).hex()}-{next(_number)}"
        self._held: set[str] = set()
        self._stop = threading.Event()

    def __enter__(self) -> Claims:
        self.place.mkdir(parents=True, exist_ok=True)
        self._life(self.owner).write_text(json.dumps(self.me))
        threading.Thread(target=self._keep_alive, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.release(list(self._held))
        with contextlib.suppress(OSError):
            self._life(self.owner).unlink(missing_ok=True)

    def take(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that nobody else works on: now this process's."""
        with self._guard():
            taken = [name for name in names if name in self._held or self._take(name)]
        self._held.update(taken)
        return taken

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """One process at a time, the others wait."""
        while not self.take([name]):
            time.sleep(0.05)
        try:
            yield
        finally:
            self.release([name])

    def release(self, names: Iterable[str]) -> None:
        for name in names:
            self._held.discard(name)
            with contextlib.suppress(OSError):
                if self._lock(name).read_text() == self.owner:
                    self._lock(name).unlink(missing_ok=True)

    def alive(self, owner: str) -> bool:
        """Whether the process that `owner` names still lives, as far as can be told."""
        life = self._life(owner)
        try:
            who, touched = json.loads(life.read_text()), life.stat().st_mtime
            machine, pid, started = who["machine"], int(who["pid"]), who["started"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False
        if machine == self.me["machine"]:
            return started is not None and _started(pid) == started
        return abs(self._now() - touched) < self.dead  # one dated in the future is no sign of life

    def sweep(self, *folders: Path) -> int:
        """Remove what dead processes left: what they had half written, their claims, their signs of life.
        How many half-written things."""
        removed = sum(clear(folder) for folder in (*folders, self.place))
        for folder in folders:
            for left in folder.glob(".tmp-*"):
                owner = left.name.removeprefix(".tmp-").rpartition("-")[0]
                if not self.alive(owner):
                    shutil.rmtree(left, ignore_errors=True)
                    removed += 1
        with self._guard():
            for lock in self.place.glob("*.lock"):
                with contextlib.suppress(OSError):
                    if not self._taken(lock):
                        lock.unlink()
        for life in self.place.glob("*.owner"):
            if not self.alive(life.stem):
                life.unlink(missing_ok=True)
        return removed

    def _take(self, name: str) -> bool:
        lock = self._lock(name)
        for _ in range(2):
            try:
                handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            except FileExistsError:
                try:
                    if self._taken(lock):
                        return False
                except FileNotFoundError:
                    continue
                lock.unlink(missing_ok=True)
            else:
                with os.fdopen(handle, "w") as file:
                    file.write(self.owner)
                return True
        return False

    def _taken(self, lock: Path) -> bool:
        """Whether a living process has the claim, or is just taking it."""
        if owner := lock.read_text(errors="replace"):
            return self.alive(owner)
        return abs(self._now() - lock.stat().st_mtime) < TAKING

    def _now(self) -> float:
        """By the clock of whoever keeps the folder: ours may be off."""
        with contextlib.suppress(OSError):
            os.utime(self._life(self.owner))
            return self._life(self.owner).stat().st_mtime
        return time.time()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """One process at a time looks at claims and takes over dead ones, where the folder has locks."""
        try:
            import fcntl
        except ImportError:
            yield
            return
        with open(self.place / "guard", "a") as file:
            with contextlib.suppress(OSError):
                fcntl.lockf(file, fcntl.LOCK_EX)
            yield

    def _lock(self, name: str) -> Path:
        return self.place / f"{name}.lock"

    def _life(self, owner: str) -> Path:
        return self.place / f"{owner}.owner"

    def _keep_alive(self) -> None:
        while not self._stop.wait(self.beat):
            with contextlib.suppress(OSError):
                os.utime(self._life(self.owner))
