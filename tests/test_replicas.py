from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engramma.replicas import Replicas, _mix, generator


def normal(g: np.random.Generator) -> np.ndarray:
    return g.normal(size=5)


def test_equal_seeds_equal_draws() -> None:
    drawn = Replicas((3, 7, 3)).draw(normal, "purpose", 1)
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).all()
    assert (drawn[1] == Replicas((7,)).draw(normal, "purpose", 1)[0]).all()


@given(
    one=st.tuples(st.integers(0, 2**40), st.sampled_from(["a", "b"]), st.integers(0, 99), st.integers(0, 99)),
    two=st.tuples(st.integers(0, 2**40), st.sampled_from(["a", "b"]), st.integers(0, 99), st.integers(0, 99)),
)
def test_a_stream_is_named_by_seed_purpose_and_numbers(one: tuple, two: tuple) -> None:
    same = generator(*one).integers(2**62) == generator(*two).integers(2**62)
    assert same == (one == two)


def test_initial_memories() -> None:
    theta = Replicas((0, 0, 1)).memories(200, 50, 0.3, dtype=torch.float64)
    assert theta.shape == (3, 200, 50)
    assert torch.equal(theta[0], theta[1])
    assert not torch.equal(theta[0], theta[2])
    assert abs(float(theta[2].std()) - 0.3) < 0.01
    assert abs(float(theta[2].mean())) < 0.01
    small = Replicas((0,)).memories(200, 50, 0.3, dtype=torch.float32)
    assert torch.equal(small[0], theta[0].float())  # one draw, whatever the precision


def test_rows() -> None:
    assert Replicas.grid((4, 2), 3).seeds == (4, 4, 4, 2, 2, 2)
    assert Replicas.grid((4, 2), 3).rows == (4, 2)
    assert Replicas((1, 2, 1, 2)).rows == (1, 2, 1, 2)  # not neighbours: one row each
    assert Replicas((1, 1, 2)).rows == (1, 1, 2)  # not equally many
    assert len(Replicas.grid((4, 2), 3)) == 6
    with pytest.raises(ValueError, match="at least one replica"):
        Replicas(())


@given(seed=st.integers(0, 2**40), epoch=st.integers(0, 500), extra=st.integers(0, 20))
def test_shuffle_keys_are_independent_of_neighbours(seed: int, epoch: int, extra: int) -> None:
    """An item's key is the same whatever stands beside it, in its row or in other rows."""
    ids = torch.arange(40)[None]
    alone = Replicas((seed,)).shuffle_keys(ids, 1, epoch)
    more = torch.cat([torch.arange(extra)[None] + (1 << 32), ids], 1).expand(2, -1)
    beside = Replicas((seed + 1, seed)).shuffle_keys(more, 1, epoch)
    assert torch.equal(beside[1:, extra:], alone)
    assert not torch.equal(beside[:1, extra:], alone)
    assert len(alone.unique()) == 40


def test_replicas_of_one_seed_shuffle_alike() -> None:
    pairs, ids = Replicas.grid((5, 6), 2), torch.arange(40)
    shared = pairs.shuffle_keys(ids.expand(2, -1), 0, 1)
    each = pairs.shuffle_keys(ids.expand(4, -1), 0, 1)
    assert torch.equal(each, shared.repeat_interleave(2, 0))


def test_shuffles_are_even() -> None:
    """Over many epochs every item comes first about equally often: 400 draws of 8 items."""
    keys = [Replicas((0,)).shuffle_keys(torch.arange(8)[None], 0, epoch) for epoch in range(400)]
    first = torch.cat(keys).argmin(1).bincount(minlength=8)
    assert first.min() > 25  # expected 50, standard deviation 6.6
    assert first.max() < 75


def test_numbers_are_mixed_as_published() -> None:
    """splitmix64 (Steele, Lea and Flood 2014) from state 0: its known first outputs."""
    state = torch.arange(4) * -7046029254386353131  # its increment, as a signed number
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [number % 2**64 for number in _mix(state).tolist()] == expected


def test_chance_stays_as_it_was() -> None:
    """Records are found again by name alone: what a seed draws must never change."""
    keys = Replicas((0, 7)).shuffle_keys(torch.tensor([[0, 1], [0, (3 << 32) + 5]]), 2, 9)
    assert keys.tolist() == [
        [6544123496219460078, -5520101556443521843],
        [4955645850575987814, 1234222714816236296],
    ]
    streams = [(0, "memories"), (7, "permutation", 3), (2**63 - 1, "sample", 0)]
    drawn = [int(generator(*stream).integers(2**62)) for stream in streams]
    assert drawn == [2605417003674357678, 3478755446921906493, 1206869031525974410]
    assert Replicas((3,)).memories(1, 3, 0.1).flatten().tolist() == pytest.approx(
        [-0.06224396260583063, -0.07568665970324324, 0.06681090912104769], abs=1e-12
    )
