"""Studies: lists of experiments run over a store, each once, whoever else works on it."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engramma.experiment import VARYING, Experiment
from engramma.kernels import kernel_for
from engramma.runs.crew import crew, suited
from engramma.runs.pack import run_pack
from engramma.runs.planning import free_memory, halves, memory, plan, suited_threads, work
from engramma.runs.setup import build
from engramma.store import checkpoints
from engramma.store.claims import Claims
from engramma.store.records import Record, Store

log = logging.getLogger("engramma")

__all__ = ["Outcome", "Work", "device_for", "run", "run_pack"]


@dataclass
class Work:
    """How far a study is, in units of work. `on_change` is called after every epoch."""

    total: float = 0.0
    own: float = 0.0  # done by this process
    apart: float = 0.0  # done by others on the same store
    doing: str = ""
    ran: set[str] = field(default_factory=set, repr=False)  # names of the runs that this process trained
    on_change: Callable[[Work], None] = field(default=lambda work: None, repr=False)

    @property
    def done(self) -> float:
        return min(self.total, self.own + self.apart)


@dataclass(frozen=True)
class Outcome:
    records: list[Record]  # in the order of the experiments
    ran: int  # trained here (by all processes, where several were started); the others were found
    found: int


def device_for(name: str) -> torch.device:
    """auto, cpu, cuda or cuda:1: the device, where there is one."""
    try:
        device = torch.device(
            "cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu")
        )
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, not {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device must be auto or cpu here: cuda was asked for, but PyTorch finds no such device"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device must be one of the {torch.cuda.device_count()} there are, not {name!r}")
    return device


def run(
    experiments: Sequence[Experiment],
    store: Store,
    device: torch.device | str = "cpu",
    kernel: str = "auto",
    data_dir: str | Path | None = None,
    prepared: bool = False,  # whoever sent the runs has checked them and tidied the store
    watch: Work | None = None,
    room: int | None = None,
    processes: int = 1,
    **keep: Any,  # curve_every, keep_memories, keep_checkpoints, watcher
) -> Outcome:
    """Run what the store does not have yet, in packs that fit `room` bytes (default: what is free).

    Other processes may do the same at the same time: each run is done by one of them. `processes` starts
    some, which end with this call (0: as many as suit the packs).
    """
    watch = watch or Work()
    memories = bool(keep.get("keep_memories"))
    wanted = list(dict.fromkeys(experiments))
    if not prepared:
        _check([e for e in wanted if e not in store], device, kernel, data_dir)
        if there := opened(wanted, store, memories):
            return Outcome([there[e.name] for e in experiments], 0, len(wanted))
    with Claims(store.claims) as claims:
        store.owner = claims.owner
        missing = [e for e in wanted if store.find(e, memories) is None]
        works = {e.name: total_work(e) for e in missing}
        watch.total, watch.own, watch.apart = sum(works.values()), 0.0, 0.0
        watch.ran.clear()
        room = free_memory(device) if room is None else room
        queue = _plan(missing, wanted, store, device, room)
        size = 1 if keep.get("watcher") else processes or suited(device, queue)
        if size > 1:  # they work at the same time, each in its share of the memory
            room //= size
            queue = _plan(missing, wanted, store, device, room)
        kept = {k: v for k, v in keep.items() if k != "watcher"}
        options = {"device": device, "kernel": kernel, "data_dir": data_dir}

        def heard(done: float) -> None:
            watch.apart = max(watch.apart, done)
            watch.on_change(watch)

        with crew(size - 1 if queue else 0, wanted, store, heard, room=room, **options, **kept) as members:
            while queue:
                idle = True
                for pack in list(queue):
                    names = claims.take(e.name for e in pack)
                    mine = [e for e in pack if e.name in names]
                    if not mine:
                        continue
                    queue.remove(pack)
                    others = [e for e in pack if e.name not in names]
                    left = [e for e in mine if store.find(e, memories) is None]
                    if others:
                        queue.append(others)
                    try:
                        if left:
                            # A pack that was broken off is resumed whole, so that it ends as it would have.
                            whole = mine if not others and _begun(store, pack) else left
                            watch.apart = max(watch.apart, _apart(works, store, watch))
                            _run(whole, store, watch, **options, **keep)
                            watch.ran.update(e.name for e in left)
                            watch.on_change(watch)
                            idle = False
                    finally:
                        claims.release(names)
                queue = [p for p in queue if any(store.find(e, memories) is None for e in p)]
                if idle and queue:
                    watch.doing = next((m.doing for m in members if m.doing), watch.doing)
                    time.sleep(0.2)
            watch.apart = watch.total - watch.own
            watch.on_change(watch)
        ran = watch.ran.union(*(member.ran for member in members))
    records = [store.find(e, memories) for e in wanted]
    lost = [e.name for e, r in zip(wanted, records, strict=True) if r is None]
    if lost:
        raise OSError(f"records of {', '.join(lost)} were removed or damaged while the study ran")
    by_name = {r.name: r for r in records if r is not None}
    return Outcome([by_name[e.name] for e in experiments], len(ran), len(wanted) - len(missing))


def opened(wanted: Sequence[Experiment], store: Store, memories: bool) -> dict[str, Record] | None:
    """Have a store ready to be written. One that can only be read will do where it has every run: their
    records by name."""
    try:
        tidy(store.open())
    except OSError:
        there = {e.name: store.find(e, memories) for e in wanted if e in store}
        found = {name: record for name, record in there.items() if record is not None}
        if len(found) < len(wanted):
            raise
        return found
    return None


def tidy(store: Store) -> None:
    """Remove what killed processes left: half-written folders, checkpoints of what is done."""
    with Claims(store.claims) as claims:
        store.owner = claims.owner
        claims.sweep(store.path, store.checkpoints, *store.checkpoints.glob("*"))
        for pack in checkpoints.finished(store):
            checkpoints.discard(store, pack)


def _check(
    experiments: Sequence[Experiment], device: torch.device | str, kernel: str, data_dir: str | Path | None
) -> None:
    """See that data, settings and device fit together before anything is written or trained."""
    for dtype in {e.dtype for e in experiments}:
        kernel_for(device, kernel, mixed=dtype == "mixed")
    apart = (*VARYING, "vertex", "method", "settings", "memories", "epochs", "dtype")
    for e in {e.canonical(*apart): e for e in experiments}.values():
        build([e.but(dtype="float64")], "cpu", "reference", data_dir)


def total_work(e: Experiment) -> float:
    return e.epochs * sum(work(e, task) for task in range(e.tasks))


def _plan(
    missing: list[Experiment],
    wanted: list[Experiment],
    store: Store,
    device: torch.device | str,
    room: int,
) -> list[list[Experiment]]:
    """Packs that were broken off as they were, so that they resume; the rest as it fits the device."""
    by_name = {e.name: e for e in wanted}
    lacking = {e.name for e in missing}
    packs = []
    for runs in checkpoints.packs(store).values():
        if lacking.intersection(runs) and all(run in by_name for run in runs):
            packs.append([by_name[run] for run in runs])
            lacking.difference_update(runs)
    return packs + plan([e for e in missing if e.name in lacking], device, room)


def _apart(works: dict[str, float], store: Store, watch: Work) -> float:
    """Work that others have done since, by their records: one look at the folder, however many runs."""
    others = works.keys() & set(os.listdir(store.path)) - watch.ran
    return sum(works[name] for name in others)


def _begun(store: Store, pack: list[Experiment]) -> bool:
    return tuple(e.name for e in pack) in checkpoints.packs(store).values()


def _run(pack: list[Experiment], store: Store, watch: Work, **options: Any) -> None:
    """Run a pack; where the device's memory does not suffice after all, its halves."""
    first, before = pack[0], watch.own
    label = f"{first.method}, n = {first.vertex:g}"

    def tick(e: Experiment, replicas: int, task: int, epoch: int) -> None:
        share = sum(e.epochs * work(e, t) for t in range(task)) + epoch * work(e, task)
        watch.own, watch.doing = before + replicas * share, f"{label}, task {task + 1}/{e.tasks}"
        watch.on_change(watch)

    short = False
    try:
        with suited_threads(options.get("device", "cpu"), pack):
            run_pack(pack, store, tick=tick, **options)
    except (torch.OutOfMemoryError, MemoryError):
        short = True
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        short = True
    if short:  # outside the except: its traceback would hold on to the memory
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        watch.own = before
        if len(pack) == 1:
            need = memory(pack) / 2**30
            raise MemoryError(
                f"run {first.name} does not fit the device ({need:.1f} GiB or more): use fewer memories or "
                "items, a smaller batch_size, or float32"
            )
        log.warning("a pack of %d runs does not fit the device's memory: halved", len(pack))
        for half in halves(pack):
            _run(half, store, watch, **options)
    watch.own = before + sum(map(total_work, pack))
    watch.on_change(watch)
