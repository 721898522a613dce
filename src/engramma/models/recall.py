"""Recall, for whichever network: states are updated until they rest, each for itself.

What a network says of itself are three functions of states (B,N): what it sees of them, where they move, and
how high their energy is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

ORDERS = ("synchronous", "asynchronous")


class Recalled(NamedTuple):
    """Shaped like the probe: B states, or one."""

    state: Tensor  # (B,N)
    steps: Tensor  # (B,) updates that changed something
    converged: Tensor  # (B,) bool
    energy: Tensor | None = None  # (B,T+1) before the first update and after each, where it was asked for

    def shaped(self, probe: Tensor | np.ndarray) -> Recalled:
        """Of one state, where one was asked for."""
        energy = None if self.energy is None else like(self.energy, probe)
        return Recalled(like(self.state, probe), like(self.steps, probe), like(self.converged, probe), energy)


class Dynamics(NamedTuple):
    see: Callable[[Tensor], Any]
    move: Callable[[Any, Tensor, Tensor], Tensor]  # what is seen, the states, which neurons are held -> (B,N)
    level: Callable[[Any], Tensor]  # what is seen -> (B,)
    tolerance: float = 0.0  # a state rests where no neuron moves further


def settle(state: Tensor, known: Tensor, dynamics: Dynamics, steps: int, trace: bool = False) -> Recalled:
    """Update states (B,N) until each rests, at most `steps` times; `known` neurons (B,N) never move.

    One that swings between two states would do so until the end: it is there at once.
    """
    see, move, level, tolerance = dynamics
    state = state.clone()
    count = torch.zeros(len(state), dtype=torch.long, device=state.device)
    live = torch.arange(len(state), device=state.device)  # those that do not rest
    earlier, energies = state.new_full(state.shape, torch.nan), []

    def note(seen: Any) -> None:
        last = energies[-1].clone() if energies else state.new_empty(len(state))
        last[live] = level(seen)
        energies.append(last)

    swinging = torch.zeros_like(count, dtype=torch.bool)
    for left in range(steps - 1, -1, -1):
        before = state[live]
        seen = see(before)
        if trace:
            note(seen)
        after = torch.where(known[live], before, move(seen, before, known[live]))
        moving = (after - before).abs().amax(1) > tolerance
        swings = moving & (after == earlier[live]).all(1)
        count[live] += moving + left * swings
        state[live] = torch.where((swings & (left % 2 == 1))[:, None], before, after)
        earlier[live] = before
        swinging[live] = swings
        live = live[moving & ~swings]
        if not len(live):
            break
    if trace and (len(live) or not energies):
        note(see(state[live]))
    resting = ~swinging
    resting[live] = False
    return Recalled(state, count, resting, torch.stack(energies, 1) if trace else None)


def joined(parts: list[Recalled]) -> Recalled:
    """One after the other; a shorter trace stays at its end."""
    if len(parts) == 1:
        return parts[0]
    states, steps, converged = (torch.cat(list(each)) for each in list(zip(*parts, strict=True))[:3])
    traces = [part.energy for part in parts if part.energy is not None]
    longest = max((trace.shape[1] for trace in traces), default=0)
    whole = [torch.cat([e, e[:, -1:].expand(-1, longest - e.shape[1])], 1) for e in traces]
    return Recalled(states, steps, converged, torch.cat(whole) if whole else None)


def bipolar(
    states: Tensor | np.ndarray, name: str, neurons: int | None = None, erased: bool = False
) -> Tensor:
    """(B,N), one row for a single state; refused unless every entry is -1 or +1; or 0, if `erased`."""
    of = "-1 and +1" + (", or 0 where it is not known" if erased else "")
    tensor = _rows(states, neurons, name, of)
    for block in tensor.split(max(1, 2**24 // tensor.shape[1])):  # a million patterns are not copied whole
        size = block.abs()
        if not bool(((size == 1) | (size == 0) if erased else size == 1).all()):
            raise ValueError(f"{name} must be {of}, of shape (neurons,) or (items, neurons)")
    return tensor


def real(states: Tensor | np.ndarray, name: str, neurons: int | None = None) -> Tensor:
    """(B,N), one row for a single state; refused unless every entry is a finite number."""
    tensor = _rows(states, neurons, name, "finite numbers")
    if tensor.is_complex() or not bool(tensor.isfinite().all()):
        raise ValueError(f"{name} must be finite numbers, of shape (neurons,) or (items, neurons)")
    return tensor


def _rows(states: Tensor | np.ndarray, neurons: int | None, name: str, of: str) -> Tensor:
    tensor = torch.as_tensor(states)
    tensor = tensor[None] if tensor.dim() == 1 else tensor
    if tensor.dim() != 2 or tensor.numel() == 0:
        raise ValueError(
            f"{name} must be {of}, of shape (neurons,) or (items, neurons), not {tuple(tensor.shape)}"
        )
    if neurons is not None and tensor.shape[1] != neurons:
        raise ValueError(f"{name} must have {neurons} neurons, not {tensor.shape[1]}")
    return tensor


def like(answer: Tensor, asked: Tensor | np.ndarray) -> Tensor:
    """One number, or one row, where one state was asked for."""
    return answer[0] if np.ndim(asked) == 1 else answer


def rounded(o: Tensor, size: Tensor, terms: int) -> Tensor:
    """Sums of so many terms, `size` in all: 0 where they differ from it by rounding alone."""
    return torch.where(o.abs() > 4 * torch.finfo(o.dtype).eps * terms**0.5 * size, o, 0.0)


def masked(known: Tensor | np.ndarray | None, state: Tensor) -> Tensor:
    """(B,N) bool: which neurons of the states (B,N) are held."""
    if known is None:
        return torch.zeros_like(state, dtype=torch.bool)
    mask = torch.as_tensor(known, dtype=torch.bool, device=state.device)
    if mask.shape not in (state.shape, state.shape[1:]):
        raise ValueError(f"known must be of shape {tuple(state.shape[1:])}, not {tuple(mask.shape)}")
    return mask.expand(state.shape)
