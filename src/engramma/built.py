"""What experiments are built into: network, stream, method and optimiser, with a replica for each of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engramma import datasets
from engramma.checks import method_class
from engramma.experiment import VARYING, Experiment
from engramma.interactions import INTERACTIONS, LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.losses import Logistic, Squared
from engramma.methods import Method
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import ClassStream, StateStream, Stream


class Built(NamedTuple):
    network: DenseMemory
    stream: Stream
    method: Method
    optimiser: Optimiser
    replicas: Replicas
    theta: Tensor  # (R,M,N) initial memories


def build(
    experiments: Sequence[Experiment],
    device: torch.device | str = "cpu",
    kernel: str = "auto",
    data_dir: str | Path | None = None,
) -> Built:
    """What train() needs for experiments that train together, replica by replica in their order.

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
    else:
        keys = ("tasks", "items", "test_share", "fraction", "angle", "task_id", "threshold", "binary")
        chosen = {k: getattr(first, k) for k in keys}
        dataset = _dataset(first.data, str(data_dir) if data_dir else None)
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
        Squared(first.exponent) if first.loss == "squared" else Logistic(),
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
    optimiser = Optimiser(
        _each(experiments, "learning_rate"),
        first.decay,
        first.momentum,
        _each(experiments, "initial_temperature"),
        _each(experiments, "final_temperature"),
        first.epochs,
        first.clamp,
        first.restart,
        first.normalise,
        arithmetic,
    )
    return Built(
        network,
        stream,
        method,
        optimiser,
        replicas,
        replicas.memories(first.memories, stream.neurons, first.spread, **place),
    )


def _each(experiments: Sequence[Experiment], key: str) -> Any:
    values = tuple(getattr(e, key) for e in experiments)
    return values[0] if len(set(values)) == 1 else values


@functools.lru_cache(maxsize=2)
def _dataset(name: str, data_dir: str | None) -> datasets.Dataset:
    return datasets.load(name, data_dir)


def _states(path: str) -> np.ndarray:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            return found["states"]
    except Exception as error:  # numpy raises many kinds for a damaged or pickled archive
        raise datasets.DataError(f"{path}: not an .npz with an array `states` ({error})") from None
