"""A run that is over, opened again: what it was built of, its network, and the memories that it kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engramma.methods import Allocation, Method, Now, XdG
from engramma.network import DenseMemory
from engramma.runs.setup import Built, build, check_data
from engramma.store.records import Record, experiment_of
from engramma.store.scores import Recorded
from engramma.streams import Stream
from engramma.streams.datasets import DataError


@dataclass(frozen=True)
class Opened:
    """A run's network with the memories that it kept.

    `found.network.respond(found.memories[-1:], probe, task)` answers items, `found.evaluate()` scores them.
    """

    built: Built
    networks: tuple[DenseMemory, ...]  # what answered after each task
    memories: Tensor  # (T,M,N) after each task

    @property
    def network(self) -> DenseMemory:
        """What answered after the last task."""
        return self.networks[-1]

    @property
    def stream(self) -> Stream:
        """The tasks: `stream[k].test.probe` (1,B,N), with their classes in `stream[k].test.target`."""
        return self.built.stream

    def evaluate(self, after: int = -1) -> dict[str, np.ndarray]:
        """{"accuracy": (T,), ...}: the scores of every task after one was learned, by default the last."""
        found = self.stream.evaluate(self.networks[after], self.memories[after][None])
        return {name: score[0].numpy() for name, score in found.items()}


@dataclass(frozen=True)
class Run(Record):
    """A record, as `engramma.load` and `engramma.run` give it: its network can be opened again."""

    @classmethod
    def of(cls, record: Record) -> Run:
        told = {part.name: getattr(record, part.name) for part in fields(Record)}
        return record if isinstance(record, cls) else cls(**told)

    def network(self, data_dir: str | Path | None = None) -> Opened:
        """Its network and memories after every task, where they were kept (`keep_memories`)."""
        built, network, theta = opened(self, data_dir)
        return Opened(built, tuple(answering(self, built, network, theta)), theta)


def opened(
    record: Recorded, data_dir: str | Path | None, tasks: Sequence[int] | None = None
) -> tuple[Built, DenseMemory, Tensor]:
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


def answering(record: Recorded, built: Built, network: DenseMemory, theta: Tensor) -> list[DenseMemory]:
    """What answered after each task, given the memories (T,M,N) after each: `network`, or groups of it."""
    method = built.method
    if type(method).recall is Method.recall:
        return [network] * len(theta)
    first = Now(network, built.stream[0], built.optimiser.epochs, 0, built.replicas, len(built.stream))
    if isinstance(method, XdG):  # its gates are the seed's
        state = method.awaken(method.start(theta[:1]), first, theta[:1]).state
        return [method.recall(state, first, theta[:1], learned=True)] * len(theta)
    if not isinstance(method, Allocation):
        raise ValueError(f"what {type(method).__name__} answers with hangs on a state that no record keeps")
    owner = (record.facts.get("report") or {}).get("owner")
    if not isinstance(owner, list):
        raise ValueError("the record does not say which memories are whose")
    state, found = method.start(theta[:1]), []
    for k in range(len(theta)):
        now = first._replace(task=built.stream[k])
        state = method.found_again(state, now, theta[k : k + 1], owner)
        found.append(method.recall(state, now, theta[k : k + 1], learned=True))
    return found
