"""Products looked up instead of multiplied: the same sums, for items of -1 and +1 and for no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import SMOOTH, TOLERANCE, case, network_agrees

from engramma.experiment import read
from engramma.interactions import Interaction, LeakyRectifiedPolynomial
from engramma.kernels.numba import cpu as numba_cpu
from engramma.kernels.numba import signs
from engramma.network import DenseMemory, Items
from engramma.runs.setup import build

KINDS = {np.float64: 1e-14, np.float32: 1e-6}


def packed(x: np.ndarray) -> np.ndarray:
    words = np.empty((len(x), -(-x.shape[1] // signs.WORD)), np.uint32)
    assert signs.pack(x, words)
    return words


@given(
    st.integers(1, 70), st.integers(1, 40), st.integers(1, 100), st.sampled_from(list(KINDS)), st.integers(0)
)
def test_both_products_are_the_sums_they_stand_for(b: int, m: int, n: int, kind: type, seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = np.where(draw.random((b, n)) < 0.5, -1, 1).astype(kind)
    z, d = draw.normal(size=(m, n)).astype(kind), draw.normal(size=(b, m)).astype(kind)
    words, h, g = packed(x), np.empty((b, m), kind), np.empty((m, n), kind)
    signs.signed_sums(words, z.T, h)
    signs.signed_sums(signs.turned(words, n), d, g.T)
    np.testing.assert_allclose(h, x.astype(float) @ z.T, rtol=0, atol=KINDS[kind] * n * 5)
    np.testing.assert_allclose(g, d.T.astype(float) @ x, rtol=0, atol=KINDS[kind] * b * 5)


@pytest.mark.parametrize("value", [0.0, 0.5, -2.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (4, 31), (6, 32), (2, 36)])
def test_one_value_that_is_no_sign_is_noticed(value: float, place: tuple[int, int]) -> None:
    x = np.where(np.random.default_rng(0).random((7, 37)) < 0.5, -1.0, 1.0)
    words = np.empty((7, 2), np.uint32)
    assert signs.pack(x, words)
    x[place] = value
    assert not signs.pack(x, words)


def test_what_is_not_a_number_reaches_every_sum_it_is_part_of() -> None:
    x = np.where(np.random.default_rng(0).random((9, 40)) < 0.5, -1.0, 1.0)
    z, d = np.ones((3, 40)), np.ones((9, 3))
    z[1, 35], d[7, 2] = np.nan, np.nan
    words, h, g = packed(x), np.empty((9, 3)), np.empty((3, 40))
    signs.signed_sums(words, z.T, h)
    signs.signed_sums(signs.turned(words, 40), d, g.T)
    assert (np.isnan(h) == [False, True, False]).all()
    assert (np.isnan(g).T == [False, False, True]).all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_shorter_line_for_what_is_left_over_changes_no_bit(kind: type) -> None:
    draw, width = np.random.default_rng(0), signs.LINE // np.dtype(kind).itemsize
    v, words = draw.normal(size=(70, 2 * width)).astype(kind), packed(draw.choice([-1.0, 1.0], (40, 70)))
    whole = np.empty((40, 2 * width), kind)
    signs.signed_sums(words, v, whole)
    for memories in range(1, 2 * width):
        some = np.full((40, memories + 1), np.nan, kind)
        signs.signed_sums(words, v[:, :memories], some[:, :memories])
        np.testing.assert_array_equal(some[:, :memories], whole[:, :memories])
        assert np.isnan(some[:, memories]).all()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems too are looked up."""
    monkeypatch.setattr(numba_cpu, "FEW", 0)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("autoassociative", [False, True], ids=["classifier", "autoassociative"])
@pytest.mark.parametrize("f", SMOOTH, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_network_agrees_with_the_specification(
    f: Interaction, dtype: torch.dtype, autoassociative: bool
) -> None:
    for shape in ({}, {"items": 1, "memories": 1, "scored": 1}, {"items": 65, "memories": 33}):
        network_agrees(numba_cpu, case(**shape), f, dtype, TOLERANCE[dtype], autoassociative=autoassociative)


@pytest.mark.usefixtures("always")
def test_replicas_and_threads_change_no_bit() -> None:
    c, before = case(items=700, memories=50, replicas=3, rows=1), torch.get_num_threads()
    net = DenseMemory(23, 3, LeakyRectifiedPolynomial(3), kernel=numba_cpu)
    items = Items(c.probe, c.target, torch.ones_like(c.share), torch.arange(700)[None])
    try:
        torch.set_num_threads(1)
        one = net.gradient(c.theta, items)
        alone = torch.cat([net.gradient(c.theta[r : r + 1], items) for r in range(3)])
        torch.set_num_threads(3)
        assert torch.equal(one, alone)
        assert torch.equal(one, net.gradient(c.theta, items))
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("always")
def test_items_that_are_no_signs_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """One grey pixel in one replica's items is enough; items of signs never meet the BLAS."""
    c, f = case(items=40), LeakyRectifiedPolynomial(3)
    grey = c._replace(probe=c.probe.clone())
    grey.probe[1, 7, 2] = 0.25
    network_agrees(numba_cpu, grey, f, torch.float64, TOLERANCE[torch.float64])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the BLAS was called")

    net = DenseMemory(23, 3, f, kernel=numba_cpu)
    weight = torch.ones_like(c.share)
    monkeypatch.setattr(np, "dot", refuse)
    net.gradient(c.theta, Items(c.probe, c.target, weight, torch.zeros_like(weight).long()))
    with pytest.raises(AssertionError, match="the BLAS was called"):
        net.gradient(c.theta, Items(grey.probe, c.target, weight, torch.zeros_like(weight).long()))


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every block of items that is turned into bits."""
    made, really = [], signs.pack

    def pack(x: np.ndarray, words: np.ndarray) -> bool:
        made.append(len(x))
        return really(x, words)

    monkeypatch.setattr(signs, "pack", pack)
    return made


@pytest.mark.usefixtures("always")
def test_a_task_is_packed_once_however_often_it_is_learned(packs: list[int]) -> None:
    """Training reads the same items in every epoch. Two seeds, whose items differ."""
    settings = {"data": "digits", "items": 300, "tasks": 2, "memories": 20, "epochs": 3}
    run = read({**settings, "method": "allocation"})
    for _ in build([run, run.but(seed=1)]).train():
        pass
    assert packs == [240] * 4


@pytest.mark.usefixtures("always")
def test_items_that_are_written_to_are_packed_anew(packs: list[int]) -> None:
    c = case(items=40)
    net, weight = DenseMemory(23, 3, LeakyRectifiedPolynomial(3), kernel=numba_cpu), torch.ones_like(c.share)
    items = Items(c.probe.clone(), c.target, weight, torch.zeros_like(weight).long())
    first, once = net.gradient(c.theta, items), len(packs)
    assert torch.equal(net.gradient(c.theta, items), first)
    assert len(packs) == once
    items.probe[..., :5] *= -1
    fresh = items._replace(probe=items.probe.clone())
    assert torch.equal(net.gradient(c.theta, items), net.gradient(c.theta, fresh))
    assert not torch.equal(net.gradient(c.theta, items), first)
    assert len(packs) == 3 * once
    items.probe[0, 3, 2] = 0.5  # no longer a sign: multiplied
    fresh = items._replace(probe=items.probe.clone())
    assert torch.equal(net.gradient(c.theta, items), net.gradient(c.theta, fresh))
    narrow = net.gradient(c.theta.float(), items._replace(target=c.target.float(), weight=weight.float()))
    assert narrow.dtype == torch.float32
    with torch.inference_mode():  # such tensors do not say whether they were written to
        inside = Items(*(part.clone() for part in fresh))
        before = net.gradient(c.theta, inside)
        inside.probe[0, :, 1] *= -1
        assert not torch.equal(net.gradient(c.theta, inside), before)


@pytest.mark.usefixtures("always")
def test_bits_are_kept_no_longer_than_their_items() -> None:
    c, before = case(items=40), len(numba_cpu._packed)
    probe = c.probe.clone()
    numba_cpu.product(probe, c.theta)
    assert len(numba_cpu._packed) == before + 1
    del probe
    assert len(numba_cpu._packed) == before
