"""Portraits: all that the report shows of one run's memories, small enough to be put into a page.

Weights of pixels and task id become whole numbers from -127 to 127 times one scale a run; class weights,
which are few and free, keep single precision. `weights_of` turns them back into memories: what the page
computes, it computes from those, and so can Python.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engramma import diagnostics
from engramma.interactions import INTERACTIONS
from engramma.methods import Grouped, Now, Projection, Replay
from engramma.methods.allocation import SHARPNESS
from engramma.network import DenseMemory, Items
from engramma.replicas import generator
from engramma.runs.opened import answering, opened
from engramma.runs.setup import Built
from engramma.store.scores import Recorded
from engramma.streams import ClassStream, View
from engramma.streams.datasets import DataError

BASIN = (0.05, 0.1, 0.2, 0.3, 0.4)  # shares of neurons turned over to measure a basin
STEPS = 12  # a probe still moving then is unsettled
TYPES = {"int8": "i1", "uint8": "u1", "int16": "i2", "float32": "f4"}


def pack(array: np.ndarray, dtype: str) -> dict[str, Any]:
    """An array as JSON: type, shape and base64 of its little-endian bytes."""
    plain = np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<"))
    return {
        "type": TYPES[dtype],
        "shape": list(plain.shape),
        "bytes": base64.b64encode(plain.tobytes()).decode("ascii"),
    }


def unpack(packed: dict[str, Any]) -> np.ndarray:
    flat = np.frombuffer(base64.b64decode(packed["bytes"]), np.dtype(packed["type"]).newbyteorder("<"))
    return flat.reshape(packed["shape"])


def weights_of(portrait: dict[str, Any]) -> np.ndarray:
    """(T,M,N): the memories that the page computes with."""
    visible = unpack(portrait["visible"]).astype(np.float64) * portrait["scale"]
    return np.concatenate([visible, unpack(portrait["class_weights"]).astype(np.float64)], -1)


def has_memories(record: Recorded) -> bool:
    return record.diverged is None and record.memories(0) is not None


def prototype_index(record: Recorded, data_dir: str | Path | None = None, items: int = 100) -> float:
    """Of the last task's test items, after it was learned: 1/memories for features, 1 for prototypes."""
    last = len(next(iter(record.scores.values()))) - 1
    built, network, theta = opened(record, data_dir, [last])
    seen = built.stream[last].test.row(slice(0, items))
    return float(diagnostics.prototypes(network, theta, seen).index[0])


def portrait(
    record: Recorded, data_dir: str | Path | None = None, items: int = 100, probes: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(portrait, scene): the run's memories and what was measured of them; the tasks it learned.

    `items` test items of every task are shown and measured with; `probes` random ones feed the census,
    by default fewer where the network is larger.
    Runs of one seed and one stream share a scene: its "key" says so.
    """
    built, network, theta = opened(record, data_dir)
    networks = answering(record, built, network, theta)
    probes = probes or max(25, min(100, 12_000_000 // built.theta.numel()))
    seen = [built.stream[k].test.row(slice(0, items)) for k in range(len(theta))]
    visible, classes = theta[..., : network.visible], theta[..., network.visible :]
    scale = float(visible.abs().max()) / 127 or 1.0
    return {
        "neurons": network.neurons,
        "classes": network.classes,
        "autoassociative": network.autoassociative,
        "interaction": _interaction(network),
        "beta": float(torch.as_tensor(network.beta).flatten()[0]),
        "scale": scale,
        "visible": pack(np.rint(visible.numpy() / scale), "int8"),
        "class_weights": pack(classes.numpy(), "float32"),
        **_measured(networks, theta, seen, built, probes),
        "groups": _groups(networks),
        "coverage": _covered(network, theta, seen, built),
    }, scene(built, seen)


def scene(built: Built, seen: list[Items]) -> dict[str, Any]:
    """How the tasks show one picture, and some of their test items."""
    stream = built.stream
    shape = (stream.dataset.shape if isinstance(stream, ClassStream) else None) or _rectangle(stream)
    pixels = shape[0] * shape[1]
    flat = np.stack([task.probe[0, :, :pixels].numpy() for task in seen])
    maps = [_maps(built, k, shape) for k in range(len(stream))]
    labels = stream.dataset.labels if isinstance(stream, ClassStream) else ()
    return {
        "key": stream.hash(),
        "shape": shape,
        "tasks": len(stream),
        "task_id": bool(isinstance(stream, ClassStream) and stream.task_id),
        "labels": list(labels or map(str, range(stream.classes))),
        "shows": pack(np.stack([m[0] for m in maps]), "int16"),
        "undone": pack(np.stack([m[1] for m in maps]), "int16"),
        "items": pack(np.rint(flat * 127), "int8"),
        "item_classes": pack(np.stack([t.target[0].argmax(-1).numpy() if stream.classes else
                                       np.zeros(t.target.shape[1]) for t in seen]), "uint8"),
    }  # fmt: skip


def _maps(built: Built, task: int, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Which pixel of the untouched picture each pixel of the task shows, and which of the task's pixels
    to put in each place to see the picture again; -1 for none. Rotations are taken to the nearest pixel."""
    still = np.arange(shape[0] * shape[1])
    if not isinstance(built.stream, ClassStream):
        return still, still
    view: View = built.stream.view(built.replicas.seeds[0], task)
    if view.angle % 360:
        return _turned(shape, view.angle), _turned(shape, -view.angle)
    return view.permutation, np.argsort(view.permutation)


def _turned(shape: tuple[int, int], degrees: float) -> np.ndarray:
    """The place each pixel is taken from when a picture is turned anticlockwise, as in streams.rotate."""
    turn = math.radians(degrees)
    row, column = np.indices(shape).reshape(2, -1) - (np.array(shape)[:, None] - 1) / 2
    from_row = np.rint(math.sin(turn) * column + math.cos(turn) * row + (shape[0] - 1) / 2).astype(int)
    from_column = np.rint(math.cos(turn) * column - math.sin(turn) * row + (shape[1] - 1) / 2).astype(int)
    inside = (from_row >= 0) & (from_row < shape[0]) & (from_column >= 0) & (from_column < shape[1])
    return np.where(inside, from_row * shape[1] + from_column, -1)


def _rectangle(stream: Any) -> tuple[int, int]:
    """The squarest picture that items without a height and width fill exactly."""
    size = stream.pixels if isinstance(stream, ClassStream) else stream.neurons - stream.classes
    high = next(h for h in range(math.isqrt(size), 0, -1) if size % h == 0)
    return high, size // high


def _interaction(network: DenseMemory) -> dict[str, Any]:
    f = network.recalling.interaction  # the page recalls, it does not learn
    kind = {cls: name for name, cls in INTERACTIONS.items()}.get(type(f))
    if kind is None:
        raise DataError(f"the page cannot recall by an interaction of one's own, {type(f).__name__}")
    return {"kind": kind, "n": f.n, "leak": getattr(f, "leak", 0.0)}


def _groups(networks: Sequence[DenseMemory]) -> dict[str, Any] | None:
    """How memories stand in groups, and what a group needs to tell how well it knows an item; None where they
    stand in none."""
    last = networks[-1]
    if not isinstance(last, Grouped) or last.owner is None:
        return None
    found: dict[str, Any] = {"each": last.each, "owner": last.owner[0].tolist(), "sharpness": SHARPNESS}
    for name in ("mean", "deviation"):
        found[name] = pack(torch.cat([getattr(network, name) for network in networks]).numpy(), "float32")
    return {**found, "told": last.told}


def _measured(
    networks: Sequence[DenseMemory], theta: torch.Tensor, seen: list[Items], built: Built, probes: int
) -> dict[str, Any]:
    """Ownership, prototypes and the census after every task, with the tasks learned so far. Where memories
    stand in groups, the group of a memory is its owner."""
    tasks, memories = len(theta), theta.shape[1]
    share = np.zeros((tasks, memories, tasks))
    owner, favourite, strength = (np.zeros((tasks, memories)) for _ in range(3))
    like, rows, attractors = np.zeros((tasks, memories)), [], []
    for k in range(tasks):
        now, so_far, network = theta[k : k + 1], seen[: k + 1], networks[k]
        owned = diagnostics.ownership(network, now, so_far)
        share[k, :, : k + 1] = owned.share[0].numpy()
        owner[k], favourite[k], strength[k] = (
            _group_of(network, memories) if isinstance(network, Grouped) else owned.owner[0].numpy(),
            owned.favourite[0].numpy(),
            owned.strength[0].numpy(),
        )
        shape = diagnostics.prototypes(network, now, seen[k])
        like[k] = diagnostics.prototypes(network, now, Items.join(*so_far)).likeness[0].numpy()
        rows.append({"index": float(shape.index[0]), "participation": float(shape.participation[0])})
        draw = generator(built.replicas.seeds[0], "census", k)
        start = diagnostics.random_probes(network, probes, draw)
        census = diagnostics.census(
            network, now, start, so_far, steps=STEPS, basins=diagnostics.Basins(BASIN, 3, 4, draw)
        )[0]
        attractors.append({**census.columns(), "probes": probes})
    return {
        "owner": pack(owner, "int8"),
        "favourite": pack(favourite, "int16"),
        "strength": pack(strength, "float32"),
        "share": pack(share, "float32"),
        "likeness": pack(like, "float32"),
        "prototypes": rows,
        "census": attractors,
    }


def _group_of(network: Grouped, memories: int) -> np.ndarray:
    """(M,): the group of each memory, -1 for those of groups that have learned nothing yet."""
    assert network.mean is not None
    group = np.arange(memories) // network.each
    return np.where(group < int(network.mean.isfinite().sum()), group, -1)


def _covered(
    network: DenseMemory, theta: torch.Tensor, seen: list[Items], built: Built
) -> dict[str, Any] | None:
    """How the items kept over the whole run cover each class; None for a method that keeps none.

    What a method keeps is a function of the memories after each task, so it is found again from them.
    """
    if not isinstance(built.method, Replay | Projection) or not network.classes:
        return None
    state: Any = built.method.start(theta[:1])
    for k in range(len(theta)):
        now = Now(network, built.stream[k], built.optimiser.epochs, 0, built.replicas)
        state = built.method.consolidate(state, now, theta[k : k + 1])
    kept = diagnostics.kept_items(state)
    if kept is None:
        return None
    found = diagnostics.coverage(network, kept, seen)
    overlap = [[None if math.isnan(x) else x for x in row] for row in found.overlap[0].tolist()]
    return {"count": found.count[0].tolist(), "overlap": overlap}
