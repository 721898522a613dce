"""Timing things against each other on a machine that may have other work to do.

The contestants take turns, round after round, so that a disturbance meets all of them; a ratio is the
median over rounds of the ratios within a round. CPU seconds are measured beside the clock: on a single
thread they hardly notice what else is running.

Threads of a BLAS or of OpenMP go on spinning for some 30 ms after their work is done, and would meet the
next contestant. So each rests until they sleep, then runs once unmeasured: a step follows a step in training.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
REST = 0.06  # seconds
FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def race(contestants: Mapping[str, Callable[[], object]], rounds: int = 9) -> dict[str, dict[str, float]]:
    """Seconds, CPU seconds, and both as multiples of the first contestant's (medians)."""
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(REST)
            run()
            start, busy = time.perf_counter(), time.process_time()
            run()
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - busy)
    first = next(iter(contestants))
    return {
        name: {
            "seconds": statistics.median(wall[name]),
            "cpu_seconds": statistics.median(cpu[name]),
            "ratio": _ratio(wall[name], wall[first]),
            "cpu_ratio": _ratio(cpu[name], cpu[first]),
        }
        for name in contestants
    }


def _ratio(these: list[float], those: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


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
before = max(now(), 0)
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
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "torch": torch.__version__,
        **facts,
    }
    path = RESULTS / f"{name}.json"
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    fresh.replace(path)
    print(f"-> benchmarks/results/{path.name}", flush=True)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
