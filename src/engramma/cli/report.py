"""engramma report: a study's records as one page to open in a browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from engramma.cli import show
from engramma.cli.options import RUNS, FromOption, stored
from engramma.cli.train import DataOption


def report(
    stores: FromOption = RUNS,
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")] = Path("report.html"),
    title: Annotated[Optional[str], typer.Option(help="Its heading.", metavar="TEXT")] = None,  # noqa: UP045
    networks: Annotated[
        int, typer.Option(help="At most so many runs show their memories.", metavar="N", min=0)
    ] = 24,
    data_dir: DataOption = None,
) -> None:
    """Write one HTML file of all records of a store: it opens from disk and needs no network.

    Runs that kept their memories (--keep-memories) show them, and can be played with.
    """
    write(stores, out, title, networks, data_dir)


def write(
    stores: Sequence[Path],
    out: Path,
    title: str | None = None,
    networks: int = 24,
    data_dir: Path | None = None,
) -> None:
    """Write the report and say where it is."""
    from engramma.show.report.write import TITLE
    from engramma.show.report.write import report as make

    records = list(stored(stores))
    if not records:
        raise ValueError(
            f"--from must be a folder or an archive of records; there are none in "
            f"{', '.join(map(str, stores))} (engramma run makes them)"
        )
    path = make(records, out, title or TITLE, data_dir, networks)
    size = path.stat().st_size / 1e6
    show.out.print(
        f"Report of {len(records)} runs ({size:.1f} MB), to open in a browser: {path}", soft_wrap=True
    )
