"""A study on many machines: packs are sent to a Dask cluster, whose workers write the records.

The store is a folder that all of them see. A worker runs a pack as any process on the store does: it
claims the runs, takes up what another left, and puts the records in their place. What comes back is how
many it trained. So nothing is lost with a worker, the scheduler or the process that sends; whichever of
them ends, the same command goes on from the records that are there.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engramma.experiment import VARYING, Experiment
from engramma.runs import study
from engramma.runs.options import Options
from engramma.runs.planning import halves
from engramma.runs.study import Outcome, Work, total_work
from engramma.runs.workers import check, ready, said, source, train
from engramma.store.records import Store

if TYPE_CHECKING:
    from distributed import Client, Future

log = logging.getLogger("engramma")

PATIENCE = 10.0  # seconds for a scheduler to answer, at first and after it was lost
AHEAD = 2  # packs sent for every worker: the scheduler's load grows with workers, not with runs
SHARES = 3  # packs a worker at least, where they can be cut: the last to finish is then soon done
WHERE = "tcp://host:8786, tls://host:8786, a scheduler file ending in .json, or local:4"


@contextmanager
def joined(where: str, device: str = "auto") -> Iterator[Client]:
    """A client of the cluster at `where`; local:4 starts one of four processes, which ends with it."""
    try:
        import distributed
    except ImportError:
        raise ValueError("cluster needs Dask: pip install 'engramma[cluster]'") from None
    # What a user is to know is said in one line, where it is noticed: Dask would add its own dozens.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    kind, _, count = where.partition(":")
    if kind == "local":
        with _local(count, device) as cluster, distributed.Client(cluster, timeout=PATIENCE) as client:
            yield client
        return
    address = _written(Path(where)) if where.endswith(".json") else where
    if address.partition(":")[0] not in ("tcp", "tls"):
        raise ValueError(f"cluster must be {WHERE}, not {address!r}")
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls without certificates
        raise ValueError(
            f"cluster must be {WHERE}; no scheduler answers at {address} ({type(error).__name__})"
        ) from None
    try:
        yield client
    finally:
        with suppress(Exception):  # a scheduler that is gone cannot be told goodbye
            client.close()


def _written(file: Path) -> str:
    """The address in a scheduler file."""
    for _ in range(5):  # a scheduler that is just starting may be writing it
        try:
            address = json.loads(file.read_bytes())["address"]
            if isinstance(address, str):
                return address
        except FileNotFoundError:
            raise ValueError(f"cluster must be {WHERE}; there is no file {file}") from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            time.sleep(0.1)
    raise ValueError(f"cluster must be {WHERE}; {file} is not a scheduler's file")


def _local(count: str, device: str) -> Any:
    """So many worker processes of one thread each; with CUDA each has a GPU of its own."""
    import torch
    from distributed import Nanny, Scheduler, SpecCluster

    if not count.isdecimal() or not 0 < int(count) <= 1024:
        raise ValueError(f"cluster local:N must name how many processes, from 1 to 1024, not {count!r}")
    number, gpus = int(count), torch.cuda.device_count()
    if device.startswith("cuda") and number > gpus:
        raise ValueError(f"cluster local:{number} must have a GPU for every process; {gpus} are here")
    on_gpus = device != "cpu" and 0 < number <= gpus
    each = _total_memory() // number
    here: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "dashboard": False}
    options = {**here, "nthreads": 1, "memory_limit": each, "silence_logs": logging.CRITICAL}
    workers = {}
    for i in range(number):
        own: dict[str, Any] = {"env": {"OMP_NUM_THREADS": "1"}}
        if on_gpus:
            own = {"env": {"CUDA_VISIBLE_DEVICES": str(i)}, "resources": {"GPU": 1}}
        workers[i] = {"cls": Nanny, "options": {**options, **own}}
    head = {"cls": Scheduler, "options": {**here, "port": 0}}
    return SpecCluster(workers=workers, scheduler=head)


def _total_memory() -> int:
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT)


def run(
    experiments: Sequence[Experiment],
    store: Store,
    client: Client,
    options: Options = Options(device="auto"),
    watch: Work | None = None,
) -> Outcome:
    """Run what the store does not have yet on the workers of a cluster, as `study.run` does here.

    The device is one of theirs: auto is a GPU where a worker offers one.
    """
    watch = watch or Work()
    wanted = list(dict.fromkeys(experiments))
    found = study.opened(wanted, store, options.keep_memories)
    missing = [e for e in wanted if e.name not in found]
    watch.total, watch.own, watch.apart = sum(map(total_work, missing)), 0.0, 0.0
    ran = 0
    if missing:
        crowd = ready(client, store, options.device)
        there = replace(options, device=crowd.device, room=crowd.room, processes=1).told()
        home = {"store": str(store.path.resolve()), "origin": source(), "options": there}
        needs: dict[str, Any] = {"resources": {"GPU": 1}} if crowd.device == "cuda" else {}
        families = list({e.canonical(*VARYING): e.describe() for e in missing}.values())
        with said("check the settings"):
            client.submit(check, families, there, pure=False, **needs).result()
        packs = study.packs(missing, wanted, store, crowd.device, crowd.room)
        ran = _send(client, shares(packs, crowd.workers, crowd.device, store), home, needs, watch)
    return Outcome(study.gathered(experiments, found, store, options.keep_memories), ran, len(found))


def shares(packs: list[list[Experiment]], workers: int, device: str, store: Store) -> list[list[Experiment]]:
    """Packs cut until none is much of the whole, the longest first; those begun stay as they are.

    A GPU is quicker with many replicas at once: there, only so far that every worker has something to do.
    """
    whole = sum(total_work(e) for pack in packs for e in pack)
    most = whole / (workers * (SHARES if device == "cpu" else 1))

    def cut(pack: list[Experiment]) -> list[list[Experiment]]:
        if len(pack) == 1 or sum(map(total_work, pack)) <= most or study.begun(store, pack):
            return [pack]
        return [part for half in halves(pack) for part in cut(half)]

    return sorted((part for pack in packs for part in cut(pack)), key=lambda p: -sum(map(total_work, p)))


def _send(
    client: Client,
    packs: list[list[Experiment]],
    order: Mapping[str, Any],
    needs: Mapping[str, Any],
    watch: Work,
) -> int:
    """Have packs trained, a few ahead of every worker, until all are done: how many runs were trained."""
    topic = f"engramma-{os.urandom(6).hex()}"
    works = [sum(map(total_work, pack)) for pack in packs]
    shown: dict[int, float] = {}  # how far each pack is
    client.subscribe_topic(topic, lambda event: shown.__setitem__(*event[1]))
    todo, sent, ended = deque(range(len(packs))), {}, queue.SimpleQueue[int]()
    ran, asked, workers = 0, 0.0, 1

    def submit(number: int) -> Future:
        told = [e.describe() for e in packs[number]]
        key = f"{topic}-{number}-{os.urandom(3).hex()}"
        future = client.submit(train, told, number=number, topic=topic, **order, key=key, pure=False, **needs)
        future.add_done_callback(lambda _: ended.put(number))
        return future

    while todo or sent:
        if time.monotonic() - asked > 2.0:  # workers come and go
            workers, asked = max(1, len(_or_lost(client, client.nthreads, {}))), time.monotonic()
        while todo and len(sent) < AHEAD * workers:
            number = todo.popleft()
            sent[number] = submit(number)
        try:
            number = ended.get(timeout=0.5)
        except queue.Empty:
            _or_lost(client)
        else:
            future = sent.pop(number)
            if future.status == "finished":
                ran += _or_lost(client, future.result, 0)
                shown[number] = works[number]
            elif future.status == "error":
                with said(f"run {packs[number][0].name} and {len(packs[number]) - 1} more"):
                    future.result()
            else:  # the scheduler was lost, and with it all that it knew
                todo.appendleft(number)
                _or_lost(client)
        watch.apart = sum(min(done, works[n]) for n, done in list(shown.items()))
        watch.doing = f"{workers} workers"
        watch.on_change(watch)
    return ran


def _or_lost(client: Client, ask: Any = None, instead: Any = None) -> Any:
    """What is asked of the scheduler, `instead` where it is just away; one away for long is lost."""
    with suppress(OSError):
        if client.status == "running":
            return ask() if ask else None
    until = time.monotonic() + PATIENCE + 5
    while client.status == "connecting" and time.monotonic() < until:
        time.sleep(0.1)
    if client.status != "running":
        raise OSError(
            "the scheduler was lost; the records so far are in the store, and when it runs again the same "
            "command goes on from there"
        )
    return instead
