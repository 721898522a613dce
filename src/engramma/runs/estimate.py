"""How long a study will take: from timings in the store, or from a few epochs tried."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from engramma.experiment import Experiment
from engramma.kernels import kernel_for
from engramma.runs.crew import suited
from engramma.runs.options import Options
from engramma.runs.planning import free_memory, memory, plan, seed_major, split, suited_threads, work
from engramma.runs.setup import build
from engramma.runs.study import total_work
from engramma.store.records import Store

TRIED = 2**27  # bytes of the runs that are tried to know how long all take


class Estimate(NamedTuple):
    missing: int  # runs
    packs: int
    replicas: int  # of the largest pack
    processes: int
    memory: int  # bytes of the largest pack, in each of the processes
    room: int
    seconds: float | None
    basis: str


def estimate(
    experiments: Sequence[Experiment], store: Store, options: Options = Options(processes=0)
) -> Estimate:
    device, missing = options.where, [e for e in experiments if e not in store]
    room = free_memory(device)
    if not missing:
        return Estimate(0, 0, 0, 1, 0, room, 0.0, "(nothing to do)")
    packs = plan(missing, device, room)
    size = options.processes or suited(device, packs)
    packs = plan(missing, device, room // size)  # as study.run does it
    speed, basis = stored(missing, store, options)
    if speed is None:
        try:
            speed = tried(max(packs, key=len), options)
            basis = "from a few epochs tried just now"
        except (ValueError, OSError) as error:  # the data are not here
            basis = str(error)
    seconds = None if speed is None else sum(map(total_work, missing)) / speed / size
    largest, needed = max(map(len, packs)), size * max(map(memory, packs))
    return Estimate(len(missing), len(packs), largest, size, needed, room, seconds, basis)


def stored(missing: Sequence[Experiment], store: Store, options: Options) -> tuple[float | None, str]:
    """Work a second, from finished runs of the same kind on the same kind of device."""
    kinds = {(e.data, e.items, e.memories, e.dtype) for e in missing}
    place = options.where.type
    arithmetic = kernel_for(options.where, options.kernel, missing[0].dtype == "mixed").name
    done = spent = 0.0
    count = 0
    for record in store:
        told, facts = record.description, record.facts
        try:
            same = (told["data"], told["items"], told["memories"], told["dtype"]) in kinds
            if same and facts["device"].startswith(place) and facts["kernel"] == arithmetic:
                work, took = total_work(record.experiment), facts["seconds"] / facts["replicas"]
                count, done, spent = count + 1, done + work, spent + took
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            continue  # of another version, or no record of ours: nothing to go by
    return (done / spent if spent else None), f"from {count} runs in the store"


def tried(pack: list[Experiment], options: Options) -> float:
    """Work a second, from the first task of a pack: a few epochs, and not more than some seconds."""
    device = options.where
    some = pack if device.type == "cuda" else split(pack, TRIED)[0]  # on a CPU more at once are no faster
    short = seed_major([e.but(epochs=50, tasks=e.tasks) for e in some])
    built = build(short, *options.place)
    with suited_threads(device, pack):
        steps = built.train()
        next(steps)  # the first compiles and warms up
        _wait(device)
        begun, epochs = time.perf_counter(), 0
        for _ in steps:
            epochs += 1
            _wait(device)
            if time.perf_counter() - begun > 2 or epochs == 20:
                break
    return len(short) * epochs * work(short[0], 0) / (time.perf_counter() - begun)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
