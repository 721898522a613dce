"""What the screened protocols say of Table 2's cells: python -m benchmarks.screened [FILE]

Reads docs/screening.csv (10,000 items and the paper's lambdas alone) and prints, for each cell, how many of
the means tried agree with the paper, and which pairs of cells of one row, with one setting of it, never
agreed at once.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from engramma import paper
from engramma.cells import agreement

SCREENING = Path(__file__).parents[1] / "docs" / "screening.csv"
FEWEST = 10  # protocols in which a pair was tried before it is spoken of

Cell = tuple[str, int]
Line = dict[str, str]


def read(path: Path) -> list[Line]:
    with path.open(newline="") as file:
        lines = csv.DictReader(file)
        return [line for line in lines if line["items"] == "10000" and "lambda x" not in line["settings"]]


def printed(cell: Cell) -> paper.Printed:
    name, _, proportion = cell[0].partition("@")
    for row in paper.rows():
        if row.method == name and (row.proportion is None or f"{row.proportion:g}" == proportion):
            found = paper.printed(row, cell[1])
            assert found is not None
            return found
    raise ValueError(f"{cell[0]} is no row of Table 2")


def inside(line: Line, score: str = "accuracy") -> bool:
    """By the rule of Table 2; a mean of one seed has the paper's deviation."""
    told = printed((line["row"], int(line["n"])))
    return bool(agreement(float(line[score]) - told.mean, float(line["sd"] or told.sd), told.sd))


def protocol(line: Line) -> tuple[str, ...]:
    """What cells of one protocol have in common, the row's own settings among it."""
    keys = ("normalise", "scaled", "batch", "probe", "rate", "temperature", "settings", "recall", "row")
    return tuple(line[key] for key in keys)


def by_cell(lines: Iterable[Line]) -> dict[Cell, tuple[int, int]]:
    """{cell: (means that agree, means)}."""
    found: dict[Cell, list[bool]] = defaultdict(list)
    for line in lines:
        found[line["row"], int(line["n"])].append(inside(line))
    return {cell: (sum(all_), len(all_)) for cell, all_ in found.items()}


def exclusive(lines: Iterable[Line], fewest: int = FEWEST) -> list[tuple[str, int, int, int, int, int]]:
    """(row, n, other n, protocols with both tried, those with n inside, with the other n): never both."""
    tables: dict[tuple[str, ...], dict[int, bool]] = defaultdict(dict)
    for line in lines:
        tables[protocol(line)][int(line["n"])] = inside(line)
    out = []
    for row in dict.fromkeys(key[-1] for key in tables):
        for a, b in itertools.combinations(paper.vertices(), 2):
            tried = [(t[a], t[b]) for key, t in tables.items() if key[-1] == row and a in t and b in t]
            first, other = sum(x for x, _ in tried), sum(y for _, y in tried)
            if len(tried) >= fewest and not any(x and y for x, y in tried):
                out.append((row, a, b, len(tried), first, other))
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    lines = read(Path(given[0]) if given else SCREENING)
    counts, vertices = by_cell(lines), paper.vertices()
    print(f"{len(lines)} means with 10,000 items and the paper's lambdas\n")
    print(f"{'means that agree':22}" + "".join(f"{f'n={n}':>10}" for n in vertices))
    for row in dict.fromkeys(cell[0] for cell in counts):
        cells = (counts.get((row, n), (0, 0)) for n in vertices)
        print(f"{row:22}" + "".join(f"{f'{good}/{all_}':>10}" for good, all_ in cells))
    print("\nnever both inside, with one protocol and one setting of the row:")
    for row, a, b, tried, first, other in exclusive(lines):
        print(f"{row:22} n={a} ({first} times) and n={b} ({other}), of {tried}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
