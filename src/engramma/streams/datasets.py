"""Labelled data: MNIST's four original files, scikit-learn's digits, or the user's own.

Data of the user's own are named by their path: an .npz file, or a folder of IDX files (idx.py).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engramma.streams.errors import DataError, Missing
from engramma.streams.idx import file as idx_file
from engramma.streams.idx import folder as idx_folder

MNIST = {  # file: SHA-256 of the gzipped original
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"


@dataclass(frozen=True)
class Dataset:
    """Items x (n,P) and classes y (n,) numbered from 0; `shape` says how a row is an image."""

    name: str
    x: np.ndarray
    y: np.ndarray
    classes: int
    threshold: float = 0.0  # a pixel above it is on
    shape: tuple[int, int] | None = None
    labels: tuple[str, ...] = ()  # the names of the classes
    came: tuple[int, ...] = ()  # the shape of x as it was given

    def __len__(self) -> int:
        return len(self.x)

    def named(self, c: int) -> str:
        """What a class is called."""
        return self.labels[c] if self.labels else str(c)

    def digest(self) -> str:
        state = hashlib.sha256(np.ascontiguousarray(self.x).tobytes())
        state.update(np.ascontiguousarray(self.y, dtype=np.int64).tobytes())
        return state.hexdigest()

    def save(self, path: str | Path) -> str:
        """Write it as an .npz file that `Experiment(data=...)` and `--data` take. The path."""
        path = Path(path)
        if path.suffix != ".npz":
            raise ValueError(f"path must end in .npz, not {str(path)!r}")
        x = self.x.reshape(len(self), *self.shape) if self.shape else self.x
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(beside, "wb") as file:
                names = np.array(self.labels or [str(c) for c in range(self.classes)])
                np.savez_compressed(file, x=x, y=self.y, names=names)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        return str(path)


def is_path(name: str) -> bool:
    """Whether these are data of the user's own, by their path: an .npz file, or a folder, with a slash."""
    return name.endswith(".npz") or "/" in name or os.sep in name


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """`mnist`, `digits`, or by its path: an .npz file with arrays x and y, or a folder of IDX files."""
    if name == "digits":
        return digits()
    if name == "mnist":
        return mnist(data_dir)
    if name.endswith(".npz"):
        return from_npz(name)
    if is_path(name):
        return from_folder(name)
    raise DataError(f"data must be mnist, digits, an .npz file or a folder (./folder), not {name!r}")


def kept(name: str, data_dir: str | Path | None = None) -> Dataset:
    """`load`, but read once: a file of the user's own again where it has changed."""
    return _kept(name, str(data_dir) if data_dir else None, stamp(name))


def stamp(name: str) -> object:
    """Where a file or a folder is and when it was written; None of what is not there, or has a name alone."""
    with suppress(OSError, ValueError):
        inside = sorted(os.scandir(name), key=lambda entry: entry.name) if os.path.isdir(name) else []
        found = [entry.stat() for entry in inside] or [os.stat(name)]
        return os.path.abspath(name), tuple((each.st_mtime_ns, each.st_size) for each in found)
    return None


@functools.lru_cache(maxsize=2)
def _kept(name: str, data_dir: str | None, stamp: object) -> Dataset:
    del stamp
    return load(name, data_dir)


def middle(x: np.ndarray) -> float:
    """Half way between the least and the greatest number: a threshold that splits data wherever they lie."""
    return float(x.min()) / 2 + float(x.max()) / 2


def check_apart(name: str, x: np.ndarray, threshold: float) -> None:
    """Items of which all but one in twenty are the same state cannot be learned apart."""
    on = x > threshold
    common = on.mean(0) > 0.5  # the only state that most of them can share
    apart = len(x) - int((on == common).all(1).sum())
    if len(x) > 1 and 20 * apart <= len(x):
        raise DataError(
            f"{name}: only {apart} of {len(x)} items differ from the rest, which are one and the same state; "
            f"their range is {float(x.min()):g} to {float(x.max()):g}, the threshold {threshold:g}, "
            f"{on.mean():.0%} of pixels are on"
        )


def digits() -> Dataset:
    """1,797 digits of 8x8 pixels in 17 greys, shipped with scikit-learn: nothing is downloaded."""
    table = _shipped()
    x, y = table[:, :-1].astype(np.uint8), table[:, -1].astype(np.int64)
    # At half the ink: with any ink on, an 8x8 digit is mostly its own blur.
    return Dataset("digits", x, y, 10, 7, (8, 8))


def _shipped() -> np.ndarray:
    """(1797, 65) pixels and label. The file alone: importing scikit-learn takes two seconds."""
    spec = importlib.util.find_spec("sklearn")
    if spec and spec.origin:
        path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        with suppress(OSError, ValueError):
            return np.loadtxt(path, delimiter=",", dtype=np.int64)
    from sklearn.datasets import load_digits  # wherever it keeps them

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])  # type: ignore[union-attr]


WANTED = "(items, features) or (items, height, width), or images with 1 or 3 channels, last or first"
GREY = (0.299, 0.587, 0.114)  # of red, green and blue: how bright each looks (ITU-R BT.601)


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    name: str = "own",
    threshold: float | None = None,
    names: Sequence[str] | np.ndarray | None = None,
) -> Dataset:
    """The user's own: numbers x (n,P), (n,H,W), (n,H,W,C) or (n,C,H,W), and one label an item, of any kind.
    Colours are made grey. `threshold` None: the middle of their range. `names`: of the classes, in the order
    of their labels, or by their numbers."""
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim not in (2, 3, 4) or 0 in x.shape or x.dtype.kind not in "buif":
        raise DataError(f"{name}: x must be numbers of shape {WANTED}, not {_came(x)}")
    if y.shape == (len(x), 1):
        y = y[:, 0]
    if y.shape != (len(x),) or y.dtype.kind not in "buiUS":
        one_hot = y.ndim == 2 and len(y) == len(x)
        hint = " (y.argmax(1), if it has a column for each class)" if one_hot else ""
        if y.shape == (len(x),) and y.dtype.kind == "f":
            hint = " (y.astype(int), if they are classes)"
        raise DataError(
            f"{name}: y must have one whole number or text label an item, {len(x)} in all, "
            f"not {_came(y)}{hint}"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataError(f"{name}: x must be finite; it has NaN or infinite entries")
    wide = x.dtype.kind == "f" and x.dtype.itemsize > 8
    x = x.astype(np.float64 if wide else x.dtype.newbyteorder("="), copy=False)  # what tensors can hold
    came, x = x.shape, _grey(name, x) if x.ndim == 4 else x
    labels, codes = np.unique(y, return_inverse=True)
    return Dataset(
        name,
        x.reshape(len(x), -1),
        codes.astype(np.int64),
        len(labels),
        middle(x) if threshold is None else threshold,
        (x.shape[1], x.shape[2]) if x.ndim == 3 else None,
        _called(name, labels, names),
        came,
    )


def _came(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _grey(name: str, x: np.ndarray) -> np.ndarray:
    """Images (n,H,W,C) or (n,C,H,W) of 1 or 3 channels as (n,H,W), of the same kind of number."""
    last = x.shape[3] in (1, 3)  # where both are, the last one has the colours
    if not last and x.shape[1] not in (1, 3):
        raise DataError(
            f"{name}: x must be images with 1 channel (grey) or 3 (red, green, blue), the last axis or the "
            f"first after the items, not {_came(x)}"
        )
    x = x if last else np.moveaxis(x, 1, 3)
    if x.shape[3] == 1:
        return x[..., 0]
    bright = x.astype(np.float64) @ np.array(GREY)
    return np.rint(bright).astype(x.dtype) if x.dtype.kind in "ui" else bright


def _called(name: str, labels: np.ndarray, names: Sequence[str] | np.ndarray | None) -> tuple[str, ...]:
    """What the classes of these labels are called: each by its label where they have no names."""
    if names is None:
        return tuple(map(str, labels))
    given = np.asarray(names)
    if given.ndim == 1 and given.dtype.kind in "US":
        if labels.dtype.kind in "ui" and labels.min() >= 0 and labels.max() < len(given):
            return tuple(map(str, given[labels]))
        if len(given) == len(labels):
            return tuple(map(str, given))
    raise DataError(
        f"{name}: names must be texts, one for each of the {len(labels)} classes, not {_came(given)}"
    )


def from_npz(path: str | Path) -> Dataset:
    """An .npz with arrays `x` and `y` and, if it likes, the `names` of the classes; or with `x_train`,
    `y_train`, `x_test` and `y_test`, as one set. Never unpickled."""
    path = Path(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as data:
            there = set(data.files)
            ends = [e for e in ("_train", "_test") if {f"x{e}", f"y{e}"} <= there] if "x" not in there else []
            missing = {"x", "y"} - there
            if missing and not ends:
                raise DataError(
                    f"{path}: no array named {' or '.join(sorted(missing))} in it; it has "
                    f"{', '.join(data.files) or 'none'}"
                )
            x, y = (np.concatenate([data[f"{k}{e}"] for e in ends or [""]]) for k in "xy")
            return from_arrays(x, y, path.stem, names=data["names"] if "names" in there else None)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except DataError:
        raise
    except Exception as error:  # numpy raises many kinds for a damaged or pickled archive
        raise DataError(f"{path}: not an .npz of plain arrays x and y ({error})") from None


def from_folder(path: str | Path) -> Dataset:
    """A folder with images and labels as IDX files, plain or .gz: of MNIST's kind, whatever their names."""
    images, labels = idx_folder(Path(path))
    return from_arrays(images, labels, Path(path).resolve().name)


def mnist(data_dir: str | Path | None = None) -> Dataset:
    """MNIST's 60,000 training and 10,000 test digits, as one set of 70,000."""
    folder = mnist_folder(data_dir)
    try:
        parts = [idx_file(folder / file) for file in MNIST]
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"MNIST in {folder} is damaged: {error}") from None
    x = np.concatenate([parts[0].reshape(-1, 784), parts[2].reshape(-1, 784)])
    y = np.concatenate([parts[1], parts[3]]).astype(np.int64)
    return Dataset("mnist", x, y, 10, 0, (28, 28))


def mnist_folder(data_dir: str | Path | None = None) -> Path:
    """Where MNIST's files are: the folder given, $ENGRAMMA_DATA (either may hold them itself or in a
    folder `mnist`), the cache; fetched into the cache where they are nowhere."""
    given = data_dir or os.environ.get("ENGRAMMA_DATA")
    if given:
        for folder in (Path(given), Path(given) / "mnist"):
            if all((folder / file).is_file() for file in MNIST):
                _verify(folder)
                return folder
        raise Missing(f"data-dir {given}: MNIST's files are not there ({', '.join(MNIST)})")
    return _fetched()


def _fetched() -> Path:
    import pooch

    cache = pooch.os_cache("engramma") / "mnist"
    fetcher = pooch.create(cache, MIRROR, registry={k: f"sha256:{v}" for k, v in MNIST.items()})
    try:
        for file in MNIST:
            fetcher.fetch(file)
    except Exception as error:  # pooch passes on whatever its transport raised
        raise Missing(
            "MNIST could not be fetched; put its four files in a folder and name it with --data-dir "
            f"or ENGRAMMA_DATA ({type(error).__name__})"
        ) from None
    return cache


def _verify(folder: Path) -> None:
    for file, expected in MNIST.items():
        if hashlib.sha256((folder / file).read_bytes()).hexdigest() != expected:
            raise DataError(f"{folder / file} is damaged: its SHA-256 is not MNIST's")
