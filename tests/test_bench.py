"""engramma bench: that it measures what it says, not how fast anything is."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from engramma import bench
from engramma.cli import app


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REST", 0.0)


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
        ("--dtype mixed", "dtype mixed needs a CUDA device"),
    ],
)
def test_wrong_settings_are_named(line: str, says: str, tmp_path: Path) -> None:
    done = engramma(f"{line} --out {tmp_path / 'bench.json'}")
    assert done.exit_code == 2
    assert says in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_ratio_is_the_median_over_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 1, 0, 2, 0, 2, 0, 8, 0, 1, 0, 3])  # of a, b in turn: 1, 2; 2, 8; 1, 3
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    found = bench.race({"a": lambda: None, "b": lambda: None}, rounds=3)
    assert found["a"]["seconds"] == 1
    assert found["b"]["seconds"] == 3
    assert found["b"]["ratio"] == 3
    assert bench.against_products({"numpy": found["a"], "torch": found["b"], "step": found["b"]}) == 3
