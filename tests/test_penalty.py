"""L2, EWC, MAS and SI, with second moments and without, against the penalties they stand for."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial, RectifiedPolynomial
from engramma.methods import EWC, L2, MAS, SI, EWCMoments, MASMoments, Moments, Now, Penalty, SIMoments
from engramma.methods.moments import second_moment
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import ClassStream
from engramma.train import train

REPLICAS = Replicas((0, 1))
STRENGTHS = (0.3, 2.0)
PENALTIES: list[Penalty] = [
    L2(STRENGTHS),
    EWC(STRENGTHS),
    MAS((3e4, 2e5)),  # its importances are small here
    SI(STRENGTHS),
    L2(STRENGTHS, merge="online", decay=0.5),
    EWC(STRENGTHS, merge="online", decay=0.9),
    MAS((3e4, 2e5), merge="separate"),
    EWC(STRENGTHS, unit=True),
    SI(STRENGTHS, decay=0.5),
]


@pytest.fixture
def stream(make_stream) -> ClassStream:
    return make_stream(REPLICAS, items=20)


@pytest.fixture
def network(stream: ClassStream, make_network) -> DenseMemory:
    return make_network(stream, LeakyRectifiedPolynomial(3), beta=4.0)


@pytest.fixture
def random(stream: ClassStream, device, dtype):
    draw = torch.Generator().manual_seed(0)
    shape = (2, 4, stream.neurons)
    return lambda: (0.3 * torch.randn(shape, generator=draw, dtype=torch.float64)).to(device, dtype)


def lived(method: Penalty, stream: ClassStream, network: DenseMemory, random) -> tuple:
    """The state after two tasks that ended at random memories, with the (omega, theta*) of each."""
    state, anchors = method.start(random()), []
    for index in range(2):
        now, theta = Now(network, stream[index], 1, 0, REPLICAS), random()
        for _ in range(3):
            state = method.observe(state, now, random(), random(), random())
        omega = method.importance(state, now, theta)
        state = method.consolidate(state, now, theta)
        anchors.append((omega, theta))
    return state, anchors


@pytest.mark.parametrize("method", PENALTIES, ids=repr)
def test_steer_is_the_derivative_of_the_penalty(method: Penalty, stream, network, random, near) -> None:
    """Written out over tasks and weights, one strength a replica, and differentiated by autograd."""
    state, anchors = lived(method, stream, network, random)
    if method.unit:
        anchors = [(omega / omega.mean((1, 2), keepdim=True), at) for omega, at in anchors]
    if method.merge == "online":
        anchors = [(method.decay * anchors[0][0] + anchors[1][0], anchors[1][1])]
    theta, grad = random().requires_grad_(), random()
    half, strengths = 0.5 if isinstance(method, EWC) else 1.0, method.strength
    assert isinstance(strengths, tuple)
    penalty = sum(
        strengths[r] * half * (omega[r] * (at[r] - theta[r]) ** 2).sum()
        for omega, at in anchors
        for r in (0, 1)
    )
    (expected,) = torch.autograd.grad(penalty, theta)  # type: ignore[arg-type]
    now = Now(network, stream[2], 1, 0, REPLICAS)
    torch.testing.assert_close(method.steer(state, now, theta.detach(), grad), grad + expected, **near)
    assert expected.abs().amax((1, 2)).min() > 1e-6
    own = method.penalty(state, theta, anchors)
    assert own.shape == (2,)
    torch.testing.assert_close(own.sum(), penalty, **near)


def test_two_tensors_equal_the_sum_of_separate_terms(stream, network, random, near) -> None:
    """However many tasks: 2 (W theta - P) = sum of 2 omega (theta - theta*)."""
    method = MAS(1.5, merge="separate")
    state, anchors = method.start(random()), []
    for _ in range(19):
        omega, at = random().abs(), random()
        state = state._replace(weight=state.weight + omega, pull=state.pull + omega * at)
        anchors.append((omega, at))
    theta = random()
    expected = sum(2 * 1.5 * omega * (theta - at) for omega, at in anchors)
    zero = torch.zeros_like(theta)
    found = method.steer(state, Now(network, stream[1], 1, 0, REPLICAS), theta, zero)
    torch.testing.assert_close(found, expected, **near)


def loop(network: DenseMemory, theta: Tensor, items: Items, value, power: int, size: int = 1) -> Tensor:
    """mean over batches of `size` items of |gradient of value|^power, by autograd, replica by replica."""
    total = torch.zeros_like(theta)
    for r in range(len(theta)):
        row = Items(*(part[r : r + 1] for part in items))
        starts = range(0, row.probe.shape[1], size)
        for s in starts:
            variable = theta[r : r + 1].clone().requires_grad_()
            single = value(network, variable, row.row(slice(s, s + size)))
            total[r] += torch.autograd.grad(single, variable)[0][0].abs() ** power / len(starts)
    return total


def loss(network: DenseMemory, theta: Tensor, items: Items) -> Tensor:
    return network.loss(theta, items).sum()


def predicted(network: DenseMemory, theta: Tensor, items: Items) -> Tensor:
    o = network.scores(theta, items.probe).detach()
    best = 2.0 * (o == o.amax(-1, keepdim=True)) - 1
    return network.loss(theta, items._replace(target=best.to(o))).sum()


@pytest.mark.parametrize(("labels", "value"), [("true", loss), ("predicted", predicted)])
@pytest.mark.parametrize("batch", [None, 6])
def test_fisher_information(labels: str, value, batch: int | None, stream, network, random, near) -> None:
    """Per item, and per batch of 6 of the 16 items (the last batch is smaller)."""
    theta = random()
    method = EWC(labels=labels) if batch is None else EWC(fisher="batch", labels=labels, batch=batch)
    found = method.importance(method.start(theta), Now(network, stream[0], 1, 0, REPLICAS), theta)
    expected = loop(network, theta, stream[0].train, value, 2, batch or 1)
    torch.testing.assert_close(found, expected, **near)
    assert expected.max() > 1e-6


def test_predicted_labels_of_an_auto_associative_memory(near) -> None:
    """Every neuron's own sign; per item and per batches of one item it is the same."""
    draw = torch.Generator().manual_seed(0)
    theta = 0.5 * torch.randn(2, 4, 9, generator=draw, dtype=torch.float64)
    states = torch.randint(0, 2, (2, 5, 9), generator=draw).double() * 2 - 1
    items = Items(states, states, torch.ones(2, 5, dtype=torch.float64), torch.arange(5).expand(2, -1))
    network = DenseMemory(9, 0, LeakyRectifiedPolynomial(2), autoassociative=True, beta=3.0)
    now = Now(network, type("Task", (), {"train": items, "index": 0}), 1, 0, REPLICAS)
    state = EWC().start(theta)
    one = EWC(labels="predicted").importance(state, now, theta)
    two = EWC(labels="predicted", fisher="batch", batch=1).importance(state, now, theta)
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-15)
    assert not torch.allclose(one, EWC().importance(state, now, theta))


def output(network: DenseMemory, theta: Tensor, items: Items) -> Tensor:
    return network.scores(theta, items.probe).tanh().square().sum()


def norm(network: DenseMemory, theta: Tensor, items: Items) -> Tensor:
    return output(network, theta, items).sqrt()


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("name", "value"), [("squared", output), ("norm", norm)])
def test_memory_aware_synapses(power: int, name: str, value, stream, network, random, near) -> None:
    theta = random()
    method = MAS(power=power, output=name)
    found = method.importance(method.start(theta), Now(network, stream[0], 1, 0, REPLICAS), theta)
    torch.testing.assert_close(found, loop(network, theta, stream[0].train, value, power), **near)


def test_unit_importances_have_a_mean_of_one(stream, network, random) -> None:
    for method in (L2(unit=True), EWC(unit=True), MAS(unit=True), SI(unit=True)):
        state, _ = lived(method, stream, network, random)
        mean = state.weight.mean((1, 2))
        torch.testing.assert_close(mean, torch.full_like(mean, 2.0))  # two tasks


def test_the_path_is_the_drop_of_the_loss_at_first_order(stream, make_network, random) -> None:
    """sum of -gradient x move = drop of the loss, with an error that shrinks with the step: steps ten times
    smaller and ten times as many, a tenth of the error. Without leak, for a smooth loss: at the leak's kink
    a memory turns back and forth, and how large its steps are then makes no difference to the error."""
    network = make_network(stream, RectifiedPolynomial(3), beta=4.0)
    if random().dtype != torch.float64:
        pytest.skip("differences of losses need float64")
    theta, method, items = random(), SI(), stream[0].train

    def error(rate: float, steps: int) -> Tensor:
        optimiser = Optimiser(rate, decay=1.0, momentum=0.0, epochs=steps, clamp=None)
        at, velocity, state = theta, optimiser.start(theta), method.start(theta)
        for epoch in range(1, steps + 1):
            now = Now(network, stream[0], epoch, 0, REPLICAS)
            grad = network.gradient(at, items)
            moved, velocity = optimiser.step(at, grad, velocity, epoch, network)
            state = method.observe(state, now, grad, grad, moved - at)
            at = moved
        assert state.path is not None
        drop = network.loss(theta, items) - network.loss(at, items)
        assert (drop > 1e-4).all()
        return (state.path.sum((1, 2)) - drop).abs() / drop

    coarse, fine = error(1e-3, 20), error(1e-4, 200)
    assert (fine < 0.05).all()
    assert ((coarse / fine > 7) & (coarse / fine < 14)).all()


@pytest.mark.parametrize("moves", ["taken", "meant"])
def test_the_loop_shows_si_the_tasks_own_gradient(
    moves: str, make_stream, make_network, device, dtype, near
) -> None:
    """In task two, where the step is steered and clamped, the path is -(the task's gradient) x (the move).
    The moves taken end where the memories are; those meant do so after the clamp, one by one."""
    seen: list[tuple[Tensor, Tensor]] = []
    starts: list[Tensor] = []
    turned: list[bool] = []

    class Watched(SI):
        def steer(self, state, now, theta, grad):
            torch.testing.assert_close(grad, now.network.gradient(theta, now.task.train))
            step = super().steer(state, now, theta, grad)
            turned.append(not torch.equal(step, grad))
            seen.append((grad, theta))
            starts.append(theta)
            return step

        def observe(self, state, now, grad, step, move):
            assert grad is seen[-1][0]
            seen[-1] = (grad, move)
            return super().observe(state, now, grad, step, move)

        def consolidate(self, state, now, theta):
            expected = sum(-grad * move for grad, move in seen)
            torch.testing.assert_close(state.path, expected, **near)
            visible, clipped = now.network.visible, []
            for (_, move), at, there in zip(seen, starts, [*starts[1:], theta], strict=True):
                asked = at + move
                clipped.append(bool((asked[..., :visible].abs() > 1.01).any()))
                asked[..., :visible].clamp_(-1, 1)
                torch.testing.assert_close(asked, there, **near)
            assert any(clipped) == (moves == "meant")
            seen.clear()
            starts.clear()
            return super().consolidate(state, now, theta)

    stream = make_stream(REPLICAS, tasks=2, items=20)
    theta = REPLICAS.memories(4, stream.neurons, device=device, dtype=dtype)
    method, optimiser = Watched(STRENGTHS, moves=moves), Optimiser(0.9, epochs=4)
    list(train(make_network(stream), stream, method, optimiser, REPLICAS, theta))
    assert turned == [False] * 5 + [True] * 3  # not in task one, nor where task two begins


@pytest.mark.parametrize("path", ["sum", "mean"])
def test_synaptic_intelligence(path: str, stream, network, random, near) -> None:
    """omega = path / (displacement^2 + damping) where that is above 0."""
    start, end, now = random(), random(), Now(network, stream[0], 1, 0, REPLICAS)
    moves = [(random(), random()) for _ in range(4)]
    path_sum = -sum(grad * move for grad, move in moves)
    omega = path_sum / (4 if path == "mean" else 1) / ((end - start) ** 2 + 0.01)
    assert (omega < 0).any()
    method = SI(path=path, damping=0.01)
    state = method.start(start)
    for grad, move in moves:
        state = method.observe(state, now, grad, random(), move)
    state = method.consolidate(state, now, end)
    torch.testing.assert_close(state.weight, omega.clamp(min=0), **near)
    assert state.path is not None
    assert not state.path.any()  # the next task's path begins anew, from here
    assert torch.equal(state.origin, end)


CURVED: list[Moments] = [
    EWCMoments((3e2, 2e3)),
    MASMoments((3e4, 2e5)),
    SIMoments((0.3, 2.0), damping=0.1),
    EWCMoments((3e2, 2e3), merge="online", decay=0.5),
    MASMoments((3e4, 2e5), merge="separate"),
    SIMoments((0.3, 2.0), decay=0.5, unit=True),
]


@pytest.mark.parametrize("method", CURVED, ids=repr)
def test_steer_with_moments_is_the_derivative_of_how_far_overlaps_have_moved(
    method: Moments,
    stream,
    network,
    random,
    near,
) -> None:
    """sum over tasks and memories of F times the mean over the task's items of ((theta - theta*) . x)^2, and
    the class neurons' weights one by one; written out item by item, and differentiated by autograd."""
    state, anchors = lived(method, stream, network, random)
    if method.unit:
        anchors = [(omega / omega.mean((1, 2), keepdim=True), at) for omega, at in anchors]
    theta, grad, visible = random().requires_grad_(), random(), network.visible
    half, strengths = 0.5 if isinstance(method, EWCMoments) else 1.0, method.strength
    assert isinstance(strengths, tuple)

    def moved(task: int, r: int, away: Tensor) -> Tensor:
        """Mean square of the overlap of `away` with the items of a task."""
        items = stream[task].train.probe[r, :, :visible]
        return torch.stack([(away @ x) ** 2 for x in items]).mean()

    penalty = theta.new_zeros(())
    for r, m in itertools.product((0, 1), range(theta.shape[1])):
        sums = [omega[r, m, :visible].sum() / visible for omega, _ in anchors]  # items of signs: a trace of V
        single = [omega[r, m, visible:] for omega, _ in anchors]
        away = [theta[r, m] - at[r, m] for _, at in anchors]
        if method.merge == "separate":
            terms = sum(sums[k] * moved(k, r, away[k][:visible]) for k in (0, 1))
            terms = terms + sum((single[k] * away[k][visible:] ** 2).sum() for k in (0, 1))
        else:  # one term, which fades
            old, (last, own) = method.decay, (away[1][:visible], away[1][visible:])
            mean = (old * moved(0, r, last) + moved(1, r, last)) / (old + 1)
            terms = (old * sums[0] + sums[1]) * mean + ((old * single[0] + single[1]) * own**2).sum()
        penalty = penalty + strengths[r] * half * terms
    (expected,) = torch.autograd.grad(penalty, theta)
    now = Now(network, stream[2], 1, 0, REPLICAS)
    torch.testing.assert_close(method.steer(state, now, theta.detach(), grad), grad + expected, **near)
    assert expected[..., :visible].abs().amax((1, 2)).min() > 1e-5


@pytest.mark.parametrize(("method", "value"), [(EWCMoments(), loss), (MASMoments(), output)])
def test_of_items_of_signs_the_factor_is_every_visible_weights_importance(
    method: Moments,
    value,
    stream,
    network,
    random,
    near,
) -> None:
    """So that the diagonal of F A is the penalty without moments: its importances, by autograd."""
    theta = random()
    state = method.consolidate(method.start(theta), Now(network, stream[0], 1, 0, REPLICAS), theta)
    omega: Tensor = loop(network, theta, stream[0].train, value, 2)
    (factor,), (moment,) = state.factors, state.moments
    diagonal = factor[..., None] * moment.diagonal(dim1=1, dim2=2)[:, None]
    torch.testing.assert_close(diagonal, omega[..., : network.visible], **near)
    torch.testing.assert_close(state.weight[..., network.visible :], omega[..., network.visible :], **near)


def test_a_second_moment_is_the_mean_over_the_items_that_count() -> None:
    probe = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(3)).double()
    weight = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 0, 1, 0]]).double()
    found = second_moment(Items(probe, probe[..., :1], weight, torch.zeros(2, 5).long()), 3, torch.float64)
    for row in range(2):
        x = probe[row, weight[row] > 0, :3]
        torch.testing.assert_close(found[row], x.T @ x / len(x))


def test_replicas_of_a_seed_share_a_moment_and_none_looks_at_another(make_stream, make_network, near) -> None:
    """Two strengths of each of two seeds: an A a seed, and each replica's step is its own."""
    four = Replicas((0, 0, 1, 1))
    stream = make_stream(four, items=20)
    net = make_network(stream, beta=4.0)
    draw = torch.Generator().manual_seed(0)
    ends, theta, grad = torch.randn(3, 4, 5, stream.neurons, generator=draw, dtype=torch.float64).to(
        stream[0].train.target
    )
    method = EWCMoments((0.1, 0.2, 0.3, 0.4))
    state = method.consolidate(method.start(theta), Now(net, stream[0], 1, 0, four), ends)
    assert state.moments[0].shape == (2, net.visible, net.visible)
    found = method.steer(state, Now(net, stream[1], 1, 0, four), theta, grad)
    for r, (seed, strength) in enumerate(zip(four.seeds, (0.1, 0.2, 0.3, 0.4), strict=True)):
        one = Replicas((seed,))
        own, alone = make_stream(one, items=20), EWCMoments(strength)
        part = slice(r, r + 1)
        state = alone.consolidate(alone.start(theta[part]), Now(net, own[0], 1, 0, one), ends[part])
        step = alone.steer(state, Now(net, own[1], 1, 0, one), theta[part], grad[part])
        torch.testing.assert_close(found[part], step, **near)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EWC(merge="mean"), "merge must be separate or online"),
        (lambda: EWC(decay=1.5), "decay must be between 0 and 1"),
        (lambda: EWC(decay=-0.1), "decay must be between 0 and 1"),
        (lambda: EWC(fisher="all"), "fisher must be item or batch"),
        (lambda: EWC(labels="sampled"), "labels must be true or predicted"),
        (lambda: EWC(batch=0), "batch must be at least 1"),
        (lambda: MAS(power=3), "power must be 1 or 2"),
        (lambda: MAS(output="l1"), "output must be squared or norm"),
        (lambda: SI(path="max"), "path must be sum or mean"),
        (lambda: SI(damping=0), "damping must be above 0"),
        (lambda: SI(moves="made"), "moves must be taken or meant"),
        (lambda: SI(merge="separate"), "merge must be online for si"),
        (lambda: L2(float("inf")), "strength must be 0 or more"),
    ],
)
def test_settings_that_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
