"""Real parts of a cluster for tests: a scheduler and workers, each a process of its own on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import engramma

SOURCE = str(Path(engramma.__file__).parent.parent)


def environment(*first: str) -> dict[str, str]:
    """The package under test, after what is to be found before it."""
    rest = os.environ.get("PYTHONPATH")
    paths = [*first, SOURCE, *([rest] if rest else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


class Parts:
    """The processes of a cluster, and the file by which they find each other."""

    def __init__(self, folder: Path, **told: str) -> None:
        """`told`: variables of the environment of every process."""
        folder.mkdir(parents=True, exist_ok=True)
        self.told = told
        self.folder, self.file = folder, folder / "scheduler.json"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.all: list[subprocess.Popen[bytes]] = []

    def _start(self, name: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}-{len(self.all)}.log", "wb") as log:
            line = [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_" + name, *arguments]
            about = {**environment(*before), **self.told}
            process = subprocess.Popen(line, env=about, stdout=log, stderr=log)
        self.all.append(process)
        return process

    def start_scheduler(self, port: int = 0, protocol: str = "tcp") -> subprocess.Popen[bytes]:
        self.file.unlink(missing_ok=True)
        place = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show"]
        place += ["--protocol", protocol]
        place += ["--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start("scheduler", *place, "--scheduler-file", str(self.file))
        return self.scheduler

    def start_workers(
        self, count: int = 1, *more: str, before: tuple[str, ...] = ()
    ) -> list[subprocess.Popen[bytes]]:
        """Without a nanny: what is killed stays dead."""
        fixed = ["--scheduler-file", str(self.file), "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
        fixed += ["--local-directory", str(self.folder), "--death-timeout", "60"]
        fixed += ["--preload", str(Path(__file__).with_name("holding.py"))]
        threads = () if "--nthreads" in more else ("--nthreads", "1")
        fresh = [self._start("worker", *fixed, *threads, *more, before=before) for _ in range(count)]
        self.workers += fresh
        return fresh

    @property
    def address(self) -> str:
        """Where the scheduler is, once it is."""
        while not self.file.is_file():
            assert self.scheduler is not None
            assert self.scheduler.poll() is None
            time.sleep(0.02)
        return str(self.file)

    def stop(self) -> None:
        for process in reversed(self.all):
            if process.poll() is None:
                process.kill()
            process.wait()


def owners(store: Any) -> set[int]:
    """Ids of the processes that hold claims."""
    found = set()
    for lock in store.claims.glob("*.lock"):
        try:
            found.add(int(lock.read_text().partition("-")[0]))
        except (OSError, ValueError):  # given back, or just being taken
            continue
    return found


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
