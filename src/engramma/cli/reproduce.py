"""engramma reproduce, engramma demo: the paper's tables and figures, and the laws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.text import Text

from engramma import laws
from engramma.cli import laws as of_laws
from engramma.cli import report, show, tables
from engramma.cli.options import SCALES, STUDIES, counted, numbers, pairs
from engramma.cli.tables import ChangesOption, StrengthsOption
from engramma.cli.train import (
    WHERE,
    ClusterOption,
    DataOption,
    DeviceOption,
    KeepMemories,
    KernelOption,
    ProcessesOption,
    StoreOption,
    carry_out,
    joined,
)

if TYPE_CHECKING:
    from distributed import Client

    from engramma.runs.options import Options
    from engramma.store.records import Record
    from engramma.studies import Run, Study

OutOption = Annotated[Path, typer.Option(help="Folder for tables and figures.", rich_help_panel=WHERE)]


def reproduce(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="[STUDY]",
            help="A table, figure or law by name (--list); all; laws.",
            autocompletion=STUDIES,
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the studies.")] = False,
    scale: Annotated[
        str,
        typer.Option(
            help="demo (digits) | small (MNIST, 2,000 items) | paper", metavar="NAME", autocompletion=SCALES
        ),
    ] = "demo",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many runs, about how long, and how much memory.")
    ] = False,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="How many (3), or which (0,1).", metavar="N", show_default="the study's"),
    ] = None,
    vertices: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Only these: 2,20", metavar="N,...", show_default="all"),
    ] = None,
    rows: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Only these: vanilla,ewc", metavar="NAME,...", show_default="all"),
    ] = None,
    strengths: StrengthsOption = None,
    changes: ChangesOption = None,
    dtype: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="float64 | float32 | mixed", metavar="NAME", show_default="the study's"),
    ] = None,
    out: OutOption = Path("output"),
    store: StoreOption = Path("runs"),
    device: DeviceOption = "auto",
    kernel: KernelOption = "auto",
    data_dir: DataOption = None,
    cluster: ClusterOption = None,
    keep_memories: KeepMemories = False,
    processes: ProcessesOption = 0,
) -> None:
    """Run a table or a figure of the paper, or simulate a law of associative memory.

    Runs that the store has are not run again, and an interrupted study goes on
    where it stopped. Several processes may work on one store at a time: they
    share the work, and --cluster has those of a Dask cluster do it.
    """
    from engramma import studies
    from engramma.runs.options import Options

    if list_:
        _list()
        return
    if name is None:
        raise ValueError("study must be named (engramma reproduce --list shows them), or all")
    if named := laws.chosen(name):
        options = Options(device, kernel, data_dir)
        told = {"--seeds": seeds, "--vertices": vertices, "--rows": rows, "--strengths": strengths,
                "--with": changes, "--dtype": dtype, "--cluster": cluster}  # fmt: skip
        if wrong := [option for option, value in told.items() if value is not None]:
            raise ValueError(f"{wrong[0]} is for studies: what a law simulates, its scale says")
        if dry_run:
            of_laws.dry(named, scale, store)
        else:
            of_laws.reproduce(named, scale, store, options, out / scale)
        return
    if name not in (known := studies.names()) and name != "all":
        others = f"{', '.join(laws.LAWS)}, {laws.ALL}"
        raise ValueError(f"study must be one of {', '.join(known)}, all, or a law: {others}, not {name!r}")
    chosen = [studies.load(n) for n in (studies.names() if name == "all" else [name])]
    some_seeds = counted(seeds) if seeds else None
    some_vertices = numbers(vertices, "vertices") if vertices else None
    some_rows = tables.listed(rows)
    found = tables.choices(strengths)
    other = {**pairs(changes, "--with"), **({"dtype": dtype} if dtype else {})}
    runs = []
    for study in chosen:
        own = study.runs(scale, some_seeds, some_vertices, some_rows, found)
        some = scale, (some_seeds or [0])[:1], some_vertices, some_rows  # what differs does so at every seed
        alike = study.runs(*some, found)
        # Its tables and figures are not the study's own, and must not be written over them.
        told = {k: v for k, v in other.items() if studies.changed(alike, {k: v}) != alike}
        name = studies.variant(study.name, told, strengths if found and alike != study.runs(*some) else None)
        runs.append((study.model_copy(update={"name": name}), studies.changed(own, other)))
    if strengths:
        tables.say_used(found, [run.experiment for _, part in runs for run in part], strengths)
    options = Options(device, kernel, data_dir, keep_memories=keep_memories, processes=processes)
    if dry_run:
        _dry(runs, scale, store, options)
        return
    with joined(cluster, device) as client:
        for study, part in runs:
            title = Text.assemble((study.name, "bold"), f" ({study.paper}): {study.title}")
            show.out.print(title, soft_wrap=True)
            finish(study, part, store, options, out / scale, client, some=some_rows is not None)


def finish(
    study: Study,
    runs: list[Run],
    store: Path,
    options: Options,
    out: Path,
    client: Client | None = None,
    some: bool = False,
) -> None:
    """Run a study, or `some` of its rows, show what it found, write its tables and figures."""
    outcome = carry_out([run.experiment for run in runs], store, options, client)
    if not study.tables:
        score = next(iter(outcome.records[0].scores))
        show.overview(f"{study.paper}: average {score} after the last task", runs, outcome.records)
    only = tables.rows_of(runs) if some else None
    names = [run.row for run in runs]
    made = tables.present(study, outcome.records, out, options.data_dir, names, only)
    show.outcome(outcome, store)
    show.out.print(f"{', '.join(path.name for path in made)} in {out}\n", soft_wrap=True)


def demo(
    out: OutOption = Path("output"),
    store: StoreOption = Path("runs"),
    device: DeviceOption = "auto",
    kernel: KernelOption = "auto",
) -> None:
    """The paper's comparison on the digits that ship with scikit-learn, in about two minutes on two cores.

    Nine methods against forgetting at four vertices, and allocation beside
    them: five tasks of permuted digits one after another, three seeds each.
    Nothing is downloaded.
    """
    from engramma import studies
    from engramma.runs.options import Options

    options = Options(device, kernel, keep_memories=True, processes=0)
    study, out = studies.load("table2"), out / "demo"
    runs = [*study.runs("demo"), *studies.load("allocation").runs("demo")]
    plain = [run.experiment for run in runs if run.row == "vanilla"]
    show.out.print("Without a method, every task is forgotten when the next is learned", style="bold")
    first = carry_out(plain, store, options)
    show.results([r for r in first.records if r.description["vertex"] == 2])
    show.out.print("The thirteen rows of the paper's Table 2, on digits, and allocation", style="bold")
    finish(study, runs, store, options, out)
    search = studies.load("ewc").runs("demo", seeds=[0], vertices=[2])
    carry_out([run.experiment for run in search], store, replace(options, keep_memories=False))
    made = tables.present(studies.load("curves-vanilla"), first.records, out)
    show.out.print(f"{', '.join(path.name for path in made)} in {out}", soft_wrap=True)
    report.write([store], out / "report.html", networks=12)
    show.out.print(f"The records are in {store}: engramma runs list --store {store}", soft_wrap=True)
    _close(runs, store)


ENDS = {  # the rows that the demo ends on, and what is theirs
    "vanilla": "nothing stored",
    "rehearsal@0.5": "half of all items stored",
    "allocation": "nothing stored, no task named",
}


def _close(runs: list[Run], store: Path) -> None:
    """What the demo was for: how much of five tasks is kept."""
    from engramma.store.records import Store
    from engramma.store.scores import values

    records = Store(store)
    found: dict[str, dict[float, list[Record]]] = {row: {} for row in ENDS}
    for run in runs:
        if run.row in ENDS and (record := records.find(run.experiment)) is not None:
            found[run.row].setdefault(run.experiment.vertex, []).append(record)
    vertices = ", ".join(f"{vertex:g}" for vertex in sorted(found["allocation"]))
    show.out.print(f"\nAverage accuracy after five tasks, at n = {vertices}:", style="bold")
    for row, what in ENDS.items():
        means = "  ".join(f"{values(some).mean():.2f}" for _, some in sorted(found[row].items()))
        name = row.partition("@")[0]
        show.out.print(f"  {name:12}{means}  {what}", style="bold" if row == "allocation" else None)


def _list() -> None:
    from rich import box
    from rich.table import Table

    from engramma import studies

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in ("study", "paper", "what", "runs"):
        table.add_column(column, no_wrap=column != "what")
    for name in studies.names():
        study = studies.load(name)
        counts = "/".join(str(len(study.runs(scale))) for scale in studies.SCALES)
        table.add_row(name, study.paper, study.title, counts)
    show.out.print(table)
    show.out.print(of_laws.listed())
    show.out.print(
        f"Runs at the scales {', '.join(studies.SCALES)}. Studies that share runs share their records."
    )


def _dry(runs: list[tuple[Study, list[Run]]], scale: str, store: Path, options: Options) -> None:
    """How many runs, how long, how much memory: without running any of them."""
    from engramma.runs.estimate import estimate
    from engramma.store.records import Store

    wanted = list(dict.fromkeys(run.experiment for _, part in runs for run in part))
    found = estimate(wanted, Store(store), options)
    out = show.out.print
    for study, part in runs:
        out(f"{study.name} ({study.paper}): {len(part)} runs", soft_wrap=True)
    out(
        f"{found.missing} of {len(wanted)} different runs at scale {scale} are not yet in {store}",
        soft_wrap=True,
    )
    several = f" in each of {found.processes} processes" if found.processes > 1 else ""
    out(f"packs       {found.packs} on {options.where.type}, up to {found.replicas} runs at once{several}")
    out(f"memory      about {show.size(found.memory)} of {show.size(found.room)} that packs may use")
    if found.seconds is None:
        out(f"time        cannot be estimated: {found.basis}", soft_wrap=True)
    else:
        out(f"time        about {show.seconds(found.seconds)}: an estimate {found.basis}", soft_wrap=True)
