"""What a law is: which points are simulated, what is measured at one, what theory says, a picture of both.

A point is a flat table of settings, `replicas` among them: so many independent networks, from which the error
bars come. What is measured at a point depends on the point alone, so that it can be kept and is never
measured twice. A row is a point and what was measured there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from engramma.replicas import Replicas

Point = dict[str, Any]
Row = dict[str, Any]
LARGEST = 2**24  # numbers that the patterns of all replicas simulated at once may be


class Where(NamedTuple):
    """Where a point is measured, and where data lie. What is measured does not depend on it."""

    device: torch.device = torch.device("cpu")
    data_dir: Any = None


class Finding(NamedTuple):
    """A number that the law names, if it names one, and ours with its standard error."""

    what: str
    law: float | None
    ours: float
    error: float
    remark: str = ""

    @property
    def off(self) -> float:
        """By how many standard errors ours is off; NaN where that cannot be said."""
        known = self.law is not None and self.error > 0
        return abs(self.ours - (self.law or 0)) / self.error if known else float("nan")


@dataclass(frozen=True)
class Law:
    """A law as four functions. What it says in a line, and who found it, stands in `engramma.laws.LAWS`."""

    name: str
    points: Callable[[str], list[Point]]  # of a scale
    measure: Callable[[Point, Where], dict[str, Any]]  # numbers, or lists of them
    findings: Callable[[list[Row]], list[Finding]]
    draw: Callable[[list[Row]], Figure]


def bipolar(seeds: Replicas, purpose: str, shape: tuple[int, ...], *key: int) -> torch.Tensor:
    """(R, *shape) int8: fair coins of -1 and +1, from each replica's own stream."""
    return torch.as_tensor(
        seeds.draw(lambda g: 2 * g.integers(0, 2, shape, np.int8) - 1, f"law {purpose}", *key)
    )


def flipped(seeds: Replicas, states: torch.Tensor, count: int, *key: int) -> torch.Tensor:
    """The states (R,B,N) with `count` of the neurons of each turned over, from each replica's stream."""
    if not count:
        return states.clone()
    shape = tuple(states.shape[1:])
    order = seeds.draw(lambda g: g.random(shape, np.float32), "law flips", *key)
    chosen = torch.as_tensor(np.argpartition(order, count - 1, -1)[..., :count]).to(states.device)
    return states.scatter(-1, chosen, -states.gather(-1, chosen))


def batches(point: Point, each: int, largest: int = LARGEST) -> list[Replicas]:
    """The replicas of a point, as many at once as `each` numbers a replica allow."""
    size = max(1, largest // max(each, 1))
    seeds = range(point["replicas"])
    return [Replicas(tuple(seeds[start : start + size])) for start in seeds[::size]]


def columns(rows: list[Row], *names: str) -> list[np.ndarray]:
    return [np.array([row[name] for row in rows], float) for name in names]


def summary(name: str, values: torch.Tensor | np.ndarray) -> dict[str, float]:
    """The mean over replicas and its standard error, as `name` and `name_error`."""
    found = np.asarray(torch.as_tensor(values).double().cpu())
    error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else float("nan")
    return {name: float(found.mean()), f"{name}_error": float(error)}
