"""How good the temperature is that `auto` stands for: one task, over vertices and numbers of memories.

    python -m benchmarks temperature [--device cuda] [--data-dir FOLDER]

Each network learns one permuted task of MNIST (8,000 items, 500 epochs) at 0.6 to 1.4 times that temperature;
seeds from 100 on. A row says the accuracy at it, the best of the five, and the factor that was best.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from benchmarks.race import write
from engramma.experiment import read
from engramma.optimiser import temperature
from engramma.runs.planning import sizes
from engramma.runs.setup import build

VERTICES = (1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 40.0)
MEMORIES = (8, 32, 102, 512, 2048, 4096)
FACTORS = (0.6, 0.8, 1.0, 1.2, 1.4)
SEEDS = (100, 101, 102)


def row(vertex: float, memories: int, device: str, data_dir: str | None, items: int) -> dict[str, Any]:
    base = read(
        {
            "method": "allocation",
            "tasks": 1,
            "vertex": vertex,
            "memories": memories,
            "items": items,
            "dtype": "mixed",
        }
    )
    known = (base.vertex, memories, sizes(base)[0], base.learning_rate, base.decay, base.epochs)
    law = temperature(*known)
    pairs = [(seed, factor) for seed in SEEDS for factor in FACTORS]
    runs = [
        base.but(seed=seed, initial_temperature=law * factor, final_temperature=law * factor)
        for seed, factor in pairs
    ]
    setup = build(runs, device=device, data_dir=data_dir)
    found = next(
        setup.stream.evaluate(moment.network, moment.theta)["accuracy"][:, 0].tolist()
        for moment in setup.train()
        if moment.ends_task
    )
    at = {f: [a for (_, g), a in zip(pairs, found, strict=True) if g == f] for f in FACTORS}
    mean = {f: statistics.mean(values) for f, values in at.items()}
    best = max(mean, key=mean.__getitem__)
    return {
        "n": vertex,
        "memories": memories,
        "temperature": round(law, 4),
        "accuracy": round(mean[1.0], 4),
        "sd": round(statistics.stdev(at[1.0]), 4),
        "best": round(mean[best], 4),
        "best_factor": best,
        "by_factor": {f"{f:g}": round(m, 4) for f, m in mean.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--memories", type=lambda t: [int(k) for k in t.split(",")], default=MEMORIES)
    parser.add_argument("--vertices", type=lambda t: [float(n) for n in t.split(",")], default=VERTICES)
    told = parser.parse_args()
    rows = []
    for memories in told.memories:
        for vertex in told.vertices:
            rows.append(row(vertex, memories, told.device, told.data_dir, told.items))
            r = rows[-1]
            found = f"{r['accuracy']:.3f} ± {r['sd']:.3f}, best {r['best']:.3f} at {r['best_factor']:g}"
            told_of = f"n {vertex:4g}  K {memories:5d}  T {r['temperature']:.3f}  {found}"
            print(told_of, *r["by_factor"].values(), flush=True)
    write("temperature", rows, seeds=list(SEEDS), items=told.items)


if __name__ == "__main__":
    main()
