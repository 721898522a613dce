"""EWC with a Kronecker-factored Fisher matrix, for the linear layers of a guarded module.

An item pulls at the weights of a linear layer by g x': x is what comes into the layer, with a 1 for its bias,
and g the derivative of the item's loss by what goes out. So the layer's Fisher matrix is the mean of the
Kronecker products gg' x xx', and with x and g taken for independent G x A, the product of their means. The
term of a task is

    strength / 2 sum over layers of <D, G D A>,   D = (weights and bias) - (those that the task left)

which lets a layer go wherever its answers to the task's inputs stay what they were. What is not of such a
layer is held one by one, as in EWC: so is a layer that items come into more than once, or with further axes.

Kept of a task are G (out, out) and A (in + 1, in + 1) of each layer; `merge` "online" keeps one of each for
all tasks, and the latest centre: G adds up, A is the mean of the tasks', both fading by `decay`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engramma.methods import EWC, Now
from engramma.network import Items

Pair = tuple[Tensor, Tensor]  # G and A of a layer
ROUNDS = 100  # of power iteration


class Linear(NamedTuple):
    """Where a linear layer's weights and bias stand among all parameters."""

    name: str
    shape: tuple[int, int]  # out, in
    weight: int
    bias: int | None

    def read(self, theta: Tensor) -> Tensor:
        """(out, in + 1) out of (1,1,P)."""
        out, into = self.shape
        matrix = theta[0, 0, self.weight : self.weight + out * into].view(out, into)
        if self.bias is None:
            return matrix
        return torch.cat([matrix, theta[0, 0, self.bias : self.bias + out, None]], 1)

    def write(self, theta: Tensor, matrix: Tensor | float) -> None:
        out, into = self.shape
        matrix = torch.as_tensor(matrix).to(theta).expand(out, into + (self.bias is not None))
        theta[0, 0, self.weight : self.weight + out * into] = matrix[:, :into].flatten()
        if self.bias is not None:
            theta[0, 0, self.bias : self.bias + out] = matrix[:, into]


def linear_layers(model: nn.Module, named: dict[str, nn.Parameter]) -> list[Linear]:
    """The linear layers of which `named` has the weights, and which share none of them with others."""
    sizes = [p.numel() for p in named.values()]
    place = {name: sum(sizes[:i]) for i, name in enumerate(named)}
    uses: dict[int, int] = {}
    for _, p in model.named_parameters(remove_duplicate=False):
        uses[id(p)] = uses.get(id(p), 0) + 1
    found = []
    for name, module in model.named_modules():
        if type(module) is not nn.Linear or any(uses[id(p)] > 1 for p in module.parameters(recurse=False)):
            continue
        weight, bias = (f"{name}.{part}".lstrip(".") for part in ("weight", "bias"))
        if weight in place:
            size = module.out_features, module.in_features
            found.append(Linear(name, size, place[weight], place.get(bias)))
    return found


class Factored(NamedTuple):
    weight: Tensor  # (1,1,P) how stiffly each parameter is held: of a layer, its stiffest direction
    single: Tensor  # (1,1,P) the importances of what is held one by one
    pull: Tensor  # (1,1,P) what the penalty's gradient is without its part in theta
    factors: tuple[tuple[Pair, ...], ...]  # of every task, or of all; of every layer


@dataclass(frozen=True)
class KroneckerEWC(EWC):
    """Elastic Weight Consolidation whose Fisher matrix has a Kronecker product for each linear layer. It
    asks a `Guard` for the layers; `fisher` is of items, and `unit` is not for it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fisher != "item":
            raise ValueError("fisher must be item with Kronecker factors, which are means over items")
        if self.unit:
            raise ValueError("unit must be false with Kronecker factors")

    def start(self, theta: Tensor) -> Factored:  # type: ignore[override]
        none = torch.zeros_like(theta)
        return Factored(none, none, none, ())

    def steer(self, state: Factored, now: Now, theta: Tensor, grad: Tensor) -> Tensor:  # type: ignore[override]
        if now.task.index == 0:
            return grad
        net: Any = now.network  # a module laid flat
        held = state.single * theta + curved(net.layers, state.factors, theta) - state.pull
        return grad + 2 * self.half * float(torch.as_tensor(self.strength)) * held

    def consolidate(self, state: Factored, now: Now, theta: Tensor) -> Factored:  # type: ignore[override]
        net: Any = now.network
        omega = self.importance(state, now, theta)  # type: ignore[arg-type]
        pairs = kronecker_factors(net, theta, now.task.train, self.labels == "predicted")
        for layer, pair in zip(net.layers, pairs, strict=True):
            if bool(pair[1].any()):
                layer.write(omega, 0.0)
        if self.merge == "separate":
            single, factors = state.single + omega, (*state.factors, pairs)
            pull = state.pull + omega * theta + curved(net.layers, (pairs,), theta)
        else:
            single = self.decay * state.single + omega
            if state.factors:
                ages = sum(self.decay**age for age in range(now.task.index + 1))
                pairs = tuple(
                    (self.decay * g + fresh, a + (now_a - a) / ages)
                    for (g, a), (fresh, now_a) in zip(state.factors[0], pairs, strict=True)
                )
            factors = (pairs,)
            pull = single * theta + curved(net.layers, factors, theta)
        weight = single.clone()
        for number, layer in enumerate(net.layers):
            own = layer.read(weight).max()
            layer.write(weight, float(own) + stiffness([task[number] for task in factors]))
        return Factored(weight, single, pull, factors)


def kronecker_factors(flat: Any, theta: Tensor, items: Items, predicted: bool) -> tuple[Pair, ...]:
    """Of every linear layer the mean over items of gg' and of xx'; 0 of one that is not to be factored."""
    found = []
    for layer, (x, g) in zip(flat.layers, through(flat, theta, items, predicted), strict=True):
        rows, columns = layer.read(theta).shape
        once = x.ndim == 2 and len(x) == items.probe.shape[1]  # each item comes in once, and in one piece
        if once and layer.bias is not None:
            x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        none = theta.new_zeros(rows, rows), theta.new_zeros(columns, columns)
        found.append((g.T @ g / len(g), x.T @ x / len(x)) if once else none)
    return tuple(found)


def through(flat: Any, theta: Tensor, items: Items, predicted: bool) -> list[tuple[Tensor, Tensor]]:
    """Of every linear layer: what came into it, and each item's derivative by what went out; item by item."""
    into: list[list[Tensor]] = [[] for _ in flat.layers]
    back: list[list[Tensor]] = [[] for _ in flat.layers]
    out: list[tuple[int, Tensor]] = []

    def note(number: int) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Tensor, ...], answer: Tensor) -> None:
            into[number].append(given[0].detach())
            out.append((number, answer))

        return hook

    modules = [flat.model.get_submodule(layer.name) for layer in flat.layers]
    hooks = [module.register_forward_hook(note(number)) for number, module in enumerate(modules)]
    x, y = items.probe[0], items.target[0]
    try:
        with flat.still(), torch.enable_grad():
            for start in range(0, len(x), flat.chunk):
                out.clear()
                part = slice(start, start + flat.chunk)
                answer = flat.call(theta[0, 0].detach().requires_grad_(), x[part])
                goal = answer.argmax(-1) if predicted else y[part]
                # The loss of a batch is a mean: every item is asked for its own.
                each = [flat.loss_of(answer[b : b + 1], goal[b : b + 1]) for b in range(len(answer))]
                made = [o for _, o in out]
                slopes = torch.autograd.grad(torch.stack(each).sum(), made, allow_unused=True) if made else ()
                for (number, o), slope in zip(out, slopes, strict=True):
                    back[number].append(torch.zeros_like(o) if slope is None else slope)
    finally:
        for hook in hooks:
            hook.remove()
    none = [theta.new_zeros(0)]
    return [(torch.cat(x or none), torch.cat(g or none)) for x, g in zip(into, back, strict=True)]


def curved(layers: list[Linear], factors: tuple[tuple[Pair, ...], ...], theta: Tensor) -> Tensor:
    """(1,1,P): sum over tasks of G theta A, over the linear layers; 0 elsewhere."""
    total = torch.zeros_like(theta)
    for number, layer in enumerate(layers):
        matrix = layer.read(theta)
        layer.write(total, sum(g @ matrix @ a for g, a in (task[number] for task in factors)))
    return total


def stiffness(pairs: list[Pair]) -> float:
    """The largest eigenvalue of a sum of Kronecker products, which are symmetric and have none below 0."""
    (g, a), most = pairs[0], 0.0
    # Not along a symmetry of the factors, as a matrix of ones may be.
    matrix = torch.linspace(1, 2, len(g) * len(a), dtype=g.dtype, device=g.device).view(len(g), len(a)).sin()
    for _ in range(ROUNDS):
        matrix = matrix / matrix.norm().clamp(min=torch.finfo(g.dtype).tiny)
        matrix = torch.stack([g @ matrix @ a for g, a in pairs]).sum(0)
        most = float(matrix.norm())
    return most
