"""Records made up for tests of tables and figures: what a record promises, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BASE: dict[str, Any] = {
    "data": "mnist",
    "stream": "permuted",
    "tasks": 5,
    "items": 10000,
    "memories": 512,
    "epochs": 500,
    "vertex": 2,
    "interaction": "leaky",
    "leak": 0.01,
    "method": "vanilla",
    "settings": {},
    "strength": None,
    "learning_rate": 0.08,
    "initial_temperature": 0.95,
    "final_temperature": 0.95,
    "seed": 0,
}


@dataclass(frozen=True)
class StandIn:
    description: dict[str, Any]
    scores: dict[str, np.ndarray]
    curves: dict[str, np.ndarray] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    diverged: dict[str, int] | None = None
    kept: np.ndarray | None = None  # (T,M,N)

    def memories(self, task: int) -> np.ndarray | None:
        return None if self.kept is None else self.kept[task]


def record(average: float = 0.5, diverged: bool = False, **settings: Any) -> StandIn:
    """A run whose average accuracy is `average`; its other scores vary around it."""
    description = {**BASE, **settings}
    tasks = description["tasks"]
    spread = np.linspace(-0.1, 0.1, tasks)
    table = np.stack([np.clip(average + 0.3 * (np.arange(tasks) == k) + spread, 0, 1) for k in range(tasks)])
    table[-1] = average + spread
    if diverged:
        table[-1] = np.nan
    epoch = np.arange(0, tasks * 20 + 1, 5)
    rise = 1 - np.exp(-epoch / 30)
    curves = {"epoch": epoch, "accuracy": rise[:, None] * (average + spread)}
    return StandIn(
        description, {"accuracy": table}, curves, {}, {"task": 4, "epoch": 7} if diverged else None
    )
