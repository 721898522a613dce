"""An associative memory as one file: what was saved before stays as it is until all of the new is written.

In it lie, as safetensors, the patterns as bits or numbers, the settings as JSON, and a checksum of both.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engramma.interactions import INTERACTIONS
from engramma.models.associative import AssociativeMemory
from engramma.models.energies import Entmax, Epanechnikov, LogSumExp
from engramma.models.patterns import Bits, Patterns, Plain
from engramma.store.files import Damaged, pack_json, pack_tensors, unpack_json, unpack_tensors
from engramma.store.outputs import whole

ENERGIES = {kind.__name__: kind for kind in (*INTERACTIONS.values(), LogSumExp, Entmax, Epanechnikov)}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def save_memory(memory: AssociativeMemory, file: str | Path) -> None:
    """Write a memory, whole or not at all."""
    energy: Any = memory.interaction or getattr(memory.kind, "energy", None)
    if ENERGIES.get(type(energy).__name__) is not type(energy):
        raise ValueError(f"a memory with an energy of one's own, {type(energy).__name__}, cannot be saved")
    about: dict[str, Any] = {
        "energy": type(energy).__name__,
        "settings": dataclasses.asdict(energy),
        "temperature": memory.temperature,
        "dtype": str(memory.dtype).removeprefix("torch."),
        "neurons": {},
    }
    parts: dict[str, Tensor] = {}
    for name, patterns in (("patterns", memory.patterns), ("recalls", memory.recalls)):
        if isinstance(patterns, Bits):
            parts[name], about["neurons"][name] = patterns.packed, patterns.size[1]
        elif isinstance(patterns, Plain):
            parts[name] = patterns.patterns
    parts["about"] = torch.frombuffer(bytearray(pack_json(about)), dtype=torch.uint8)
    parts["sum"] = _sum(parts)
    with whole(Path(file)) as fresh, fresh.open("wb") as out:
        out.write(pack_tensors(parts))
        out.flush()
        os.fsync(out.fileno())


def load_memory(
    file: str | Path, device: torch.device | str = "cpu", kernel: str = "auto"
) -> AssociativeMemory:
    """A memory as it was saved, on any device."""
    try:
        parts = unpack_tensors(Path(file).read_bytes())
        if not torch.equal(parts.pop("sum"), _sum(parts)):
            raise ValueError("it is not what its checksum says")
        about = unpack_json(parts.pop("about").numpy().tobytes())
        energy = ENERGIES[about["energy"]](**about["settings"])
        dtype, place = DTYPES[about["dtype"]], torch.device(device)
        memory = AssociativeMemory(
            temperature=about["temperature"], device=place, dtype=dtype, kernel=kernel, energy=energy
        )

        def read(name: str) -> Patterns | None:
            if name not in parts:
                return None
            if neurons := about["neurons"].get(name):
                return Bits(parts[name].to(place), neurons, dtype, kernel)
            return Plain(parts[name].to(place))

        memory.patterns, memory.recalls = read("patterns"), read("recalls")
    except (Damaged, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{file}: no memory can be read from it ({error})") from None
    return memory


def _sum(parts: dict[str, Tensor]) -> Tensor:
    """(32,) uint8: SHA-256 of all parts but itself."""
    digest = hashlib.sha256()
    for name in sorted(set(parts) - {"sum"}):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(parts[name].cpu().numpy()).data)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
