"""A small study, for the tests of the report."""

from __future__ import annotations

from pathlib import Path

from engramma.experiment import read
from engramma.runs import study
from engramma.runs.options import Options
from engramma.store.records import Record, Store

EVIL = "<script>window.hacked=1</script>\"'&"
SMALL = {"data": "digits", "tasks": 3, "items": 150, "memories": 16, "epochs": 25}


def groups_study(folder: Path) -> list[Record]:
    """Allocation with one group a task, with groups that learn two tasks, with tasks found, and told."""
    run = {**SMALL, "method": "allocation", "memories": 24, "tasks": 4, "order": [0, 1, 0, 2], "vertex": 5.0}
    own = [{}, {"groups": 2}, {"boundaries": "found", "alarm": 2.0}, {"wake": "id"}]
    runs = [read({**run, "settings": settings}) for settings in own]
    return study.run(runs, Store(folder), Options(keep_memories=True, curve_every=25)).records


def small_study(folder: Path) -> list[Record]:
    """Two vertices, a search over lambda, a method with a buffer."""
    runs = [read({**SMALL, "vertex": n, "seed": s}) for n in (2.0, 20.0) for s in (0, 1)]
    runs += [read({**SMALL, "vertex": 2.0, "method": "rehearsal", "strength": 0.5})]
    runs += [
        read({**SMALL, "vertex": 2.0, "method": "ewc", "strength": x, "seed": s})
        for x in (1.0, 30.0, 1e3)
        for s in (0, 1)
    ]
    return study.run(runs, Store(folder), Options(keep_memories=True, curve_every=5)).records
