"""The network against the paper's equations, written out the slow way."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engramma.diagnostics import support
from engramma.interactions import INTERACTIONS, Interaction, LeakyRectifiedPolynomial, Polynomial
from engramma.kernels import kernel_for
from engramma.losses import SQUARED, Squared
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser

VERTICES = (1, 1.5, 2, 3, 10, 20, 30)
PULLS = ("loss", "predicted", "output", "norm")


def problem(
    f: Interaction,
    autoassociative: bool = False,
    real: bool = False,
    rows: int = 2,
    replicas: int = 4,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
    **settings: object,
) -> tuple[DenseMemory, Tensor, Items]:
    """A random network and items: 9 visible and 3 class neurons, 5 memories, 6 items, one of them padding.

    The memories are scaled so that the largest similarity is 1: at any vertex, scores and slopes are then
    of order 1, and comparing them shows something."""
    draw = torch.Generator().manual_seed(7)
    probe = torch.randint(0, 2, (rows, 6, 12), generator=draw).double() * 2 - 1
    if real:
        probe[..., :9] = torch.rand((rows, 6, 9), generator=draw, dtype=torch.float64) * 2 - 1
    target = probe.clone()
    if not autoassociative:
        probe[..., 9:] = -1
        target = torch.full((rows, 6, 3), -1.0, dtype=torch.float64)
        target.scatter_(2, torch.randint(0, 3, (rows, 6, 1), generator=draw), 1.0)
    weight = torch.ones(rows, 6, dtype=torch.float64)
    weight[0, -1] = 0
    ids = torch.arange(6).expand(rows, -1)
    beta = torch.linspace(0.8, 1.3, replicas, dtype=torch.float64)
    theta = torch.randn(replicas, 5, 12, generator=draw, dtype=torch.float64)
    each = probe.repeat_interleave(replicas // rows, 0)
    h = (beta[:, None, None] / 12) * each @ theta.mT
    theta = theta / h.amax((1, 2), keepdim=True)
    network = DenseMemory(12, 3, f, autoassociative=autoassociative, beta=beta.to(device, dtype), **settings)  # type: ignore[arg-type]
    to = {"device": device, "dtype": dtype}
    items = Items(probe.to(**to), target.to(**to), weight.to(**to), ids.to(device))
    return network, theta.to(**to), items


def transcribed(network: DenseMemory, theta: Tensor, probe: Tensor, neurons: list[int]) -> Tensor:
    """The paper's equation for one replica, literally: every item, every neuron, clamped on and off."""
    out = torch.empty(len(probe), len(neurons), dtype=theta.dtype, device=theta.device)
    for b, (k, i) in itertools.product(range(len(probe)), enumerate(neurons)):
        on, off = probe[b].clone(), probe[b].clone()
        on[i], off[i] = 1, -1
        out[b, k] = sum(
            network.interaction.value(network.beta / 12 * (zeta @ on))
            - network.interaction.value(network.beta / 12 * (zeta @ off))
            for zeta in theta
        )
    return out


def alone(network: DenseMemory, r: int) -> DenseMemory:
    assert isinstance(network.beta, Tensor)
    return network.at(float(network.beta[r]))


@pytest.mark.parametrize("n", VERTICES)
@pytest.mark.parametrize("name", INTERACTIONS)
@pytest.mark.parametrize("autoassociative", [False, True])
def test_scores_are_the_papers(name: str, n: float, autoassociative: bool, device, dtype, near) -> None:
    network, theta, items = problem(INTERACTIONS[name](n), autoassociative, device=device, dtype=dtype)
    found = network.scores(theta, items.probe)
    learned = list(range(12)) if autoassociative else [9, 10, 11]
    for r in range(4):
        expected = transcribed(alone(network, r), theta[r], items.probe[r // 2], learned)
        torch.testing.assert_close(found[r], expected, **near)
    assert found.abs().max() > 0.01


def test_scores_of_chosen_neurons(near, device, dtype) -> None:
    """Any slice of neurons, whatever the present values of the class neurons."""
    network, theta, items = problem(LeakyRectifiedPolynomial(3), True, device=device, dtype=dtype)
    network = DenseMemory(12, 3, network.interaction, beta=network.beta)  # a classifier asked about anything
    found = network.scores(theta, items.probe, slice(2, 11, 3))
    for r in range(4):
        expected = transcribed(alone(network, r), theta[r], items.probe[r // 2], [2, 5, 8])
        torch.testing.assert_close(found[r], expected, **near)


@pytest.mark.parametrize("real", [False, True])
def test_real_valued_pixels(real: bool, near, device, dtype) -> None:
    network, theta, items = problem(LeakyRectifiedPolynomial(3), real=real, device=device, dtype=dtype)
    expected = torch.stack(
        [transcribed(alone(network, r), theta[r], items.probe[r // 2], [9, 10, 11]) for r in range(4)]
    )
    torch.testing.assert_close(network.scores(theta, items.probe), expected, **near)
    assert torch.equal(network.predict(theta, items.probe), expected.argmax(-1))


class ClosedForm(torch.autograd.Function):
    """The loss, with the closed form as its derivative, for gradcheck to compare with differences."""

    @staticmethod
    def forward(ctx, theta: Tensor, network: DenseMemory, items: Items) -> Tensor:
        ctx.slope = network.gradient(theta.detach(), items)
        return network.loss(theta.detach(), items)

    @staticmethod
    def backward(ctx, *outputs: Tensor):
        return outputs[0][:, None, None] * ctx.slope, None, None


@pytest.mark.parametrize("n", VERTICES)
@pytest.mark.parametrize("name", INTERACTIONS)
@pytest.mark.parametrize("autoassociative", [False, True])
def test_gradient(name: str, n: float, autoassociative: bool, device, dtype, near) -> None:
    """Equal to autograd's of every replica's own loss, and to finite differences."""
    f = INTERACTIONS[name](n)
    network, theta, items = problem(f, autoassociative, device=device, dtype=dtype)
    found = network.gradient(theta, items)
    variable = theta.clone().requires_grad_()
    # The sum: a replica's gradient must not depend on how many there are.
    (expected,) = torch.autograd.grad(network.loss(variable, items).sum(), variable)
    torch.testing.assert_close(found, expected, **near)
    assert found.abs().amax((1, 2)).min() > 1e-3
    if dtype == torch.float64:
        few, start, some = problem(f, autoassociative, rows=1, replicas=1, device=device)
        assert torch.autograd.gradcheck(
            lambda theta: ClosedForm.apply(theta, few, some),
            start.requires_grad_(),
            atol=1e-6,
            fast_mode=True,
        )


@pytest.mark.parametrize("autoassociative", [False, True])
def test_the_loss(autoassociative: bool, device, dtype, near) -> None:
    """(t - tanh o)^2; mean over the scored neurons and the items that carry weight."""
    f = LeakyRectifiedPolynomial(3)
    network, theta, items = problem(f, autoassociative, device=device, dtype=dtype, loss_of=SQUARED)
    target, y = items.expand(4).target, network.scores(theta, items.probe).tanh()
    error = (target - y) ** 2
    expected = torch.stack([error[0, :5].mean(), error[1, :5].mean(), error[2].mean(), error[3].mean()])
    torch.testing.assert_close(network.loss(theta, items), expected, **near)
    variable = theta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(network.loss(variable, items).sum(), variable)
    torch.testing.assert_close(network.gradient(theta, items), slope, **near)


def item_value(network: DenseMemory, theta: Tensor, item: Items, pull: str) -> Tensor:
    """What one item's gradient is taken of; item has one row of one item."""
    o = network.scores(theta, item.probe)
    y = o.tanh()
    if pull == "output":
        return (y * y).sum()
    if pull == "norm":
        return (y * y).sum().sqrt()
    if pull == "predicted":
        o = o.detach()
        best = o.sign() if network.autoassociative else 2.0 * (o == o.amax(-1, keepdim=True)) - 1
        item = item._replace(target=best)
    return network.loss(theta, item).sum()


@pytest.mark.parametrize("pull", PULLS)
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("autoassociative", "real"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("n", [2, 3, 10])
def test_per_item_is_a_loop_over_items(
    pull: str, power: int, autoassociative: bool, real: bool, n: int, device, dtype, near
) -> None:
    f = LeakyRectifiedPolynomial(n)
    network, theta, items = problem(f, autoassociative, real, device=device, dtype=dtype)
    expected = torch.zeros_like(theta)
    for r in range(4):
        row = Items(*(part[r // 2 : r // 2 + 1] for part in items))
        count = int(row.weight.sum())
        for b in range(count):
            variable = theta[r : r + 1].clone().requires_grad_()
            value = item_value(alone(network, r), variable, row.row(slice(b, b + 1)), pull)
            expected[r] += torch.autograd.grad(value, variable)[0][0].abs() ** power / count
    torch.testing.assert_close(network.per_item(theta, items, pull, power), expected, **near)
    assert expected.max() > 1e-4


def test_bipolar_importance_is_one_number_a_memory() -> None:
    """x^2 = 1, so the visible weights of a memory share their Fisher information exactly."""
    network, theta, items = problem(LeakyRectifiedPolynomial(3))
    visible = network.per_item(theta, items, "loss", 2)[..., :9]
    torch.testing.assert_close(visible, visible[..., :1].expand_as(visible), rtol=1e-12, atol=0)


@given(seed=st.integers(0, 10_000), patterns=st.integers(1, 6), neurons=st.integers(2, 14))
def test_vertex_two_is_the_classical_hopfield_network(seed: int, patterns: int, neurons: int) -> None:
    """(z.x+)^2 - (z.x-)^2 = 4 z_i sum_{j != i} z_j x_j, so with patterns as memories and n = 2 the score is
    4 (beta/N)^2 (W x)_i, with the Hebbian W = sum z z' without diagonal: its sign is Hopfield's update."""
    draw = torch.Generator().manual_seed(seed)
    stored, states = (
        torch.randint(0, 2, (count, neurons), generator=draw).double() * 2 - 1 for count in (patterns, 8)
    )
    W = stored.T @ stored
    W.fill_diagonal_(0)
    beta = 1.7
    network = DenseMemory(neurons, 0, Polynomial(2), autoassociative=True, beta=beta)
    field = states @ W
    scores = network.scores(stored[None], states[None])[0]
    torch.testing.assert_close(scores, 4 * (beta / neurons) ** 2 * field, rtol=1e-10, atol=1e-12)
    # With beta = N all is exact in whole numbers, and a neuron whose field is 0 keeps its value.
    exact = DenseMemory(neurons, 0, Polynomial(2), autoassociative=True, beta=float(neurons))
    updated = exact.relax(stored[None], states[None], 1).state[0]
    assert torch.equal(updated, torch.where(field == 0, states, field.sign()))


@given(
    seed=st.integers(0, 10_000),
    n=st.sampled_from([0.5, *VERTICES]),
    name=st.sampled_from(sorted(INTERACTIONS)),
    size=st.floats(0.1, 3),
)
def test_asynchronous_relaxation_never_raises_the_energy(seed: int, n: float, name: str, size: float) -> None:
    """A neuron takes the value, on or off, of the lower energy: true for any f and any memories."""
    draw = torch.Generator().manual_seed(seed)
    theta = torch.randn(2, 4, 8, generator=draw, dtype=torch.float64) * size
    state = torch.randint(0, 2, (2, 6, 8), generator=draw).double() * 2 - 1
    network = DenseMemory(8, 2, INTERACTIONS[name](n), beta=2.0)
    for _ in range(4):
        relaxed = network.relax(theta, state, 1, order="asynchronous")
        before, after = network.energy(theta, state), network.energy(theta, relaxed.state)
        rounding = 1e-12 * network.interaction.value(network.similarity(theta, state)).abs().sum(-1)
        assert (after <= before + rounding + 1e-300).all()
        state = relaxed.state
    settled = network.relax(theta, state, 50, order="asynchronous")
    assert settled.converged.all()  # energies fall and states are finitely many


@pytest.mark.parametrize("loss", [SQUARED], ids=str)
@pytest.mark.parametrize("autoassociative", [False, True])
def test_the_answer_is_the_target_with_the_smallest_loss(autoassociative: bool, loss: Squared) -> None:
    """Of all that a target may be: one class on, or any state."""
    network = DenseMemory(4, 0 if autoassociative else 4, Polynomial(2), loss, autoassociative)
    o = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states = [s for s in itertools.product((-1.0, 1.0), repeat=4) if autoassociative or s.count(1.0) == 1]
    targets = torch.tensor(states, dtype=torch.float64)
    losses = torch.stack([loss.value(o, t.expand_as(o)).sum(-1) for t in targets], -1)
    assert torch.equal(network.answer(o), targets[losses.argmin(-1)])


def test_energy_is_minus_the_sum_of_f(near, device, dtype) -> None:
    network, theta, items = problem(LeakyRectifiedPolynomial(3), True, device=device, dtype=dtype)
    h = torch.stack([float(network.beta[r]) / 12 * items.probe[r // 2] @ theta[r].T for r in range(4)])  # type: ignore[index]
    torch.testing.assert_close(
        network.energy(theta, items.probe), -network.interaction.value(h).sum(-1), **near
    )


def test_a_network_may_recall_by_another_interaction_than_it_learns_by(near, device, dtype) -> None:
    """What is recalled is what a network with that interaction recalls; what is learned does not change."""
    learns, recalls = LeakyRectifiedPolynomial(3, leak=0.5), LeakyRectifiedPolynomial(3, leak=0.0)
    plain, theta, items = problem(learns, device=device, dtype=dtype)
    both, other = replace(plain, recall=recalls), replace(plain, interaction=recalls)
    assert torch.equal(both.predict(theta, items.probe), other.predict(theta, items.probe))
    assert torch.equal(both.energy(theta, items.probe), other.energy(theta, items.probe))
    assert not torch.equal(both.energy(theta, items.probe), plain.energy(theta, items.probe))
    rest = both.relax(theta, items.probe).state
    assert torch.equal(rest, other.relax(theta, items.probe).state)
    assert not torch.equal(rest, plain.relax(theta, items.probe).state)
    assert torch.equal(support(both, theta, items), support(other, theta, items))
    assert torch.equal(both.gradient(theta, items), plain.gradient(theta, items))
    for pull in PULLS:
        assert torch.equal(both.per_item(theta, items, pull, 2), plain.per_item(theta, items, pull, 2))


def test_relax_says_what_converged_and_when() -> None:
    """One stored pattern: it rests at once, one flip away in one step; two neurons that each wish to be the
    other's opposite, updated together, turn for ever."""
    stored = torch.ones(1, 1, 6, dtype=torch.float64)
    network = DenseMemory(6, 0, Polynomial(2), autoassociative=True)
    flipped = stored.clone()
    flipped[..., 2] = -1
    found = network.relax(stored, torch.cat([stored, flipped], 1))
    assert found.steps.tolist() == [[0, 1]]
    assert found.converged.all()
    assert torch.equal(found.state, stored.expand(1, 2, 6))
    assert not network.relax(stored, flipped, 1).converged.any()  # it changed, so one step cannot tell

    opposed = torch.tensor([[[1.0, -1.0]]], dtype=torch.float64)
    equal = torch.ones(1, 1, 2, dtype=torch.float64)
    network = DenseMemory(2, 0, Polynomial(2), autoassociative=True)
    for steps in (1, 2, 3, 6, 7):  # each as if every step were taken
        cycle = network.relax(opposed, equal, steps)
        assert (cycle.steps.tolist(), cycle.converged.tolist()) == ([[steps]], [[False]])
        assert torch.equal(cycle.state, equal if steps % 2 == 0 else -equal)
    assert network.relax(opposed, equal, 7, order="asynchronous").converged.all()


def test_relax_of_chosen_neurons_and_shared_rows() -> None:
    network, theta, items = problem(LeakyRectifiedPolynomial(3), True)
    before = items.probe.clone()
    chosen = network.relax(theta, items.probe, neurons=slice(9, 12)).state
    assert torch.equal(chosen[..., :9], before[..., :9].repeat_interleave(2, 0))
    assert not torch.equal(chosen[..., 9:], before[..., 9:].repeat_interleave(2, 0))
    whole = network.relax(theta, items.probe)
    each = network.relax(theta, items.probe.repeat_interleave(2, 0))
    assert torch.equal(whole.state, each.state)
    assert torch.equal(items.probe, before)
    assert torch.equal(network.relax(theta, before.repeat_interleave(2, 0)[:, :0]).state, theta[:, :0])
    with pytest.raises(ValueError, match="order must be synchronous or asynchronous"):
        network.relax(theta, items.probe, order="random")


@pytest.mark.parametrize("autoassociative", [False, True])
def test_shared_rows_equal_one_row_a_replica(autoassociative: bool, device, dtype, near) -> None:
    network, theta, items = problem(LeakyRectifiedPolynomial(10), autoassociative, device=device, dtype=dtype)
    each = items.expand(4)
    for function in (network.loss, network.gradient, lambda t, i: network.per_item(t, i, "loss", 2)):
        torch.testing.assert_close(function(theta, items), function(theta, each), **near)


def test_rounding_does_not_leak_between_replicas(device, dtype) -> None:
    """A replica that has overflowed leaves its neighbours as they are."""
    network, theta, items = problem(LeakyRectifiedPolynomial(20), device=device, dtype=dtype)
    broken = theta.clone()
    broken[1] = float("nan")
    found, expected = network.gradient(broken, items), network.gradient(theta, items)
    assert found[1].isnan().all()
    assert found[[0, 2, 3]].isfinite().all()
    torch.testing.assert_close(found[[0, 2, 3]], expected[[0, 2, 3]])


class Largest(TorchDispatchMode):
    """The most numbers that any tensor made under it holds."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, Tensor):
                self.numbers = max(self.numbers, part.numel())
        return out


def test_a_step_makes_no_array_of_items_by_memories_by_classes() -> None:
    """At the paper's size, on the meta device: shapes are followed, nothing is computed."""
    B, M, N, C = 8_000, 512, 799, 10
    network = DenseMemory(N, C, LeakyRectifiedPolynomial(20))
    with torch.device("meta"):
        theta = torch.empty(1, M, N, dtype=torch.float64)
        probe, target, weight = (torch.empty(1, B, size, dtype=torch.float64) for size in (N, C, 1))
        items = Items(probe, target, weight[..., 0], torch.empty(1, B, dtype=torch.int64))
    with Largest() as largest:
        grad = network.gradient(theta, items)
        Optimiser().step(theta, grad, torch.zeros_like(theta), 1, network)
        network.per_item(theta, items, "loss", 2)
    assert B * M <= largest.numbers <= B * N < B * M * C


@pytest.mark.parametrize("flushing", [False, True])
def test_one_thread_leaves_denormal_numbers_as_it_found_them(flushing: bool) -> None:
    kernel, before = kernel_for("cpu", "numba"), torch.get_num_threads()
    probe, theta = torch.ones(1, 3, 5, dtype=torch.float64), torch.full((1, 2, 5), 1e-310).double()
    torch.set_num_threads(1)
    torch.set_flush_denormal(flushing)
    try:
        found = kernel.product(probe, theta)
        kept = float(torch.tensor(1e-310, dtype=torch.float64) * 1)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
    assert (found == 0).all()  # nothing is lost in numbers so small, and they are slow
    assert (kept == 0) == flushing
