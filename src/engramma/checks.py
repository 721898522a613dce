"""What is wrong with a setting, in one line; and the settings that a method has."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import importlib.util
import json
import logging
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from engramma.paper import numbers as paper

if TYPE_CHECKING:
    from engramma.interactions import Interaction
    from engramma.losses import Loss
    from engramma.methods import Method
    from engramma.streams import Stream

T = TypeVar("T")

log = logging.getLogger("engramma")
LARGE = 1e30  # single precision holds it
LAMBDA = "strength"  # what methods call a lambda; a proportion has a name of its own


def near(given: object, known: Iterable[str]) -> str:
    """ "; did you mean ewc?" where a known name is like the one that was given, in whatever case; else
    nothing. Whatever has names asks here."""
    names = {name.casefold(): name for name in map(str, known)}
    close = difflib.get_close_matches(str(given).casefold(), names, 1)
    return f"; did you mean {names[close[0]]}?" if close else ""


def unknown(what: str, given: object, known: Iterable[str], *more: str) -> ValueError:
    """That a name is none of those there are. `more`: what else it could have been."""
    allowed = ", ".join([*(names := [*known]), *more[:-1]]) + "".join(f" or {last}" for last in more[-1:])
    return ValueError(f"{what} must be one of {allowed}, not {shown(given)}{near(given, names)}")


def explain(error: ValidationError, known: Sequence[str] = ()) -> str:
    """One line for all that is wrong: which setting, what is allowed, what was given."""
    lines = []
    for fault in error.errors(include_url=False):
        place = ".".join(str(part) for part in fault["loc"])
        if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            lines.append(f"unknown setting {place}{near(place, known) or '; allowed: ' + ', '.join(known)}")
        elif fault["type"] == "value_error":
            lines.append(fault["msg"].removeprefix("Value error, "))
        else:
            allowed = fault["msg"].replace("Input should be", "must be").replace("integer", "whole number")
            if fault["type"] == "literal_error":  # in the words of whoever makes the class by hand
                allowed = allowed.replace("'", "")
            words = re.findall(r"'([^']*)'", str(fault.get("ctx", {}).get("expected", "")))
            lines.append(f"{place} {allowed}, not {shown(fault['input'])}{near(fault['input'], words)}")
    return "; ".join(lines).replace("\n", " ")


def visible(text: object, keep: str = "") -> str:
    r"""The text with everything that cannot be seen (but for what to `keep`) as an escape: \x1b, \n, \u202e.

    A terminal would act upon such a character, and a reader would not know that it is there.
    """
    told = str(text)
    if told.isprintable():
        return told
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in told)


def shown(given: Any) -> str:
    """What was given, as far as it fits a line."""
    try:
        text = repr(given)
    except ValueError:  # a whole number of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) < 60 else text[:57] + "..."


def literal(text: Any) -> Any:
    """A number, a boolean or a list as TOML writes it; anything else is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if isinstance(text, str) else text
    except ValueError:  # not TOML, or a number of thousands of digits
        return text


def imported(name: str, what: str) -> Any:
    """What package.module:Name or ./file.py:Name names; `what` it is to be, for errors of one line."""
    place, _, attribute = name.rpartition(":")
    if place.startswith(".") and not place.endswith(".py"):
        raise ValueError(f"{what} {name}: a file must be named with its ending, {place}.py:{attribute}")
    try:
        module = _module_of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError as error:
        raise ValueError(f"{what} {name}: there is no file {error.filename}") from None
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"{what} {name}: cannot import {place} ({error})") from None
    if not hasattr(module, attribute):
        raise ValueError(f"{what} {name}: {place} has no {attribute}")
    return getattr(module, attribute)


def module_name(place: str) -> str:
    """Under which a module that was imported by `imported` is known to Python."""
    return str(Path(place).resolve()) if place.endswith(".py") else place


def _module_of_file(path: Path) -> ModuleType:
    name = module_name(str(path))
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, name)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)  # before it runs: dataclasses look there
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _class(what: str, name: str, known: Mapping[str, type[T]], base: type[T]) -> type[T]:
    """A class by its name in `known`, or one of one's own by its place: a dataclass derived from `base`."""
    if name in known:
        return known[name]
    if ":" not in name:
        raise unknown(what, name, known, "package.module:Class", "./file.py:Class")
    found = imported(name, what)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{what} {name} must be a class derived from engramma.{base.__name__}")
    if lacking := sorted(getattr(found, "__abstractmethods__", ())):
        raise ValueError(f"{what} {name} must say what its {', '.join(lacking)} is")
    return found


def _made_of(what: str, name: str, cls: type[T], *given: str) -> type[T]:
    """The class, having seen that it can be made of what is `given`, and a default for every other field."""
    none = dataclasses.MISSING
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    bare = [f.name for f in fields if f.init and f.default is f.default_factory is none]
    if lacking := [field for field in bare if field not in given]:
        raise ValueError(f"{what} {name} must have a default for {', '.join(lacking)}")
    return cls


def method_class(name: str) -> type[Method]:
    """A method by its name, or imported from package.module:Class or ./file.py:Class and checked."""
    from engramma.methods import METHODS, Method

    return _class("method", name, METHODS, Method)


def interaction_class(name: str) -> type[Interaction]:
    """An interaction, in the same way: it is made of n."""
    from engramma.interactions import INTERACTIONS, Interaction

    return _made_of("interaction", name, _class("interaction", name, INTERACTIONS, Interaction), "n")


def loss_class(name: str) -> type[Loss]:
    """A loss, in the same way."""
    from engramma.losses import LOSSES, Loss

    return _made_of("loss", name, _class("loss", name, LOSSES, Loss))


def stream_class(name: str) -> type[Stream]:
    """A stream, in the same way: `Stream.made` makes it of a run's settings."""
    from engramma.streams import STREAMS, Stream

    found = _class("stream", name, STREAMS, Stream)
    fields = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
    if not {"replicas", "tasks"} <= {field.name for field in fields}:
        raise ValueError(f"stream {name} must be a dataclass with the fields replicas and tasks")
    return found


def check_data(stream: str, data: str) -> None:
    """That `data` is what the stream takes by name, or a place: what lies there is looked at later."""
    from engramma.streams.datasets import is_path

    sources, folder = stream_class(stream).sources, False
    if data in sources or is_path(data):
        return
    with suppress(OSError):  # a name that no file could have
        folder = Path(data).is_dir()
    if folder:
        raise ValueError(f"data must be a folder's path to be read from it: ./{data}, not {data!r}")
    raise ValueError(
        f"data must be {', '.join(sources)}, an .npz file or a folder (./folder) of IDX files for the stream "
        f"{stream}, not {shown(data)}{near(data, sources)}"
    )


def of_strength(name: str, strength: float | None, kind: type[Method] | None = None) -> Method:
    """A method of this strength, of `METHODS` or of the `kind` that has the name: a lambda must be given, a
    proportion need not."""
    from engramma.methods import METHODS

    kind = kind or METHODS[name]
    if strength is None and kind.strength_name == LAMBDA:
        raise ValueError(
            f"strength must be given for the method {name!r}: no lambda fits all data and networks "
            "(engramma tune searches for one)"
        )
    if strength is None:
        return kind()
    if kind.strength_name is None:
        raise ValueError(f"strength must be None for the method {name!r}, which has none")
    return kind(**{kind.strength_name: strength})


def lambda_nobody_gave(name: str, vertex: float, unit: bool) -> float:
    """The paper's lambda; refused where it has none. `unit`: of importances on a scale that is not the
    paper's."""
    found = None if unit else paper.chosen_lambda(name, vertex)
    if found is None:
        what = f"{name} at n = {vertex:g}{' with unit importances' if unit else ''}"
        raise ValueError(
            f"strength must be given for {what}: the paper has no lambda for it (engramma tune finds one)"
        )
    return found


@functools.cache  # once
def _say_lambda(found: float, whose: str) -> None:
    log.warning("strength was not given: it is %g, %s (engramma tune searches for another)", found, whose)


def complete(
    name: str, settings: dict[str, Any], strength: float | None, vertex: float
) -> tuple[dict[str, Any], float | None]:
    """All settings of a method, defaults filled in, apart from its strength; and that."""
    from engramma.methods import Penalty

    cls = method_class(name)
    key = cls.strength_name
    if key is None and strength is not None:
        raise ValueError(f"strength must be left out for {name}, which has none")
    if key in settings:
        raise ValueError(f"settings.{key} must be given as strength")
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    own = [k for k in known if k != key]
    if strange := [k for k in settings if k not in known]:
        told = ", ".join(f"settings.{k}" for k in strange)
        rest = near(strange[0], own) or f"; allowed: {', '.join(own) or 'none'}"
        raise ValueError(f"unknown setting {told} of {name}{rest}")
    # TOML and a command line have no null: "none" stands for it, where it is what a setting has by default.
    bare = [field.name for field in dataclasses.fields(cls) if field.default is None]
    settings = {k: None if k in bare and v == "none" else v for k, v in settings.items()}
    nobody = strength is None and issubclass(cls, Penalty)
    if nobody:
        strength = lambda_nobody_gave(name, vertex, bool(settings.get("unit")))
    given = settings if key is None or strength is None else {**settings, key: strength}
    try:
        made = _adapter(cls).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        raise ValueError(f"{name}: {explain(error, known)}") from None
    except (TypeError, ValueError) as error:  # not what JSON, and so a record, can hold
        raise ValueError(f"settings must be numbers, texts, booleans and lists of them ({error})") from None
    values = {k: getattr(made, k) for k in known}
    for setting, value in values.items():
        if isinstance(value, int | float) and abs(value) > LARGE:
            raise ValueError(f"{setting} must be between {-LARGE:g} and {LARGE:g}, not {shown(value)}")
    if key == LAMBDA and key not in given:  # said now that the rest is right
        _say_lambda(values[key], f"the default of {name}")
    elif nobody and strength is not None:
        data = paper.setting()["data"].upper()
        _say_lambda(strength, f"the paper's lambda for {name} at n = {vertex:g} on {data}")
    return {k: v for k, v in values.items() if k != key}, (float(values[key]) if key else None)


@functools.cache  # making one takes milliseconds, and a study has thousands of experiments
def _adapter(cls: type) -> TypeAdapter:
    return TypeAdapter(cls)
