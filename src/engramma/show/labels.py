"""How what was run is written, the same in figures, tables, the report and the terminal.

method("gem")         GEM           as the paper writes it; a method of one's own by its own name
row("gem", 0.5)       GEM 0.5       a row of Table 2
run("ewc", 1100.0)    EWC λ=1100    a method at a strength
vertex(10.0)          n=10
spread(0.3493, 0.01)  0.349±0.010   mean and standard deviation of trials
"""

from __future__ import annotations

import math

from engramma.methods import METHODS
from engramma.paper import numbers as paper

BEYOND = {
    "ewc_moments": "EWC, second moments",
    "mas_moments": "MAS, second moments",
    "si_moments": "SI, second moments",
    "der": "DER",
    "der++": "DER++",  # a row
    "lwf": "LwF",
    "xdg": "XdG",
}


def method(name: str) -> str:
    return paper.labels().get(name) or BEYOND.get(name, name.rpartition(":")[2])


def row(name: str, proportion: float | None = None) -> str:
    return method(name) if proportion is None else f"{method(name)} {proportion:g}"


def run(name: str, strength: float | None) -> str:
    if strength is None:
        return method(name)
    kind = METHODS.get(name)
    sign = "λ=" if kind is not None and kind.strength_name == "strength" else ""
    return f"{method(name)} {sign}{strength:g}"


def vertex(n: float) -> str:
    return f"n={n:g}"


def spread(mean: float, sd: float, digits: int = 3) -> str:
    """A single trial has no deviation, and none is written; nor have bytes, where all trials keep as many."""
    alone = math.isnan(sd) or (digits == 0 and sd == 0)
    return f"{mean:,.{digits}f}" + ("" if alone else f"±{sd:,.{digits}f}")
