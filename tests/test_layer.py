from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from engramma.experiment import read
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import reference
from engramma.methods import Vanilla
from engramma.models.layer import DenseMemoryLayer, NormalisedMomentum, _scores
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.runs.setup import build
from engramma.streams import ClassStream
from engramma.train import Batches, train


def layer(**settings: object) -> DenseMemoryLayer:
    given: dict[str, object] = {"visible": 6, "classes": 3, "memories": 4, "vertex": 3, "spread": 1.0}
    torch.manual_seed(0)
    return DenseMemoryLayer(**{"dtype": torch.float64, **given, **settings})  # type: ignore[arg-type]


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("interaction", ["leaky", "rectified", "polynomial"])
@pytest.mark.parametrize("n", [2, 3, 2.5])
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_gradients_to_input_and_weights(interaction: str, n: float, kernel: str) -> None:
    made = layer(vertex=n, interaction=interaction, kernel=kernel, temperature=0.5)

    def scores(x: torch.Tensor, memories: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(made, {"memories": memories}, (x,))

    assert gradcheck(scores, (inputs(5).requires_grad_(), made.memories))


@pytest.mark.parametrize("n", [2.0, 5.0, 20.0])
def test_an_automatic_temperature_is_that_of_a_run(n: float) -> None:
    """Of the same vertex and size, trained as the paper trains."""
    same = {"vertex": n, "memories": 30, "initial_temperature": "auto", "final_temperature": "auto"}
    run = build([read({**same, "data": "digits", "items": 50, "task_id": False})])
    made = layer(visible=64, classes=10, memories=30, vertex=n, temperature="auto")
    assert made.temperature.item() == run.optimiser.initial_temperature
    assert made.temperature.item() != layer(visible=64, classes=10, vertex=n).temperature.item()
    with pytest.raises(ValueError, match="temperature must be a number or auto, not 'warm'"):
        layer(temperature="warm")


def test_scores_are_the_networks() -> None:
    made, x = layer(temperature=0.7), inputs(2, 5)
    network = DenseMemory(9, 3, LeakyRectifiedPolynomial(3), beta=1 / 0.7)
    probe = torch.cat([x, -torch.ones(2, 5, 3, dtype=x.dtype)], -1).reshape(1, 10, 9)
    there = network.scores(made.memories.detach()[None], probe).reshape(2, 5, 3)
    torch.testing.assert_close(made(x).detach(), there)


def test_second_derivatives_are_refused() -> None:
    x = inputs(5).requires_grad_()
    (slope,) = torch.autograd.grad(layer()(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated once, not twice"):
        slope.sum().backward()


def test_the_operator_keeps_pytorchs_rules() -> None:
    made = layer()
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(_scores, (x, made.memories, "leaky", 3.0, 0.01, "auto"))


def test_compiled_equals_eager() -> None:
    made, x = nn.Sequential(nn.Linear(6, 6, dtype=torch.float64), nn.Tanh(), layer()), inputs(5)
    compiled = torch.compile(made, fullgraph=True)
    found = []
    for model in (made, compiled):
        made.zero_grad()
        o = model(x)
        o.pow(2).sum().backward()
        found.append([o.detach(), *(p.grad for p in made.parameters())])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, NormalisedMomentum])
def test_trains_with_any_optimiser(kind: type[torch.optim.Optimizer]) -> None:
    made, x = layer(memories=16, temperature=0.3, spread=0.3), inputs(40).sign()
    y = (x[:, :3].sum(1) > 0).long() + (x[:, 3:].sum(1) > 0).long()
    rate = 0.5 if kind is torch.optim.SGD else 0.02
    optimiser = kind(made.parameters(), lr=rate)  # type: ignore[call-arg]
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = cross_entropy(made(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_moves_and_is_saved() -> None:
    made = layer(temperature=0.6)
    other = layer(temperature=0.9)
    with torch.no_grad():
        other.memories.zero_()
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(inputs(5)), made(inputs(5)))
    assert set(made.state_dict()) == {"memories", "temperature"}
    half = copy.deepcopy(made).to(torch.float32)
    assert half.temperature.dtype == half.memories.dtype == torch.float32
    torch.testing.assert_close(half(inputs(5).float()), made(inputs(5)).float())
    assert copy.deepcopy(made).to("meta").memories.device.type == "meta"


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="interaction must be one of leaky"):
        layer(interaction="cubic")
    with pytest.raises(ValueError, match="vertex must be a number above 0"):
        layer(vertex=0)
    with pytest.raises(ValueError, match="visible, classes and memories must each be at least 1"):
        layer(memories=0)
    with pytest.raises(ValueError, match="last axis of the input must be 6, not 5"):
        layer()(torch.zeros(2, 5))
    for name, value in (("lr", -1.0), ("momentum", 1.0), ("clamp", 0.0), ("normalise", "mode")):
        with pytest.raises(ValueError, match=f"{name} must be"):
            NormalisedMomentum(layer().parameters(), **{name: value})


@pytest.mark.parametrize("size", [None, 20])
def test_a_plain_loop_gives_the_weights_of_ours(size: int | None) -> None:
    """Layer, optimiser and PyTorch's own schedulers against train(): permuted digits, two tasks."""
    from engramma.streams.datasets import digits

    replicas = Replicas((3,))
    stream = ClassStream(digits(), replicas, tasks=2, items=80)
    ours = Optimiser(epochs=15, initial_temperature=0.9, final_temperature=0.7)
    network = DenseMemory(stream.neurons, 10, LeakyRectifiedPolynomial(4), kernel=reference)
    theta = replicas.memories(32, stream.neurons)

    made = DenseMemoryLayer(network.visible, 10, memories=32, vertex=4, dtype=torch.float64)
    with torch.no_grad():
        made.memories.copy_(theta[0])
    for moment in train(network, stream, Vanilla(), ours, replicas, theta, batch_size=size):
        theta = moment.theta

    for index in range(2):
        task = stream[index]
        optimiser = NormalisedMomentum(made.parameters(), lr=0.1 * 0.999, visible=made.visible)
        decay = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.999)
        batches = Batches(task.train, size or task.train.probe.shape[1], replicas)
        for epoch in range(1, 16):
            made.temperature.fill_(0.9 + (0.7 - 0.9) * epoch / 15)
            for batch, _ in batches.epoch(index, epoch):
                optimiser.zero_grad()
                outputs = torch.tanh(made(batch.probe[0, :, : made.visible]))
                (batch.target[0] - outputs).pow(2).mean().backward()
                optimiser.step()
            decay.step()
    torch.testing.assert_close(made.memories.detach(), theta[0], rtol=1e-9, atol=1e-11)


def test_normalised_momentum_by_hand() -> None:
    """Two steps on one row: the part of the visible columns and the rest by their own largest entries,
    the first clamped."""
    p = nn.Parameter(torch.tensor([[0.98, 0.0, 0.0, 5.0]]))
    optimiser = NormalisedMomentum([p], lr=0.1, momentum=0.5, visible=2, normalise="velocity")
    p.grad = torch.tensor([[-2.0, 1.0, 4.0, 0.0]])
    optimiser.step()
    torch.testing.assert_close(p.detach(), torch.tensor([[1.0, -0.05, -0.1, 5.0]]))
    p.grad = torch.tensor([[1.0, 1.5, -2.0, 0.5]])  # velocity: 0, 2, 0, 0.5
    optimiser.step()
    torch.testing.assert_close(p.detach(), torch.tensor([[1.0, -0.15, -0.1, 4.9]]))
    saved = copy.deepcopy(optimiser.state_dict())
    other = NormalisedMomentum([p], lr=0.3)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.1
    torch.testing.assert_close(other.state[p]["velocity"], torch.tensor([[0.0, 2.0, 0.0, 0.5]]))


def test_a_running_mean_by_hand() -> None:
    """Each gradient over its largest entry, part by part, then halves of it and of the last step."""
    p = nn.Parameter(torch.zeros(1, 4))
    optimiser = NormalisedMomentum([p], lr=0.1, momentum=0.5, visible=2)
    for grad in ([[-2.0, 1.0, 4.0, 0.0]], [[1.0, 0.5, 0.0, -3.0]]):
        p.grad = torch.tensor(grad)
        optimiser.step()
    # scaled: -1, 0.5, 1, 0 and 1, 0.5, 0, -1; means: half the first, then a quarter of it and half the second
    torch.testing.assert_close(p.detach(), torch.tensor([[0.025, -0.0625, -0.075, 0.05]]))


def test_normalised_momentum_on_other_shapes() -> None:
    """A vector is one row; a convolution has a row for every channel."""
    for shape, rows in (((7,), 1), ((3, 2, 2, 2), 3)):
        p = nn.Parameter(torch.zeros(shape))
        p.grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        NormalisedMomentum([p], lr=0.25, normalise="velocity").step()
        largest = p.detach().reshape(rows, -1).abs().amax(1)
        torch.testing.assert_close(largest, torch.full((rows,), 0.25))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_in_one_sentence(dtype: torch.dtype) -> None:
    """Of the layer; inputs may be of any precision, as those of a network in half are."""
    layer = DenseMemoryLayer(6, 2, memories=4).to(dtype)
    says = f"must be float32 or float64, not {str(dtype)[6:]}, which cannot hold"
    with pytest.raises(ValueError, match=says) as caught:
        layer(torch.ones(3, 6, dtype=dtype))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=says):
        DenseMemoryLayer(6, 2, memories=4, dtype=dtype)
    assert layer.float()(torch.ones(3, 6, dtype=dtype)).dtype == torch.float32
