"""The methods by name: the paper's nine, and allocation."""

from __future__ import annotations

from engramma.methods.allocation import Allocation, Grouped
from engramma.methods.distillation import DER, LwF
from engramma.methods.dreams import Dreams
from engramma.methods.gating import Gated, XdG
from engramma.methods.method import Awake, Method, Now, Vanilla
from engramma.methods.moments import EWCMoments, MASMoments, Moments, SIMoments
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
    "allocation": Allocation,
    "ewc_moments": EWCMoments,
    "mas_moments": MASMoments,
    "si_moments": SIMoments,
    "der": DER,
    "lwf": LwF,
    "xdg": XdG,
    "dreams": Dreams,
}

__all__ = [
    "AGEM",
    "DER",
    "EWC",
    "GEM",
    "L2",
    "MAS",
    "METHODS",
    "SI",
    "Allocation",
    "Anchored",
    "Awake",
    "Buffer",
    "Dreams",
    "EWCMoments",
    "Gated",
    "Grouped",
    "LwF",
    "MASMoments",
    "Method",
    "Moments",
    "Now",
    "Penalty",
    "Projection",
    "Pseudorehearsal",
    "Rehearsal",
    "Replay",
    "SIMoments",
    "Vanilla",
    "XdG",
]
