"""Probes to recall patterns from: some neurons turned over, erased, noisy, or all but a part unknown.

Patterns (N,) or (B,N), as tensors or arrays, give probes of the same shape, float64. The same seed gives the
same probes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engramma.replicas import generator


def flipped(patterns: Tensor | np.ndarray, share: float, seed: int = 0) -> Tensor:
    """In every pattern this share of the neurons, to a whole number, has the other sign.

    Examples
    --------
    >>> import torch
    >>> from engramma.models.probes import flipped
    >>> int((flipped(torch.ones(20), 0.25) < 0).sum())
    5
    """
    x = _read(patterns)
    return torch.where(_chosen(x, share, seed), -x, x)


def erased(patterns: Tensor | np.ndarray, share: float, seed: int = 0) -> Tensor:
    """In every pattern this share of the neurons, to a whole number, is 0: not known."""
    x = _read(patterns)
    return torch.where(_chosen(x, share, seed), 0.0, x)


def noisy(patterns: Tensor | np.ndarray, deviation: float, seed: int = 0) -> Tensor:
    """The patterns with normal noise added, for memories of continuous states."""
    x = _read(patterns)
    if not 0 <= deviation < float("inf"):
        raise ValueError(f"deviation must be a number of at least 0, not {deviation}")
    return x + deviation * torch.as_tensor(generator(seed, "noisy probes").standard_normal(tuple(x.shape)))


def partial(patterns: Tensor | np.ndarray, known: Tensor | np.ndarray) -> Tensor:
    """The patterns where `known` (N,) or (B,N) is true, and 0 elsewhere. Recall with the same `known` leaves
    this part as it is."""
    x, known = _read(patterns), torch.as_tensor(known, dtype=torch.bool)
    if known.shape not in (x.shape, x.shape[-1:]):
        raise ValueError(f"known must be of shape {tuple(x.shape[-1:])}, not {tuple(known.shape)}")
    return torch.where(known, x, 0.0)


def _read(patterns: Tensor | np.ndarray) -> Tensor:
    return torch.as_tensor(patterns).to("cpu", torch.float64)


def _chosen(x: Tensor, share: float, seed: int) -> Tensor:
    """Like x, true for this share of each row's neurons."""
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1, not {share}")
    drawn = torch.as_tensor(generator(seed, "probes").random(tuple(x.shape)))
    return drawn.argsort(-1).argsort(-1) < round(share * x.shape[-1])
