"""What experiments are built into: network, stream, method and optimiser, with a replica for each of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engramma.checks import interaction_class, loss_class, method_class, stream_class
from engramma.experiment import VARYING, Experiment
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.methods import Method
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser, temperature
from engramma.replicas import Replicas
from engramma.streams import STREAMS, Stream
from engramma.streams.datasets import DataError, is_path, stamp
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
    stream, network = _described(first, data_dir, replicas=replicas, kernel=arithmetic, **place)
    cls = method_class(first.method)
    key = cls.strength_name
    method = cls(**first.settings, **({key: _each(experiments, "strength")} if key else {}))
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


def fits(e: Experiment, data_dir: str | Path | None) -> None:
    """See that a run and its data fit together, before memories are drawn: what is wrong is raised as `build`
    would. That its method has the right settings, its description was checked for."""
    place = {"device": "cpu", "dtype": torch.float64, "kernel": kernel_for("cpu", "reference")}
    _described(e, data_dir, replicas=Replicas((e.seed,)), **place)


def check_data(e: Experiment, facts: Mapping[str, Any], data_dir: str | Path | None = None) -> None:
    """That data of the user's own, which a run names by their path, are those that its record was made of.
    (Where they are gone, there is nothing to hold it to.)"""
    if stream_class(e.stream) in STREAMS.values() and is_path(e.data) and Path(e.data).exists():
        told = facts.get("stream_hash")
        if told is not None and told != _hash(
            e.canonical(*VARYING, *NOT_DATA), e.seed, stamp(e.data), data_dir
        ):
            raise DataError(
                f"{e.data} is no longer what run {e.name[:8]} learned: give the new data a name of their "
                f"own, or the runs another --store (engramma runs prune {e.name[:8]} removes this one)"
            )


NOT_DATA = (
    "vertex",
    "method",
    "settings",
    "memories",
    "epochs",
    "dtype",
    "fork",
)  # of no account to a stream


@functools.lru_cache(maxsize=4096)
def _hash(told: str, seed: int, stamp: object, data_dir: str | Path | None) -> str:
    del stamp  # when the data were written: they are looked at again where that has changed
    settings = json.loads(told)
    place = {"device": "cpu", "dtype": torch.float64, "kernel": kernel_for("cpu", "reference")}
    return (
        stream_class(settings["stream"]).made(settings, data_dir, replicas=Replicas((seed,)), **place).hash()
    )


def _described(e: Experiment, data_dir: str | Path | None, **place: Any) -> tuple[Stream, DenseMemory]:
    """The stream and the network of a description. `place`: replicas, device, dtype and kernel."""
    stream = stream_class(e.stream).made(dict(e), data_dir, **place)
    form, loss = interaction_class(e.interaction), loss_class(e.loss)
    leak = {"leak": e.leak} if form is LeakyRectifiedPolynomial else {}
    recall = None if e.recall_leak is None else LeakyRectifiedPolynomial(e.vertex, e.recall_leak)
    interaction = form(e.vertex, **leak)
    about = (stream.neurons, stream.classes, interaction, loss(), e.autoassociative)
    return stream, DenseMemory(*about, kernel=place["kernel"], recall=recall)


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
