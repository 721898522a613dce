"""engramma tune: search for a method's strength, or for learning rate and temperature."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from engramma.cli import interrupt, show
from engramma.cli.options import counted, given, numbers, pairs, with_settings
from engramma.cli.train import (
    ClusterOption,
    DataOption,
    DeviceOption,
    KernelOption,
    SetOption,
    StoreOption,
    joined,
)

if TYPE_CHECKING:
    from engramma.search.spaces import Search
    from engramma.search.tune import Found

HOW = "Search"


@with_settings(without=("vertex", "strength"))
def tune(
    vertices: Annotated[
        str, typer.Option(help="2,20: a search for each.", metavar="N,...", rich_help_panel=HOW)
    ] = "2,5,10,20",
    trials: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Trials a vertex and method.", metavar="N", min=1, max=1_000_000,
                     rich_help_panel=HOW, show_default="100; 11 proportions"),
    ] = None,
    seeds: Annotated[
        str,
        typer.Option(help="How many a trial, counted from 1000 (tables count from 0), or which: 1000,1001.",
                     metavar="N", rich_help_panel=HOW),
    ] = "2",
    batch: Annotated[
        int, typer.Option(help="Trials trained at once.", metavar="N", min=1, rich_help_panel=HOW)
    ] = 10,
    range_: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--range", help="Strengths to search between: 1,1e6", metavar="LOW,HIGH",
                     rich_help_panel=HOW, show_default="eight decades around the paper's"),
    ] = None,
    unit_importance: Annotated[
        bool,
        typer.Option("--unit-importance", help="Importances scaled to a mean of 1: one range of lambda fits "
                     "all penalties and vertices.", rich_help_panel=HOW),
    ] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="A lambda that has forgotten everything after task 2 makes room for "
                     "another.", rich_help_panel=HOW),
    ] = False,
    grid: Annotated[
        bool,
        typer.Option("--grid", help="Search learning rate and temperature instead, for the smallest own-task "
                     "accuracy.", rich_help_panel=HOW),
    ] = False,
    rates: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Learning rates of the grid.", metavar="X,...", rich_help_panel=HOW,
                     show_default="the paper's"),
    ] = None,
    temperatures: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Temperatures of the grid; auto is one.", metavar="X,...", rich_help_panel=HOW,
                     show_default="the paper's"),
    ] = None,
    even: Annotated[
        bool,
        typer.Option("--even", help="Trials evenly over the range from end to end, all trained together: no "
                     "sampler, and no storage.", rich_help_panel=HOW),
    ] = False,
    of: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--study", help="Rows of this study instead, with its settings but for those said "
                     "here, and between the strengths it says: evenly.", metavar="NAME", rich_help_panel=HOW),
    ] = None,
    rows: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Only these rows of the study: ewc,mas", metavar="NAME,...", rich_help_panel=HOW,
                     show_default="all that it has a search for"),
    ] = None,
    scale: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Settings of the paper's search at demo (digits) | small | paper.", metavar="NAME",
                     rich_help_panel=HOW, show_default="demo; paper with --data mnist"),
    ] = None,
    set_: SetOption = None,
    storage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Optuna URL.", metavar="URL", rich_help_panel="Where and how",
                     show_default="tune.db in the store"),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="TOML for the chosen values.", metavar="FILE",
                           rich_help_panel="Where and how")
    ] = Path("chosen.toml"),
    figures: Annotated[
        Path, typer.Option(help="Folder for the response figure.", metavar="DIR",
                           rich_help_panel="Where and how")
    ] = Path("figures"),
    store: StoreOption = Path("runs"),
    device: DeviceOption = "auto",
    kernel: KernelOption = "auto",
    data_dir: DataOption = None,
    cluster: ClusterOption = None,
    **settings: Any,
) -> None:  # fmt: skip
    """Search for the best strength of a method, at each vertex.

    Lambda: the Tree-structured Parzen Estimator on a log scale. Proportions: one
    after another. --method ewc,mas searches several. Trials are trained in
    batches, on seeds of their own; the strength is chosen from the smoothed
    response. A search that was stopped goes on where it was. Several processes
    may work on one search, over one store and one storage. --study beyond
    searches the rows of a study.
    """
    from engramma.runs import study
    from engramma.runs.cluster import run as cluster_run
    from engramma.runs.options import Options
    from engramma.search import choice as chosen
    from engramma.search import spaces
    from engramma.search import tune as tuning
    from engramma.store.records import Store

    told = given(settings)
    names = [name.strip() for name in str(told.pop("method", "") or "").split(",") if name.strip()]
    if not names and not grid and not of:
        raise ValueError("method must be named: one with a strength, or several such as ewc,mas")
    if set_:
        told["settings"] = pairs(set_)
    if unit_importance:
        told["settings"] = {**told.get("settings", {}), "unit": True}
    if grid and (trials or range_):
        raise ValueError("trials and range must be left out of a grid: --rates and --temperatures make it")
    options = Options(device, kernel, data_dir)
    searched = _seeds(seeds)
    how = spaces.How(searched, trials, _numbers(range_, "range"), scale, batch, prune, even)
    made: list[Search] = []
    if of:
        if names or grid:
            raise ValueError("method and grid must be left out with a study: its rows are searched")
        some_rows = [row.strip() for row in rows.split(",")] if rows else None
        made = spaces.rows_of(of, some_rows, numbers(vertices, "vertices"), told, how)
    elif rows:
        raise ValueError("rows must be left out without a study, whose rows they are")
    for name in [] if of else names or ["vanilla"]:
        for vertex in numbers(vertices, "vertices"):
            about = (name, vertex, told, how)
            if grid:
                made.append(spaces.grid_of(*about, _numbers(rates, "rates"), _temperatures(temperatures)))
            else:
                made.append(spaces.strength_of(*about))
    records = Store(store)
    interrupt.keeps(
        lambda: (
            f"the trials so far are kept in {(storage and 'the storage') or store}; "
            "the same command goes on from there"
        )
    )
    with joined(cluster, device) as client, show.progress() as work:
        run = partial(cluster_run, client=client) if client else study.run
        found = tuning.tune(made, records, options, storage, work, run)
    chosen.write([chosen.choice(each) for each in found], out)
    _show(found)
    for path in _draw(found, records, figures):
        show.out.print(str(path), soft_wrap=True)
    show.out.print(
        f"chosen on seeds {', '.join(map(str, searched))}, not those of a table; written to {out}: "
        f"engramma reproduce table2 --strengths {out}",
        soft_wrap=True,
    )


def _seeds(text: str) -> tuple[int, ...]:
    from engramma.search.spaces import FIRST_SEED

    asked = counted(text)
    return tuple(asked) if "," in text else tuple(FIRST_SEED + seed for seed in asked)


def _numbers(text: str | None, name: str) -> list[float] | None:
    return numbers(text, name) if text else None


def _temperatures(text: str | None) -> list[float | str] | None:
    """Numbers, and "auto" in any place among them."""
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    there = [part for part in parts if part != "auto"]
    told = iter(numbers(",".join(there), "temperatures") if there else [])
    return ["auto" if part == "auto" else next(told) for part in parts]


def _draw(found: list[Found], store: Any, out: Path) -> list[Path]:
    """The response of every strength; the heat map of every grid."""
    from engramma.show import figures

    methods = "-".join(dict.fromkeys(each.search.base.method.rpartition(":")[2] for each in found))
    if found[0].response is not None:
        return figures.save(figures.searches(found), out, f"tune-{methods}")
    runs = [(each.held.get(name), name) for each in found for name in each.runs]
    there = [record or store.find(name) for record, name in runs]
    records = [record for record in there if record is not None]
    return figures.draw("grid", records, out, f"tune-grid-{methods}") if records else []


def _show(found: list[Found]) -> None:
    """The chosen values, and how wide the top is."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title="Chosen", title_justify="left")
    for column in ("method", "n", "chosen", "accuracy", "flat top", "trials"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for each in found:
        mean, error = each.top
        base, curve = each.search.base, each.response
        if curve is not None:
            chosen = f"{curve.chosen:.3g}"
            flat = f"{curve.flat[0]:.3g} to {curve.flat[1]:.3g}"
        else:
            heat = each.best["temperature"]
            heat = heat if heat == "auto" else f"{heat:g}"
            chosen = f"rate {each.best['learning_rate']:g}, T {heat}"
            flat = f"{len(each.flat_cells)} of {len(each.params)} cells"
        count = f"{len(each.params)}" + (f" (+{each.pruned} pruned)" if each.pruned else "")
        table.add_row(base.method, f"{base.vertex:g}", chosen, f"{mean:.3f}±{error:.3f}", flat, count)
    show.out.print(table)
    told = "smoothed response and its standard error" if found[0].response else "mean and standard error"
    show.out.print(f"accuracy: {told}; flat top: within that error or 0.01 of it", soft_wrap=True)
    for each in found:
        if each.search.kind == "lambda" and each.response and each.response.at_edge:
            base = each.search.base
            show.err.print(
                f"engramma: {base.method} at n = {base.vertex:g}: the best lambda lies at the end of what "
                f"was searched, {each.search.low:g} to {each.search.high:g}; try a wider --range",
                style="yellow", soft_wrap=True,
            )  # fmt: skip
