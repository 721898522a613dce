"""What a stream is: tasks one after another, each with items to learn and items to be tested with.

A stream is a frozen dataclass derived from `Stream`. Axis 0 of its items is the seeds of its replicas
(`replicas.rows`), and whatever is random in it is drawn from a seed, by `generator(seed, "purpose", number)`:
so a seed has the same tasks wherever and in whatever company it is run.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from engramma import measures
from engramma.kernels import reference
from engramma.network import DenseMemory, Items
from engramma.replicas import Replicas
from engramma.streams.datasets import kept


class Task(NamedTuple):
    index: int
    train: Items
    test: Items
    identity: slice | None = None  # the task-id neurons


class View(NamedTuple):
    """What one seed sees of a data set in one task."""

    train: np.ndarray  # item numbers
    test: np.ndarray
    permutation: np.ndarray  # of the pixels: new pixel p shows old pixel permutation[p]
    angle: float


class Stream(ABC):
    """Base of every stream. A class of one's own has `replicas` and `tasks` as fields, says how many neurons
    and classes there are, and makes a task; the rest it has from here, and may say better."""

    sources: ClassVar[tuple[str, ...]] = ("own",)  # what the setting `data` may be, beside a path
    suits: ClassVar[dict[str, Any]] = {}  # settings of a run that suit it, where the run says nothing else
    autoassociative: ClassVar[bool] = False  # whether every neuron is learned, and there are no classes

    replicas: Replicas
    tasks: int
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # which every subclass is

    @property
    @abstractmethod
    def neurons(self) -> int:
        """All of them: what is shown, then the task's identity, then the classes."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """How many, each a neuron; 0 where there are none."""

    @abstractmethod
    def __getitem__(self, task: int) -> Task:
        """A task, from 0; IndexError where there is none of that number."""

    def __len__(self) -> int:
        return self.tasks

    @functools.cached_property
    def _tests(self) -> dict[int, Items]:
        return {}

    def test(self, task: int) -> Items:
        """The test items of a task, kept for the many times they are asked for."""
        if task not in self._tests:
            self._tests[task] = self[task].test
        return self._tests[task]

    def same(self, task: int) -> list[int]:
        """The tasks that are the same as this one, itself among them."""
        return [task]

    def evaluate(self, network: DenseMemory, theta: Tensor) -> dict[str, Tensor]:
        """{"accuracy": (R,T), "macro_f1": (R,T)} on the test items of every task, and of a network that says
        whose items are whose "named": the share of a task's items of which that is right, 0 before it is
        learned. The first score is the one that tables and searches look at."""
        columns = [self._scores(network, theta, task) for task in range(self.tasks)]
        return {name: torch.stack([column[name] for column in columns], 1) for name in columns[0]}

    def _scores(self, network: DenseMemory, theta: Tensor, task: int) -> dict[str, Tensor]:
        test = self.test(task)
        truth = test.target.argmax(-1).repeat_interleave(len(theta) // len(test.target), 0)
        said = network.respond(theta, test.probe, task)
        counts = measures.confusion(said.label, truth, self.classes)
        found = {"accuracy": measures.accuracy(counts).double(), "macro_f1": measures.macro_f1(counts)}
        if said.tasks is not None:
            right = [known for known in self.same(task) if known < said.tasks.shape[-1]]
            found["named"] = said.tasks[..., right].any(-1).double().mean(1)
        return found

    def hash(self) -> str:
        """SHA-256 of what is learned: runs that say they learned the same can be held to it."""
        state = hashlib.sha256()
        for task in (self[index] for index in range(self.tasks)):
            for part in (p for items in (task.train, task.test) for p in (items.probe, items.target)):
                state.update(part.double().cpu().numpy().tobytes())
        return state.hexdigest()

    # Asked of the class, before anything is built.

    @classmethod
    def check(cls, settings: Mapping[str, Any]) -> None:
        """That a run's settings are for this stream, as far as they say so without its data."""
        if settings["autoassociative"] != cls.autoassociative:
            raise ValueError(
                f"autoassociative must be {str(cls.autoassociative).lower()} "
                f"for the stream {settings['stream']}"
            )

    @classmethod
    def made(cls, settings: Mapping[str, Any], data_dir: str | Path | None = None, **place: Any) -> Self:
        """The stream of a run. Each field has the setting of its name; `dataset` is what `data` names.
        `place`: replicas, device, dtype and kernel, for those that the class has a field for."""
        own = {f.name: f for f in dataclasses.fields(cls) if f.init}
        told = {name: _whole(value) for name, value in settings.items() if name != "dtype"}  # there a name
        given = {name: value for name, value in {**told, **place}.items() if name in own}
        if "dataset" in own:
            given["dataset"] = kept(settings["data"], data_dir)
        none = dataclasses.MISSING
        bare = [n for n, f in own.items() if n not in given and f.default is f.default_factory is none]
        if bare:
            raise ValueError(
                f"stream {settings['stream']} must have fields that are settings of a run or have a default, "
                f"not {', '.join(bare)}"
            )
        return cls(**given)

    @classmethod
    def sizes(cls, settings: Mapping[str, Any]) -> tuple[int, int, int]:
        """(neurons, scored neurons, training items of a task): what a run costs hangs on them.

        Where a class does not say them, a stream of one seed is made to see.
        """
        names = [f.name for f in dataclasses.fields(cls)]
        told = tuple((n, _whole(settings[n])) for n in sorted({*names, "stream", "data"} & settings.keys()))
        return _sizes(cls, told)


def _whole(value: Any) -> Any:
    """A list as a stream holds it: nobody changes it, and streams can be told apart by it."""
    return tuple(value) if isinstance(value, list) else value


@functools.lru_cache(maxsize=64)
def _sizes(cls: type[Stream], told: tuple[tuple[str, Any], ...]) -> tuple[int, int, int]:
    stream = cls.made({**dict(told), "seed": 0}, replicas=Replicas((0,)))
    return stream.neurons, stream.classes or stream.neurons, stream[0].train.probe.shape[1]


def labelled(
    states: Tensor, classes: Tensor, count: int, task: int, dtype: torch.dtype, kernel: ModuleType = reference
) -> Items:
    """Items of a task: states (S,B,N), of which the last `count` neurons are the classes' and stand at -1, as
    a probe does not know its class, and the class (S,B) of each."""
    target = torch.full((*classes.shape, count), -1.0, dtype=dtype, device=classes.device)
    target.scatter_(2, classes[..., None], 1.0)
    ids = (task << 32) + torch.arange(classes.shape[1], device=classes.device).expand_as(classes)
    return Items(kernel.prepare(states, dtype), target, torch.ones_like(target[..., 0]), ids)
