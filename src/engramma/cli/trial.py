"""engramma try: a method of one's own, tuned a little, beside others: tables, comparisons, a page, a row."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from engramma.checks import visible
from engramma.cli import compare, show
from engramma.cli.options import counted, given, numbers, pairs, with_settings
from engramma.cli.train import (
    WHERE,
    DataOption,
    DeviceOption,
    KernelOption,
    ProcessesOption,
    SetOption,
    StoreOption,
    carry_out,
)

if TYPE_CHECKING:
    from engramma.runs.options import Options
    from engramma.search.trial import Trial
    from engramma.store.records import Record

HOW = "Trial"


@with_settings(without=("method", "vertex", "strength"))
def try_(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="Yours, as ./file.py:Class; or by name.")],
    vertices: Annotated[
        str, typer.Option(help="n of the interaction function.", metavar="N,...", rich_help_panel=HOW)
    ] = "2,20",
    seeds: Annotated[
        str, typer.Option(help="How many (3), or which (0,1,2).", metavar="N", rich_help_panel=HOW)
    ] = "3",
    beside: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Other methods: ewc,rehearsal@0.5", metavar="NAME,...", rich_help_panel=HOW,
                     show_default="the paper's nine and allocation"),
    ] = None,
    strength: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Of your method, in place of a search for it.", metavar="X", rich_help_panel=HOW,
                     show_default=False),
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Strengths that are tried at each vertex.", metavar="N", min=2, max=1000,
                          rich_help_panel=HOW)
    ] = 8,
    range_: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--range", help="Strengths to search between: 0.1,1e4", metavar="LOW,HIGH",
                     rich_help_panel=HOW, show_default="what its class says"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller: 3 tasks of 200 items, 64 memories, 100 epochs; 5 "
                           "strengths, on one seed.", rich_help_panel=HOW)
    ] = False,
    set_: SetOption = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder for page and tables.", rich_help_panel=WHERE,
                     show_default="output/try-CLASS"),
    ] = None,
    store: StoreOption = Path("runs"),
    device: DeviceOption = "auto",
    kernel: KernelOption = "auto",
    data_dir: DataOption = None,
    processes: ProcessesOption = 0,
    **settings: Any,
) -> None:  # fmt: skip
    """Try a method of your own: tune it a little, and set it beside others.

    Its strength, if it has one, is searched on seeds of its own. Then it is run
    beside the other methods over the same seeds, and compared with each of
    them. By default on digits, with the sizes of the demo: a minute or two.
    A trial that was stopped goes on where it was.
    """
    from engramma.runs.options import Options
    from engramma.search.trial import BESIDE, Trial

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # package.module:Class may lie beside
    told = given(settings)
    trial = Trial(
        method,
        tuple(numbers(vertices, "vertices")),
        tuple(counted(seeds)),
        {"data": "digits", **told},
        pairs(set_),
        quick,
    )
    names = beside.split(",") if beside is not None else [name for name in BESIDE if name != method]
    if strength is not None and trial.strength_name is None:
        raise ValueError(f"strength must be left out for {method}, which has none")
    trial.compared(dict.fromkeys(trial.vertices, 1.0 if trial.strength_name else None), names)  # all is right
    options = Options(device, kernel, data_dir, processes=processes)
    chosen: dict[float, float | None] = dict.fromkeys(trial.vertices, strength)
    if trial.strength_name and strength is None:
        span = numbers(range_, "range") if range_ else None
        if span is not None and len(span) != 2:
            raise ValueError(f"range must be two numbers such as 0.1,1e4, not {range_}")
        chosen = tune(trial, min(trials, 5) if quick else trials, span, store, options)
    elif strength is None:
        show.out.print(f"{method.rpartition(':')[2]} has no strength: nothing is tuned", soft_wrap=True)
    name = method.rpartition(":")[2]
    runs = trial.compared(chosen, names)
    show.thresholds(runs)
    show.out.print(
        f"{name} beside {len(names)} other{'' if len(names) == 1 else 's'}, on "
        f"{_seeds(trial.seeds)}: {len(runs)} runs",
    )
    keep = Options(device, kernel, data_dir, keep_memories=True, processes=processes)
    outcome = carry_out(runs, store, keep)
    present(name, trial, outcome.records, out or Path("output") / f"try-{name}", options)
    show.outcome(outcome, store)


def tune(
    trial: Trial, trials: int, span: list[float] | None, store: Path, options: Options
) -> dict[float, float | None]:
    """The strength at each vertex, and what was done for it, in words."""
    from dataclasses import replace

    from engramma.search import trial as trying

    seeds = 1 if trial.quick else 2
    searches = trial.searches(trials, seeds, (span[0], span[1]) if span else None)
    first, name = searches[0], trial.strength_name
    show.out.print(
        f"{trial.method.rpartition(':')[2]}: its {name} is searched from {first.low:g} to {first.high:g}, "
        f"{'evenly' if first.kind == 'proportion' else 'by decades'}: {trials} values at each vertex, on "
        f"{_seeds(first.seeds)}, which the comparison does not use",
    )
    runs = {search.base.vertex: trying.experiments(search) for search in searches}
    wanted = [e for some in runs.values() for e in some]
    # Curves are not what a search is for.
    outcome = carry_out(wanted, store, replace(options, curve_every=wanted[0].epochs))
    found = {record.name: record for record in outcome.records}
    chosen: dict[float, float | None] = {}
    for search in searches:
        vertex = search.base.vertex
        curve = trying.response(search, [found[e.name] for e in runs[vertex]])
        chosen[vertex] = curve.chosen
        show.out.print(
            f"  n={vertex:g}: {name} {curve.chosen:g}, average {curve.top:.3f}; as good from "
            f"{curve.flat[0]:g} to {curve.flat[1]:g}",
        )
        if search.kind == "lambda" and curve.at_edge:
            show.err.print(
                f"engramma: the best {name} at n={vertex:g} lies at the end of what was searched; try a "
                "wider --range",
                style="yellow",
                soft_wrap=True,
            )
    return chosen


def present(name: str, trial: Trial, records: list[Record], out: Path, options: Options) -> None:
    """Tables, comparisons, page and row: shown, and written into `out`."""
    from engramma.show import select as trials
    from engramma.show import tables, typeset
    from engramma.show.compare import compared
    from engramma.show.report.write import report
    from engramma.store.outputs import whole

    made = []
    for measure in ("average", "forgetting"):
        table = tables.side_by_side(records, measure)
        show.out.print(typeset.terminal(table))
        made += [
            typeset.write(table, out / f"{measure}{typeset.ENDINGS[form]}", form) for form in ("latex", "csv")
        ]
        if measure == "average":
            row = typeset.latex_row(table.lines[0])
    sides: dict[str, list[Record]] = {}
    for record in records:
        method, proportion = trials.row_of(record)
        label = name if method == trial.method else _label(method, proportion)
        sides.setdefault(label, []).append(record)
    found = compared(sides)
    compare.present(found)
    for form, ending in (("latex", ".tex"), ("csv", ".csv")):
        with whole(out / f"comparison{ending}") as beside:
            beside.write_text(compare.FORMATS[form](found), "utf-8")
        made.append(out / f"comparison{ending}")
    if unlike := trial.unlike:
        show.out.print(
            f"The strengths of the other penalties were searched with other settings: {', '.join(unlike)}",
            style="yellow",
        )
    page = report(records, out / "report.html", f"{visible(name)} beside others", options.data_dir)
    show.out.print(f"As a row of LaTeX: {row}", soft_wrap=True)
    names = ", ".join(dict.fromkeys(path.stem for path in made))
    show.out.print(f"Tables: {names}, as .tex and .csv, in {out}", soft_wrap=True)
    show.out.print(f"Page, to open in a browser: {page}", soft_wrap=True)


def _label(method: str, proportion: float | None) -> str:
    from engramma.show import labels

    return labels.row(method.rpartition(":")[2], proportion)


def _seeds(seeds: tuple[int, ...]) -> str:
    told = [str(seed) for seed in seeds]
    if len(told) > 4:
        told = [*told[:2], "...", told[-1]]
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(told)}"
