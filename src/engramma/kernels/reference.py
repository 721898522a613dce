"""Plain PyTorch: the specification that every other kernel is tested against.

One pass over the K scored neurons; nothing of size (B, M, K) is ever made.
Signatures and axes are in `engramma.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from engramma.interactions import Interaction
from engramma.losses import Loss

name = "reference"


class Aim(NamedTuple):
    """What the scores of items should become: of each, and by which functions, a gradient is taken."""

    target: Tensor  # (S,B,K)
    share: Tensor  # (S,B) how much an item's error in one scored neuron counts
    loss: Loss
    f: Interaction
    u: Tensor | None = None  # (S,B,K)


class Descent(NamedTuple):
    """By which rule memories step down a gradient."""

    rate: Tensor | float  # (R,1,1), or one for all
    momentum: float
    visible: int  # neurons, the first
    clamp: float | None = None  # of their weights
    normalise: str = "velocity"  # what is divided by its largest entry: this, or "gradient"


def prepare(probe: Tensor, dtype: torch.dtype) -> Tensor:
    """Items as this kernel likes to read them: here, in the memories' own precision."""
    return probe.to(dtype)


def knows(f: Interaction, loss: Loss) -> bool:
    """Any: it asks them for their values and slopes."""
    del f, loss
    return True


def _read(probe: Tensor, neurons: int, dtype: torch.dtype) -> Tensor:
    """Items, whichever kernel prepared them: another may have padded them, or made them of another dtype."""
    return probe[..., :neurons].to(dtype)


def product(probe: Tensor, theta: Tensor) -> Tensor:
    rows, replicas = probe.shape[0], theta.shape[0]
    memories, neurons = theta.shape[1:]
    probe = _read(probe, neurons, theta.dtype)
    if rows == replicas:
        return probe @ theta.mT
    # Replicas that share a row of items are stacked, so that the product reads the items once.
    stacked = theta.reshape(rows, -1, neurons)
    h = probe @ stacked.mT
    return h.unflatten(2, (-1, memories)).transpose(1, 2).flatten(0, 1)


def product_back(dh: Tensor, probe: Tensor, neurons: int) -> Tensor:
    probe = _read(probe, neurons, dh.dtype)
    rows, (replicas, items, memories) = probe.shape[0], dh.shape
    if rows == replicas:
        return dh.mT @ probe
    stacked = dh.unflatten(0, (rows, -1)).transpose(1, 2).reshape(rows, items, -1)
    return (stacked.mT @ probe).unflatten(1, (-1, memories)).flatten(0, 1)


def _signs(u: Tensor | None, h: Tensor, k: int) -> Tensor | float:
    """u of neuron k for every replica, (R,B,1)."""
    if u is None:
        return 1.0
    return u[..., k].repeat_interleave(h.shape[0] // u.shape[0], 0)[..., None]


def scores(h: Tensor, a: Tensor, f: Interaction, u: Tensor | None = None) -> Tensor:
    base = f.value(h).sum(-1)
    out = h.new_empty(*h.shape[:2], a.shape[-1])
    for k in range(a.shape[-1]):
        sign = _signs(u, h, k)
        on = f.value(h + 2 * sign * a[:, None, :, k]).sum(-1)
        out[..., k] = on - base if u is None else sign[..., 0] * (on - base)  # type: ignore[index]
    return out


def slopes(h: Tensor, a: Tensor, g: Tensor, f: Interaction, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
    base = f.slope(h)
    dh, da = torch.zeros_like(h), torch.empty_like(a)
    for k in range(a.shape[-1]):
        sign = _signs(u, h, k)
        on = f.slope(h + 2 * sign * a[:, None, :, k])
        dh += sign * g[..., k, None] * (on - base)
        da[..., k] = 2 * torch.einsum("rb,rbm->rm", g[..., k], on)
    return dh, da


def pull(h: Tensor, a: Tensor, aim: Aim) -> tuple[Tensor, Tensor]:
    times = h.shape[0] // aim.target.shape[0]
    target, share = aim.target.repeat_interleave(times, 0), aim.share.repeat_interleave(times, 0)
    g = aim.loss.slope(scores(h, a, aim.f, aim.u), target) * share[..., None]
    return slopes(h, a, g, aim.f, aim.u)


def in_turn(product: Callable, pull: Callable, product_back: Callable) -> Callable[..., Tensor]:
    """`gradient` of a kernel that has no better way than one after the other."""

    def gradient(theta: Tensor, probe: Tensor, scale: float | Tensor, scored: slice, aim: Aim) -> Tensor:
        scaled = scale * theta
        h, a = product(probe, scaled), scaled[..., scored].contiguous()
        dh, da = pull(h, a, aim)
        grad = product_back(dh, probe, theta.shape[-1])
        grad[..., scored] += da
        return grad.mul_(scale)

    return gradient


gradient = in_turn(product, pull, product_back)


def moments(
    h: Tensor,
    a: Tensor,
    g: Tensor,
    f: Interaction,
    u: Tensor | None,
    x: Tensor,
    power: int,
) -> tuple[Tensor, Tensor]:
    """What per-item gradients add up to, without a loop over items.

    The gradient of item b is the outer product of dh and the item, plus da_b for the scored neurons;
    `x` (S,B,K) is what the item holds in those. Returns |dh|^power and, over the scored neurons,
    the sum over items of |gradient|^power (power 1 or 2).
    """
    dh, out = slopes(h, a, g, f, u)[0], torch.empty_like(a)
    x = x.repeat_interleave(h.shape[0] // x.shape[0], 0)
    for k in range(a.shape[-1]):
        on = f.slope(h + 2 * _signs(u, h, k) * a[:, None, :, k])
        item = dh * x[..., k, None] + 2 * g[..., k, None] * on
        out[..., k] = (item * item if power == 2 else item.abs()).sum(1)
    return (dh * dh if power == 2 else dh.abs()), out


def step(theta: Tensor, grad: Tensor, velocity: Tensor, rule: Descent) -> tuple[Tensor, Tensor]:
    """v = p v + grad; every memory moves by its own v over the largest entry of it, the part of the
    visible neurons and that of the class neurons each by their own largest; visible weights are clamped.

    Where the rule says "gradient", grad is divided so before it enters v, and v is not."""
    if rule.normalise == "gradient":
        grad = scaled(grad, rule.visible)
    velocity = rule.momentum * velocity + grad
    moved = theta + moves(velocity, rule)
    if rule.clamp is not None:
        moved[..., : rule.visible].clamp_(-rule.clamp, rule.clamp)
    return moved, velocity


def moves(velocity: Tensor, rule: Descent) -> Tensor:
    """What a step that leaves this velocity adds to the memories, the clamp left aside."""
    return -rule.rate * (velocity if rule.normalise == "gradient" else scaled(velocity, rule.visible))


def scaled(v: Tensor, visible: int) -> Tensor:
    """Each memory over its largest entry: the visible neurons' part and the class neurons' by their own."""
    out = torch.empty_like(v)
    for part in (slice(0, visible), slice(visible, None)):
        if v[..., part].shape[-1]:
            largest = v[..., part].abs().amax(-1, keepdim=True)
            # A memory that nothing pulls at stays where it is.
            out[..., part] = torch.where(largest == 0, 0.0, v[..., part] / largest)
    return out
