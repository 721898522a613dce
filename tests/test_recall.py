"""States, probes and recall of the associative memory, by other paths and by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import engramma as en
from engramma.interactions import INTERACTIONS, Exponential, Interaction, Polynomial
from engramma.models import patterns as store
from engramma.models.associative import AssociativeMemory
from engramma.models.attractors import attractors
from engramma.models.energies import ENERGIES, Entmax, LogSumExp
from engramma.models.hopfield import Hopfield
from engramma.models.local import Competition, competed
from engramma.models.patterns import Bits, Plain
from engramma.models.probes import erased, flipped, noisy, partial
from engramma.network import DenseMemory
from engramma.store.files import Damaged

ORDERS = ("synchronous", "asynchronous")


def patterns(count: int, neurons: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array([-1, 1]), (count, neurons))


def stored(states: np.ndarray, plain: bool = False, **settings) -> AssociativeMemory:
    memory = AssociativeMemory(**settings)
    memory.store(states)
    if plain:
        memory.patterns = Plain(torch.as_tensor(states).to(memory.dtype))
    return memory


def direct(states: np.ndarray, f: Callable[[np.ndarray], np.ndarray], probe: np.ndarray) -> np.ndarray:
    """Scores, one neuron at a time: f with it on less f with it off."""
    found = np.zeros(probe.shape)
    for i in range(probe.shape[1]):
        on, off = probe.astype(float), probe.astype(float)
        on[:, i], off[:, i] = 1, -1
        found[:, i] = (f(on @ states.T) - f(off @ states.T)).sum(1)
    return found


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", INTERACTIONS)
@pytest.mark.parametrize("n", [2, 3, 4.5])
def test_scores_in_one_product_are_the_definition(name: str, n: float, plain: bool) -> None:
    """Also where neurons are unknown, and beyond the patterns' own form."""
    states, probe = patterns(9, 21), erased(patterns(6, 21, seed=1), 0.3).numpy()
    probe[0] = states[0]  # where it all agrees
    memory = stored(states, plain, vertex=n, interaction=name, temperature=0.8)
    f = memory.interaction
    assert f is not None
    expected = direct(states, lambda q: f.value(torch.as_tensor(q / (21 * 0.8))).numpy(), probe)
    if name == "exponential":  # told as a share of the nearest pattern's
        largest = torch.as_tensor((probe @ states.T).max(1) / (21 * 0.8))
        expected /= f.value(largest).numpy()[:, None]
    np.testing.assert_allclose(memory.scores(probe), expected, atol=1e-12)


def test_scores_are_the_networks() -> None:
    """Those of `DenseMemory`, which runs learn with."""
    states, probe = patterns(12, 30), torch.as_tensor(patterns(7, 30, seed=1)).double()
    memory = stored(states, vertex=3, interaction="leaky")
    assert isinstance(memory.interaction, Interaction)
    network = DenseMemory(30, 0, memory.interaction, autoassociative=True)
    expected = network.scores(torch.as_tensor(states).double()[None], probe[None])[0]
    torch.testing.assert_close(memory.scores(probe), expected)


def test_a_score_of_zero_leaves_a_neuron() -> None:
    """With an even number of patterns sums cancel, but for rounding: N = 51 is no power of two. Whole numbers
    tell which do."""
    states, probe = patterns(8, 51), patterns(40, 51, seed=1)
    field = (probe @ states.T) @ states - 8 * probe  # n = 2, without what a neuron does to itself
    assert (field == 0).any()
    expected = np.where(field == 0, probe, np.sign(field))
    for network in (stored(states), stored(states, plain=True), Hopfield()):
        if isinstance(network, Hopfield):
            network.store(states)
        np.testing.assert_array_equal(network.recall(probe, steps=1).state, expected)


@pytest.mark.parametrize("energy", ["polynomial", "exponential", "log-sum-exp", "sparsemax"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_are_the_patterns(energy: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked up, unpacked in blocks, and as a plain tensor; states all at once and a few at a time."""
    states, probe = patterns(70, 45), flipped(patterns(70, 45), 0.1)
    told = {"energy": energy, "vertex": 3, "dtype": dtype, "temperature": 2.0 if energy[0] in "ls" else 1.0}
    plain = stored(states, plain=True, **told).recall(probe, trace=True)
    for few in (1, 10**9):
        monkeypatch.setattr(store, "FEW", few)
        for block in (100, 2**24):
            monkeypatch.setattr(store, "BLOCK", block)
            memory = stored(states[:33], **told)
            memory.store(torch.as_tensor(states[33:]))
            assert isinstance(memory.patterns, Bits)
            assert torch.equal(memory.patterns.rows(slice(None)), torch.as_tensor(states).to(dtype))
            memory.block_bytes = 45 * 8 * 6 * 2 * block
            found = memory.recall(probe, trace=True)
            torch.testing.assert_close(found.state, plain.state)
            if dtype == torch.float64:  # in single precision two ways may part on the way
                torch.testing.assert_close(found.energy, plain.energy, check_stride=False)
                assert torch.equal(found.steps, plain.steps)


def test_a_pattern_takes_a_bit_a_neuron() -> None:
    memory = stored(patterns(100, 1000))
    assert isinstance(memory.patterns, Bits)
    assert memory.patterns.packed.nbytes == 100 * 128


def test_the_exponential_bears_a_thousand_neurons() -> None:
    """Demircigil's exp(overlap) is n = N: exp(1,000) is no number, and from far away all would be 0."""
    states = patterns(200, 1000)
    memory = stored(states, vertex=1000, interaction="exponential")
    end = memory.recall(flipped(states, 0.4), trace=True)
    np.testing.assert_array_equal(end.state.numpy(), states)
    assert end.energy is not None
    assert end.energy.isfinite().all()
    q = torch.as_tensor(flipped(states, 0.4)) @ torch.as_tensor(states).double().mT
    torch.testing.assert_close(end.energy[:, 0], -(torch.logsumexp(q, 1) - 1000))
    assert Exponential(1000).value(torch.tensor(0.2, dtype=torch.float64)) == 0


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(list(INTERACTIONS)),
    n=st.sampled_from([2, 3, 5, 2.5]),
    seed=st.integers(0, 10**6),
    bits=st.booleans(),
)
def test_no_asynchronous_update_raises_the_energy(name: str, n: float, seed: int, bits: bool) -> None:
    """Among real memories too, as learning makes them; the trace is the energy of the states."""
    states = patterns(25, 15, seed)
    memory = stored(states, vertex=n, interaction=name)
    if not bits:
        memory.patterns = Plain(torch.as_tensor(np.random.default_rng(seed).normal(size=(25, 15))))
    probe = patterns(8, 15, seed + 1)
    end = memory.recall(probe, order="asynchronous", trace=True)
    assert end.energy is not None
    assert (end.energy.diff(dim=1) <= 1e-12 * end.energy.abs().amax()).all()
    torch.testing.assert_close(end.energy[:, 0], memory.energy(probe))
    torch.testing.assert_close(end.energy[:, -1], memory.energy(end.state))
    assert end.converged.all()
    assert memory.is_stable(end.state).all() or name == "leaky"  # in turn, not at once


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(list(ENERGIES)),
    order=st.sampled_from(ORDERS),
    rate=st.floats(0.2, 1),
    seed=st.integers(0, 10**6),
)
def test_no_continuous_update_raises_the_energy(name: str, order: str, rate: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory = stored(rng.normal(size=(9, 6)), energy=name, temperature=rng.uniform(0.3, 5))
    end = memory.recall(rng.normal(size=(8, 6)), steps=6, order=order, rate=rate, trace=True)
    assert end.energy is not None
    assert (end.energy.diff(dim=1) <= 1e-9 * (1 + end.energy.abs().amax())).all()


def test_a_trace_ends_where_recall_stops() -> None:
    memory = stored(patterns(4, 60), vertex=3)
    end = memory.recall(flipped(patterns(4, 60), 0.1), trace=True)
    assert end.energy is not None
    assert end.energy.shape == (4, int(end.steps.max()) + 1)
    assert memory.recall(patterns(1, 60)[0], trace=True).energy is not None
    assert memory.recall(patterns(4, 60)).energy is None


def test_what_swings_is_where_it_would_be_at_the_end() -> None:
    """Two states that turn into each other, all at once: the one or the other, by the number of steps."""
    network = Hopfield()
    network.store(np.array([[1, 1]]))
    network.weights = -torch.as_tensor(network.weights)
    one, other = torch.tensor([1.0, 1.0]).double(), torch.tensor([-1.0, -1.0]).double()
    for steps in range(1, 7):
        end = network.recall(one, steps=steps)
        assert torch.equal(end.state, other if steps % 2 else one)
        assert int(end.steps) == steps
        assert not bool(end.converged)
    assert bool(network.recall(one, order="asynchronous").converged)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("energy", ["polynomial", "log-sum-exp"])
def test_known_neurons_are_held(order: str, energy: str) -> None:
    """They stay wherever they pull; and a part that is held recalls the rest."""
    states = patterns(6, 80)
    memory = stored(states, vertex=3, energy=energy)
    known = np.arange(80) < 30
    end = memory.recall(partial(states, known), order=order, known=known)
    torch.testing.assert_close(end.state, torch.as_tensor(states).double(), rtol=0, atol=1e-3)
    strange = np.where(np.arange(80) < 2, -states, states)
    held = memory.recall(strange, order=order, known=np.arange(80) < 2).state
    np.testing.assert_array_equal(held[:, :2], strange[:, :2])
    assert not np.array_equal(memory.recall(strange, order=order).state[:, :2].round(), strange[:, :2])


def test_a_held_neuron_is_never_moved_on_the_way() -> None:
    """In turn: the third neuron hears the first two as they are held, not as they would be, and follows."""
    for network in (AssociativeMemory(2), Hopfield()):
        network.store(np.ones((1, 5)))
        probe, known = np.array([-1, -1, 1, 1, 0]), np.arange(5) < 2
        assert network.recall(probe, order="asynchronous").state.tolist() == [1] * 5
        assert network.recall(probe, order="asynchronous", known=known).state.tolist() == [-1] * 5
    memory = AssociativeMemory(energy="log-sum-exp")
    memory.store(np.array([[3.0, 3.0], [-3.0, -3.0]]))
    held = memory.recall(np.array([-3.0, 1.0]), order="asynchronous", known=np.array([True, False]))
    assert held.state.tolist() == pytest.approx([-3, -3], abs=0.01)


@pytest.mark.parametrize("energy", ["polynomial", "exponential", "entmax"])
def test_pairs_recall_their_partners(energy: str) -> None:
    """Names from faces: as many neurons as one likes on either side."""
    faces, names = patterns(10, 90), patterns(10, 7, seed=1)
    memory = AssociativeMemory(3, energy=energy)
    memory.store(faces[:4], recalls=names[:4])
    memory.store(faces[4:], recalls=names[4:])
    end = memory.recall(flipped(faces, 0.1))
    np.testing.assert_allclose(end.state, names, atol=1e-9)
    assert memory.recall(faces[0]).state.shape == (7,)


def test_pairs_are_a_part_that_is_held_and_one_update() -> None:
    """Keys and values as one pattern, the values unknown: the same neurons, but for their number N."""
    keys, values = patterns(8, 40), patterns(8, 12, seed=1)
    pairs = AssociativeMemory(3)
    pairs.store(keys, values)
    whole = stored(np.hstack([keys, values]), vertex=3)
    probe = flipped(keys, 0.1).numpy()
    known = np.arange(52) < 40
    end = whole.recall(np.hstack([probe, np.zeros((8, 12))]), steps=1, known=known).state[:, 40:]
    assert torch.equal(pairs.recall(probe).state, end)


def test_a_melody_is_replayed() -> None:
    notes = patterns(12, 100)
    memory = AssociativeMemory(3)
    memory.store(notes[:-1], recalls=notes[1:])
    path = memory.replay(flipped(notes[0], 0.1), steps=11)
    np.testing.assert_array_equal(path[1:], notes[1:])
    assert memory.replay(notes[:2], steps=3).shape == (4, 2, 100)


def test_continuous_recall_is_attention_repeated() -> None:
    keys = np.random.default_rng(0).normal(size=(30, 8))
    query = np.random.default_rng(1).normal(size=(5, 8))
    state, k = torch.as_tensor(query), torch.as_tensor(keys)
    memory = stored(keys, energy="log-sum-exp", temperature=0.5)
    for steps in (1, 3):
        expected = state
        for _ in range(steps):
            expected = torch.nn.functional.scaled_dot_product_attention(
                expected[None], k[None], k[None], scale=2.0
            )[0]
        torch.testing.assert_close(memory.recall(query, steps=steps).state, expected, rtol=0, atol=1e-12)
    values = AssociativeMemory(energy=LogSumExp(2.0))
    values.store(keys, recalls=keys[:, :3] + 1)
    found = values.recall(query).state
    expected = torch.nn.functional.scaled_dot_product_attention(
        state[None], k[None], (k[:, :3] + 1)[None], scale=2.0
    )[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ENERGIES)
def test_continuous_patterns_are_recalled_from_noise_and_from_a_part(name: str) -> None:
    states = np.random.default_rng(0).normal(size=(12, 50))
    memory = stored(states, energy=name, temperature=25.0 if name == "epanechnikov" else 1.0)
    for probe in (noisy(states, 0.3), erased(states, 0.2), flipped(states, 0.06)):
        end = memory.recall(probe)
        torch.testing.assert_close(end.state, torch.as_tensor(states), rtol=0, atol=1e-3)
        assert end.converged.all()
    slowly = memory.recall(noisy(states, 0.3), rate=0.3, steps=200)
    torch.testing.assert_close(slowly.state, torch.as_tensor(states), rtol=0, atol=1e-3)
    assert slowly.steps.min() > 10


def test_probes_are_what_they_say() -> None:
    x = torch.as_tensor(patterns(5, 40)).double()
    assert ((flipped(x, 0.25) != x).sum(1) == 10).all()
    assert ((erased(x, 0.3) == 0).sum(1) == 12).all()
    assert torch.equal(erased(x, 0.3)[erased(x, 0.3) != 0], x[erased(x, 0.3) != 0])
    assert abs(float((noisy(x, 0.5) - x).std()) - 0.5) < 0.1
    assert torch.equal(flipped(x, 0.5, seed=3), flipped(x, 0.5, seed=3))
    assert not torch.equal(flipped(x, 0.5, seed=3), flipped(x, 0.5, seed=4))
    assert flipped(x[0], 1.0).tolist() == (-x[0]).tolist()
    for wrong, says in (
        (lambda: flipped(x, 1.1), "share must be from 0 to 1, not 1.1"),
        (lambda: noisy(x, -1), "deviation must be a number of at least 0"),
        (lambda: partial(x, np.ones(3, bool)), r"known must be of shape \(40,\), not \(3,\)"),
    ):
        with pytest.raises(ValueError, match=says):
            wrong()


def test_attractors_of_binary_states_are_told_apart() -> None:
    states = patterns(9, 200)
    network = Hopfield()
    network.store(states)
    mixed = np.sign(states[:3].sum(0))
    found = attractors(network, np.stack([states[4], -states[5], mixed, states[4]]), states)
    assert found.kind[0] == "stored"
    assert found.count.tolist() == [2, 1, 1]
    assert found.pattern[0] == 4
    assert sorted(found.kind) == ["inverse", "mixture", "stored"]
    assert found.shares() == {
        "stored": 0.5, "inverse": 0.25, "mixture": 0.25, "diffuse": 0.0, "spurious": 0.0, "unsettled": 0.0
    }  # fmt: skip
    alone = stored(np.sign(states.sum(0))[None])
    assert attractors(alone, states[:1], states).kind == ["diffuse"]
    strange = stored(patterns(1, 200, seed=8))
    assert attractors(strange, states[:1], states).kind == ["spurious"]
    network.weights = -torch.as_tensor(network.weights)
    assert attractors(network, states[:1], states).unsettled == 1
    with pytest.raises(ValueError, match=r"near must be from 0 to below 0\.5"):
        attractors(network, states, states, near=0.5)


def test_attractors_of_continuous_states_are_told_apart() -> None:
    """Ramsauer et al. (2020): with beta rises what recall ends in, the mean of all, of a few, one pattern."""
    rng = np.random.default_rng(0)
    pairs = np.repeat(rng.normal(size=(6, 40)), 2, 0) + 0.2 * rng.normal(size=(12, 40))
    kinds = [
        set(attractors(stored(pairs, energy="log-sum-exp", temperature=t), pairs, pairs).kind)
        for t in (200.0, 5.0, 0.02)
    ]
    assert kinds == [{"diffuse"}, {"mixture"}, {"stored"}]
    far = stored(pairs, energy="epanechnikov", temperature=1e-3)
    assert attractors(far, 100 * pairs[:1], pairs).kind == ["spurious"]


def test_the_local_rule_finds_what_items_are_copies_of() -> None:
    """Krotov and Hopfield's: without labels every source has a memory; norms are those of patterns."""
    sources = patterns(5, 60)
    items = flipped(np.repeat(sources, 40, 0), 0.1)
    memory = AssociativeMemory(3)
    memory.learn(items, memories=10, epochs=60, learning_rate=0.1, rule="local", push=0.1)
    found = torch.as_tensor(memory.memories)
    cosine = torch.nn.functional.cosine_similarity(found[None], torch.as_tensor(sources)[:, None].double(), 2)
    assert (cosine.amax(1) > 0.95).all()
    won = cosine.amax(0) > 0.95
    torch.testing.assert_close(
        found[won].square().sum(1), 60 * torch.ones(int(won.sum())).double(), rtol=0.1, atol=0
    )
    np.testing.assert_array_equal(memory.recall(items[::40]).state, sources)
    continuous = AssociativeMemory(energy="log-sum-exp")
    continuous.learn(np.random.default_rng(0).normal(size=(30, 5)), memories=4, epochs=5, rule="local")
    assert torch.as_tensor(continuous.memories).shape == (4, 5)


def test_the_local_rule_is_its_equation() -> None:
    """One item, one step, p = 3: the winner is drawn to it, the second driven away, the third left."""
    w, x = (
        torch.as_tensor(np.random.default_rng(0).normal(size=(3, 4))),
        torch.tensor([[1.0, -1, 1, 1]]).double(),
    )
    found = competed(x, w, 1, 0.1, 0, Competition(push=0.4, norm=3.0))
    h = (w.sign() * w.abs() ** 2 * x).sum(1) / 4
    g, order = torch.zeros(3).double(), h.argsort(descending=True)
    g[order[0]], g[order[1]] = 1, -0.4
    change = g[:, None] * (x - h[:, None] * w)
    torch.testing.assert_close(found - w, 0.1 * change / change.abs().max())


@pytest.mark.parametrize("energy", [*INTERACTIONS, "log-sum-exp", "entmax", "epanechnikov"])
def test_a_memory_is_saved_and_loaded(energy: str, tmp_path: Path) -> None:
    states = patterns(9, 37)
    memory = stored(states, energy=energy, vertex=4, temperature=1.7, dtype=torch.float32)
    en.save_memory(memory, tmp_path / "memory")
    found = en.load_memory(tmp_path / "memory")
    assert (found.kind, found.dtype) == (memory.kind, torch.float32)
    assert torch.equal(found.energy(states), memory.energy(states))
    found.store(states)
    en.save_memory(found, tmp_path / "memory")
    assert torch.as_tensor(en.load_memory(tmp_path / "memory").memories).shape == (18, 37)
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]


def test_learned_memories_pairs_and_empty_memories_are_saved(tmp_path: Path) -> None:
    learned = AssociativeMemory(3, "leaky", temperature=0.5)
    learned.learn(patterns(4, 20), memories=5, epochs=3)
    pairs = AssociativeMemory(energy=Entmax(2.0, alpha=1.7))
    pairs.store(np.random.default_rng(0).normal(size=(3, 5)), recalls=np.eye(3))
    for memory in (learned, pairs, AssociativeMemory()):
        en.save_memory(memory, tmp_path / "m")
        found = en.load_memory(tmp_path / "m")
        for name in ("patterns", "recalls"):
            one, other = getattr(memory, name), getattr(found, name)
            assert one is other is None or torch.equal(one.rows(slice(None)), other.rows(slice(None)))


def test_a_damaged_memory_is_named(tmp_path: Path) -> None:
    en.save_memory(stored(patterns(9, 37)), tmp_path / "m")
    whole = (tmp_path / "m").read_bytes()
    for broken in (whole[:-1], whole[:40], b"", whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]):
        (tmp_path / "m").write_bytes(broken)
        with pytest.raises(Damaged, match="no memory can be read from it"):
            en.load_memory(tmp_path / "m")

    class Own(Polynomial):
        pass

    with pytest.raises(ValueError, match="an energy of one's own, Own, cannot be saved"):
        en.save_memory(AssociativeMemory(interaction=Own(2)), tmp_path / "m")


KILLED = """
import os, sys
import numpy as np, torch
import engramma as en
from engramma.store import memories, outputs
memory = en.load_memory(sys.argv[1])
memory.store(np.ones((1, 37)))
if sys.argv[2] == "while writing":
    memories.os.fsync = lambda handle: os._exit(9)
else:
    outputs.os.replace = lambda *names: os._exit(9)
en.save_memory(memory, sys.argv[1])
"""


@pytest.mark.parametrize("when", ["while writing", "before it is in place"])
def test_what_was_saved_outlives_a_kill(when: str, tmp_path: Path) -> None:
    """A process dies while it saves a memory over another: the other is there; the next save tidies up."""
    memory = stored(patterns(9, 37))
    en.save_memory(memory, tmp_path / "m")
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "m"), when], check=False)
    assert died.returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    found = en.load_memory(tmp_path / "m")
    assert torch.equal(torch.as_tensor(found.memories), torch.as_tensor(memory.memories))
    en.save_memory(found, tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda m, c: m.recall(np.full(20, 0.5)), "state must be -1 and [+]1, or 0 where it is not known"),
        (lambda m, c: m.recall(np.full(20, np.nan)), "state must be -1 and"),
        (lambda m, c: c.recall(np.full(20, np.nan)), "state must be finite numbers, of shape"),
        (lambda m, c: c.store(np.full((2, 20), np.inf)), "patterns must be finite numbers"),
        (lambda m, c: m.store(np.zeros((0, 20))), r"\(items, neurons\), not \(0, 20\)"),
        (lambda m, c: m.store(np.ones((2, 2, 20))), r"not \(2, 2, 20\)"),
        (lambda m, c: m.recall(np.ones(19)), "state must have 20 neurons, not 19"),
        (lambda m, c: m.recall(np.ones(20), known=np.ones(3)), r"known must be of shape \(20,\), not \(3,\)"),
        (lambda m, c: m.recall(np.ones(20), rate=0.5), "rate must be .* 1 for binary states, not 0.5"),
        (lambda m, c: c.recall(np.ones(20), rate=0.0), "rate must be above 0"),
        (lambda m, c: m.recall(np.ones(20), order="x"), "order must be synchronous or asynchronous"),
        (lambda m, c: m.store(np.ones((1, 20)), np.ones((1, 3))), "recalls must be given for all patterns"),
        (lambda m, c: AssociativeMemory().store(np.ones((2, 9)), np.ones((1, 3))), "recalls must be 2, one"),
        (lambda m, c: m.replay(np.ones(20), 2), "replay needs patterns that recall others"),
        (lambda m, c: c.scores(np.ones(20)), "scores are of binary states"),
        (lambda m, c: m.weights(np.ones(20)), "weights are of continuous states"),
        (lambda m, c: c.learn(np.ones((2, 20))), "rule must be local for continuous states"),
        (lambda m, c: m.learn(np.ones((2, 20)), rule="oja"), "rule must be descent or local, not 'oja'"),
        (lambda m, c: m.learn(np.ones((2, 20)), rule="local", rank=7), "rank must be at most the number"),
        (lambda m, c: m.learn(np.ones((2, 20)), epochs=0), "epochs and memories must be at least 1"),
        (lambda m, c: AssociativeMemory(energy="cubic"), "energy must be one of .*exponential, not"),
        (lambda m, c: AssociativeMemory(temperature=0), "temperature must be above 0"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(does: Callable, says: str) -> None:
    binary, continuous = stored(patterns(3, 20)), stored(patterns(3, 20), energy="log-sum-exp")
    with pytest.raises(ValueError, match=says) as caught:
        does(binary, continuous)
    assert "\n" not in str(caught.value)
