"""engramma table, engramma figure: from the records of a store, without training anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from engramma.checks import near, unknown
from engramma.cli import show
from engramma.cli.options import FIGURES, RUNS, SCALES, TABLES, FromOption, completed, pairs, stored
from engramma.cli.train import DataOption

if TYPE_CHECKING:
    from engramma.experiment import Experiment
    from engramma.search.choice import Choice
    from engramma.show.agreement import Table
    from engramma.show.select import Row
    from engramma.store.records import Record
    from engramma.studies import Run, Study

FORMATS = ("rich", "md", "latex", "csv", "json")
WRITTEN = ("md", "latex", "csv")  # of a study that is reproduced
EVERYTHING = "scores"  # the table of whatever a store holds

ScaleOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="demo | small | paper",
        metavar="NAME",
        show_default="the largest the store has",
        autocompletion=SCALES,
    ),
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
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY", help="A study by name; scores: all of the store.", autocompletion=TABLES
        ),
    ],
    stores: FromOption = RUNS,
    scale: ScaleOption = None,
    rows: RowsOption = None,
    strengths: StrengthsOption = None,
    changes: ChangesOption = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help=" | ".join(FORMATS),
            metavar="NAME",
            show_default="rich",
            autocompletion=completed(lambda: FORMATS),
        ),
    ] = "",
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File to write to; its ending says the format too.", metavar="FILE"),
    ] = None,
    score: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Another score of the records (macro_f1), another measure of it (forgetting), or both: "
            "macro_f1:forgetting",
            metavar="NAME",
            show_default="the average of accuracy",
        ),
    ] = None,
    against: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="How much more than this row of the study, run by run of one seed: rehearsal@0.05",
            metavar="ROW",
        ),
    ] = None,
) -> None:
    """Make a table of the paper from records, beside the paper's own numbers.

    Studies without a table of their own get one of average scores. Missing
    cells and diverged runs are shown as such. Measures, for --score: average,
    smallest_own, plasticity, forgetting, backward_transfer, forward_transfer,
    min_accuracy, stability_gap, bytes_kept, items_learned.
    """
    from engramma.show import tables, typeset

    form = _format(form, out)
    makers = _tables(name, tables.TABLES, score, against)
    found = choices(strengths)
    if name == "table1" and strengths is not None:
        made = [tables.table1_chosen(found)]
    else:
        records, names, only = _records(name, stores, scale, rows, found, changes)
        made = [_made(make, records, names, only) for make in makers]
    for each in made:
        if form == "rich":
            show.out.print(typeset.terminal(each))
        elif out is None:
            print(typeset.FORMATS[form](each), end="")
        else:
            show.out.print(f"{typeset.write(each, out, form)}", soft_wrap=True)


def figure(
    name: Annotated[
        str,
        typer.Argument(metavar="STUDY", help="A study by name, or a kind of figure.", autocompletion=FIGURES),
    ],
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
    from engramma.show import figures, tables

    if kind is not None and kind not in figures.KINDS:
        raise unknown("kind", kind, figures.KINDS)
    if name not in (*studies.names(), *figures.KINDS):
        raise unknown("figure", name, (*studies.names(), *figures.KINDS))
    kinds = [kind or name] if name in figures.KINDS else [kind] if kind else studies.load(name).figures
    if not kinds:
        raise ValueError(
            f"study {name} has no figure of its own; --kind must be given, or engramma table used"
        )
    records, names, only = _records(name, stores, scale, rows, choices(strengths), changes)
    if name in studies.names():
        name = studies.variant(name, pairs(changes, "--with"), strengths)
    for each in kinds:
        title = name if each == name or (not kind and each == kinds[0]) else f"{name}-{each}"
        known: dict[str, Any] = {"names": names}
        if each == "bars":
            known["table"] = _made(tables.table2, records, names, only)
        for path in figures.draw(each, records, out, title, data_dir=data_dir, **known):
            show.out.print(str(path), soft_wrap=True)


def present(
    study: Study,
    records: list[Record],
    out: Path,
    data_dir: str | Path | None = None,
    names: Sequence[str] = (),
    only: set[Row] | None = None,
) -> list[Path]:
    """Show a study's tables in the terminal, of `only` some rows where not all were asked for, and write them
    and its figures into `out`. The files. `names`: the row of each record."""
    from engramma.show import tables, typeset

    made = []
    found: dict[str, Table] = {
        kind: _made(tables.TABLES[kind], records, names, only) for kind in study.tables
    }
    for each in found.values():
        show.out.print(typeset.terminal(each))
        made += [typeset.write(each, out / f"{study.name}{typeset.ENDINGS[form]}", form) for form in WRITTEN]
    if study.figures:
        from engramma.show import figures
    for kind in study.figures:
        known: dict[str, Any] = {"table": found["table2"]} if kind == "bars" and "table2" in found else {}
        title = study.name if kind == study.figures[0] else f"{study.name}-{kind}"
        made += figures.draw(kind, records, out, title, data_dir=data_dir, names=names, **known)
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
        raise unknown("format", form, FORMATS)
    if form == "rich" and out is not None:
        raise ValueError(
            "format must be md, latex, csv or json to be written to a file; rich is for the terminal"
        )
    return form


def _tables(
    name: str, known: dict[str, Callable[..., Table]], score: str | None, against: str | None
) -> list[Callable[..., Table]]:
    """What makes the tables that a study has, told of the score that was asked for."""
    from engramma import studies
    from engramma.store.scores import MEASURES

    if name not in (EVERYTHING, *studies.names()):
        raise unknown("study", name, (*studies.names(), EVERYTHING))
    kinds = [EVERYTHING] if name == EVERYTHING else studies.load(name).tables or [EVERYTHING]
    if against is not None and name == EVERYTHING:
        raise ValueError("against must be left out without a study, whose row it is")
    if against is not None:
        kinds = ["rows"]
    if score is None and against is None:
        return [known[kind] for kind in kinds]
    if "table1" in kinds:
        raise ValueError("score must be left out: a table of lambdas is of the score they were chosen by")
    first, _, second = (score or "").partition(":")
    told = {"score": first, "measure": second}
    if not second and first in MEASURES:
        told = {"measure": first}
    some = {"against": against} | {name: word for name, word in told.items() if word}
    return [partial(known[kind], **{k: v for k, v in some.items() if v is not None}) for kind in kinds]


def _made(
    make: Callable[..., Table], records: Sequence[Record], names: Sequence[str], only: set[Row] | None
) -> Table:
    """A table, told what it asks for: the row of its study that each record is of, the rows asked for."""
    told = {"names": names, "only": only}
    asked = inspect.signature(make).parameters
    return make(records, **{name: value for name, value in told.items() if name in asked})


def _records(
    name: str,
    stores: Sequence[Path],
    scale: str | None,
    rows: str | None,
    found: Sequence[Choice] = (),
    changes: Sequence[str] | None = None,
) -> tuple[list[Record], list[str], set[Row] | None]:
    """Those of a study's runs that the store has, in the study's order, with the row of each, or all of the
    store (for `scores` and the kinds of figures); and the rows of Table 2 that were asked for, None where all
    were."""
    from engramma import studies

    there, said, only = stored(stores), ", ".join(map(str, stores)), listed(rows)
    if name not in studies.names():
        if scale or found or changes:
            raise ValueError(f"{name} is of all records: --scale, --strengths and --with are of a study's")
        everything = list(there)
        if not everything:
            raise ValueError(f"--from must be a folder or an archive of records; {said} has none")
        return _of_rows(everything, only), [], None
    for size in [scale] if scale else reversed(studies.SCALES):
        runs = studies.changed(
            studies.load(name).runs(size, rows=only, chosen=found), pairs(changes, "--with")
        )
        kept = [(there.find(run.experiment), run.row) for run in runs]
        if some := [(record, row) for record, row in kept if record is not None]:
            asked = rows_of(runs) if only else None
            return [record for record, _ in some], [row for _, row in some], asked
    at = f" at scale {scale}" if scale else ""
    packed = sorted({str(file.parent) for place in stores for file in place.glob("*/*.tar.gz")})
    beside = f" (there are archives in {', '.join(packed)}: --from {packed[0]})" if packed else ""
    raise ValueError(
        f"no records of {name}{at} in {said}{beside}: engramma reproduce {name} --scale {scale or 'demo'} "
        "makes them"
    )


def listed(rows: str | None) -> list[str] | None:
    return [row.strip() for row in rows.split(",")] if rows else None


def rows_of(runs: Sequence[Run]) -> set[Row]:
    """The rows of Table 2 that runs are of."""
    from engramma.show.select import row

    return {row(run.experiment.method, run.experiment.strength) for run in runs}


def _of_rows(records: list[Record], names: list[str] | None) -> list[Record]:
    """Those of the rows named as in a study, gem@0.05, or by their method alone."""
    from engramma.show.select import by_row, row_of

    if names is None:
        return records
    called: dict[str, set[Row]] = {}
    for method, proportion in by_row(records):
        for name in (method, method if proportion is None else f"{method}@{proportion:g}"):
            called.setdefault(name, set()).add((method, proportion))
    if strange := [name for name in names if name not in called]:
        raise ValueError(
            f"rows must be some of {', '.join(called)}, not {', '.join(strange)}{near(strange[0], called)}"
        )
    wanted = set().union(*(called[name] for name in names))
    return [record for record in records if row_of(record) in wanted]
