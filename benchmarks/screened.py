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
from typing import NamedTuple

from benchmarks import status
from engramma.paper import numbers as paper
from engramma.show.agreement import agreement

SCREENING = Path(__file__).parents[1] / "docs" / "screening.csv"
FEWEST = 10  # protocols in which a pair was tried before it is spoken of
ROWS = {r.method if r.proportion is None else f"{r.method}@{r.proportion:g}": r for r in paper.rows()}


class Line(NamedTuple):
    """A line of the file: a protocol and a cell of Table 2, and what was found, means over the seeds."""

    items: str
    normalise: str
    scaled: str
    batch: str
    probe: str
    rate: str
    temperature: str
    row: str
    n: str
    settings: str  # of the row, and what else differs from the published protocol
    recall: str
    seeds: str
    accuracy: str
    sd: str  # of the accuracy; empty for a single seed
    without_leak: str  # accuracy recalled without the leak
    own: str  # accuracies of the tasks, each after it was learned
    macro_f1: str
    pooled_f1: str  # macro F1 of the items of all tasks together

    @property
    def inside(self) -> bool:
        """By the rule of Table 2; a mean of one seed has the paper's deviation."""
        told = paper.printed(ROWS[self.row], int(self.n))
        assert told is not None
        return agreement(float(self.accuracy) - told.mean, float(self.sd or told.sd), told.sd)

    @property
    def protocol(self) -> tuple[str, ...]:
        """What cells of one row have in common: all that was chosen, the row's own settings among it."""
        return (*self[1:7], self.settings, self.recall)


def read(path: Path) -> list[Line]:
    with path.open(newline="") as file:
        lines = (Line(**line) for line in csv.DictReader(file))
        return [line for line in lines if line.items == "10000" and "lambda x" not in line.settings]


def by_cell(lines: Iterable[Line]) -> dict[tuple[str, int], tuple[int, int]]:
    """{(row, n): (means that agree, means)}."""
    found: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for line in lines:
        found[line.row, int(line.n)].append(line.inside)
    return {cell: (sum(agree), len(agree)) for cell, agree in found.items()}


class Exclusive(NamedTuple):
    """Two cells of a row that never agreed at once."""

    row: str
    n: int
    other: int
    tried: int  # protocols with both
    first: int  # those with n inside
    second: int  # those with the other


def exclusive(lines: Iterable[Line], fewest: int = FEWEST) -> list[Exclusive]:
    """A cell tried twice with one protocol, by other seeds, counts as inside where it was so once."""
    tables: dict[str, dict[tuple[str, ...], dict[int, bool]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        cells = tables[line.row][line.protocol]
        cells[int(line.n)] = cells.get(int(line.n), False) or line.inside
    out = []
    for row, protocols in tables.items():
        for a, b in itertools.combinations(paper.vertices(), 2):
            tried = [(cells[a], cells[b]) for cells in protocols.values() if a in cells and b in cells]
            if len(tried) >= fewest and (True, True) not in tried:
                out.append(
                    Exclusive(row, a, b, len(tried), *(sum(column) for column in zip(*tried, strict=True)))
                )
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    lines = read(Path(given[0]) if given else SCREENING)
    counts, vertices = by_cell(lines), paper.vertices()
    print(f"{len(lines)} means with 10,000 items and the paper's lambdas\n")
    print(f"{'means that agree':22}" + "".join(f"{f'n={n}':>10}" for n in vertices))
    for row in dict.fromkeys(cell[0] for cell in counts):
        cells = (counts.get((row, n), (0, 0)) for n in vertices)
        print(f"{row:22}" + "".join(f"{f'{good}/{tried}':>10}" for good, tried in cells))
    print("\nnever both inside, with one protocol and one setting of the row:")
    for row, a, b, tried, first, second in exclusive(lines):
        print(f"{row:22} n={a} ({first} times) and n={b} ({second}), of {tried}")
    return 0


if __name__ == "__main__":
    sys.exit(status(main))
