"""What is learned: data sets, and the streams of tasks made of them."""

from engramma.streams.pixels import (
    KINDS,
    ClassStream,
    StateStream,
    Stream,
    Task,
    View,
    partial_permutation,
    rotate,
)

__all__ = ["KINDS", "ClassStream", "StateStream", "Stream", "Task", "View", "partial_permutation", "rotate"]
