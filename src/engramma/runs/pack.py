"""A pack: experiments trained together as replicas, measured on the way, resumed where they were stopped."""

from __future__ import annotations

import datetime
import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

import engramma
from engramma.experiment import Experiment
from engramma.methods.state import alike
from engramma.replicas import Replicas
from engramma.runs.forks import branch, lineage
from engramma.runs.options import Options
from engramma.runs.planning import seed_major
from engramma.runs.setup import Built, build
from engramma.store import checkpoints
from engramma.store.checkpoints import Checkpoint
from engramma.store.files import plain
from engramma.store.records import Record, Store
from engramma.streams.datasets import is_path
from engramma.train import Moment

POINTS = 25  # of a curve, a task
LIGHT = 2**24  # bytes of a checkpoint that costs next to nothing
PACE = 2e8  # bytes of a heavier one written in a second, until one has been timed

Tick = Callable[[Experiment, int, int, int], None]  # (first of the pack, replicas, task, epoch)


class Watcher(Protocol):
    """Sees packs train, one after another; watch.py has some."""

    def start(self, experiments: Sequence[Experiment], built: Built) -> None: ...
    def update(self, moment: Moment, scores: Mapping[str, Tensor] | None) -> None: ...
    def stop(self) -> None: ...


def pack_name(experiments: Sequence[Experiment]) -> str:
    return hashlib.sha256(" ".join(e.hash() for e in experiments).encode()).hexdigest()[:20]


def run_pack(
    experiments: Sequence[Experiment],
    store: Store,
    options: Options = Options(),
    tick: Tick | None = None,
    watcher: Watcher | None = None,
) -> list[Record]:
    """Train experiments of one family together and store a record of each, in the order given.

    Accuracies are measured before training, every `curve_every` epochs (default: 25 times a task) and
    after each task. A `watcher` (watch.py) sees the pack begin, every epoch with what was measured, and its
    end.
    """
    pack = seed_major(experiments)
    first = pack[0]
    built = build(pack, *options.place)
    every = options.curve_every or max(1, first.epochs // POINTS)
    ledger, shelf = Ledger(first.tasks, first.epochs), Shelf(store, pack, options)
    point = shelf.last(built)
    if point is not None:
        ledger.restore(point)
    else:
        ledger.measure(built, built.network.at(built.optimiser.beta(0, built.theta)), built.theta)
    if watcher:
        watcher.start(pack, built)
    ledger.begun = shelf.written = time.perf_counter()
    for moment in _moments(built, point):
        ledger.watch(moment.moving, moment.task, moment.epoch)
        scores = None
        if moment.ends_task or moment.epoch % every == 0:
            scores = ledger.measure(
                built, moment.network, moment.theta, moment.task, moment.epoch, moment.ends_task
            )
        if watcher:
            watcher.update(moment, scores)
        if tick:
            tick(first, len(pack), moment.task, moment.epoch)
        if moment.ends_task:
            ledger.close(moment)
            shelf.keep(moment, ledger)
    if watcher:
        watcher.stop()
    kept = shelf.memories() if options.keep_memories else []
    common = facts(options.where, built, ledger, shelf.name)
    records = {}
    for row, experiment in enumerate(pack):
        record = ledger.record(row, experiment, common, built)
        whole = replace(record, kept=tuple(after[row].numpy() for after in kept))
        records[experiment.name] = replace(record, folder=store.write(whole))
    if not options.keep_checkpoints:
        checkpoints.discard(store, shelf.name)
    return [records[e.name] for e in experiments]


def _moments(built: Built, point: Checkpoint | None) -> Iterator[Moment]:
    """The pack in training, from its beginning or from where a checkpoint left it."""
    if point is None:
        return built.train()
    if point.theta is None:  # every task was learned: only records were missing
        return iter(())
    return built._replace(theta=point.theta).train((point.done, point.state))


class Shelf:
    """The checkpoints of a pack.

    After a task one is kept until the records are stored, where writing it takes no more than
    `checkpoint_share` of the time since the last, or next to nothing. Where memories or checkpoints are to be
    kept, each is, after every task.
    """

    def __init__(self, store: Store, pack: Sequence[Experiment], options: Options) -> None:
        self.store, self.pack, self.name = store, pack, pack_name(pack)
        self.all = options.keep_memories or options.keep_checkpoints
        self.share = options.checkpoint_share
        asked = {"keep": options.keep_checkpoints, "memories": options.keep_memories}
        self.told = {**lineage(pack), **asked}  # by each of them
        self.written, self.pace = 0.0, PACE  # when the last was, and how many bytes a second

    def last(self, built: Built) -> Checkpoint | None:
        """Where the pack goes on: at its own last checkpoint, or where the runs stood that it continues."""
        if is_path(self.pack[0].data):  # which may be another's when the pack goes on
            self.told["stream_hash"] = built.stream.hash()
        point = resumable(self.store, self.pack, built, self.all)
        if point is None and self.pack[0].fork:
            point = branch(self.store, self.pack, built)
            if fault := misfit(point, self.pack, built):
                raise ValueError(f"fork: the checkpoint of {self.pack[0].fork} is not of its pack: {fault}")
        return point

    def keep(self, moment: Moment, ledger: Ledger) -> None:
        """After a task: write a checkpoint, if it is worth its time."""
        done = moment.task + 1
        whole = self.all or done < ledger.tasks  # after the last task none is trained on: the scores will do
        point = Checkpoint(
            tuple(e.name for e in self.pack),
            done,
            moment.theta if whole else None,
            moment.state if whole else None,
            ledger.tensors(),
            {**ledger.facts(), **self.told},
        )
        now, size = time.perf_counter(), checkpoints.size(point)
        worth = size <= LIGHT or (now - self.written) * self.share >= size / self.pace
        if self.all or (worth and (whole or len(self.pack) > 1)):
            checkpoints.save(self.store, self.name, point)
            self.written = time.perf_counter()
            self.pace = size / (self.written - now)
            if not self.all:
                checkpoints.discard(self.store, self.name, below=done)

    def memories(self) -> list[Tensor]:
        """[(R,M,N)] after each task, where all were kept."""
        tasks = range(1, self.pack[0].tasks + 1)
        points = [checkpoints.load(self.store, self.name, done, None, "cpu") for done in tasks]
        thetas = [point.theta for point in points if point is not None and point.theta is not None]
        if len(thetas) < len(tasks):
            raise OSError(f"checkpoints of pack {self.name} were removed or damaged while it was trained")
        return thetas


@dataclass
class Ledger:
    """What is measured on the way: scores (R,T,T), curves (E,R,T), and when a replica diverged."""

    tasks: int
    epochs: int
    scores: dict[str, Tensor] = field(default_factory=dict)
    marks: list[int] = field(default_factory=list)  # epochs over all tasks, at which curves were measured
    curves: dict[str, list[Tensor]] = field(default_factory=dict)
    broke: Tensor | None = None  # (R,) epoch over all tasks after which memories were not finite; 0: never
    seconds: list[float] = field(default_factory=list)  # of each task, for the whole pack
    report: dict[str, Any] = field(default_factory=dict)
    begun: float = 0.0  # when the task in training was, by the clock

    def watch(self, theta: Tensor, task: int, epoch: int) -> None:
        """Note which replicas have diverged. Nothing is read back: a device goes on unhindered."""
        sound = theta.sum((1, 2)).isfinite()
        if self.broke is None:
            self.broke = torch.zeros(len(theta), dtype=torch.long, device=theta.device)
        now = task * self.epochs + epoch
        self.broke = torch.where((self.broke == 0) & ~sound, now, self.broke.to(theta.device))

    def measure(
        self, built: Built, network: Any, theta: Tensor, task: int = 0, epoch: int = 0, ends: bool = False
    ) -> dict[str, Tensor]:
        """{score: (R,T)}, NaN for replicas that have diverged.

        Not every network has every score: before the first task none says whose items are whose. Where a
        score was not measured its curve has NaN.
        """
        found = {k: v.double().cpu() for k, v in built.stream.evaluate(network, theta).items()}
        none = torch.full((len(theta), self.tasks), torch.nan, dtype=torch.float64)
        for key in dict.fromkeys((*found, *self.curves)):
            values = found.get(key, none)
            if self.broke is not None:
                values[self.broke.cpu() > 0] = torch.nan
            self.curves.setdefault(key, [none] * len(self.marks)).append(values)
            if ends:
                empty = torch.full((len(theta), self.tasks, self.tasks), torch.nan, dtype=torch.float64)
                self.scores.setdefault(key, empty)[:, task] = values
        self.marks.append(task * self.epochs + epoch)
        return found

    def close(self, moment: Moment) -> None:
        """After a task: note how long it took, and what the method says of itself."""
        self.seconds.append(time.perf_counter() - self.begun)
        self.begun = time.perf_counter()
        self.report = plain(moment.method.report(moment.state))  # as a file gives it back

    def tensors(self) -> dict[str, Tensor]:
        out = {f"scores/{k}": v for k, v in self.scores.items()}
        out |= {f"curves/{k}": torch.stack(v) for k, v in self.curves.items()}
        assert self.broke is not None
        return {**out, "marks": torch.tensor(self.marks), "broke": self.broke}

    def facts(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "report": self.report}

    def restore(self, point: Checkpoint) -> None:
        measured = point.measured
        self.scores = {k[7:]: v.clone() for k, v in measured.items() if k.startswith("scores/")}
        self.curves = {k[7:]: list(v.unbind(0)) for k, v in measured.items() if k.startswith("curves/")}
        self.marks, self.broke = measured["marks"].tolist(), measured["broke"]
        self.seconds, self.report = list(point.facts["seconds"]), point.facts["report"]

    def record(self, row: int, experiment: Experiment, common: dict[str, Any], built: Built) -> Record:
        assert self.broke is not None
        broke = int(self.broke[row])
        task, epoch = divmod(broke - 1, self.epochs)
        count = len(self.broke)
        own = {
            "report": {
                k: v[row] if isinstance(v, list) and len(v) == count else v for k, v in self.report.items()
            },
            "stream_hash": replace(built.stream, replicas=Replicas((experiment.seed,))).hash(),
        }
        return Record(
            experiment.describe(),
            {k: v[row].numpy() for k, v in self.scores.items()},
            {
                "epoch": np.array(self.marks, dtype=np.int64),
                **{k: torch.stack([point[row] for point in v]).numpy() for k, v in self.curves.items()},
            },
            {**common, **own},
            {"task": task, "epoch": epoch + 1} if broke else None,
        )


def facts(place: torch.device, built: Built, ledger: Ledger, name: str) -> dict[str, Any]:
    model = (
        torch.cuda.get_device_name(place)
        if place.type == "cuda"
        else platform.processor() or platform.machine()
    )
    return {
        "versions": {
            "engramma": engramma.__version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "device": f"{place.type} ({model})",
        "threads": torch.get_num_threads(),
        "kernel": built.network.arithmetic.name,
        "pack": name,
        "replicas": len(built.replicas),
        "seconds": sum(ledger.seconds),
        "seconds_by_task": ledger.seconds,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def resumable(
    store: Store, pack: Sequence[Experiment], built: Built, keep: bool = False
) -> Checkpoint | None:
    """The last sound checkpoint; where all are to be kept, only if none before it is missing.

    One that is not what the pack would have written is named and set aside.
    """
    name, sound = pack_name(pack), {}
    for done in sorted(checkpoints.stages(store, name), reverse=True):
        point = checkpoints.load(store, name, done, built.method, built.theta.device)
        if point is not None and (fault := misfit(point, pack, built)):
            place = store.checkpoints / name / str(done)
            store.set_aside(place, f"checkpoint {place} is not of its pack: {fault}")
        elif point is not None:
            sound[done] = point
            if not keep:
                break
    last = max(sound, default=0)
    if keep and (len(sound) < last or any(point.theta is None for point in sound.values())):
        return None
    return sound.get(last)


def misfit(point: Checkpoint, pack: Sequence[Experiment], built: Built) -> str:
    """What of a checkpoint is not as this pack would have left it; empty where all is.

    What a method's state is made of only the method knows: the pack is trained for one epoch a task, and what
    that leaves must have the same parts, of the same types and shapes.
    """
    first, like = pack[0], Ledger(pack[0].tasks, 1)
    told = plain(lineage(pack))
    if point.runs != tuple(e.name for e in pack) or {k: point.facts.get(k) for k in told} != told:
        return "its runs are others"
    if "stream_hash" in point.facts and point.facts["stream_hash"] != built.stream.hash():
        return f"{first.data} is no longer what it learned"
    if not 1 <= point.done <= first.tasks or (point.theta is None and point.done < first.tasks):
        return "its memories are missing"
    seconds = point.facts.get("seconds")
    if not isinstance(seconds, list) or [type(each) for each in seconds] != [float] * point.done:
        return "its seconds are not one number a task"
    if not isinstance(point.facts.get("report"), dict):
        return "its report is no table"
    like.watch(built.theta, 0, 1)
    like.measure(built, built.network.at(built.optimiser.beta(0, built.theta)), built.theta, ends=True)
    for name in (k.removeprefix("scores/") for k in point.measured if k.startswith("scores/")):
        # Further scores are those of a method's network: one of before a fork, or none of an older release.
        like.scores.setdefault(name, next(iter(like.scores.values())))
        like.curves.setdefault(name, next(iter(like.curves.values())))
    count = max(1, point.measured["marks"].numel()) if "marks" in point.measured else 1
    measured = {
        k: v.expand(count, *v.shape[1:]) if k == "marks" or k.startswith("curves/") else v
        for k, v in like.tensors().items()
    }
    if not alike(point.measured, measured):
        return "its measurements have other names, types or shapes"
    if point.theta is not None:
        optimiser = replace(built.optimiser, epochs=1)
        short = built._replace(optimiser=optimiser).train()
        moment = next(m for m in short if m.task + 1 == point.done)
        if not alike(point.theta, moment.theta):
            return "its memories have another type or shape"
        if not alike(point.state, moment.state):
            return "the state of its method has other parts, types or shapes"
    return ""
