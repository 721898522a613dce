"""Memory at its highest, and where results go. Timing itself is in `engramma.runs.bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from engramma.runs.bench import machine, race

__all__ = ["FIGURES", "RESULTS", "peak", "race", "write"]

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def peak(code: str, *arguments: str) -> int:
    """Bytes of memory that the function `run` of a small program adds to its process at the most.

    `code` defines `start()`, whose result `run` is given; only `run` is measured.
    """
    measured = """
import ctypes, sys
def high():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))
def now():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmRSS"))
given = start()
try:
    ctypes.CDLL(None).malloc_trim(0)  # what was freed and kept would hide what is taken
except (AttributeError, OSError):
    pass
before = now()
open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts again from here
run(given)
print(high() - before)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code + measured, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(done.stdout.split()[-1])


def write(name: str, rows: Any, **facts: Any) -> None:
    """benchmarks/results/<name>.json, whole or not at all."""
    RESULTS.mkdir(exist_ok=True)
    about = {
        "benchmark": name,
        "command": f"python -m benchmarks {name}",
        **machine(),
        **facts,
    }
    path = RESULTS / f"{name}.json"
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    fresh.replace(path)
    print(f"-> benchmarks/results/{path.name}", flush=True)
