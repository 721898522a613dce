"""`engramma report`: a study's records as one page to open in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report_command(
    store: Annotated[Path, typer.Option("--from", help="folder of records", metavar="STORE")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="the page to write")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="heading of the page")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where MNIST's files are")] = None,
    networks: Annotated[int, typer.Option(help="at most so many runs show their memories", min=0)] = 24,
) -> None:
    """Write one self-contained HTML file of all records in STORE: it opens from disk, without a network."""
    typer.echo(write_report(store, out, title, data_dir, networks))


def write_report(
    store: Path,
    out: Path,
    title: str | None = None,
    data_dir: Path | None = None,
    networks: int = 24,
) -> str:
    """Write the report and say where it is: the last line of `engramma report` and of `engramma demo`."""
    from engramma.records import Store
    from engramma.report import TITLE, report

    if not store.is_dir():
        raise ValueError(f"from must be a folder of records; {store} is not there")
    records = list(Store(store))
    if not records:
        raise ValueError(f"from must be a folder of records; {store} has none (engramma run makes them)")
    path = report(records, out, title or TITLE, data_dir, networks)
    size = path.stat().st_size / 1e6
    return f"report of {len(records)} runs, {size:.1f} MB: {path.resolve().as_uri()}"
