"""What the memories look like, what they generate by themselves, and how energy falls as they recall.

These figures need the memories themselves, kept by runs with --keep-memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from engramma.network import DenseMemory
from engramma.replicas import generator
from engramma.runs.opened import answering, opened
from engramma.show import labels
from engramma.show import select as trials
from engramma.show.figures import style
from engramma.store.scores import Recorded
from engramma.streams import ClassStream, Stream


class Trained(NamedTuple):
    """A network with its memories as they were after the last task."""

    network: DenseMemory
    stream: Stream
    theta: Tensor  # (1,M,N)
    seed: int
    label: str  # the row of Table 2 it belongs to, for a figure


def trained(record: Recorded, data_dir: Path | str | None = None) -> Trained:
    """The network, the stream and the memories of a record, as they were when it ended."""
    built, network, theta = opened(record, data_dir, [trials.setting(record, "tasks") - 1])
    label = style.literal(trials.row_labels([record])[0])
    answers = answering(record, built, network, theta.expand(len(built.stream), -1, -1))
    return Trained(answers[-1], built.stream, theta, built.replicas.seeds[0], label)


def by_vertex(records: Sequence[Recorded], images: bool, data_dir: Path | str | None) -> dict[float, Trained]:
    """For every vertex the first record, by seed, that kept its memories."""
    rows = trials.row_labels(records)
    if len(rows) > 1:
        raise ValueError(f"memories are drawn of one method at a time, not of {', '.join(rows)}")
    found = {}
    for vertex, runs in trials.group(records, "vertex").items():
        for record in sorted(runs, key=lambda r: trials.setting(r, "seed")):
            if record.diverged is None and record.memories(trials.setting(record, "tasks") - 1) is not None:
                found[vertex] = trained(record, data_dir)
                break
    if not found:
        raise ValueError("no record has its memories: run with --keep-memories to keep them")
    for run in found.values():
        stream = run.stream
        if images and (not isinstance(stream, ClassStream) or stream.dataset.shape is None):
            raise ValueError("memories can be drawn as images only where the data are images")
    return found


def unpermuted(states: np.ndarray, permutation: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """(..., H, W): the pixels of states or memories (..., N) put back where the data set has them."""
    # A task shows old pixel permutation[p] at place p.
    image = np.empty((*states.shape[:-1], len(permutation)), dtype=float)
    image[..., permutation] = states[..., : len(permutation)]
    return image.reshape(*states.shape[:-1], *shape)


def mosaic(tiles: np.ndarray, gap: int) -> np.ndarray:
    """(rows, columns, H, W) side by side in one picture, with gaps of NaN."""
    rows, columns, high, wide = tiles.shape
    padded = np.full((rows, columns, high + gap, wide + gap), np.nan)
    padded[:, :, :high, :wide] = tiles
    return padded.transpose(0, 2, 1, 3).reshape(rows * (high + gap), -1)[:-gap, :-gap]


def speakers(run: Trained) -> np.ndarray:
    """(T,C): for each task and class, the memory whose similarity to its test items stands out most from
    its similarity to the task's items of any class."""
    stream = run.stream
    assert isinstance(stream, ClassStream)
    means = run.theta.new_zeros(len(stream), stream.classes, run.theta.shape[1])
    for task in range(len(stream)):
        test = stream.test(task)
        h = run.network.similarity(run.theta, test.probe)[0]  # (B,M)
        truth = test.target[0].argmax(-1)
        means[task] = h.mean(0)  # for a class that a split task does not have
        for c in truth.unique().tolist():
            means[task, c] = h[truth == c].mean(0)
    return (means - means.mean(1, keepdim=True)).argmax(-1).numpy()


@style.styled
def memory_images(records: Sequence[Recorded], data_dir: Path | str | None = None) -> Figure:
    """After the last task, one panel a vertex: for every task (row, its permutation undone) and class
    (column) the memory that is most its own: see `speakers`."""
    runs = by_vertex(records, True, data_dir)
    stream = next(iter(runs.values())).stream
    figure, axes = style.panels(len(runs), 2.75 * len(stream) / max(stream.classes, 1) + 0.42)
    picture = None
    for place, (vertex, run) in zip(axes, runs.items(), strict=True):
        assert isinstance(run.stream, ClassStream)
        shape = run.stream.dataset.shape or (0, 0)
        rows = []
        for task, memories in enumerate(speakers(run)):
            chosen = run.theta[0, memories].numpy()
            rows.append(unpermuted(chosen, run.stream.view(run.seed, task).permutation, shape))
        names = _classes(run.stream)
        picture = _tiles(place, np.stack(rows), [f"task {k + 1}" for k in range(len(rows))], names)
        place.set_title(f"${labels.vertex(vertex)}$")
        style.edge_labels(place, "class")
    assert picture is not None
    figure.suptitle(next(iter(runs.values())).label)
    bar = figure.colorbar(picture, ax=axes, shrink=0.6, pad=0.02, ticks=[-1, 0, 1])
    bar.set_label("weight")
    return figure


@style.styled
def pseudo_items(
    records: Sequence[Recorded],
    probes: int = 512,
    columns: int = 10,
    steps: int = 10,
    data_dir: Path | str | None = None,
) -> Figure:
    """What random probes relax to after the last task, one panel a vertex: a row for each task that the
    states claim by their task-id neurons (its permutation undone, with the share of probes that claim it),
    distinct states in it, the commonest first, each with its strongest class in the corner."""
    runs = by_vertex(records, True, data_dir)
    found = {vertex: _relaxed_rows(run, probes, columns, steps) for vertex, run in runs.items()}
    high = [len(rows) for rows in found.values()]
    ratios = [max(high[i : i + 2]) for i in range(0, len(high), 2)]  # panels stand two in a row
    figure, axes = style.panels(
        len(runs), sum(ratios) / len(ratios) * 3.1 / columns + 0.2, height_ratios=ratios
    )
    for place, (vertex, rows) in zip(axes, found.items(), strict=True):
        shape = next(iter(rows.values()))[0].shape[1:]
        tiles = np.full((len(rows), columns, *shape), np.nan)
        for i, (images, _) in enumerate(rows.values()):
            tiles[i, : len(images)] = images
        _tiles(place, tiles, list(rows), None)
        high, wide = shape[0] + _gap(shape), shape[1] + _gap(shape)
        for i, (_, classes) in enumerate(rows.values()):
            for j, name in enumerate(classes):
                place.text(
                    j * wide, i * high, name, fontsize=5, va="top", ha="left", color="black",
                    bbox={"facecolor": "white", "alpha": 0.75, "pad": 0.4, "linewidth": 0},
                )  # fmt: skip
        place.set_title(f"${labels.vertex(vertex)}$")
        place.set_anchor("N")
    figure.suptitle(next(iter(runs.values())).label)
    return figure


def _relaxed_rows(
    run: Trained, probes: int, columns: int, steps: int
) -> dict[str, tuple[np.ndarray, list[str]]]:
    """{row label: (images (k,H,W), class names)} of the states that random probes come to rest in."""
    stream, network = run.stream, run.network
    assert isinstance(stream, ClassStream)
    last = len(stream) - 1
    # The probes of pseudorehearsal after the last task.
    drawn = (
        generator(run.seed, "probes", last).integers(0, 2, (probes, network.neurons), dtype=np.int8) * 2 - 1
    )
    rest = network.relax(run.theta, torch.as_tensor(drawn).to(run.theta)[None], steps).state
    best = network.predict(run.theta, rest)[0].numpy()
    states = rest[0].numpy()
    claims = np.full(probes, last)
    if stream.task_id:
        on = states[:, stream.pixels : stream.pixels + len(stream)] > 0
        claims = np.where(on.sum(1) == 1, on.argmax(1), -1)
    names = _classes(stream)
    rows = {}
    for claim in [*range(len(stream)), -1]:
        mine = np.flatnonzero(claims == claim)
        if not len(mine):
            continue
        _, first, count = np.unique(states[mine], axis=0, return_index=True, return_counts=True)
        shown = mine[first[np.argsort(-count, kind="stable")]][:columns]
        permutation = stream.view(run.seed, claim if claim >= 0 else last).permutation
        who = ("all" if not stream.task_id else f"task {claim + 1}") if claim >= 0 else "unclear"
        share = 100 * len(mine) / probes
        label = f"{who}\n" + (f"{share:.0f}%" if share >= 1 else "<1%")
        images = unpermuted(states[shown], permutation, stream.dataset.shape or (0, 0))
        rows[label] = images, [names[int(best[i])] for i in shown]
    return rows


def _classes(stream: ClassStream) -> list[str]:
    """Their names, which a file of data gives as it likes."""
    return [style.literal(name) for name in stream.dataset.labels or range(stream.classes)]


def _gap(shape: Sequence[int]) -> int:
    return max(1, min(shape) // 10)


def _tiles(axes: Axes, tiles: np.ndarray, rows: Sequence[str], columns: Sequence[str] | None):
    shape = tiles.shape[2:]
    gap = _gap(shape)
    picture = axes.imshow(mosaic(tiles, gap), cmap="RdBu_r", vmin=-1, vmax=1)
    axes.grid(False)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)
    high, wide = shape[0] + gap, shape[1] + gap
    axes.set_yticks([i * high + (shape[0] - 1) / 2 for i in range(len(rows))], rows)
    ticks = [j * wide + (shape[1] - 1) / 2 for j in range(len(columns or ()))]
    axes.set_xticks(ticks, columns or ())
    return picture
