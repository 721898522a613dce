"""Records: what a run found, one folder each, named by the hash of the run's description.

<store>/<20 hex digits>/record.json  arrays.safetensors  [memories.safetensors]  SHA256SUMS
<store>/<any name>.tar.gz            the same folders packed (`engramma runs pack`), read as they are
<store>/set-aside/                   records that their checksums gave away
<store>/checkpoints/, <store>/claims/   work in hand
"""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engramma.checks import module_name, shown
from engramma.experiment import Experiment, digest, read
from engramma.methods import METHODS
from engramma.store import packed
from engramma.store.claims import clear, part
from engramma.store.files import (
    Damaged,
    Folder,
    Packed,
    forms,
    holds,
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
MEMORIES = "memories.safetensors"
# What may be a class of one's own: the settings that only it knows, with their types, and what may stand in
# their places while the others are looked at.
OWN: dict[str, tuple[dict[str, tuple[type, ...]], dict[str, Any]]] = {
    "method": (
        {"method": (str,), "settings": (dict,), "strength": (int, float, type(None))},
        {"method": "vanilla", "settings": {}, "strength": None},
    ),
    "stream": (
        {"stream": (str,), "data": (str,), "autoassociative": (bool,)},
        {"stream": "permuted", "data": "mnist", "autoassociative": False},
    ),
    "interaction": ({"interaction": (str,)}, {"interaction": "polynomial"}),
    "loss": ({"loss": (str,)}, {"loss": "squared"}),
}


@dataclass(frozen=True)
class Record:
    """What one run found. `scores[name][k, j]`: task j after task k was learned. NaN after a divergence."""

    description: dict[str, Any]  # the Experiment
    scores: dict[str, np.ndarray]  # each (T,T)
    curves: dict[str, np.ndarray]  # "epoch" (E,) over all tasks, 0 before training; each score (E,T)
    facts: dict[str, Any] = field(default_factory=dict)
    diverged: dict[str, int] | None = None  # {"task", "epoch"}
    folder: Folder | None = None
    kept: tuple[np.ndarray, ...] = ()  # memories (M,N) after each task, on their way to the disk

    @property
    def experiment(self) -> Experiment:
        return experiment_of(self.description)

    @functools.cached_property
    def _digest(self) -> str:
        return digest(self.description)

    @property
    def name(self) -> str:
        return self._digest[:20]

    @property
    def average(self) -> float:
        """Mean over all tasks after the last one: the paper's average accuracy."""
        return float(next(iter(self.scores.values()))[-1].mean())

    def memories(self, task: int) -> np.ndarray | None:
        """(M,N) after `task` was learned, where they were kept (`--keep-memories`)."""
        if self.kept:
            return self.kept[task]
        if self.folder is None or not holds(self.folder, MEMORIES):
            return None
        try:
            found = one_tensor(self.folder, MEMORIES, f"after-{task}")
            return None if found is None else found.numpy()
        except (Damaged, TypeError) as fault:  # NumPy does not have every type of numbers
            raise ValueError(f"run {self.name}: its memories cannot be read ({fault})") from None


def experiment_of(description: Mapping[str, Any]) -> Experiment:
    """What was run. A file is no reason to import code: a class of one's own must be there already."""
    for what in OWN:
        module, own, _ = str(description.get(what)).rpartition(":")
        if own and module_name(module) not in sys.modules:
            run = digest(dict(description))[:20]
            raise ValueError(f"run {run} is of a {what} of one's own: name it (--{what} {module}:...)")
    return read(dict(description))


class Store:
    """A folder of records, in folders of their own or in archives that lie in it; or one archive.

    What `further` folders and archives hold is read as if it lay here too. Records of one name are of one
    run: of several the first is read. Reading never changes a store, but that a damaged record asked for is
    set aside.
    """

    def __init__(self, path: str | Path = "runs", *further: str | Path) -> None:
        self.path = Path(path)
        self.sources = (self.path, *map(Path, further))
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
        return self.place(experiment.name) is not None

    def names(self) -> list[str]:
        folders = (path for source in self.sources if source.is_dir() for path in source.iterdir())
        found = {path.name for path in folders if NAME.fullmatch(path.name) and path.is_dir()}
        return sorted(found | self._packed.keys())

    def place(self, name: str) -> Folder | None:
        """Where the record of a run lies; None where there is none."""
        folders = (source / name for source in self.sources)
        return next((folder for folder in folders if folder.is_dir()), None) or self._packed.get(name)

    @functools.cached_property
    def _packed(self) -> dict[str, Packed]:
        """What archives hold. Which there are is looked up once: a folder may have thousands of records."""
        found: dict[str, Packed] = {}
        for source in self.sources:
            if source.is_file():
                found = packed.records(source) | found
            for file in sorted(source.glob(f"*{packed.SUFFIX}")):
                try:
                    found = packed.records(file) | found
                except (OSError, ValueError) as fault:  # a folder may hold anything else
                    log.warning("%s (left out)", fault)
        return found

    def open(self) -> Store:
        """Make the folder and see that it can be written, before any work is put into it."""
        try:
            self.claims.mkdir(parents=True, exist_ok=True)
            clear(self.claims)  # the probe of a process that was killed before it had removed it
            probe = part(self.claims)
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise OSError(
                f"store {self.path} must be a folder that can be written: {error.strerror}"
            ) from None
        return self

    def find(self, run: Experiment | str, memories: bool = False) -> Record | None:
        """The record of a run or a name, None where it has to be run; a damaged one is named and set aside.

        `memories`: only a record that kept its memories will do.
        """
        name, asked = (run, None) if isinstance(run, str) else (run.name, run)
        if (place := self.place(name)) is None or (memories and not holds(place, MEMORIES)):
            return None
        try:
            return self._read(name, asked)
        except Damaged as fault:
            # Out of the way it may show the same run in an archive.
            return self.find(run, memories) if self.set_aside(place, fault) else None

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
            files[MEMORIES] = pack_tensors(kept)
        place = self.path / record.name
        richer = bool(record.kept) and not holds(place, MEMORIES)
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

    def set_aside(self, place: Folder, fault: Damaged | str) -> Path | None:
        """Move a damaged folder out of the way, where it can still be looked at. None where it stays."""
        if isinstance(place, Packed):
            log.warning("%.1000s; left out", fault)
            return None
        aside = (
            self.path / "set-aside" / f"{place.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(8).hex()}"
        )
        try:
            aside.parent.mkdir(exist_ok=True)
            os.rename(place, aside)
        except FileNotFoundError:  # another process was first
            return None
        except OSError as error:  # a store that can only be read
            log.warning("%.1000s; left out, for it cannot be set aside (%s)", fault, error.strerror)
            return None
        log.warning("%.1000s; set aside in %s", fault, aside)
        return aside

    def remove(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"a run is named by 20 hexadecimal digits, not {name!r}")
        self.check_own(name)
        remove_folder(self.path / name, self.owner)

    def check_own(self, name: str) -> None:
        """That a run lies in a folder, and can be removed."""
        if isinstance(place := self.place(name), Packed):
            raise ValueError(f"run {name} lies in the archive {place.archive}, which is only read")

    def _read(self, name: str, asked: Experiment | None = None) -> Record:
        """The one place where a record is made of bytes: it is sound, or Damaged says why it is not.

        Where the run is `asked` for, its description is at hand, and has been checked when it was made.
        """
        place = self.place(name)
        if place is None:
            raise Damaged(f"{self.path / name}: there is no such record")
        files = read_folder(place, "record.json", "arrays.safetensors", further=[MEMORIES])
        try:
            head = unpack_json(files["record.json"])
            if isinstance(head, dict) and not all(_names(head.get(part)) for part in ("scores", "curves")):
                raise ValueError("scores and curves must be lists of names")
            arrays = unpack_tensors(files["arrays.safetensors"])
            record = Record(
                head["description"],
                {k: arrays[f"scores/{k}"].numpy() for k in head["scores"]},
                {k: arrays[f"curves/{k}"].numpy() for k in head["curves"]},
                head["facts"],
                head["diverged"],
                place,
            )
            own = record.name
            if own != name:
                raise Damaged(f"{place}: its description is that of run {own}")
            if len(arrays) != len(record.scores) + len(record.curves):
                raise ValueError("arrays.safetensors holds more than the scores and curves")
            if asked is None or record._digest != asked.hash():
                _check_description(record.description)
            _check(record)
        except Damaged as fault:
            told = str(fault)
            raise (fault if str(place) in told else Damaged(f"{place}: {told}")) from None
        except (KeyError, ValueError, TypeError, RecursionError, RuntimeError) as error:
            raise Damaged(f"{place}: record.json is not a record ({type(error).__name__}: {error})") from None
        return record


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _check_description(told: Any) -> None:
    """It must be what the Experiment of these settings says of itself, every setting there.

    A class of one's own is not imported for a file's sake, and what only it knows is not known: the settings
    of a method, the data of a stream.
    """
    if not isinstance(told, dict):
        raise ValueError("description must be a table")
    whole, unknown = told, dict[str, Any]()
    for what, (kinds, known) in OWN.items():
        if ":" not in str(told.get(what)):
            continue
        for name, kind in kinds.items():
            if type(told[name]) not in kind:
                raise ValueError(f"{name} must be of the type that a run's is, not {shown(told[name])}")
            unknown[name] = told[name]
        whole = {**whole, **known}
    if (strength := unknown.get("strength")) is not None and not strength >= 0:
        raise ValueError(f"strength must be a number of 0 or more, or null, not {strength!r}")
    if {**read(whole).describe(), **unknown} != told:
        raise ValueError("description must hold every setting of the run and nothing else")


def _check(record: Record) -> None:
    """That a record is what everybody who reads one takes it to be. Its description is sound already."""
    told = record.description
    tasks, memories = told["tasks"], told["memories"]
    if told["method"] in METHODS:
        memories = METHODS[told["method"]].memories(told["settings"], memories, tasks)[0]
    if not isinstance(record.facts, dict):
        raise ValueError("facts must be a table")
    if (lost := record.diverged) is not None and not (
        isinstance(lost, dict)
        and lost.keys() == {"task", "epoch"}
        and all(type(v) is int for v in lost.values())
        and 0 <= lost["task"] < tasks
    ):
        raise ValueError("diverged must be a task and an epoch, or null")
    if not record.scores or any(table.shape != (tasks, tasks) for table in record.scores.values()):
        raise ValueError(f"scores must be tables of {tasks} by {tasks}, one at least")
    if not {"epoch", next(iter(record.scores))} <= record.curves.keys() <= {"epoch", *record.scores}:
        raise ValueError("curves must be of the epochs and of scores, the first one at least")
    points = record.curves["epoch"].size
    for name, table in record.curves.items():
        if not points or table.shape != ((points,) if name == "epoch" else (points, tasks)):
            raise ValueError("curves must be tables over the epochs")
    each = [*record.scores.items(), *record.curves.items()]
    if any(table.dtype.kind not in ("iu" if name == "epoch" else "f") for name, table in each):
        raise ValueError("scores and curves must be floating-point numbers, and epochs whole ones")
    assert record.folder is not None
    if holds(record.folder, MEMORIES):
        kept = forms(record.folder, MEMORIES)
        if kept.keys() != {f"after-{k}" for k in range(len(kept))} or not 0 < len(kept) <= tasks:
            raise ValueError(f"memories must be those after each of the {tasks} tasks")
        alike = len(set(kept.values())) == 1
        dtype, shape = kept["after-0"]
        rows = len(shape) == 2 and shape[0] == memories and shape[1] > 0
        if not (alike and rows and dtype in ("F64", "F32")):
            raise ValueError(f"memories must be {memories} rows of numbers, alike after every task")
