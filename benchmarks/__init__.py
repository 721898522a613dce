"""Side-by-side measurements: each prints ratios from one run and writes them to benchmarks/results/."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def status(main: Callable[[], int | None]) -> int:
    """What a program ends with. A reader of its output that has had enough (| head) is told nothing more."""
    try:
        found = main() or 0
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again at its end
        return 1
    return found
