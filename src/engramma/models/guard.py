"""The penalty and projection methods on any nn.Module, in anybody's training loop.

    guard = Guard(model, loss, "ewc", strength=100.0)
    for task in tasks:
        for x, y in batches(task):
            optimiser.zero_grad()
            loss(model(x), y).backward()
            guard.steer()        # turns the gradients
            optimiser.step()
            guard.observe()      # takes note of the step
        guard.consolidate(x_of_the_task, y_of_the_task)

The methods are those of `engramma.methods`, unchanged: the module's P parameters are laid out as one
theta (1,1,P), and `Flat` answers what a method asks of a network.

A penalty is a spring, and a step of gradient descent that is too long for it throws the parameters further
off each time: at a learning rate above 2 over its stiffness (`Guard.limit`) they would soon be NaN. The guard
sees at which rate gradient descent steps, with momentum or without, and refuses to go on while the parameters
are still sound. Of other optimisers it knows no rate: it stops them when the penalty is no longer a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from engramma.checks import of_strength, unknown
from engramma.methods import EWC, METHODS, Method, Moments, Now, Penalty, Projection, Vanilla
from engramma.methods.state import flatten, known, unflatten
from engramma.models.kronecker import KroneckerEWC, linear_layers
from engramma.network import DenseMemory, Items
from engramma.replicas import Replicas
from engramma.streams import Task

Loss = Callable[[Tensor, Tensor], Tensor]
Measure = Callable[[Tensor, Tensor, Tensor], Tensor]  # of theta (P,), inputs and targets
ALLOWED = (
    *(
        name
        for name, kind in METHODS.items()
        if issubclass(kind, Penalty | Projection | Vanilla) and not issubclass(kind, Moments)
    ),
    "ewc_kronecker",
)


class Guard:
    """Keeps `model` from forgetting: call `steer` after backward, `observe` after the optimiser's step,
    `consolidate` after a task.

    `loss(outputs (B,...), targets (B,...))` is the mean loss of a batch. `method` is a name (l2, ewc,
    ewc_kronecker, mas, si, gem, agem or vanilla) or a method of `engramma.methods` with settings of its own.
    `strength` is a penalty's lambda, which must be given, or the proportion of items that a projection keeps.
    `chunk` items are differentiated at once where a method wants every item's gradient. `limit` is the
    largest learning rate of plain gradient descent that the penalty bears.

    Examples
    --------
    >>> import torch
    >>> from engramma.models.guard import Guard
    >>> model = torch.nn.Linear(2, 1)
    >>> guard = Guard(model, torch.nn.functional.mse_loss, "l2", strength=1.0)
    >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
    >>> guard.consolidate(x, y)
    >>> with torch.no_grad():
    ...     _ = model.bias.add_(3.0)
    >>> model.zero_grad()
    >>> guard.steer()
    >>> model.bias.grad
    tensor([6.])
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        method: str | Method = "ewc",
        strength: float | None = None,
        seed: int = 0,
        chunk: int = 256,
    ) -> None:
        self.flat = Flat(model, loss, chunk)
        self.method = _method(method, strength)
        self.replicas = Replicas((seed,))
        self.tasks, self.step = 0, 0
        self.state: Any = self.method.start(self.flat.theta())
        self.limit = math.inf
        self._last: tuple[Tensor, Tensor, Tensor] | None = None
        self._move: Tensor | None = None  # the optimiser's last

    def steer(self) -> None:
        """Turn the parameters' gradients into the way to step."""
        theta, own = self.flat.theta(), self.flat.grad()
        step = self.method.steer(self.state, self._now(None), theta, own)
        if self.limit < math.inf and not bool((step.isfinite() | (theta.isfinite() & ~own.isfinite())).all()):
            raise ValueError(
                f"strength {self._lambda:g} is too much for this optimiser's steps, which threw parameters "
                f"ever further off; plain gradient descent bears a learning rate of {self.limit:.2g}"
            )
        self.flat.set_grad(step)
        self._last = (theta, own, step)

    def observe(self) -> None:
        """Take note of what the optimiser did since `steer`."""
        if self._last is None:
            raise RuntimeError("observe() takes note of a step: call steer() before the optimiser's step")
        theta, own, step = self._last
        before, self._move = self._move, self.flat.theta() - theta
        self.state = self.method.observe(self.state, self._now(None), own, step, self._move)
        self._last, self.step = None, self.step + 1
        if self.limit == math.inf or (found := pace(step, self._move, before)) is None:
            return
        rate, momentum = found
        # What no step moves stays at rest, however stiff: the output layer of another task.
        most = self._limit(torch.where(step == 0, 0.0, self.state.weight)) * (1 + momentum)
        if rate > most:
            raise ValueError(
                f"strength {self._lambda:g} times a learning rate of {rate:.2g} is too much: every step "
                f"would throw parameters further off; lower the rate below {most:.2g}, or the strength below "
                f"{self._lambda * most / rate:.2g}"
            )

    def consolidate(self, x: Tensor, y: Tensor) -> None:
        """Take stock after a task, of its inputs x (B,...) and targets y (B,...), in random order."""
        if len(x) != len(y) or len(x) == 0:
            raise ValueError(f"x and y must have equally many items, at least one, not {len(x)} and {len(y)}")
        theta = self.flat.theta()
        weight = torch.ones(1, len(x), dtype=theta.dtype, device=theta.device)
        ids = (self.tasks << 32) + torch.arange(len(x), device=theta.device)[None]
        items = Items(x[None], y[None], weight, ids)
        state = self.method.consolidate(self.state, self._now(items), theta)
        self.limit = self._limit(getattr(state, "weight", None))
        self.state, self.tasks, self.step, self._last = state, self.tasks + 1, 0, None

    def report(self) -> dict[str, Any]:
        """What the method has to say of its state."""
        return self.method.report(self.state)

    def state_dict(self) -> dict[str, Any]:
        """All that the guard knows between two steps: to be saved with the model's and the optimiser's."""
        tensors: dict[str, Tensor] = {}
        told = {"state": self.state, "move": self._move}
        tree = flatten(told, "guard", tensors)
        counts = {"seed": self.replicas.seeds[0], "tasks": self.tasks, "step": self.step}
        return {"method": self._described, **counts, "tree": tree, "tensors": tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, with the same model and method; the strength may be another."""
        if state["method"] != self._described:
            raise ValueError(f"the state must be of {self._described}, not of {state['method']}")
        theta = self.flat.theta()
        tensors = {k: t.to(theta.device) for k, t in state["tensors"].items()}
        told = unflatten(state["tree"], tensors, known(self.method))
        sizes = {len(part.flatten()) for part in _parameters(told["state"], told["move"])}
        if sizes - {theta.numel()}:
            raise ValueError(
                f"the state must be of a model with {theta.numel()} parameters, not {min(sizes)}"
            )
        self.limit = self._limit(getattr(told["state"], "weight", None))
        self.state, self._move, self._last = told["state"], told["move"], None
        self.replicas, self.tasks, self.step = Replicas((state["seed"],)), state["tasks"], state["step"]

    @property
    def _described(self) -> str:
        """The method and its settings, whatever its strength."""
        key = self.method.strength_name
        return repr(replace(self.method, **({key: 0.0} if key else {})))

    @property
    def _lambda(self) -> float:
        return float(torch.as_tensor(cast(Penalty, self.method).strength).max())

    def _limit(self, weight: Tensor | None) -> float:
        """2 over the stiffness of the penalty's stiffest parameter; infinite where nothing is held."""
        if weight is None or not isinstance(self.method, Penalty):
            return math.inf
        most = float(weight.max())
        if not math.isfinite(most):
            raise ValueError("importances must be finite: the loss or the outputs of an item are not")
        stiffness = 2 * self.method.half * self._lambda * most
        return 2 / stiffness if stiffness > 0 else math.inf

    def _now(self, items: Items | None) -> Now:
        # A penalty asks for the task's number while it steers, and for its items when it takes stock.
        task = Task(self.tasks, cast(Items, items), cast(Items, items))
        return Now(cast(DenseMemory, self.flat), task, 0, self.step, self.replicas)


class Flat:
    """A module as methods see a network: all trainable parameters in one theta (1,1,P)."""

    autoassociative = False
    beta = 1.0

    def __init__(self, model: nn.Module, loss: Loss, chunk: int) -> None:
        self.model, self.loss_of, self.chunk = model, loss, chunk
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.named:
            raise ValueError("model must have parameters that require a gradient")
        self.layers = linear_layers(model, self.named)

    def theta(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.named.values()])[None, None]

    def grad(self) -> Tensor:
        """(1,1,P); a parameter without a gradient has a gradient of 0."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.named.values()]
        return torch.cat([g.detach().flatten() for g in parts])[None, None]

    def set_grad(self, step: Tensor) -> None:
        for (_, p), part in zip(self.named.items(), self._split(step[0, 0]).values(), strict=True):
            p.grad = part.to(p.dtype).clone()

    def gradient(self, theta: Tensor, items: Items) -> Tensor:
        """(R,1,P): the gradient of the mean loss over each row of items."""
        rows = range(items.probe.shape[0])
        with self.still():
            each = [self._pull(self._loss, theta[r, 0], items.probe[r], items.target[r]) for r in rows]
        return torch.stack(each)[:, None]

    def per_item(self, theta: Tensor, items: Items, pull: str, power: int) -> Tensor:
        """(1,1,P): mean over items of |gradient of one item|^power; `pull` as in `DenseMemory.per_item`,
        of the module's outputs as they are."""
        measures: dict[str, Measure] = {
            "loss": self._loss,
            "predicted": lambda theta, x, y: self._loss(theta, x, self.call(theta, x).argmax(-1)),
            "output": lambda theta, x, y: self.call(theta, x).pow(2).sum(),
            "norm": lambda theta, x, y: self.call(theta, x).norm(),
        }
        measure = measures[pull]
        x, y = items.probe[0], items.target[0]
        total = torch.zeros_like(theta[0, 0])
        with self.still():
            for start in range(0, len(x), self.chunk):
                part = slice(start, start + self.chunk)
                total += self._each(measure, theta[0, 0], x[part], y[part]).abs().pow(power).sum(0)
        return (total / len(x))[None, None]

    def scores(self, theta: Tensor, probe: Tensor) -> Tensor:
        """(1,B,K): the outputs."""
        with self.still(), torch.no_grad():
            return self.call(theta[0, 0], probe[0])[None]

    def _each(self, measure: Measure, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(B,P): the gradient of every item alone."""
        one = grad(lambda theta, x, y: measure(theta, x[None], y[None]))
        try:
            return vmap(one, in_dims=(None, 0, 0))(theta, x, y)
        except RuntimeError:  # torch.func cannot follow every module (DenseMemoryLayer's kernels, LSTMs)
            return torch.stack(
                [self._pull(measure, theta, x[b : b + 1], y[b : b + 1]) for b in range(len(x))]
            )

    def _pull(self, measure: Measure, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(P,): the gradient of `measure` over a batch."""
        theta = theta.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(measure(theta, x, y), theta)[0]

    def _loss(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.loss_of(self.call(theta, x), y)

    def call(self, theta: Tensor, x: Tensor) -> Tensor:
        return functional_call(self.model, self._split(theta), (x,))

    def _split(self, theta: Tensor) -> dict[str, Tensor]:
        parts = theta.split([p.numel() for p in self.named.values()])
        return {name: part.view(p.shape) for (name, p), part in zip(self.named.items(), parts, strict=True)}

    @contextmanager
    def still(self) -> Iterator[None]:
        """Without dropout, and with batch normalisation at rest: one item alone has no batch."""
        training = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            yield
        finally:
            for module, was in training.items():
                module.training = was


def pace(step: Tensor, move: Tensor, before: Tensor | None) -> tuple[float, float] | None:
    """(rate, momentum) of gradient descent: move = momentum * before - rate * step. None where an optimiser
    moves by another rule (Adam, whose steps have a length of their own), or it cannot be told."""
    if step.numel() <= 4:  # any rule would fit
        return None
    g, m = -step.flatten().float(), move.flatten().float()
    b = torch.zeros_like(m) if before is None else before.flatten().float()
    dots = torch.stack([g @ g, g @ b, b @ b, g @ m, b @ m, m @ m])
    gg, gb, bb, gm, bm, mm = (float(x) for x in dots.tolist())
    apart = gg * bb - gb * gb
    if not gg > 0 or apart < 1e-3 * gg * bb:  # along one line rate and momentum cannot be told apart
        return None
    rate, momentum, fresh = gm / gg, 0.0, gg
    if bb > 0 and bm * gg > gm * gb:
        rate, momentum, fresh = (gm * bb - bm * gb) / apart, (bm * gg - gm * gb) / apart, apart / bb
    off = mm - 2 * (rate * gm + momentum * bm) + rate**2 * gg + 2 * rate * momentum * gb + momentum**2 * bb
    # What is left must be little beside what the step alone explains.
    return (rate, momentum) if rate > 0 and momentum < 1 and off < 0.01 * rate**2 * fresh else None


def _parameters(state: Any, *rest: Tensor | None) -> list[Tensor]:
    """What there is of a state that has an entry for every parameter."""
    return [part for part in (getattr(state, "weight", None), *rest) if part is not None]


def _method(method: str | Method, strength: float | None) -> Method:
    if isinstance(method, str):
        if method not in ALLOWED:
            raise unknown("method", method, ALLOWED)
        return of_strength(method, strength, KroneckerEWC if method == "ewc_kronecker" else None)
    if strength is not None:
        raise ValueError("strength must be None where method is not a name: set it in the method")
    if not isinstance(method, Penalty | Projection | Vanilla):
        raise ValueError(f"method must be a penalty or a projection, not {type(method).__name__}")
    if isinstance(method, Moments):
        raise ValueError("method must be without second moments with a guard, which knows no neurons")
    if method.watches == "meant":
        raise ValueError("moves must be taken with a guard, which sees what an optimiser did alone")
    if isinstance(method, EWC) and (method.fisher, method.labels) == ("batch", "predicted"):
        raise ValueError("labels must be true where fisher is batch: a module's targets may be of any kind")
    return method
