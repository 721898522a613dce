"""What the report's page knows, from records alone, as JSON can hold it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engramma import __version__
from engramma.paper import numbers as paper
from engramma.show import labels
from engramma.show import select as trials
from engramma.show.agreement import RULE, Cell, Line, Table
from engramma.show.compare import compared
from engramma.show.report.portraits import has_memories, pack, portrait, prototype_index
from engramma.store import scores
from engramma.store.scores import Recorded
from engramma.streams.datasets import DataError

SEARCHED = {
    "strength": "strength",
    "learning_rate": "initial learning rate",
    "initial_temperature": "initial temperature",
    "final_temperature": "final temperature",
}
# Where two runs differ in one of these, they stand in no table together.
CHOICE = ("data", "stream", "tasks", "items", "test_share", "memories", "epochs")
POINTS = 160  # of a curve; more cannot be told apart on a screen


def content(
    records: Sequence[Recorded],
    title: str,
    data_dir: str | Path | None = None,
    networks: int = 24,
    memory_budget: int = 6_000_000,
) -> dict[str, Any]:
    """All that the page shows."""
    records = sorted(records, key=_order)
    portraits, scenes, notes = _portraits(records, data_dir, networks, memory_budget)
    choices = _choices(records)
    of = {record_id: k for k, (_, own) in enumerate(choices) for record_id in map(id, own)}
    return {
        "title": title,
        "version": __version__,
        "choices": [
            {
                "name": name,
                "summary": _summary(own),
                "table": _table(own, len(records) - len(own)),
                "comparison": _comparison(own),
                "curves": [curve for record in own if (curve := _curve(record)) is not None],
                "searches": _searches(own),
                "prototypes": _prototypes(own, data_dir) if portraits else [],
            }
            for name, own in choices
        ],
        "portraits": [{**one, "of": of[id(record)]} for record, one in portraits],
        "scenes": scenes,
        "notes": notes,
    }


def _choices(records: Sequence[Recorded]) -> list[tuple[str, list[Recorded]]]:
    """Runs by data and setting, those of most runs first, each named by what not all have in common."""
    found: dict[tuple[str, ...], list[Recorded]] = {}
    for record in records:
        found.setdefault(tuple(str(trials.setting(record, name)) for name in CHOICE), []).append(record)
    differ = [k for k in range(len(CHOICE)) if len({key[k] for key in found}) > 1]
    told = {key: ", ".join(f"{CHOICE[k].replace('_', ' ')} {key[k]}" for k in differ) for key in found}
    ranked = sorted(found, key=lambda key: -len(found[key]))
    return [(told[key], found[key]) for key in ranked] or [("", [])]


def label(record: Recorded) -> str:
    return labels.run(str(trials.setting(record, "method")), trials.strength(record))


def _order(record: Recorded) -> tuple[Any, ...]:
    method = str(trials.setting(record, "method"))
    strength = trials.strength(record)
    vertex, seed = trials.setting(record, "vertex"), trials.setting(record, "seed")
    return trials.in_paper(method), method, -1.0 if strength is None else strength, vertex or 0, seed or 0


def _who(record: Recorded) -> dict[str, Any]:
    vertex, seed = trials.setting(record, "vertex"), trials.setting(record, "seed")
    return {"label": label(record), "vertex": vertex, "seed": seed}


def _summary(records: Sequence[Recorded]) -> dict[str, Any]:
    """What the records have in common, and what differs."""
    shared = {}
    for name in ("data", "stream", "tasks", "items", "memories", "epochs", "dtype"):
        seen = sorted({str(trials.setting(r, name)) for r in records})
        if len(seen) == 1:
            shared[name] = seen[0]
    return {
        "runs": len(records),
        "diverged": scores.diverged(records),
        "shared": shared,
        "unlike_paper": trials.unlike_paper(records),
        "score": next(iter(records[0].scores), "accuracy") if records else "accuracy",
    }


def _table(records: Sequence[Recorded], elsewhere: int = 0) -> dict[str, Any]:
    """Table 2, every row of the paper's and every other that was run; a column a vertex. `elsewhere`: how
    many runs have another table."""
    vertices = sorted(
        {float(v) for v in paper.vertices()} | {float(r.description["vertex"]) for r in records}
    )
    printed = {row.key: row for row in paper.rows()}
    run, alike = trials.by_row(records), not trials.unlike_paper(records)
    lines, rows = [], []
    for key in dict.fromkeys([*printed, *run]):
        places = trials.group(run.get(key, []), "vertex")
        theirs = [paper.printed(printed[key], v) if key in printed else None for v in vertices]
        found = [_cell(places.get(v, []), p, alike) for v, p in zip(vertices, theirs, strict=True)]
        lines.append(Line(labels.row(*key), tuple(cell for cell, _ in found)))
        rows.append({"label": lines[-1].label, "run": key in run, "cells": [told for _, told in found]})
    table = Table("table2", "", tuple(map(labels.vertex, vertices)), tuple(lines))
    said = f"A cell agrees where {RULE}. {table.count}. {table.caution}" if table.agreeing[1] else ""
    left_out = _left_out([cell for row in rows for cell in row["cells"]], elsewhere)
    if absent := [row["label"] for row in rows if not row["run"]]:
        left_out.append(f"rows of the paper that were not run ({', '.join(absent)})")
    own = {name for record in records for name in record.description} - {"method", "settings", "strength"}
    differ = [name.replace("_", " ") for name in trials.differing(records, ("seed", "vertex")) if name in own]
    return {"vertices": vertices, "rows": rows, "said": said, "left_out": left_out, "differ": differ}


def _left_out(cells: Sequence[dict[str, Any]], elsewhere: int) -> list[str]:
    """What no mean of the table holds, in words."""
    counts = {
        "of other data or settings, which can be chosen above": elsewhere,
        "that diverged": sum(cell["diverged"] for cell in cells),
        "in cells whose runs differ in more than their seed": sum(
            cell["trials"] for cell in cells if cell["mixed"]
        ),
    }
    return [f"{count} run{'s' if count > 1 else ''} {what}" for what, count in counts.items() if count]


def _comparison(records: Sequence[Recorded]) -> dict[str, Any]:
    """Allocation, or else the first row that was run, against every other, paired by seed."""
    sides: dict[str, list[Recorded]] = {}
    for key, own in trials.by_row(records).items():
        sides.setdefault(labels.row(*key), []).extend(own)
    first = next((labels.row(*key) for key in trials.by_row(records) if key[0] == "allocation"), "")
    first = first or next(iter(sides), "")
    able, refused = {first: sides.get(first, [])}, []
    for name, own in sides.items():
        if name == first:
            continue
        try:
            compared({first: sides[first], name: own})
        except ValueError as error:
            refused.append(f"{name} is left out: {error}")
        else:
            able[name] = own
    if len(able) < 2:
        return {"first": first, "rows": [], "notes": refused}
    found = compared(able)
    return {
        "first": first,
        "rows": [{**row, "where": pair.where} for row, pair in zip(found.rows(), found.pairs, strict=True)],
        "notes": [*dict.fromkeys(found.notes), *refused],
    }


def _cell(found: list[Recorded], printed: paper.Printed | None, alike: bool) -> tuple[Cell, dict[str, Any]]:
    """A cell, and what the page is told of it: in what runs differ if not in the seed alone, and no mean."""
    mixed = list(trials.differing(found))
    alone = [] if mixed else found
    cell, lost = Cell.of(alone, "", printed=printed, alike=alike), Cell.of(alone, "", "forgetting")
    return cell, {
        "mean": cell.mean,
        "sd": cell.sd,
        "forgetting": lost.mean,
        "forgetting_sd": lost.sd,
        "trials": len(found),
        "diverged": cell.diverged,
        "paper": printed.mean if printed else None,
        "paper_sd": printed.sd if printed else None,
        "difference": cell.difference,
        "agrees": cell.agrees,
        "strength": trials.strength(found[0]) if found and not mixed else None,
        "mixed": mixed,
    }


def _curve(record: Recorded) -> dict[str, Any] | None:
    """Every task's score over training, thinned to what a screen can show; the last point is kept."""
    names = [name for name in record.curves if name != "epoch"]
    if "epoch" not in record.curves or not names or len(record.curves["epoch"]) < 2:
        return None
    epoch, score = np.asarray(record.curves["epoch"]), np.asarray(record.curves[names[0]])
    pick = np.unique(np.rint(np.linspace(0, len(epoch) - 1, min(POINTS, len(epoch)))).astype(int))
    return {
        **_who(record),
        "epochs": trials.setting(record, "epochs"),
        "epoch": pack(epoch[pick], "float32"),
        "score": pack(score[pick], "float32"),
    }


def _searches(records: Sequence[Recorded]) -> list[dict[str, Any]]:
    """Runs that differ in one searched setting and the seed alone, at three values or more."""
    found = []
    for name, words in SEARCHED.items():
        groups: dict[str, list[Recorded]] = {}
        for record in records:
            rest = {k: v for k, v in record.description.items() if k not in (name, "seed")}
            groups.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(record)
        for group in groups.values():
            if len({trials.setting(r, name) for r in group} - {None}) < 3:
                continue
            one = group[0]
            lines = {m: _response(group, name, m) for m in ("average", "smallest_own")}
            method = str(trials.setting(one, "method"))
            scale = "linear" if name != "strength" or trials.is_proportion(method) else "log"
            who = labels.method(method) if name == "strength" else label(one)
            found.append({"label": who, "vertex": trials.setting(one, "vertex"), "setting": words,
                          "runs": len(group), "scale": scale, "lines": lines})  # fmt: skip
    return found


def _response(group: Sequence[Recorded], name: str, measure: str) -> dict[str, Any]:
    if name == "strength":
        curve = trials.response(group, measure=measure)
    else:
        pairs = [(trials.setting(r, name), scores.value(r, measure)) for r in group]
        kept = np.array([p for p in pairs if np.isfinite(p[1])], dtype=float).reshape(-1, 2)
        curve = trials.at_each(kept[:, 0], kept[:, 1])
    return {
        "x": curve.x.tolist(),
        "mean": curve.mean.tolist(),
        "sd": curve.sd.tolist(),
        "window": curve.window,
    }


def _portraits(
    records: Sequence[Recorded], data_dir: str | Path | None, networks: int, budget: int
) -> tuple[list[tuple[Recorded, dict[str, Any]]], dict[str, Any], list[str]]:
    """The first seed of everything before a second of anything; where there is room for some only, some of
    every kind rather than all of the first kinds."""
    kept = [record for record in records if has_memories(record)]
    groups: dict[Any, list[int]] = {}
    for k, record in enumerate(kept):
        groups.setdefault((label(record), trials.setting(record, "vertex")), []).append(k)
    chosen = [group[0] for group in groups.values()]
    if 0 < networks < len(chosen):
        chosen = [chosen[k] for k in np.linspace(0, len(chosen) - 1, networks).astype(int)]
    portraits, scenes, faults, left_out = [], {}, [], 0
    for k in dict.fromkeys([*chosen, *range(len(kept))]):
        record = kept[k]
        room = budget if len(portraits) < networks else 0
        cost = np.asarray(record.memories(0)).size * _tasks(record) * 4 // 3 if room else 1
        if cost > room:
            left_out += 1
            continue
        try:
            one, scene = portrait(record, data_dir)
        except (DataError, ValueError) as error:
            where = labels.vertex(trials.setting(record, "vertex"))
            faults.append(f"{label(record)}, {where}: {error}")
            continue
        budget -= cost
        scenes.setdefault(scene["key"], scene)
        portraits.append((record, {**_who(record), **one, "scene": scene["key"]}))
    notes = list(dict.fromkeys(faults))[:3]
    if left_out:
        notes.append(f"{left_out} more runs kept their memories; they were left out to keep this file small.")
    portraits.sort(key=lambda pair: _order(pair[0]))
    return portraits, scenes, notes


def _prototypes(
    records: Sequence[Recorded], data_dir: str | Path | None, most: int = 80
) -> list[dict[str, Any]]:
    """The feature-to-prototype index over n: one run of every row of the table, setting and vertex."""
    firsts: dict[Any, Recorded] = {}
    for record in records:
        if has_memories(record):
            firsts.setdefault((label(record), trials.setting(record, "vertex")), record)
    found: dict[str, dict[float, list[float]]] = {}
    for record in list(firsts.values())[:most]:
        try:
            index = prototype_index(record, data_dir)
        except (DataError, ValueError):  # said beside the memories
            continue
        line = found.setdefault(labels.row(*trials.row_of(record)), {})
        line.setdefault(float(record.description["vertex"]), []).append(index)
    return [
        {"label": name, "x": sorted(line), "y": [float(np.mean(line[v])) for v in sorted(line)]}
        for name, line in found.items()
    ]


def _tasks(record: Recorded) -> int:
    return len(next(iter(record.scores.values())))
