"""engramma runs: look at the records of a store, check them, clear up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional

import typer

from engramma.checks import unknown, visible
from engramma.cli import show
from engramma.cli.options import METHODS, stored
from engramma.runs.terminal import Terminal

app = typer.Typer(help="Look at the records of a store, check them, clear up.", no_args_is_help=True)
StoreOption = Annotated[Path, typer.Option(help="Folder of records, or an archive of them.")]


class Column(NamedTuple):
    cell: Callable[[Any], str]  # of a record
    most: int = 0  # characters, in 80 columns together; 0: only where there is room for all
    justify: Literal["left", "right"] = "right"


def _seconds(record: Any) -> str:
    took = record.facts.get("seconds")  # nothing vouches for the facts of a record but its writer
    return f"{took:.1f}" if isinstance(took, float) else str(took or "")[:12]


def _strength(record: Any) -> str:
    told = record.description["strength"]
    return "" if told is None else f"{told:.3g}"


def _forgetting(record: Any) -> str:
    from engramma.store.scores import value

    return "" if record.diverged else f"{value(record, 'forgetting'):.3f}"


WIDE = 400  # characters: a terminal that narrow shows the rest of a row below it
COLUMNS = {
    "run": Column(lambda r: r.name[:8], 8, "left"),
    "method": Column(lambda r: r.description["method"].rpartition(":")[2], 15, "left"),
    "strength": Column(_strength, 8),
    "n": Column(lambda r: f"{r.description['vertex']:g}", 5),
    "data": Column(lambda r: Path(r.description["data"]).stem, 10, "left"),
    "stream": Column(lambda r: r.description["stream"].rpartition(":")[2], 0, "left"),
    "tasks": Column(lambda r: str(r.description["tasks"])),
    "items": Column(lambda r: str(r.description["items"]), 5),
    "memories": Column(lambda r: str(r.description["memories"])),
    "epochs": Column(lambda r: str(r.description["epochs"])),
    "seed": Column(lambda r: str(r.description["seed"]), 4),
    "average": Column(lambda r: "diverged" if r.diverged else f"{r.average:.3f}", 8),
    "forgetting": Column(_forgetting),
    "seconds": Column(_seconds, 7),
    "device": Column(lambda r: str(r.facts.get("device", ""))[:40], 0, "left"),
}


def _order(record: Any) -> tuple:
    told = record.description
    return told["data"], told["method"], told["vertex"], told["strength"] or 0.0, told["seed"]


@app.command("list")
def list_(
    method: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Only this method.", metavar="NAME", autocompletion=METHODS),
    ] = None,
    vertex: Annotated[Optional[float], typer.Option(help="Only this vertex.", metavar="N")] = None,  # noqa: UP045
    wide: Annotated[
        bool, typer.Option("--wide", help="Whole names, and more columns, however wide the terminal.")
    ] = False,
    store: StoreOption = Path("runs"),
    form: Annotated[
        str,
        typer.Option("--format", help="rich | csv | json: these with every setting and measure.",
                     metavar="NAME"),
    ] = "rich",
) -> None:  # fmt: skip
    """List the runs: setting, average at the end, how long it took."""
    from rich import box
    from rich.table import Table

    from engramma.runs import frames
    from engramma.store import outputs

    forms = {"csv": outputs.in_csv, "json": outputs.in_json}
    if form not in ("rich", *forms):
        raise unknown("format", form, ("rich", *forms))
    told = {"method": method, "vertex": vertex}
    asked = {name: value for name, value in told.items() if value is not None}
    wanted = [
        r for r in sorted(stored([store], "store"), key=_order)
        if all(r.description[name] == value for name, value in asked.items())
    ]  # fmt: skip
    if form != "rich":
        print(forms[form](frames.rows(wanted)), end="")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, int(wide)))
    for name, column in COLUMNS.items():
        if wide or column.most:
            most = None if wide else column.most  # a method or data of one's own may have any name
            table.add_column(name, justify=column.justify, max_width=most, no_wrap=True)
    for r in wanted:
        table.add_row(*(visible(c.cell(r)) for c in COLUMNS.values() if wide or c.most))
    (Terminal(width=WIDE) if wide else show.out).print(table)
    show.out.print(f"{len(wanted)} runs in {store}", soft_wrap=True)


@app.command("show")
def show_(
    name: Annotated[str, typer.Argument(metavar="RUN", help="The first digits of its name.")],
    store: StoreOption = Path("runs"),
) -> None:
    """Show one run: its description, its scores, where and when it was made."""
    from rich.table import Table

    from engramma.experiment import Experiment

    record = stored([store], "store").get(name)
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_row("run", record.name)
    for key, value in record.description.items():
        default = Experiment.model_fields[key].default if key in Experiment.model_fields else None
        if value != default:
            table.add_row(visible(key), visible(value))
    table.add_section()
    for key, value in record.facts.items():
        if key != "seconds_by_task":
            table.add_row(visible(key), f"{value:.2f}" if isinstance(value, float) else visible(value))
    show.out.print(table)
    show.matrix([record])
    show.measures([record])


@app.command()
def verify(store: StoreOption = Path("runs")) -> None:
    """Check every record against its checksums; set damaged ones aside, to be run again."""
    records = stored([store], "store")
    sound = damaged = 0
    for name, fault in records.verify():
        if fault:
            damaged += 1
            place = records.place(name)
            aside = records.set_aside(place, fault) if place else None
            told = f"{fault}; set aside in {aside}" if aside else fault
            show.out.print(told, style="yellow", soft_wrap=True)
        else:
            sound += 1
    show.out.print(f"{sound} runs sound, {damaged} damaged")
    if damaged:
        raise typer.Exit(1)


@app.command()
def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write: results.tar.gz")],
    store: StoreOption = Path("runs"),
) -> None:
    """Pack all records into one file, to publish or to send."""
    from engramma.store import archive

    count = archive.pack(stored([store], "store"), file)
    show.out.print(f"{count} runs in {file}, {file.stat().st_size / 2**20:.1f} MiB", soft_wrap=True)


@app.command()
def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that `runs pack` wrote.")],
    store: StoreOption = Path("runs"),
    limit: Annotated[
        float, typer.Option(help="GiB on the disk that it may unpack to.", metavar="GIB", min=0)
    ] = 1.0,
) -> None:
    """Put the records of an archive into a store, each checked before it enters."""
    from engramma.store import archive
    from engramma.store.files import Damaged
    from engramma.store.records import Store

    if not file.is_file():
        raise ValueError(f"file must be an archive of records; there is none at {file}")
    try:
        added, there = archive.unpack(file, Store(store), int(limit * 2**30))
    except Damaged as fault:
        raise ValueError(str(fault)) from None
    show.out.print(f"{added} runs added to {store}, {there} were there already", soft_wrap=True)


@app.command()
def prune(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[RUN]...", help="Runs to remove, by the first digits of their names."),
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also checkpoints: of forks to come and of unfinished runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    store: StoreOption = Path("runs"),
) -> None:
    """Remove what is no longer needed: runs named, records set aside, what killed processes left."""
    import shutil

    from engramma.store import checkpoints as points
    from engramma.store.claims import Claims

    records = stored([store], "store")
    doomed = [records.get(name).name for name in names or ()]
    for name in doomed:
        records.check_own(name)
    aside = sorted((records.path / "set-aside").glob("*"))
    packs = list(points.packs(records)) if checkpoints else points.finished(records)
    if not dry_run:
        with Claims(records.claims) as claims:
            records.owner = claims.owner
            points.sweep(records, claims)
            for name in doomed:
                records.remove(name)
            for folder in aside:
                shutil.rmtree(folder)
            for pack in packs:
                if set(taken := points.packs(records).get(pack, ())) == set(claims.take(taken)):
                    points.discard(records, pack)
    would = "would be removed" if dry_run else "removed"
    show.out.print(f"{len(doomed)} runs, {len(aside)} set aside, {len(packs)} packs of checkpoints {would}")
