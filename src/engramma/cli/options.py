"""The settings of an experiment as options of a command: one for each, written from its description."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_args, get_origin, get_type_hints

import typer

from engramma.checks import literal, shown
from engramma.experiment import Experiment

if TYPE_CHECKING:
    from engramma.store.records import Store

MOST = 10_000  # seeds that are asked for by their number
APART = ("seed", "settings", "autoassociative", "fork")  # options of their own, or none

FromOption = Annotated[
    list[Path],
    typer.Option(
        "--from", help="Folder of records, or an archive of them. Repeat for more.", metavar="STORE"
    ),
]
RUNS = [Path("runs")]


def with_settings(
    command: Callable[..., None] | None = None, without: Collection[str] = ()
) -> Callable[..., Any]:
    """Give a command that takes **settings an option for every setting, `without` some."""
    if command is None:
        return partial(with_settings, without=without)
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    options = {k: _option(k, f) for k, f in Experiment.model_fields.items() if k not in (*APART, *without)}
    parameters = [
        inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for k, kind in options.items()
    ]
    command.__signature__ = inspect.Signature([*own, *parameters])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *parameters]}
    return command


def _option(name: str, field: Any) -> Any:
    kind, flag = field.annotation, "--" + name.replace("_", "-")
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    default = "none" if field.default is None else str(field.default).lower()
    text = field.description + (f": {', '.join(choices)}" if choices else "")
    shared: dict[str, Any] = {
        "help": f"{text} [dim]({default})[/dim]",
        "rich_help_panel": field.json_schema_extra["panel"],
        "show_default": False,
    }
    if kind is bool:
        return Annotated[Optional[bool], typer.Option(f"{flag}/--no-{flag[2:]}", **shared)]  # noqa: UP045
    metavar = "NAME" if choices or kind is str else "N" if "int" in str(kind) else "X"
    return Annotated[Optional[str], typer.Option(flag, metavar=metavar, **shared)]  # noqa: UP045


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """Only what was said, numbers as numbers."""
    return {k: _value(k, v) for k, v in settings.items() if v is not None}


def _value(name: str, value: Any) -> Any:
    kind = Experiment.model_fields[name].annotation
    return value if kind is str or get_origin(kind) is Literal else literal(value)


def pairs(texts: Sequence[str] | None, option: str = "--set") -> dict[str, Any]:
    """name=value, several times."""
    for text in texts or ():
        if "=" not in text:
            raise ValueError(f"{option} must be name=value, not {text!r}")
    parts = (text.partition("=") for text in texts or ())
    return {name.strip(): literal(value.strip()) for name, _, value in parts}


def stored(places: Sequence[Path], option: str = "--from") -> Store:
    """The records that lie in folders and archives, to be read."""
    from engramma.store.records import Store

    for place in places:
        if not place.exists():
            raise ValueError(f"{option} must be a folder or an archive of records; there is none at {place}")
    return Store(*places)


def counted(text: Any, name: str = "seeds") -> list[int]:
    """3 is 0, 1, 2; a list, or 0,1,2, is what it says."""
    listed = isinstance(text, str) and "," in text
    value = literal(f"[{text}]") if listed else literal(text)
    if type(value) is int and 1 <= value <= MOST:
        return list(range(value))
    if isinstance(value, list) and value and all(type(v) is int and v >= 0 for v in value):
        return list(dict.fromkeys(value))
    raise ValueError(
        f"{name} must be how many (1 to {MOST:,}) or a list of them such as 0,1,2, not {shown(text)}"
    )


def numbers(text: Any, name: str) -> list[float]:
    value = literal(f"[{text}]") if isinstance(text, str) else text
    value = value if isinstance(value, list) else [value]
    with suppress(OverflowError):  # a whole number of hundreds of digits
        if value and all(type(v) in (int, float) for v in value):
            return [float(v) for v in value]
    raise ValueError(f"{name} must be numbers such as 0.1,1,10, not {shown(text)}")
