"""docs/analysing-results.md: its code runs as it stands, its commands too, and what it says is so."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page
import pytest
from typer.testing import CliRunner, Result

import engramma as en
from engramma.cli import app

GUIDE = page.PAGE.parent / "analysing-results.md"
COMMANDS = [
    line.removeprefix("engramma ")
    for block in re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder in which its code was run, and what that made."""
    place = tmp_path_factory.mktemp("analysing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("COLUMNS", "80")
        yield place, page.run(*page.blocks(GUIDE))


def ask(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


def test_its_code_runs(ran: tuple[Path, dict[str, Any]]) -> None:
    _, made = ran
    frame, result, found, opened = (made[name] for name in ("frame", "result", "found", "opened"))
    assert len(frame["run"]) == len(result) == 32
    columns = re.findall(r"^\| `(\w[\w.]*)`", GUIDE.read_text(), flags=re.M)
    assert set(columns) <= set(frame)
    assert np.isfinite(frame["forward_transfer"]).all()
    assert len(found) == 2
    assert (found.difference > 0).all()  # rehearsal remembers more
    assert found.p.min() == 2 / 2**8
    assert (found.p_holm < 0.05).all()
    record = made["rehearsed"][0]
    np.testing.assert_allclose(opened.evaluate()["accuracy"], record.scores["accuracy"][-1], atol=1e-12)
    assert float(made["right"].double().mean()) == pytest.approx(record.scores["accuracy"][-1, 0])


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize("line", COMMANDS)
def test_its_commands_run(line: str) -> None:
    said = ask(line)
    assert said.exit_code == 0, said.output
    if "json" in line:
        json.loads(said.stdout)
    elif "csv" in line:
        assert len(list(csv.DictReader(io.StringIO(said.stdout)))) > 3
    elif "latex" in line:
        assert said.stdout.splitlines()[-1].endswith(r" \\")
    else:
        assert max(map(len, said.stdout.splitlines())) <= 80


@pytest.mark.usefixtures("ran")
def test_without_pandas_and_with_it_the_same() -> None:
    pandas = pytest.importorskip("pandas")
    frame = en.load("runs").frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("method")["average"].mean()["rehearsal"] > 0
