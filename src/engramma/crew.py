"""A crew: further processes on the same store, where packs are too small to keep several cores busy.

They share the work as any processes on one store do. A member is told what to do on its standard input,
and ends when that is closed: when the study is done, or its first process is gone for whatever reason.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from engramma.experiment import Experiment, read
from engramma.packs import SMALL
from engramma.planning import work
from engramma.records import Store


def suited(device: torch.device | str, packs: Sequence[Sequence[Experiment]]) -> int:
    """How many processes serve these packs best: on a CPU one a core, where one thread is enough for each."""
    if torch.device(device).type != "cpu" or not packs:
        return 1
    if max(sum(work(e, e.tasks - 1) for e in pack) for pack in packs) >= SMALL:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, len(packs) // 2))


@contextmanager
def crew(size: int, experiments: Sequence[Experiment], store: Store, **options: Any) -> Iterator[None]:
    """`size` more processes that run `experiments`, for as long as the context lasts."""
    if size < 1:
        yield
        return
    place = {k: str(v) if isinstance(v, Path | torch.device) else v for k, v in options.items()}
    told = {"path": sys.path, "store": str(store.path.resolve()), "options": place}
    order = json.dumps({**told, "experiments": [e.describe() for e in experiments]})
    start = [sys.executable, "-m", "engramma.crew"]
    quiet = subprocess.DEVNULL
    members = [
        subprocess.Popen(start, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, text=True, env=_paths())
        for _ in range(size)
    ]
    try:
        for member in members:
            with suppress(BrokenPipeError):  # it could not start: the others do its share
                assert member.stdin is not None
                member.stdin.write(order + "\n")
                member.stdin.flush()
        yield
    finally:
        for member in members:
            with suppress(BrokenPipeError):
                assert member.stdin is not None
                member.stdin.close()
        for member in members:
            try:
                member.wait(timeout=5)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()


def _paths() -> dict[str, str]:
    """The same package, wherever it was imported from."""
    home = str(Path(__file__).parent.parent)
    rest = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": home if not rest else f"{home}{os.pathsep}{rest}"}


def main() -> None:
    from engramma.study import run

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process answers for all
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_until_closed, daemon=True).start()
    sys.path[:] = order["path"]  # a method of one's own may lie anywhere
    torch.set_num_threads(1)
    run([read(told) for told in order["experiments"]], Store(order["store"]), **order["options"])


def _until_closed() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
