"""Data of one's own from whatever holds them: arrays, a table with columns, a PyTorch data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset as Sized

from engramma.streams.datasets import Dataset, from_arrays
from engramma.streams.errors import DataError


def dataset(x: Any, y: Any = None, names: Sequence[str] | None = None, name: str = "own") -> Dataset:
    """Data of one's own: what a `ClassStream` is made of, and what `save` makes a file of, for a run.

        data = en.dataset(x, y).save("mine.npz")
        en.run(en.Experiment(data=data, items=500))

    `x`: an array or a tensor, of shape (items, features) or (items, height, width), or images with 1 or 3
    channels, which are made grey; or a DataFrame, every column of which is a feature; or a PyTorch Dataset of
    pairs (item, class). `y`: one whole number or text an item; of a DataFrame, the name of the column; of a
    PyTorch Dataset, nothing. `names`: of the classes.

    A column of a DataFrame has a scale of its own, so its numbers become their rank among all items, from 0
    to 1: half of them is on. An array is taken as it is, and one threshold is for all of it.
    """
    if isinstance(x, Sized):
        if y is not None:
            raise ValueError("y must be left out: a PyTorch Dataset has its classes beside its items")
        x, y, names = _pairs(x, names)
    elif hasattr(x, "columns") and hasattr(x, "to_numpy"):
        x, y = _columns(x, y)
    if y is None:
        raise ValueError("y must be given: one class an item")
    return from_arrays(_plain(x), _classes(y), name, names=names)


def _plain(x: Any) -> np.ndarray:
    return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def _classes(y: Any) -> np.ndarray:
    """Labels as an array of numbers or texts: pandas has texts as objects, and lists of None among them."""
    y = _plain(y)
    return y.astype(str) if y.dtype.kind == "O" and all(isinstance(v, str) for v in y.ravel()) else y


def _pairs(pairs: Any, names: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray, Sequence[str] | None]:
    """The items, the classes and, where it has `classes` as torchvision's have, what these are called."""
    items, classes = [], []
    for k in range(len(pairs)):
        pair = pairs[k]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"x must be a Dataset of pairs (item, class), not of {type(pair).__name__}")
        items.append(_plain(pair[0]))
        classes.append(_plain(pair[1]))
    if shapes := {item.shape for item in items} - {items[0].shape} if items else {()}:
        raise DataError(f"x must be a Dataset of items of one shape, not of {len(shapes) + bool(items)}")
    called = getattr(pairs, "classes", None)
    if names is None and isinstance(called, list | tuple) and all(isinstance(c, str) for c in called):
        names = called
    return np.stack(items), np.stack(classes), names


def _columns(table: Any, y: Any) -> tuple[np.ndarray, Any]:
    """The columns of a table as ranks, and its classes: those of the column named, or as they are given."""
    columns = [c for c in table.columns if not (isinstance(y, str) and c == y)]
    if isinstance(y, str):
        if len(columns) == len(list(table.columns)):
            raise DataError(
                f"y must be a column of the table, one of {', '.join(map(str, columns))}, not {y!r}"
            )
        y = table[y].to_numpy()
    found = []
    for column in columns:
        values = np.asarray(table[column].to_numpy())
        if values.dtype.kind not in "buif":
            raise DataError(
                f"column {column!r} must be of numbers, not {values.dtype}: give each text a column of its "
                "own (pandas.get_dummies), or leave it out"
            )
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError(f"column {column!r} must be finite; it has missing or infinite entries")
        found.append(ranks(values))
    if not found:
        raise DataError("x must have at least one column beside the classes")
    return np.stack(found, 1), y


def ranks(values: np.ndarray) -> np.ndarray:
    """Between 0 and 1: the share of values that lie below each, and half of those that equal it."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return ((np.cumsum(counts) - counts / 2) / len(values))[place.ravel()]
