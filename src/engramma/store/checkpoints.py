"""Checkpoints at task boundaries: memories, method state, and what was measured so far.

    <store>/checkpoints/<pack>/<tasks learned>/checkpoint.json  tensors.safetensors  SHA256SUMS

Nothing random is kept, because nothing random is carried along: a random stream is named by its seed,
purpose and place. A method's state is named tuples of tensors; of the classes that a checkpoint names,
only those that the method's own modules already know are made again.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engramma.methods import Method
from engramma.methods.state import flatten, known, unflatten
from engramma.store.claims import Claims
from engramma.store.files import (
    Damaged,
    holds,
    pack_json,
    pack_tensors,
    read_folder,
    remove_folder,
    unpack_json,
    unpack_tensors,
    write_folder,
)
from engramma.store.records import MEMORIES, NAME, Store

KINDS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class Checkpoint:
    """Where a pack of runs stood after `done` tasks."""

    runs: tuple[str, ...]  # names, in the order of the replicas
    done: int
    theta: Tensor | None  # (R,M,N); None where every task was learned and nobody asked to keep it
    state: Any
    measured: dict[str, Tensor]  # in the order in which they were saved
    facts: dict[str, Any]


def _tensors(point: Checkpoint) -> tuple[dict[str, Tensor], Any]:
    """Every tensor of a checkpoint under its name in the file, and the shape of the method's state."""
    tensors: dict[str, Tensor] = {f"measured/{k}": v for k, v in point.measured.items()}
    if point.theta is None:
        return tensors, None
    tensors["theta"] = point.theta
    return tensors, flatten(point.state, "state", tensors)


def save(store: Store, pack: str, point: Checkpoint) -> None:
    tensors, tree = _tensors(point)
    small, types = {}, []  # a file of tensors keeps no order, and JSON here none of a table: a list does
    for name, tensor in tensors.items():
        small[name], kind = _shrink(tensor)
        types.append([name, kind])
    head = {"runs": list(point.runs), "done": point.done, "state": tree, "types": types, "facts": point.facts}
    files = {"checkpoint.json": pack_json(head), "tensors.safetensors": pack_tensors(small)}
    write_folder(store.checkpoints / pack / str(point.done), files, store.owner, replace=True)


def size(point: Checkpoint) -> int:
    """Bytes of its tensors, about as many as a file of them has."""
    return sum(tensor.nbytes for tensor in _tensors(point)[0].values())


def load(
    store: Store, pack: str, done: int, method: Method | None, device: torch.device | str
) -> Checkpoint | None:
    """The checkpoint of a pack after `done` tasks; a damaged one is named and set aside.

    Without the method its state is left out.
    """
    place = store.checkpoints / pack / str(done)
    if not place.is_dir():
        return None
    try:
        files = read_folder(place, "checkpoint.json", "tensors.safetensors")
        head = _head(files["checkpoint.json"])
        if head["done"] != done:
            raise ValueError(f"it is of {head['done']} tasks")
        tensors = unpack_tensors(files["tensors.safetensors"])
        tensors = {name: tensors[name].to(device, _dtype(kind)) for name, kind in head["types"]}
        theta = tensors.get("theta")
        state = None
        if method is not None and theta is not None:
            state = unflatten(head["state"], tensors, known(method))
        measured = {
            k.removeprefix("measured/"): v.cpu() for k, v in tensors.items() if k.startswith("measured/")
        }
        return Checkpoint(head["runs"], head["done"], theta, state, measured, head["facts"])
    except (Damaged, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        store.set_aside(place, f"checkpoint {place} is damaged ({error})")
        return None


def _head(data: bytes) -> dict[str, Any]:
    """What a checkpoint.json says, its runs as a tuple; a ValueError where it is none."""
    head = unpack_json(data)
    if not isinstance(head, dict) or not {"runs", "done", "state", "types", "facts"} <= head.keys():
        raise ValueError("not the head of a checkpoint")
    runs, facts = head["runs"], head["facts"]
    if not isinstance(runs, list) or not all(isinstance(r, str) and NAME.fullmatch(r) for r in runs):
        raise ValueError("runs must be names of runs")
    if type(head["done"]) is not int or not isinstance(head["types"], list):
        raise ValueError("done must be a number of tasks, and types a list")
    if not isinstance(facts, dict):
        raise ValueError("facts must be a table")
    return {**head, "runs": tuple(runs)}


def _dtype(name: str) -> torch.dtype:
    if name not in KINDS:
        raise ValueError(f"no type of numbers is called {name!r}")
    return getattr(torch, name)


def stages(store: Store, pack: str) -> list[int]:
    """After how many tasks a pack has checkpoints."""
    folder = store.checkpoints / pack
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []


def packs(store: Store) -> dict[str, tuple[str, ...]]:
    """The packs that have checkpoints, and the runs of each."""
    return {name: head["runs"] for name, head in _heads(store).items()}


def _heads(store: Store) -> dict[str, dict[str, Any]]:
    """What the first readable checkpoint of each pack says of it."""
    found = {}
    if not store.checkpoints.is_dir():
        return found
    for folder in sorted(store.checkpoints.iterdir()):
        for done in stages(store, folder.name) if re.fullmatch(r"[0-9a-f]{20}", folder.name) else []:
            try:
                found[folder.name] = _head((folder / str(done) / "checkpoint.json").read_bytes())
                break
            except (OSError, ValueError):
                continue
    return found


def sweep(store: Store, claims: Claims) -> None:
    """Remove what dead processes left: what they had half written, and packs of which they wrote no more."""
    claims.sweep(store.path, store.checkpoints, *store.checkpoints.glob("*"))
    for folder in store.checkpoints.glob("*"):
        with contextlib.suppress(OSError):
            folder.rmdir()  # if it is empty; whoever is about to write there makes it again


def finished(store: Store) -> list[str]:
    """Packs whose records are all there and whose checkpoints nobody asked to keep: a killed process's."""
    return [name for name, head in _heads(store).items() if not _needed(store, head)]


def _needed(store: Store, head: dict[str, Any]) -> bool:
    file = MEMORIES if head["facts"].get("memories") else "record.json"
    places = map(store.place, head["runs"])
    return bool(head["facts"].get("keep")) or not all(place and holds(place, file) for place in places)


def discard(store: Store, pack: str, below: int | None = None) -> None:
    """Remove a pack's checkpoints: all, or those before `below` tasks."""
    if below is None:
        remove_folder(store.checkpoints / pack, store.owner)
        return
    for done in stages(store, pack):
        if done < below:
            remove_folder(store.checkpoints / pack / str(done), store.owner)


def _shrink(tensor: Tensor) -> tuple[Tensor, str]:
    """Items are -1 and +1: a byte each will do. With the type it had."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_floating_point() and tensor.numel():
        small = tensor.to(torch.int8)
        same = (small.to(tensor.dtype) == tensor) & (tensor.signbit() == (small < 0))  # no -0 among them
        if bool(same.all()):
            return small, kind
    return tensor, kind
