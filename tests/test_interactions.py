from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engramma.interactions import (
    INTERACTIONS,
    Exponential,
    Interaction,
    LeakyRectifiedPolynomial,
    Polynomial,
    RectifiedPolynomial,
    power,
)

VERTICES = (0.5, 1, 1.5, 2, 3, 10, 20, 30)


def plain(f: Interaction, x: float) -> float:
    """The definitions, one number at a time."""
    if isinstance(f, Exponential):
        return math.exp(f.n * (x - 1))
    if isinstance(f, Polynomial):
        return x**f.n if f.n == int(f.n) else abs(x) ** f.n
    return x**f.n if x > 0 else getattr(f, "leak", 0.0) * x


@pytest.mark.parametrize("n", VERTICES)
@pytest.mark.parametrize("name", INTERACTIONS)
def test_value_is_the_definition(name: str, n: float, device, dtype, near) -> None:
    f = INTERACTIONS[name](n)
    x = torch.linspace(-1.2, 1.2, 41, device=device, dtype=dtype)  # 0 is among them
    expected = torch.tensor([plain(f, float(v)) for v in x], device=device, dtype=dtype)
    torch.testing.assert_close(f.value(x), expected, **near)


@pytest.mark.parametrize("n", VERTICES)
@pytest.mark.parametrize("name", INTERACTIONS)
def test_slope_is_the_derivative(name: str, n: float, device, dtype, near) -> None:
    f = INTERACTIONS[name](n)
    x = torch.linspace(-1.2, 1.2, 40, device=device, dtype=dtype, requires_grad=True)  # 0 is not
    (expected,) = torch.autograd.grad(f.value(x).sum(), x)
    torch.testing.assert_close(f.slope(x.detach()), expected, **near)


@pytest.mark.parametrize("n", VERTICES)
@pytest.mark.parametrize("name", INTERACTIONS)
def test_nothing_is_nan_at_the_kink(name: str, n: float) -> None:
    f = INTERACTIONS[name](n)
    x = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    (automatic,) = torch.autograd.grad(f.value(x).sum(), x)
    assert f.value(x).isfinite().all()
    assert f.slope(x).isfinite().all()
    if name != "polynomial" or n >= 1:  # |x|^n below n = 1 is infinitely steep at 0
        assert automatic.isfinite().all()


@given(x=st.floats(-3, 3), n=st.integers(0, 40))
def test_integer_powers_by_multiplication(x: float, n: int) -> None:
    found = float(power(torch.tensor(x, dtype=torch.float64), n))
    assert math.isclose(found, x**n, rel_tol=1e-13, abs_tol=1e-300)


def test_integer_powers_never_call_pow(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("pow called for an integer n")

    monkeypatch.setattr(torch.Tensor, "pow", refuse)
    power(torch.ones(3), 20)
    power(torch.ones(3), 3.0)
    with pytest.raises(AssertionError):
        power(torch.ones(3), 1.5)


def test_leak_has_a_size_and_a_sign() -> None:
    x = torch.tensor([-2.0])
    assert float(LeakyRectifiedPolynomial(3, 0.5).value(x)) == -1.0
    assert float(LeakyRectifiedPolynomial(3, -0.5).value(x)) == 1.0  # the paper's printed sign
    assert float(RectifiedPolynomial(3).value(x)) == 0.0


@pytest.mark.parametrize("n", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", INTERACTIONS)
def test_vertices_that_are_refused(name: str, n: float) -> None:
    with pytest.raises(ValueError, match="vertex must be a number above 0"):
        INTERACTIONS[name](n)


def test_the_exponential_is_the_power_s_companion() -> None:
    """At a similarity of 1 it has the power's value and slope, so that a temperature suits both."""
    one = torch.ones((), dtype=torch.float64)
    for n in VERTICES:
        f, g = Exponential(n), Polynomial(n)
        torch.testing.assert_close(f.value(one), g.value(one))
        torch.testing.assert_close(f.slope(one), g.slope(one))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_exponential_never_overflows_and_goes_on_along_its_tangent(kind: torch.dtype) -> None:
    f = Exponential(1000)
    x = torch.linspace(0.9, 5, 200, dtype=kind)
    assert f.value(x).isfinite().all()
    assert f.slope(x).isfinite().all()
    assert (f.value(x).diff() > 0).all()
    assert (f.slope(x).diff() >= 0).all()
    x = torch.linspace(1.05, 1.07, 41, dtype=torch.float64, requires_grad=True)  # the tangent begins at 1.06
    (expected,) = torch.autograd.grad(f.value(x).sum(), x)
    torch.testing.assert_close(f.slope(x.detach()), expected)
