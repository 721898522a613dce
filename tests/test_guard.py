from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from engramma import measures
from engramma.methods import AGEM, EWC, GEM, L2, MAS, METHODS, SI, EWCMoments, Moments, Penalty, Rehearsal
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
    guard = Guard(net, mse_loss, method, strength=None if method in ("vanilla", "gem", "agem") else 1.0)
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


Tasks = list[tuple[Tensor, Tensor]]


def stream(tasks: int = 3, items: int = 100) -> Tasks:
    """Tasks whose inputs and classes move, of values large enough to be learned well."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for task in range(tasks):
        x = torch.randn(items, 10, generator=draw) + task
        found.append((x, (x[:, :5] * (-1) ** task).argmax(1)))
    return found


def network(norm: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    between = [nn.BatchNorm1d(32)] if norm else []
    return nn.Sequential(nn.Linear(10, 32), *between, nn.ReLU(), nn.Linear(32, 5))


def learn(net: nn.Module, guard: Guard, optimiser: torch.optim.Optimizer, tasks: Tasks, epochs: int) -> None:
    for x, y in tasks:
        for _ in range(epochs):
            for start in range(0, len(x), 25):
                optimiser.zero_grad()
                cross_entropy(net(x[start : start + 25]), y[start : start + 25]).backward()
                guard.steer()
                optimiser.step()
                guard.observe()
        guard.consolidate(x, y)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("method", "strength", "norm"), [("mas", 10.0, False), ("ewc", 3000.0, True), ("l2", 100.0, False)]
)
def test_a_strength_that_throws_parameters_off_is_refused_in_time(
    method: str, strength: float, norm: bool, momentum: float
) -> None:
    """The first step at a rate that the penalty does not bear is the last; at a lower one all is well."""
    net = network(norm)
    guard = Guard(net, cross_entropy, method, strength)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=momentum)
    first, *rest = stream()
    learn(net, guard, optimiser, [first], 20)
    anchor = flat(net)
    assert guard.limit * (1 + momentum) < 0.05
    with pytest.raises(ValueError, match=f"strength {strength:g} times a learning rate of 0.05 is too much"):
        learn(net, guard, optimiser, rest, 1)
    assert guard.step == 1
    assert (flat(net) - anchor).abs().max() < 2
    optimiser.param_groups[0]["lr"] = 0.5 * guard.limit
    learn(net, guard, optimiser, rest[:1], 1)
    assert flat(net).isfinite().all()
    assert (flat(net) - anchor).abs().max() < 2


@pytest.mark.parametrize(("times", "bears"), [(0.9, True), (1.1, False)])
def test_the_limit_is_where_gradient_descent_diverges(times: float, bears: bool) -> None:
    """Far from the anchor and with no loss but the penalty, in steps that the guard does not see."""
    net = network()
    guard = Guard(net, cross_entropy, "ewc", 100.0)
    guard.consolidate(*stream()[0])
    anchor = guard.flat.theta()
    theta = anchor + 0.01
    for _ in range(300):
        penalty = guard.method.steer(guard.state, guard._now(None), theta, torch.zeros_like(theta))
        theta = theta - times * guard.limit * penalty
    assert bool((theta - anchor).abs().max() < 0.02) == bears


def test_what_bears_any_strength_is_left_alone() -> None:
    """Adam's steps have a length of their own; and what no step moves cannot be thrown off."""
    net = network()
    guard = Guard(net, cross_entropy, "mas", 1e4)
    learn(net, guard, torch.optim.Adam(net.parameters(), lr=0.01), stream(), 10)
    assert flat(net).isfinite().all()
    heads = nn.ModuleList([nn.Linear(10, 5), nn.Linear(10, 5)])
    guard = Guard(heads, cross_entropy, "mas", 1e4)
    guard.flat.model = heads[0]
    optimiser = torch.optim.SGD(heads.parameters(), lr=0.05)
    x, y = stream()[0]
    theta = guard.flat.theta()
    stiff = torch.zeros_like(theta)
    stiff[..., :55] = 1.0  # the first head
    guard.state, guard.limit, guard.tasks = guard.state._replace(weight=stiff, pull=stiff * theta), 1e-4, 1
    for _ in range(5):
        optimiser.zero_grad()
        cross_entropy(heads[1](x), y).backward()
        guard.steer()
        optimiser.step()
        guard.observe()
    assert torch.equal(guard.flat.theta()[..., :55], theta[..., :55])


def test_no_optimiser_loses_parameters_without_a_word() -> None:
    """A rate of its own for every parameter is no rule that the guard could tell."""
    net = network()
    guard = Guard(net, cross_entropy, "l2", 1e3)
    x, y = stream()[0]
    guard.consolidate(x, y)

    def train(steps: int) -> None:
        for _ in range(steps):
            net.zero_grad()
            cross_entropy(net(x), y).backward()
            guard.steer()
            with torch.no_grad():
                for p in net.parameters():
                    p -= torch.linspace(0, 0.2, p.numel()).view_as(p) * torch.as_tensor(p.grad)
            guard.observe()

    with pytest.raises(ValueError, match="strength 1000 is too much for this optimiser's steps"):
        train(100)
    with pytest.raises(ValueError, match="importances must be finite"):
        Guard(network(), cross_entropy, "ewc", 1.0).consolidate(torch.full((4, 10), torch.nan), y[:4])


@pytest.mark.parametrize("method", [*ALLOWED, "sampled"])
def test_stopped_in_a_task_and_resumed_is_uninterrupted(method: str, tmp_path: Path) -> None:
    """Model, optimiser and guard written by torch.save, and read into fresh ones."""
    tasks = stream()

    def fresh() -> tuple[nn.Module, Guard, torch.optim.Optimizer]:
        net = network(norm=True)
        kind = GEM(proportion=0.5, sample=7) if method == "sampled" else method
        lambdas = {"l2": 1e-3, "ewc": 1.0, "ewc_kronecker": 1.0, "mas": 1e-3, "si": 1e-3}
        guard = Guard(net, cross_entropy, kind, lambdas.get(method), seed=3)
        return net, guard, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)

    def steps(
        net: nn.Module, guard: Guard, optimiser: torch.optim.Optimizer, index: int, some: range
    ) -> None:
        x, y = tasks[index]
        for k in some:
            part = slice(25 * (k % 4), 25 * (k % 4) + 25)
            optimiser.zero_grad()
            cross_entropy(net(x[part]), y[part]).backward()
            guard.steer()
            optimiser.step()
            guard.observe()

    whole, again = fresh(), fresh()
    steps(*whole, 0, range(8))
    whole[1].consolidate(*tasks[0])
    steps(*whole, 1, range(5))
    torch.save([part.state_dict() for part in whole], tmp_path / "state.pt")
    for part, state in zip(again, torch.load(tmp_path / "state.pt"), strict=True):
        part.load_state_dict(state)
    for one in (whole, again):
        steps(*one, 1, range(5, 8))
        one[1].consolidate(*tasks[1])
        steps(*one, 2, range(8))
    assert torch.equal(flat(whole[0]), flat(again[0]))
    assert whole[1].report() == again[1].report()
    assert whole[1].limit == again[1].limit
    unguarded = fresh()
    for index in range(3):
        unguarded[1].tasks = 0
        steps(*unguarded, index, range(8))
    if method != "vanilla":
        assert not torch.equal(flat(whole[0]), flat(unguarded[0]))


def test_a_state_of_something_else_is_refused() -> None:
    guard = Guard(model(), cross_entropy, "ewc", 1.0)
    guard.consolidate(*data())
    state = guard.state_dict()
    Guard(model(), cross_entropy, "ewc", 2.0).load_state_dict(state)  # a lower strength may be what it needs
    with pytest.raises(ValueError, match=r"state must be of MAS.*not of EWC"):
        Guard(model(), cross_entropy, "mas", 1.0).load_state_dict(state)
    with pytest.raises(ValueError, match="state must be of a model with 6 parameters, not 51"):
        Guard(nn.Linear(2, 2), cross_entropy, "ewc", 1.0).load_state_dict(state)


def test_misuse_is_named() -> None:
    alone = {name for name, kind in METHODS.items() if issubclass(kind, Moments)}
    assert (
        set(ALLOWED)
        == {*METHODS, "ewc_kronecker"}
        - {"rehearsal", "pseudorehearsal", "allocation", "der", "lwf", "xdg", "dreams"}
        - alone
    )
    with pytest.raises(ValueError, match="method must be one of vanilla, gem"):
        Guard(model(), cross_entropy, "rehearsal")
    with pytest.raises(ValueError, match="must be a penalty or a projection, not Rehearsal"):
        Guard(model(), cross_entropy, Rehearsal())
    with pytest.raises(ValueError, match="method must be without second moments with a guard"):
        Guard(model(), cross_entropy, EWCMoments())
    with pytest.raises(ValueError, match="strength must be None for the method 'vanilla'"):
        Guard(model(), cross_entropy, "vanilla", 1.0)
    with pytest.raises(ValueError, match="labels must be true where fisher is batch"):
        Guard(model(), cross_entropy, EWC(fisher="batch", labels="predicted"))
    with pytest.raises(ValueError, match="moves must be taken with a guard"):
        Guard(model(), cross_entropy, SI(moves="meant"))
    with pytest.raises(ValueError, match="parameters that require a gradient"):
        Guard(nn.Tanh(), cross_entropy, strength=1.0)
    for name in ("ewc", "l2", "mas", "si"):
        with pytest.raises(
            ValueError, match=f"strength must be given for the method '{name}'.*engramma tune"
        ):
            Guard(model(), cross_entropy, name)
    guard = Guard(model(), cross_entropy, strength=1.0)
    with pytest.raises(RuntimeError, match="call steer"):
        guard.observe()
    with pytest.raises(ValueError, match="equally many items"):
        guard.consolidate(data()[0], data()[1][:3])


def test_the_example_forgets_less_with_ewc() -> None:
    learn = runpy.run_path(str(EXAMPLE))["learn"]
    without, kept = learn("vanilla", None, tasks=3, epochs=6), learn("ewc", 30.0, tasks=3, epochs=6)
    assert measures.forgetting(kept) < measures.forgetting(without) - 0.1
    assert measures.average(kept) > measures.average(without) + 0.05
