"""engramma run, engramma fork: train settings of one's own."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from engramma.cli import interrupt, show
from engramma.cli.options import METHODS, SEVERAL, counted, given, literal, numbers, pairs, with_settings

if TYPE_CHECKING:
    from distributed import Client

    from engramma.experiment import Experiment
    from engramma.runs.options import Options
    from engramma.runs.study import Outcome

SEEDS = 3  # of a run that says nothing of them: one alone tells little
WHERE = "Where and how"
StoreOption = Annotated[Path, typer.Option(help="Folder of records.", rich_help_panel=WHERE)]
DeviceOption = Annotated[str, typer.Option(help="auto | cpu | cuda", metavar="NAME", rich_help_panel=WHERE)]
KernelOption = Annotated[
    str, typer.Option(help="auto | reference | numba | triton", metavar="NAME", rich_help_panel=WHERE)
]
DataOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data-dir", help="Folder with MNIST's files (or ENGRAMMA_DATA).", rich_help_panel=WHERE),
]
KeepMemories = Annotated[
    bool,
    typer.Option(
        "--keep-memories", help="Keep the memories after every task in the record.", rich_help_panel=WHERE
    ),
]
KeepCheckpoints = Annotated[
    bool,
    typer.Option("--keep-checkpoints", help="Keep all checkpoints, to fork from.", rich_help_panel=WHERE),
]
CurveOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--curve-every", help="Epochs between two points of a curve.", metavar="N", min=1,
                 rich_help_panel=WHERE, show_default="25 points a task"),
]  # fmt: skip

ProcessesOption = Annotated[
    int,
    typer.Option(help="Processes that share the work; 0: as many as suit it.", metavar="N", min=0, max=1000,
                 rich_help_panel=WHERE),
]  # fmt: skip
ClusterOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Have the workers of a Dask cluster do it: tcp://host:8786, a scheduler file, or "
                 "local:4 to start one.", metavar="WHERE", rich_help_panel=WHERE),
]  # fmt: skip
SetOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", help="A setting of the method: fisher=batch. Repeat for more.",
                 metavar="NAME=VALUE", rich_help_panel="Method", show_default=False),
]  # fmt: skip
WatchOption = Annotated[
    bool,
    typer.Option("--watch", help="A dashboard of all replicas while they train.", rich_help_panel=WHERE),
]
TensorBoardOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--tensorboard", help="Also log to this folder.", metavar="FOLDER", rich_help_panel=WHERE),
]


def carry_out(
    experiments: list[Experiment],
    store: Path,
    options: Options,
    client: Client | None = None,  # of a cluster, which has devices of its own
    dashboard: bool = False,
    tensorboard: Path | None = None,
) -> Outcome:
    """Run with a progress bar or a dashboard, and know what to say when interrupted."""
    from engramma.runs import study
    from engramma.runs.options import device_for
    from engramma.store.records import Store

    if client and (dashboard or tensorboard):
        raise ValueError("cluster must be left out with --watch and --tensorboard: they show what runs here")
    if not client:
        device_for(options.device)  # one that is not here is said before anything is shown
    records = Store(store)
    interrupt.keeps(
        lambda: (
            f"{show.runs(sum(e in records for e in dict.fromkeys(experiments)))} of this command kept "
            f"in {store}; the same command goes on from there"
        )
    )
    if client:
        from engramma.runs import cluster

        with show.progress() as work:
            return cluster.run(experiments, records, client, options, work)
    with nullcontext(study.Work()) if dashboard else show.progress() as work:
        if not dashboard and tensorboard is None:
            return study.run(experiments, records, options, work)
        from engramma.runs.watch import watching

        with watching(work, dashboard, tensorboard, show.err) as watcher:
            return study.run(experiments, records, options, work, watcher)


@contextmanager
def joined(cluster: str | None, device: str) -> Iterator[Client | None]:
    """A client of the cluster that was named, if one was."""
    if cluster is None:
        yield None
        return
    from engramma.runs.cluster import joined as at

    with at(cluster, device) as client:
        yield client


@with_settings
def run(
    config: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="TOML file of settings; options win over it.", rich_help_panel="Runs"),
    ] = None,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="How many (3), or which (0,1,2).", metavar="N", rich_help_panel="Runs",
                     show_default=str(SEEDS)),
    ] = None,
    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="This one alone.", metavar="N", min=0, rich_help_panel="Runs"),
    ] = None,
    strengths: Annotated[Optional[str], typer.Option(hidden=True)] = None,  # noqa: UP045
    set_: SetOption = None,
    store: StoreOption = Path("runs"),
    device: DeviceOption = "auto",
    kernel: KernelOption = "auto",
    data_dir: DataOption = None,
    cluster: ClusterOption = None,
    curve_every: CurveOption = None,
    keep_memories: KeepMemories = False,
    keep_checkpoints: KeepCheckpoints = False,
    processes: ProcessesOption = 0,
    watch: WatchOption = False,
    tensorboard: TensorBoardOption = None,
    **settings: Any,
) -> None:  # fmt: skip
    """Train a network on tasks one after another, and say what it remembers.

    Several vertices and strengths may be named, 2,5,20: each is run with every
    seed. Seeds and strengths train at once, as replicas. What was run before is
    found in the store and not run again; an interrupted run goes on after its
    last finished task.
    """
    from engramma.experiment import read, read_toml
    from engramma.runs.options import Options
    from engramma.search import choice as chosen

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a method of one's own may lie beside
    base = read_toml(config) if config else {}
    told = given({**settings, "strength": settings.get("strength") or strengths})
    grid = _grid(base, told) | {"seed": _seeds(base, seeds, seed)}
    bases = [base]
    if config and "chosen" in base:  # what engramma tune found: one entry for each method and vertex
        found, vertices = chosen.parse(base, config), grid.pop("vertex", None)
        picked = [{"vertex": v} for v in vertices] if vertices else [{}]
        bases = [b for pick in picked for b in chosen.select(found, {**told, **pick}, config)]
    if set_:
        if not isinstance(there := base.get("settings", {}), dict):
            raise ValueError(f"settings must be a table, not {there!r:.60}")
        bases = [{**b, "settings": {**b.get("settings", {}), **pairs(set_)}} for b in bases]
    varied = [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]
    experiments = [read(b, told, v) for b in bases for v in varied]
    options = Options(
        device,
        kernel,
        data_dir,
        curve_every=curve_every,
        keep_memories=keep_memories,
        keep_checkpoints=keep_checkpoints,
        processes=processes,
    )
    show.thresholds(experiments)
    with joined(cluster, device) as client:
        outcome = carry_out(experiments, store, options, client, watch, tensorboard)
    show.results(outcome.records)
    show.outcome(outcome, store)


def _seeds(file: dict[str, Any], seeds: str | None, seed: int | None) -> list[int]:
    """Those that were typed, or stand in a file's settings, out of which they are taken; or three."""
    several, one = file.pop("seeds", None), file.pop("seed", None)
    if seeds is not None and seed is not None:
        raise ValueError("seed must be left out where --seeds says how many or which")
    if seed is not None:
        return [seed]
    if seeds is not None or several is not None:
        return counted(several if seeds is None else seeds)
    return counted(SEEDS) if one is None else [one]


def _grid(file: dict[str, Any], told: dict[str, Any]) -> dict[str, list[Any]]:
    """{setting: values} of the settings that may have several, taken out of a file's and those told, which
    win. A single value is whatever was given: who reads it says what is wrong with it."""
    grid = {}
    for name, plural in SEVERAL.items():
        value = told.pop(name, file.pop(plural, file.pop(name, None)))
        if isinstance(value, list) or (isinstance(value, str) and "," in value):
            grid[name] = list(dict.fromkeys(numbers(value, name)))
        elif value is not None:
            grid[name] = [value]
    return grid


def fork(
    name: Annotated[str, typer.Argument(metavar="RUN", help="The first digits of a run's name.")],
    after: Annotated[
        int, typer.Option(help="The task (from 1) after which it goes its own way.", metavar="TASK")
    ],
    method: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Another method.", metavar="NAME", autocompletion=METHODS),
    ] = None,
    strength: Annotated[Optional[str], typer.Option(help="Another strength.", metavar="X")] = None,  # noqa: UP045
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", help="A setting of the method.", metavar="NAME=VALUE", show_default=False),
    ] = None,
    store: StoreOption = Path("runs"),
    device: DeviceOption = "auto",
    kernel: KernelOption = "auto",
    data_dir: DataOption = None,
) -> None:
    """Continue a run from the end of one of its tasks with another method or strength.

    The run must have kept its checkpoints (--keep-checkpoints). All runs that
    were trained together with it are continued. Another method looks back: it
    takes stock of the tasks so far as if it had been there.
    """
    from engramma.checks import method_class
    from engramma.runs.forks import fork as continued
    from engramma.runs.options import Options
    from engramma.store import checkpoints
    from engramma.store.records import Store

    records = Store(store)
    if method is not None:
        method_class(method)  # one of one's own is imported because it was named here, not by a record
    parent = records.get(name)
    pack = next((runs for runs in checkpoints.packs(records).values() if parent.name in runs), None)
    if pack is None:
        raise ValueError(
            f"run {parent.name} must have kept its checkpoints (--keep-checkpoints) to be forked"
        )
    changes: dict[str, Any] = {"settings": pairs(set_)} if set_ else {}
    if strength is not None:
        changes["strength"] = literal(strength)
    children = [continued(records.get(run).experiment, after - 1, method, **changes) for run in pack]
    outcome = carry_out(children, store, Options(device, kernel, data_dir, processes=0))
    show.results(outcome.records)
