"""Claims: which process works on which run, so that several on one store share the work.

A claim is a file made with O_EXCL, which one process alone can do, on a shared folder too. It names its
owner; the owner keeps a file of its own fresh. A dead owner loses its claims: at once where its process
can be looked up, else when its file has not been touched for a while. Should two ever do the same run,
nothing is harmed: their records are equal and the second rename gives way.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

BEAT = 15.0  # seconds between two signs of life
DEAD = 120.0  # without one for so long an owner elsewhere is taken for dead
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
            return _started(pid) == started
        # By the clock of whoever keeps the folder: ours may be off.
        with contextlib.suppress(OSError):
            os.utime(self._life(self.owner))
            return self._life(self.owner).stat().st_mtime - touched < self.dead
        return time.time() - touched < self.dead

    def sweep(self, *folders: Path) -> int:
        """Remove what dead processes left: half-written folders and their signs of life. How many."""
        import shutil

        removed = 0
        for folder in folders:
            for left in folder.glob(".tmp-*"):
                owner = left.name.removeprefix(".tmp-").rpartition("-")[0]
                if not self.alive(owner):
                    shutil.rmtree(left, ignore_errors=True)
                    removed += 1
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
                    owner = lock.read_text()
                    fresh = time.time() - lock.stat().st_mtime < 5
                except FileNotFoundError:
                    continue
                if (not owner and fresh) or (owner and self.alive(owner)):
                    return False  # taken, or being taken
                lock.unlink(missing_ok=True)
            else:
                with os.fdopen(handle, "w") as file:
                    file.write(self.owner)
                return True
        return False

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
