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


SHOWN = {"associative-memory"}  # kept with what they print and draw


def test_there_are_three():
    known = ["associative-memory", "forgetting-in-five-minutes", "your-own-method"]
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
def test_notebook_is_kept_as_it_ran_or_without_outputs(path):
    import nbformat

    book = nbformat.read(path, as_version=4)
    assert len(book.cells) > 1
    ran = [c.get("execution_count") for c in book.cells if c.cell_type == "code"]
    if path.stem not in SHOWN:
        assert all(not c.get("outputs") for c in book.cells)
        assert set(ran) == {None}
        return
    assert ran == list(range(1, len(ran) + 1))
    outputs = [o for c in book.cells for o in c.get("outputs", [])]
    assert all(o.output_type != "error" for o in outputs)
    assert any("image/png" in o.get("data", {}) for o in outputs)
