"""engramma compare: one method against others, from the records of a store, paired by seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engramma.checks import visible
from engramma.cli import show
from engramma.cli.options import RUNS, stored

if TYPE_CHECKING:
    from rich.table import Table

    from engramma.show.compare import Comparison

MINUS = "−"


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS...",
            help="Two or more: a method (ewc), one at a strength (gem@0.5), settings (vertex=20), or both "
            "(ewc:fisher=item,memories=64).",
        ),
    ],
    stores: Annotated[
        list[Path],
        typer.Option(
            "--store", "--from", help="Folder of records, or an archive of them. Repeat for more.",
            metavar="STORE",
        ),
    ] = RUNS,
    measure: Annotated[
        str,
        typer.Option(help="average | forgetting | backward_transfer | smallest_own", metavar="NAME"),
    ] = "average",
    form: Annotated[
        str, typer.Option("--format", help="rich | csv | json | latex", metavar="NAME")
    ] = "rich",
) -> None:  # fmt: skip
    """Compare the first of several kinds of runs with each of the others.

    Runs are paired by seed, which gives both the same data and first memories,
    at each vertex and whatever else both sides have. What is shown: the mean
    difference, a bootstrap interval of it, the p of a sign-flip test, exact for
    few seeds, and this p corrected by Holm for the number of comparisons.
    """
    from engramma.show import compare as comparing

    if form not in ("rich", *FORMATS):
        raise ValueError(f"format must be one of rich, {', '.join(FORMATS)}, not {form!r}")
    found = comparing.compare(*sides, store=stored(stores, "--store"), measure=measure)
    if form == "rich":
        present(found)
        return
    print(FORMATS[form](found), end="")
    for note in found.notes:
        show.err.print(f"engramma: {note}", style="yellow", soft_wrap=True)


def present(found: Comparison) -> None:
    """The table, and what must be known of it."""
    show.out.print(terminal(found))
    show.out.print(
        f"difference: {found.measure.replace('_', ' ')} of {found.first} less the other's, and its 95 % "
        "bootstrap interval; p: sign flips of pairs; Holm: p corrected for all comparisons"
    )
    for note in found.notes:
        show.out.print(f"{note[0].upper()}{note[1:]}", style="yellow")


def terminal(found: Comparison) -> Table:
    """For rich: fits 80 columns."""
    from rich import box
    from rich.table import Table

    from engramma.show.statistics import SIGNIFICANT

    several = len({each.other for each in found.pairs}) > 1
    title = f"{found.first} against {'others' if several else found.pairs[0].other}: {found.measure}"
    made = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0), title=visible(title.replace("_", " ")),
        title_justify="left", title_style="bold",
    )  # fmt: skip
    made.add_column("against" if several else "where", overflow="fold")
    for name in ("first", "other", "difference", "95 % interval", "p", "Holm", "seeds"):
        made.add_column(name, justify="right", no_wrap=True)
    last = ""
    for each in found.pairs:
        if several and each.other != last:
            made.add_row(visible(each.other))
        last = each.other
        made.add_row(
            visible(f"  {each.where}" if several else each.where),
            *(_number(mean) for mean in each.means),
            signed(each.difference),
            " ".join(map(signed, each.interval)),
            _p(each.p),
            _p(each.p_holm),
            f"{len(each.seeds)}",
            style="bold" if each.p_holm < SIGNIFICANT else "",
        )
    return made


def latex(found: Comparison) -> str:
    """A row for each other side, a column for each place: difference, interval, * where Holm's p is low."""
    from engramma.show.statistics import SIGNIFICANT
    from engramma.show.typeset import escape

    places = list(dict.fromkeys(each.where for each in found.pairs))
    rows = [
        f"% {visible(found.measure)}: mean difference [95 % interval], * Holm's p < {SIGNIFICANT:g}; "
        f"columns: {visible('; '.join(places))}"
    ]
    for other in dict.fromkeys(each.other for each in found.pairs):
        there = {each.where: each for each in found.pairs if each.other == other}
        cells = [escape(f"{found.first} {MINUS} {other}")]
        for place in places:
            if (each := there.get(place)) is None:
                cells.append("---")
                continue
            star = "^{*}" if each.p_holm < SIGNIFICANT else ""
            low, high = each.interval
            span = "" if math.isnan(low) else rf" {{\scriptsize $[{low:+.3f}, {high:+.3f}]$}}"
            cells.append(f"${each.difference:+.3f}{star}${span}")
        rows.append(" & ".join(cells) + r" \\")
    return "\n".join([*rows, ""])


def as_csv(found: Comparison) -> str:
    from engramma.store.outputs import in_csv

    return in_csv(found.rows())


def as_json(found: Comparison) -> str:
    from engramma.store.outputs import in_json

    return in_json({"measure": found.measure, "rows": found.rows(), "notes": list(found.notes)})


FORMATS: dict[str, Callable[[Comparison], str]] = {"csv": as_csv, "json": as_json, "latex": latex}


def signed(number: float) -> str:
    return "" if math.isnan(number) else f"{number:+.3f}".replace("-", MINUS)


def _number(mean: float) -> str:
    return "diverged" if math.isnan(mean) else f"{mean:.3f}"


def _p(p: float) -> str:
    return "" if math.isnan(p) else "<.001" if p < 0.001 else f"{p:.3f}"
