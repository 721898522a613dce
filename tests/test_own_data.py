"""Data of one's own: read from files, arrays, tables and data sets, looked at, and held to by records."""

from __future__ import annotations

import gzip
import re
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset
from typer.testing import CliRunner, Result

import engramma as en
from engramma.cli import app
from engramma.replicas import Replicas
from engramma.store.records import Store
from engramma.streams import ClassStream, StateStream, idx, look
from engramma.streams.datasets import GREY, Dataset, from_arrays, from_npz, kept, load, middle
from engramma.streams.errors import DataError
from engramma.streams.own import ranks

LINE = "run --data own.npz --items 40 --tasks 2 --memories 4 --epochs 2 --seeds 2 --device cpu"
RANDOM = np.random.default_rng(0)
PICTURES = RANDOM.integers(0, 256, (60, 6, 5), np.uint8)
CLASSES = np.arange(60) % 3


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def engramma(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


# Images with channels, and shapes


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", ["u1", "f4", "f8", "i4"])
def test_colours_are_made_grey(first: bool, kind: str) -> None:
    """As bright as they look, of the same kind of number, wherever the channels are."""
    x = RANDOM.integers(0, 256, (20, 6, 5, 3)).astype(kind)
    found = from_arrays(np.moveaxis(x, 3, 1) if first else x, CLASSES[:20])
    assert found.shape == (6, 5)
    bright = sum(part * x[..., c].astype(float) for c, part in enumerate(GREY))
    tolerance = 0.5 if x.dtype.kind in "ui" else 1e-4
    np.testing.assert_allclose(found.x.reshape(bright.shape), bright, atol=tolerance + 1e-9)
    assert found.x.dtype.kind == x.dtype.kind
    even = np.repeat(PICTURES[..., None], 3, 3)  # grey already, and so it stays
    assert (from_arrays(even, CLASSES).x == PICTURES.reshape(60, -1)).all()


def test_one_channel_is_left_out() -> None:
    for x in (PICTURES[..., None], PICTURES[:, None]):
        found = from_arrays(x, CLASSES)
        assert found.shape == (6, 5)
        assert (found.x == PICTURES.reshape(60, -1)).all()
        assert found.came == x.shape


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.zeros((4, 5, 6, 7)), CLASSES[:4], r"with 1 channel \(grey\) or 3 .*, not .* \(4, 5, 6, 7\)"),
        (np.zeros((4, 5, 6, 4)), CLASSES[:4], r"not float64 of shape \(4, 5, 6, 4\)"),
        (np.zeros((2, 3, 4, 5, 6)), CLASSES[:2], r"x must be .*height, width.*not .* \(2, 3, 4, 5, 6\)"),
        (np.zeros((4, 0)), CLASSES[:4], r"not float64 of shape \(4, 0\)"),
        (np.array([["a"]]), CLASSES[:1], r"not <U1 of shape \(1, 1\)"),
        (PICTURES, CLASSES[:50], r"y must have one .* 60 in all, not int64 of shape \(50,\)$"),
        (PICTURES, np.eye(60), r"of shape \(60, 60\) \(y.argmax\(1\), if"),
        (PICTURES, CLASSES / 1.0, r"not float64 of shape \(60,\) \(y.astype\(int\)"),
    ],
)  # fmt: skip
def test_errors_name_the_shape_that_came_and_the_shape_wanted(x: Any, y: Any, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        from_arrays(x, y)
    assert "\n" not in str(caught.value)


def test_classes_in_a_column_are_classes() -> None:
    assert (from_arrays(PICTURES, CLASSES[:, None]).y == CLASSES).all()


# Names of classes


def test_classes_have_names_by_their_number_or_in_their_order() -> None:
    by_number = from_arrays(PICTURES, CLASSES + 2, names=["a", "b", "c", "d", "e"])
    assert by_number.labels == ("c", "d", "e")  # of classes 2, 3 and 4: there may be others
    in_order = from_arrays(PICTURES, CLASSES * 100 - 7, names=["a", "b", "c"])
    assert in_order.labels == ("a", "b", "c")
    assert [in_order.named(c) for c in range(3)] == ["a", "b", "c"]
    assert from_arrays(PICTURES, CLASSES).labels == ("0", "1", "2")


@pytest.mark.parametrize("names", [["a", "b"], [1, 2, 3], [["a", "b", "c"]]])
def test_names_that_do_not_fit_are_refused(names: Any) -> None:
    with pytest.raises(DataError, match="names must be texts, one for each of the 3 classes, not"):
        from_arrays(PICTURES, CLASSES, names=names)


def test_names_stand_in_the_file_and_in_the_report() -> None:
    np.savez("own.npz", x=PICTURES, y=CLASSES, names=["cat", "dog", "eel"])
    assert from_npz("own.npz").labels == ("cat", "dog", "eel")
    assert engramma(f"{LINE} --keep-memories").exit_code == 0
    assert engramma("report --out r.html").exit_code == 0
    assert '["cat","dog","eel"]' in Path("r.html").read_text().replace(", ", ",")


# Files


def write_idx(path: Path, x: np.ndarray, packed: bool = False) -> None:
    kind = next(k for k, name in idx.KINDS.items() if np.dtype(name) == x.dtype)
    raw = struct.pack(f">4B{x.ndim}I", 0, 0, kind, x.ndim, *x.shape) + x.tobytes()
    path.write_bytes(gzip.compress(raw) if packed else raw)


NAMES = [  # (images, labels) of training and of test items
    (("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
     ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")),
    (("train-images.idx3-ubyte", "train-labels.idx1-ubyte"),
     ("test-images.idx3-ubyte", "test-labels.idx1-ubyte")),
    (("images_train", "labels_train"), ("images_test", "labels_test")),
    (("emnist-letters-train-images-idx3-ubyte", "emnist-letters-train-labels-idx1-ubyte"),
     ("emnist-letters-test-images-idx3-ubyte", "emnist-letters-test-labels-idx1-ubyte")),
]  # fmt: skip


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("half", [40, 30], ids=["as many", "more"])
def test_a_folder_of_idx_files_of_any_names(here: Path, names: Any, half: int) -> None:
    """Also where both parts are equally large, and nothing but names tells whose labels are whose."""
    place, classes = here / "fashion", RANDOM.integers(0, 3, 60)
    place.mkdir()
    (place / "readme.txt").write_text("not one of them")
    for (images, labels), part in zip(names, (slice(None, half), slice(half, None)), strict=True):
        write_idx(place / images, PICTURES[part], images.endswith(".gz"))
        write_idx(place / labels, classes[part].astype("u1"), labels.endswith(".gz"))
    found = load("./fashion")
    assert (found.name, found.shape, found.classes) == ("fashion", (6, 5), 3)
    assert (found.x == PICTURES.reshape(60, -1)).all()
    assert (found.y == classes).all()
    assert found.threshold == middle(PICTURES)


@pytest.mark.parametrize("kind", idx.KINDS.values())
def test_idx_files_of_any_kind_of_number(here: Path, kind: str) -> None:
    x = RANDOM.integers(0, 100, (4, 3, 2)).astype(kind)
    write_idx(here / "x", x)
    assert (idx.file(here / "x") == x).all()


def test_a_folder_that_also_has_them_unpacked(here: Path) -> None:
    for name, x in (("images", PICTURES), ("labels", CLASSES.astype("u1"))):
        write_idx(here / name, x)
        write_idx(here / f"{name}.gz", x, packed=True)
    assert len(load("./")) == 60


def test_folders_that_are_refused(here: Path) -> None:
    for name in ("empty", "one", "many", "sizes", "counts", "cut", "short"):
        (here / name).mkdir()
    write_idx(here / "one" / "images", PICTURES)
    for part in "abc":
        write_idx(here / "many" / f"{part}-images", PICTURES)
        write_idx(here / "many" / f"{part}-labels", CLASSES.astype("u1"))
    for k, wide in enumerate((5, 4)):
        write_idx(here / "sizes" / f"images{k}", PICTURES[:, :, :wide])
        write_idx(here / "sizes" / f"labels{k}", CLASSES.astype("u1"))
    write_idx(here / "counts" / "images", PICTURES)
    write_idx(here / "counts" / "labels", CLASSES[:50].astype("u1"))
    write_idx(here / "cut" / "images", PICTURES)
    (here / "cut" / "images").write_bytes((here / "cut" / "images").read_bytes()[:-1])
    write_idx(here / "short" / "images.gz", PICTURES, packed=True)
    (here / "short" / "images.gz").write_bytes((here / "short" / "images.gz").read_bytes()[:-20])
    for name, says in {
        "./empty": "it has none",
        "./one": r"must hold IDX files of one data set.* it has images \(60, 6, 5\)",
        "./many": "must hold IDX files of one data set",
        "./sizes": "images must be of one size",
        "./counts": "no labels are as many as the 60 of images",
        "./cut": r"images says shape \(60, 6, 5\), 1800 bytes, and has 1799",
        "./short": "images.gz is cut short or damaged",
        "./nowhere": "there is no such folder",
        "./one/images": "is no folder, and no .npz file",
    }.items():
        with pytest.raises(DataError, match=says) as caught:
            load(name)
        assert "\n" not in str(caught.value)


def test_a_folder_is_named_with_a_slash(here: Path) -> None:
    """So that a description says by itself whether data are one's own, whatever lies where it is read."""
    (here / "fashion").mkdir()
    said = engramma("run --data fashion").stderr
    assert "data must be a folder's path to be read from it: ./fashion, not 'fashion'" in said
    assert "it has none" in engramma("run --data ./fashion --items 10").stderr


def test_a_folder_is_read_again_where_a_file_in_it_was_changed(here: Path) -> None:
    for y in (CLASSES, CLASSES % 2):
        write_idx(here / "images", PICTURES)
        write_idx(here / "labels", y.astype("u1"), packed=bool(y.max() == 1))
        assert kept("./").classes == len(set(y))
        assert kept("./") is kept("./")


def test_training_and_test_arrays_in_one_file_are_one_set() -> None:
    np.savez(
        "four.npz", x_train=PICTURES[:40], y_train=CLASSES[:40], x_test=PICTURES[40:], y_test=CLASSES[40:]
    )
    found = load("four.npz")
    assert (found.x == PICTURES.reshape(60, -1)).all()
    assert (found.y == CLASSES).all()
    np.savez("other.npz", images=PICTURES, labels=CLASSES)
    with pytest.raises(DataError, match="no array named x or y in it; it has images, labels"):
        load("other.npz")


# From arrays, tables and data sets


class Frame:
    """As much of a pandas DataFrame as is asked for."""

    def __init__(self, **columns: Any) -> None:
        self.held = columns
        self.columns = list(columns)

    def __getitem__(self, column: str) -> Any:
        class Series:
            to_numpy = staticmethod(lambda: np.asarray(self.held[column]))

        return Series

    def to_numpy(self) -> np.ndarray:
        return np.stack([np.asarray(c) for c in self.held.values()], 1)


def frames() -> list[Any]:
    try:
        import pandas  # type: ignore[import-not-found]
    except ImportError:
        return [Frame]
    return [Frame, lambda **columns: pandas.DataFrame(columns)]


@pytest.mark.parametrize("make", frames())
def test_a_table(make: Any) -> None:
    """Columns of any scale: half of each is on, and the order within a column is kept."""
    texts = np.array(["red", "blue", "red", "green"] * 15, dtype=object)
    columns = {
        "a": RANDOM.normal(size=60),
        "b": 1e6 * RANDOM.normal(size=60) ** 3,
        "c": RANDOM.random(60) > 0.8,
    }
    found = en.dataset(make(**columns, kind=texts), "kind")
    assert found.labels == ("blue", "green", "red")
    assert found.x.shape == (60, 3)
    on = (found.x > found.threshold).mean(0)
    np.testing.assert_allclose(on[:2], 0.5)
    assert on[2] == columns["c"].mean()
    for k, column in enumerate(columns.values()):
        assert (np.argsort(found.x[:, k], kind="stable") == np.argsort(column, kind="stable")).all()
    same = en.dataset(make(**columns), texts)
    assert (same.x == found.x).all()
    assert (same.y == found.y).all()
    for table, y, says in (
        (make(**columns), "kind", "y must be a column of the table, one of a, b, c, not 'kind'"),
        (make(a=texts, kind=texts), "kind", "column 'a' must be of numbers"),
        (make(a=np.full(60, np.nan), kind=texts), "kind", "column 'a' must be finite"),
        (make(kind=texts), "kind", "at least one column"),
        (make(**columns), None, "y must be given"),
    ):
        with pytest.raises(ValueError, match=says):
            en.dataset(table, y)


def test_ranks() -> None:
    assert ranks(np.array([3.0, 1.0, 2.0, 1.0])).tolist() == [0.875, 0.25, 0.625, 0.25]
    assert ranks(np.array([5.0] * 3)).tolist() == [0.5] * 3


def test_a_torch_data_set() -> None:
    pairs = TensorDataset(torch.as_tensor(PICTURES)[:, None], torch.as_tensor(CLASSES))
    found = en.dataset(pairs)
    assert (found.x == PICTURES.reshape(60, -1)).all()
    assert (found.y == CLASSES).all()
    assert found.labels == ("0", "1", "2")
    pairs.classes = ["cat", "dog", "eel"]  # type: ignore[attr-defined]
    assert en.dataset(pairs).labels == ("cat", "dog", "eel")
    assert en.dataset(pairs, names=["x", "y", "z"]).labels == ("x", "y", "z")
    with pytest.raises(ValueError, match="y must be left out"):
        en.dataset(pairs, CLASSES)
    with pytest.raises(DataError, match="must be a Dataset of pairs"):
        en.dataset(TensorDataset(torch.zeros(3, 2)))


def test_tensors_and_lists() -> None:
    found = en.dataset(torch.as_tensor(PICTURES), torch.as_tensor(CLASSES))
    assert (found.x == PICTURES.reshape(60, -1)).all()
    assert (en.dataset(PICTURES.tolist(), CLASSES.tolist()).x == found.x).all()
    with pytest.raises(ValueError, match="y must be given"):
        en.dataset(PICTURES)


@pytest.mark.parametrize(
    "data",
    [
        from_arrays(PICTURES, CLASSES, names=["cat", "dog", "eel"]),
        from_arrays(PICTURES[..., None].repeat(3, 3) / 7, CLASSES * 5),
        from_arrays(RANDOM.normal(size=(60, 4)), np.array(["b", "a"] * 30)),
    ],
)
def test_what_is_saved_is_what_is_read(data: Dataset, here: Path) -> None:
    """And a stream of either learns the same."""
    path = data.save("deep.npz")
    found = load(path)
    assert path == "deep.npz"
    assert (found.digest(), found.labels, found.shape, found.threshold) == (
        data.digest(), data.labels, data.shape, data.threshold,
    )  # fmt: skip
    assert [p.name for p in here.iterdir()] == ["deep.npz"]
    with pytest.raises(ValueError, match=r"path must end in \.npz"):
        data.save("deep")


# What a record is held to


def test_data_may_not_change_under_their_records(here: Path) -> None:
    en.dataset(PICTURES, CLASSES).save("own.npz")
    assert "2 runs trained" in engramma(LINE).stdout
    en.dataset(PICTURES, CLASSES).save("own.npz")  # written again, and the same
    assert "2 found" in engramma(LINE).stdout
    changed = PICTURES.copy()
    changed[0, 0, 0] ^= 255
    en.dataset(changed, CLASSES).save("own.npz")
    done = engramma(LINE)
    assert done.exit_code == 2
    assert re.search(r"own.npz is no longer what run [0-9a-f]{8} learned", done.stderr)
    assert "2 runs trained" in engramma(f"{LINE} --store more").stdout
    assert engramma(f"{LINE} --vertex 5").exit_code == 0  # nothing was learned of the old ones there
    (here / "own.npz").unlink()
    assert "2 found" in engramma(LINE).stdout  # nothing to hold them to, and nothing to train


def test_memories_are_not_shown_beside_other_data() -> None:
    en.dataset(PICTURES, CLASSES).save("own.npz")
    assert engramma(f"{LINE} --keep-memories").exit_code == 0
    assert engramma("figure memories").exit_code == 0
    en.dataset(PICTURES[::-1], CLASSES).save("own.npz")
    done = engramma("figure memories")
    assert done.exit_code == 2
    assert "own.npz is no longer what run" in done.stderr


def test_a_run_that_was_broken_off_does_not_go_on_with_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    en.dataset(PICTURES, CLASSES).save("own.npz")
    run = en.Experiment(data="own.npz", items=40, tasks=3, memories=4, epochs=3)
    whole = en.run(run, processes=1).accuracy

    def broken(store: Store) -> None:
        from engramma.runs import pack, study
        from engramma.runs.options import Options

        close = pack.Shelf.keep

        def stop(shelf: Any, moment: Any, ledger: Any) -> None:  # fmt: skip
            close(shelf, moment, ledger)
            if moment.task == 1:
                raise KeyboardInterrupt

        with monkeypatch.context() as change:
            change.setattr(pack.Shelf, "keep", stop)
            with pytest.raises(KeyboardInterrupt):
                study.run([run], store, Options())

    broken(Store("same"))
    assert (en.run(run, "same").accuracy == whole).all()
    broken(Store("other"))
    en.dataset(PICTURES[::-1], CLASSES).save("own.npz")
    fresh = en.run(run, processes=1).accuracy
    assert (fresh != whole).any()
    assert (en.run(run, "other").accuracy == fresh).all()
    assert list(Path("other", "set-aside").iterdir())


# engramma data check


def test_check_says_what_there_is(here: Path) -> None:
    x = np.concatenate([PICTURES, PICTURES[:2]])
    x[..., 0] = 0  # a column of pixels that nobody uses
    np.savez("own.npz", x=x, y=np.r_[CLASSES, 1, 1], names=["cat", "dog", "eel"])
    done = engramma("data check own.npz")
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    share = (x > middle(x)).mean()
    for part in (
        "own.npz: 62 items of 6 x 5 pixels",
        f"uint8 of shape (62, 6, 5), 0 to {x.max()}",
        f"{middle(x):g}, the middle of 0 to {x.max()}: above it a pixel is on",
        f"{share:.1%} of all pixels; 6 pixels are the same in all items",
        "2 items are copies of another",
        "3, with so many items: cat 20, dog 22, eel 20",
        "engramma run --data own.npz --items 62",
    ):
        assert part in said
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert (here / "own-check.png").read_bytes().startswith(b"\x89PNG")
    assert "threshold 200, as you say" in " ".join(
        engramma("data check own.npz --threshold 200").stdout.split()
    )


def test_check_fails_where_nothing_can_be_learned() -> None:
    np.savez("flat.npz", x=np.ones((40, 5)), y=np.arange(40) % 2)
    done = engramma("data check flat.npz --out sheet.png")
    assert done.exit_code == 1
    assert "only 0 of 40 items differ from the rest" in done.stderr
    np.savez("alone.npz", x=PICTURES, y=np.zeros(60, int))
    assert "nothing to tell apart" in engramma("data check alone.npz").stderr
    for line, says in (
        ("data check digts", "did you mean digits"),
        ("data check nothing.npz", "no such file"),
        ("data check alone.npz --out sheet.jpg", "out must end in .png"),
    ):
        done = engramma(line)
        assert done.exit_code == 2
        assert says in done.stderr


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (PICTURES / 1.0 + 1e4 * (np.arange(1800) == 7).reshape(60, 6, 5), CLASSES, "0% of pixels are on"),
        (RANDOM.normal(size=(60, 4)) * [1, 1, 1, 1e4], CLASSES, "bring them to one scale first"),
        (PICTURES, np.r_[np.zeros(50, int), np.arange(10) % 2], "of very different size"),
        (PICTURES[:30], CLASSES[:30], "fewer than 20 items of 0, 1, 2"),
        (np.repeat(PICTURES[:20], 3, 0), np.arange(60) % 3, "40 of 60 items .* 40 of them of another class"),
        (np.pad(PICTURES, ((0, 0), (0, 20), (0, 0))), CLASSES, "100 of 130 pixels are the same in all items"),
    ],
)  # fmt: skip
def test_look_warns_of_what_makes_learning_hard(x: Any, y: Any, says: str) -> None:
    found = look.look(from_arrays(x, y))
    assert any(re.search(says, warning) for warning in found.warnings), found.warnings
    sound = look.look(from_arrays(PICTURES, CLASSES))
    assert sound.warnings == ()
    assert sound.fault == ""


def test_letters_are_darker_where_the_picture_is() -> None:
    picture = np.zeros((8, 8))
    picture[:, :4] = 1
    assert look.letters(picture, 0, 1, wide=8) == ["@@@@    "] * 4
    assert look.letters(picture.T, 0, 1, wide=8) == ["@" * 8] * 2 + [" " * 8] * 2
    assert look.letters(np.zeros((3, 3)), 0, 0, wide=6) == [" " * 6] * 3


# Elsewhere


def test_a_stream_without_avalanche(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "avalanche", None)
    with pytest.raises(ValueError, match="avalanche must be installed for this: pip install avalanche-lib"):
        en.to_avalanche(stream())


def stream(seeds: tuple[int, ...] = (0,), **settings: Any) -> ClassStream:
    return ClassStream(from_arrays(PICTURES, CLASSES), Replicas(seeds), tasks=3, items=40, **settings)


@pytest.mark.parametrize("task_id", [True, False])
def test_a_stream_as_avalanche_has_it(task_id: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many of that library's names as are used."""
    benchmarks, utils = ModuleType("avalanche.benchmarks"), ModuleType("avalanche.benchmarks.utils")
    utils.DataAttribute = lambda data, name, use_in_getitem=False: (name, data, use_in_getitem)  # type: ignore[attr-defined]
    utils.AvalancheDataset = lambda parts, data_attributes: (parts[0], data_attributes)  # type: ignore[attr-defined]
    benchmarks.benchmark_from_datasets = dict  # type: ignore[attr-defined]
    benchmarks.with_classes_timeline = lambda made: {**made, "timeline": True}  # type: ignore[attr-defined]
    benchmarks.with_task_labels = lambda made: {**made, "labels": True}  # type: ignore[attr-defined]
    for module in (ModuleType("avalanche"), benchmarks, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    ours = stream(task_id=task_id)
    made = en.to_avalanche(ours)
    assert made["timeline"]
    assert made["labels"]
    for part, size in (("train", 32), ("test", 8)):
        assert len(made[part]) == 3
        for task, (pairs, about) in enumerate(made[part]):
            items = getattr(ours[task], part)
            x, y = pairs.tensors
            assert x.shape == (size, 1, 6, 5)
            assert x.dtype == torch.float32
            assert (x.flatten(1) == items.probe[0, :, :30]).all()
            assert (items.target[0, range(size), y] == 1).all()
            number = task if task_id else 0
            assert about == [("targets", y.tolist(), False), ("targets_task_labels", [number] * size, True)]
    with pytest.raises(ValueError, match="stream must be of one seed, not of 2"):
        en.to_avalanche(stream((0, 1)))


def test_states_are_no_classes() -> None:
    with pytest.raises(ValueError, match="stream must be of classes"):
        en.to_avalanche(StateStream(Replicas((0,))))  # type: ignore[arg-type]
