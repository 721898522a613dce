"""A crew: further processes on the same store, where packs are too small to keep several cores busy.

They share the work as any processes on one store do, so that any of them may be killed at any time and the
others do its share. A member is told what to do on its standard input, says how far it is on its standard
output, and ends when its input is closed: when the study is done, or its first process is gone (member.py).
Members are started, not forked: PyTorch's and numba's threads do not survive a fork.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

import engramma
from engramma.experiment import Experiment
from engramma.runs.options import Options
from engramma.runs.planning import SMALL, work
from engramma.store.records import Store

log = logging.getLogger("engramma")

LEAVE = 20.0  # seconds that a member has to be gone when all is done: it writes nothing, but may be importing


def suited(device: torch.device | str, packs: Sequence[Sequence[Experiment]]) -> int:
    """How many processes serve these packs best: on a CPU one a core, where one thread is enough for each."""
    if torch.device(device).type != "cpu" or not packs:
        return 1
    if max(sum(work(e, e.tasks - 1) for e in pack) for pack in packs) >= SMALL:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, len(packs) // 2))


@dataclass
class Member:
    """A further process, and what it has said last."""

    process: subprocess.Popen[str]
    heard: Callable[[], None]
    begun: bool = False
    done: float = 0.0  # work
    doing: str = ""
    ran: set[str] = field(default_factory=set)

    def tell(self, order: str) -> None:
        """Give the order and listen until the process ends. In a thread: it is slow to start."""
        orders, words = self.process.stdin, self.process.stdout
        assert orders is not None
        assert words is not None
        with suppress(OSError, ValueError):  # it is gone: the others do its share
            orders.write(order + "\n")
            orders.flush()
        for line in words:
            if not line.endswith("\n"):
                break  # killed in the middle of a word
            word = json.loads(line)
            if "warning" in word:
                log.warning("%s", word["warning"])
                continue
            self.begun, self.done, self.doing = True, word["done"], word["doing"]
            self.ran.update(word["ran"])
            self.heard()

    def leave(self, wait: float) -> None:
        """See the process end: by itself within `wait` seconds, or else at once."""
        if self.begun and wait:
            assert self.process.stdin is not None
            with suppress(OSError):
                self.process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(wait)
        self.process.kill()
        self.process.wait()


@contextmanager
def crew(
    size: int,
    experiments: Sequence[Experiment],
    store: Store,
    options: Options,
    heard: Callable[[float], None],
) -> Iterator[list[Member]]:
    """`size` more processes that run `experiments`, as long as the context lasts.

    `heard` is called, from another thread, with the work that all of them have done.
    """
    if size < 1:
        yield []
        return
    before = torch.get_num_threads()
    threads = max(1, before // (size + 1))
    order = json.dumps(
        {
            "path": sys.path,
            "store": str(store.path.resolve()),
            "threads": threads,
            "options": options.told(),
            "experiments": [e.describe() for e in experiments],
        }
    )
    members: list[Member] = []
    listeners: list[threading.Thread] = []
    wait = 0.0
    try:
        torch.set_num_threads(threads)
        for _ in range(size):
            members.append(Member(_start(), lambda: heard(sum(member.done for member in members))))
            listeners.append(threading.Thread(target=members[-1].tell, args=(order,), daemon=True))
            listeners[-1].start()
        yield members
        wait = LEAVE
    finally:
        torch.set_num_threads(before)
        for member in members:
            member.leave(wait)
        for member, listener in zip(members, listeners, strict=False):
            listener.join()
            for pipe in (member.process.stdin, member.process.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()


def _start() -> subprocess.Popen[str]:
    """The same package, wherever it was imported from. -P: no module of the working folder comes first."""
    home, rest = str(Path(engramma.__file__).parent.parent), os.environ.get("PYTHONPATH")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "engramma.runs.member"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": home if not rest else f"{home}{os.pathsep}{rest}"},
    )
