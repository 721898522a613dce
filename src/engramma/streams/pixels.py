"""Streams: tasks one after another, each a view of one data set, reproducible from the seed alone.

Every seed has its own sample of items, its own permutations (angles, classes) and its own split
into training and test items. A class stream's neurons are pixels, then task id, then classes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma import measures
from engramma.kernels import reference
from engramma.network import DenseMemory, Items
from engramma.replicas import Replicas, generator
from engramma.streams.datasets import DataError, Dataset, check_apart

KINDS = ("permuted", "rotated", "split")


class Task(NamedTuple):
    index: int
    train: Items
    test: Items
    identity: slice | None = None  # the task-id neurons


class View(NamedTuple):
    """What one seed sees of the data set in one task."""

    train: np.ndarray  # item numbers
    test: np.ndarray
    permutation: np.ndarray  # of the pixels: new pixel p shows old pixel permutation[p]
    angle: float


@dataclass(frozen=True)
class ClassStream:
    """Classification tasks. `items` a task, of which `test_share` are set aside for testing."""

    dataset: Dataset
    replicas: Replicas
    kind: str = "permuted"
    tasks: int = 5
    items: int = 10_000
    test_share: float = 0.2
    fraction: float = 1.0  # of the pixels that a permutation moves: below 1 tasks are related
    angle: float = 15.0  # degrees between one rotated task and the next
    task_id: bool = True
    threshold: float | None = None  # None: the data set's own
    binary: bool = True  # False: pixels scaled to [-1, 1] instead of thresholded
    order: tuple[int, ...] | None = None  # 0, 1, 0: the third task is the first again, with other items
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float64
    kernel: ModuleType = reference
    _cache: dict[int, Items] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"stream must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.tasks < 1:
            raise ValueError(f"tasks must be at least 1, not {self.tasks}")
        if self.order is not None and (
            len(self.order) != self.tasks or set(self.order) != set(range(max(self.order) + 1))
        ):
            raise ValueError(
                f"order must say of each of the {self.tasks} tasks which it is, from 0 on without a gap, "
                f"not {list(self.order)}"
            )
        if self.kind == "rotated" and self.dataset.shape is None:
            raise DataError(
                f"{self.dataset.name}: only images can be rotated; its items have no height and width"
            )
        if self.kind == "split" and self.distinct > self.dataset.classes:
            raise ValueError(f"tasks must be at most {self.dataset.classes}, the number of classes to split")
        _check_apart(self.dataset, self._threshold, self.binary)
        for seed in self.replicas.rows:
            for task in range(self.tasks if self.kind == "split" else 1):
                most = len(self._candidates(seed, task))
                if self.items > most:
                    raise DataError(
                        f"items must be at most {most}, what {self.dataset.name} has for a task, "
                        f"not {self.items}"
                    )
        if round(self.items * self.test_share) < 1 or self.items - round(self.items * self.test_share) < 1:
            raise ValueError(f"items must leave at least one to train and one to test on, not {self.items}")

    def __len__(self) -> int:
        return self.tasks

    @property
    def distinct(self) -> int:
        """How many different tasks there are."""
        return self.tasks if self.order is None else max(self.order) + 1

    def _which(self, task: int) -> int:
        return task if self.order is None else self.order[task]

    @property
    def pixels(self) -> int:
        return self.dataset.x.shape[1]

    @property
    def classes(self) -> int:
        return self.dataset.classes

    @property
    def neurons(self) -> int:
        return self.pixels + (self.tasks if self.task_id else 0) + self.classes

    @property
    def _threshold(self) -> float:
        return float(self.dataset.threshold if self.threshold is None else self.threshold)

    def _candidates(self, seed: int, task: int) -> np.ndarray:
        if self.kind != "split":
            return np.arange(len(self.dataset))
        order = generator(seed, "classes").permutation(self.classes)
        return np.flatnonzero(
            np.isin(self.dataset.y, np.array_split(order, self.distinct)[self._which(task)])
        )

    def view(self, seed: int, task: int) -> View:
        """The items, permutation and angle of one task of one seed."""
        chosen = generator(seed, "sample", task).permutation(self._candidates(seed, task))[: self.items]
        held = round(self.items * self.test_share)
        permutation, which = np.arange(self.pixels), self._which(task)
        if self.kind == "permuted":
            permutation = partial_permutation(
                self.pixels, self.fraction, generator(seed, "permutation", which)
            )
        angle = which * self.angle if self.kind == "rotated" else 0.0
        return View(chosen[held:], chosen[:held], permutation, angle)

    def __getitem__(self, task: int) -> Task:
        if not 0 <= task < self.tasks:
            raise IndexError(task)
        views = [self.view(seed, task) for seed in self.replicas.rows]
        train = self._items(task, [(v.train, v) for v in views])
        identity = slice(self.pixels, self.pixels + self.tasks) if self.task_id else None
        return Task(task, train, self.test(task), identity)

    def test(self, task: int) -> Items:
        """The test items of a task, kept for the many times they are asked for."""
        if task not in self._cache:
            views = [self.view(seed, task) for seed in self.replicas.rows]
            self._cache[task] = self._items(task, [(v.test, v) for v in views])
        return self._cache[task]

    def _items(self, task: int, parts: list[tuple[np.ndarray, View]]) -> Items:
        states = torch.stack([self._states(task, chosen, view) for chosen, view in parts])
        y = torch.as_tensor(np.stack([self.dataset.y[chosen] for chosen, _ in parts])).to(self.device)
        target = torch.full((*y.shape, self.classes), -1.0, dtype=self.dtype, device=self.device)
        target.scatter_(2, y[..., None], 1.0)
        ids = (task << 32) + torch.arange(y.shape[1], device=self.device).expand_as(y)
        probe = self.kernel.prepare(states, self.dtype)
        return Items(probe, target, torch.ones_like(target[..., 0]), ids)

    def _states(self, task: int, chosen: np.ndarray, view: View) -> Tensor:
        """(B,N) on the device: pixels, task id, and class neurons at -1."""
        grey = _on(self.dataset, self.device)[torch.as_tensor(chosen).to(self.device)]
        if view.angle % 360:
            assert self.dataset.shape is not None
            images = grey.cpu().numpy().reshape(-1, *self.dataset.shape)
            dark = float(self.dataset.x.min())
            grey = torch.as_tensor(rotate(images, view.angle, dark)).flatten(1).to(self.device)
        grey = grey[:, torch.as_tensor(view.permutation).to(self.device)]
        if self.binary:
            # Whole numbers are compared in double precision, as the data set's own are.
            pixels = (grey > torch.tensor(self._threshold, dtype=torch.float64)).to(torch.int8) * 2 - 1
        else:
            low, high = float(self.dataset.x.min()), float(self.dataset.x.max())
            pixels = 2 * (grey.double() - low) / max(high - low, 1e-12) - 1
        identity = pixels.new_full((len(grey), self.tasks if self.task_id else 0), -1)
        if self.task_id:
            identity[:, task] = 1
        hidden = pixels.new_full((len(grey), self.classes), -1)  # a probe does not know its class
        return torch.cat([pixels, identity, hidden], 1)

    def hash(self) -> str:
        """SHA-256 over the data and every seed's items, permutations and angles."""
        state = hashlib.sha256(_digest(self.dataset).encode())
        for seed in self.replicas.rows:
            for task in range(self.tasks):
                view = self.view(seed, task)
                for part in (view.train, view.test, view.permutation):
                    state.update(np.ascontiguousarray(part, dtype=np.int64).tobytes())
                state.update(repr((view.angle, self._threshold, self.binary, self.task_id)).encode())
        return state.hexdigest()

    def confusion(self, network: DenseMemory, theta: Tensor, task: int) -> Tensor:
        """(R,C,C) counts[r, truth, predicted] of a task's test items."""
        test = self.test(task)
        truth = test.target.argmax(-1).repeat_interleave(len(theta) // len(test.target), 0)
        return measures.confusion(network.predict(theta, test.probe, task), truth, self.classes)

    def evaluate(self, network: DenseMemory, theta: Tensor) -> dict[str, Tensor]:
        """{"accuracy": (R,T), "macro_f1": (R,T)} on the test items of every task."""
        counts = [self.confusion(network, theta, task) for task in range(self.tasks)]
        return {
            "accuracy": torch.stack([measures.accuracy(c).double() for c in counts], 1),
            "macro_f1": torch.stack([measures.macro_f1(c) for c in counts], 1),
        }


@dataclass(frozen=True)
class StateStream:
    """Tasks of bipolar states, learned auto-associatively over all neurons (the paper's appendix
    "Sequential Learning Example"). `states` (tasks, items, neurons) are the user's, or None for
    random ones, different for every seed."""

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

    def __len__(self) -> int:
        return self.tasks

    classes = 0

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


Stream = ClassStream | StateStream


def partial_permutation(size: int, fraction: float, draw: np.random.Generator) -> np.ndarray:
    """A permutation of `size` places that moves at most `fraction` of them."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, not {fraction}")
    permutation = np.arange(size)
    some = draw.permutation(size)[: round(fraction * size)]
    permutation[np.sort(some)] = some
    return permutation


def rotate(images: np.ndarray, degrees: float, dark: float = 0.0) -> np.ndarray:
    """Images (n,H,W) turned anticlockwise about their middle, bilinear, `dark` outside."""
    if degrees % 360 == 0:
        return images
    turn = np.deg2rad(degrees)
    cos, sin = float(np.cos(turn)), float(np.sin(turn))
    x = torch.as_tensor(images.astype(np.float64))[:, None] - dark
    high, wide = images.shape[1:]
    matrix = torch.tensor([[cos, -sin * high / wide, 0.0], [sin * wide / high, cos, 0.0]], dtype=x.dtype)
    grid = torch.nn.functional.affine_grid(matrix.expand(len(x), -1, -1), list(x.shape), align_corners=False)
    turned = torch.nn.functional.grid_sample(x, grid, align_corners=False)[:, 0].numpy() + dark
    return np.rint(turned).astype(images.dtype) if images.dtype.kind in "ui" else turned


_PLACED: dict[tuple[int, str], tuple[Dataset, Tensor]] = {}


def _on(dataset: Dataset, device: torch.device | str) -> Tensor:
    """The data set's items on a device, put there once."""
    key = (id(dataset), str(device))
    if key not in _PLACED:
        _PLACED[key] = (dataset, torch.as_tensor(np.ascontiguousarray(dataset.x)).to(device))
    return _PLACED[key][1]


_APART: dict[tuple[int, float], Dataset] = {}


def _check_apart(dataset: Dataset, threshold: float, binary: bool) -> None:
    """Looked at once: a study makes a stream of one data set for every run."""
    if not binary and dataset.x.min() < dataset.x.max():
        return  # in greys, items are as different as they are
    if _APART.get((id(dataset), threshold)) is not dataset:
        check_apart(dataset.name, dataset.x, threshold)
        _APART[id(dataset), threshold] = dataset


_DIGESTS: dict[int, tuple[Dataset, str]] = {}


def _digest(dataset: Dataset) -> str:
    # Hashing MNIST takes a moment and a study asks for every run.
    if id(dataset) not in _DIGESTS:
        _DIGESTS[id(dataset)] = (dataset, dataset.digest())
    return _DIGESTS[id(dataset)][1]
