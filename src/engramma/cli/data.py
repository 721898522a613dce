"""engramma data: look at data before anything is learned of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from engramma.checks import near
from engramma.cli import show
from engramma.cli.options import OFFERED
from engramma.cli.train import DataOption

if TYPE_CHECKING:
    from engramma.streams.datasets import Dataset
    from engramma.streams.look import Look

app = typer.Typer(help="Look at data before anything is learned of them.", no_args_is_help=True)

ROW = 5  # pictures beside each other, in 80 columns
MOST = 10  # pictures, or classes that are counted one by one


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="An .npz file, a folder of IDX files, mnist or digits.",
            autocompletion=OFFERED["data"],
        ),
    ],
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Another threshold than the one chosen.", metavar="X", show_default="the data's"),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The contact sheet to write.", metavar="FILE", show_default="NAME-check.png"),
    ] = None,
    data_dir: DataOption = None,
) -> None:
    """Say what data are, which threshold is chosen and why, and draw some of every class.

    Ends with status 1 where nothing could be learned of them.
    """
    from engramma.show.figures import contact, save
    from engramma.streams import look
    from engramma.streams.datasets import is_path, kept

    if not is_path(name) and name not in ("mnist", "digits"):
        if Path(name).is_dir():
            name = f"./{name}"
        else:
            raise ValueError(
                f"data must be mnist, digits, an .npz file or a folder (./folder) of IDX files, not {name!r}"
                f"{near(name, ('mnist', 'digits'))}"
            )
    data = kept(name, data_dir)
    cut = data.threshold if threshold is None else threshold
    found = look.look(data, cut)
    _say(name, data, found, cut, chosen=threshold is None)
    _pictures(data, found)
    place = out or Path(f"{data.name}-check.png")
    if place.suffix != ".png":
        raise ValueError(f"out must end in .png, not {str(place)!r}")
    for path in save(contact.contact_sheet(data, cut), place.parent, place.stem, ["png"]):
        show.out.print(f"Some of every class, as they are and as they are seen: {path}", soft_wrap=True)
    for warning in found.warnings:
        show.out.print(f"! {warning}", style="yellow")
    if found.fault:
        show.err.print(f"engramma: {name}: {found.fault}", style="red", soft_wrap=True)
        raise typer.Exit(1)
    items = f" --items {min(len(data), 10_000)}" if is_path(name) else ""
    tail = "" if threshold is None else f" --threshold {threshold:g}"
    show.out.print(f"To learn it: engramma run --data {name}{items}{tail}", soft_wrap=True)


def _say(name: str, data: Dataset, found: Look, cut: float, chosen: bool) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 1))
    shape = " x ".join(map(str, data.shape)) + " pixels" if data.shape else f"{data.x.shape[1]} features"
    table.add_row("data", f"{name}: {len(data):,} items of {shape}")
    grey = ", colours made grey" if 3 in data.came[1:] and len(data.came) == 4 else ""
    came = f"{data.came or data.x.shape}"
    table.add_row("x", f"{data.x.dtype} of shape {came}{grey}, {found.low:g} to {found.high:g}")
    if not chosen:
        why = "as you say"
    elif name in ("mnist", "digits"):
        why = "this data set's own"
    else:
        why = f"the middle of {found.low:g} to {found.high:g}"
    table.add_row("threshold", f"{cut:g}, {why}: above it a pixel is on")
    table.add_row("on", f"{found.on:.1%} of all pixels; {found.dead} pixels are the same in all items")
    alike = f"; {found.alike} the same as another once on or off" if found.alike else ""
    table.add_row("repeated", f"{found.twins} items are copies of another{alike}")
    counts = [f"{data.named(c)} {count:,}" for c, count in enumerate(found.counts)]
    some = ", ".join(counts) if len(counts) <= MOST else f"{', '.join(counts[:MOST])}, ..."
    table.add_row("classes", f"{data.classes}, with so many items: {some}")
    show.out.print(table)
    show.out.print()


def _pictures(data: Dataset, found: Look) -> None:
    """One item of each class, in letters; of what may be a picture."""
    from engramma.streams import look

    if not data.shape and (data.x.shape[1] < 16 or math.isqrt(data.x.shape[1]) ** 2 != data.x.shape[1]):
        return
    firsts = [some[0] for some in look.samples(data, 1)[:MOST]]
    pictures = [look.letters(look.image(data, i), found.low, found.high) for i in firsts]
    for begin in range(0, len(pictures), ROW):
        some = range(begin, min(begin + ROW, len(pictures)))
        show.out.print("  ".join(f"{data.named(c)[:14]:14}" for c in some), soft_wrap=True)
        for line in zip(*(pictures[c] for c in some), strict=True):
            show.out.print("  ".join(line), soft_wrap=True)
        show.out.print()
