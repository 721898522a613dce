"""A method's state as tensors under names and a tree of JSON, and back."""

from __future__ import annotations

import math
import sys
from typing import Any

from torch import Tensor

from engramma.methods.method import Method
from engramma.network import Items


def flatten(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The shape of a state as JSON; its tensors go into `tensors` under their path."""
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no such number
        return {"float": str(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {"dict": [[k, flatten(v, f"{path}/{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        parts = [flatten(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]
        return (
            {type(value).__name__: parts}
            if type(value) in (list, tuple)
            else {"named": type(value).__name__, "parts": parts}
        )
    raise TypeError(
        f"a method's state must be made of tensors, numbers, texts, lists, dicts and named tuples; "
        f"{path} is a {type(value).__name__}"
    )


def unflatten(tree: Any, tensors: dict[str, Tensor], classes: dict[str, type]) -> Any:
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "plain" in tree:
        return tree["plain"]
    if "float" in tree:
        return float(str(tree["float"]))
    if "dict" in tree:
        return {k: unflatten(v, tensors, classes) for k, v in tree["dict"]}
    if "named" in tree:
        return classes[tree["named"]](*(unflatten(v, tensors, classes) for v in tree["parts"]))
    kind = list if "list" in tree else tuple
    return kind(unflatten(v, tensors, classes) for v in tree[kind.__name__])


def alike(value: Any, like: Any) -> bool:
    """Whether two have the same parts, of the same types and shapes, whatever the numbers in them."""
    if isinstance(like, Tensor):
        return isinstance(value, Tensor) and (value.dtype, value.shape) == (like.dtype, like.shape)
    if isinstance(like, dict):
        there = isinstance(value, dict) and list(value) == list(like)
        return there and all(alike(value[k], part) for k, part in like.items())
    if isinstance(like, list | tuple):
        there = type(value) is type(like) and len(value) == len(like)
        return there and all(map(alike, value, like))
    numbers = isinstance(like, int | float) and isinstance(value, int | float)  # 1 may have become 1.5
    return numbers or type(value) is type(like)


def known(method: Method) -> dict[str, type]:
    """The named tuples that the modules of a method's class and of its bases know, by name."""
    found: dict[str, type] = {"Items": Items}
    for cls in reversed(type(method).__mro__):
        for name, thing in vars(sys.modules[cls.__module__]).items():
            if isinstance(thing, type) and issubclass(thing, tuple) and hasattr(thing, "_fields"):
                found[name] = thing
    return found
