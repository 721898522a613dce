"""engramma table, engramma figure: from the records of a store, without training anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from engramma.cli import show
from engramma.cli.options import RUNS, FromOption, pairs, stored
from engramma.cli.train import DataOption

if TYPE_CHECKING:
    from engramma.experiment import Experiment
    from engramma.search.choice import Choice
    from engramma.show.agreement import Table
    from engramma.store.records import Record
    from engramma.studies import Study

FORMATS = ("rich", "md", "latex", "csv", "json")
WRITTEN = ("md", "latex", "csv")  # of a study that is reproduced
EVERYTHING = "scores"  # the table of whatever a store holds

ScaleOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="demo | small | paper", metavar="NAME", show_default="the largest the store has"),
]
RowsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Only these rows of the study: vanilla,ewc", metavar="NAME,...", show_default="all"),
]

ChangesOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--with",
        help="Another value of a setting in all runs (normalise=velocity), or of one of a method's own "
        "(si.damping=1). Repeat for more.",
        metavar="NAME=VALUE",
        show_default=False,
    ),
]
StrengthsOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        help="What engramma tune chose (chosen.toml), in place of the study's lambdas.", metavar="FILE"
    ),
]


def choices(path: Path | None) -> list[Choice]:
    """What a file of chosen values says; nothing without one."""
    from engramma.search import choice as chosen

    return chosen.load(path) if path is not None else []


def say_used(found: list[Choice], experiments: list[Experiment], path: Path) -> None:
    from engramma.search import choice as chosen

    for line in chosen.used(found, experiments, path):
        show.out.print(f"chosen  {line}", soft_wrap=True)


def table(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="A study by name; scores: all of the store.")],
    stores: FromOption = RUNS,
    scale: ScaleOption = None,
    rows: RowsOption = None,
    strengths: StrengthsOption = None,
    changes: ChangesOption = None,
    form: Annotated[
        str, typer.Option("--format", help=" | ".join(FORMATS), metavar="NAME", show_default="rich")
    ] = "",
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File to write to; its ending says the format too.", metavar="FILE"),
    ] = None,
    score: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Another score of the records: macro_f1, ...", metavar="NAME", show_default="accuracy"
        ),
    ] = None,
) -> None:
    """Make a table of the paper from records, beside the paper's own numbers.

    Studies without a table of their own get one of average scores. Missing
    cells and diverged runs are shown as such.
    """
    from engramma.show import tables, typeset

    form = _format(form, out)
    makers = _tables(name, tables.TABLES, score)
    found = choices(strengths)
    if name == "table1" and strengths is not None:
        made = [tables.table1_chosen(found)]
    else:
        records = _records(name, stores, scale, rows, found, changes)
        made = [make(records) for make in makers]
    for each in made:
        if form == "rich":
            show.out.print(typeset.terminal(each))
        elif out is None:
            print(typeset.FORMATS[form](each), end="")
        else:
            show.out.print(f"{typeset.write(each, out, form)}", soft_wrap=True)


def figure(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="A study by name, or a kind of figure.")],
    stores: FromOption = RUNS,
    out: Annotated[Path, typer.Option(help="Folder for the PDF and PNG files.", metavar="DIR")] = Path(
        "figures"
    ),
    scale: ScaleOption = None,
    rows: RowsOption = None,
    strengths: StrengthsOption = None,
    changes: ChangesOption = None,
    kind: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Another kind than the study's own: memories, pseudo_items, energy, ...", metavar="NAME"
        ),
    ] = None,
    data_dir: DataOption = None,
) -> None:
    """Draw a figure of the paper from records, as PDF and PNG.

    A kind of figure in place of a study's name draws it from all records of
    the store. Pictures of memories need records made with --keep-memories.
    """
    from engramma import studies
    from engramma.show import figures

    if kind is not None and kind not in figures.KINDS:
        raise ValueError(f"kind must be one of {', '.join(figures.KINDS)}, not {kind!r}")
    if name in studies.names():
        kinds = [kind] if kind else studies.load(name).figures
        if not kinds:
            raise ValueError(
                f"study {name} has no figure of its own; --kind must be given, or engramma table used"
            )
        records = _records(name, stores, scale, rows, choices(strengths), changes)
        name = studies.variant(name, pairs(changes, "--with"), strengths)
    elif name in figures.KINDS:
        kinds, records = [name], list(stored(stores))
    else:
        known = (*studies.names(), *figures.KINDS)
        raise ValueError(f"figure must be a study or a kind, one of {', '.join(known)}, not {name!r}")
    for each in kinds:
        title = name if each == name or not kind else f"{name}-{each}"
        for path in figures.draw(each, records, out, title, data_dir=data_dir):
            show.out.print(str(path), soft_wrap=True)


def present(study: Study, records: list[Record], out: Path, data_dir: str | Path | None = None) -> list[Path]:
    """Show a study's tables in the terminal, and write them and its figures into `out`. The files."""
    from engramma.show import figures, tables, typeset

    made = []
    found: dict[str, Table] = {kind: tables.TABLES[kind](records) for kind in study.tables}
    for each in found.values():
        show.out.print(typeset.terminal(each))
        made += [typeset.write(each, out / f"{study.name}{typeset.ENDINGS[form]}", form) for form in WRITTEN]
    for kind in study.figures:
        known: dict[str, Any] = {"table": found["table2"]} if kind == "bars" and "table2" in found else {}
        made += figures.draw(kind, records, out, study.name, data_dir=data_dir, **known)
    return made


def register(app: typer.Typer) -> None:
    app.command()(table)
    app.command()(figure)


def _format(form: str, out: Path | None) -> str:
    from engramma.show import typeset

    by_ending = {end: name for name, end in typeset.ENDINGS.items()}
    if not form:
        form = "rich" if out is None else by_ending.get(out.suffix, "md")
    if form not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {form!r}")
    if form == "rich" and out is not None:
        raise ValueError(
            "format must be md, latex, csv or json to be written to a file; rich is for the terminal"
        )
    return form


def _tables(
    name: str, known: dict[str, Callable[..., Table]], score: str | None
) -> list[Callable[..., Table]]:
    from engramma import studies

    kinds = [EVERYTHING] if name == EVERYTHING else studies.load(name).tables or [EVERYTHING]
    if score is None:
        return [known[kind] for kind in kinds]
    if "table1" in kinds:
        raise ValueError("score must be left out: a table of lambdas is of the score they were chosen by")
    return [partial(known[kind], score=score) for kind in kinds]


def _records(
    name: str,
    stores: Sequence[Path],
    scale: str | None,
    rows: str | None,
    found: Sequence[Choice] = (),
    changes: Sequence[str] | None = None,
) -> list[Record]:
    """Those of a study's runs that the store has, in the study's order; or all of the store."""
    from engramma import studies

    there, said = stored(stores), ", ".join(map(str, stores))
    if name == EVERYTHING:
        everything = list(there)
        if not everything:
            raise ValueError(f"--from must be a folder or an archive of records; {said} has none")
        return everything
    only = [row.strip() for row in rows.split(",")] if rows else None
    for size in [scale] if scale else reversed(studies.SCALES):
        runs = studies.changed(
            studies.load(name).runs(size, rows=only, chosen=found), pairs(changes, "--with")
        )
        if kept := [record for run in runs if (record := there.find(run.experiment)) is not None]:
            return kept
    at = f" at scale {scale}" if scale else ""
    raise ValueError(
        f"no records of {name}{at} in {said}: engramma reproduce {name} --scale {scale or 'demo'} makes them"
    )
