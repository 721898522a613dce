"""The program of a crew's member: told what to run on its input, it says how far it is on its output."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

import torch

from engramma.experiment import read
from engramma.runs import study
from engramma.runs.options import Options
from engramma.runs.study import Work
from engramma.store.records import Store

log = logging.getLogger("engramma")

OFTEN = 0.2  # seconds between two words
LEAVE = 3.0  # seconds to end in good order, when the input is closed


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process answers for all
    voice = Voice()
    log.addHandler(voice)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_until_closed, daemon=True).start()
    watch = Work(on_change=voice.change)
    voice.change(watch)
    sys.path[:] = order["path"]  # a method of one's own may lie anywhere
    torch.set_num_threads(order["threads"])
    try:
        wanted = [read(told) for told in order["experiments"]]
        study.help_out(wanted, Store(order["store"]), Options(**order["options"]), watch)
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
