"""A run that is over, opened again: what it was built of, its network and the memories that it kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from engramma.network import DenseMemory
from engramma.runs.setup import Built, build, check_data
from engramma.store.records import experiment_of
from engramma.store.scores import Recorded
from engramma.streams.datasets import DataError


def opened(
    record: Recorded, data_dir: str | Path | None, tasks: Sequence[int] | None = None
) -> tuple[Built, DenseMemory, torch.Tensor]:
    """What a run was built of, its network as it was at the end, its memories (T,M,N) after `tasks` (all)."""
    # Looked at in full precision on the CPU, wherever and however it was trained.
    experiment = experiment_of(record.description)
    check_data(experiment, record.facts, data_dir)
    experiment = experiment.but(dtype="float64")
    built = build([experiment], kernel="reference", data_dir=data_dir)
    if built.theta.numel() > 100_000:  # now the faster kernels are worth their start
        built = build([experiment], data_dir=data_dir)
    network = built.network.at(built.optimiser.beta(built.optimiser.epochs, built.theta))
    found = [record.memories(k) for k in (range(len(built.stream)) if tasks is None else tasks)]
    if any(m is None for m in found):
        raise DataError("memories of some tasks are missing: run with --keep-memories to keep them")
    theta = torch.as_tensor(np.stack(found), dtype=torch.float64)  # type: ignore[arg-type]
    if theta.shape[-1] != built.theta.shape[-1]:  # how large the network is, the data say
        raise DataError("its memories are not of the size of its network")
    return built, network, theta
