from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from engramma import measures
from engramma.methods import AGEM, EWC, GEM, L2, MAS, METHODS, SI, Penalty, Rehearsal
from engramma.models.guard import ALLOWED, Guard
from engramma.models.layer import DenseMemoryLayer

EXAMPLE = Path(__file__).parents[1] / "examples" / "mlp_ewc.py"


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def data(seed: int = 0, items: int = 30) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(items, 4, dtype=torch.float64, generator=draw), torch.randint(
        0, 3, (items,), generator=draw
    )


def flat(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def gradients(net: nn.Module) -> Tensor:
    return torch.cat([torch.as_tensor(p.grad).flatten() for p in net.parameters()])


def one_by_one(net: nn.Module, measure) -> Tensor:
    """(B,P): gradients of every item, by a loop."""
    rows = []
    for x, y in zip(*data(), strict=True):
        net.zero_grad()
        measure(net(x[None]), y[None]).backward()
        rows.append(gradients(net))
    net.zero_grad()
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("method", "measure", "power"),
    [
        (EWC(), cross_entropy, 2),
        (EWC(labels="predicted"), lambda o, y: cross_entropy(o, o.argmax(1)), 2),
        (MAS(), lambda o, y: o.pow(2).sum(), 2),
        (MAS(power=1, output="norm"), lambda o, y: o.norm(), 1),
    ],
)
@pytest.mark.parametrize("chunk", [7, 256])
def test_importances_are_those_of_a_loop_over_items(method: Penalty, measure, power: int, chunk: int) -> None:
    net = model()
    guard = Guard(net, cross_entropy, method, chunk=chunk)
    guard.consolidate(*data())
    there = one_by_one(net, measure).abs().pow(power).mean(0)
    torch.testing.assert_close(guard.state.weight[0, 0], there)


@pytest.mark.parametrize("method", [L2(strength=0.3), EWC(strength=5.0), MAS(strength=0.2)])
def test_steering_adds_the_penaltys_gradient(method: Penalty) -> None:
    """One term a task (L2 and EWC) or one term in all (MAS), differentiated by autograd."""
    net = model()
    guard = Guard(net, cross_entropy, method)
    anchors: list[tuple[Tensor, Tensor]] = []
    for task in range(2):
        before = guard.state.weight
        guard.consolidate(*data(task))
        omega = guard.state.weight if method.merge == "online" else guard.state.weight - before
        anchors = [*(anchors if method.merge == "separate" else []), (omega[0, 0], flat(net))]
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(task)))
    net.zero_grad()
    cross_entropy(net(data(2)[0]), data(2)[1]).backward()
    own = gradients(net)
    guard.steer()
    theta = flat(net).requires_grad_()
    strength = torch.as_tensor(method.strength)
    term = sum(strength * method.half * (w * (theta - at) ** 2).sum() for w, at in anchors)
    (there,) = torch.autograd.grad(torch.as_tensor(term), theta)
    assert there.abs().max() > 1e-4
    torch.testing.assert_close(gradients(net) - own, there)


@pytest.mark.parametrize("method", [GEM(proportion=0.5), AGEM(proportion=0.5)])
def test_projections_point_against_no_earlier_task(method: GEM | AGEM) -> None:
    net = model()
    guard = Guard(net, cross_entropy, method)
    turned = 0
    for task in range(2):
        guard.consolidate(*data(task))
    for seed in range(2, 12):
        net.zero_grad()
        x, y = data(seed)
        cross_entropy(net(x), y).backward()
        own = gradients(net)
        guard.steer()
        step = gradients(net)
        kept = [data(task) for task in range(2)]
        kept = [(x[:15], y[:15]) for x, y in kept]
        if isinstance(method, AGEM):
            kept = [tuple(torch.cat(part) for part in zip(*kept, strict=True))]  # type: ignore[list-item]
        for x, y in kept:
            net.zero_grad()
            cross_entropy(net(x), y).backward()
            assert gradients(net) @ step > -1e-12
        turned += not torch.equal(own, step)
        guard.observe()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)))
    assert turned > 0
    assert guard.report()["violated"][0] == pytest.approx(turned / 10)


def test_synaptic_intelligence_sums_to_the_loss_it_took_off() -> None:
    """The path integral of small steps is the fall of the loss."""
    net, (x, y) = model(), data()
    guard = Guard(net, cross_entropy, SI())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.002)
    before = float(cross_entropy(net(x), y).detach())
    for _ in range(200):
        optimiser.zero_grad()
        cross_entropy(net(x), y).backward()
        guard.steer()
        optimiser.step()
        guard.observe()
    fallen = before - float(cross_entropy(net(x), y).detach())
    assert fallen > 0.02
    assert float(guard.state.path.sum()) == pytest.approx(fallen, rel=0.01)


@pytest.mark.parametrize("method", ALLOWED)
def test_three_calls_around_any_module(method: str) -> None:
    """Batch normalisation, dropout, a frozen layer and an unused one, targets that are numbers; the
    module's mode and gradients' shapes stay as they were."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
    net.unused = nn.Linear(2, 2)  # type: ignore[assignment]
    net[0].bias.requires_grad_(False)
    frozen = net[0].bias.clone()  # type: ignore[operator]

    def forward(x: Tensor) -> Tensor:
        return net[3](net[2](net[1](net[0](x))))

    net.forward = forward  # type: ignore[method-assign]
    x, y = torch.randn(20, 4), torch.randn(20, 1)
    guard = Guard(net, mse_loss, method)
    optimiser = torch.optim.Adam([p for p in net.parameters() if p.requires_grad])
    for _ in range(2):
        for _ in range(3):
            optimiser.zero_grad()
            mse_loss(net(x), y).backward()
            guard.steer()
            optimiser.step()
            guard.observe()
        guard.consolidate(x, y)
        assert net.training
    assert torch.equal(net[0].bias, frozen)  # type: ignore[arg-type]


def test_modules_that_torch_func_cannot_follow() -> None:
    net = DenseMemoryLayer(4, 3, memories=5, spread=1.0, vertex=3, dtype=torch.float64)
    guard = Guard(net, cross_entropy, EWC())
    guard.consolidate(*data())
    torch.testing.assert_close(guard.state.weight[0, 0], one_by_one(net, cross_entropy).pow(2).mean(0))


def test_misuse_is_named() -> None:
    assert set(ALLOWED) == set(METHODS) - {"rehearsal", "pseudorehearsal"}
    with pytest.raises(ValueError, match="method must be one of vanilla, gem"):
        Guard(model(), cross_entropy, "rehearsal")
    with pytest.raises(ValueError, match="must be a penalty or a projection, not Rehearsal"):
        Guard(model(), cross_entropy, Rehearsal())
    with pytest.raises(ValueError, match="strength must be None for the method 'vanilla'"):
        Guard(model(), cross_entropy, "vanilla", 1.0)
    with pytest.raises(ValueError, match="labels must be true where fisher is batch"):
        Guard(model(), cross_entropy, EWC(fisher="batch", labels="predicted"))
    with pytest.raises(ValueError, match="moves must be taken with a guard"):
        Guard(model(), cross_entropy, SI(moves="meant"))
    with pytest.raises(ValueError, match="parameters that require a gradient"):
        Guard(nn.Tanh(), cross_entropy)
    guard = Guard(model(), cross_entropy)
    with pytest.raises(RuntimeError, match="call steer"):
        guard.observe()
    with pytest.raises(ValueError, match="equally many items"):
        guard.consolidate(data()[0], data()[1][:3])


def test_the_example_forgets_less_with_ewc() -> None:
    learn = runpy.run_path(str(EXAMPLE))["learn"]
    without, kept = learn("vanilla", None, tasks=3, epochs=6), learn("ewc", 30.0, tasks=3, epochs=6)
    assert measures.forgetting(kept) < measures.forgetting(without) - 0.1
    assert measures.average(kept) > measures.average(without) + 0.05
