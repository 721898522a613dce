"""engramma reproduce NAME, where the name is a law's: simulated, drawn beside its theory, and told."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from engramma import laws
from engramma.cli import interrupt, show
from engramma.studies import SCALES

if TYPE_CHECKING:
    from engramma.laws.law import Finding, Law, Row
    from engramma.runs.options import Options


def reproduce(names: list[str], scale: str, store: Path, options: Options, out: Path) -> None:
    """Measure what the store does not have yet; write a picture and a table of each law."""
    from engramma.laws.kept import measured
    from engramma.laws.law import Where
    from engramma.store.records import Store

    check(scale)
    where = Where(options.where, options.data_dir)
    Store(store).open()
    interrupt.keeps(lambda: f"the points measured are kept in {store}; the same command goes on from there")
    for name in names:
        law, rows, fresh = laws.load(name), [], 0
        points = law.points(scale)
        with show.progress() as work:
            work.total, work.doing = len(points), name
            for row, new in measured(law, points, store, where):
                rows.append(row)
                fresh += new
                work.own += 1
                work.on_change(work)
        about = laws.LAWS[name]
        show.out.print(f"{name} ({about.reference}): {about.title}", markup=False, soft_wrap=True)
        show.out.print(told(law.findings(rows)))
        made = written(law, rows, out)
        show.out.print(f"{fresh} points measured, {len(rows) - fresh} found; kept in {store}", soft_wrap=True)
        show.out.print(f"{', '.join(path.name for path in made)} in {out}\n", soft_wrap=True)


def dry(names: list[str], scale: str, store: Path) -> None:
    """How many points: without measuring any of them."""
    from engramma.laws.kept import find

    check(scale)
    for law in map(laws.load, names):
        points = law.points(scale)
        missing = sum(find(law, point, store) is None for point in points)
        left = f"{missing} of {len(points)} points at scale {scale} are not yet in {store}"
        show.out.print(f"{law.name}: {left}", soft_wrap=True)


def check(scale: str) -> None:
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, not {scale!r}")


def listed() -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in ("law", "found by", "what"):
        table.add_column(column, no_wrap=column == "law")
    for name, about in laws.LAWS.items():
        table.add_row(name, *about)
    return table


def told(found: Sequence[Finding]) -> Table:
    """Our numbers beside the law's."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in ("ours", "law", "off by", "of what"):
        table.add_column(column, justify="left" if column == "of what" else "right",
                         no_wrap=column != "of what")  # fmt: skip
    for each in found:
        digits = max(0, 1 - _magnitude(each.error)) if each.error > 0 else 3
        off = "" if isnan(each.off) else f"{each.off:.1f} errors"
        law = "" if each.law is None else f"{each.law:.{digits}f}"
        ours = f"{each.ours:.{digits}f} ± {each.error:.{digits}f}"
        what = Text(each.what)
        if each.remark:
            what.append(f" ({each.remark})", "dim")
        table.add_row(ours, law, off, what)
    return table


def _magnitude(number: float) -> int:
    return int(f"{number:e}".partition("e")[2])


def written(law: Law, rows: list[Row], out: Path) -> list[Path]:
    """law-NAME.pdf, .png and, with every row in it, .csv."""
    from engramma.show.figures import save
    from engramma.store.outputs import whole

    made, path = save(law.draw(rows), out, f"law-{law.name}"), out / f"law-{law.name}.csv"
    with whole(path) as beside, open(beside, "w", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        table.writeheader()
        table.writerows(rows)
    return [*made, path]
