"""Class streams: tasks that are views of one data set: pixels permuted, images rotated, or classes split.

Classes can be split in the three settings of van de Ven et al. (2022): with neurons that say which task an
item is of (`split` with `task_id`: task-incremental), without them (class-incremental), and with class
neurons that all tasks share (`domains`: domain-incremental).

Every seed has its own sample of items, its own permutations (angles, classes) and its own split
into training and test items. A class stream's neurons are pixels, then task id, then classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from engramma.kernels import reference
from engramma.network import Items
from engramma.replicas import Replicas, generator
from engramma.streams.datasets import DataError, Dataset, check_apart, kept
from engramma.streams.stream import Stream, Task, View, labelled

KINDS = ("permuted", "rotated", "split")
SHAPES = {"mnist": (784, 10), "digits": (64, 10)}  # (pixels, classes), known before the data are read


@dataclass(frozen=True)
class ClassStream(Stream):
    """Classification tasks. `items` a task, of which `test_share` are set aside for testing."""

    sources: ClassVar[tuple[str, ...]] = tuple(SHAPES)

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
                        f"not {self.items} (--items {most})"
                    )
        if round(self.items * self.test_share) < 1 or self.items - round(self.items * self.test_share) < 1:
            raise ValueError(f"items must leave at least one to train and one to test on, not {self.items}")

    @property
    def distinct(self) -> int:
        """How many different tasks there are."""
        return self.tasks if self.order is None else max(self.order) + 1

    def _which(self, task: int) -> int:
        return task if self.order is None else self.order[task]

    def same(self, task: int) -> list[int]:
        return [other for other in range(self.tasks) if self._which(other) == self._which(task)]

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

    @classmethod
    def made(cls, settings: Mapping[str, Any], data_dir: str | Path | None = None, **place: Any) -> Self:
        kind = {"kind": settings["stream"]} if settings["stream"] in KINDS else {}
        return super().made({**settings, **kind}, data_dir, **place)

    @classmethod
    def sizes(cls, settings: Mapping[str, Any]) -> tuple[int, int, int]:
        pixels, classes = SHAPES.get(settings["data"]) or _shape(settings["data"])
        identity = settings["tasks"] * settings["task_id"]
        held = round(settings["items"] * settings["test_share"])
        return pixels + identity + classes, classes, settings["items"] - held

    def _candidates(self, seed: int, task: int) -> np.ndarray:
        if self.kind != "split":
            return np.arange(len(self.dataset))
        return np.flatnonzero(np.isin(self.dataset.y, self._share(seed, task)))

    def _share(self, seed: int, task: int) -> np.ndarray:
        """The classes of a task, where they are split."""
        order = generator(seed, "classes").permutation(self.dataset.classes)
        return np.array_split(order, self.distinct)[self._which(task)]

    def _labels(self, seed: int, task: int, chosen: np.ndarray) -> np.ndarray:
        """Which class neuron is on for an item."""
        del seed, task
        return self.dataset.y[chosen]

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
        if task not in self._tests:
            views = [self.view(seed, task) for seed in self.replicas.rows]
            self._tests[task] = self._items(task, [(v.test, v) for v in views])
        return self._tests[task]

    def _items(self, task: int, parts: list[tuple[np.ndarray, View]]) -> Items:
        states = torch.stack([self._states(task, chosen, view) for chosen, view in parts])
        rows = zip(self.replicas.rows, parts, strict=True)
        labels = np.stack([self._labels(seed, task, chosen) for seed, (chosen, _) in rows])
        y = torch.as_tensor(labels).to(self.device)
        return labelled(states, y, self.classes, task, self.dtype, self.kernel)

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


@dataclass(frozen=True)
class DomainStream(ClassStream):
    """Split, but all tasks have the same class neurons: the first is on for the first class of each task, and
    so on. What changes from task to task is what a label looks like (domain-incremental learning)."""

    suits: ClassVar[dict[str, Any]] = {"task_id": False}

    kind: str = field(default="split", init=False)

    @property
    def classes(self) -> int:
        return _most(self.dataset.classes, self.distinct)

    @classmethod
    def sizes(cls, settings: Mapping[str, Any]) -> tuple[int, int, int]:
        neurons, classes, items = super().sizes(settings)
        order = settings["order"]
        few = _most(classes, settings["tasks"] if order is None else max(order) + 1)
        return neurons - classes + few, few, items

    def _labels(self, seed: int, task: int, chosen: np.ndarray) -> np.ndarray:
        place = np.zeros(self.dataset.classes, dtype=np.int64)
        share = self._share(seed, task)
        place[share] = np.arange(len(share))
        return place[self.dataset.y[chosen]]

    def hash(self) -> str:
        return hashlib.sha256(f"{super().hash()} by their place in a task".encode()).hexdigest()


def _most(classes: int, tasks: int) -> int:
    """Classes of the largest task."""
    return -(-classes // tasks)


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


def _shape(path: str) -> tuple[int, int]:
    dataset = kept(path)
    return dataset.x.shape[1], dataset.classes


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
