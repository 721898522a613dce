"""The Dense Associative Memory as what it is named after: patterns are stored, and recalled from a part.

    memory = AssociativeMemory(vertex=3)                # an energy: x^3, exponential, log-sum-exp, ...
    memory.store(patterns)                              # (K,N) of -1 and +1, tensors or numpy arrays
    memory.recall(probe).state                          # like the probe, (N,) or (B,N)

Binary states are -1 and +1, and 0 where a neuron is not known. Their energy is -sum over patterns of
f(overlap / (N T)), with an interaction f, and a neuron is updated to the sign of its score: of the energy
that it saves at +1 against -1. With a score of exactly 0 it stays as it is.
Continuous states are any numbers; their energies, and updates, are those of `engramma.models.energies`.
"""

from __future__ import annotations

from functools import partial
from math import log, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engramma.checks import interaction_class
from engramma.interactions import INTERACTIONS, Interaction
from engramma.kernels import kernel_for
from engramma.methods import Vanilla
from engramma.models.energies import ENERGIES, Energy
from engramma.models.kinds import Binary, Continuous, States
from engramma.models.local import Competition, competed
from engramma.models.patterns import Patterns, Plain, held
from engramma.models.recall import ORDERS, Dynamics, Recalled, joined, like, masked, settle
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import StateStream
from engramma.train import train


def capacity(neurons: int, vertex: int) -> float:
    """Random patterns of N neurons that are stored without errors: N^(n-1) / (2 (2n-3)!! ln N)
    (Krotov and Hopfield 2016).

    Examples
    --------
    >>> round(capacity(100, 2), 1), round(capacity(100, 3), 1)
    (10.9, 361.9)
    """
    if neurons < 2 or vertex < 2 or vertex != int(vertex):
        raise ValueError("capacity needs at least 2 neurons and a whole vertex of at least 2")
    odd = prod(range(2 * int(vertex) - 3, 0, -2))
    return neurons ** (vertex - 1) / (2 * odd * log(neurons))


class AssociativeMemory:
    """Patterns as they are (`store`), each alone or with another that it recalls; or memories (M,N) found
    from them (`learn`).

    Scores are compared as closely as the dtype can; those of the exponential are told as shares of the
    nearest pattern's, and its energy as -log sum f, so that nothing overflows.

    Parameters
    ----------
    vertex
        n of the interaction.
    interaction
        A name in `INTERACTIONS` or an interaction of its own: the energy of binary states.
    temperature
        T; continuous energies have beta = 1/T.
    device
        "cpu" or "cuda".
    dtype
        Of what is computed.
    kernel
        "auto", or one by name: "reference", "numba" or "triton".
    energy
        Instead of an interaction: a name in `ENERGIES` or an energy, of continuous states. Names of
        interactions will do, too.

    Examples
    --------
    >>> import numpy as np
    >>> from engramma.models.associative import AssociativeMemory
    >>> patterns = np.random.default_rng(0).choice([-1, 1], (5, 60))
    >>> memory = AssociativeMemory(vertex=3)
    >>> memory.store(patterns)
    >>> probe = patterns[0].copy()
    >>> probe[:6] *= -1
    >>> bool((memory.recall(probe).state.numpy() == patterns[0]).all())
    True
    """

    block_bytes = 2**30  # what recall takes beside the patterns; more states than fit go in portions

    def __init__(
        self,
        vertex: float = 2,
        interaction: str | Interaction = "polynomial",
        temperature: float = 1.0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
        kernel: str = "auto",
        energy: str | Energy | Interaction | None = None,
    ) -> None:
        if not 0 < temperature < float("inf"):
            raise ValueError(f"temperature must be above 0, not {temperature}")
        chosen = interaction if energy is None else energy
        if isinstance(chosen, str) and chosen in ENERGIES:
            chosen = ENERGIES[chosen](1 / temperature)
        elif isinstance(chosen, str):
            chosen = _interaction(chosen, "interaction" if energy is None else "energy")(vertex)
        if not isinstance(chosen, Interaction | Energy):
            raise ValueError(f"energy must be a name, an Interaction or an Energy, not {chosen!r}")
        binary = isinstance(chosen, Interaction)
        self.interaction = chosen if binary else None
        self.kind: States = Binary(chosen, temperature) if binary else Continuous(chosen)
        self.temperature = temperature
        self.device, self.dtype, self.kernel = torch.device(device), dtype, kernel
        kernel_for(device, kernel)  # refused now where it cannot be
        self.patterns: Patterns | None = None
        self.recalls: Patterns | None = None  # what each pattern recalls, where that is another

    @property
    def memories(self) -> Tensor | None:
        """(M,N): what is stored or was learned, as numbers."""
        return None if self.patterns is None else self.patterns.rows(slice(None))

    def store(self, patterns: Tensor | np.ndarray, recalls: Tensor | np.ndarray | None = None) -> None:
        """Every pattern becomes a memory, beside those there are. `recalls` (K,L), as many: what each of them
        is to recall, where that is not itself. A melody is stored by `store(notes[:-1], notes[1:])`."""
        fresh = self.kind.read(patterns, "patterns", _neurons(self.patterns))
        if self.patterns is not None and (recalls is None) != (self.recalls is None):
            raise ValueError("recalls must be given for all patterns of a memory, or for none")
        if recalls is not None:
            other = self.kind.read(recalls, "recalls", _neurons(self.recalls))
            if len(other) != len(fresh):
                raise ValueError(f"recalls must be {len(fresh)}, one for each pattern, not {len(other)}")
            self.recalls = self._added(self.recalls, other)
        self.patterns = self._added(self.patterns, fresh)

    def learn(
        self,
        patterns: Tensor | np.ndarray,
        memories: int = 64,
        epochs: int = 200,
        learning_rate: float = 0.05,
        seed: int = 0,
        rule: str = "descent",
        **settings: Any,
    ) -> None:
        """Memories fewer than the patterns, found from them.

        "descent": Algorithm 1 over all neurons of binary states, gradient descent on how far one update moves
        the patterns; `settings` are the optimiser's (`engramma.optimiser`). "local": Krotov and Hopfield's
        rule; `settings` are its `rank`, `push`, `norm` and `batch` (`engramma.models.local`).
        The first call draws `memories` small random ones; later calls go on from what is there, as a
        network that learns task after task does.
        """
        if rule not in ("descent", "local"):
            raise ValueError(f"rule must be descent or local, not {rule!r}")
        if self.recalls is not None:
            raise ValueError("a memory whose patterns recall others stores them, it does not learn them")
        if epochs < 1 or memories < 1:
            raise ValueError("epochs and memories must be at least 1")
        states, replicas = self.kind.read(patterns, "patterns", _neurons(self.patterns)), Replicas((seed,))
        theta = self.memories
        if theta is None:
            theta = replicas.memories(memories, states.shape[1], device=self.device, dtype=self.dtype)[0]
        if rule == "local":
            items = states.to(self.device, self.dtype)
            theta = competed(items, theta, epochs, learning_rate, seed, Competition(**settings))
        else:
            settings = {"learning_rate": learning_rate, "epochs": epochs, **settings}
            theta = self._descended(states, theta, replicas, settings)
        self.patterns = Plain(theta)

    def recall(
        self,
        probe: Tensor | np.ndarray,
        steps: int = 50,
        order: str = "synchronous",
        known: Tensor | np.ndarray | None = None,
        rate: float = 1.0,
        trace: bool = False,
    ) -> Recalled:
        """Update all neurons until nothing changes: all at once, or (asynchronous) one after the other, which
        never raises the energy; that of continuous states no update raises. `state` is shaped like the probe.

        `known` (N,) or (B,N): neurons that are held as they are. `rate`, of continuous states: how far they
        go towards their update, as they would along the flow dx/dt = X' p - x. `trace`: the energy before and
        after every step. Where patterns recall others the answer is these, after one update.
        """
        patterns, state = self._ask(probe, erased=True)
        if order not in ORDERS:
            raise ValueError(f"order must be synchronous or asynchronous, not {order!r}")
        if not 0 < rate <= 1 or (rate != 1 and self.interaction is not None):
            raise ValueError(f"rate must be above 0 and at most 1, and 1 for binary states, not {rate}")
        if self.recalls is not None:
            if known is not None or trace:
                raise ValueError("known and trace must be left out where patterns recall others")
            answer = [self.kind.answer(patterns, self.recalls, some) for some in self._portions(state)]
            once = torch.ones(len(state), dtype=torch.long, device=self.device)
            return Recalled(torch.cat(answer), once, once.bool()).shaped(probe)
        move = self.kind.together if order == "synchronous" else self.kind.in_turn
        dynamics = Dynamics(
            see=partial(self.kind.see, patterns),
            move=lambda seen, state, held: move(patterns, seen, state, held, rate),
            level=partial(self.kind.level, patterns),
            tolerance=self.kind.tolerance(patterns),
        )
        portions = zip(self._portions(state), self._portions(masked(known, state)), strict=True)
        return joined([settle(*some, dynamics, steps, trace) for some in portions]).shaped(probe)

    def replay(self, probe: Tensor | np.ndarray, steps: int) -> Tensor:
        """(steps+1,N) or (steps+1,B,N): the probe, what it recalls, what that recalls, and so on."""
        if self.recalls is None or self.recalls.size[1] != self._ask(probe, erased=True)[1].shape[1]:
            raise ValueError("replay needs patterns that recall others of the same neurons")
        path = [torch.as_tensor(probe).to(self.device, self.dtype)]
        for _ in range(steps):
            path.append(self.recall(path[-1]).state)
        return torch.stack(path)

    def scores(self, state: Tensor | np.ndarray) -> Tensor:
        """Like the state: every neuron's score, whose sign it is updated to."""
        patterns, batch = self._ask(state, erased=True)
        if not isinstance(states := self.kind, Binary):
            raise ValueError("scores are of binary states: this memory's are continuous")
        each = [states.scores(patterns, states.see(patterns, some), some) for some in self._portions(batch)]
        return like(torch.cat(each), state)

    def energy(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,), or one number: E, of the exponential -log sum f."""
        patterns, batch = self._ask(state, erased=True)
        seen = (self.kind.see(patterns, some) for some in self._portions(batch))
        return like(torch.cat([self.kind.level(patterns, each) for each in seen]), state)

    def weights(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,K) or (K,): p, how the update of a continuous state mixes the patterns."""
        patterns, batch = self._ask(state)
        if not isinstance(states := self.kind, Continuous):
            raise ValueError("weights are of continuous states: this memory's are binary")
        return like(states.energy.weights(states.see(patterns, batch)), state)

    def is_stable(self, state: Tensor | np.ndarray) -> Tensor:
        """(B,) bool, or one: an update leaves every neuron as it is."""
        return self.recall(state, steps=1).converged

    @staticmethod
    def capacity(neurons: int, vertex: int) -> float:
        """Patterns stored without errors, in theory: see `engramma.models.associative.capacity`."""
        return capacity(neurons, vertex)

    def _added(self, there: Patterns | None, fresh: Tensor) -> Patterns:
        if there is None:
            return held(fresh, self.device, self.dtype, self.kernel)
        return there.joined(fresh)

    def _ask(self, state: Tensor | np.ndarray, erased: bool = False) -> tuple[Patterns, Tensor]:
        if self.patterns is None:
            raise RuntimeError("the memory is empty: store() or learn() something first")
        batch = self.kind.read(state, "state", self.patterns.size[1], erased)
        return self.patterns, batch.to(self.device, self.dtype)

    def _portions(self, state: Tensor) -> tuple[Tensor, ...]:
        """As many states at a time as there is room for what they see, and a few tensors of its size."""
        assert self.patterns is not None
        room = self.block_bytes // (6 * self.dtype.itemsize * max(self.patterns.size))
        return state.split(max(1, room // 16 * 16 or room))  # a line of the looked up sums holds sixteen

    def _descended(
        self, states: Tensor, theta: Tensor, replicas: Replicas, settings: dict[str, Any]
    ) -> Tensor:
        if self.interaction is None:
            raise ValueError("rule must be local for continuous states: descent learns binary ones")
        kernel, items = kernel_for(self.device, self.kernel), states.cpu().numpy()[None]
        network = DenseMemory(
            states.shape[1],
            0,
            self.interaction,
            autoassociative=True,
            beta=1 / self.temperature,
            kernel=kernel,
        )
        stream = StateStream(replicas, states=items, device=self.device, dtype=self.dtype, kernel=kernel)
        temperature = {"initial_temperature": self.temperature, "final_temperature": self.temperature}
        # Its rate was chosen with velocities that are scaled.
        optimiser = Optimiser(**{**temperature, "normalise": "velocity", **settings})
        for moment in train(network, stream, Vanilla(), optimiser, replicas, theta[None]):
            theta = moment.theta[0]
        return theta


def _interaction(name: str, what: str) -> type[Interaction]:
    if what == "energy" and name not in INTERACTIONS and ":" not in name:
        raise ValueError(f"energy must be one of {', '.join((*ENERGIES, *INTERACTIONS))}, not {name!r}")
    return interaction_class(name)


def _neurons(patterns: Patterns | None) -> int | None:
    return None if patterns is None else patterns.size[1]
