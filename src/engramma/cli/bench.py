"""engramma bench: how fast training is on this machine."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from engramma.checks import unknown
from engramma.cli import show
from engramma.cli.options import numbers
from engramma.cli.train import DeviceOption

DTYPES = ("float32", "float64", "mixed")


def bench(
    items: Annotated[
        str, typer.Option(help="Items a step, or several numbers.", metavar="N,...")
    ] = "1600,8000",
    replicas: Annotated[str, typer.Option(help="Networks trained at once.", metavar="N,...")] = "1",
    vertex: Annotated[str, typer.Option(help="Interaction vertices.", metavar="X,...")] = "2,20",
    dtype: Annotated[
        str, typer.Option(help=f"Precisions: {', '.join(DTYPES)}.", metavar="NAME,...")
    ] = "float32,float64",
    memories: Annotated[int, typer.Option(help="Memories of a network.", metavar="N", min=1)] = 512,
    rounds: Annotated[int, typer.Option(help="Times each is measured.", metavar="N", min=1)] = 5,
    device: DeviceOption = "auto",
    out: Annotated[Path, typer.Option(help="The JSON file to write.", metavar="FILE")] = Path("bench.json"),
) -> None:
    """Time a training step against its two matrix products alone.

    The products are what a network of this size asks for: 1.2 means that all else adds a fifth.
    Below 1, they were not needed: on the CPU items of -1 and +1 are looked up, not multiplied.
    The items are made up (799 neurons, 10 classes). Step and products take turns;
    whatever else the machine is doing shows in the figures.
    """
    from engramma.runs.bench import machine, measure
    from engramma.runs.options import device_for
    from engramma.store.outputs import whole

    place, kinds = device_for(device), [name.strip() for name in dtype.split(",")]
    for kind in kinds:
        if kind not in DTYPES:
            raise unknown("dtype", kind, DTYPES)
    cases = list(
        product(kinds, _whole(replicas, "replicas"), numbers(vertex, "vertex"), _whole(items, "items"))
    )
    if not all(n > 0 for _, _, n, _ in cases):
        raise ValueError(f"vertex must be a number above 0, not {vertex!r}")
    rows: list[dict[str, Any]] = []
    show.out.print(
        f"{'dtype':8}{'replicas':>9}{'items':>7}{'n':>6}  {'step / products':>15}{'items a second':>16}"
    )
    for kind, networks, n, count in cases:
        row = measure(place, kind, networks, count, n, memories, rounds)
        rows.append(row)
        show.out.print(
            f"{kind:8}{networks:9}{count:7}{n:6g}  {row['ratio']:15.2f}{row['items_a_second']:16,.0f}"
        )
    with whole(out) as path:
        path.write_text(json.dumps({**machine(place), "rows": rows}, indent=1) + "\n")
    show.out.print(f"-> {out}", soft_wrap=True)


def _whole(text: str, name: str) -> list[int]:
    values = numbers(text, name)
    if not all(v >= 1 and v == int(v) for v in values):
        raise ValueError(f"{name} must be whole numbers above 0, not {text!r}")
    return [int(v) for v in values]
