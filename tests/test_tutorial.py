"""docs/tutorial.md: each of its lines runs, in order and in one folder, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import page
import pytest
from typer.testing import CliRunner

from engramma.cli import app

PAGE = page.PAGE.parent / "tutorial.md"
BLOCKS = re.findall(r"^```(sh|python|text)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
NUMBER = r"[-+−]?\d+\.\d+"
SMALLER = {"try": " --vertices 2 --trials 2 --epochs 10 --beside vanilla"}  # not all eleven


def close(told: str, line: str) -> bool:
    """Whether two lines say the same, but for numbers that another machine may round to others."""
    first, other = (re.sub(NUMBER, "#", one).split() for one in (told, line))
    if [word.strip("±") for word in first] != [word.strip("±") for word in other]:
        return False
    pairs = zip(re.findall(NUMBER, told), re.findall(NUMBER, line), strict=True)
    return all(abs(float(a.replace("−", "-")) - float(b.replace("−", "-"))) < 0.05 for a, b in pairs)


def test_every_line_runs_and_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "freeze.py").write_text(page.blocks()[0])
    printed, shown = "", 0
    for kind, text in BLOCKS:
        if kind == "python":
            page.run(text)
            printed = capsys.readouterr().out
        elif kind == "sh":
            printed = ""
            for line in text.splitlines():
                assert line.startswith("engramma ")
                _, name, *_ = line.split()
                done = CliRunner().invoke(app, (line + SMALLER.get(name, "")).split()[1:])
                assert done.exit_code == 0, f"{line}\n{done.output}"
                printed += done.stdout
        else:
            for told in filter(str.strip, text.splitlines()):
                assert any(close(told, line) for line in printed.splitlines()), f"{told}\nnot in\n{printed}"
                shown += 1
    assert shown > 10
    assert (tmp_path / "report.html").stat().st_size > 10**5
    assert (tmp_path / "output" / "try-Freeze" / "report.html").is_file()


def test_its_lines_are_told_apart() -> None:
    assert close(" n=2  0.849±0.039 +0.171", "n=2 0.852±0.035  +0.180  ")
    assert not close("n=2 0.849", "n=2 0.639")
    assert not close("n=2 0.849", "n=5 0.849")
