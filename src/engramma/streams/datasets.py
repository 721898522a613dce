"""Labelled data: MNIST's four original files, scikit-learn's digits, or the user's own arrays."""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MNIST = {  # file: SHA-256 of the gzipped original
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"


class DataError(ValueError):
    """A data set is missing, damaged or too small. The message says which and what to do."""


class Missing(DataError):
    """It is not where it was looked for, and could not be fetched."""


@dataclass(frozen=True)
class Dataset:
    """Items x (n,P) and classes y (n,) numbered from 0; `shape` says how a row is an image."""

    name: str
    x: np.ndarray
    y: np.ndarray
    classes: int
    threshold: float = 0.0  # a pixel above it is on
    shape: tuple[int, int] | None = None
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.x)

    def digest(self) -> str:
        state = hashlib.sha256(np.ascontiguousarray(self.x).tobytes())
        state.update(np.ascontiguousarray(self.y, dtype=np.int64).tobytes())
        return state.hexdigest()


def is_place(name: str) -> bool:
    """Whether these are data of the user's own, by their path: an .npz file, or a folder, with a slash."""
    return name.endswith(".npz") or "/" in name or os.sep in name


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """`mnist`, `digits`, or the path of an .npz file with arrays x and y."""
    if name == "digits":
        return digits()
    if name == "mnist":
        return mnist(data_dir)
    if name.endswith(".npz"):
        return from_npz(name)
    raise DataError(f"data must be mnist, digits or the path of an .npz file, not {name!r}")


def kept(name: str, data_dir: str | Path | None = None) -> Dataset:
    """`load`, but read once: a file of the user's own again where it has changed."""
    stamp = None
    with suppress(OSError, ValueError):
        found = os.stat(name)
        stamp = os.path.abspath(name), found.st_mtime_ns, found.st_size
    return _kept(name, str(data_dir) if data_dir else None, stamp)


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


def from_arrays(x: np.ndarray, y: np.ndarray, name: str = "own", threshold: float | None = None) -> Dataset:
    """The user's own: numbers x (n,P) or (n,H,W), and one label an item, of any kind. `threshold` None: the
    middle of their range."""
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim not in (2, 3) or len(x) == 0 or x.dtype.kind not in "buif":
        raise DataError(f"{name}: x must be numbers of shape (items, features) or (items, height, width)")
    if y.shape != (len(x),) or y.dtype.kind not in "buiUS":
        raise DataError(f"{name}: y must have one whole number or text label an item, {len(x)} in all")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataError(f"{name}: x must be finite; it has NaN or infinite entries")
    wide = x.dtype.kind == "f" and x.dtype.itemsize > 8
    x = x.astype(np.float64 if wide else x.dtype.newbyteorder("="), copy=False)  # what tensors can hold
    labels, codes = np.unique(y, return_inverse=True)
    shape = (x.shape[1], x.shape[2]) if x.ndim == 3 else None
    return Dataset(
        name,
        x.reshape(len(x), -1),
        codes.astype(np.int64),
        len(labels),
        middle(x) if threshold is None else threshold,
        shape,
        tuple(map(str, labels)),
    )


def from_npz(path: str | Path) -> Dataset:
    """An .npz with arrays `x` and `y`. Never unpickled."""
    path = Path(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as data:
            missing = {"x", "y"} - set(data.files)
            if missing:
                raise DataError(f"{path}: no array named {' or '.join(sorted(missing))} in it")
            return from_arrays(data["x"], data["y"], path.stem)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except DataError:
        raise
    except Exception as error:  # numpy raises many kinds for a damaged or pickled archive
        raise DataError(f"{path}: not an .npz of plain arrays x and y ({error})") from None


def mnist(data_dir: str | Path | None = None) -> Dataset:
    """MNIST's 60,000 training and 10,000 test digits, as one set of 70,000."""
    folder = mnist_folder(data_dir)
    try:
        parts = [_idx(folder / file) for file in MNIST]
    except (OSError, EOFError, struct.error, ValueError) as error:
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


def _idx(path: Path) -> np.ndarray:
    raw = gzip.decompress(path.read_bytes())
    dimensions = raw[3]
    shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
