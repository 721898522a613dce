"""Studies: lists of experiments run over a store, each once, whoever else works on it."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from engramma.checks import stream_class
from engramma.experiment import VARYING, Experiment
from engramma.kernels import kernel_for
from engramma.runs.crew import crew, suited
from engramma.runs.options import Options
from engramma.runs.pack import Watcher, run_pack
from engramma.runs.planning import free_memory, halves, memory, plan, suited_threads, work
from engramma.runs.setup import check_data, fits
from engramma.store import checkpoints
from engramma.store.claims import Claims
from engramma.store.files import holds
from engramma.store.records import MEMORIES, Record, Store

log = logging.getLogger("engramma")

__all__ = ["Outcome", "Work", "run", "run_pack"]


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


def run(
    experiments: Sequence[Experiment],
    store: Store,
    options: Options = Options(),
    watch: Work | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Run what the store does not have yet, in packs that fit the memory, and read what all of them found.

    Other processes may do the same at the same time: each run is done by one of them. `options.processes`
    starts some, which end with this call. Who wants to see packs train (`watcher`) has them trained here.
    """
    wanted, watch = list(dict.fromkeys(experiments)), watch or Work()
    check([e for e in wanted if e not in store], options)
    found = opened(wanted, store, options.keep_memories)
    for e in wanted:
        if e.name in found:
            check_data(e, found[e.name].facts, options.data_dir)
    missing = [e for e in wanted if e.name not in found]
    ran = complete(missing, wanted, store, options, watch, watcher) if missing else set[str]()
    return Outcome(gathered(experiments, found, store, options.keep_memories), len(ran), len(found))


def complete(
    missing: list[Experiment],
    wanted: list[Experiment],
    store: Store,
    options: Options,
    watch: Work,
    watcher: Watcher | None = None,
) -> set[str]:
    """Have the `missing` of the runs `wanted` in the store: names of those that were trained by this process
    and those it started. No record is opened: that a run is done is seen by its folder."""
    device, names = options.where, {e.name for e in missing}
    file = MEMORIES if options.keep_memories else "record.json"

    def lacking(pack: Sequence[Experiment]) -> list[Experiment]:
        return [e for e in pack if e.name in names and not holds(store.path / e.name, file)]

    with Claims(store.claims) as claims:
        store.owner = claims.owner
        works = {e.name: total_work(e) for e in missing}
        watch.total, watch.own, watch.apart = sum(works.values()), 0.0, 0.0
        watch.ran.clear()
        room = free_memory(device) if options.room is None else options.room
        queue = packs(missing, wanted, store, device, room)
        size = 1 if watcher else options.processes or suited(device, queue)
        if size > 1:  # they work at the same time, each in its share of the memory
            room //= size
            queue = packs(missing, wanted, store, device, room)

        def heard(done: float) -> None:
            watch.apart = max(watch.apart, done)
            watch.on_change(watch)

        order = [e for pack in queue for e in pack]
        share = replace(options, room=room, processes=1)
        with crew(size - 1 if queue else 0, order, store, share, heard) as members:
            watch.on_change(watch)  # there is work, and how much
            while queue:
                idle = True
                for pack in list(queue):
                    taken = claims.take(e.name for e in pack)
                    mine = [e for e in pack if e.name in taken]
                    if not mine:
                        continue
                    queue.remove(pack)
                    others = [e for e in pack if e.name not in taken]
                    left = lacking(mine)
                    if others:
                        queue.append(others)
                    try:
                        if left:
                            # A pack that was broken off is resumed whole, so that it ends as it would have.
                            whole = len(left) < len(mine) and not others and begun(store, pack)
                            watch.apart = max(watch.apart, _apart(works, store, watch))
                            _run(mine if whole else left, store, options, watch, watcher)
                            watch.ran.update(e.name for e in left)
                            watch.on_change(watch)
                            idle = False
                    finally:
                        claims.release(taken)
                queue = [pack for pack in queue if lacking(pack)]
                if idle and queue:
                    watch.doing = next((m.doing for m in members if m.doing), watch.doing)
                    time.sleep(0.2)
            watch.apart = watch.total - watch.own
            watch.on_change(watch)
        return watch.ran.union(*(member.ran for member in members))


def help_out(wanted: list[Experiment], store: Store, options: Options, watch: Work) -> set[str]:
    """Do what is missing of runs that another process has checked and will read: names of those trained."""
    missing = [e for e in wanted if store.find(e, options.keep_memories) is None]
    return complete(missing, wanted, store, options, watch) if missing else set[str]()


def opened(wanted: Sequence[Experiment], store: Store, memories: bool) -> dict[str, Record]:
    """Have a store ready to be written, and read what it has of these runs: their records by name. One that
    can only be read will do where it has every run."""
    refused = None
    try:
        tidy(store.open())
    except OSError as error:
        refused = error
    read = ((e.name, store.find(e, memories)) for e in wanted)
    found = {name: record for name, record in read if record is not None}
    if refused is not None and len(found) < len(wanted):
        raise refused
    return found


def gathered(
    experiments: Sequence[Experiment], found: dict[str, Record], store: Store, memories: bool
) -> list[Record]:
    """The records of all, in their order: those `found` before, the others read now that they are there."""
    fresh = {e.name: store.find(e, memories) for e in dict.fromkeys(experiments) if e.name not in found}
    if lost := [name for name, record in fresh.items() if record is None]:
        raise OSError(f"records of {', '.join(lost)} were removed or damaged while the study ran")
    records = found | {name: record for name, record in fresh.items() if record is not None}
    return [records[e.name] for e in experiments]


def tidy(store: Store) -> None:
    """Remove what killed processes left: half-written folders, checkpoints of what is done."""
    with Claims(store.claims) as claims:
        store.owner = claims.owner
        checkpoints.sweep(store, claims)
        for pack in checkpoints.finished(store):
            checkpoints.discard(store, pack)


def check(experiments: Sequence[Experiment], options: Options) -> None:
    """See that data, settings and device fit together before anything is written or trained."""
    device = options.where  # one that is not here is said first, even where nothing is to be trained
    for dtype in {e.dtype for e in experiments}:
        kernel_for(device, options.kernel, mixed=dtype == "mixed")
    apart = (*VARYING, "vertex", "method", "settings", "memories", "epochs", "dtype")
    for e in {e.canonical(*apart): e for e in experiments}.values():
        fits(e, options.data_dir)
        if hasattr(stream_class(e.stream), "test_share") and round(e.items * e.test_share) == 1:
            log.warning(
                "test_share %g of %d items is one item a task to test on: its accuracy is 0 or 1",
                e.test_share, e.items,
            )  # fmt: skip


def total_work(e: Experiment) -> float:
    return e.epochs * sum(work(e, task) for task in range(e.tasks))


def packs(
    missing: list[Experiment],
    wanted: list[Experiment],
    store: Store,
    device: torch.device | str,
    room: int,
) -> list[list[Experiment]]:
    """How what is missing is trained: packs that were broken off as they were, so that they resume; the rest
    as it fits the device."""
    by_name = {e.name: e for e in wanted}
    lacking = {e.name for e in missing}
    old = []
    for runs in checkpoints.packs(store).values():
        if lacking.intersection(runs) and all(run in by_name for run in runs):
            old.append([by_name[run] for run in runs])
            lacking.difference_update(runs)
    return old + plan([e for e in missing if e.name in lacking], device, room)


def _apart(works: dict[str, float], store: Store, watch: Work) -> float:
    """Work that others have done since, by their records: one look at the folder, however many runs."""
    others = works.keys() & set(os.listdir(store.path)) - watch.ran
    return sum(works[name] for name in others)


def begun(store: Store, pack: list[Experiment]) -> bool:
    return tuple(e.name for e in pack) in checkpoints.packs(store).values()


def _run(
    pack: list[Experiment], store: Store, options: Options, watch: Work, watcher: Watcher | None
) -> None:
    """Run a pack; where the device's memory does not suffice after all, its halves."""
    first, before = pack[0], watch.own
    label = f"{first.method}, n = {first.vertex:g}"

    def tick(e: Experiment, replicas: int, task: int, epoch: int) -> None:
        share = sum(e.epochs * work(e, t) for t in range(task)) + epoch * work(e, task)
        watch.own, watch.doing = before + replicas * share, f"{label}, task {task + 1}/{e.tasks}"
        watch.on_change(watch)

    short = False
    try:
        with suited_threads(options.where, pack):
            run_pack(pack, store, options, tick, watcher)
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
            _run(half, store, options, watch, watcher)
    watch.own = before + sum(map(total_work, pack))
    watch.on_change(watch)
