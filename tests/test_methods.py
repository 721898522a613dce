"""One suite over every method: the nine of the paper, and the one of docs/adding-a-method.md.

What is particular to a family is in test_penalty.py, test_projection.py and test_replay.py."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import page
import pytest
import safetensors.torch
import torch
from torch import Tensor

from engramma import measures
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import METHODS, Allocation, Buffer, Method, Pseudorehearsal, Vanilla, XdG
from engramma.methods.method import Size
from engramma.methods.projection import Guarded
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import StateStream
from engramma.train import Moment, train


class Case(NamedTuple):
    make: Callable[..., Method]
    strengths: tuple[float, float, float]  # three that differ, none of them 0
    good: float = 0.0  # one that helps on the small stream of `test_less_is_forgotten`


CASES = {
    "vanilla": Case(METHODS["vanilla"], (0, 0, 0)),
    "rehearsal": Case(METHODS["rehearsal"], (0.1, 0.4, 1.0), 0.3),
    "pseudorehearsal": Case(METHODS["pseudorehearsal"], (0.1, 0.5, 1.5), 2.0),
    "gem": Case(METHODS["gem"], (0.1, 0.3, 0.6), 0.3),
    "agem": Case(METHODS["agem"], (0.1, 0.3, 0.6), 0.3),
    "l2": Case(METHODS["l2"], (1e-5, 1e-4, 1e-3), 3e-5),
    "ewc": Case(METHODS["ewc"], (1.0, 1e2, 1e4), 300.0),
    "mas": Case(METHODS["mas"], (0.1, 1.0, 10.0), 1.0),
    "si": Case(METHODS["si"], (0.1, 1.0, 10.0), 1.0),
    "allocation": Case(METHODS["allocation"], (0, 0, 0)),
    "ewc_moments": Case(METHODS["ewc_moments"], (1.0, 1e2, 1e4), 100.0),
    "mas_moments": Case(METHODS["mas_moments"], (0.1, 1.0, 10.0), 1.0),
    "si_moments": Case(METHODS["si_moments"], (0.1, 1.0, 10.0), 1.0),
    "der": Case(METHODS["der"], (0.1, 0.4, 1.0), 0.3),
    "lwf": Case(METHODS["lwf"], (0.1, 1.0, 3.0), 1.0),
    "dreams": Case(METHODS["dreams"], (0.1, 0.5, 1.5), 1.0),
    "xdg": Case(METHODS["xdg"], (1.0, 1e2, 1e4), 0.3),
    "freeze": Case(page.run(page.blocks()[0])["Freeze"], (0.1, 0.25, 0.5), 0.5),  # type: ignore[arg-type]
}


ALL_AWAKE: dict[Any, dict[str, Any]] = {  # with these settings all memories learn, as they were drawn
    Allocation: {"groups": 1, "begin": "noise"},
    XdG: {"share": 1.0},
}


def test_every_method_has_a_case() -> None:
    assert set(CASES) == {*METHODS, "freeze"}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def built(case: Case, strength: float | tuple[float, ...], **settings: object) -> Method:
    name = case.make.strength_name  # type: ignore[attr-defined]
    return case.make(**{name: strength}, **settings) if name else case.make(**settings)


@pytest.fixture
def run(make_stream, make_network, device, dtype) -> Callable[..., list[Moment]]:
    """Train on three small tasks; the moments after each task."""

    def run(
        method: Method,
        seeds: tuple[int, ...] = (4, 9),
        tasks: int = 3,
        start: tuple[int, Tensor, Any] | None = None,
        batch_size: int | None = None,
        epochs: int = 6,
    ) -> list[Moment]:
        replicas = Replicas(seeds)
        stream = make_stream(replicas, items=40, tasks=tasks)
        network = make_network(stream, LeakyRectifiedPolynomial(3))
        # An odd number: an even one, clamped to -1 and +1, can tie, and rounding then decides a sign.
        theta = replicas.memories(7, stream.neurons, device=device, dtype=dtype)
        done, theta, state = start or (0, theta, None)
        resume = (done, state) if start else None
        # Steps so large that tasks collide at once: else the projections have nothing to do in so few.
        optimiser = Optimiser(0.3, initial_temperature=0.5, final_temperature=0.5, epochs=epochs)
        moments = train(network, stream, method, optimiser, replicas, theta, batch_size, resume)
        return [moment for moment in moments if moment.ends_task]

    return run


def tensors(part: Any, name: str = "state") -> dict[str, Tensor]:
    """A state taken apart."""
    if isinstance(part, Tensor):
        return {name: part}
    if part is None:
        return {}
    assert isinstance(part, tuple), f"{name} is a {type(part).__name__}; a state is NamedTuples of tensors"
    found: dict[str, Tensor] = {}
    for number, value in enumerate(part):
        found |= tensors(value, f"{name}.{getattr(part, '_fields', range(len(part)))[number]}")
    return found


def rebuilt(like: Any, found: dict[str, Tensor], name: str = "state") -> Any:
    if like is None or isinstance(like, Tensor):
        return found.get(name)
    fields = getattr(like, "_fields", range(len(like)))
    parts = [rebuilt(v, found, f"{name}.{f}") for f, v in zip(fields, like, strict=True)]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def same(one: Any, two: Any) -> bool:
    a, b = tensors(one), tensors(two)
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("batch_size", [None, 12])
def test_together_equals_alone(case: Case, batch_size: int | None, run, near) -> None:
    """Four strengths as replicas, two of a seed and two of another; the last strength is nothing at all.

    Batched products round otherwise than single ones, and steps as large as these make much of it: hence few
    epochs, and tolerances that are wide for rounding and narrow for anything else."""
    seeds, strengths, epochs = (4, 4, 9, 9), (*case.strengths, 0.0), 6 if batch_size is None else 2
    near = {"rtol": near["rtol"] * 1e3, "atol": near["atol"] * 1e4}
    together = run(built(case, strengths), seeds, batch_size=batch_size, epochs=epochs)
    for r in range(4):
        alone = run(built(case, strengths[r]), (seeds[r],), batch_size=batch_size, epochs=epochs)
        for ours, its in zip(together, alone, strict=True):
            torch.testing.assert_close(ours.theta[r : r + 1], its.theta, **near)
    if case.strengths[0]:
        assert not torch.equal(together[-1].theta[0], together[-1].theta[1])


def test_task_one_equals_vanilla(case: Case, run) -> None:
    method = run(built(case, case.strengths[-1], **ALL_AWAKE.get(case.make, {})), tasks=1)
    assert torch.equal(method[0].theta, run(Vanilla(), tasks=1)[0].theta)


def test_strength_nothing_equals_vanilla(case: Case, run) -> None:
    """Bit for bit, after every task."""
    nothing = run(built(case, 0.0, **ALL_AWAKE.get(case.make, {})))
    vanilla = run(Vanilla())
    for ours, its in zip(nothing, vanilla, strict=True):
        assert torch.equal(ours.theta, its.theta)


def test_strength_something_does_not(case: Case, run) -> None:
    if case.strengths[0]:
        something, vanilla = run(built(case, case.strengths[1])), run(Vanilla())
        assert not torch.equal(something[1].theta, vanilla[1].theta)


class Careful(Method):
    """Hands everything on to a method and looks whether it came back unchanged."""

    def __init__(self, method: Method) -> None:
        object.__setattr__(self, "method", method)

    def observe(self, *_: Any) -> Any:
        """Answered below; the loop looks whether a class has it."""

    def __getattribute__(self, name: str) -> Any:
        if name not in ("start", "awaken", "rehearse", "steer", "observe", "consolidate", "recall"):
            return object.__getattribute__(self, name)

        def call(*given: Any) -> Any:
            parts = [*given]
            for part in given:
                if hasattr(part, "task"):
                    parts += [part.task.train, part.task.test]
            seen = [tensors(p) for p in parts if p is None or isinstance(p, Tensor) or hasattr(p, "_fields")
                    if not hasattr(p, "task")]  # fmt: skip
            before = [{k: t.clone() for k, t in s.items()} for s in seen]
            answer = getattr(self.method, name)(*given)
            for old, new in zip(before, seen, strict=True):
                for key in old:
                    assert torch.equal(old[key], new[key]), f"{name} changed {key}"
            return answer

        return call


def test_inputs_are_not_changed_in_place(case: Case, run) -> None:
    method = built(case, case.strengths[1])
    watched, plain = run(Careful(method)), run(method)
    assert torch.equal(watched[-1].theta, plain[-1].theta)


def held(part: Any, theta: Tensor, visible: int) -> float:
    """Bytes of a state of one replica: an item's neurons are bits, as its labels are where they are -1 or +1.
    What is zero everywhere, or the memories themselves, need not be kept; a `Buffer`'s facts are its report.
    """
    if part is None or (isinstance(part, Tensor) and (part == 0).all()):
        return 0.0
    if isinstance(part, Tensor):
        alike = part.shape == theta.shape and torch.equal(part, theta)
        return 0.0 if alike else part.numel() * (1 if part.dtype == torch.int8 else 8)
    if isinstance(part, Items):
        signs = [(each.abs() == 1).all() for each in (part.probe[..., :visible], part.target)]
        return sum(
            each.numel() * (1 / 8 if sign else 8)
            for each, sign in zip((part.probe[..., :visible], part.target), signs, strict=True)
        )
    if isinstance(part, Buffer):
        return held(part.items, theta, visible)
    if isinstance(part, Guarded):
        return held(part.buffer, theta, visible)
    return sum(held(each, theta, visible) for each in part)


SETTINGS: dict[str, list[dict[str, Any]]] = {  # further ones, of which more or less is kept
    "rehearsal": [{"capacity": 20}],
    "pseudorehearsal": [{"label": "relaxed"}],
    "ewc": [{"merge": "online"}],
    "ewc_moments": [{"merge": "online"}],
    "mas_moments": [{"merge": "separate"}],
    "dreams": [{"centres": 2}, {"of": "memories"}],
    "xdg": [{"share": 0.5, "beside": "ewc_moments"}, {"strength": 0.0}],
    "allocation": [
        {"groups": 2},
        {"groups": 2, "beside": "ewc", "beside_strength": 1.0},
        {"beside": "rehearsal", "beside_strength": 0.25},
    ],
}


@pytest.mark.parametrize(
    ("name", "settings"), [(name, own) for name in CASES for own in ({}, *SETTINGS.get(name, []))]
)
def test_what_it_keeps_is_what_its_class_says(name: str, settings: dict[str, Any], run) -> None:
    case = CASES[name]
    strength = settings.get("strength", case.strengths[1])
    method = built(case, strength, **{k: v for k, v in settings.items() if k != "strength"})
    told = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    if case.make.strength_name:  # type: ignore[attr-defined]
        del told[case.make.strength_name]  # type: ignore[attr-defined]
    last = run(method, seeds=(4,))[-1]
    net, tasks, count = last.now.network, last.now.tasks, last.memories.shape[1]
    size = Size(
        *type(method).memories(told, count, tasks),
        net.neurons, net.visible, net.classes, last.now.task.train.probe.shape[1], tasks,
    )  # fmt: skip
    said = type(method).kept(told, strength, size)
    if name == "freeze":
        assert math.isnan(said)  # it does not say
    else:
        assert said == pytest.approx(held(last.state, last.theta, net.visible))


@pytest.mark.parametrize("done", [1, 2])
def test_a_resumed_run_equals_the_uninterrupted_one(case: Case, done: int, run) -> None:
    """From the end of a task, through bytes and back; bit for bit, the state included."""
    method = built(case, case.strengths[:2])
    whole = run(method)
    kept = whole[done - 1]
    apart = {k: t.clone().contiguous() for k, t in tensors(kept.state).items()} if kept.state else {}
    found = safetensors.torch.load(safetensors.torch.save({**apart, "theta": kept.theta}))
    found = {k: t.to(kept.theta.device) if k == "theta" else t.to(apart[k].device) for k, t in found.items()}
    state = rebuilt(kept.state, found)
    assert same(state, kept.state)
    again = run(method, start=(done, found["theta"], state))
    assert len(again) == 3 - done
    for ours, its in zip(again, whole[done:], strict=True):
        assert torch.equal(ours.theta, its.theta)
        assert same(ours.state, its.state)
        assert method.report(ours.state) == method.report(its.state)


def test_a_state_is_tensors_and_a_report_plain(case: Case, run) -> None:
    import json

    method = built(case, case.strengths[:2])
    for moment in run(method):
        tensors(moment.state)
        json.dumps(method.report(moment.state))


def test_wrong_numbers_of_strengths_are_refused(case: Case, run) -> None:
    if case.strengths[0]:
        with pytest.raises(ValueError, match=r"3 (values|proportions) given for 2 replicas"):
            run(built(case, case.strengths))


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].strength_name])
@pytest.mark.parametrize("wrong", [-1.0, float("nan"), (0.1, -0.1)])
def test_strengths_that_are_refused(name: str, wrong: float | tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"(strength|proportion) must be (0 or more|between 0 and 1), not"):
        built(CASES[name], wrong)


SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def scores(make_stream, make_network, device, dtype) -> Callable[[Method], Tensor]:
    """(R,T,T) accuracies on two tasks of permuted digits."""

    def scores(method: Method) -> Tensor:
        replicas = Replicas(SEEDS)
        stream = make_stream(replicas, tasks=2, items=200)
        theta = replicas.memories(48, stream.neurons, device=device, dtype=dtype)
        optimiser = Optimiser(0.2, 0.99, epochs=60)
        moments = train(make_network(stream), stream, method, optimiser, replicas, theta)
        ends = [stream.evaluate(m.network, m.theta)["accuracy"] for m in moments if m.ends_task]
        return torch.stack(ends, 1)

    return scores


@pytest.fixture(scope="module")
def vanilla(scores) -> Tensor:
    return scores(Vanilla())


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("vanilla", "pseudorehearsal")])
def test_less_is_forgotten(name: str, scores, vanilla: Tensor) -> None:
    """On permuted digits, in the mean of three seeds; and the second task is still learned."""
    found = scores(built(CASES[name], CASES[name].good))
    assert measures.forgetting(found).mean() < measures.forgetting(vanilla).mean() - 0.08
    assert measures.own(found)[:, 1].mean() > 0.4
    if CASES[name].make not in ALL_AWAKE:  # whose first task has fewer memories
        torch.testing.assert_close(found[:, 0, 0], vanilla[:, 0, 0])


def test_less_is_forgotten_by_pseudorehearsal(device, dtype) -> None:
    """Where attractors are what was learned: states stored auto-associatively at a high vertex. (A small
    classifier's attractors say little of its task; the paper finds the same at low vertices.)"""

    def recalled(method: Method) -> Tensor:
        replicas = Replicas(SEEDS)
        stream = StateStream(replicas, tasks=2, items=4, size=40, flips=2, device=device, dtype=dtype)
        network = DenseMemory(40, 0, LeakyRectifiedPolynomial(20), autoassociative=True)
        heat = {"initial_temperature": 0.75, "final_temperature": 0.75}
        optimiser = Optimiser(0.3, 0.97, **heat, epochs=100, normalise="velocity")
        theta = replicas.memories(40, 40, device=device, dtype=dtype)
        *_, end = train(network, stream, method, optimiser, replicas, theta, 100)
        return stream.evaluate(end.network, end.theta)["recalled"].mean(0)

    found, vanilla = recalled(Pseudorehearsal(CASES["pseudorehearsal"].good)), recalled(Vanilla())
    assert found[0] > vanilla[0] + 0.25
    assert found[1] > 0.7


def test_methods_are_not_changed_but_replaced(case: Case) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        built(case, case.strengths[0]).further = 1  # type: ignore[attr-defined]
