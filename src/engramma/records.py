"""Records: what a run found, one folder each, named by the hash of the run's description.

<store>/<20 hex digits>/record.json  arrays.safetensors  [memories.safetensors]  SHA256SUMS
<store>/set-aside/                   records that their checksums gave away
<store>/checkpoints/, <store>/claims/   work in hand
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engramma.experiment import Experiment, described
from engramma.files import (
    Damaged,
    one_tensor,
    pack_json,
    pack_tensors,
    read_folder,
    remove_folder,
    unpack_json,
    unpack_tensors,
    write_folder,
)

log = logging.getLogger("engramma")
NAME = re.compile(r"[0-9a-f]{20}")


@dataclass(frozen=True)
class Record:
    """What one run found. `scores[name][k, j]`: task j after task k was learned. NaN after a divergence."""

    description: dict[str, Any]  # the Experiment
    scores: dict[str, np.ndarray]  # each (T,T)
    curves: dict[str, np.ndarray]  # "epoch" (E,) over all tasks, 0 before training; each score (E,T)
    facts: dict[str, Any] = field(default_factory=dict)
    diverged: dict[str, int] | None = None  # {"task", "epoch"}
    folder: Path | None = None
    kept: tuple[np.ndarray, ...] = ()  # memories (M,N) after each task, on their way to the disk

    @property
    def experiment(self) -> Experiment:
        """What was run. A file is no reason to import code: a method of one's own must be there already."""
        module, own, _ = str(self.description.get("method")).partition(":")
        if own and module not in sys.modules:
            raise ValueError(f"run {self.name} is of a method of one's own: name it (--method {module}:...)")
        return described(self.description)

    @property
    def name(self) -> str:
        return digest(self.description)[:20]

    @property
    def average(self) -> float:
        """Mean over all tasks after the last one: the paper's average accuracy."""
        return float(next(iter(self.scores.values()))[-1].mean())

    def memories(self, task: int) -> np.ndarray | None:
        """(M,N) after `task` was learned, where they were kept (`--keep-memories`)."""
        if self.kept:
            return self.kept[task]
        if self.folder is None or not (self.folder / "memories.safetensors").is_file():
            return None
        try:
            found = one_tensor(self.folder / "memories.safetensors", f"after-{task}")
            return None if found is None else found.numpy()
        except (Damaged, TypeError) as fault:  # NumPy does not have every type of numbers
            raise ValueError(f"run {self.name}: its memories cannot be read ({fault})") from None


def digest(description: dict[str, Any]) -> str:
    """The hash of a description, whatever version of the package wrote it."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """A folder of records. Reading never changes it, but that a damaged record asked for is set aside."""

    def __init__(self, path: str | Path = "runs") -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.claims = self.path / "claims"
        self.owner = f"{os.getpid()}-{os.urandom(4).hex()}-s"

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def __iter__(self) -> Iterator[Record]:
        """Every sound record; damaged ones are named in the log and left out."""
        for name in self.names():
            try:
                yield self._read(name)
            except Damaged as fault:
                log.warning("%s (left out; `engramma runs verify` sets it aside)", fault)

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, experiment: Experiment) -> bool:
        return (self.path / experiment.name).is_dir()

    def names(self) -> list[str]:
        try:
            return sorted(p.name for p in self.path.iterdir() if NAME.fullmatch(p.name) and p.is_dir())
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise OSError(f"store {self.path} must be a folder") from None

    def open(self) -> Store:
        """Make the folder and see that it can be written, before any work is put into it."""
        try:
            self.claims.mkdir(parents=True, exist_ok=True)
            probe = self.claims / f"{self.owner}.probe"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise OSError(
                f"store {self.path} must be a folder that can be written: {error.strerror}"
            ) from None
        return self

    def find(self, experiment: Experiment, memories: bool = False) -> Record | None:
        """The record of a run, None where it has to be run; a damaged one is named and set aside.

        `memories`: only a record that kept its memories will do.
        """
        if experiment not in self:
            return None
        try:
            record = self._read(experiment.name)
        except Damaged as fault:
            self.set_aside(self.path / experiment.name, fault)
            return None
        if memories and not (self.path / experiment.name / "memories.safetensors").is_file():
            return None
        return record

    def get(self, start: str) -> Record:
        """The one record whose name starts so."""
        if not re.fullmatch(r"[0-9a-f]{1,20}", start):
            raise ValueError(f"a run is named by up to 20 hexadecimal digits, not {start!r}")
        names = [name for name in self.names() if name.startswith(start)]
        if len(names) != 1:
            many = f"{len(names)} runs start" if names else "no run starts"
            raise ValueError(f"{many} with {start} in {self.path}")
        try:
            return self._read(names[0])
        except Damaged as fault:
            raise ValueError(str(fault)) from None

    def write(self, record: Record) -> Path:
        """Put a record in its place; where an equal run is there already, that one stays."""
        head = {
            "description": record.description,
            "facts": record.facts,
            "diverged": record.diverged,
            "scores": list(record.scores),
            "curves": list(record.curves),
        }
        arrays = {f"scores/{k}": torch.as_tensor(np.asarray(v)) for k, v in record.scores.items()}
        arrays |= {f"curves/{k}": torch.as_tensor(np.asarray(v)) for k, v in record.curves.items()}
        files = {"record.json": pack_json(head), "arrays.safetensors": pack_tensors(arrays)}
        if record.kept:
            kept = {f"after-{k}": torch.as_tensor(m) for k, m in enumerate(record.kept)}
            files["memories.safetensors"] = pack_tensors(kept)
        place = self.path / record.name
        richer = bool(record.kept) and not (place / "memories.safetensors").is_file()
        write_folder(place, files, self.owner, replace=richer)
        return place

    def verify(self, names: list[str] | None = None) -> Iterator[tuple[str, str | None]]:
        """(name, None where sound, else what is wrong) of every record."""
        for name in self.names() if names is None else names:
            try:
                self._read(name)
                yield name, None
            except Damaged as fault:
                yield name, str(fault)

    def set_aside(self, place: Path, fault: Damaged | str) -> Path | None:
        """Move a damaged folder out of the way, where it can still be looked at."""
        aside = (
            self.path / "set-aside" / f"{place.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(8).hex()}"
        )
        with contextlib.suppress(FileNotFoundError):  # another process was first
            aside.parent.mkdir(exist_ok=True)
            os.rename(place, aside)
            log.warning("%.1000s; set aside in %s", fault, aside)
            return aside
        return None

    def remove(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"a run is named by 20 hexadecimal digits, not {name!r}")
        remove_folder(self.path / name, self.owner)

    def _read(self, name: str) -> Record:
        place = self.path / name
        files = read_folder(place)
        try:
            head = unpack_json(files["record.json"])
            arrays = unpack_tensors(files["arrays.safetensors"])
            record = Record(
                head["description"],
                {k: arrays[f"scores/{k}"].numpy() for k in head["scores"]},
                {k: arrays[f"curves/{k}"].numpy() for k in head["curves"]},
                head["facts"],
                head["diverged"],
                place,
            )
            fault, own = _fault(record), record.name
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise Damaged(f"{place}: record.json is not a record ({type(error).__name__}: {error})") from None
        if fault:
            raise Damaged(f"{place}: record.json is not a record ({fault})")
        if own != name:
            raise Damaged(f"{place}: its description is that of run {own}")
        return record


def _fault(record: Record) -> str:
    """What a record is not, that everybody who reads one takes it to be."""
    if not isinstance(record.description, dict) or not isinstance(record.facts, dict):
        return "description and facts must be tables"
    where = record.diverged
    known = isinstance(where, dict) and all(type(where.get(k)) is int for k in ("task", "epoch"))
    if where is not None and not known:
        return "diverged must be null or a table of task and epoch"
    shapes = [table.shape for table in record.scores.values()]
    if not shapes or any(len(s) != 2 or s[0] != s[1] or not s[0] for s in shapes):
        return "scores must be square tables, one at least"
    lines = [table for name, table in record.curves.items() if name != "epoch"]
    if any(table.ndim != 2 or not len(table) or table.shape[1] != shapes[0][0] for table in lines):
        return "curves must be tables over epochs, a column a task"
    if any(table.dtype.kind != "f" for table in (*record.scores.values(), *lines)):
        return "scores and curves must be numbers with a point"
    epochs = record.curves.get("epoch", np.arange(len(lines[0]) if lines else 0))
    if epochs.dtype.kind != "i" or any(table.shape[:1] != epochs.shape for table in lines):
        return "epochs must be whole numbers, one for each point of a curve"
    return ""
