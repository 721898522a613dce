"""What a data set looks like before anything is learned of it, and what would make learning hard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engramma.streams.datasets import Dataset, check_apart
from engramma.streams.errors import DataError

FEW = 20  # items a class: fewer say little
SHADES = " .:-=+*#%@"


@dataclass(frozen=True)
class Look:
    """What there is to say of a data set at a threshold."""

    low: float
    high: float
    on: float  # share of all pixels
    dead: int  # pixels that are the same in all items
    counts: tuple[int, ...]  # items of each class
    twins: int  # items that are, exactly, an earlier one
    alike: int  # items that become an earlier one's state at the threshold
    torn: int  # of these, such as have another class than the earlier one
    warnings: tuple[str, ...]
    fault: str  # why it cannot be learned; empty where it can


def look(data: Dataset, threshold: float | None = None) -> Look:
    """At a data set, cut at its own threshold or at another."""
    cut = data.threshold if threshold is None else threshold
    on = data.x > cut
    low, high = float(data.x.min()), float(data.x.max())
    counts = np.bincount(data.y, minlength=data.classes)
    twins, _ = _again(data.x, data.y)
    alike, torn = _again(np.packbits(on, axis=1), data.y)
    dead = int((on == on[0]).all(0).sum())
    found = Look(low, high, float(on.mean()), dead, tuple(counts.tolist()), twins, alike, torn, (), "")
    try:
        check_apart(data.name, data.x, cut)
        fault = "" if data.classes > 1 else "all items are of one class: there is nothing to tell apart"
    except DataError as error:
        fault = str(error).partition(": ")[2]
    return Look(**{**found.__dict__, "warnings": tuple(_warnings(data, found)), "fault": fault})


def _again(rows: np.ndarray, y: np.ndarray) -> tuple[int, int]:
    """How many rows repeat an earlier one, and how many of these have another class than it."""
    flat = np.ascontiguousarray(rows)
    view = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    _, first, place = np.unique(view, return_index=True, return_inverse=True)
    origin = first[place.ravel()]
    again = origin != np.arange(len(rows))
    return int(again.sum()), int((again & (y != y[origin])).sum())


def _warnings(data: Dataset, found: Look) -> Iterator[str]:
    count = len(data)
    if not 0.05 <= found.on <= 0.95:
        yield f"{found.on:.0%} of pixels are on: items look alike; try --threshold, or --no-binary for greys"
    if found.dead > data.x.shape[1] / 2:
        yield f"{found.dead} of {data.x.shape[1]} pixels are the same in all items"
    if data.shape is None and (odd := _scales(data)):
        yield odd
    if found.alike > count / 20:
        yield (
            f"{found.alike} of {count} items are the same as another once they are on or off"
            + (f", {found.torn} of them of another class" if found.torn else "")
        )
    elif found.twins:
        yield f"{found.twins} items are exact copies of another: they may be learned and tested on"
    if min(found.counts) < FEW:
        small = [data.named(c) for c in np.argsort(found.counts, kind="stable") if found.counts[c] < FEW]
        yield f"fewer than {FEW} items of {', '.join(small[:5])}{', ...' if len(small) > 5 else ''}"
    if max(found.counts) > 5 * min(found.counts):
        yield "classes are of very different size: look at macro_f1 beside accuracy (engramma table --score)"


def _scales(data: Dataset) -> str:
    """Whether columns have scales of their own, so that one threshold cannot be for all."""
    spans = np.ptp(data.x.astype(np.float64), axis=0)
    spans = spans[spans > 0]
    if len(spans) and spans.max() > 10 * np.median(spans):
        return (
            f"features have ranges from {spans.min():.3g} to {spans.max():.3g}, and one threshold for all: "
            "bring them to one scale first (engramma.dataset does it for a DataFrame)"
        )
    return ""


def samples(data: Dataset, across: int, seed: int = 0) -> list[np.ndarray]:
    """Item numbers, `across` for each class (or all there are), drawn by a seed."""
    draw = np.random.default_rng(seed)
    return [np.sort(draw.permutation(np.flatnonzero(data.y == c))[:across]) for c in range(data.classes)]


def image(data: Dataset, item: int) -> np.ndarray:
    """An item as a picture; one that is none, as a row as wide as may be seen."""
    if data.shape:
        return data.x[item].reshape(data.shape)
    width = math.ceil(math.sqrt(data.x.shape[1]))
    padded = np.full(width * math.ceil(data.x.shape[1] / width), float(data.x.min()))
    padded[: data.x.shape[1]] = data.x[item]
    return padded.reshape(-1, width)


def letters(picture: np.ndarray, low: float, high: float, wide: int = 14) -> list[str]:
    """A picture in the letters of a terminal, which are twice as high as wide: lines of `wide` letters."""
    rows, columns = picture.shape
    tall = max(1, round(rows * wide / columns / 2))
    down = np.linspace(0, rows, tall + 1).astype(int)
    right = np.linspace(0, columns, wide + 1).astype(int)
    lines = []
    for top, end in pairwise(down):
        part = picture[top : max(end, top + 1)]
        mean = [float(part[:, a : max(b, a + 1)].mean()) for a, b in pairwise(right)]
        shade = [(v - low) / (high - low) if high > low else 0.0 for v in mean]
        lines.append("".join(SHADES[min(int(s * len(SHADES)), len(SHADES) - 1)] for s in shade))
    return lines
