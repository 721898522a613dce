"""Methods against plain transcriptions: an item and a replica at a time, gradients by autograd.

`Plain` is the whole of training as the paper prints it, for one network, without any of the package's code:
clamped states, the loss, the step, and nothing against forgetting. A class made of it adds what its method's
paper adds. The memories that both end with, after three tasks of three steps, are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import (
    DER,
    EWC,
    L2,
    MAS,
    SI,
    EWCMoments,
    LwF,
    MASMoments,
    Method,
    Rehearsal,
    SIMoments,
    Vanilla,
    XdG,
)
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas, generator
from engramma.train import train

N, LEAK, BETA = 2, 0.01, 5.0
RATE, DECAY, MOMENTUM, EPOCHS, TASKS, MEMORIES = 0.3, 0.9, 0.6, 3, 3, 6
SEEDS = (4, 9)

Batch = list[tuple[Tensor, Tensor, float]]  # (state, what its class neurons should be, how much it counts)


class Plain:
    """One network that learns its tasks in turn: items as (state, target) lists, memories (M,N)."""

    def __init__(self, theta: Tensor, classes: int, seed: int) -> None:
        self.theta, self.classes, self.seed = theta.clone(), classes, seed
        self.visible = theta.shape[1] - classes

    def answer(self, theta: Tensor, x: Tensor) -> Tensor:
        """tanh of what each class neuron scores: the energy with it off, less the energy with it on."""

        def energy(state: Tensor) -> Tensor:
            h = BETA / len(state) * theta @ state
            return -torch.where(h > 0, h**N, LEAK * h).sum()

        scores = []
        for k in range(self.visible, len(x)):
            on, off = x.clone(), x.clone()
            on[k], off[k] = 1.0, -1.0
            scores.append(energy(off) - energy(on))
        return torch.tanh(torch.stack(scores))

    def cost(self, theta: Tensor, x: Tensor, t: Tensor) -> Tensor:
        return ((t - self.answer(theta, x)) ** 2).mean()

    def learn(self, task: int, batch: Batch) -> None:
        self.task, self.batch = task, batch
        self.begin()
        theta, velocity = self.awake(self.theta), torch.zeros_like(self.awake(self.theta))
        for epoch in range(1, EPOCHS + 1):
            here = theta.clone().requires_grad_()
            items = batch + self.beside()
            loss = sum(w * self.cost(here, x, t) for x, t, w in items) / sum(w for *_, w in items)
            (own,) = torch.autograd.grad(loss, here, retain_graph=True)  # type: ignore[arg-type]
            (grad,) = torch.autograd.grad(loss + self.penalty(here), here)  # type: ignore[arg-type]
            moved = theta.clone()
            for m in range(len(theta)):
                for part in (slice(0, self.visible), slice(self.visible, None)):
                    largest = grad[m, part].abs().max()
                    scaled = grad[m, part] / largest if largest else 0 * grad[m, part]
                    velocity[m, part] = MOMENTUM * velocity[m, part] + (1 - MOMENTUM) * scaled
                    moved[m, part] = theta[m, part] - RATE * DECAY**epoch * velocity[m, part]
            moved[:, : self.visible] = moved[:, : self.visible].clamp(-1, 1)
            self.saw(own, moved - theta)
            theta = moved
        self.put(theta)
        self.end()

    def awake(self, theta: Tensor) -> Tensor:
        return theta

    def put(self, theta: Tensor) -> None:
        self.theta = theta

    def begin(self) -> None:
        """A task begins."""

    def beside(self) -> Batch:
        return []

    def penalty(self, theta: Tensor) -> Tensor | float:
        return 0.0 * theta.sum()

    def saw(self, grad: Tensor, move: Tensor) -> None:
        """A step was made."""

    def end(self) -> None:
        """The task is learned."""

    def each(self, measure: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Tensor]:
        """The gradient of every item of the task."""
        found = []
        for x, t, _ in self.batch:
            theta = self.theta.clone().requires_grad_()
            found.append(torch.autograd.grad(measure(theta, x, t), theta)[0])
        return found


class PlainPenalty(Plain):
    """strength half sum over terms, sum over weights omega (theta - theta*)^2; `moments`: over the visible
    weights the mean over the term's items of F_m ((theta_m - theta*_m) . x)^2 instead."""

    def __init__(self, *of: object, strength: float, half: float = 1.0, moments: bool = False) -> None:
        super().__init__(*of)  # type: ignore[arg-type]
        self.strength, self.half, self.moments = strength, half, moments
        self.terms: list[tuple[Tensor, Tensor, list[Tensor]]] = []  # omega, theta*, states of the items

    def penalty(self, theta: Tensor) -> Tensor:
        total = 0.0 * theta.sum()
        for omega, at, states in self.terms:
            away = theta - at
            if not self.moments:
                total = total + (omega * away**2).sum()
                continue
            total = total + (omega[:, self.visible :] * away[:, self.visible :] ** 2).sum()
            f = omega[:, : self.visible].mean(1)  # of signs A has a diagonal of 1
            for x in states:
                total = total + (f * (away[:, : self.visible] @ x[: self.visible]) ** 2).sum() / len(states)
        return self.strength * self.half * total

    def end(self) -> None:
        self.terms.append((self.importance(), self.theta.clone(), [x for x, *_ in self.batch]))

    def importance(self) -> Tensor:
        return torch.ones_like(self.theta)


class PlainEWC(PlainPenalty):
    def importance(self) -> Tensor:
        return sum(g**2 for g in self.each(self.cost)) / len(self.batch)  # type: ignore[return-value]


class Online(PlainPenalty):
    """One term, at the latest theta*, with importances that fade; with moments, of all items alike."""

    gamma = 1.0

    def end(self) -> None:
        super().end()
        if len(self.terms) == 2:
            (before, _, seen), (omega, at, states) = self.terms
            self.terms = [(self.gamma * before + omega, at, seen + states)]


class PlainOnlineEWC(Online, PlainEWC):
    gamma = 0.5


class PlainMAS(Online):
    def importance(self) -> Tensor:
        found = self.each(lambda theta, x, _: (self.answer(theta, x) ** 2).sum())
        return sum(g**2 for g in found) / len(self.batch)  # type: ignore[return-value]


class PlainSI(Online):
    damping = 0.1

    def begin(self) -> None:
        self.path, self.origin = torch.zeros_like(self.theta), self.theta.clone()

    def saw(self, grad: Tensor, move: Tensor) -> None:
        self.path = self.path - grad * move

    def importance(self) -> Tensor:
        return (self.path / ((self.theta - self.origin) ** 2 + self.damping)).clamp(min=0)


class PlainReplay(Plain):
    """alpha (answer when it was learned - answer)^2 + beta (label - answer)^2 of a quarter of the items."""

    def __init__(self, *of: object, alpha: float, beta: float) -> None:
        super().__init__(*of)  # type: ignore[arg-type]
        self.alpha, self.beta, self.buffer = alpha, beta, []

    def beside(self) -> Batch:
        return self.buffer

    def end(self) -> None:
        for x, t, _ in self.batch[: round(len(self.batch) / 4)]:
            then = self.answer(self.theta, x)
            self.buffer += [(x, s, w) for s, w in ((then, self.alpha), (t, self.beta)) if w]


class PlainDER(PlainReplay):
    """The two terms of an item of the buffer count together as what they weigh."""


class PlainLwF(Plain):
    """strength (answer before the task - answer)^2 of its items, each as of one of the earlier tasks."""

    strength = 2.0

    def begin(self) -> None:
        self.old: Batch = []
        for number, (x, _, _) in enumerate(self.batch if self.task else []):
            shown = x.clone()
            shown[self.visible - TASKS : self.visible] = -1.0
            shown[self.visible - TASKS + number % self.task] = 1.0
            self.old.append((shown, self.answer(self.theta, shown), self.strength))

    def beside(self) -> Batch:
        return self.old


class PlainXdG(PlainEWC):
    """A share of the memories, drawn for each task, learn it; EWC holds what earlier tasks left in them."""

    share = 0.6

    def places(self, task: int) -> Tensor:
        drawn = generator(self.seed, "gates", task).permutation(MEMORIES)[: round(self.share * MEMORIES)]
        return torch.as_tensor(drawn).sort().values

    def awake(self, theta: Tensor) -> Tensor:
        return theta[self.places(self.task)]

    def put(self, theta: Tensor) -> None:
        self.theta[self.places(self.task)] = theta

    def penalty(self, theta: Tensor) -> Tensor:
        whole = self.theta.clone()
        whole[self.places(self.task)] = theta
        return super().penalty(whole)

    def importance(self) -> Tensor:
        """Of the memories awake: the others made nothing of the task's items."""
        whole, mine = self.theta, self.places(self.task)
        self.theta = whole[mine]
        found, self.theta = super().importance(), whole
        return torch.zeros_like(whole).index_copy(0, mine, found)


CASES: dict[str, tuple[Callable[..., Method], Callable[..., Plain], dict[str, float]]] = {
    "vanilla": (Vanilla, Plain, {}),
    "l2": (lambda: L2(0.02), PlainPenalty, {"strength": 0.02}),
    "ewc": (lambda: EWC(300.0), PlainEWC, {"strength": 300.0, "half": 0.5}),
    "online ewc": (
        lambda: EWC(300.0, merge="online", decay=0.5),
        PlainOnlineEWC,
        {"strength": 300.0, "half": 0.5},
    ),
    "mas": (lambda: MAS(2.0), PlainMAS, {"strength": 2.0}),
    "si": (lambda: SI(3.0, damping=0.1), PlainSI, {"strength": 3.0}),
    "ewc with moments": (
        lambda: EWCMoments(100.0),
        PlainEWC,
        {"strength": 100.0, "half": 0.5, "moments": True},
    ),
    "online ewc with moments": (
        lambda: EWCMoments(100.0, merge="online", decay=1.0),
        type("PlainOnline", (Online, PlainEWC), {}),
        {"strength": 100.0, "half": 0.5, "moments": True},
    ),
    "mas with moments": (lambda: MASMoments(1.0), PlainMAS, {"strength": 1.0, "moments": True}),
    "si with moments": (lambda: SIMoments(3.0, damping=0.1), PlainSI, {"strength": 3.0, "moments": True}),
    "rehearsal": (lambda: Rehearsal(0.25), PlainReplay, {"alpha": 0.0, "beta": 1.0}),
    "der": (lambda: DER(0.25, alpha=0.5), PlainDER, {"alpha": 0.5, "beta": 0.0}),
    "der++": (lambda: DER(0.25, alpha=0.5, beta=0.7), PlainDER, {"alpha": 0.5, "beta": 0.7}),
    "lwf": (lambda: LwF(2.0), PlainLwF, {}),
    "xdg": (lambda: XdG(300.0, share=0.6), PlainXdG, {"strength": 300.0, "half": 0.5}),
}


@pytest.fixture(scope="module")
def ends(make_stream, make_network, device) -> Callable[[Method], Tensor]:
    """(tasks, R, M, N): the memories after every task."""

    def ends(method: Method) -> Tensor:
        replicas = Replicas(SEEDS)
        stream = make_stream(replicas, tasks=TASKS, items=5, dtype=torch.float64)
        network = make_network(stream, LeakyRectifiedPolynomial(N, LEAK))
        theta = replicas.memories(MEMORIES, stream.neurons, 1.0, device=device, dtype=torch.float64)
        warm: dict[str, Any] = {"initial_temperature": 1 / BETA, "final_temperature": 1 / BETA}
        optimiser = Optimiser(RATE, DECAY, MOMENTUM, **warm, epochs=EPOCHS, normalise="mean")
        moments = train(network, stream, method, optimiser, replicas, theta)
        return torch.stack([m.theta for m in moments if m.ends_task])

    return ends


@pytest.fixture(scope="module")
def vanilla(ends) -> Tensor:
    return ends(Vanilla())


@pytest.mark.parametrize("name", CASES)
def test_the_memories_are_those_of_a_plain_transcription(name: str, ends, vanilla, make_stream) -> None:
    make, kind, settings = CASES[name]
    found = ends(make())
    replicas = Replicas(SEEDS)
    stream = make_stream(replicas, tasks=TASKS, items=5, dtype=torch.float64)
    begin = replicas.memories(MEMORIES, stream.neurons, 1.0, dtype=torch.float64)
    for r, seed in enumerate(SEEDS):
        plain = kind(begin[r], stream.classes, seed, **settings)
        for task in range(TASKS):
            train_ = stream[task].train
            plain.learn(
                task,
                [(x.cpu(), t.cpu(), 1.0) for x, t in zip(train_.probe[r], train_.target[r], strict=True)],
            )
            torch.testing.assert_close(found[task, r].cpu(), plain.theta, rtol=0, atol=1e-9)
    if name != "vanilla":  # what the method adds is more than rounding
        assert (found[-1] - vanilla[-1]).abs().max() > 1e-3
