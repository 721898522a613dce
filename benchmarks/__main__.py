"""python -m benchmarks [name ... | name options]: all of them without a name."""

from __future__ import annotations

import itertools
import sys
from importlib import import_module

from benchmarks import status

NAMES = (
    "step",
    "transcription",
    "methods",
    "scaling",
    "start",
    "roofline",
    "tuning",
    "scale",
    "gpu",
    "memory",
)
LONG = ("temperature", "awake", "ridge")  # run alone, by name


def main(arguments: list[str]) -> int:
    names = list(itertools.takewhile(lambda told: not told.startswith("-"), arguments))
    unknown = [name for name in names if name not in (*NAMES, *LONG)]
    if unknown:
        print(f"benchmark must be one of {', '.join((*NAMES, *LONG))}, not {unknown[0]!r}", file=sys.stderr)
        return 2
    if len(names) != len(arguments) and len(names) != 1:
        print("options must follow one benchmark alone", file=sys.stderr)
        return 2
    sys.argv = [f"benchmarks {' '.join(names)}", *arguments[len(names) :]]  # which one of them reads
    for name in names or NAMES:
        import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(status(lambda: main(sys.argv[1:])))
