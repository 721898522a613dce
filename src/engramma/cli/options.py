"""The settings of an experiment as options of a command: one for each, written from its description."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import tomllib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_args, get_origin, get_type_hints

import typer

from engramma.checks import shown
from engramma.experiment import Experiment

if TYPE_CHECKING:
    from engramma.store.records import Store

MOST = 10_000  # seeds that are asked for by their number
SEVERAL = {"vertex": "vertices", "strength": "strengths"}  # of which a run may name more than one value
APART = ("seed", "settings", "autoassociative", "fork")  # options of their own, or none

Names = Callable[[], Iterable[str]]


def completed(names: Names) -> Callable[[str], list[str]]:
    """What a shell offers for the value of an option, or for the last of several with commas between them.
    The names are looked up when they are asked for."""

    def offer(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(begun)]

    return offer


def _classes(module: str, table: str) -> list[str]:
    """The names in a table of classes, by its file: to import it is to import PyTorch, for seconds."""
    spec = importlib.util.find_spec(f"engramma.{module}")
    assert spec is not None
    assert spec.origin is not None
    for part in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(part, ast.AnnAssign) and getattr(part.target, "id", "") == table:
            assert isinstance(part.value, ast.Dict)
            return [str(key.value) for key in part.value.keys if isinstance(key, ast.Constant)]
    return []


def _data(incomplete: str) -> list[str]:
    """The data sets, and what lies where the path begun leads."""
    folder, _, begun = incomplete.rpartition("/")
    place = Path(folder or ("/" if incomplete.startswith("/") else "."))
    there = sorted(place.iterdir()) if place.is_dir() else []
    own = [f"{p.name}/" if p.is_dir() else p.name for p in there if p.is_dir() or p.suffix == ".npz"]
    ahead = incomplete[: len(incomplete) - len(begun)]
    named = [name for name in ("mnist", "digits", "states") if not folder and name.startswith(incomplete)]
    return named + [ahead + name for name in own if name.startswith(begun) and not name.startswith(".")]


def _studies() -> Iterable[str]:
    from engramma import studies

    return studies.names()


def _tables() -> Iterable[str]:
    return (*_studies(), "scores")


def _figures() -> Iterable[str]:
    from engramma.show.figures import KINDS

    return (*_studies(), *KINDS)


def _scales() -> Iterable[str]:
    from engramma import studies

    return studies.SCALES


STUDIES, TABLES, FIGURES, SCALES = map(completed, (_studies, _tables, _figures, _scales))
OFFERED: dict[str, Callable[[str], list[str]]] = {  # for the settings of an experiment that are names
    "data": _data,
    "method": completed(lambda: _classes("methods", "METHODS")),
    "stream": completed(lambda: _classes("streams", "STREAMS")),
    "interaction": completed(lambda: _classes("interactions", "INTERACTIONS")),
    "loss": completed(lambda: _classes("losses", "LOSSES")),
}
METHODS = OFFERED["method"]

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
    metavar += ",..." if name in SEVERAL else ""
    offer = completed(lambda: choices) if choices else OFFERED.get(name)
    return Annotated[Optional[str], typer.Option(flag, metavar=metavar, autocompletion=offer, **shared)]  # noqa: UP045


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """Only what was said, numbers as numbers."""
    return {k: _value(k, v) for k, v in settings.items() if v is not None}


def _value(name: str, value: Any) -> Any:
    kind = Experiment.model_fields[name].annotation
    return value if kind is str or get_origin(kind) is Literal else literal(value)


def literal(text: Any) -> Any:
    """A number, a boolean or a list as TOML writes it; anything else is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if isinstance(text, str) else text
    except ValueError:  # not TOML, or a number of thousands of digits
        return text


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
