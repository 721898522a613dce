"""The nine methods of the paper, by name."""

from __future__ import annotations

from engramma.methods.method import Method, Now, Vanilla
from engramma.methods.penalty import EWC, L2, MAS, SI, Anchored, Penalty
from engramma.methods.projection import AGEM, GEM, Projection
from engramma.methods.replay import Buffer, Pseudorehearsal, Rehearsal, Replay

METHODS: dict[str, type[Method]] = {
    "vanilla": Vanilla,
    "rehearsal": Rehearsal,
    "pseudorehearsal": Pseudorehearsal,
    "gem": GEM,
    "agem": AGEM,
    "l2": L2,
    "ewc": EWC,
    "mas": MAS,
    "si": SI,
}

__all__ = [
    "AGEM",
    "EWC",
    "GEM",
    "L2",
    "MAS",
    "METHODS",
    "SI",
    "Anchored",
    "Buffer",
    "Method",
    "Now",
    "Penalty",
    "Projection",
    "Pseudorehearsal",
    "Rehearsal",
    "Replay",
    "Vanilla",
]
