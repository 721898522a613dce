"""EWC with Kronecker factors against the products written out, item by item and by autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_guard import data, flat, gradients, model
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engramma.models.guard import Guard
from engramma.models.kronecker import KroneckerEWC, stiffness

CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}


def matrices(net: nn.Sequential) -> list[Tensor]:
    """Weights and bias of the linear layers, side by side."""
    return [torch.cat([m.weight, m.bias[:, None]], 1) for m in net if isinstance(m, nn.Linear)]


def means(net: nn.Sequential, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of both linear layers of `model`: the means of gg' and xx', by a loop over items."""
    one, found = torch.ones(1, dtype=x.dtype), []
    for item, label in zip(x, y, strict=True):
        first = net[0](item)
        middle = net[1](first)
        last = net[2](middle)
        slopes = torch.autograd.grad(cross_entropy(last, label), [first, last])
        into = [torch.cat([item, one]), torch.cat([middle.detach(), one])]
        found.append([(torch.outer(g, g), torch.outer(a, a)) for g, a in zip(slopes, into, strict=True)])
    return [(sum(f[k][0] for f in found) / len(x), sum(f[k][1] for f in found) / len(x)) for k in range(2)]  # type: ignore[misc]


def move(net: nn.Module, by: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(by * torch.randn(p.shape, generator=draw, dtype=p.dtype))


@pytest.mark.parametrize("merge", ["separate", "online"])
@pytest.mark.parametrize("chunk", [7, 256])
def test_steering_is_the_derivative_of_the_products_written_out(merge: str, chunk: int) -> None:
    """strength / 2 sum over tasks and layers of d' (G x A) d. Online: one term, G fades and adds up, A is a
    mean."""
    net, decay = model(), 1.0 if merge == "separate" else 0.5
    guard = Guard(net, cross_entropy, KroneckerEWC(3.0, merge=merge, decay=decay), chunk=chunk)  # type: ignore[arg-type]
    pairs, ends = [], []
    for task in range(2):
        x, y = data(task)
        guard.consolidate(x, y)
        pairs.append(means(net, x, y))
        ends.append([m.detach() for m in matrices(net)])
        move(net, 0.3, task)
    terms = [[torch.kron(g, a) for g, a in pair] for pair in pairs]
    if merge == "online":
        both = list(zip(*pairs, strict=True))
        terms = [[torch.kron(g / 2 + h, (a / 2 + b) / 1.5) for (g, a), (h, b) in both]]
        ends = ends[1:]
    value = torch.zeros((), dtype=torch.float64)
    for term, end in zip(terms, ends, strict=True):
        for product, now, then in zip(term, matrices(net), end, strict=True):
            away = (now - then).flatten()
            value = value + 3.0 / 2 * away @ product @ away
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(net.parameters()))])
    net.zero_grad()
    guard.steer()
    torch.testing.assert_close(gradients(net), expected, **CLOSE)
    assert expected.abs().max() > 1e-3


def test_of_one_item_the_product_is_its_fisher_matrix() -> None:
    """gg' x xx' is the outer product of its whole gradient, which single importances are the diagonal of."""
    net, (x, y) = model(), data(items=1)
    guard = Guard(net, cross_entropy, KroneckerEWC(1.0))
    guard.consolidate(x, y)
    net.zero_grad()
    cross_entropy(net(x), y).backward()
    own = [torch.cat([m.weight.grad, m.bias.grad[:, None]], 1).flatten() for m in (net[0], net[2])]  # type: ignore[union-attr,operator]
    for (g, a), gradient in zip(guard.state.factors[0], own, strict=True):
        torch.testing.assert_close(torch.kron(g, a), torch.outer(gradient, gradient), **CLOSE)


def test_what_is_no_linear_layer_or_is_met_twice_is_held_one_by_one() -> None:
    """A layer norm; a layer that is called twice; one whose weights another has too; one that sees sequences.
    Steering is then that of plain EWC."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.twice, self.one, self.other = (
                nn.LayerNorm(4),
                *(nn.Linear(4, 4) for _ in range(3)),
            )
            self.other.weight = self.one.weight
            self.last = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(self.twice(torch.tanh(self.twice(self.norm(x)))))
            x = self.other(torch.tanh(self.one(x)))
            return self.last(x.unflatten(-1, (2, 2))).sum(1)

    found = []
    for name in ("ewc", "ewc_kronecker"):
        torch.manual_seed(0)
        net = Odd().double()
        guard = Guard(net, cross_entropy, name, strength=10.0)
        guard.consolidate(*data())
        move(net, 0.3, 1)
        net.zero_grad()
        guard.steer()
        found.append(gradients(net))
    torch.testing.assert_close(*found, **CLOSE)
    assert found[0].abs().max() > 1e-3


def test_labels_may_be_the_networks_own() -> None:
    net, (x, y) = model(), data()
    own = net(x).argmax(1)
    assert not torch.equal(own, y)
    told, asked = (
        Guard(net, cross_entropy, KroneckerEWC(1.0)),
        Guard(net, cross_entropy, KroneckerEWC(1.0, labels="predicted")),
    )
    told.consolidate(x, own)
    asked.consolidate(x, y)
    for mine, its in zip(told.state.factors[0], asked.state.factors[0], strict=True):
        torch.testing.assert_close(mine, its, **CLOSE)


@pytest.mark.parametrize("count", [1, 3])
def test_stiffness_is_the_largest_eigenvalue(count: int) -> None:
    draw = torch.Generator().manual_seed(0)
    roots = [
        [torch.randn(size, size, generator=draw, dtype=torch.float64) for size in (3, 5)]
        for _ in range(count)
    ]
    pairs = [(g @ g.T, a @ a.T) for g, a in roots]
    whole = torch.stack([torch.kron(g, a) for g, a in pairs]).sum(0)
    assert stiffness(pairs) == pytest.approx(float(torch.linalg.eigvalsh(whole).max()), rel=1e-3)


@pytest.mark.parametrize(("times", "bears"), [(0.95, True), (1.05, False)])
def test_the_limit_is_where_gradient_descent_diverges(times: float, bears: bool) -> None:
    net = model()
    guard = Guard(net, cross_entropy, "ewc_kronecker", strength=50.0)
    guard.consolidate(*data())
    assert not [m for m in net if isinstance(m, nn.LayerNorm)]
    before = flat(net)
    move(net, 1e-3, 2)
    begun = (flat(net) - before).norm()
    optimiser = torch.optim.SGD(net.parameters(), lr=times * guard.limit)
    for _ in range(400):
        net.zero_grad()
        guard.steer()
        optimiser.step()
    assert bool((flat(net) - before).norm() < begun) == bears


def test_less_is_forgotten_than_by_single_importances_alone() -> None:
    """A linear layer learns on inputs of one subspace, then on inputs at right angles to it: what it learns
    then need not disturb the first task, which single importances do not know."""
    draw = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(8, 8, generator=draw, dtype=torch.float64))[0]
    tasks = []
    for part in (basis[:, :4], basis[:, 4:]):
        x = torch.randn(60, 4, generator=draw, dtype=torch.float64) @ part.T
        tasks.append((x, x @ torch.randn(8, 2, generator=draw, dtype=torch.float64)))
    lost = {}
    for name in ("ewc", "ewc_kronecker"):
        torch.manual_seed(0)
        net = nn.Linear(8, 2, bias=False).double()
        loss = nn.functional.mse_loss
        guard = Guard(net, loss, name, strength=20.0)
        for number, (x, y) in enumerate(tasks):
            # Somewhat before the first task is learned: where it is, every item's gradient is 0.
            for _ in range(15 if number == 0 else 2000):
                net.zero_grad()
                loss(net(x), y).backward()
                guard.steer()
                torch.optim.SGD(net.parameters(), lr=min(0.1, 0.4 * guard.limit)).step()
            guard.consolidate(x, y)
            if number == 0:
                before = loss(net(x), y).item()
        first, second = (loss(net(x), y).item() for x, y in tasks)
        lost[name] = first - before, second
    assert lost["ewc_kronecker"][0] < lost["ewc"][0] / 2
    assert lost["ewc_kronecker"][1] < lost["ewc"][1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fisher": "batch"}, "fisher must be item with Kronecker factors"),
        ({"unit": True}, "unit must be false with Kronecker factors"),
        ({"strength": -1.0}, "strength must be 0 or more"),
    ],
)
def test_settings_that_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KroneckerEWC(**settings)
    with pytest.raises(ValueError, match="strength must be given for the method 'ewc_kronecker'"):
        Guard(model(), cross_entropy, "ewc_kronecker")
