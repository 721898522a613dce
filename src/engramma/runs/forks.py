"""Forks: runs that continue another run from the end of one of its tasks, with another method or strength."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from engramma.experiment import VARYING, Experiment
from engramma.methods import Now
from engramma.methods.state import alike
from engramma.runs.setup import Built
from engramma.store import checkpoints
from engramma.store.checkpoints import Checkpoint
from engramma.store.records import Store


def lineage(pack: Sequence[Experiment]) -> dict[str, Any]:
    """What a checkpoint says of its runs, for a fork to see whether it fits."""
    rest = pack[0].canonical(*VARYING, "method", "settings", "fork")
    return {
        "seeds": [e.seed for e in pack],
        "method": pack[0].method,
        "settings": pack[0].settings,
        "setting": hashlib.sha256(rest.encode()).hexdigest(),
    }


def fork(parent: Experiment, after: int, method: str | None = None, **changes: Any) -> Experiment:
    """`parent` continued from the end of task `after` (counted from 0) with other settings."""
    if not 0 <= after < parent.tasks - 1:
        raise ValueError(f"fork: the task must be between 0 and {parent.tasks - 2}, not {after}")
    if method is not None and method != parent.method:
        changes = {"strength": None, "settings": {}, **changes, "method": method}
    return parent.but(**changes, fork=f"{parent.name}@{after}")


def branch(store: Store, ordered: Sequence[Experiment], built: Built) -> Checkpoint:
    """Where forked experiments begin: the memories of their parents after task k.

    With the parents' method (at any strength) their state goes on as it is. Another method looks back:
    it takes stock of every task so far with the memories that the parents then had, as if it had been
    there (but for SI, whose path was not recorded: it begins at the fork).
    """
    parents = [str(e.fork).partition("@")[0] for e in ordered]
    after = int(str(ordered[0].fork).partition("@")[2])
    packs = checkpoints.packs(store)
    homes = {run: pack for pack, runs in packs.items() for run in runs}
    if missing := [p for p in parents if p not in homes]:
        raise ValueError(
            f"fork: {store.path} has no checkpoints of {', '.join(missing)} (--keep-checkpoints)"
        )
    rows = [packs[homes[p]].index(p) for p in parents]
    stages = [_stage(store, parents, homes, done, ordered, built) for done in range(1, after + 2)]
    memories = [
        torch.stack([c.theta[r] for c, r in zip(stage, rows, strict=True) if c.theta is not None]).to(
            built.theta
        )
        for stage in stages
    ]
    last = stages[-1]
    if [c.facts["seeds"][r] for c, r in zip(last, rows, strict=True)] != [e.seed for e in ordered]:
        raise ValueError("fork: the seed must be that of the run continued")
    told = {k: last[0].facts.get(k) for k in ("method", "settings")}
    one_pack = packs[homes[parents[0]]] == tuple(parents)
    if one_pack and told == {"method": ordered[0].method, "settings": ordered[0].settings}:
        state = _stage(store, parents[:1], homes, after + 1, ordered, built, whole=True)[0].state
    else:
        state = built.method.start(memories[0])
        network = built.network.at(built.optimiser.beta(built.optimiser.epochs, built.theta))
        for task, theta in enumerate(memories):
            now = Now(network, built.stream[task], built.optimiser.epochs, 0, built.replicas)
            state = built.method.consolidate(state, now, theta)
    own = [_of(c.measured, row) for c, row in zip(last, rows, strict=True)]
    if not all(alike(each, own[0]) and each["marks"].equal(own[0]["marks"]) for each in own):
        raise ValueError("fork: the runs continued must have been measured at the same epochs (curve_every)")
    measured = {k: v if k == "marks" else torch.cat([o[k] for o in own], _axis(k)) for k, v in own[0].items()}
    facts = {"seconds": last[0].facts.get("seconds"), "report": {}, **lineage(ordered)}
    return Checkpoint(tuple(e.name for e in ordered), after + 1, memories[-1], state, measured, facts)


def _stage(
    store: Store,
    parents: list[str],
    homes: dict[str, str],
    done: int,
    children: Sequence[Experiment],
    built: Built,
    whole: bool = False,
) -> list[Checkpoint]:
    """The checkpoint of every parent after `done` tasks; `whole`: with the state of its method."""
    device = built.theta.device if whole else "cpu"
    found: dict[str, Checkpoint] = {}
    for pack in dict.fromkeys(homes[p] for p in parents):
        point = checkpoints.load(store, pack, done, built.method if whole else None, device)
        if point is None or point.theta is None:
            raise ValueError(f"fork: no checkpoint after task {done - 1} of pack {pack} (--keep-checkpoints)")
        if point.facts.get("setting") != lineage(children)["setting"]:
            raise ValueError(
                "fork: only the method, its settings and what varies between replicas may change"
            )
        if not _rows(point, built):
            raise ValueError(f"fork: checkpoint {done} of pack {pack} is not of its {len(point.runs)} runs")
        found[pack] = point
    return [found[homes[p]] for p in parents]


def _rows(point: Checkpoint, built: Built) -> bool:
    """Whether a checkpoint has a row for each of its runs in all that a fork takes its own rows from."""
    count, seeds = len(point.runs), point.facts.get("seeds")
    rows = [v.shape[_axis(k) :][:1] for k, v in point.measured.items() if k != "marks"]
    return (
        isinstance(seeds, list)
        and len(seeds) == count
        and alike(point.theta, built.theta.new_empty((count, *built.theta.shape[1:])))
        and "marks" in point.measured
        and all(row == (count,) for row in rows)
    )


def _of(measured: dict[str, torch.Tensor], row: int) -> dict[str, torch.Tensor]:
    """What was measured of one replica."""
    return {k: v if k == "marks" else v.narrow(_axis(k), row, 1) for k, v in measured.items()}


def _axis(measured: str) -> int:
    """Along which the replicas lie."""
    return 1 if measured.startswith("curves/") else 0
