"""A search of 20 trials in batches of 10 against the same 20 strengths run one by one: time and memory.

Each contestant is a process of its own, so that its peak memory is its own: the process's high-water
mark, and what training adds to it after everything is imported and compiled.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.race import write

CONTESTANTS = ("one by one", "batches of 10")
PROGRAM = """
import json, sys, tempfile, time
from pathlib import Path
from engramma.experiment import read
from engramma.store.records import Store
from engramma.search.spaces import strength_search
from engramma.runs.options import Options
from engramma.runs.study import run
from engramma.search.tune import tune
import optuna, sqlalchemy, optuna.storages

def kept(name):
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(name))

sizes = {"data": "digits", "items": 1000, "memories": 64, "epochs": 100, "method": "ewc", "vertex": 2.0}
search = strength_search(read(sizes), "demo", (1000,), 20)
with tempfile.TemporaryDirectory() as folder:
    short = read(sizes, {"epochs": 1, "tasks": 2})  # compiles
    run([short, short.but(strength=2.0)], Store(folder + "/warm"))
    before = kept("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start, busy = time.perf_counter(), time.process_time()
    store = Store(folder + "/store")
    if sys.argv[1] == "batches of 10":
        tune([search], store)
    else:
        for step in range(20):
            strength = search.low * (search.high / search.low) ** (step / 19)
            run([read(sizes, {"strength": strength, "seed": 1000})], store, Options(curve_every=100))
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - busy}
    assert len(store) == 20
    print(json.dumps({**spent, "peak": kept("VmHWM"), "added": kept("VmHWM") - before}))
"""


def main(rounds: int = 3) -> None:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(rounds):  # in turns: a disturbance meets both
        for name in CONTESTANTS:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", PROGRAM, name],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(done.stderr)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    rows = []
    for name, each in found.items():
        row: dict[str, object] = {"search": name}
        for key in each[0]:
            mine = [e[key] for e in each]
            theirs = [e[key] for e in found[CONTESTANTS[0]]]
            row[key] = statistics.median(mine)
            row[f"{key}_ratio"] = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        rows.append(row)
        peak, added = (float(str(row[key])) / 2**20 for key in ("peak", "added"))
        print(
            f"{name:14} {row['seconds']:6.1f} s ({row['seconds_ratio']:.2f} x), "
            f"CPU {row['cpu_seconds']:6.1f} s ({row['cpu_seconds_ratio']:.2f} x), "
            f"peak {peak:.0f} MiB ({row['peak_ratio']:.2f} x), of it training {added:.0f} MiB",
            flush=True,
        )
    write("tuning", rows, trials=20, batch=10)
