"""The code of docs/adding-a-method.md, exactly as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "adding-a-method.md"


def blocks(page: Path = PAGE) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def run(*sources: str) -> dict[str, object]:
    """Run the blocks one after the other in one namespace, a module as a user's file would be."""
    module = ModuleType("freeze")
    sys.modules["freeze"] = module  # dataclasses look their own module up
    for source in sources:
        exec(compile(source, str(PAGE), "exec"), module.__dict__)
    return module.__dict__
