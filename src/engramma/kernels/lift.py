"""How mixed precision keeps the range that float64 would have."""

from __future__ import annotations


def lift_of(n: float) -> int:
    """Of mixed precision: with y = x 2^lift in place of a similarity x, y^(n-1) of a fresh memory stays in
    float32's range, and that of y = 16 does too."""
    return 0 if n < 8 else int(80 // (n - 1))
