"""A hook of MkDocs (`mkdocs.yml`) for the pages that do not lie in docs/.

They are the notebooks, with the outputs that they are kept with, and the report that the variable REPORT
names (`make site`).
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def on_config(config: Any) -> Any:
    """Where there is a report, it stands in the navigation after the first two."""
    if os.environ.get("REPORT"):
        config.nav.insert(2, {"A report to play with": "report.html"})
    return config


def on_files(files: Any, config: Any) -> Any:
    """The pages and their pictures join what lies in docs/."""
    from mkdocs.structure.files import File

    for path in sorted(HERE.glob("*.ipynb")):
        text, pictures = page(json.loads(path.read_text()), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    if report := os.environ.get("REPORT"):
        files.append(File.generated(config, "report.html", abs_src_path=str(Path(report).resolve())))
    return files


def page(book: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names that the page calls them by."""
    parts, pictures = [], {}
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            text = "".join(output.get("text", "") or data.get("text/plain", ""))
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![What this cell draws]({picture})")
            elif text and output.get("name") != "stderr":  # warnings and progress are not what it says
                parts.append(f"```{{ .text .output }}\n{text.rstrip()}\n```")
    where = f"*This page is the notebook `notebooks/{name}.ipynb`, as it was last run.*"
    title, *rest = parts
    heading, _, below = title.partition("\n")
    return "\n\n".join([heading, where, below.strip(), *rest]) + "\n", pictures
