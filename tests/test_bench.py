"""engramma bench: that it measures what it says, not how fast anything is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from engramma.cli import app
from engramma.runs import bench


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REST", 0.0)
    monkeypatch.setattr(bench, "WHILE", 0.0)


def engramma(line: str) -> Result:
    return CliRunner().invoke(app, ["bench", *shlex.split(line), "--device", "cpu"])


def test_every_case_is_a_row(tmp_path: Path) -> None:
    out = tmp_path / "new" / "bench.json"
    done = engramma(
        f"--items 5,7 --replicas 1,2 --vertex 3 --dtype float64 --memories 4 --rounds 1 --out {out}"
    )
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    assert found["torch"] == torch.__version__
    assert [(r["replicas"], r["items"]) for r in found["rows"]] == [(1, 5), (1, 7), (2, 5), (2, 7)]
    for row in found["rows"]:
        times = row["times"]
        assert set(times) == {"numpy", "torch", "step"}
        assert row["items_a_second"] == pytest.approx(
            row["replicas"] * row["items"] / times["step"]["seconds"]
        )
        alone = min(times["numpy"]["seconds"], times["torch"]["seconds"])
        assert row["ratio"] == pytest.approx(times["step"]["seconds"] / alone)  # of one round: the same thing
    assert str(out) in done.output.replace("\n", "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--items 0", "items must be whole numbers above 0"),
        ("--items many", "items must be numbers"),
        ("--replicas 1.5", "replicas must be whole numbers above 0"),
        ("--vertex -2", "vertex must be a number above 0"),
        ("--dtype float16", "dtype must be one of float32, float64, mixed, not 'float16'"),
    ],
)
def test_wrong_settings_are_named(line: str, says: str, tmp_path: Path) -> None:
    done = engramma(f"{line} --out {tmp_path / 'bench.json'}")
    assert done.exit_code == 2
    assert says in done.stderr
    assert not list(tmp_path.iterdir())


class Clock:
    """Time that passes only while a contestant runs: each run takes the next of the times it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(bench.time, "perf_counter", lambda: self.now)

    def contestant(self, *takes: float) -> Callable[[], None]:
        left = iter(takes)

        def run() -> None:
            self.now += next(left)

        return run


def test_a_ratio_is_the_median_over_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    a, b = clock.contestant(9, 1, 9, 2, 9, 1), clock.contestant(9, 2, 9, 8, 9, 3)  # the first is not measured
    found = bench.race({"a": a, "b": b}, rounds=3)
    assert found["a"]["seconds"] == 1
    assert found["b"]["seconds"] == 3
    assert found["b"]["ratio"] == 3
    assert bench.against_products({"numpy": found["a"], "torch": found["b"], "step": found["b"]}) == 3


def test_as_many_runs_are_measured_as_went_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WHILE", 5.0)
    found = bench.race({"a": Clock(monkeypatch).contestant(2, 2, 2, 1, 2, 6)}, rounds=1)
    assert found["a"]["seconds"] == 3
