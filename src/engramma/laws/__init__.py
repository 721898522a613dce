"""Laws of associative memory, each simulated with replicas and drawn beside its theory.

A law is one file: what is simulated at three scales, what theory says of it, and the picture of both.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a list of the laws needs none of them
    from engramma.laws.law import Law


class About(NamedTuple):
    reference: str
    title: str


# How much is held, how it is recalled, how it is lost, what is learned.
LAWS = {
    "capacity": About("Krotov and Hopfield 2016", "K = alpha_n N^(n-1) patterns are held, n = 2 to 5"),
    "classical": About("Amit, Gutfreund and Sompolinsky 1987", "at n = 2 recall breaks down at K = 0.138 N"),
    "exponential": About("Demircigil et al. 2017", "the exponential interaction holds 2^(N/2) patterns"),
    "one-step": About("Ramsauer et al. 2020", "one update recalls, with an exponentially small error"),
    "basins": About("Amari and Maginu 1988; Gardner 1987", "so many neurons may be wrong, over load and n"),
    "palimpsest": About("Parisi 1986", "bounded weights remember the latest 0.04 N patterns"),
    "dreaming": About("Fachechi, Agliari and Barra 2019", "sleep takes the load held from 0.14 N to N"),
    "forgetting": About("measured here", "items whose energy rises most are lost first"),
    "prototypes": About("Krotov and Hopfield 2016", "features at small n, prototypes at large n"),
    "mixtures": About("Fontanari 1990", "noisy examples make their prototype a fixed point"),
}
ALL = "laws"  # every one of them


def chosen(name: str) -> list[str]:
    """The laws that a name means: one, all of them, or none."""
    return list(LAWS) if name == ALL else [name] if name in LAWS else []


def load(name: str) -> Law:
    """A law by its name."""
    if name not in LAWS:
        raise ValueError(f"law must be one of {', '.join(LAWS)}, not {name!r}")
    return importlib.import_module(f"engramma.laws.{name.replace('-', '_')}").LAW
