"""What is learned: data sets, and the streams of tasks made of them."""

from __future__ import annotations

from engramma.streams.pixels import KINDS, ClassStream, DomainStream, partial_permutation, rotate
from engramma.streams.states import StateStream
from engramma.streams.stream import Stream, Task, View, labelled

STREAMS: dict[str, type[Stream]] = {
    "permuted": ClassStream,
    "rotated": ClassStream,
    "split": ClassStream,
    "domains": DomainStream,
    "states": StateStream,
}

__all__ = [
    "KINDS",
    "STREAMS",
    "ClassStream",
    "DomainStream",
    "StateStream",
    "Stream",
    "Task",
    "View",
    "labelled",
    "partial_permutation",
    "rotate",
]
