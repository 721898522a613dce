"""Streams of bipolar states, which are learned auto-associatively: every neuron is a neuron to recall."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from engramma.kernels import reference
from engramma.network import DenseMemory, Items
from engramma.replicas import Replicas, generator
from engramma.streams.datasets import DataError
from engramma.streams.stream import Stream, Task


@dataclass(frozen=True)
class StateStream(Stream):
    """Tasks of bipolar states, learned auto-associatively over all neurons (the paper's appendix
    "Sequential Learning Example"). `states` (tasks, items, neurons) are the user's, or None for
    random ones, different for every seed."""

    sources: ClassVar[tuple[str, ...]] = ("states",)
    suits: ClassVar[dict[str, Any]] = {"tasks": 2, "items": 10}
    autoassociative: ClassVar[bool] = True

    replicas: Replicas
    tasks: int = 2
    items: int = 10
    size: int = 100  # neurons
    flips: int = 5  # neurons flipped in a probe for recall
    states: np.ndarray | None = None
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float64
    kernel: ModuleType = reference

    def __post_init__(self) -> None:
        if self.states is not None:
            states = np.asarray(self.states)
            if states.ndim != 3 or not np.isin(states, (-1, 1)).all():
                raise DataError("states must be -1 and +1 of shape (tasks, items, neurons)")
            for name, size in zip(("tasks", "items", "size"), states.shape, strict=True):
                object.__setattr__(self, name, size)
        if min(self.tasks, self.items, self.size) < 1:
            raise ValueError("tasks, items and size must be at least 1")
        if not 0 <= self.flips <= self.size:
            raise ValueError(f"flips must be between 0 and the {self.size} neurons, not {self.flips}")

    @classmethod
    def check(cls, settings: Mapping[str, Any]) -> None:
        super().check(settings)
        if settings["flips"] > settings["size"]:
            raise ValueError(
                f"flips must be at most size, {settings['size']} neurons, not {settings['flips']}"
            )

    @classmethod
    def made(cls, settings: Mapping[str, Any], data_dir: str | Path | None = None, **place: Any) -> Self:
        given = None if settings["data"] in cls.sources else _states(settings["data"])
        made = super().made({**settings, "states": given}, data_dir, **place)
        found, told = (
            (made.tasks, made.items, made.size),
            tuple(settings[k] for k in ("tasks", "items", "size")),
        )
        if found != told:
            raise DataError(
                "tasks, items and size must be {}, {} and {}, as in {}, not {}, {} and {}".format(
                    *found, settings["data"], *told
                )
            )
        return made

    @classmethod
    def sizes(cls, settings: Mapping[str, Any]) -> tuple[int, int, int]:
        return settings["size"], settings["size"], settings["items"]

    @property
    def classes(self) -> int:
        return 0

    @property
    def neurons(self) -> int:
        return self.size

    def _bipolar(self, seed: int, task: int) -> np.ndarray:
        if self.states is not None:
            return np.asarray(self.states)[task]
        return generator(seed, "states", task).choice(np.array([-1, 1]), (self.items, self.size))

    def __getitem__(self, task: int) -> Task:
        if not 0 <= task < self.tasks:
            raise IndexError(task)
        raw = np.stack([self._bipolar(seed, task) for seed in self.replicas.rows])
        target = torch.as_tensor(raw).to(device=self.device, dtype=self.dtype)
        ids = (task << 32) + torch.arange(self.items, device=self.device).expand(target.shape[:2])
        probe = self.kernel.prepare(target, self.dtype)
        items = Items(probe, target, torch.ones_like(target[..., 0]), ids)
        return Task(task, items, items)

    def probes(self, task: int) -> Tensor:
        """The task's states with `flips` neurons of each turned over."""
        states = self[task].test.target.clone()
        for row, seed in enumerate(self.replicas.rows):
            draw = generator(seed, "flips", task)
            for item in range(self.items):
                states[row, item, draw.permutation(self.size)[: self.flips]] *= -1
        return states

    def hash(self) -> str:
        state = hashlib.sha256()
        for seed in self.replicas.rows:
            for task in range(self.tasks):
                state.update(self._bipolar(seed, task).astype(np.int8).tobytes())
        return state.hexdigest()

    def evaluate(self, network: DenseMemory, theta: Tensor) -> dict[str, Tensor]:
        """{"recalled": (R,T), "stable": (R,T)}: shares of states reached from their probes, and of
        states that one update leaves as they are."""
        found: dict[str, list[Tensor]] = {"recalled": [], "stable": []}
        for task in range(self.tasks):
            states = self[task].test.target
            states = states.repeat_interleave(len(theta) // len(states), 0)
            probes = self.probes(task).repeat_interleave(len(theta) // len(self.replicas.rows), 0)
            for name, begin, steps in (("recalled", probes, 50), ("stable", states, 1)):
                end = network.relax(theta, begin, steps).state
                found[name].append((end == states).all(-1).double().mean(1))
        return {name: torch.stack(column, 1) for name, column in found.items()}


def _states(path: str) -> np.ndarray:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            return found["states"]
    except Exception as error:  # numpy raises many kinds for a damaged or pickled archive
        raise DataError(f"{path}: not an .npz with an array `states` ({error})") from None
