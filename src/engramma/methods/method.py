"""What a method against forgetting is: eight small functions.

A method is a frozen dataclass of settings; what changes lives in its state, a NamedTuple of tensors
that the loop hands back to it. Nothing is changed in place. Axis 0 is replicas everywhere. What shapes a
state has after a task hangs on the tasks alone, not on what was learned: by them a checkpoint is known.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, get_args, get_type_hints

from torch import Tensor

from engramma.network import DenseMemory, Items
from engramma.replicas import Replicas


class Now(NamedTuple):
    """Where the loop stands when it calls a method."""

    network: DenseMemory  # at the present temperature: gradient, relax, per_item, ...
    task: Any  # the Task being learned: index, train, test
    epoch: int
    step: int  # within the epoch
    rng: Replicas  # rng.draw(make, "purpose", numbers...): one random stream a seed
    tasks: int = 1  # how many there will be


class Awake(NamedTuple):
    """Which memories learn a task, and what they begin with; all others sleep, and cost nothing."""

    state: Any  # the method's
    memories: slice | Tensor  # one for all replicas, or (R,K) the places of each replica's
    theta: Tensor  # (R,K,N)


NUMBER = 8  # bytes: memories are of double precision


class Size(NamedTuple):
    """The size of a run, on which it depends what a method holds and keeps."""

    memories: int  # all
    awake: int  # of them, those that learn at once
    neurons: int
    visible: int  # of them, those that are shown
    scored: int  # and those that are asked for; of an associative memory, all are both
    items: int  # that a task has to learn
    tasks: float
    pixel: int = 1  # bits of a visible neuron: one that is -1 or +1 has one

    @property
    def item(self) -> float:
        """Bytes of an item with its label, a bit a class."""
        return (self.visible * self.pixel + self.scored) / 8

    @property
    def array(self) -> int:
        """Bytes of an array of the size of all memories."""
        return NUMBER * self.memories * self.neurons


@dataclass(frozen=True)
class Method:
    """Does nothing against forgetting: vanilla learning, and the base of every other method."""

    strength_name: ClassVar[str | None] = None  # the setting that is searched over, one value a replica
    strength_kind: ClassVar[str] = "lambda"  # by its powers of ten; or a "proportion", evenly from 0 to 1
    # Between which values it is searched. None: a proportion over all, a lambda eight decades around 1.
    strength_span: ClassVar[tuple[float, float] | None] = None
    suits: ClassVar[dict[str, Any]] = {}  # settings of a run that suit it, where the run says nothing else

    def __post_init__(self) -> None:
        """A setting that is one of a few words has the type `Literal`: by hand, too, it takes no other."""
        for name, words in _words(type(self)).items():
            if (given := getattr(self, name)) not in words:
                raise ValueError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, not {given!r}")

    @property
    def watches(self) -> str | None:
        """Which moves `observe` is shown: "taken", what the weights did, or "meant", what they would have
        done without the clamp. None: it is not called, and what a step did need not be worked out."""
        return None if _same(type(self), "observe") else "taken"

    @classmethod
    def memories(cls, settings: dict[str, Any], memories: int, tasks: int) -> tuple[int, int]:
        """How many memories a run that asks for `memories` has in all, and how many of them learn at once."""
        del settings, tasks
        return memories, memories

    # What it costs, asked of the class before anything is built. A hook that is not its own costs nothing;
    # of one that is, the most is thought that it may well do: a method that needs less can say so, and one
    # that holds more than the method it is made of should.

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        """Of earlier tasks of `items` items each: (trained on in an epoch of `task`, looked at in a step)."""
        del settings, strength
        every = items * task
        return (0 if _same(cls, "rehearse") else every), (0 if _same(cls, "steer") else every)

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        """How many numbers a replica of it holds on to, or makes at once, beside what it trains on."""
        del settings, strength
        hooks = ("start", "steer", "observe", "consolidate")
        arrays = 0 if all(_same(cls, hook) for hook in hooks) else 6 + 4 * (size.tasks - 1)
        return arrays * size.memories * size.neurons

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        """Bytes that it has to keep after the last task, beside the network: of its state what a further task
        would need. A neuron of an item is a bit, a number of double precision eight bytes. NaN: not said."""
        del settings, strength, size
        return 0 if all(_same(cls, hook) for hook in ("start", "awaken", "consolidate")) else math.nan

    def start(self, theta: Tensor) -> Any:
        """State before the first task."""
        del theta
        return None

    def awaken(self, state: Any, now: Now, theta: Tensor) -> Awake:
        """Which memories are to learn the task that begins. All other hooks of the task see these alone."""
        del now
        return Awake(state, slice(None), theta)

    def rehearse(self, state: Any, now: Now) -> Items | None:
        """What is trained on in this epoch besides the task."""
        del state, now
        return None

    def steer(self, state: Any, now: Now, theta: Tensor, grad: Tensor) -> Tensor:
        """Which way to step, given the gradient of the batch."""
        del state, now, theta
        return grad

    def observe(self, state: Any, now: Now, grad: Tensor, step: Tensor, move: Tensor) -> Any:
        """Take note of a step: `grad` the batch's own, `step` the steered one, `move` theta's (`watches`)."""
        del now, grad, step, move
        return state

    def consolidate(self, state: Any, now: Now, theta: Tensor) -> Any:
        """Take stock after a task."""
        del now, theta
        return state

    def recall(self, state: Any, now: Now, theta: Tensor, learned: bool) -> DenseMemory:
        """The network that answers, given all memories (R,M,N): while a task is learned, or after it."""
        del state, theta, learned
        return now.network

    def report(self, state: Any) -> dict[str, Any]:
        """What the user may want to know of the state: plain numbers, and lists with one entry a replica."""
        del state
        return {}


@functools.cache
def _words(cls: type[Method]) -> dict[str, tuple[str, ...]]:
    """{setting: its words}. Other types are not looked at: they may name what type checkers alone import."""
    names = [f.name for f in fields(cls) if str(f.type).removeprefix("typing.").startswith("Literal[")]
    return {name: get_args(get_type_hints(cls)[name]) for name in names}


def _same(cls: type, hook: str) -> bool:
    """Whether a class leaves a hook as `Method` has it."""
    return getattr(cls, hook) is getattr(Method, hook)


@dataclass(frozen=True)
class Vanilla(Method):
    """No method: each task is learned as if it were the only one."""
