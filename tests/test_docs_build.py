"""The reference builds with no warning, covers every public module, and its examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from engramma.models.associative import AssociativeMemory
from engramma.models.classifier import DenseMemoryClassifier

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
MODULES = sorted(m for page in PAGES for m in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE))
EXAMPLES = ["associative", "attractors", "classifier", "energies", "guard", "hopfield", "layer", "probes"]
WITH_EXAMPLES = tuple(f"models.{name}" for name in EXAMPLES)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("mkdocs")
    place = tmp_path_factory.mktemp("built") / "site"
    report = place.parent / "made.html"
    report.write_text("<p>As make site has it made.</p>")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "REPORT": str(report)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return place


def test_the_library_has_its_pages(site: Path) -> None:
    for name, page in (
        ("models.classifier.DenseMemoryClassifier.partial_fit", "estimator"),
        ("models.layer.DenseMemoryLayer", "layer"),
        ("models.guard.Guard.consolidate", "guard"),
        ("models.associative.AssociativeMemory.recall", "associative"),
    ):
        html = (site / "api" / page / "index.html").read_text()
        assert f'id="engramma.{name}"' in html


def test_the_report_and_the_notebooks_are_in_it(site: Path) -> None:
    assert "As make site has it made" in (site / "report.html").read_text()
    front = (site / "index.html").read_text()
    assert 'href="report.html"' in front
    for book in (ROOT / "notebooks").glob("*.ipynb"):
        assert f'href="notebooks/{book.stem}/"' in front
        text = (site / "notebooks" / book.stem / "index.html").read_text()
        drawn = re.findall(rf'src="\.\./({book.stem}-\d+\.png)"', text)
        assert drawn
        assert all((site / "notebooks" / name).is_file() for name in drawn)


CUT = """() => [...document.querySelectorAll("article *")].filter(element => {
  if (element.closest("nav, .md-clipboard") || !element.getClientRects().length) return false;
  for (let box = element.parentElement; box; box = box.parentElement)
    if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return false;  // goes on when scrolled
  return element.getBoundingClientRect().right > innerWidth + 1;
}).map(element => element.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_cut(site: Path, width: int) -> None:
    """Neither at a desk nor on a telephone: what is too wide scrolls in a box of its own."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        chrome = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = chrome.new_page(viewport={"width": width, "height": 900})
        for name in (
            "",
            "tutorial/",
            "beyond/",
            "methods/",
            "reproduction/",
            "api/estimator/",
            "api/runner/",
        ):
            page.goto((site / name / "index.html").as_uri())
            page.wait_for_load_state()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert page.evaluate(CUT) == [], name
        chrome.close()


class Text(HTMLParser):
    """The text alone, of what also has tags and, in their titles, further tags."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(source)

    def handle_data(self, data: str) -> None:
        self.text += data


def cells(row: str) -> list[str]:
    """The text of a row's cells."""
    return [Text(cell).text.strip() for cell in re.findall(r"<td>(.*?)</td>", row, re.S)]


@pytest.mark.parametrize(
    ("name", "made"), [("estimator", DenseMemoryClassifier), ("associative", AssociativeMemory)]
)
def test_every_parameter_has_its_own_type_and_default(site: Path, name: str, made: type) -> None:
    """In the table of a class, which knows only what its docstring is written so that it can."""
    text = (site / "api" / name / "index.html").read_text()
    heading = text.index(f'id="engramma.{made.__module__.removeprefix("engramma.")}.{made.__name__}"')
    table = re.search(r"Parameters:.*?<table>(.*?)</table>", text[heading:], re.S)
    assert table
    told = {row[0]: row[1:] for row in map(cells, re.findall(r"<tr.*?</tr>", table[1], re.S)) if row}
    known = inspect.signature(made).parameters
    assert list(told) == list(known)
    for parameter in known.values():
        kind, meaning, default = told[parameter.name]
        assert kind == parameter.annotation.replace("torch.", "")
        assert meaning
        usual = parameter.default
        assert default == (
            str(usual).removeprefix("torch.") if isinstance(usual, torch.dtype) else repr(usual)
        )


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, raise_on_error=False)
    assert result.failed == 0
    if name.removeprefix("engramma.") in WITH_EXAMPLES:
        assert result.attempted > 0
    assert module.__doc__, f"{name} says nothing of itself"


def test_the_library_is_all_there() -> None:
    """Every module of the library half has its place in the reference."""
    library = {"streams.datasets", "interactions", "kernels", "measures", "network", "optimiser", "replicas"}
    library |= {"streams", "train", *WITH_EXAMPLES}
    assert {f"engramma.{name}" for name in library} <= set(MODULES)
