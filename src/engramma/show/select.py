"""Records read as trials: which make up a cell, which a row, and what each scored.

Tables, figures and the report take plain lists of records and see them through these few functions. The
trials of a cell are runs that differ in nothing but their seed: of others there is no mean.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engramma.methods import METHODS
from engramma.paper import numbers as paper
from engramma.show import labels
from engramma.store.scores import Recorded, value
from engramma.store.select import setting, settings


def differing(records: Sequence[Recorded], free: Sequence[str] = ("seed",)) -> dict[str, list[Any]]:
    """{setting: its different values} of those settings in which records differ, but for `free`."""
    told = [settings(record) for record in records]
    names = sorted({name for one in told for name in one} - set(free))
    seen = {name: list({repr(one.get(name)): one.get(name) for one in told}.values()) for name in names}
    return {name: values for name, values in seen.items() if len(values) > 1}


def group(records: Iterable[Recorded], *names: str) -> dict[Any, list[Recorded]]:
    """Records by the named settings, sorted; the key is a tuple where several are named."""
    found: dict[Hashable, list[Recorded]] = {}
    for record in records:
        given = (setting(record, name) for name in names)
        key = tuple(v if isinstance(v, Hashable) else repr(v) for v in given)
        found.setdefault(key if len(names) > 1 else key[0], []).append(record)
    # None stands before every number, and numbers before words: a temperature may be "auto".
    order = sorted(
        found,
        key=lambda k: [(v is not None, isinstance(v, str), v) for v in (k if isinstance(k, tuple) else (k,))],
    )
    return {key: found[key] for key in order}


def check_alike(records: Sequence[Recorded], where: str, free: Sequence[str] = ("seed",)) -> None:
    """Trials of one cell may differ in `free` alone; averaging anything else would hide it."""
    for name, values in differing(records, free).items():
        raise ValueError(
            f"{where}: its records differ in {name} ({', '.join(map(repr, values[:3]))}"
            f"{', ...' if len(values) > 3 else ''}); only {' and '.join(free)} may differ"
        )


def is_proportion(method: str | None) -> bool:
    """Whether the method's strength is a share of the items (0 to 1), rather than a lambda."""
    return method in METHODS and METHODS[method].strength_kind == "proportion"


def strength(record: Recorded) -> float | None:
    """The lambda or proportion of a run: as described, else the method's own default."""
    given = setting(record, "strength")
    kind = METHODS.get(str(setting(record, "method")))
    if given is None and kind is not None and kind.strength_name is not None:
        settings = setting(record, "settings") or {}
        given = settings.get(kind.strength_name, getattr(kind, kind.strength_name))
    return None if given is None else float(given)


def in_paper(method: str) -> int:
    """The place of a method in the paper's tables; others come after its own."""
    order = list(paper.labels())
    return order.index(method) if method in order else len(order)


Row = tuple[str, float | None]  # (method, proportion or None): a row of Table 2, its own or one more


def row(method: str, strength: float | None) -> Row:
    return method, (strength if is_proportion(method) else None)


def row_of(record: Recorded) -> Row:
    return row(setting(record, "method"), strength(record))


def by_row(records: Iterable[Recorded]) -> dict[Row, list[Recorded]]:
    """Records by row: the paper's in its order, then any other."""
    found: dict[Row, list[Recorded]] = {}
    for record in records:
        found.setdefault(row_of(record), []).append(record)
    order = [row.key for row in paper.rows()]
    first = [key for key in order if key in found]
    return {key: found[key] for key in dict.fromkeys([*first, *found])}


def row_labels(records: Iterable[Recorded]) -> list[str]:
    """The rows that records belong to, as they are written: "GEM 0.5"."""
    return [labels.row(*key) for key in dict.fromkeys(map(row_of, records))]


def unlike_paper(records: Sequence[Recorded], names: Sequence[str] | None = None) -> list[str]:
    """Settings in which runs are not the paper's: then the comparison is of shape, not of numbers."""
    theirs = paper.setting()
    return [
        f"{name} {theirs[name]}"
        for name in names or theirs
        if {setting(record, name) for record in records} - {theirs[name]}
    ]


def deviation(trials: np.ndarray, axis: int = 0) -> np.ndarray:
    """Sample standard deviation; 0 of a single trial, for bands and whiskers."""
    return trials.std(axis, ddof=1) if trials.shape[axis] > 1 else np.zeros_like(trials.mean(axis))


class Curve(NamedTuple):
    """A response: mean and sample standard deviation of the trials at or around each x."""

    x: np.ndarray
    mean: np.ndarray
    sd: np.ndarray  # 0 where there is one trial
    window: int | None  # trials in a window; None where each x has trials of its own


def moving_window(x: np.ndarray, y: np.ndarray, width: int) -> Curve:
    """Trials sorted by x > 0, every `width` neighbours together, placed at their geometric mean."""
    order = np.argsort(x, kind="stable")
    near = np.lib.stride_tricks.sliding_window_view
    xs, ys = near(np.log(x[order]), width), near(y[order], width)
    return Curve(np.exp(xs.mean(-1)), ys.mean(-1), deviation(ys, -1), width)


def at_each(x: np.ndarray, y: np.ndarray) -> Curve:
    """Trials that share an x together."""
    places = np.unique(x)
    each = [y[x == place] for place in places]
    sd = np.array([deviation(part) for part in each])
    return Curve(places, np.array([part.mean() for part in each]), sd, None)


def response(
    records: Sequence[Recorded], window: int = 20, measure: str = "average", smooth: bool = False
) -> Curve:
    """How the runs answer to their strength. Strengths with trials of their own (a grid) are taken one
    by one; where most stand alone (a search), or with `smooth`, trials are taken together in a moving
    window of `window`, or of a fifth of them (3 at least) where that is fewer. Proportions are a grid."""
    pairs = [(strength(r), value(r, measure)) for r in records]
    kept = np.array([(s, v) for s, v in pairs if s is not None and np.isfinite(v)]).reshape(-1, 2)
    x, y = kept[:, 0], kept[:, 1]
    alone = 2 * len(np.unique(x)) > len(x)
    grid = not (alone or smooth) or is_proportion(setting(records[0], "method"))
    if not len(x) or grid or x.min() <= 0:
        return at_each(x, y)
    return moving_window(x, y, min(len(x), window, max(3, len(x) // 5)))
