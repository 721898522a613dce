"""The little statistics that laws need: a line through points with errors, and where it crosses a level."""

from __future__ import annotations

from math import erfc, sqrt
from typing import NamedTuple

import numpy as np
import torch


class Line(NamedTuple):
    slope: float
    intercept: float
    covariance: np.ndarray  # (2,2) of slope and intercept

    @property
    def error(self) -> float:
        """The standard error of the slope."""
        return float(np.sqrt(self.covariance[0, 0]))

    def crossing(self, level: float) -> tuple[float, float]:
        """Where the line is at `level`, and the standard error of that."""
        at = (level - self.intercept) / self.slope
        turn = np.array([-at / self.slope, -1 / self.slope])
        return float(at), float(np.sqrt(turn @ self.covariance @ turn))


def line(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> Line:
    """Weighted least squares. Where the points scatter more than their errors say, the errors of slope and
    intercept are those of the scatter."""
    x, y, error = (np.asarray(part, float) for part in (x, y, error))
    design = np.stack([x, np.ones_like(x)], 1) / error[:, None]
    covariance = np.linalg.inv(design.T @ design)
    slope, intercept = covariance @ design.T @ (y / error)
    if len(x) > 2:
        scatter = (((y - slope * x - intercept) / error) ** 2).sum() / (len(x) - 2)
        covariance = covariance * max(1.0, scatter)
    return Line(float(slope), float(intercept), covariance)


def parabola(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Where the parabola through the points has its top, and the standard error of that."""
    design = np.stack([x**2, x, np.ones_like(x)], 1) / error[:, None]
    covariance = np.linalg.inv(design.T @ design)
    a, b, _ = covariance @ design.T @ (y / error)
    turn = np.array([b / (2 * a * a), -1 / (2 * a), 0])
    scatter = ((y / error - design @ (covariance @ design.T @ (y / error))) ** 2).sum() / max(1, len(x) - 3)
    return float(-b / (2 * a)), float(np.sqrt(max(1.0, scatter) * turn @ covariance @ turn))


def mean(values: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """The weighted mean and its standard error, likewise no smaller than the scatter."""
    values, weight = np.asarray(values, float), 1 / np.asarray(error, float) ** 2
    centre = float((weight * values).sum() / weight.sum())
    scatter = (weight * (values - centre) ** 2).sum() / max(1, len(values) - 1)
    return centre, float(np.sqrt(max(1.0, scatter) / weight.sum()))


def crossed(x: np.ndarray, y: np.ndarray, error: np.ndarray, level: float) -> tuple[float, float] | None:
    """Where y first falls below `level`, between two neighbouring points, and the standard error; None if it
    never does, or begins below."""
    for k in range(1, len(x)):
        if y[k - 1] >= level > y[k]:
            steep = (y[k] - y[k - 1]) / (x[k] - x[k - 1])
            at = x[k - 1] + (level - y[k - 1]) / steep
            share = (at - x[k - 1]) / (x[k] - x[k - 1])
            off = np.hypot((1 - share) * error[k - 1], share * error[k])
            return float(at), float(off / abs(steep))
    return None


def tail(z: float) -> float:
    """The probability that a standard normal number is above z."""
    return erfc(z / sqrt(2)) / 2


def quantile(p: float) -> float:
    """The z with `tail(z)` = p."""
    return -float(torch.special.ndtri(torch.tensor(p, dtype=torch.float64)))
