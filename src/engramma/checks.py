"""What is wrong with a setting, in one line; and the settings that a method has."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import importlib.util
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from engramma.paper import numbers as paper

if TYPE_CHECKING:
    from engramma.methods import Method

log = logging.getLogger("engramma")
HOOKS = ("start", "rehearse", "steer", "observe", "consolidate", "report")
LARGE = 1e30  # single precision holds it


def explain(error: ValidationError, known: Sequence[str] = ()) -> str:
    """One line for all that is wrong: which setting, what is allowed, what was given."""
    lines = []
    for fault in error.errors(include_url=False):
        place = ".".join(str(part) for part in fault["loc"])
        if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            near = difflib.get_close_matches(place, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(known)}"
            lines.append(f"unknown setting {place}{hint}")
        elif fault["type"] == "value_error":
            lines.append(fault["msg"].removeprefix("Value error, "))
        else:
            allowed = fault["msg"].replace("Input should be", "must be").replace("integer", "whole number")
            lines.append(f"{place} {allowed}, not {shown(fault['input'])}")
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


def method_class(name: str) -> type[Method]:
    """A method by its name, or imported from package.module:Class or ./file.py:Class and checked."""
    from engramma.methods import METHODS

    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        near = difflib.get_close_matches(name, METHODS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(
            f"method must be one of {', '.join(METHODS)}, package.module:Class or ./file.py:Class, "
            f"not {name!r}{hint}"
        )
    found = imported(name, "method")
    missing = [hook for hook in HOOKS if not callable(getattr(found, hook, None))]
    if not isinstance(found, type) or missing:
        raise ValueError(
            f"method {name} must be a class with {', '.join(HOOKS)}; it lacks {', '.join(missing)}"
        )
    return found


def of_strength(name: str, strength: float | None) -> Method:
    """A method of `METHODS` of this strength: a lambda must be given, a proportion need not."""
    from engramma.methods import METHODS, Penalty

    kind = METHODS[name]
    if strength is None and issubclass(kind, Penalty):
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
    """The paper's lambda, and that it is so is said; refused where the paper has none. `unit`: of
    importances on a scale that is not the paper's."""
    found = None if unit else paper.chosen_lambda(name, vertex)
    if found is None:
        what = f"{name} at n = {vertex:g}{' with unit importances' if unit else ''}"
        raise ValueError(
            f"strength must be given for {what}: the paper has no lambda for it (engramma tune finds one)"
        )
    _say_lambda(name, vertex, found)
    return found


@functools.cache  # once
def _say_lambda(name: str, vertex: float, found: float) -> None:
    data = paper.setting()["data"].upper()
    log.warning(
        "strength was not given: it is %g, the paper's lambda for %s at n = %g on %s (engramma tune searches "
        "for another)", found, name, vertex, data,
    )  # fmt: skip


def complete(
    name: str, settings: dict[str, Any], strength: float | None, vertex: float
) -> tuple[dict[str, Any], float | None]:
    """All settings of a method, defaults filled in, apart from its strength; and that."""
    from engramma.methods import Penalty

    cls = method_class(name)
    key = getattr(cls, "strength_name", None)
    if key is None and strength is not None:
        raise ValueError(f"strength must be left out for {name}, which has none")
    if key in settings:
        raise ValueError(f"settings.{key} must be given as strength")
    if not dataclasses.is_dataclass(cls):
        return settings, strength
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    unknown = [f"settings.{k}" for k in settings if k not in known]
    if unknown:
        allowed = ", ".join(k for k in known if k != key) or "none"
        raise ValueError(f"unknown setting {', '.join(unknown)} of {name}; allowed: {allowed}")
    # TOML and a command line have no null: "none" stands for it, where it is what a setting has by default.
    bare = [field.name for field in dataclasses.fields(cls) if field.default is None]
    settings = {k: None if k in bare and v == "none" else v for k, v in settings.items()}
    if strength is None and issubclass(cls, Penalty):
        strength = lambda_nobody_gave(name, vertex, bool(settings.get("unit")))
    given = settings if key is None or strength is None else {**settings, key: strength}
    try:
        made = _adapter(cls).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        raise ValueError(f"{name}: {explain(error, known)}") from None
    except (TypeError, ValueError) as error:  # not what JSON, and so a record, can hold
        raise ValueError(f"settings must be numbers, texts, booleans and lists of them ({error})") from None
    values = {k: getattr(made, k) for k in known}
    for name, value in values.items():
        if isinstance(value, int | float) and abs(value) > LARGE:
            raise ValueError(f"{name} must be between {-LARGE:g} and {LARGE:g}, not {shown(value)}")
    return {k: v for k, v in values.items() if k != key}, (float(values[key]) if key else None)


@functools.cache  # making one takes milliseconds, and a study has thousands of experiments
def _adapter(cls: type) -> TypeAdapter:
    return TypeAdapter(cls)
