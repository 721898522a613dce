"""The report: one HTML file from the records of a study, which opens from disk and asks nobody for anything.

Everything is in the file: the numbers as JSON, the page's own script and style (the folder page/), and
plotly.js out of the plotly package. Names are data; the page shows them as text and never as markup.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from engramma.show.report.contents import content
from engramma.store.files import plain
from engramma.store.outputs import whole
from engramma.store.scores import Recorded

TITLE = "Sequential learning in the Dense Associative Memory"
SCRIPTS = (
    "memory.js", "shared.js", "table.js", "pairs.js", "curves.js", "explorer.js", "relax.js", "address.js",
    "report.js",
)  # fmt: skip


def report(
    records: Sequence[Recorded],
    out: str | Path,
    title: str = TITLE,
    data_dir: str | Path | None = None,
    networks: int = 24,
    memory_budget: int = 6_000_000,
) -> Path:
    """Write the report of `records` to `out` and return its path.

    The memories of at most `networks` runs are put in, and only as many as fit into `memory_budget`
    bytes: one run of every method, strength and vertex before a second seed of any.
    """
    out = Path(out)
    if out.is_dir():
        raise ValueError(f"out must be the name of a file, not the folder {out}")
    text = page(content(records, title, data_dir, networks, memory_budget), title)
    try:
        with whole(out) as beside:
            beside.write_text(text, "utf-8")
    except OSError as error:
        raise ValueError(f"out {out} cannot be written: {error.strerror or error}") from None
    return out


def page(found: dict[str, Any], title: str) -> str:
    """The page as text."""
    folder = files("engramma.show.report") / "page"
    parts = {
        "title": html.escape(title),
        "style": (folder / "report.css").read_text("utf-8"),
        "plotly": _script(_plotly()),
        "script": _script("\n".join((folder / name).read_text("utf-8") for name in SCRIPTS)),
        "data": in_script(found),
    }
    text = (folder / "report.html").read_text("utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part, 1)
    return text


def in_script(found: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(plain(found), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _script(source: str) -> str:
    if "</script" in source.lower():
        raise ValueError("a script for the page must not contain its own closing tag")
    return source


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()
