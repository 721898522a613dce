"""A study on a cluster: two workers against one, what sending a run costs, and the constants of large stores.

The demo study is a part of Table 2 on digits. Every worker is a process of one thread; the clusters stand
before the clock starts, and their workers have trained something. The overhead is that of the worst case, a
run that is a pack of its own and has next to nothing to train: the clock with a cluster less the clock here.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.race import write
from engramma import studies
from engramma.experiment import Experiment, read
from engramma.runs import cluster, study
from engramma.runs.options import Options
from engramma.store.records import Record, Store

ROWS = ["vanilla", "l2", "ewc", "si"]


def demo() -> list[Experiment]:
    found = studies.load("table2").runs("demo", seeds=[0, 1], rows=ROWS)
    return [run.experiment for run in found]


def tiny(count: int) -> list[Experiment]:
    """Runs that cannot be packed together: each has a size of its own."""
    states = {"data": "states", "stream": "states", "size": 8, "flips": 1, "memories": 2, "epochs": 1}
    return [read(states, {"items": 2, "leak": 0.01 + k * 1e-4}) for k in range(count)]


def timed(run: Callable[[Store], object]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run(Store(folder))
        return time.perf_counter() - start


def scaling(rounds: int) -> dict[str, Any]:
    """Seconds with one worker and with two, in turns; and in this process, without any."""
    runs, taken = demo(), {0: [], 1: [], 2: []}
    warm = [e.but(epochs=1) for e in runs]
    with cluster.joined("local:1", "cpu") as one, cluster.joined("local:2", "cpu") as two:
        clients = {1: one, 2: two}
        for client in clients.values():  # every worker has every program compiled
            client.run(warmed, [e.describe() for e in warm])
        warmed([e.describe() for e in warm])
        for _ in range(rounds):
            taken[0].append(timed(lambda s: study.run(runs, s)))
            for count, client in clients.items():
                taken[count].append(timed(lambda s, c=client: cluster.run(runs, s, c, Options())))
    ratios = [a / b for a, b in zip(taken[1], taken[2], strict=True)]
    seconds = {count: statistics.median(each) for count, each in taken.items()}
    print(f"{len(runs)} runs: {seconds[1]:.1f} s with one worker, {seconds[2]:.1f} s with two: "
          f"{statistics.median(ratios):.2f} times; {seconds[0]:.1f} s here", flush=True)  # fmt: skip
    return {
        "what": "demo study, two workers against one",
        "runs": len(runs),
        "none": taken[0],
        "one": taken[1],
        "two": taken[2],
        "ratio": statistics.median(ratios),
    }


def warmed(told: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study.run([read(each) for each in told], Store(folder))


def overhead(count: int, rounds: int) -> dict[str, Any]:
    """Seconds that a run costs more on a cluster of one worker than here."""
    runs, extra, here, there = tiny(count), [], [], []
    with cluster.joined("local:1", "cpu") as client:
        client.run(warmed, [e.describe() for e in runs[:1]])
        timed(lambda s: study.run(runs[:1], s))
        for _ in range(rounds):
            here.append(timed(lambda s: study.run(runs, s)))
            there.append(timed(lambda s: cluster.run(runs, s, client, Options())))
            extra.append((there[-1] - here[-1]) / count)
    print(f"overhead a run that is a pack of its own: {1e3 * statistics.median(extra):.1f} ms "
          f"({1e3 * statistics.median(there) / count:.1f} ms against "
          f"{1e3 * statistics.median(here) / count:.1f} ms here)", flush=True)  # fmt: skip
    return {
        "what": "overhead of a run that is a pack of its own",
        "runs": count,
        "seconds_here": here,
        "seconds_cluster": there,
        "overhead_a_run": statistics.median(extra),
    }


def constants(count: int) -> dict[str, Any]:
    """Bytes, files and reading times of a store with `count` records of the demo's kind."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        (record,) = study.run(demo()[:1], Store(Path(folder) / "one")).records
        assert record.folder is not None
        parts = {path.name: path.stat().st_size for path in record.folder.iterdir()}
        blocks = sum(path.stat().st_blocks * 512 for path in record.folder.iterdir())
        start = time.perf_counter()
        for seed in range(count):
            store.write(_as(record, seed))
        writing = time.perf_counter() - start
        took = {"write": writing / count}
        for name, ask in {
            "names": lambda: store.names(),
            "sweep": lambda: study.tidy(store.open()),
            "read": lambda: sum(1 for _ in store),
        }.items():
            start = time.perf_counter()
            ask()
            took[name] = (time.perf_counter() - start) / count
        first = demo()[0]
        start = time.perf_counter()
        for seed in range(1000):
            _ = first.but(seed=seed).name
        took["describe"] = (time.perf_counter() - start) / 1000
    print(f"a record: {sum(parts.values())} bytes in {len(parts)} files ({blocks} on disk); "
          + ", ".join(f"{k} {1e6 * v:.0f} us" for k, v in took.items()) + " each", flush=True)  # fmt: skip
    return {
        "what": f"a store of {count} records",
        "bytes": parts,
        "bytes_on_disk": blocks,
        "description_bytes": len(demo()[0].canonical()),
        "seconds_each": took,
    }


def _as(record: Record, seed: int) -> Record:
    return replace(record, description={**record.description, "seed": seed}, folder=None)


def scheduler(count: int) -> dict[str, Any]:
    """Seconds that Dask takes for a task that does nothing, sent as packs are."""
    with cluster.joined("local:2", "cpu") as client:
        client.gather(client.map(os.path.basename, ["x"] * 100, pure=False))
        start = time.perf_counter()
        client.gather([client.submit(os.path.basename, "x", pure=False) for _ in range(count)])
        took = (time.perf_counter() - start) / count
    print(f"the scheduler: {1e3 * took:.2f} ms a task", flush=True)
    return {"what": "an empty task through the scheduler", "tasks": count, "seconds_each": took}


def sampler(sizes: tuple[int, ...] = (1000, 10_000)) -> dict[str, Any]:
    """Seconds that the sampler takes to ask for a strength, in a study that has so many trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {"strength": optuna.distributions.FloatDistribution(1e-4, 1e4, log=True)}
    search = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, constant_liar=True))
    took = {}
    for size in sizes:
        told = [10 ** (8 * k / size - 4) for k in range(len(search.trials), size)]
        made = optuna.trial.create_trial
        search.add_trials(
            [made(params={"strength": x}, distributions=space, value=math.sin(x)) for x in told]
        )
        start = time.perf_counter()
        for _ in range(5):
            search.ask(space)
        took[size] = (time.perf_counter() - start) / 5
    print(
        "the sampler: " + ", ".join(f"{1e3 * t:.0f} ms after {n} trials" for n, t in took.items()), flush=True
    )
    return {"what": "asking the sampler, by trials in the study", "seconds_each": took}


def main() -> None:
    torch.set_num_threads(1)
    rows = [scaling(2), overhead(100, 3), constants(3000), scheduler(2000), sampler()]
    write("scale", rows)
