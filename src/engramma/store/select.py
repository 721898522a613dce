"""Which records are meant: by settings, or by a text such as ewc, gem@0.5, ewc:fisher=item or vertex=20."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from engramma.checks import literal, shown
from engramma.store.scores import Recorded

R = TypeVar("R", bound=Recorded)


def settings(record: Recorded) -> dict[str, Any]:
    """All that a run was told, its method's own settings one by one among the experiment's."""
    told = {name: value for name, value in record.description.items() if name != "settings"}
    for name, own in (record.description.get("settings") or {}).items():
        told[f"settings.{name}" if name in told else name] = own
    return told


def setting(record: Recorded, name: str) -> Any:
    return record.description[name] if name in record.description else settings(record).get(name)


def parsed(text: str) -> dict[str, Any]:
    """The settings that a text names: METHOD, METHOD@STRENGTH, SETTING=VALUE,... or METHOD:SETTING=VALUE,...

    A method of one's own is ./mine.py:Mine or Mine alone. Several values, any of which will do, stand in
    brackets: vertex=[2,20].
    """
    method, _, filters = text.rpartition(":")
    if "=" not in filters:
        method, filters = text, ""
    if not filters and "=" in method:
        method, filters = "", method
    found: dict[str, Any] = {}
    name, at, strength = method.rpartition("@")
    if at and isinstance(literal(strength), int | float):
        found |= {"method": name.strip(), "strength": literal(strength)}
    elif method:
        found["method"] = method.strip()
    for part in re.split(r",(?![^\[]*\])", filters) if filters else ():
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(
                f"{shown(text)} must be a method (ewc), a method at a strength (gem@0.5), settings "
                "(vertex=20,memories=64), or a method with settings (ewc:strength=100)"
            )
        found[name.strip()] = literal(value.strip())
    if not found:
        raise ValueError("a method or a setting must be named, such as ewc or vertex=20")
    return found


def where(records: Sequence[R], wanted: Mapping[str, Any]) -> list[R]:
    """Those that have these values of settings: of a list of values any will do."""
    told = [(record, settings(record)) for record in records]
    for name, value in wanted.items():
        known = dict.fromkeys(key for _, each in told for key in each)
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"unknown setting {name} of these runs{hint}")
        left = [(record, each) for record, each in told if _fits(each.get(name), value)]
        if not left:
            there = list(dict.fromkeys(written(each.get(name)) for _, each in told))
            others = f"{', '.join(there[:8])}{', ...' if len(there) > 8 else ''}"
            near = difflib.get_close_matches(f"{value}", there, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; theirs: {others}"
            raise ValueError(f"no run has the {name} {written(value)}{hint}")
        told = left
    return [record for record, _ in told]


def _fits(given: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple | set | range) and not isinstance(given, list | tuple):
        return any(_fits(given, each) for each in wanted)
    if given is None or isinstance(given, bool):
        return given is wanted or (given is None and wanted == "none")
    if isinstance(given, str) and ":" in given and given != wanted:
        return given.rpartition(":")[2] == wanted  # a class of one's own, by its name alone
    return bool(given == wanted) and not isinstance(wanted, bool)


def written(value: Any) -> str:
    """A setting's value as a text of it names it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"
