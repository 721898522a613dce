"""What compiled kernels share: the functions that are written out in them, and the range they keep."""

from __future__ import annotations

from engramma.interactions import Interaction, LeakyRectifiedPolynomial, Polynomial, RectifiedPolynomial
from engramma.losses import Loss, Squared

WRITTEN_OUT = (LeakyRectifiedPolynomial, RectifiedPolynomial, Polynomial, Squared)


def written_out(f: Interaction, loss: Loss) -> bool:
    """Whether compiled programs, in which the paper's functions are written out, compute these.

    A class derived from one of them may say something else, so it is not one of them.
    """
    return type(f) in WRITTEN_OUT and type(loss) in WRITTEN_OUT


def leak_of(f: Interaction) -> float | None:
    """The slope of a written-out function below 0; None of a polynomial, which is a power there too."""
    if isinstance(f, Polynomial):
        return None
    return f.leak if isinstance(f, LeakyRectifiedPolynomial) else 0.0


def lift_of(n: float) -> int:
    """Of mixed precision: with y = x 2^lift in place of a similarity x, y^(n-1) of a fresh memory stays in
    float32's range, and that of y = 16 does too."""
    return 0 if n < 8 else int(80 // (n - 1))
