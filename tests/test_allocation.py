"""Memories of their own for each task, and the energy that knows whose item it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engramma.experiment import read
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import METHODS, Allocation, Grouped
from engramma.methods.allocation import centres, familiarity
from engramma.network import DenseMemory, Items
from engramma.optimiser import temperature
from engramma.runs.setup import Built, build
from engramma.train import Moment

SMALL = {"data": "digits", "items": 200, "memories": 60, "epochs": 60, "tasks": 3, "method": "allocation"}


def learned(*seeds: int, **settings: object) -> tuple[Built, list[Moment]]:
    setup = build([read({**SMALL, "vertex": 5.0, "seed": seed, **settings}) for seed in seeds or (7,)])
    return setup, [moment for moment in setup.train() if moment.ends_task]


def accuracy(setup: Built, moment: Moment) -> torch.Tensor:
    return setup.stream.evaluate(moment.network, moment.theta)["accuracy"]


def network(n: float = 3.0, beta: float = 1.3) -> DenseMemory:
    return DenseMemory(12, 3, LeakyRectifiedPolynomial(n), beta=beta)


def states(*shape: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    found = torch.randint(0, 2, (*shape, 12), generator=draw).double() * 2 - 1
    found[..., 9:] = -1.0
    return found


@pytest.mark.parametrize("n", [2.0, 5.0, 7.5])
def test_familiarity_is_the_energy_of_the_completed_state(n: float) -> None:
    net, probe = network(n), states(1, 6)
    theta = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1)).double()
    expected = torch.empty(2, 6, 3).double()
    for c in range(3):
        state = probe.clone()
        state[..., 9 + c] = 1.0
        h = torch.einsum("bn,rmn->rbm", state[0], theta) / 12  # at temperature 1
        expected[..., c] = h.clamp(min=0).pow(n).sum(-1)
    torch.testing.assert_close(familiarity(net, theta, probe), expected.amax(-1).log())
    torch.testing.assert_close(familiarity(net.at(0.4), theta, probe), familiarity(net, theta, probe))
    target = torch.full((1, 6, 3), -1.0).double()
    target[..., 1] = 1.0
    named = familiarity(net, theta, probe, target)
    torch.testing.assert_close(named, expected[..., 1].log())


def test_one_group_answers_as_the_network_does() -> None:
    net, probe = network(), states(1, 9)
    theta = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(2)).double()
    told = {"mean": torch.zeros(2, 1).double(), "deviation": torch.ones(2, 1).double(), "each": 4}
    grouped = Grouped(net.neurons, net.classes, net.interaction, beta=net.beta, **told)
    assert torch.equal(grouped.predict(theta, probe), net.predict(theta, probe))
    torch.testing.assert_close(grouped.energy(theta, probe), net.energy(theta, probe))
    assert torch.equal(grouped.relax(theta, probe).state, net.relax(theta, probe).state)


def test_an_item_wakes_the_group_that_knows_it() -> None:
    """Two groups, each of which stores states of its own: energy and rest are those of the item's group."""
    net, items = network(5.0), states(2, 4, seed=3)
    theta = items.reshape(1, 8, 12).clone()
    probe = items.reshape(1, 8, 12)
    e = torch.stack([familiarity(net, theta[:, :4], items[:1]), familiarity(net, theta[:, 4:], items[1:])], 1)
    mean, deviation = e.mean(-1), e.std(-1) + 0.1
    grouped = Grouped(12, 3, net.interaction, beta=net.beta, each=4, mean=mean, deviation=deviation)
    assert grouped.named(theta, probe).tolist() == [[0] * 4 + [1] * 4]
    energy = torch.cat([net.energy(theta[:, :4], items[:1]), net.energy(theta[:, 4:], items[1:])], 1)
    torch.testing.assert_close(grouped.energy(theta, probe), energy)
    rest = torch.cat([net.relax(theta[:, :4], items[:1]).state, net.relax(theta[:, 4:], items[1:]).state], 1)
    assert torch.equal(grouped.relax(theta, probe).state, rest)
    owned = replace(grouped, owner=torch.tensor([[1, 0, 1]])).respond(theta, probe).tasks
    assert owned is not None  # of which tasks an item may be: those of its group and no others
    assert owned.tolist() == [[[False, True, False]] * 4 + [[True, False, True]] * 4]


@pytest.mark.parametrize(
    "settings", [{}, {"boundaries": "found"}, {"groups": 2, "beside": "ewc", "beside_strength": 1.0}]
)
def test_what_sleeps_does_not_move_by_a_bit(settings: dict[str, object]) -> None:
    setup, moments = learned(7, 8, settings=settings, epochs=10)
    before = setup.theta
    for moment in moments:
        each = 60 // (settings.get("groups") or 3)  # type: ignore[operator]
        for r, group in enumerate(moment.state.owner[:, -1].tolist()):
            awake = torch.zeros(60, dtype=torch.bool)
            awake[group * each : (group + 1) * each] = True
            assert torch.equal(moment.theta[r, ~awake], before[r, ~awake])
            assert not torch.equal(moment.theta[r, awake], before[r, awake])
        before = moment.theta


def test_nothing_is_forgotten_where_the_task_is_told() -> None:
    setup, moments = learned(settings={"wake": "id"})
    just, last = (
        torch.stack([accuracy(setup, m)[:, m.task] for m in moments], 1),
        accuracy(setup, moments[-1]),
    )
    assert torch.equal(just, last)


def test_the_energy_names_the_task_and_nothing_is_kept() -> None:
    setup, moments = learned(7, 8)
    found = accuracy(setup, moments[-1])
    vanilla, others = learned(7, 8, method="vanilla", task_id=False)
    assert (found.mean(1) > 0.8).all()
    assert (found.mean(1) > accuracy(vanilla, others[-1]).mean(1) + 0.2).all()
    for task in range(3):
        named = moments[-1].network.named(moments[-1].theta, setup.stream.test(task).probe)
        assert (named == task).double().mean() > 0.95
    held = sum(part.numel() for part in (moments[-1].state.mean, moments[-1].state.deviation))
    assert held == 2 * 2 * 3  # two numbers a group, of each replica
    assert moments[-1].state.beside == (None,) * 3


def test_the_share_of_items_whose_task_is_named_is_a_score() -> None:
    setup, moments = learned(7, 8)
    for moment in moments:
        found = setup.stream.evaluate(moment.network, moment.theta)
        assert list(found) == ["accuracy", "macro_f1", "named"]
        for task in range(3):
            group = moment.network.named(moment.theta, setup.stream.test(task).probe)
            share = (group == task).double().mean(1) if task <= moment.task else torch.zeros(2).double()
            assert torch.equal(found["named"][:, task], share)
    told, ends = learned(settings={"wake": "id"})
    assert list(told.stream.evaluate(ends[0].network, ends[0].theta)) == ["accuracy", "macro_f1"]


@pytest.mark.parametrize("boundaries", ["given", "found"])
def test_a_task_that_comes_again_is_named_by_every_group_that_learned_it(boundaries: str) -> None:
    settings = {"boundaries": boundaries, "grow": True}
    run = {"tasks": 4, "order": [0, 1, 0, 2], "memories": 30, "items": 400, "vertex": 20.0, "epochs": 30}
    setup, moments = learned(settings=settings, **run)
    first, last = (setup.stream.evaluate(m.network, m.theta)["named"][0] for m in (moments[0], moments[-1]))
    assert first.tolist() == [1, 0, 1, 0]  # the third task is known before it comes
    assert (last > 0.95).all()
    groups = moments[-1].network.named(moments[-1].theta, setup.stream.test(0).probe).unique().tolist()
    assert groups == ([0, 2] if boundaries == "given" else [0])


def test_tasks_that_nobody_announces_are_found_again() -> None:
    order = [0, 1, 0, 2, 1]
    run = {"tasks": 5, "order": order, "memories": 30, "items": 800, "vertex": 20.0}
    setup, moments = learned(7, 8, 9, settings={"boundaries": "found", "grow": True}, **run)
    assert moments[-1].state.owner.tolist() == [order] * 3
    alone, once = learned(8, settings={"boundaries": "found", "grow": True}, **run)
    assert torch.equal(accuracy(alone, once[-1])[0], accuracy(setup, moments[-1])[1])


def test_where_all_groups_are_taken_a_strange_task_goes_to_the_one_that_knows_it_best() -> None:
    """Which that is each replica finds for itself, and learns in no other."""
    told = {"settings": {"boundaries": "found", "groups": 2, "alarm": 1e-6}}
    setup, moments = learned(7, 8, **told)
    owner = moments[-1].state.owner
    assert owner[:, :2].tolist() == [[0, 1]] * 2
    assert set(owner[:, 2].tolist()) == {0, 1}
    for row, seed in enumerate((7, 8)):
        alone, once = learned(seed, **told)
        assert torch.equal(accuracy(alone, once[-1])[0], accuracy(setup, moments[-1])[row])


@pytest.mark.parametrize("settings", [{}, {"groups": 2}, {"grow": True, "boundaries": "found"}])
def test_what_groups_know_is_found_again_from_memories_and_owners(settings: dict) -> None:
    setup, moments = learned(epochs=2, memories=30, settings=settings)
    owner = moments[-1].state.owner[0].tolist()
    state = setup.method.start(moments[0].theta)
    for moment in moments:
        state = setup.method.found_again(state, moment.now, moment.theta, owner)
        assert torch.equal(state.owner, moment.state.owner)
        torch.testing.assert_close(state.mean, moment.state.mean)
        torch.testing.assert_close(state.deviation, moment.state.deviation)


def test_a_task_that_comes_again_has_other_items() -> None:
    stream = build([read({**SMALL, "tasks": 3, "order": [0, 1, 0]})]).stream
    first, again = stream.view(0, 0), stream.view(0, 2)
    assert (first.permutation == again.permutation).all()
    assert not (first.train == again.train).all()
    assert not (stream.view(0, 1).permutation == first.permutation).all()
    with pytest.raises(ValueError, match=r"order must say of each of the 3 tasks which it is"):
        build([read({**SMALL, "order": [0, 2, 0]})])


def test_centres_are_those_of_the_classes() -> None:
    probe = states(1, 30, seed=5)
    label = torch.arange(30) % 3
    target = torch.full((1, 30, 3), -1.0).double()
    target[0, torch.arange(30), label] = 1.0
    items = Items(probe, target, torch.ones(1, 30).double(), torch.arange(30)[None])
    found = centres(items, 3, network())[0]
    for c in range(3):
        torch.testing.assert_close(found[c, :9], probe[0, label == c, :9].mean(0))
        assert found[c, 9:].argmax() == c
    seven = centres(items, 7, network())[0]
    assert seven[:, 9:].argmax(1).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_groups_grow_or_share() -> None:
    assert Allocation.memories({}, 512, 5) == (512, 102)
    assert Allocation.memories({"grow": True}, 102, 5) == (510, 102)
    assert Allocation.memories({"groups": 2}, 512, 5) == (512, 256)
    assert build([read({**SMALL, "memories": 20, "settings": {"grow": True}})]).theta.shape[1] == 60
    shared = {"groups": 2, "beside": "ewc", "beside_strength": 1.0}  # the third task has the first one's
    assert len(learned(epochs=2, settings=shared)[1][-1].state.beside) == 2
    with pytest.raises(ValueError, match=r"memories must be at least one a group, not 2 for 3 groups"):
        learned(memories=2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"groups": 0}, "groups must be at least 1"),
        ({"begin": "centre"}, "begin must be centres, noise or nearest, not 'centre'"),
        ({"beside": "gem"}, "beside must be one of vanilla, "),
        ({"alarm": 0.0}, "alarm must be above 0"),
        ({"beside": "ewc"}, "beside_strength must be given for ewc"),
        ({"beside_strength": 1.0}, "beside_strength must be left out for vanilla"),
        ({"beside": "ewc", "beside_strength": 1.0, "boundaries": "found"}, "beside must be vanilla"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        METHODS["allocation"](**settings)


def test_a_run_that_is_read_refuses_in_the_same_words() -> None:
    with pytest.raises(ValueError, match="begin must be centres, noise or nearest, not 'centre'"):
        read({**SMALL, "settings": {"begin": "centre"}})


def test_auto_is_the_law_of_temperature() -> None:
    run = read({**SMALL, "vertex": 5.0})
    assert run.initial_temperature == run.final_temperature == "auto"
    expected = temperature(5.0, 20, 74, run.learning_rate, run.decay, run.epochs)
    assert build([run]).optimiser.initial_temperature == expected
    assert build([run.but(initial_temperature=0.5)]).optimiser.initial_temperature == 0.5
    # n-th root of the number of memories: twice as many, twice the n-th power.
    ratio = temperature(5.0, 40, 74, 0.03, 0.999, 60) / temperature(5.0, 20, 74, 0.03, 0.999, 60)
    assert ratio**5 == pytest.approx(2)
