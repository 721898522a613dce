"""The Dense Associative Memory as a PyTorch layer.

Forward and backward are the kernels' own (`scores`, `slopes`), registered as operators, so that
autograd differentiates them and torch.compile takes them as they are. With h = (beta/N) probe . memory:

    o_k = sum over memories of f(h + 2 a_k) - f(h),   a_k = (beta/N) the memory's weight of class neuron k
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engramma.checks import interaction_class
from engramma.interactions import Interaction, LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.network import DenseMemory


class DenseMemoryLayer(nn.Module):
    """Scores (..., classes) of the class neurons for inputs (..., visible); differentiable once.

    `memories` (memories, visible + classes) is the parameter. `temperature` is a buffer of one entry:
    anneal it with `layer.temperature.fill_(...)`. Inputs may be any numbers; the paper's are -1 and +1.

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
        vertex: float = 5,
        interaction: str = "leaky",
        leak: float = 0.01,
        temperature: float = 0.875,
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
        start = torch.empty(memories, visible + classes, device=device, dtype=dtype).normal_(0, spread)
        self.memories = nn.Parameter(start)
        self.register_buffer("temperature", torch.full((1,), temperature, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.visible:
            raise ValueError(f"the last axis of the input must be {self.visible}, not {x.shape[-1]}")
        _precise(self.memories.dtype)
        hidden = x.new_full((*x.shape[:-1], self.classes), -1.0)
        probe = torch.cat([x, hidden], -1).reshape(-1, self.visible + self.classes)
        o = _scores(
            probe.to(self.memories.dtype),
            self.memories,
            1 / self.temperature,
            self.classes,
            self.interaction,
            self.vertex,
            self.leak,
            self.kernel,
        )
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
    theta: Tensor, beta: Tensor, classes: int, interaction: str, n: float, leak: float, kernel: str
) -> DenseMemory:
    f = _interaction(interaction, n, leak)
    return DenseMemory(theta.shape[1], classes, f, beta=beta, kernel=kernel_for(theta.device, kernel))


@torch.library.custom_op("engramma::scores", mutates_args=())
def _scores(
    probe: Tensor,
    theta: Tensor,
    beta: Tensor,
    classes: int,
    interaction: str,
    n: float,
    leak: float,
    kernel: str,
) -> Tensor:
    """(B,K) from probe (B,N), theta (M,N) and beta (1,)."""
    network = _network(theta, beta, classes, interaction, n, leak, kernel)
    return network.scores(theta[None], network.kernel.prepare(probe[None], theta.dtype))[0].clone()


@_scores.register_fake
def _(probe, theta, beta, classes, interaction, n, leak, kernel):
    return theta.new_empty(probe.shape[0], classes)


@torch.library.custom_op("engramma::slopes", mutates_args=())
def _slopes(
    pull: Tensor,
    probe: Tensor,
    theta: Tensor,
    beta: Tensor,
    classes: int,
    interaction: str,
    n: float,
    leak: float,
    kernel: str,
) -> tuple[Tensor, Tensor]:
    """`pull` (B,K) = dL/do taken back to the probe (B,N) and to theta (M,N)."""
    network = _network(theta, beta, classes, interaction, n, leak, kernel)
    k, first = network.arithmetic, network.visible
    x = network.kernel.prepare(probe[None], theta.dtype)
    h = network.similarity(theta[None], x)
    a = (network.scale * theta[None, :, first:]).contiguous()
    dh, da = k.slopes(h, a, pull[None].contiguous(), network.interaction, None)
    back = k.product_back(dh, x, network.neurons)
    back[..., first:] += da
    return (network.scale * (dh @ theta))[0], (network.scale * back)[0]


@_slopes.register_fake
def _(pull, probe, theta, beta, classes, interaction, n, leak, kernel):
    return torch.empty_like(probe), torch.empty_like(theta)


def _setup(ctx, inputs, output):
    probe, theta, beta, *ctx.settings = inputs
    ctx.save_for_backward(probe, theta, beta)


def _backward(ctx, pull):
    dprobe, dtheta = _slopes(pull, *ctx.saved_tensors, *ctx.settings)
    return dprobe, dtheta, None, None, None, None, None, None


def _refuse(ctx, *pulls):
    raise RuntimeError(
        "DenseMemoryLayer can be differentiated once, not twice: its kernels have no second derivative"
    )


_scores.register_autograd(_backward, setup_context=_setup)
_slopes.register_autograd(_refuse)
