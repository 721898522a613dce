"""A contact sheet: items of every class as they are, and as a network sees them, on or off."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from engramma.show.figures import style
from engramma.show.figures.memories import mosaic
from engramma.streams import look
from engramma.streams.datasets import Dataset

CLASSES, ACROSS = 20, 8  # at most


@style.styled
def contact_sheet(data: Dataset, threshold: float) -> Figure:
    """A row for each of the first twenty classes: its items on the left, at the threshold on the right."""
    chosen = look.samples(data, ACROSS)[:CLASSES]
    blank = np.full(look.image(data, 0).shape, np.nan)
    rows = [[look.image(data, i).astype(float) for i in some] for some in chosen]
    tiles = np.stack([np.stack((row + [blank] * ACROSS)[:ACROSS]) for row in rows])
    seen = np.where(np.isnan(tiles), np.nan, tiles > threshold)
    high, wide = tiles.shape[2:]
    gap = max(1, wide // 14)
    height = style.FULL / 2 * len(rows) * (high + gap) / (ACROSS * (wide + gap)) + 0.5
    figure = Figure(figsize=(style.FULL, max(height, 1.2)))
    axes = figure.subplots(1, 2)
    for place, shown, title in zip(axes, (tiles, seen), ("items", f"above {threshold:g}: on"), strict=True):
        place.imshow(mosaic(shown, gap), cmap="gray_r", interpolation="nearest", aspect="equal")
        place.set_title(title)
        place.set_xticks([])
        place.set_yticks([])
        place.grid(False)
        place.spines[:].set_visible(False)
    middles = np.arange(len(rows)) * (high + gap) + (high - 1) / 2
    axes[0].set_yticks(middles, [style.literal(data.named(c)[:24]) for c in range(len(rows))])
    axes[0].tick_params(axis="y", length=0)
    return figure
