"""Every notebook runs from top to bottom; their own assertions are part of the test."""

from __future__ import annotations

import os
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
NotebookClient(book, timeout=400, kernel_name="python3").execute()
errors = [o for c in book.cells for o in c.get("outputs", []) if o.output_type == "error"]
texts = [o for c in book.cells for o in c.get("outputs", [])]
assert not errors and len(texts) >= 3
"""


SHOWN = {"analyse-your-results", "associative-memory"}  # kept with their outputs, to be read as they are


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
def test_notebook_is_kept_with_all_of_its_outputs_or_without_any(path):
    import nbformat

    book = nbformat.read(path, as_version=4)
    code = [c for c in book.cells if c.cell_type == "code"]
    assert len(book.cells) > len(code) > 1
    if path.stem in SHOWN:
        assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
        assert all(c.outputs for c in code[1:])  # the first may only import
        assert not any(o.output_type == "error" for c in code for o in c.outputs)
    else:
        assert all(not c.outputs and c.execution_count is None for c in code)
