"""The terminal, which shows every text as it is: none is markup, and none does anything to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from engramma.checks import visible


class Terminal(Console):
    """A console for texts of any origin. Styles stand beside a text (style=, rich.text.Text), never in it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, keep="\n"), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for part in super().render(renderable, options):
            if part.control:  # of the console itself: where the cursor goes
                yield part
            else:
                yield Segment(visible(part.text, keep="\n"), part.style)
