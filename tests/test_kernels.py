"""Every kernel computes what `kernels.reference` computes, on odd shapes as on even ones.

On the CPU numba is tested; `--device cuda` tests Triton instead, and TRITON_INTERPRET=1 adds it here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from engramma.interactions import Interaction, LeakyRectifiedPolynomial, Polynomial, RectifiedPolynomial
from engramma.kernels import kernel_for, numba_cpu, reference
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser

VERTICES = (1, 1.5, 2, 3, 10, 20, 30)
INTERACTIONS: list[Interaction] = [
    *(LeakyRectifiedPolynomial(n) for n in VERTICES),
    *(Polynomial(n) for n in VERTICES),
    LeakyRectifiedPolynomial(3, leak=-0.3),
    RectifiedPolynomial(2),
    RectifiedPolynomial(1.5),
]
FEW: list[Interaction] = [LeakyRectifiedPolynomial(2), LeakyRectifiedPolynomial(20), Polynomial(1.5)]

# How far a kernel may be from the reference, as a part of the largest entry that belongs to the same
# memory (or item, for scores): sums are taken in another order, x^n loses n roundings, and 1 - tanh^2
# of a neuron that is nearly right has few digits left in float32.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-3}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kernel" in metafunc.fixturenames:
        cuda = str(metafunc.config.getoption("--device", default="cpu")).startswith("cuda")
        names = ["triton"] if cuda else ["numba"]
        if not cuda and os.environ.get("TRITON_INTERPRET") == "1":
            names.append("triton")
        metafunc.parametrize("kernel", names, indirect=True)


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "triton":
        return pytest.importorskip("engramma.kernels.triton_gpu")
    return numba_cpu


@pytest.fixture
def place(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(str(request.config.getoption("--device", default="cpu")))


class Case(NamedTuple):
    probe: Tensor  # (S,B,N)
    theta: Tensor  # (R,M,N)
    h: Tensor  # (R,B,M)
    a: Tensor  # (R,M,K)
    g: Tensor  # (R,B,K)
    target: Tensor  # (S,B,K)
    share: Tensor  # (S,B)
    u: Tensor | None  # (S,B,K)


def case(
    items: int = 17,
    memories: int = 33,
    scored: int = 3,
    replicas: int = 4,
    rows: int = 2,
    signed: bool = False,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    neurons: int = 23,
    spread: float = 1.0,
) -> Case:
    draw = torch.Generator().manual_seed(items + 100 * memories + 10000 * scored)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    probe = normal(rows, items, neurons).sign()
    theta = spread * normal(replicas, memories, neurons)
    h = reference.product(probe, theta) / neurons
    a = theta[..., -scored:] / neurons
    g, target = normal(replicas, items, scored), normal(rows, items, scored).sign()
    share = normal(rows, items).abs() / items
    u = -probe[..., -scored:] if signed else None
    made = (probe, theta, h, a, g, target, share, u)
    return Case(*(t if t is None else t.to(device, dtype).contiguous() for t in made))  # type: ignore[arg-type]


def check(found: Tensor, expected: Tensor, over: int) -> None:
    """Each entry against the largest of `expected` along the axis `over`."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    size = expected.double().abs().amax(over, keepdim=True)
    # Below this both are as good as zero: the reference keeps denormal numbers, the kernels need not.
    floor = torch.finfo(expected.dtype).tiny * 1e3
    wrong = (found.double() - expected.double()).abs() / (size + floor)
    assert float(wrong.max()) <= TOLERANCE[expected.dtype]


def agree(kernel: ModuleType, function: str, arguments: tuple[object, ...], over: tuple[int, ...]) -> None:
    found, expected = getattr(kernel, function)(*arguments), getattr(reference, function)(*arguments)
    pairs = ((found, expected),) if isinstance(found, Tensor) else tuple(zip(found, expected, strict=True))
    for (one, other), axis in zip(pairs, over, strict=True):
        check(one, other, axis)


SHAPES = [
    {"items": 1, "memories": 1, "scored": 1, "replicas": 1, "rows": 1},
    {"items": 3, "memories": 5, "scored": 3, "replicas": 3, "rows": 3},
    {"items": 17, "memories": 33, "scored": 10, "replicas": 6, "rows": 2},
    {"items": 17, "memories": 5, "scored": 1, "replicas": 4, "rows": 1},
    {"items": 3, "memories": 33, "scored": 10, "replicas": 1, "rows": 1},
    {"items": 300, "memories": 600, "scored": 3, "replicas": 2, "rows": 1},  # several blocks and chunks
]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s.values())))
@pytest.mark.parametrize("signed", [False, True], ids=["off", "signed"])
@pytest.mark.parametrize("f", FEW, ids=str)
def test_odd_shapes(
    kernel: ModuleType, shape: dict, signed: bool, f: Interaction, dtype: torch.dtype, place: torch.device
) -> None:
    c = case(**shape, signed=signed, dtype=dtype, device=place)
    agree(kernel, "scores", (c.h, c.a, f, c.u), (1,))
    agree(kernel, "slopes", (c.h, c.a, c.g, f, c.u), (1, 2))
    agree(kernel, "pull", (c.h, c.a, c.target, c.share, 1, f, c.u), (1, 2))
    own = c.probe[..., -c.a.shape[-1] :]
    agree(kernel, "moments", (c.h, c.a, c.g, f, c.u, own, 1), (1, 2))
    agree(kernel, "moments", (c.h, c.a, c.g, f, c.u, own, 2), (1, 2))


@pytest.mark.parametrize("f", INTERACTIONS, ids=str)
@pytest.mark.parametrize("signed", [False, True], ids=["off", "signed"])
def test_every_interaction(kernel: ModuleType, f: Interaction, signed: bool, place: torch.device) -> None:
    c = case(signed=signed, device=place)
    agree(kernel, "scores", (c.h, c.a, f, c.u), (1,))
    for m in (1, 2, 5):
        agree(kernel, "pull", (c.h, c.a, c.target, c.share, m, f, c.u), (1, 2))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s.values())))
def test_products(kernel: ModuleType, shape: dict, dtype: torch.dtype, place: torch.device) -> None:
    c = case(**shape, dtype=dtype, device=place)
    probe = kernel.prepare(c.probe, dtype)
    check(kernel.product(probe, c.theta), reference.product(c.probe, c.theta), 1)
    back = kernel.product_back(c.h, probe, c.theta.shape[2])
    check(back, reference.product_back(c.h, c.probe, c.theta.shape[2]), 2)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("visible", [0, 20, 23])
@pytest.mark.parametrize("clamp", [None, 0.5])
@pytest.mark.parametrize("rate", [0.08, (0.5, 0.1, 0.0, 2.0)], ids=["one rate", "four"])
def test_step(
    kernel: ModuleType,
    dtype: torch.dtype,
    visible: int,
    clamp: float | None,
    rate: float,
    place: torch.device,
) -> None:
    c = case(dtype=dtype, device=place)
    grad, velocity = c.theta.flip(1).contiguous(), c.theta.flip(2).contiguous()
    grad[1, 2] = velocity[1, 2] = 0  # a memory that nothing pulls at
    rates = (
        rate if isinstance(rate, float) else torch.tensor(rate, dtype=dtype, device=place).reshape(-1, 1, 1)
    )
    before = c.theta.clone(), grad.clone(), velocity.clone()
    agree(kernel, "step", (c.theta, grad, velocity, rates, 0.6, visible, clamp), (2, 2))
    assert all(torch.equal(x, y) for x, y in zip(before, (c.theta, grad, velocity), strict=True))


def test_the_slopes_of_untrained_memories_survive_in_float64(kernel: ModuleType, place: torch.device) -> None:
    """At n = 20 they are near 1e-45, and each memory's step is scaled by its own largest."""
    c = case(items=40, neurons=799, spread=0.1, device=place)
    dh, _ = kernel.pull(c.h, c.a, c.target, c.share, 1, RectifiedPolynomial(20))
    assert 0 < float(dh.abs().amax((0, 1)).max()) < 1e-35
    agree(kernel, "pull", (c.h, c.a, c.target, c.share, 1, RectifiedPolynomial(20)), (1, 2))


def test_denormal_numbers_are_flushed_in_float32() -> None:
    c = case(items=40, neurons=799, spread=0.1, dtype=torch.float32)
    f, tiny = RectifiedPolynomial(20), torch.finfo(torch.float32).tiny
    expected = reference.slopes(c.h, c.a, c.g, f)[0]
    assert int(((expected != 0) & (expected.abs() < tiny)).sum()) > 0  # there is something to flush
    for found in numba_cpu.slopes(c.h, c.a, c.g, f):
        assert not bool(((found != 0) & (found.abs() < tiny)).any())


@pytest.mark.parametrize("f", FEW, ids=str)
def test_a_neuron_without_weight_has_no_score_and_no_slope(
    kernel: ModuleType, f: Interaction, place: torch.device
) -> None:
    """Exactly: whatever rounding left behind would be scaled to a full step."""
    c = case(memories=600, device=place)
    a = torch.zeros_like(c.a)
    assert not bool(kernel.scores(c.h, a, f).any())
    assert not bool(kernel.slopes(c.h, a, c.g, f)[0].any())
    assert not bool(kernel.pull(c.h, a, c.target, c.share, 1, f)[0].any())


def test_what_is_not_a_number_stays_where_it_is(kernel: ModuleType, place: torch.device) -> None:
    c, f = case(device=place), LeakyRectifiedPolynomial(2)
    h = c.h.clone()
    h[1, 5, 7] = torch.nan
    o = kernel.scores(h, c.a, f)
    assert torch.equal(o.isnan(), reference.scores(h, c.a, f).isnan())
    grad = c.theta.clone()
    grad[2, 3, 4] = torch.nan
    moved, _ = kernel.step(c.theta, grad, c.theta, 0.1, 0.6, 20, 1.0)
    expected, _ = reference.step(c.theta, grad, c.theta, 0.1, 0.6, 20, 1.0)
    torch.testing.assert_close(moved, expected, equal_nan=True)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_threads_and_replicas_change_no_bit() -> None:
    c, f = case(items=700, memories=300, replicas=3, rows=1), LeakyRectifiedPolynomial(3)
    net = DenseMemory(23, 3, f, kernel=numba_cpu)
    items = Items(c.probe, c.target, torch.ones_like(c.share), torch.arange(700)[None])
    torch.set_num_threads(1)
    one = net.gradient(c.theta, items)
    moved = numba_cpu.step(c.theta, one, c.theta, 0.1, 0.6, 20, 1.0)
    alone = torch.cat([net.gradient(c.theta[r : r + 1], items) for r in range(3)])
    torch.set_num_threads(3)
    assert torch.equal(one, alone)
    assert torch.equal(one, net.gradient(c.theta, items))
    for x, y in zip(moved, numba_cpu.step(c.theta, one, c.theta, 0.1, 0.6, 20, 1.0), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("autoassociative", [False, True])
def test_gradient_of_the_network(kernel: ModuleType, autoassociative: bool, place: torch.device) -> None:
    c, f = case(items=30, device=place), LeakyRectifiedPolynomial(3)
    beta = torch.tensor([1.0, 2.0, 0.5, 1.1], dtype=torch.float64, device=place)
    net = DenseMemory(23, 3, f, exponent=2, autoassociative=autoassociative, beta=beta)
    target = c.probe.flip(1) if autoassociative else c.target
    items = Items(c.probe, target, (c.share > c.share.mean()).double(), torch.zeros_like(c.share).long())
    items = items.row(slice(3, 25))  # rows that are not contiguous
    fast = DenseMemory(23, 3, f, 2, autoassociative, beta, kernel)
    ready = items._replace(probe=kernel.prepare(items.probe, torch.float64))
    check(fast.gradient(c.theta, ready), net.gradient(c.theta, items), 2)
    check(fast.per_item(c.theta, ready, "loss", 2), net.per_item(c.theta, items, "loss", 2), 2)


STEP = """
import resource, sys, torch
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
torch.set_num_threads(1)
kernel = kernel_for("cpu", sys.argv[1])
def train(B, M, N=799, C=10):
    net, optimiser = DenseMemory(N, C, LeakyRectifiedPolynomial(20), kernel=kernel), Optimiser(kernel=kernel)
    probe = torch.where(torch.rand(1, B, N) < 0.5, -1.0, 1.0)
    probe[..., -C:] = -1
    target = -torch.ones(1, B, C)
    items = Items(probe, target, torch.ones(1, B), torch.arange(B)[None])
    theta = torch.randn(1, M, N) / 10
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    optimiser.step(theta, net.gradient(theta, items), optimiser.start(theta), 1, N - C)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
train(300, 16)
print(train(8000, 512))
"""


@pytest.mark.parametrize("name", ["reference", "numba"])
def test_a_step_never_holds_items_by_memories_by_classes(name: str) -> None:
    """What a step adds to the process, measured from outside: (B,M,C) in float32 would be 164 MB."""
    done = subprocess.run([sys.executable, "-c", STEP, name], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8000 * 512 * 10 * 4 * (0.75 if name == "reference" else 0.4)


CACHE = """
import torch
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import numba_cpu, numba_loops
h, g = torch.rand(1, 4, 3), torch.rand(1, 4, 2)
numba_cpu.pull(h, h.mT[..., :2].contiguous(), g, g[..., 0], 1, LeakyRectifiedPolynomial(4))
print(sum(numba_loops.pull.stats.cache_misses.values()), sum(numba_loops.pull.stats.cache_hits.values()))
"""


def test_machine_code_is_kept_on_disk(tmp_path: object) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-c", CACHE]
    first, second = (
        subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert first == ["1", "0"]
    assert second == ["0", "1"]


def test_kernels_are_found_by_name() -> None:
    assert kernel_for("cpu") is numba_cpu
    assert kernel_for("cpu", "numba") is numba_cpu
    assert kernel_for("cpu", "reference") is reference
    for device, name in (("cpu", "triton"), ("cpu", "fast"), ("cuda", "numba")):
        with pytest.raises(ValueError, match="kernel must be"):
            kernel_for(device, name)


def test_optimiser_uses_its_kernel() -> None:
    c = case()
    slow, fast = Optimiser(), Optimiser(kernel=numba_cpu)
    for x, y in zip(
        fast.step(c.theta, c.theta, c.theta, 3, 20), slow.step(c.theta, c.theta, c.theta, 3, 20), strict=True
    ):
        torch.testing.assert_close(x, y)
