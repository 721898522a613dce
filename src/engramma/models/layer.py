"""The Dense Associative Memory as a PyTorch layer, and the paper's gradient descent as a PyTorch optimiser.

Forward and backward are the kernels' own (`scores`, `slopes`), registered as operators, so that
autograd differentiates them and torch.compile takes them as they are. An operator takes tensors, numbers and
words and no network; it is given the memories over temperature, z. With h = (1/N) probe . z:

    o_k = sum over memories of f(h + 2 a_k) - f(h),   a_k = 1/N of z's weight of class neuron k
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engramma.checks import interaction_class
from engramma.interactions import Interaction, LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.kernels.reference import Descent
from engramma.network import DenseMemory
from engramma.optimiser import as_sum, check_order
from engramma.optimiser import temperature as suitable


class DenseMemoryLayer(nn.Module):
    """Scores (..., classes) of the class neurons for inputs (..., visible); differentiable once.

    `memories` (memories, visible + classes) is the parameter. `temperature` is a buffer of one entry:
    anneal it with `layer.temperature.fill_(...)`. "auto" is what suits vertex and size in a training such as
    the paper's (`engramma.optimiser.temperature`). Inputs may be any numbers; the paper's are -1 and +1.

    Examples
    --------
    >>> import torch
    >>> from engramma.models.layer import DenseMemoryLayer
    >>> layer = DenseMemoryLayer(visible=64, classes=10, memories=32, vertex=3)
    >>> layer(torch.randn(5, 64).sign()).shape
    torch.Size([5, 10])
    """

    temperature: Tensor

    def __init__(
        self,
        visible: int,
        classes: int,
        memories: int = 512,
        *,
        vertex: float = 5,
        interaction: str = "leaky",
        leak: float = 0.01,
        temperature: float | str = 0.875,
        spread: float = 0.1,
        kernel: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if min(visible, classes, memories) < 1:
            raise ValueError("visible, classes and memories must each be at least 1")
        self.visible, self.classes = visible, classes
        self.vertex, self.interaction, self.leak, self.kernel = float(vertex), interaction, leak, kernel
        _interaction(interaction, vertex, leak)
        if dtype is not None:
            _precise(dtype)
        if temperature == "auto":
            temperature = suitable(vertex, memories, visible + classes)
        if isinstance(temperature, str):
            raise ValueError(f"temperature must be a number or auto, not {temperature!r}")
        start = torch.empty(memories, visible + classes, device=device, dtype=dtype).normal_(0, spread)
        self.memories = nn.Parameter(start)
        self.register_buffer("temperature", torch.full((1,), temperature, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.visible:
            raise ValueError(f"the last axis of the input must be {self.visible}, not {x.shape[-1]}")
        _precise(self.memories.dtype)
        flat = x.reshape(-1, self.visible).to(self.memories.dtype)
        z = self.memories / self.temperature
        o = _scores(flat, z, self.interaction, self.vertex, self.leak, self.kernel)
        return o.reshape(*x.shape[:-1], self.classes)

    def extra_repr(self) -> str:
        shape = f"{self.visible}, {self.classes}, memories={len(self.memories)}"
        return f"{shape}, vertex={self.vertex:g}, interaction={self.interaction!r}"


def _precise(dtype: torch.dtype) -> None:
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"a DenseMemoryLayer must be float32 or float64, not {str(dtype)[6:]}, which cannot hold powers "
            "of similarities: call .float() on it, in a network of any precision"
        )


def _interaction(name: str, n: float, leak: float) -> Interaction:
    kind = interaction_class(name)
    return kind(n, leak) if kind is LeakyRectifiedPolynomial else kind(n)


def _network(
    x: Tensor, z: Tensor, interaction: str, n: float, leak: float, kernel: str
) -> tuple[DenseMemory, Tensor]:
    """The network of memories z (M,N) over temperature, and inputs x (B,visible) as its probe (1,B,N)."""
    (items, visible), neurons = x.shape, z.shape[1]
    f, kind = _interaction(interaction, n, leak), kernel_for(z.device, kernel)
    network = DenseMemory(neurons, neurons - visible, f, beta=1.0, kernel=kind)
    probe = torch.cat([x, x.new_full((items, neurons - visible), -1.0)], 1)
    return network, kind.prepare(probe[None], z.dtype)


@torch.library.custom_op("engramma::scores", mutates_args=())
def _scores(x: Tensor, z: Tensor, interaction: str, n: float, leak: float, kernel: str) -> Tensor:
    """(B,K) of inputs (B,visible) and z (M,N)."""
    network, probe = _network(x, z, interaction, n, leak, kernel)
    return network.scores(z[None], probe)[0].clone()


@_scores.register_fake
def _(x, z, interaction, n, leak, kernel):
    return z.new_empty(x.shape[0], z.shape[1] - x.shape[1])


@torch.library.custom_op("engramma::slopes", mutates_args=())
def _slopes(
    pull: Tensor, x: Tensor, z: Tensor, interaction: str, n: float, leak: float, kernel: str
) -> tuple[Tensor, Tensor]:
    """`pull` (B,K) = dL/do taken back to the inputs (B,visible) and to z (M,N)."""
    network, probe = _network(x, z, interaction, n, leak, kernel)
    k, visible = network.arithmetic, network.visible
    h = network.similarity(z[None], probe)
    a = (network.scale * z[None, :, visible:]).contiguous()
    dh, da = k.slopes(h, a, pull[None].contiguous(), network.interaction, None)
    back = k.product_back(dh, probe, network.neurons)
    back[..., visible:] += da
    return (network.scale * (dh @ z[:, :visible]))[0], (network.scale * back)[0]


@_slopes.register_fake
def _(pull, x, z, interaction, n, leak, kernel):
    return torch.empty_like(x), torch.empty_like(z)


def _setup(ctx, inputs, output):
    x, z, *ctx.settings = inputs
    ctx.save_for_backward(x, z)


def _backward(ctx, pull):
    return *_slopes(pull, *ctx.saved_tensors, *ctx.settings), None, None, None, None


def _refuse(ctx, *pulls):
    raise RuntimeError(
        "DenseMemoryLayer can be differentiated once, not twice: its kernels have no second derivative"
    )


_scores.register_autograd(_backward, setup_context=_setup)
_slopes.register_autograd(_refuse)


class NormalisedMomentum(torch.optim.Optimizer):
    """The paper's gradient descent, row by row; every row moves by lr m, with

        m = momentum m + (1 - momentum) grad / (largest entry of grad)

    A row is a memory, or whatever else the first axis of a parameter counts; a vector is one row.
    `normalise`: "mean" is that; with "velocity" it is v = momentum v + grad that is divided so, a step at a
    time, as in the authors' public package ("gradient": `engramma.optimiser`).
    `visible`: the first so many columns are divided by their own largest entry, apart from the rest,
    and kept within [-clamp, clamp]; None (or more than there are): all of them. `clamp` None keeps
    none. For `DenseMemoryLayer`, `visible=layer.visible` is what the paper does; the rate falls by
    0.999 an epoch with `torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.999)`.

    Examples
    --------
    >>> import torch
    >>> from engramma.models.layer import DenseMemoryLayer, NormalisedMomentum
    >>> layer = DenseMemoryLayer(visible=8, classes=2, memories=4)
    >>> optimiser = NormalisedMomentum(layer.parameters(), lr=0.1, visible=layer.visible)
    >>> before = layer.memories.detach().clone()
    >>> layer(torch.ones(3, 8)).sum().backward()
    >>> optimiser.step()
    >>> (before - layer.memories.detach()).abs().max() <= 0.101
    tensor(True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.1,
        momentum: float = 0.6,
        visible: int | None = None,
        clamp: float | None = 1.0,
        normalise: str = "mean",
    ) -> None:
        check_order(normalise)
        if not lr >= 0:
            raise ValueError(f"lr must be 0 or more, not {lr}")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, not {momentum}")
        if clamp is not None and not clamp > 0:
            raise ValueError(f"clamp must be above 0 or None, not {clamp}")
        rule = {"lr": lr, "momentum": momentum, "visible": visible, "clamp": clamp, "normalise": normalise}
        super().__init__(params, rule)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step(p, group)
        return loss

    def _step(self, p: Tensor, group: dict[str, Any]) -> None:
        if p.grad is None or p.grad.is_sparse:
            raise RuntimeError("NormalisedMomentum does not take sparse gradients")
        rows = (1, 1, -1) if p.dim() < 2 else (1, len(p), -1)
        theta, grad = p.reshape(rows), p.grad.reshape(rows)
        if "velocity" not in self.state[p]:
            self.state[p]["velocity"] = torch.zeros_like(p)
        velocity = self.state[p]["velocity"].reshape(rows)
        columns = theta.shape[-1]
        visible = columns if group["visible"] is None else min(group["visible"], columns)
        rule = Descent(group["lr"], group["momentum"], visible, group["clamp"], group["normalise"])
        moved, velocity = kernel_for(p.device).step(theta, grad, velocity, as_sum(rule))
        p.copy_(moved.reshape(p.shape))
        self.state[p]["velocity"] = velocity.reshape(p.shape)
