"""The paper's tables and any other, from records alone: which trials go in which cell.

typeset.py writes them as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engramma.paper import numbers as paper
from engramma.show import labels
from engramma.show import select as trials
from engramma.show.agreement import FLOOR, RULE, Cell, LambdaCell, Line, Table
from engramma.store.scores import LOW, Recorded, diverged, scored, value

if TYPE_CHECKING:
    from engramma.search.choice import Choice


def table2(
    records: Sequence[Recorded],
    score: str | None = None,
    measure: str = "average",
    only: Collection[trials.Row] | None = None,
) -> Table:
    """Average accuracy, or another score, of the 13 rows at the paper's four vertices, beside the paper's;
    or another measure, of which the paper has none. `only`: the rows asked for, where not all were. Rows that
    the paper does not have come last."""
    rows = trials.by_row(records)
    theirs = [record for row in paper.rows() for record in rows.get(row.key, [])]
    alike = not trials.unlike_paper(theirs)
    places = {key: trials.group(some, "vertex") for key, some in rows.items()}
    tried = {row.category for row in paper.rows() if places.get(row.key, {}).keys() & {*paper.vertices()}}
    lines = []
    for row in paper.rows():
        if row.key not in only if only else tried and row.category not in tried:
            continue  # not asked for; a row that was, or whose category was, is shown as missing
        cells = []
        for vertex in paper.vertices():
            found = places.get(row.key, {}).get(vertex, [])
            strength = trials.strength(found[0]) if found else None
            cell = Cell.of(
                found,
                f"{labels.row(*row.key)}, {labels.vertex(vertex)}",
                measure,
                score,
                printed=paper.printed(row, vertex) if measure == "average" else None,
                facts={"method": row.method, "vertex": vertex, "strength": strength},
                alike=alike,
            )
            cells.append(cell)
        lines.append(Line(row.label, tuple(cells), row.category))
    for key in [key for key in places if key not in {row.key for row in paper.rows()}]:
        if not only or key in only:
            label = labels.row(*key)
            label = label[:1].upper() + label[1:]
            cells = [
                Cell.of(places[key].get(v, []), f"{label}, {labels.vertex(v)}", measure, score=score,
                        facts={"method": key[0], "vertex": v})
                for v in paper.vertices()
            ]  # fmt: skip
            lines.append(Line(label, tuple(cells), BEYOND))
    lines = _mark_best(lines, lowest=measure in LOW)
    headings = {**paper.categories(), BEYOND: "Beyond the paper"}
    made = Table("table2", "", tuple(map(labels.vertex, paper.vertices())), lines, headings)
    if theirs and not alike:
        made = replace(made, head=_compared(theirs))
    what = _said(measure, score or "accuracy")
    caption = (
        f"{what}, {_scale(records)}: mean ± sample standard deviation over {_count(lines)} a cell; the best "
        "of each category in bold"
    )
    if measure != "average":
        return replace(made, caption=f"{caption}{_absent(lines)}.")
    caption += ". Below it the paper's mean"
    if alike:
        caption += f", our difference from it, and ✓ where the two agree: {RULE}. {made.count}"
    caption += f"{_absent(lines)}.{_other_setting(theirs)} {made.caution}"
    return replace(made, caption=caption.rstrip())


def table1(records: Sequence[Recorded], window: int = 20) -> Table:
    """The lambda each search chose, for the four penalties at every vertex, beside the paper's."""
    places = trials.group(records, "method", "vertex")
    vertices = sorted({*paper.vertices(), *(v for m, v in places if m in paper.reference()["lambda"])})
    lines, alike = [], not trials.unlike_paper(records, OF_LAMBDA)
    for method in paper.reference()["lambda"]:
        cells = tuple(
            replace(
                _chosen(places.get((method, vertex), []), paper.chosen_lambda(method, vertex), window),
                alike=alike,
            )
            for vertex in vertices
        )
        lines.append(Line(labels.method(method), cells))
    made = Table("table1", "", tuple(map(labels.vertex, vertices)), tuple(lines))
    caption = (
        f"The λ with the highest mean accuracy, {_scale(records)} (moving window of {window} trials at most "
        "where strengths were tried once each). Below it the paper's λ, ours as a multiple of it"
    )
    if alike:
        caption += _agreement(made, "accuracy", "sd")
    return replace(made, caption=f"{caption}{_absent(lines)}.{_other_setting(records, OF_LAMBDA)}")


BEYOND = "beyond"  # the category of rows that the paper does not have


def _compared(records: Sequence[Recorded]) -> str:
    """What of runs can be compared with the paper's, which had other settings."""
    data = {trials.setting(record, "data") for record in records}
    said = {"digits": "8x8 digits, not MNIST"}.get(
        data.pop() if len(data) == 1 else "", "Other settings than the paper's"
    )
    return f"{said}: compare which row beats which, not numbers"


OF_LAMBDA = ("data", "stream")  # what must be the paper's for a lambda to be compared


def _agreement(made: Table, what: str, error: str) -> str:
    """How lambdas are compared, and how many agree."""
    agree, judged = made.agreeing
    return (
        f", and ✓ where the two agree: at the paper's λ our {what} is lower by at most max({FLOOR:g}, "
        f"2 · {error}). {agree} of {judged} cells that can be compared agree"
    )


def table1_chosen(choices: Sequence[Choice]) -> Table:
    """Table 1 from what `engramma tune` chose, beside the paper's."""
    found = {(c.method, c.vertex): c for c in choices if c.kind == "lambda"}
    if not found:
        raise ValueError("strengths must have a lambda to make Table 1 of")
    vertices = sorted({*paper.vertices(), *(vertex for _, vertex in found)})
    methods: list[str] = [*paper.reference()["lambda"], *(m for m, _ in found)]
    lines = []
    for method in dict.fromkeys(methods):
        cells = tuple(_of_choice(found.get((method, v)), method, v) for v in vertices)
        lines.append(Line(labels.method(method), cells))
    made = Table("table1", "", tuple(map(labels.vertex, vertices)), tuple(lines))
    caption = (
        "The λ at the top of the smoothed response, chosen on other seeds than a table's. Below it the "
        "paper's λ, ours as a multiple of it"
    )
    data = sorted({str(c.experiment.get("data", "mnist")) for c in found.values()})
    if data == ["mnist"]:
        caption += _agreement(made, "smoothed accuracy", "its standard error")
    caption += f"{_absent(lines)}."
    if any(c.settings.get("unit") for c in found.values()):
        caption += " Importances were scaled to a mean of 1: such a λ is not on the paper's scale."
    if data != ["mnist"]:
        caption += f" Searched on {' and '.join(data)}; the paper's runs had data mnist."
    return replace(made, caption=caption)


def _of_choice(found: Choice | None, method: str, vertex: float) -> LambdaCell:
    printed = paper.chosen_lambda(method, vertex)
    if found is None or found.strength is None:
        return LambdaCell(printed=printed)
    told = found.search
    return LambdaCell(
        found.strength,
        None if found.settings.get("unit") else printed,
        told.get("mean", math.nan),
        told.get("mean_at_paper", math.nan),
        told.get("standard_error", math.nan),
        told.get("trials", 1),
        alike=found.experiment.get("data", "mnist") == "mnist",
    )


def scores(
    records: Sequence[Recorded],
    rows: Sequence[str] = ("method", "strength"),
    column: str = "vertex",
    measure: str = "average",
    score: str | None = None,
) -> Table:
    """Any records: one row for each combination of the settings `rows` and of whatever else differs among
    the records of a row but the seed, one column for each `column`."""
    if not records:
        raise ValueError("no records to make a table of")
    records = scored(records, score)
    alike = trials.group(records, *rows).values()
    rows = (*rows, *sorted({name for some in alike for name in trials.differing(some, ("seed", column))}))
    places = trials.group(records, *rows, column)
    across = list(trials.group(records, column))
    down = dict.fromkeys(key[:-1] for key in places)
    lines = []
    for key in down:
        label = _label(dict(zip(rows, key, strict=True)))
        cells = []
        for place in across:
            where = f"{label}, {column} {place}"
            found = places.get((*key, place), [])
            cells.append(Cell.of(found, where, measure, score, facts={column: place}))
        lines.append(Line(label, tuple(cells)))
    return _of_scores("scores", records, across, lines, column, measure, score)


def rows(
    records: Sequence[Recorded],
    names: Sequence[str],
    score: str | None = None,
    measure: str = "average",
    against: str | None = None,
) -> Table:
    """The rows of a study at its vertices, whatever strength a row has at each; `names` are the row of each
    record. `against`: how much more than the row of that name has, run by run of one seed."""
    some = scored(records, score)
    kept = {id(record) for record in some}
    found: dict[str, list[Recorded]] = {}
    for name, record in zip(names, records, strict=True):
        if id(record) in kept:
            found.setdefault(name, []).append(record)
    if against is not None and against not in found:
        raise ValueError(f"against must be one of {', '.join(found)}, not {against!r}")
    parts = {name: _parts(name, own) for name, own in found.items()}
    across = sorted({vertex for each in parts.values() for part in each for vertex in part.runs})
    lines = []
    for name, told, runs in (part for each in parts.values() for part in each):
        label = _row_label(name, told)
        theirs = [p for p in parts.get(against or "", []) if p.told.items() <= told.items()]
        cells = []
        for vertex in across:
            own = runs.get(vertex, [])
            where = f"{label}, {labels.vertex(vertex)}"
            facts = {"vertex": vertex, "strength": trials.strength(own[0]) if own else None}
            cell = Cell.of(own, where, measure, score, facts=facts)
            if against is not None:
                others = theirs[0].runs.get(vertex, []) if theirs else []
                cell = replace(cell, values=_more(own, others, measure, score))
            cells.append(cell)
        lines.append(Line(label, tuple(cells)))
    made = _of_scores("rows", some, across, tuple(lines), "vertex", measure, score)
    if against is None:
        return made
    caption = f"{made.caption.rstrip('.')}. Differences from {_row_label(against)}, run by run of one seed."
    return replace(made, caption=caption)


class _Part(NamedTuple):
    """A line of a row: what sets it apart from the row's others, and its runs at each vertex."""

    name: str
    told: dict[str, Any]
    runs: dict[float, list[Recorded]]


def _parts(name: str, own: Sequence[Recorded]) -> list[_Part]:
    """What differs at one vertex, as numbers of tasks do, makes several lines of a row; a strength of its own
    at each vertex does not."""
    alike = trials.group(own, "vertex").values()
    told = sorted({each for one in alike for each in trials.differing(one, ("seed",))})
    found: dict[tuple[Any, ...], _Part] = {}
    for (vertex, _, *values), some in trials.group(own, "vertex", "method", *told).items():
        part = found.setdefault(tuple(values), _Part(name, dict(zip(told, values, strict=True)), {}))
        part.runs[vertex] = some
    return list(found.values())


def _more(own: Sequence[Recorded], others: Sequence[Recorded], measure: str, score: str | None) -> np.ndarray:
    """(pairs,) how much more each run has than the other of its seed, where both finished."""
    theirs = {trials.setting(record, "seed"): value(record, measure, score) for record in others}
    mine = [(value(r, measure, score), theirs.get(trials.setting(r, "seed"), math.nan)) for r in own]
    apart = np.array([ours - other for ours, other in mine], dtype=np.float64)
    return apart[np.isfinite(apart)]


def _row_label(name: str, told: Mapping[str, Any] = {}) -> str:
    """rehearsal@0.05 as "Rehearsal 0.05", a row that is no method by its own name; then what else is told."""
    method, _, proportion = name.partition("@")
    rest = dict(told)
    who = labels.run(method, rest.pop("strength", None))
    return ", ".join([" ".join(filter(None, [who, proportion])), *_told(rest)])


def _of_scores(
    name: str,
    records: Sequence[Recorded],
    across: Sequence[Any],
    lines: Sequence[Line],
    column: str,
    measure: str,
    score: str | None,
) -> Table:
    lines = _mark_best(lines, lowest=measure in LOW)
    heads = tuple(labels.vertex(v) if column == "vertex" else f"{column} {v}" for v in across)
    caption = (
        f"{_said(measure, score or next(iter(records[0].scores)))}, {_scale(records)}: mean ± "
        f"sample standard deviation over {_count(lines)} a cell; the best of each column in bold"
        f"{_absent(lines)}."
    )
    return Table(name, caption, heads, lines)


def side_by_side(records: Sequence[Recorded], measure: str = "average") -> Table:
    """Methods, each at one strength a vertex: a line for each, and for each of its proportions, in the order
    of the records; a column for each vertex."""
    vertices = list(trials.group(records, "vertex"))
    lines = []
    for key in dict.fromkeys(map(trials.row_of, records)):
        label = labels.row(key[0].rpartition(":")[2], key[1])
        own = [record for record in records if trials.row_of(record) == key]
        places = trials.group(own, "vertex")
        cells = [
            Cell.of(places.get(v, []), f"{label}, {labels.vertex(v)}", measure, facts={"vertex": v})
            for v in vertices
        ]
        lines.append(Line(label, tuple(cells)))
    lines = _mark_best(lines, lowest=measure in LOW)
    what = next(iter(records[0].scores))
    caption = (
        f"{measure.replace('_', ' ').capitalize()} of {_written(what)}, {_scale(records)}: mean ± sample "
        f"standard deviation over {_count(lines)}; the best of each column in bold{_absent(lines)}."
    )
    return Table(measure, caption, tuple(map(labels.vertex, vertices)), lines)


TABLES: dict[str, Callable[..., Table]] = {
    "table1": table1,
    "table2": table2,
    "scores": scores,
    "rows": rows,
}


WORDS = {
    "average": "Average {} after the last task",
    "smallest_own": "Smallest {} of a task just after it was learned",
    "plasticity": "Average {} of the tasks just after each was learned",
    "forgetting": "Forgetting: best {} of a task before the last one, less its final",
    "backward_transfer": "Backward transfer: final {} of a task, less that just after it was learned",
    "forward_transfer": "Forward transfer: {} of a task just before it is learned, less that untrained",
    "min_accuracy": "Worst {} of a task at any evaluation after it was learned",
    "stability_gap": "Stability gap: {} that a task loses while another is learned, and has again after it",
    "bytes_kept": "Bytes that the method keeps beside the network",
    "items_learned": "Items shown to all memories",
}


def _said(measure: str, score: str) -> str:
    return WORDS[measure].format(_written(score))


def _written(score: str) -> str:
    return score.replace("_", " ").replace("f1", "F1")


def _chosen(found: list[Recorded], printed: float | None, window: int) -> LambdaCell:
    lost = diverged(found)
    if len(found) == lost:
        return LambdaCell(printed=printed, diverged=lost)
    curve = trials.response(found, window)
    top = int(curve.mean.argmax())
    there = math.nan
    if printed is not None and len(curve.x) > 1 and curve.x[0] <= printed <= curve.x[-1]:
        positive = curve.x > 0  # a grid may hold 0, which has no logarithm
        there = float(np.interp(math.log(printed), np.log(curve.x[positive]), curve.mean[positive]))
    return LambdaCell(
        float(curve.x[top]),
        printed,
        float(curve.mean[top]),
        there,
        float(curve.sd[top]),
        len(found) - lost,
        lost,
    )


def _mark_best(lines: Sequence[Line], lowest: bool = False) -> tuple[Line, ...]:
    """Bold the best mean of each category and column, as printed; a category of one has no best."""
    marked = [list(line.cells) for line in lines]
    for category in dict.fromkeys(line.category for line in lines):
        rows = [i for i, line in enumerate(lines) if line.category == category]
        for column in range(len(lines[0].cells) if len(rows) > 1 else 0):
            shown = {i: round(marked[i][column].mean, 3) for i in rows}
            known = [mean for mean in shown.values() if not math.isnan(mean)]
            best = (min if lowest else max)(known, default=None)
            for i in rows:
                marked[i][column] = replace(marked[i][column], best=shown[i] == best)
    return tuple(replace(line, cells=tuple(cells)) for line, cells in zip(lines, marked, strict=True))


def _label(settings: dict[str, Any]) -> str:
    """ "Rehearsal 0.5, tasks 10": a method with its strength, then what else is told."""
    rest = dict(settings)
    who = labels.run(rest.pop("method"), rest.pop("strength", None)) if "method" in rest else ""
    return ", ".join(filter(None, [who, *_told(rest)]))


def _told(settings: dict[str, Any]) -> list[str]:
    return [
        f"{name} {given:g}" if isinstance(given, float) else f"{name} {given}"
        for name, given in settings.items()
        if given is not None
    ]


def _scale(records: Sequence[Recorded]) -> str:
    """What the records share, in words."""
    words = []
    for name, form in (
        ("tasks", "{} tasks"),
        ("data", "of {}"),
        ("items", "{:,} items"),
        ("memories", "{} memories"),
        ("epochs", "{} epochs a task"),
    ):
        seen = {trials.setting(record, name) for record in records} - {None}
        if len(seen) == 1:
            words.append(form.format(*seen))
    return ", ".join(words).replace(" tasks, of ", " tasks of ") or "no records"


def _count(lines: Sequence[Line]) -> str:
    seen = sorted({len(cell.values) for line in lines for cell in line.cells if isinstance(cell, Cell)} - {0})
    if not seen:
        return "no trials"
    number = f"{seen[0]}" if len(seen) == 1 else f"{seen[0]} to {seen[-1]}"
    return f"{number} trial{'' if seen == [1] else 's'}"


def _absent(lines: Sequence[Line]) -> str:
    """; how many cells are missing and how many trials diverged, where any."""
    cells = [cell for line in lines for cell in line.cells]
    missing, lost = sum(cell.missing for cell in cells), sum(cell.diverged for cell in cells)
    words = f"; {missing} cell{' is' if missing == 1 else 's are'} missing" if missing else ""
    if lost:
        words += f"; {lost} trial{'' if lost == 1 else 's'} diverged and count in no mean (†: how many)"
    return words


def _other_setting(records: Sequence[Recorded], names: Sequence[str] | None = None) -> str:
    differ = trials.unlike_paper(records, names)
    return f" The paper's runs had other settings: {', '.join(differ)}." if differ else ""
