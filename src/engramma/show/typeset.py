"""Tables as Markdown, LaTeX, CSV, and for a terminal of 80 columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engramma.checks import visible
from engramma.show.agreement import Cell, LambdaCell, Line, Table
from engramma.show.labels import spread
from engramma.store.outputs import in_csv, in_json, whole

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MISSING = "—"


def faces(cell: Cell | LambdaCell, wide: bool = False) -> tuple[str, str]:
    """(ours, the paper's beside it) as plain text; the second is empty where there is nothing to compare.
    `wide` leaves room for the paper's standard deviation."""
    if isinstance(cell, LambdaCell):
        return _own_lambda(cell), _printed_lambda(cell)
    lost = f" †{cell.diverged}" if cell.diverged else ""
    if not len(cell.values):
        own = f"diverged{lost}" if lost else MISSING
    else:
        own = spread(cell.mean, cell.sd, cell.digits) + lost
    if cell.printed is None:
        return own, ""
    beside = spread(cell.printed.mean, cell.printed.sd if wide else math.nan)
    if not cell.alike:
        beside = f"paper {beside}"
    elif cell.agrees is not None:
        beside += f" {signed(cell.difference)} {'✓' if cell.agrees else '✗'}"
    return own, beside


def _own_lambda(cell: LambdaCell) -> str:
    lost = f" †{cell.diverged}" if cell.diverged else ""
    if math.isnan(cell.chosen):
        return f"diverged{lost}" if lost else MISSING
    return f"{power(cell.chosen)}{lost}"


def _printed_lambda(cell: LambdaCell) -> str:
    if cell.printed is None:
        return ""
    beside = power(cell.printed)
    if not math.isnan(cell.ratio):
        beside += f" ×{cell.ratio:.2g}"
    return beside + {True: " ✓", False: " ✗", None: ""}[cell.agrees]


def power(number: float) -> str:
    """2.0e-7: two digits and the power of ten."""
    digits, _, exponent = f"{number:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


def markdown(table: Table) -> str:
    """A pipe table; what the paper printed stands on a second line inside each cell."""
    rows = ["| | " + " | ".join(table.columns) + " |", "| :-- |" + " :-: |" * len(table.columns)]
    category = ""
    for line in table.lines:
        if line.category != category and table.headings.get(line.category, line.label) != line.label:
            rows.append(f"| *{table.headings[line.category]}* |" + " |" * len(table.columns))
        category = line.category
        cells = []
        for cell in line.cells:
            own, beside = faces(cell, wide=True)
            own = f"**{own}**" if cell.best else own
            cells.append(f"{own}<br>{beside}" if beside else own)
        rows.append(f"| {_pipe(line.label)} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + f"\n\n{visible(table.caption)}\n"


def _pipe(text: str) -> str:
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "[": "{[}",  # after the end of a row it would be a length,
    "]": "{]}",
    "*": "{*}",  # and this a part of that end
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "±": r"$\,\pm\,$",
    "−": r"$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\le$",
    "√": r"$\surd$",
    "λ": r"$\lambda$",
    "₁": r"$_1$",
    "₂": r"$_2$",
    "²": r"$^2$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "†": r"$\dagger$",
    "—": "---",
}


def escape(text: str) -> str:
    """Plain text for LaTeX, without a package; 2.0e-7 becomes 2.0 x 10^-7."""
    made = "".join(LATEX.get(letter, letter) for letter in visible(text))
    return re.sub(
        r"(\d(?:\.\d+)?)e([+-]?)0*(\d+)",
        lambda m: f"${m[1]}\\times10^{{{m[2].strip('+')}{m[3]}}}$",
        made,
    )


def latex(table: Table) -> str:
    """A `table` environment; the document needs booktabs and nothing else."""
    wide = len(table.columns) + 1
    rows = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(["", *(_column(name) for name in table.columns)]) + r" \\",
    ]
    category = None
    for line in table.lines:
        if line.category != category:
            rows.append(r"\midrule")
            heading = table.headings.get(line.category, "")
            if heading and heading != line.label:
                rows += [rf"\multicolumn{{{wide}}}{{c}}{{{escape(heading)}}} \\", r"\midrule"]
            category = line.category
        rows.append(latex_row(line))
        under = [faces(cell)[1] for cell in line.cells]
        if any(under):
            small = [rf"{{\scriptsize {escape(beside)}}}" if beside else "" for beside in under]
            rows.append(" & ".join(["", *small]) + r" \\[2pt]")
    caption = escape(table.caption)
    rows += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", rf"\label{{tab:{table.name}}}"]
    return "\n".join([*rows, r"\end{table}", ""])


def latex_row(line: Line) -> str:
    """A line alone: its label and our numbers, the best in bold."""
    own = [(cell.best, escape(faces(cell)[0])) for cell in line.cells]
    return " & ".join([escape(line.label), *(_bold(text) if best else text for best, text in own)]) + r" \\"


def _column(name: str) -> str:
    letter, _, number = name.partition("=")
    return f"${letter}={number}$" if letter == "n" and number else escape(name)


def _bold(text: str) -> str:
    # \textbf leaves mathematics thin; \boldmath takes effect outside it and ends with the group.
    return rf"{{\boldmath\textbf{{{text}}}}}"


def rows(table: Table) -> list[dict[str, object]]:
    """One a cell, full precision, with everything the other forms leave out."""
    further = sorted({name for cell in table.cells if isinstance(cell, Cell) for name in cell.facts})
    found = []
    for line in table.lines:
        for column, cell in zip(table.columns, line.cells, strict=True):
            told: dict[str, object] = {"category": line.category, "row": line.label, "column": column}
            if isinstance(cell, Cell):
                told |= {name: get(cell) for name, get in CELL.items()}
                told |= {name: cell.facts.get(name) for name in further}
            else:
                told |= {name: get(cell) for name, get in LAMBDA.items()}
            found.append(told)
    return found


def as_csv(table: Table) -> str:
    """One line a cell."""
    return in_csv(rows(table))


def as_json(table: Table) -> str:
    """The same, with the caption."""
    return in_json({"name": table.name, "caption": table.caption, "cells": rows(table)})


CELL: dict[str, Callable[[Cell], object]] = {
    "trials": lambda c: len(c.values),
    "diverged": lambda c: c.diverged,
    "mean": lambda c: c.mean,
    "sd": lambda c: c.sd,
    "best": lambda c: c.best,
    "paper_mean": lambda c: c.printed and c.printed.mean,
    "paper_sd": lambda c: c.printed and c.printed.sd,
    "difference": lambda c: c.difference,
    "pooled_sd": lambda c: c.pooled_sd,
    "agrees": lambda c: c.agrees,
    "welch_t": lambda c: c.welch[0],
    "welch_df": lambda c: c.welch[1],
    "welch_p": lambda c: c.p,
}
LAMBDA: dict[str, Callable[[LambdaCell], object]] = {
    "trials": lambda c: c.count,
    "diverged": lambda c: c.diverged,
    "lambda": lambda c: c.chosen,
    "paper_lambda": lambda c: c.printed,
    "ratio": lambda c: c.ratio,
    "mean": lambda c: c.mean,
    "sd": lambda c: c.sd,
    "mean_at_paper_lambda": lambda c: c.mean_there,
    "agrees": lambda c: c.agrees,
}


def terminal(table: Table) -> RichTable:
    """For rich: fits 80 columns with four columns of cells."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=Text(visible(table.head), style="bold") if table.head else None,
        title_justify="left",
        caption=Text(visible(table.caption)),
        caption_justify="left",
    )
    made.add_column("", no_wrap=True)
    for column in table.columns:
        made.add_column(column, justify="center", no_wrap=True)
    for i, line in enumerate(table.lines):
        cells = []
        for cell in line.cells:
            own, beside = faces(cell)
            style = "bold" if cell.best else "red" if cell.missing or cell.diverged else ""
            text = Text(own, style=style)
            if beside:
                colour = {True: "green", False: "yellow", None: "dim"}[cell.agrees]
                text.append("\n" + beside, style=colour if colour == "dim" else f"not bold {colour}")
            cells.append(text)
        last = i + 1 == len(table.lines) or table.lines[i + 1].category != line.category
        label = Text(visible(line.label))
        number = line.category.rpartition("proportion ")[2] if "proportion " in line.category else ""
        if number:
            label.append(f"\n  at {number}", style="dim")
        made.add_row(label, *cells, end_section=last and i + 1 < len(table.lines))
    return made


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "latex": latex, "csv": as_csv, "json": as_json}
ENDINGS = {"md": ".md", "latex": ".tex", "csv": ".csv", "json": ".json"}


def write(table: Table, path: Path, form: str) -> Path:
    text = FORMATS[form](table)
    with whole(path) as beside:
        beside.write_text(text, "utf-8")
    return path
