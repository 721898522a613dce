"""Ctrl-C: answered within a second, even while the main thread is inside one long matrix product."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engramma.checks import visible

PATIENCE = 0.5  # seconds that the main thread has to answer by itself
STOPPED = 130  # exit status, as shells have it for SIGINT

kept: Callable[[], str] = lambda: "nothing was written"  # noqa: E731  (set by the command that runs)
_answering = threading.Event()


def keeps(say: Callable[[], str]) -> None:
    """From now on, `say` tells what an interruption would leave."""
    global kept
    kept = say


def say() -> None:
    if not _answering.is_set():
        _answering.set()
        print(f"\nengramma: stopped; {visible(kept())}", file=sys.stderr, flush=True)


def leave() -> None:
    """End the process here and now. Nothing is lost: what is in its place is whole, the rest was not yet."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


@contextmanager
def answered() -> Iterator[None]:
    """Python sees a signal only between two of its own steps; a second thread sees it at once, waits a
    little for the first, and then ends the process. Whatever is being written then was never in place."""
    if threading.current_thread() is not threading.main_thread() or os.name == "nt":
        yield
        return
    _answering.clear()
    heard, rung = os.pipe()
    os.set_blocking(rung, False)
    before = signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(heard,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(rung)


def _listen(heard: int) -> None:
    while rung := os.read(heard, 1):
        if rung[0] == signal.SIGINT and not _answering.wait(PATIENCE):
            say()
            if sys.stderr.isatty():
                print("\x1b[?25h", end="", file=sys.stderr, flush=True)  # the progress bar hid the cursor
            leave()
    os.close(heard)
