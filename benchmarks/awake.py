"""How much faster a task learns with fewer memories awake: epochs of one task, 102 or 512 of 512 memories.

    python -m benchmarks awake [--device cuda] [--replicas 10] [--dtype mixed,float64] [--data-dir FOLDER]

Both learn in turn in one process, five times; the ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import torch

from benchmarks.race import write
from engramma.experiment import read
from engramma.runs.setup import Built, build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--dtype", default="mixed", help="one or several: mixed,float64")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data-dir")
    told = parser.parse_args()
    rows = []
    for dtype, vertex in itertools.product(told.dtype.split(","), (2.0, 20.0)):
        setups = {}
        for groups in (1, 5):
            base = {"method": "allocation", "settings": {"groups": groups}, "dtype": dtype}
            run = read({**base, "vertex": vertex, "tasks": 5, "epochs": told.epochs})
            runs = [run.but(seed=100 + r) for r in range(told.replicas)]
            setups[groups] = build(runs, device=told.device, data_dir=told.data_dir)
        ratios = []
        for number in range(6):
            took = {groups: epoch(setup, told.epochs) for groups, setup in setups.items()}
            if number:  # the first compiles
                ratios.append(took[1] / took[5])
        ratio = round(statistics.median(ratios), 2)
        rows.append({"n": vertex, "dtype": dtype, "ratio": ratio, "rounds": ratios})
        print(
            f"{dtype}, n {vertex:g}: a task of 102 memories learns {ratio} times as fast as one of 512",
            flush=True,
        )
    command = (
        f"python -m benchmarks awake --device {told.device} --replicas {told.replicas} --dtype {told.dtype}"
    )
    write(f"awake-{told.device}", rows, device=told.device, replicas=told.replicas, command=command)


def epoch(setup: Built, epochs: int) -> float:
    """Seconds of an epoch of the first task, without what comes before the first."""
    steps = setup.train()
    next(steps)
    wait()
    started = time.perf_counter()
    for _ in range(epochs - 2):
        next(steps)
    wait()
    return (time.perf_counter() - started) / (epochs - 2)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
