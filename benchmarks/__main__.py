"""python -m benchmarks [name ...]: all of them without a name."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks import status

NAMES = ("step", "transcription", "methods", "scaling", "start", "roofline", "tuning", "scale", "gpu")
LONG = ("temperature", "awake")  # run alone, by name


def main(arguments: list[str]) -> int:
    unknown = [name for name in arguments if name not in (*NAMES, *LONG)]
    if unknown:
        print(f"benchmark must be one of {', '.join((*NAMES, *LONG))}, not {unknown[0]!r}", file=sys.stderr)
        return 2
    for name in arguments or NAMES:
        import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(status(lambda: main(sys.argv[1:])))
