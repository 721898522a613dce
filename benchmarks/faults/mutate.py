"""Valid inputs made into hostile ones: bytes blindly, structures value by value."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

TEXTS = [
    "", " ", "x" * 3000, "../../outside", "/etc/passwd", "~/x", "C:\\x", "os:system", "antigravity:Popen",
    "this:s", "[bold]x[/bold]", "[/]", "[/red]", "[link=file:///etc/passwd]x[/link]",
    "\x1b[2J\x1b]0;owned\x07",
    "a\0b", "a\nengramma: all is well", "\r", "\t", "\ud800", "\u202egnp.exe", "\u0660\u0661", "e\u0301" * 40,
    "<script>alert(1)</script>", "</script>", "{0.__class__}", "%s%n", "none", "nan", "-inf", "1e400", "NULL",
    "True", "0x10", "1_000", "\U0001f600", "ewc", "mnist", "digits", "float16", "accuracy", "seed",
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 2, 3, 7, 0.0, -0.0, 0.5, 1.0, 1.5, -0.5, 1e-320, 1e308, -1e308, 1e39, 1e-39, 255, 256,
    1000, 1001,
    2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**19, 10**400, -(10**400),
    float("nan"), float("inf"), float("-inf"),
]  # fmt: skip
OTHERS: list[Any] = [
    None, True, False, [], [[]], [None], {}, {"": {}}, {"a": [1, {"b": None}]}, [0, 1], [1.0, "x"],
    list(range(300)), {str(k): k for k in range(300)}, {"tensor": "theta"}, {"plain": 1},
    {"named": "Popen", "parts": [["true"]]}, {"list": [{"tensor": "x"}]}, {"dict": {"a": {"tuple": []}}},
]  # fmt: skip
DEEP = [b"[" * 200, b"[" * 100_000, b'{"a":' * 3000, b"[" * 3000 + b"]" * 3000, b'{"a":{"a":' * 900]
TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8,
    torch.uint8, torch.bool, torch.float8_e4m3fn,
]  # fmt: skip


def value(chance: random.Random) -> Any:
    """Any value that JSON as Python reads it can say."""
    return chance.choice(chance.choice([TEXTS, NUMBERS, OTHERS]))


def warp(whole: Any, chance: random.Random) -> Any:
    """One of the values of a structure of another kind or size, gone, doubled, or under another name."""
    if isinstance(whole, dict) and whole and chance.random() < 0.85:
        key = chance.choice(list(whole))
        turn = chance.random()
        if turn < 0.08:
            return {k: v for k, v in whole.items() if k != key}
        if turn < 0.14:
            return {**whole, chance.choice(TEXTS): value(chance)}
        if turn < 0.18:
            return {(chance.choice(TEXTS) if k == key else k): v for k, v in whole.items()}
        return {**whole, key: warp(whole[key], chance)}
    if isinstance(whole, list) and whole and chance.random() < 0.75:
        at, turn = chance.randrange(len(whole)), chance.random()
        if turn < 0.1:
            return whole[:at] + whole[at + 1 :]
        if turn < 0.2:
            return whole * chance.choice([2, 50])
        if turn < 0.25:
            return whole[::-1]
        return [*whole[:at], warp(whole[at], chance), *whole[at + 1 :]]
    near = type(whole) in (int, float) and abs(whole) < 1e300  # where limits are
    if near and chance.random() < 0.5:
        return chance.choice(
            [whole + 1, whole - 1, -whole, whole * 1000, whole / 3, float(whole), str(whole)]
        )
    if isinstance(whole, str) and whole and chance.random() < 0.4:
        at = chance.randrange(len(whole))
        return chance.choice([whole[:at], whole + whole, whole.upper(), whole[:at] + "\n" + whole[at:],
                              whole[:at] + chance.choice(TEXTS) + whole[at:]])  # fmt: skip
    return value(chance)


def text(structure: Any, chance: random.Random) -> bytes:
    """JSON of a structure; now and then with something in it that no structure could have."""
    said = json.dumps(structure, ensure_ascii=chance.random() < 0.7)
    out = said.encode("utf-8", "surrogatepass")
    if chance.random() < 0.04:
        place = chance.choice([0, len(out) // 2, len(out)])
        out = out[:place] + chance.choice(DEEP) + out[place:]
    if chance.random() < 0.03:  # a value, nested deeply and closed properly
        deep = chance.choice([50, 990, 20_000])
        out = out.replace(b"null", b"[" * deep + b"]" * deep, 1)
    if chance.random() < 0.02 and out.startswith(b"{"):  # a key twice
        out = b'{"description": 1, "facts": 2, "runs": [], ' + out[1:]
    if chance.random() < 0.02:
        out = b"\xef\xbb\xbf" + out
    return out


def blind(data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """Bits flipped, bytes cut out, doubled, swapped, spliced with another input; or all of it noise."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5, 20])):
        if not out:
            break
        at, span, turn = (
            chance.randrange(len(out)),
            chance.choice([1, 1, 2, 8, 50, 512]),
            chance.randrange(10),
        )
        if turn <= 1:
            out[at] ^= 1 << chance.randrange(8)
        elif turn == 2:
            del out[at : at + span]
        elif turn == 3:
            out[at:at] = out[at : at + span] * chance.choice([1, 2, 300])
        elif turn == 4:
            out[at : at + span] = chance.randbytes(span)
        elif turn == 5:
            del out[at:]
        elif turn == 6:
            odd = [b"\0", b"\xff", b"[", b'"', b"1e999", b"-", b"\n", b"\x1b[31m", b"9" * 5000, *DEEP]
            out[at:at] = chance.choice(odd)
        elif turn == 7:
            out[at : at + 8] = struct.pack("<Q", chance.choice([0, 1, 2**31, 2**63, 2**64 - 1, 10**9]))
        elif turn == 8 and other:
            cut = chance.randrange(len(other) + 1)
            out = out[:at] + other[cut:]
        else:
            out = bytearray(chance.randbytes(chance.choice([0, 1, 8, 100])))
    return bytes(out)


def tensor(old: Tensor, chance: random.Random) -> Tensor:
    """A tensor of another shape, another type or other numbers."""
    turn = chance.randrange(9)
    if turn == 0:
        kind = chance.choice(TYPES)
        return old.to(kind) if kind != torch.float8_e4m3fn else torch.zeros(old.shape, dtype=kind)
    if turn == 1:
        return old.flatten()
    if turn == 2:
        return old[None]
    if turn == 3:
        shape = chance.choice(
            [(), (0,), (0, 0), (1,), (1, 1), (2, 3), (3, 2), (1, 1, 1), (0, 5, 5), (4, 1, 7)]
        )
        return torch.zeros(shape, dtype=old.dtype)
    if turn == 4 and old.dim():
        return old.narrow(0, 0, max(0, len(old) - 1)).contiguous()
    if turn == 5 and old.dim():
        return torch.cat([old, old])
    if turn == 6 and old.dim() > 1:
        return old.transpose(0, 1).contiguous()
    out = old.clone()
    odd = [float("nan"), float("inf"), -1.0, 1e300, 0.0, 2.0**62, 1e-310]
    if out.dtype == torch.float8_e4m3fn:
        return out
    if turn == 7 and out.numel() and out.is_floating_point():
        at, said = chance.randrange(out.numel()), torch.tensor(chance.choice(odd), dtype=torch.float64)
        out.view(-1)[at] = said.to(out.dtype)
        return out
    fill = chance.choice(odd) if out.is_floating_point() else chance.choice([0, 1, -1, 100, 2**31 - 1, 2**62])
    small = 2**7 if out.element_size() == 1 else 2**31
    if out.is_floating_point():  # a type with no room for it makes it infinite
        return torch.full(out.shape, fill, dtype=torch.float64).to(out.dtype)
    return torch.full_like(out, bool(fill) if out.dtype == torch.bool else fill % small)


def tensors(data: bytes, chance: random.Random) -> bytes:
    """A safetensors file with one of its tensors changed, gone, under another name, or one more."""
    found = load(data)
    name, turn = chance.choice(sorted(found)), chance.random()
    if turn < 0.1:
        del found[name]
    elif turn < 0.2:
        label = "".join(c for c in chance.choice(TEXTS) if c.isprintable()) or "x"
        found[chance.choice([label, "scores/" + label, "curves/" + label])] = found[name].clone()
    elif turn < 0.25:
        found[name + "x"] = found.pop(name)
    elif turn < 0.3:
        found = {}
    else:
        for each in [name, *chance.sample(sorted(found), chance.choice([0, 0, 0, len(found)]))]:
            found[each] = tensor(found[each], chance)
    return save({k: v.contiguous() for k, v in found.items()})
