"""What experiments are built into: network, stream, method and optimiser, with a replica for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma.checks import method_class
from engramma.experiment import VARYING, Experiment
from engramma.interactions import INTERACTIONS, LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.losses import SQUARED
from engramma.methods import Method
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser, temperature
from engramma.replicas import Replicas
from engramma.streams import ClassStream, StateStream, Stream, datasets
from engramma.train import Moment, train


class Built(NamedTuple):
    """What `engramma.train.train` takes, in its order: `for moment in build(runs).train(): ...`"""

    network: DenseMemory
    stream: Stream
    method: Method
    optimiser: Optimiser
    replicas: Replicas
    theta: Tensor  # (R,M,N) initial memories
    batch_size: int | str | None

    def train(self, resume: tuple[int, Any] | None = None) -> Iterator[Moment]:
        """Train on every task. `resume`: (tasks already learned, method state), `theta` being theirs."""
        return train(*self, resume=resume)


def build(
    experiments: Sequence[Experiment],
    device: torch.device | str = "cpu",
    kernel: str = "auto",
    data_dir: str | Path | None = None,
) -> Built:
    """What training needs for experiments that train together, replica by replica in their order.

    Items are shared by replicas of one seed where these stand together, as many for each seed.
    """
    first = experiments[0]
    if len({e.family() for e in experiments}) != 1:
        raise ValueError(f"experiments trained together may differ only in {', '.join(VARYING)}")
    replicas = Replicas(tuple(e.seed for e in experiments))
    mixed = first.dtype == "mixed"
    arithmetic = kernel_for(device, kernel, mixed)
    dtype = torch.float64 if mixed else getattr(torch, first.dtype)
    place: dict[str, Any] = {"device": device, "dtype": dtype}
    if first.stream == "states":
        keys = {k: getattr(first, k) for k in ("tasks", "items", "size", "flips")}
        states = None if first.data == "states" else _states(first.data)
        stream = StateStream(replicas, states=states, kernel=arithmetic, **keys, **place)
        found, told = ((s.tasks, s.items, s.size) for s in (stream, first))
        if found != told:
            raise datasets.DataError(
                "tasks, items and size must be {}, {} and {}, as in {}, not {}, {} and {}".format(
                    *found, first.data, *told
                )
            )
    else:
        keys = ("tasks", "items", "test_share", "fraction", "angle", "task_id", "threshold", "binary")
        chosen = {k: getattr(first, k) for k in keys}
        dataset = datasets.kept(first.data, data_dir)
        stream = ClassStream(dataset, replicas, first.stream, **chosen, kernel=arithmetic, **place)
    form = INTERACTIONS[first.interaction]
    leak = {"leak": first.leak} if form is LeakyRectifiedPolynomial else {}
    recall = None
    if first.recall_leak is not None:
        recall = LeakyRectifiedPolynomial(first.vertex, first.recall_leak)
    network = DenseMemory(
        stream.neurons,
        stream.classes,
        form(first.vertex, **leak),
        SQUARED,
        first.autoassociative,
        kernel=arithmetic,
        recall=recall,
    )
    cls = method_class(first.method)
    key = getattr(cls, "strength_name", None)
    try:
        method = cls(**first.settings, **({key: _each(experiments, "strength")} if key else {}))
    except TypeError as error:  # of a class of one's own, which says no more about its settings
        raise ValueError(f"method {first.method} does not take these settings: {error}") from None
    count, awake = cls.memories(first.settings, first.memories, first.tasks)
    optimiser = Optimiser(
        _each(experiments, "learning_rate"),
        first.decay,
        first.momentum,
        _temperatures(experiments, "initial_temperature", awake, stream.neurons),
        _temperatures(experiments, "final_temperature", awake, stream.neurons),
        first.epochs,
        first.clamp,
        first.normalise,
        arithmetic,
    )
    return Built(
        network,
        stream,
        method,
        optimiser,
        replicas,
        replicas.memories(count, stream.neurons, first.spread, **place),
        first.batch_size,
    )


def _temperatures(experiments: Sequence[Experiment], key: str, awake: int, neurons: int) -> Any:
    """One, or one a replica; auto is what suits the `awake` memories that learn a task."""
    found = []
    for e in experiments:
        told = getattr(e, key)
        if told == "auto":
            told = temperature(e.vertex, awake, neurons, e.learning_rate, e.decay, e.epochs)
        found.append(told)
    return found[0] if len(set(found)) == 1 else tuple(found)


def _each(experiments: Sequence[Experiment], key: str) -> Any:
    values = tuple(getattr(e, key) for e in experiments)
    return values[0] if len(set(values)) == 1 else values


def _states(path: str) -> np.ndarray:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            return found["states"]
    except Exception as error:  # numpy raises many kinds for a damaged or pickled archive
        raise datasets.DataError(f"{path}: not an .npz with an array `states` ({error})") from None
