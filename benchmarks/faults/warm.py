"""Processes that start at once: forks of one that has imported everything and has started no thread yet.

Threads of PyTorch, of a BLAS and of numba do not survive a fork, so whoever forks here has none (`single`).
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import engramma
from engramma.cli import main

# Read when numpy and PyTorch are imported: see `steady`.
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
HEAVY = ("matplotlib.pyplot", "optuna.storages", "sqlalchemy.dialects.sqlite", "plotly.offline",
         "rich.table", "rich.progress", "safetensors.torch", "scipy.ndimage", "scipy.spatial")  # fmt: skip
LIMIT = 120.0  # seconds after which a process hangs


def steady(arguments: Sequence[str]) -> None:
    """Begin again with the environment that every process here is to have, where this one has another."""
    if any(os.environ.get(name) != value for name, value in THREADS.items()):
        home = str(Path(engramma.__file__).parent.parent)
        path = os.pathsep.join(
            dict.fromkeys([home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
        )
        env = {**os.environ, **THREADS, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.faults", *arguments], env)


def warm() -> None:
    """Import all there is, so that forks need not."""
    import matplotlib

    matplotlib.use("Agg")
    for name in HEAVY:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(engramma.__path__, "engramma."):
        if not module.name.endswith("__main__") and "triton" not in module.name:
            with suppress(ImportError):
                importlib.import_module(module.name)
    single()


def single() -> None:
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"a process that forks must have one thread, not {threads}")


# Events of Python that touch files, and are given their path first.
_TOUCH = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
          "os.chmod", "os.utime", "shutil.rmtree", "sqlite3.connect"}  # fmt: skip


@dataclass
class Started:
    """A command in a process, and in a session, of its own."""

    pid: int
    out: Path
    status: int | None = None  # as wait() has it
    began: float = 0.0

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        return self.status is not None

    def kill(self, number: int) -> bool:
        """Send the signal; False where the process has ended before."""
        if self.poll():
            return False
        os.kill(self.pid, number)
        return True

    def wait(self, limit: float = LIMIT) -> bool:
        """See it end, with whatever it has started; False where it, or that, hangs."""
        end = time.monotonic() + limit
        while not self.poll() or self.others():
            if time.monotonic() > end:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                while not self.poll():
                    time.sleep(0.01)
                return False
            time.sleep(0.003)
        return True

    def others(self) -> bool:
        """Whether processes that it started are still there."""
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    @property
    def code(self) -> int:
        return os.waitstatus_to_exitcode(self.status or 0)

    def said(self) -> str:
        return self.out.read_text("utf-8", "replace")


def start(
    words: Sequence[str],
    folder: Path,
    out: Path,
    stop: tuple[int, int] | None = None,
    count: Path | None = None,
) -> Started:
    """`engramma words` in `folder`, in a fork of this process.

    `stop` (k, signal): it sends itself the signal before it touches a file of the folder for the k-th time.
    `count`: how often it did so is written there at its end.
    """
    single()
    out.write_text("")  # it may be killed before it says anything
    pid = os.fork()
    if pid:
        return Started(pid, out, began=time.monotonic())
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        handle = os.open(out, os.O_WRONLY)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        touched = _counted(folder, stop) if stop or count else [0]
        sys.argv = ["engramma", *words]
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if count:
            count.write_text(str(touched[0]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _counted(folder: Path, stop: tuple[int, int] | None) -> list[int]:
    home, touched = str(folder.resolve()) + os.sep, [0]

    def heard(event: str, given: tuple[Any, ...]) -> None:
        if event not in _TOUCH or not given or not isinstance(given[0], str | os.PathLike):
            return
        if not os.path.abspath(os.fspath(given[0])).startswith(home):
            return
        touched[0] += 1
        if stop and touched[0] == stop[0]:
            os.kill(os.getpid(), stop[1])

    sys.addaudithook(heard)
    return touched


def share(
    jobs: Sequence[Any], make: Callable[[int], Callable[[Any], Any]], lanes: int, limit: float, room: int = 0
) -> Iterator[tuple[Any, Any, str]]:
    """(job, what it came to, "" or how its process died) of every job, in processes side by side.

    `make(lane)` is called in the process and gives what does one job. A job that takes longer than
    `limit` seconds ends its process, and so does one that needs `room` bytes (0: any) more than there are.
    """
    single()
    waiting = [list(jobs[lane::lanes])[::-1] for lane in range(lanes)]
    ears = selectors.DefaultSelector()

    def begin(lane: int) -> None:
        heard, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(heard)
                with os.fdopen(told, "w") as file:
                    _labour(waiting[lane][::-1], make(lane), file, limit, room)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(told)
        ears.register(heard, selectors.EVENT_READ, (lane, pid, bytearray()))

    for lane in range(lanes):
        if waiting[lane]:
            begin(lane)
    while ears.get_map():
        for key, _ in ears.select():
            lane, pid, text = key.data
            piece = os.read(key.fd, 1 << 16)
            text += piece
            while b"\n" in text:
                line, _, rest = bytes(text).partition(b"\n")
                text[:] = rest
                yield waiting[lane].pop(), json.loads(line), ""
            if not piece:
                ears.unregister(key.fd)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                if waiting[lane] and code:  # in the middle of a job
                    name = (
                        "hang"
                        if code == -signal.SIGALRM
                        else f"died ({signal.Signals(-code).name if code < 0 else code})"
                    )
                    yield waiting[lane].pop(), None, name
                if waiting[lane]:
                    begin(lane)


def _labour(jobs: list[Any], work: Callable[[Any], Any], file: Any, limit: float, room: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever it is in the middle of
    if room:
        now = memory("VmSize")
        resource.setrlimit(resource.RLIMIT_AS, (now + room, now + room))
    for job in jobs:
        signal.setitimer(signal.ITIMER_REAL, limit)
        found = work(job)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(found), file=file, flush=True)


def memory(name: str) -> int:
    """VmSize, VmRSS or VmHWM of this process, in bytes."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(name))
