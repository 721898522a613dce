"""What a method against forgetting is: five small functions.

A method is a frozen dataclass of settings; what changes lives in its state, a NamedTuple of tensors
that the loop hands back to it. Nothing is changed in place. Axis 0 is replicas everywhere. What shapes a
state has after a task hangs on the tasks alone, not on what was learned: by them a checkpoint is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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


@dataclass(frozen=True)
class Method:
    """Does nothing against forgetting: vanilla learning, and the base of every other method."""

    strength_name: ClassVar[str | None] = None  # the setting that is searched over, one value a replica
    # "taken": `observe` is shown what the weights did; "meant": what they would have done without the clamp.
    moves = "taken"  # not annotated, so no setting: SI makes one of it
    later: ClassVar[dict[str, Any]] = {}  # settings younger than records: described where they differ

    def start(self, theta: Tensor) -> Any:
        """State before the first task."""
        del theta
        return None

    def rehearse(self, state: Any, now: Now) -> Items | None:
        """What is trained on in this epoch besides the task."""
        del state, now
        return None

    def steer(self, state: Any, now: Now, theta: Tensor, grad: Tensor) -> Tensor:
        """Which way to step, given the gradient of the batch."""
        del state, now, theta
        return grad

    def observe(self, state: Any, now: Now, grad: Tensor, step: Tensor, move: Tensor) -> Any:
        """Take note of a step: `grad` the batch's own, `step` the steered one, `move` theta's (`moves`)."""
        del now, grad, step, move
        return state

    def consolidate(self, state: Any, now: Now, theta: Tensor) -> Any:
        """Take stock after a task."""
        del now, theta
        return state

    def report(self, state: Any) -> dict[str, Any]:
        """What the user may want to know of the state: plain numbers, and lists with one entry a replica."""
        del state
        return {}


@dataclass(frozen=True)
class Vanilla(Method):
    """No method: each task is learned as if it were the only one."""
