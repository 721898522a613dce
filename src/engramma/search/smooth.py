"""A noisy response made smooth: local linear regression, its standard error, and where its top is flat.

At a place x, with weights w_i = exp(-((x_i - x) / h)^2 / 2), the straight line a + b (x_i - x) that
fits the points best has the value a = sum_i l_i(x) y_i at x: the smoothed response. With L_ij = l_j(x_i),

    h       the bandwidth with the smallest leave-one-out error, mean of ((y_i - (L y)_i) / (1 - L_ii))^2
    sigma^2 = |y - L y|^2 / (n - tr(2 L - L L')), the noise of one point
    se(x)^2 = sigma^2 |l(x)|^2 + tau^2 / S

where each y_i is a mean over the same S seeds, and tau^2 is how much the seeds' own smoothed responses
differ in shape: their variance around their mean, each less its level, averaged over x, less what noise
alone would make of it. (A seed that lifts all strengths alike changes no choice.) One seed has no tau.

Strengths are smoothed on a log scale (decades), proportions on a linear one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Bandwidths tried, as shares of the range; none below one trial's share, which would follow the noise.
SHARES = (0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.27)
FEW = 5
STEPS = 301  # places at which the smoothed response is worked out
LEVEL = 0.01  # accuracies closer than this are alike, whatever the noise


class Response(NamedTuple):
    """The smoothed response over the range searched, and what follows from it."""

    x: np.ndarray  # (STEPS,) strengths
    mean: np.ndarray
    error: np.ndarray  # standard error of the mean
    bandwidth: float  # in decades on a log scale, else in the strength's own unit
    chosen: float  # the strength with the highest mean
    top: float  # its mean
    top_error: float
    flat: tuple[float, float]  # the strengths around it with a mean within max(top_error, LEVEL) of the top

    @property
    def at_edge(self) -> bool:
        """The highest mean is at an end of what was tried: the true top may lie beyond."""
        return int(self.mean.argmax()) in (0, len(self.mean) - 1)

    def at(self, strength: float) -> float:
        """The smoothed response at a strength; NaN outside what was searched."""
        inside = self.x[0] <= strength <= self.x[-1]
        return float(np.interp(strength, self.x, self.mean)) if inside else float("nan")


def smooth(strength: np.ndarray, value: np.ndarray, log: bool) -> Response:
    """The response of `value` (n,) or (n, seeds) to `strength` (n,), on a log scale (all above 0) or not."""
    u = np.log10(strength) if log else np.asarray(strength, dtype=float)
    each = np.asarray(value, dtype=float).reshape(len(u), -1)
    y = each.mean(1)
    places = np.linspace(u.min(), u.max(), STEPS)
    span = float(np.ptp(u))
    if len(np.unique(u)) < FEW:  # too few to tell noise from shape: straight between their means
        where = np.unique(u)
        own = np.array([y[u == place].mean() for place in where])
        mean, error, width = np.interp(places, where, own), np.zeros(STEPS), 0.0
    else:
        wide = [share * span for share in SHARES if share >= 1 / len(y)]
        width = min(wide, key=lambda h: _left_out(u, y, h))
        hat = _rows(u, u, width)
        freedom = len(y) - float(np.trace(2 * hat - hat @ hat.T))
        sigma = np.sqrt(((y - hat @ y) ** 2).sum() / max(freedom, 1.0))
        rows = _rows(places, u, width)
        noise = sigma**2 * (rows**2).sum(1)
        mean, error = rows @ y, np.sqrt(noise + _shapes(rows, each, noise))
    best = int(mean.argmax())
    low = high = best
    near = mean >= mean[best] - max(error[best], LEVEL)
    while low > 0 and near[low - 1]:
        low -= 1
    while high < STEPS - 1 and near[high + 1]:
        high += 1
    x = 10.0**places if log else places
    # To three digits, which is finer than any search can tell; so also in the file of chosen values.
    chosen, *flat = (float(f"{x[i]:.3g}") for i in (best, low, high))
    return Response(x, mean, error, width, chosen, float(mean[best]), float(error[best]), (flat[0], flat[1]))


def _rows(places: np.ndarray, u: np.ndarray, width: float) -> np.ndarray:
    """(places, n): l_i at each place."""
    apart = u[None, :] - places[:, None]
    reach = (apart / width) ** 2
    weight = np.exp(-(reach - reach.min(1, keepdims=True)) / 2)  # the nearest point weighs 1, however far
    s0, s1, s2 = (np.sum(weight * apart**k, axis=1, keepdims=True) for k in range(3))
    # Where one point weighs almost alone there is no slope to tell: a little of a flat line keeps it so.
    return weight * (s2 + 1e-6 * width**2 * s0 - s1 * apart) / (s0 * (s2 + 1e-6 * width**2 * s0) - s1**2)


def _shapes(rows: np.ndarray, each: np.ndarray, noise: np.ndarray) -> float:
    """tau^2 / S, from the values (n, S) of all seeds; `noise`: variance of their smoothed mean."""
    count = each.shape[1]
    if count == 1:
        return 0.0
    apart = (rows @ (each - each.mean(0))).var(1, ddof=1)
    return max(0.0, float((apart - count * noise).mean())) / count


def _left_out(u: np.ndarray, y: np.ndarray, width: float) -> float:
    """Mean squared error at each point of a smoothed response that does not know it."""
    hat = _rows(u, u, width)
    lever = 1 - np.diag(hat)
    return float(np.mean(((y - hat @ y) / np.maximum(lever, 1e-3)) ** 2))
