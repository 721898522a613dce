"""A crew: further processes on the same store, where packs are too small to keep several cores busy.

They share the work as any processes on one store do, so that any of them may be killed at any time and the
others do its share. A member is told what to do on its standard input, says how far it is on its standard
output, and ends when its input is closed: when the study is done, or its first process is gone. Members
are started, not forked: PyTorch's and numba's threads do not survive a fork.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import engramma
from engramma.experiment import Experiment, read
from engramma.runs.pack import SMALL
from engramma.runs.planning import work
from engramma.store.records import Store

if TYPE_CHECKING:
    from engramma.runs.study import Work

log = logging.getLogger("engramma")

OFTEN = 0.2  # seconds between two words of a member
LEAVE = 1.0  # seconds that a member has to end by itself, when its input is closed


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
    size: int, experiments: Sequence[Experiment], store: Store, heard: Callable[[float], None], **options: Any
) -> Iterator[list[Member]]:
    """`size` more processes that run `experiments`, as long as the context lasts.

    `heard` is called, from another thread, with the work that all of them have done.
    """
    if size < 1:
        yield []
        return
    place = {k: str(v) if isinstance(v, Path | torch.device) else v for k, v in options.items()}
    before = torch.get_num_threads()
    threads = max(1, before // (size + 1))
    told = {"path": sys.path, "store": str(store.path.resolve()), "threads": threads, "options": place}
    order = json.dumps({**told, "experiments": [e.describe() for e in experiments]})
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
        wait = 2 * LEAVE
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
        [sys.executable, "-P", "-m", "engramma.runs.crew"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": home if not rest else f"{home}{os.pathsep}{rest}"},
    )


class Voice(logging.Handler):
    """What a member says: how far it is, and its warnings. One JSON object a line."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.line = os.fdopen(os.dup(1), "w")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a method of one's own may print
        self.last, self.ran = 0.0, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.say(warning=record.getMessage())

    def say(self, **words: Any) -> None:
        print(json.dumps(words), file=self.line, flush=True)

    def change(self, work: Work) -> None:
        now = time.monotonic()
        if now - self.last > OFTEN or len(work.ran) > self.ran:
            self.last, self.ran = now, len(work.ran)
            self.say(done=work.own, doing=work.doing, ran=sorted(work.ran))


def main() -> None:
    from engramma.runs import study

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process answers for all
    voice = Voice()
    log.addHandler(voice)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_until_closed, daemon=True).start()
    watch = study.Work(on_change=voice.change)
    voice.change(watch)
    sys.path[:] = order["path"]  # a method of one's own may lie anywhere
    torch.set_num_threads(order["threads"])
    try:
        wanted = [read(told) for told in order["experiments"]]
        study.run(wanted, Store(order["store"]), watch=watch, **order["options"])
    except BrokenPipeError:
        pass  # nobody listens any more
    except Exception as error:  # the first process will come to the same run, and say it in full
        log.warning("one of several processes stopped, the others go on: %s", error)
        sys.exit(1)


def _until_closed() -> None:
    sys.stdin.read()
    time.sleep(LEAVE)
    os._exit(1)


if __name__ == "__main__":
    main()
