"""`import engramma as en`: what stands there, when it is imported, and what the few functions give."""

from __future__ import annotations

import ast
import builtins
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engramma as en
from engramma.runs import results
from engramma.store import scores

SMALL: dict[str, Any] = {"data": "digits", "items": 60, "tasks": 2, "memories": 6, "epochs": 6}


def loaded(code: str, *modules: str) -> set[str]:
    """Which of the modules a fresh Python has imported after the code."""
    code += f"\nimport sys; print(*[m for m in {modules!r} if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(said.stdout.splitlines()[-1].split())


HEAVY = ("torch", "pydantic", "numpy", "optuna", "sklearn", "numba", "typer", "pandas")


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    assert loaded("import engramma, engramma as en; dir(en)", *HEAVY) == set()
    assert loaded("import engramma as en; en.Experiment", *HEAVY) & {"torch", "optuna", "numba"} == set()
    assert "torch" in loaded("import engramma as en; en.METHODS", *HEAVY)
    command = "from engramma.cli import app\ntry: app(['--help'])\nexcept SystemExit: pass"
    assert loaded(command, *HEAVY) & {"torch", "optuna", "sklearn", "numba", "pandas"} == set()


def test_what_editors_see_is_what_python_gives() -> None:
    """Three lists: for type checkers, for `import *`, and of places. They agree, and all of it is there."""
    tree = ast.parse(Path(str(en.__file__)).read_text())
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    seen = {a.name: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    given = {name: f"engramma.{place}" for place, names in en._PLACES.items() for name in names}
    assert seen == given
    assert sorted(en.__all__) == sorted(given)
    assert set(en.__all__) <= set(dir(en))
    for name, module in given.items():
        assert getattr(en, name) is getattr(importlib.import_module(str(module)), name)


def test_a_name_that_is_not_there_is_answered_with_one_that_is() -> None:
    name = "Experimnt"
    with pytest.raises(AttributeError, match=r"no attribute 'Experimnt'; did you mean Experiment?"):
        getattr(en, name)
    assert not hasattr(en, "nothing_like_it")
    code = "from engramma import measures, Experiment; import engramma.runs.study; print(measures.average)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_grid_is_every_combination_seed_by_seed() -> None:
    base = en.Experiment(**SMALL, method="rehearsal")
    runs = base.grid(strength=np.array([0.1, 0.5]), seed=range(2), decay=(1, 0.9))
    assert [(e.seed, e.strength, e.decay) for e in runs] == [
        (s, g, n) for s in (0, 1) for g in (0.1, 0.5) for n in (1, 0.9)
    ]
    assert all(e.memories == 6 for e in runs)
    assert base.grid() == [base]
    assert base.grid(seed=4) == [base.but(seed=4)]
    with pytest.raises(ValueError, match="seed must be at least one value"):
        base.grid(seed=[])
    with pytest.raises(ValueError, match="unknown setting seeds; did you mean seed"):
        base.grid(seeds=[1])


def test_what_was_left_open_is_chosen_for_each_of_a_grid() -> None:
    """The paper's lambda is another at another vertex, and a method's settings are its own."""
    given = {"data": "digits", "method": "ewc"}
    runs = en.Experiment(**given).grid(vertex=[2, 20])  # type: ignore[arg-type]
    assert runs == [en.Experiment(**given, vertex=n) for n in (2, 20)]  # type: ignore[arg-type]
    assert runs[0].strength != runs[1].strength
    both = en.Experiment(data="digits").grid(method=["rehearsal", "vanilla"])
    assert [e.strength for e in both] == [0.05, None]
    mnist = en.Experiment(data="digits").grid(data=["digits", "mnist"])
    assert [e.items for e in mnist] == [1000, 10_000]


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^unknown setting memmories; did you mean memories?") as caught:
        en.Experiment(memmories=3)  # type: ignore[call-arg]
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def runs() -> list[en.Experiment]:
    return en.Experiment(**SMALL, method="rehearsal", strength=0.5).grid(seed=range(3))


@pytest.fixture(scope="module")
def result(runs: list[en.Experiment]) -> en.Result:
    return en.run(runs, kernel="reference")


def test_runs_without_a_store(runs: list[en.Experiment], result: en.Result) -> None:
    assert len(result) == 3
    assert result.accuracy.shape == (3, 2, 2)
    np.testing.assert_allclose(result.average, result.accuracy[:, -1].mean(-1))
    assert set(result.curves) == {"epoch", "accuracy", "macro_f1"}
    assert result.curves["accuracy"].shape == (3, len(result.curves["epoch"]), 2)
    np.testing.assert_array_equal(result.curves["accuracy"][:, -1], result.accuracy[:, -1])
    assert [record.experiment for record in result] == runs
    assert repr(result) == f"Result(3 runs, average {result.average.mean():.3f})"
    kept = en.run(runs[0], kernel="reference", keep_memories=True).records[0]
    assert kept.folder is None
    memories = kept.memories(1)
    assert memories is not None
    assert memories.shape == (6, 76)


def test_a_store_has_nothing_run_twice(
    runs: list[en.Experiment], result: en.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(results.study, "run_pack", lambda *a, **k: asked.append(a) or real(*a, **k))
    monkeypatch.chdir(tmp_path)
    first = en.run(iter(runs[1:]), store="runs", kernel="reference")
    assert asked
    asked.clear()
    again = en.run(runs[1:], store=en.Store("runs"), kernel="reference")
    assert not asked
    np.testing.assert_array_equal(first.accuracy, result.accuracy[1:])  # whatever was trained beside
    np.testing.assert_array_equal(again.accuracy, first.accuracy)
    en.run(runs[:1], store="more", kernel="reference")
    there = en.load(["runs", tmp_path / "more", "runs"])
    assert {record.name for record in there} == {e.name for e in runs}
    assert sorted(en.load().average) == sorted(first.average)
    with pytest.raises(ValueError, match="there are no records in nowhere"):
        en.load("nowhere")


real = results.study.run_pack


def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtins.__import__

    def found(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return there(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", found)


def test_frames(result: en.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pandas(monkeypatch)
    rows = result.frame()
    assert {len(column) for column in rows.values()} == {3}
    assert rows["run"] == [record.name for record in result]
    assert rows["seed"] == [0, 1, 2]
    assert rows["strength"] == [0.5] * 3
    assert rows["normalise"] == ["mean"] * 3
    assert rows["settings.sweep"] == [result.records[0].experiment.settings["sweep"]] * 3
    for measure in scores.MEASURES:
        assert rows[measure] == [scores.value(record, measure) for record in result]
    assert rows["diverged"] == [False] * 3
    np.testing.assert_array_equal([rows["final.0"], rows["final.1"]], result.accuracy[:, -1].T)
    before, untrained = result.accuracy[:, 0, 1], result.curves["accuracy"][:, 0, 1]
    np.testing.assert_allclose(rows["forward_transfer"], before - untrained)
    tables = result.frame("scores")
    assert list(tables) == ["run", "seed", "after", "task", "accuracy", "macro_f1"]
    np.testing.assert_array_equal(np.reshape(tables["accuracy"], (3, 2, 2)), result.accuracy)
    assert tables["after"][:4] == [0, 0, 1, 1]
    assert tables["task"][:4] == [0, 1, 0, 1]
    long = result.frame("curves")
    epochs = result.curves["epoch"].tolist()
    assert list(long) == ["run", "seed", "epoch", "task", "accuracy", "macro_f1"]
    assert {len(column) for column in long.values()} == {3 * len(epochs) * 2}
    for place in (0, len(epochs) + 3, 5 * len(epochs) - 1):
        seed, epoch, task = (long[name][place] for name in ("seed", "epoch", "task"))
        expected = result.curves["accuracy"][seed, epochs.index(epoch), task]
        assert long["accuracy"][place] == expected
    with pytest.raises(ValueError, match="frame must be of runs, scores or curves, not 'tasks'"):
        result.frame("tasks")


def test_runs_by_their_settings(result: en.Result) -> None:
    longer = en.run(en.Experiment(**{**SMALL, "epochs": 3}), kernel="reference")
    both = en.Result([*result, *longer])
    assert both[0].name == result[0].name
    assert [r.name for r in both.where(method="rehearsal", seed=[0, 2])] == [result[0].name, result[2].name]
    assert [r.name for r in both.where("rehearsal@0.5", seed=1)] == [result[1].name]
    parts = both.by("method")
    assert {name: len(part) for name, part in parts.items()} == {"rehearsal": 3, "vanilla": 1}
    assert list(both.by("method", "seed")) == [("rehearsal", s) for s in range(3)] + [("vanilla", 0)]
    with pytest.raises(ValueError, match="no run has the method ewc; theirs: rehearsal, vanilla"):
        both.where(method="ewc")


@pytest.mark.parametrize("method", ["vanilla", "allocation", "xdg"])
def test_a_run_is_opened_again(method: str, tmp_path: Path) -> None:
    """Its network and memories answer as they did: every score of every task after every task."""
    en.run(
        en.Experiment(**SMALL, method=method, seed=2), store=tmp_path, kernel="reference", keep_memories=True
    )
    (record,) = en.load(tmp_path)
    found = record.network()
    assert found.memories.shape == (2, found.built.theta.shape[1], found.network.neurons)
    for task in range(2):
        again = found.evaluate(task)
        assert set(again) == set(record.scores)
        for name, score in again.items():
            np.testing.assert_allclose(score, record.scores[name][task], atol=1e-12)
    said = found.network.respond(found.memories[-1:], found.stream[0].test.probe, 0).label
    truth = found.stream[0].test.target.argmax(-1)
    assert float((said == truth).double().mean()) == pytest.approx(found.evaluate()["accuracy"][0])


def test_a_run_that_cannot_be_opened(result: en.Result) -> None:
    with pytest.raises(ValueError, match="run with --keep-memories to keep them"):
        result[0].network()


def test_frames_are_pandas_where_it_is_there(result: en.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pandas:
        @staticmethod
        def DataFrame(columns: dict[str, list[Any]]) -> tuple[str, list[str]]:
            return "frame", list(columns)

    monkeypatch.setitem(sys.modules, "pandas", Pandas)  # type: ignore[arg-type]
    kind, columns = result.frame("curves")
    assert kind == "frame"
    assert columns[:2] == ["run", "seed"]


def test_unequal_runs(result: en.Result) -> None:
    """Of other lengths and other methods: numbers and rows as ever, one array only where there is one."""
    longer = en.run(en.Experiment(**{**SMALL, "tasks": 3, "epochs": 3}), kernel="reference")
    states = {"stream": "states", "size": 12, "items": 2, "memories": 2, "epochs": 2}
    mixed = en.Result([*result, *longer, *en.run(en.Experiment(**states), kernel="reference")])  # type: ignore[arg-type]
    assert np.isfinite(mixed.average).all()
    with pytest.raises(ValueError, match="runs must have equally many tasks to be one array"):
        _ = mixed.accuracy
    with pytest.raises(ValueError, match="runs must have the same curves"):
        _ = mixed.curves
    named = en.run(en.Experiment(**SMALL, method="allocation"), kernel="reference")
    beside = en.Result([result.records[0], *named]).curves["named"]  # a score that only one of them has
    assert np.isnan(beside[0]).all()
    np.testing.assert_array_equal(beside[1], named.curves["named"][0])
    assert np.isfinite(beside[1, 1:]).all()
    rows = mixed.frame()
    rows = rows if isinstance(rows, dict) else rows.to_dict("list")
    assert [str(m) for m in rows["method"]] == ["rehearsal"] * 3 + ["vanilla"] * 2
    assert len(rows["tasks"]) == 5
    diverged = en.run(en.Experiment(**SMALL, spread=1e20, vertex=30), kernel="reference")
    assert np.isnan(diverged.average).all()
    assert repr(diverged) == "Result(1 runs, all diverged)"


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([], "runs must be at least one Experiment"),
        ([{"data": "digits"}], "runs must be Experiments, not dict"),
    ],
)
def test_what_is_no_run(runs: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        en.run(runs)


def test_one_level_down(runs: list[en.Experiment], result: en.Result) -> None:
    setup = en.build(runs, kernel="reference")
    ends = [setup.stream.evaluate(m.network, m.theta)["accuracy"] for m in setup.train() if m.ends_task]
    np.testing.assert_allclose(np.stack([end.numpy() for end in ends], 1), result.accuracy)


def test_tuning(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    given: dict[str, Any] = {**SMALL, "store": tmp_path, "kernel": "reference"}
    two, three = en.tune("rehearsal", [2, 3], trials=2, seeds=1, **given)
    assert [(c.method, c.vertex, c.kind) for c in (two, three)] == [
        ("rehearsal", 2, "proportion"), ("rehearsal", 3, "proportion")]  # fmt: skip
    assert two.search["seeds"] == [1000]
    assert 0 <= float(two.values["strength"]) <= 1
    run = en.Experiment(**two.parts())
    assert (run.strength, run.memories, run.epochs) == (two.strength, 6, 6)
    assert len(en.load(tmp_path)) == 4
    (again,) = en.tune("rehearsal", trials=2, seeds=[1000], **given)
    assert again == two
    assert len(en.load(tmp_path)) == 4
    (narrow,) = en.tune("rehearsal", trials=1, seeds=1, span=(0.5, 0.75), **given)
    assert (narrow.search["range"], narrow.strength) == ([0.5, 0.75], 0.5)
    with pytest.raises(ValueError, match="method must have a strength to be tuned, and vanilla has none"):
        en.tune("vanilla")
    with pytest.raises(ValueError, match="spam"):
        en.tune("rehearsal", store=tmp_path, spam=2)
