"""Pruning: after the second task, strengths that have forgotten everything go no further.

A pack pauses when its second task is learned; its checkpoint is looked at; the replicas worth going on
with are cut out of it as a pack of their own, which is then resumed like any other that was broken off.
What the runs that go on find is what they would have found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from engramma.experiment import Experiment
from engramma.runs import study
from engramma.runs.options import Options
from engramma.runs.pack import pack_name, resumable
from engramma.runs.planning import sizes
from engramma.runs.setup import Built, build
from engramma.runs.study import Work
from engramma.store import checkpoints
from engramma.store.checkpoints import Checkpoint
from engramma.store.records import Record, Store
from engramma.train import Moment

AFTER = 2  # tasks


class Paused(Exception):
    """A pack has learned its second task, and that is on disk."""


class Pause:
    """A watcher that stops a pack in the first epoch after its second task; not one resumed from there."""

    def start(self, experiments: Sequence[Experiment], built: Built) -> None:
        del experiments, built
        self.early = False

    def update(self, moment: Moment, scores: Mapping[str, Tensor] | None) -> None:
        del scores
        self.early = self.early or moment.task < AFTER
        if self.early and moment.task == AFTER:
            raise Paused

    def stop(self) -> None: ...


def train_pruned(
    experiments: list[Experiment], store: Store, options: Options, watch: Work
) -> dict[str, Record]:
    """{name: record} of the runs whose strength was worth training to the end."""
    # The checkpoint after the second task is what decides, whatever it costs.
    options = replace(options, curve_every=experiments[0].epochs, checkpoint_share=float("inf"))
    left = list(experiments)
    while True:
        left = drop(left, store, options)
        try:
            done = study.run(left, store, options, watch, Pause())
            return {record.name: record for record in done.records}
        except Paused:
            continue


def drop(experiments: list[Experiment], store: Store, options: Options) -> list[Experiment]:
    """Experiments without those of the strengths that a checkpoint shows to have forgotten everything.

    What goes on and each strength that does not become packs of their own. Those that do not stay, as the
    reason, until their trials are told so (`forget`): whoever takes them up after a kill comes to the same.
    """
    by_name = {e.name: e for e in experiments}
    for name, runs in checkpoints.packs(store).items():
        if checkpoints.stages(store, name) != [AFTER] or not set(runs) <= by_name.keys():
            continue
        pack = [by_name[run] for run in runs]
        point = resumable(store, pack, build(pack, *options.place))
        if point is None or point.theta is None:
            continue
        lost = forgotten(pack, point)
        parts: dict[float | None, list[int]] = {}
        for row, e in enumerate(pack):
            parts.setdefault(e.strength if e.strength in lost else None, []).append(row)
        if len(parts) > 1:
            for rows in parts.values():
                checkpoints.save(store, pack_name([pack[row] for row in rows]), cut(point, rows))
            checkpoints.discard(store, name)
        experiments = [e for e in experiments if not (e.name in runs and e.strength in lost)]
    return experiments


def forget(runs: set[str], store: Store) -> None:
    """Remove the checkpoints of packs of none but these runs."""
    for name, there in checkpoints.packs(store).items():
        if runs.issuperset(there):
            checkpoints.discard(store, name)


def forgotten(pack: Sequence[Experiment], point: Checkpoint) -> set[float | None]:
    """Strengths with which, in the mean over seeds, task 1 is lost or task 2 was not learned.

    Lost: an accuracy of chance plus two of its standard errors, or less.
    """
    first = pack[0]
    _, classes, training = sizes(first)
    chance, items = 1 / classes, first.items - training
    bound = chance + 2 * (chance * (1 - chance) / items) ** 0.5
    scores = next(v for k, v in point.measured.items() if k.startswith("scores/"))  # (R,T,T)
    after = scores[:, AFTER - 1, :AFTER].nan_to_num()
    lost: set[float | None] = set()
    for strength in {e.strength for e in pack}:
        rows = [row for row, e in enumerate(pack) if e.strength == strength]
        if bool((after[rows].mean(0) <= bound).any()):
            lost.add(strength)
    return lost


def cut(point: Checkpoint, rows: list[int]) -> Checkpoint:
    """The checkpoint of some replicas of a pack. Every tensor of a penalty's state leads with replicas."""
    count = len(point.runs)
    assert point.theta is not None

    def part(tensor: Any) -> Any:
        return tensor[rows] if isinstance(tensor, Tensor) and len(tensor) == count else tensor

    measured = {k: v if k == "marks" else v[:, rows] if k.startswith("curves/") else v[rows]
                for k, v in point.measured.items()}  # fmt: skip
    report = {
        k: [v[row] for row in rows] if isinstance(v, list) and len(v) == count else v
        for k, v in point.facts["report"].items()
    }
    return Checkpoint(
        tuple(point.runs[row] for row in rows),
        point.done,
        point.theta[rows],
        type(point.state)(*(part(value) for value in point.state)),
        measured,
        {**point.facts, "report": report, "seeds": [point.facts["seeds"][row] for row in rows]},
    )
