"""Protocols beside the published one: python -m benchmarks.screen ROW ... (--help lists what can be tried).

    python -m benchmarks.screen agem@0.05 mas --vertices 5,20 --pairs 0.1/0.875,0.15/0.95 --class-rates 1,2

Every combination is trained with every seed, at paper scale unless said otherwise; a line of CSV for each
goes to standard output, or to the end of --out, in the columns of docs/screening.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

from benchmarks import status
from benchmarks.screened import ROWS, Line
from benchmarks.screening import Found, Point, Protocol, screen
from engramma.paper import numbers as paper


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def span(text: str) -> list[int]:
    """100-102, or 100."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def pairs(text: str) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in (part.split("/") for part in text.split(","))]


def setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, int(value) if value.isdigit() else float(value)
    except ValueError:
        return name, value


def parser() -> argparse.ArgumentParser:
    parse = argparse.ArgumentParser(
        prog="python -m benchmarks.screen", description="Train protocols beside the published one."
    )
    parse.add_argument("rows", nargs="+", choices=ROWS, metavar="ROW", help=f"of {', '.join(ROWS)}")
    parse.add_argument("--vertices", type=numbers, default=list(paper.vertices()))
    parse.add_argument("--pairs", type=pairs, default=[(0.15, 0.95)], help="learning rate/temperature, ...")
    parse.add_argument("--class-rates", type=numbers, default=[1.0], help="of class weights, times the rate")
    parse.add_argument("--factors", type=numbers, default=[1.0], help="of the paper's lambda")
    parse.add_argument(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="a setting of the row; Table 2's own are not taken",
    )
    parse.add_argument("--normalise", default="mean", choices=("mean", "velocity", "gradient", "both"))
    parse.add_argument("--scaled", default="apart", choices=("apart", "joint"))
    parse.add_argument("--batch", type=int, help="items; all at once where it is not given")
    parse.add_argument("--probe", default="-1", choices=("-1", "labels"))
    parse.add_argument("--start", default="random", choices=("random", "-1", "held"), help="of pseudo-probes")
    parse.add_argument("--seeds", type=span, default=[100, 101], help="100-102; Table 2 has 0-9")
    parse.add_argument("--items", type=int, default=10_000)
    parse.add_argument("--epochs", type=int, default=500)
    parse.add_argument("--memories", type=int, default=512)
    parse.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parse.add_argument(
        "--dtype", choices=("float32", "float64", "mixed"), help="mixed on CUDA, float64 elsewhere"
    )
    parse.add_argument("--data-dir", help="where MNIST lies")
    parse.add_argument("--out", type=Path, help="a CSV file to add to")
    return parse


def lines(row: str, vertex: int, points: list[Point], found: Found, told: argparse.Namespace) -> list[Line]:
    """A line for each point, over its seeds."""
    out, several = [], len(told.seeds) > 1
    for index, point in enumerate(points):
        mine = slice(index, None, len(points))
        extra = [f"{name}={value}" for name, value in told.settings]
        extra += [f"lambda x{point.factor:.3g}"] if point.factor != 1 else []
        extra += [f"start={told.start}"] if told.start != "random" else []
        extra += [f"class rate x{point.class_rate:g}"] if point.class_rate != 1 else []
        line = Line(
            items=str(told.items),
            normalise=told.normalise,
            scaled=told.scaled,
            batch=str(told.batch or "all"),
            probe=told.probe,
            rate=f"{point.rate:g}",
            temperature=f"{point.temperature:g}",
            row=row,
            n=str(vertex),
            settings="; ".join(extra),
            recall="with the leak",
            seeds=f"{told.seeds[0]}-{told.seeds[-1]}" if several else str(told.seeds[0]),
            accuracy=f"{found.accuracy[mine].mean():.3f}",
            sd=f"{found.accuracy[mine].std():.3f}" if several else "",
            without_leak=f"{found.without_leak[mine].mean():.3f}",
            own=" ".join(f"{x:.2g}" for x in found.own[mine].mean(0).tolist()),
            macro_f1=f"{found.macro_f1[mine].mean():.3f}",
            pooled_f1=f"{found.pooled_f1[mine].mean():.3f}",
        )
        out.append(line)
    return out


def run(told: argparse.Namespace, out: TextIO) -> None:
    protocol = Protocol(told.normalise, told.scaled, told.batch, told.probe, told.start)
    points = [
        Point(rate, temperature, faster, factor)
        for (rate, temperature), faster, factor in itertools.product(
            told.pairs, told.class_rates, told.factors
        )
    ]
    sizes = {"items": told.items, "epochs": told.epochs, "memories": told.memories}
    sizes |= {"dtype": told.dtype} if told.dtype else {}
    writer = csv.writer(out, lineterminator="\n")
    for row, vertex in itertools.product(told.rows, told.vertices):
        began = time.perf_counter()
        found = screen(
            row,
            int(vertex),
            points,
            told.seeds,
            protocol,
            dict(told.settings),
            told.device,
            told.data_dir,
            **sizes,
        )
        writer.writerows(lines(row, int(vertex), points, found, told))
        out.flush()  # a screening that is stopped keeps what it found
        taken, many = time.perf_counter() - began, len(points) * len(told.seeds)
        print(f"{row}, n = {vertex:g}: {many} runs, {taken:.1f} s", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    told = parser().parse_args(arguments)
    try:
        if told.out is None:
            csv.writer(sys.stdout, lineterminator="\n").writerow(Line._fields)
            run(told, sys.stdout)
            return 0
        fresh = not told.out.exists() or told.out.stat().st_size == 0
        with told.out.open("a", newline="") as out:
            if fresh:
                csv.writer(out, lineterminator="\n").writerow(Line._fields)
            run(told, out)
    except (ValueError, TypeError, OSError) as error:
        print(f"screen: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(status(main))
