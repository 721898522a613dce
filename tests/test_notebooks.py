"""Every notebook runs from top to bottom; their own assertions are part of the test."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

# In a process of its own: Jupyter's machinery raises warnings and leaves threads that are none of ours.
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
kinds = lambda: [[o.get("name", o.output_type) for o in c.get("outputs", []) if o.get("name") != "stderr"]
                 for c in book.cells]
kept = kinds()
NotebookClient(book, timeout=400, kernel_name="python3").execute()
errors = [o for c in book.cells for o in c.get("outputs", []) if o.output_type == "error"]
texts = [o for c in book.cells for o in c.get("outputs", [])]
assert not errors and len(texts) >= 3
assert kinds() == kept, (kinds(), kept)  # what the notebook shows is what it gives
"""


def test_there_are_four():
    known = ["analyse-your-results", "associative-memory", "forgetting-in-five-minutes", "your-own-method"]
    assert [path.stem for path in NOTEBOOKS] == known


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    settings = {"IPYTHONDIR": str(tmp_path), "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)],
        env={**os.environ, **settings, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_as_it_was_run_and_small(path):
    import nbformat

    book = nbformat.read(path, as_version=4)
    code = [c for c in book.cells if c.cell_type == "code"]
    assert len(book.cells) > len(code) > 1
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
    assert not any(o.output_type == "error" for c in code for o in c.outputs)
    assert path.stat().st_size < 200_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_a_page_with_its_code_outputs_and_pictures(path):
    """What the hook makes of it. That the site is built with these pages is tests/test_docs_build.py's."""
    spec = importlib.util.spec_from_file_location("pages", path.parent / "pages.py")
    assert spec
    assert spec.loader
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    book = json.loads(path.read_text())
    text, pictures = pages.page(book, path.stem)
    assert text.startswith("# ")
    for cell in book["cells"]:
        assert "".join(cell["source"]).partition("\n")[2].strip() in text
        for output in cell.get("outputs", []):
            if output.get("name") == "stdout":
                assert "".join(output["text"]).rstrip() in text
    drawn = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert drawn == list(pictures)
    assert len(drawn) == sum(
        "image/png" in o.get("data", {}) for c in book["cells"] for o in c.get("outputs", [])
    )
    assert all(content.startswith(b"\x89PNG") for content in pictures.values())
