"""GEM and A-GEM: the projection against its constraints and against scipy's non-negative least squares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import AGEM, GEM, Now
from engramma.methods.projection import by_task, dual, project
from engramma.network import Items
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.train import train


def problem(seed: int, count: int, near: float = 0.0) -> tuple[Tensor, Tensor]:
    """grad (3,4,6) and references (3,count,4,6), sizes 1e-6 to 1e2: unrelated, or `near` to the first."""
    draw = torch.Generator().manual_seed(seed)
    grad = torch.randn(3, 4, 6, generator=draw, dtype=torch.float64)
    G = torch.randn(3, count, 4, 6, generator=draw, dtype=torch.float64)
    if near:
        G = G[:, :1] + near * G
    sizes = 10 ** torch.linspace(-6, 2, count, dtype=torch.float64)
    return grad, G * sizes[:, None, None]


def by_scipy(grad: Tensor, G: Tensor, margin: float = 0.0) -> Tensor:
    """min |g + G'v|^2 over v >= margin, one replica: with w = v - margin, non-negative least squares."""
    A, g = G.flatten(1).numpy(), grad.flatten().numpy()
    size = np.linalg.norm(A, axis=1, keepdims=True)
    if margin == 0:  # then the references' sizes do not matter, and equal ones are kinder to the solver
        A = A / size
    shifted = g + margin * A.sum(0)
    w, _ = nnls(A.T, -shifted, maxiter=10_000)
    return torch.as_tensor(shifted + A.T @ w).view_as(grad)


@given(seed=st.integers(0, 10**6), count=st.integers(1, 19))
def test_projection_is_the_nearest_that_satisfies_all(seed: int, count: int) -> None:
    grad, G = problem(seed, count)
    found = project(grad, G)
    unit = G / G.flatten(2).norm(dim=2)[..., None, None]
    assert ((unit * found[:, None]).flatten(2).sum(2) >= -1e-8).all()
    for r in range(3):
        torch.testing.assert_close(found[r], by_scipy(grad[r], G[r]), rtol=1e-6, atol=1e-7)


@given(seed=st.integers(0, 10**6), count=st.integers(2, 19), near=st.sampled_from([1e-1, 1e-3, 1e-5]))
def test_nearly_parallel_references(seed: int, count: int, near: float) -> None:
    """Gradients of related tasks: the dual is all but singular, and still solved."""
    grad, G = problem(seed, count, near)
    G = G / G.flatten(2).norm(dim=2)[..., None, None]
    found = project(grad, G)
    assert ((G * found[:, None]).flatten(2).sum(2) >= -1e-6).all()
    for r in range(3):
        expected = by_scipy(grad[r], G[r])
        excess = (found[r] - grad[r]).norm() - (expected - grad[r]).norm()
        assert excess <= 1e-6 * grad[r].norm()


def test_the_same_reference_many_times() -> None:
    grad, G = problem(0, 1)
    for count in (3, 12):
        torch.testing.assert_close(
            project(grad, G.expand(-1, count, -1, -1)), project(grad, G), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("count", [1, 4, 12])
def test_a_feasible_gradient_is_untouched(count: int) -> None:
    """Bit for bit, also beside replicas that are turned."""
    grad, G = problem(1, count)
    sign = (G[1] * grad[1]).flatten(1).sum(1).sign()
    G[1] *= sign[:, None, None]
    G[0, 0] = -grad[0]
    found = project(grad, G)
    assert torch.equal(found[1], grad[1])
    assert not torch.equal(found[0], grad[0])


@pytest.mark.parametrize("count", [1, 4, 12])
def test_references_of_nothing_constrain_nothing(count: int) -> None:
    grad, G = problem(2, count)
    assert torch.equal(project(grad, torch.zeros_like(G)), grad)
    if count > 1:
        G[:, -1] = 0
        torch.testing.assert_close(project(grad, G), project(grad, G[:, :-1]), rtol=1e-7, atol=1e-9)


@given(seed=st.integers(0, 10**6), count=st.integers(1, 10), margin=st.floats(0.01, 2))
def test_margin(seed: int, count: int, margin: float) -> None:
    """v >= margin wherever something is violated; nothing changes where nothing is."""
    grad, G = problem(seed, count)
    G = G / G.flatten(2).norm(dim=2)[..., None, None]
    found = project(grad, G, margin)
    dots = (G * grad[:, None]).flatten(2).sum(2)
    for r in range(3):
        expected = by_scipy(grad[r], G[r], margin) if (dots[r] < 0).any() else grad[r]
        torch.testing.assert_close(found[r], expected, rtol=1e-6, atol=1e-7)
    v = dual((G.flatten(2) @ G.flatten(2).mT), dots, margin)
    assert (v >= margin).all()


@given(seed=st.integers(0, 10**6), count=st.integers(2, 10), margin=st.floats(0.01, 2))
def test_margin_of_references_of_unlike_lengths(seed: int, count: int, margin: float) -> None:
    """Of the smallest 1/2 v'GG'v + (Gg)'v over v >= margin: those above the margin have no slope, the others
    none below 0, each in the measure of its own length."""
    grad, G = problem(seed, count)
    lengths = 10 ** torch.linspace(-1, 1, count, dtype=torch.float64)
    G = (G / G.flatten(2).norm(dim=2)[..., None, None] * lengths[:, None, None]).flatten(2)
    gram, dots = G @ G.mT, (G @ grad.flatten(1)[..., None])[..., 0]
    v = dual(gram, dots, margin)
    slope = ((gram @ v[..., None])[..., 0] + dots) / lengths
    assert (v >= margin).all()
    assert (slope > -1e-8).all()
    assert ((v - margin) * lengths * slope).abs().max() < 1e-7


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_agem_knows_the_margin_too(margin: float) -> None:
    """One reference with a weight of at least the margin, or what the projection asks for, where it asks."""
    for seed in range(8):
        grad, G = problem(seed, 1)
        r, g = G[:, 0].flatten(1), grad.flatten(1)
        asked = -(g * r).sum(1) / (r * r).sum(1)
        weight = torch.where(asked > 0, asked.clamp(min=margin), 0.0)
        expected = (g + weight[:, None] * r).view_as(grad)
        torch.testing.assert_close(project(grad, G, margin), expected, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10**6))
def test_one_reference_is_the_closed_form(seed: int) -> None:
    """A-GEM's formula, and GEM with one row, by the general solver too."""
    grad, G = problem(seed, 1)
    ref = G[:, 0]
    dot, own = (grad * ref).sum((1, 2)), (ref * ref).sum((1, 2))
    expected = grad - (dot.clamp(max=0) / own)[:, None, None] * ref
    torch.testing.assert_close(project(grad, G), expected)
    v = dual((own)[:, None, None], dot[:, None])
    torch.testing.assert_close(grad + v[..., None] * ref, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", [13_644, 26_534, 33_859, 120_528])
def test_sets_that_would_be_exchanged_for_ever(seed: int) -> None:
    """Found by search: exchanging all wrong references at once comes back to where it began. Of the solution,
    those that push have no slope and the others none below 0."""
    draw = np.random.default_rng(seed)
    count = draw.integers(6, 12)
    A = draw.standard_normal((count, count + 2))
    A = A + 2 * A[:1] if seed % 2 else A
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    q = draw.standard_normal(count)
    q = A @ draw.standard_normal(count + 2) if seed % 3 == 0 else q
    gram, dots = torch.as_tensor(A @ A.T)[None], torch.as_tensor(q)[None]
    v = dual(gram, dots)
    slope = (gram @ v[..., None])[..., 0] + dots
    assert (v >= 0).all()
    assert (slope > -1e-8).all()
    assert (v * slope).abs().max() < 1e-8


# In the loop


@pytest.fixture
def two_tasks(make_stream, make_network, device, dtype):
    """Trains a projection on small tasks and hands over what it meets: states, gradients and steps."""

    def run(method, tasks: int = 3, seeds=(4, 9)):
        replicas = Replicas(seeds)
        stream = make_stream(replicas, tasks=tasks, items=40)
        network = make_network(stream, LeakyRectifiedPolynomial(3))
        theta = replicas.memories(6, stream.neurons, device=device, dtype=dtype)
        optimiser = Optimiser(0.3, initial_temperature=0.5, final_temperature=0.5, epochs=6)
        return stream, list(train(network, stream, method, optimiser, replicas, theta))

    return run


def test_gem_in_the_loop_satisfies_every_earlier_task(two_tasks) -> None:
    """At a point where it acts: the steered gradient never points against an earlier task's buffer."""
    method = GEM(0.3)
    stream, moments = two_tasks(method)
    turned = 0
    for moment in moments:
        if moment.task == 0 or moment.ends_task:
            continue
        now = Now(moment.network, stream[moment.task], moment.epoch, 0, stream.replicas)
        grad = moment.network.gradient(moment.theta, now.task.train)
        step = method.steer(moment.state, now, moment.theta, grad)
        turned += not torch.equal(step, grad)
        for j in range(moment.task):
            kept = stream[j].train.row(slice(0, round(0.3 * 32)))
            ref = moment.network.gradient(moment.theta, kept)
            cosine = (ref * step).sum((1, 2)) / ref.flatten(1).norm(dim=1) / step.flatten(1).norm(dim=1)
            assert (cosine > -1e-5).all()
    assert turned


def test_references_stacked_or_one_by_one(two_tasks) -> None:
    """Buffers of unequal sizes take another way through the network, to the same references."""
    stream, moments = two_tasks(GEM(0.3))
    end = next(m for m in moments if m.task == 1 and m.ends_task)
    now = Now(end.network, stream[2], 1, 0, stream.replicas)
    blocks = by_task(end.state.buffer)
    padded = [Items(*(torch.cat([part, part[:, :1]], 1) for part in blocks[0])), blocks[1]]
    padded[0].weight[:, -1] = 0
    one, two = GEM().references(blocks, now, end.theta), GEM().references(padded, now, end.theta)
    assert one.shape[:2] == (2, 2)
    torch.testing.assert_close(one, two)


def test_agem_is_gem_with_the_union_as_one_row(two_tasks) -> None:
    stream, moments = two_tasks(AGEM(0.3))
    for end in (m for m in moments if m.ends_task and m.task < 2):
        now = Now(end.network, stream[end.task + 1], 1, 0, stream.replicas)
        blocks = by_task(end.state.buffer)
        (row,) = AGEM().references(blocks, now, end.theta).unbind(1)
        torch.testing.assert_close(row, GEM().references([Items.join(*blocks)], now, end.theta)[:, 0])
        mean = torch.stack([end.network.gradient(end.theta, b) for b in blocks]).mean(0)
        torch.testing.assert_close(row, mean)  # equal buffers: the average that is in its name


def test_with_two_tasks_gem_and_agem_are_one(two_tasks) -> None:
    gem, agem = two_tasks(GEM(0.3), 2)[1][-1], two_tasks(AGEM(0.3), 2)[1][-1]
    assert torch.equal(gem.theta, agem.theta)


@pytest.mark.parametrize("make", [GEM, AGEM])
def test_a_sample_of_the_buffer(make, two_tasks) -> None:
    """Each step another sample, the same on every run; one as large as the buffer is the buffer."""
    method = make(0.3, sample=3)
    stream, moments = two_tasks(method)
    end = next(m for m in moments if m.task == 1 and m.ends_task)
    blocks = by_task(end.state.buffer)
    drawn = []
    for step in range(6):
        now = Now(end.network, stream[2], 1, step, stream.replicas)
        picked = [method._drawn(items, now) for items in blocks]
        for items, block in zip(picked, blocks, strict=True):
            assert items.probe.shape[1] == 3
            assert all(set(i.tolist()) <= set(b.tolist()) for i, b in zip(items.ids, block.ids, strict=True))
            assert len(set(items.ids[0].tolist())) == 3
        drawn.append(picked[0].ids.tolist())
    assert len({str(d) for d in drawn}) > 1
    assert torch.equal(two_tasks(method)[1][-1].theta, moments[-1].theta)
    whole, sampled = two_tasks(make(0.3))[1][-1], two_tasks(make(0.3, sample=100))[1][-1]
    torch.testing.assert_close(whole.theta, sampled.theta, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(whole.theta, moments[-1].theta)


def test_a_sample_holds_no_padding(two_tasks) -> None:
    """Replicas that keep fewer items than others: a sample is of their own."""
    method = GEM((0.1, 0.5), sample=3)
    stream, moments = two_tasks(method)
    for block in by_task(moments[-1].state.buffer):
        assert block.weight.sum(1).tolist() == [3, 16]
        for step in range(5):
            now = Now(moments[-1].network, stream[2], 1, step, stream.replicas)
            assert (method._drawn(block, now).weight == 1).all()


def test_a_share_is_of_each_replicas_own_buffer(two_tasks) -> None:
    """The same items as a sample of as many; every replica a share of what it keeps, one item at least."""
    counted, shared = GEM((0.1, 0.5), sample=8), GEM((0.1, 0.5), sample=0.5)
    stream, moments = two_tasks(counted)
    for block in by_task(moments[-1].state.buffer):
        now = Now(moments[-1].network, stream[2], 1, 0, stream.replicas)
        drawn, many = shared._drawn(block, now), counted._drawn(block, now)
        assert torch.equal(drawn.ids, many.ids)
        assert drawn.weight.sum(1).tolist() == [2, 8]  # of 3 and 16
        assert (drawn.weight <= many.weight).all()
        assert GEM((0.1, 0.5), sample=0.01)._drawn(block, now).weight.sum(1).tolist() == [1, 1]
    whole = AGEM(0.3, sample=5)
    assert two_tasks(whole)[1][-1].state.buffer.sizes.tolist()[0] == 10
    assert torch.equal(two_tasks(whole)[1][-1].theta, two_tasks(AGEM(0.3, sample=0.5))[1][-1].theta)


def test_violations_are_counted(two_tasks) -> None:
    method = GEM(0.3)
    stream, moments = two_tasks(method)
    count = torch.zeros(2, dtype=torch.float64)
    before = next(m for m in moments if m.task == 0 and m.ends_task)
    for moment in [m for m in moments if m.task > 0]:
        # The step that led to this moment was taken from the moment before, at this moment's temperature.
        now = Now(moment.network, stream[moment.task], moment.epoch, 0, stream.replicas)
        grad = moment.network.gradient(before.theta, now.task.train)
        refs = method.references(by_task(before.state.buffer), now, before.theta)
        count += ((refs * grad[:, None]).flatten(2).sum(2) < 0).any(1).cpu()
        before = moment
    assert moments[-1].state.violated.tolist() == count.tolist()
    assert moments[-1].state.steps.tolist() == [12, 12]
    assert method.report(moments[-1].state) == {"violated": (count / 12).tolist()}
    assert count.min() > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GEM(1.5), "proportion must be between 0 and 1"),
        (lambda: AGEM(sample=0), "sample must be a number of items or a share below 1, not 0"),
        (lambda: AGEM(sample=1.5), "sample must be a number of items"),
        (lambda: AGEM(sample=float("inf")), "sample must be a number of items"),
        (lambda: GEM(margin=-1), "margin must be 0 or more"),
        (lambda: AGEM(margin=-1), "margin must be 0 or more"),
        (lambda: GEM(margin=float("nan")), "margin must be 0 or more"),
    ],
)
def test_settings_that_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
