"""The reference builds with no warning, covers every public module, and its examples run."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
MODULES = sorted(m for page in PAGES for m in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE))
EXAMPLES = ["associative", "attractors", "classifier", "energies", "guard", "hopfield", "layer", "probes"]
WITH_EXAMPLES = tuple(f"models.{name}" for name in EXAMPLES)


def test_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    for name, page in (
        ("models.classifier.DenseMemoryClassifier.partial_fit", "estimator"),
        ("models.layer.DenseMemoryLayer", "layer"),
        ("models.guard.Guard.consolidate", "guard"),
        ("models.associative.AssociativeMemory.recall", "associative"),
    ):
        html = (tmp_path / "site" / "api" / page / "index.html").read_text()
        assert f'id="engramma.{name}"' in html


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
