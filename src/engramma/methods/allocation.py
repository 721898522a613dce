"""Allocation: each task learns with memories of its own, and the energy tells whose item it is.

The memories stand in groups. A task wakes one group, which learns as a small network of its own; the others
sleep: nothing scores them and nothing moves them, so no group is disturbed and no item is kept. An
item is later answered by the groups that know it. How well group g knows item x says its energy

    e_g(x) = log max_c sum over memories m of g of f(h_m with class neuron c on),   f(h) = h^n where h > 0

which is that of the state the group would complete x to. Groups that learned different things have energies
of different scales, so each keeps two numbers, mean and deviation of e_g over the items it has learned:

    z_g(x) = (e_g(x) - mean_g) / deviation_g

and the answer is the groups' own answers tanh(o_g), each counting by p_g(x) = softmax_g (2 z_g(x) + m_g(x)),
m_g being how far its highest answer lies above its second. The energy is taken at temperature 1: f is
homogeneous, so that a temperature only adds a constant to e.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from engramma.interactions import RectifiedPolynomial
from engramma.methods.method import NUMBER, Awake, Method, Now, Size, Vanilla
from engramma.methods.penalty import EWC, L2, MAS, SI, Anchored
from engramma.methods.replay import Buffer, Pseudorehearsal, Rehearsal
from engramma.network import DenseMemory, Items, Relaxed, Response

BESIDE: dict[str, type[Method]] = {  # what a group may do about the tasks that it learned before
    "vanilla": Vanilla,
    "rehearsal": Rehearsal,
    "pseudorehearsal": Pseudorehearsal,
    "l2": L2,
    "ewc": EWC,
    "mas": MAS,
    "si": SI,
}
SHARPNESS = 2.0  # how much a deviation counts where groups answer together
CLASS = 0.3  # how strongly a memory that begins at a centre speaks for its class
LLOYD = 8  # rounds in which centres are moved
SAMPLE = 200  # items that tell whether a group knows a task

__all__ = ["Allocation", "Allotted", "Anchored", "Buffer", "Grouped", "familiarity"]


def familiarity(network: DenseMemory, theta: Tensor, probe: Tensor, target: Tensor | None = None) -> Tensor:
    """(R,B): e(x), how well memories know items; those of one class each where `target` says which."""
    h = network.similarity(theta, probe)
    f = RectifiedPolynomial(network.interaction.n)
    known = f.value(h).sum(-1, keepdim=True)
    if network.classes:
        classes = slice(network.visible, network.neurons)
        a = (network.scale * theta[..., classes]).contiguous()
        known = known + network.kernel.scores(h, a, f, None)
        if target is not None:
            target = target.repeat_interleave(len(theta) // len(target), 0)
            known = known.masked_fill(target < 0, 0.0)
    beta = network.beta if isinstance(network.beta, Tensor) else theta.new_tensor(network.beta)
    known = known.amax(-1).clamp(min=torch.finfo(known.dtype).tiny).to(theta.dtype)
    return known.log() - f.n * beta.to(known).log().reshape(-1, 1)


@dataclass(frozen=True)
class Grouped(DenseMemory):
    """A network whose memories stand in groups of `each`: an item is answered by the groups that know it."""

    each: int = 0  # memories of a group, one group after another
    mean: Tensor | None = None  # (R,G) of e over the items a group has learned; infinite where it has none
    deviation: Tensor | None = None  # (R,G)
    owner: Tensor | None = None  # (R,T) the group of each task so far
    told: bool = False  # tasks wake their group alone, and the energy is asked for those to come only

    def alone(self) -> DenseMemory:
        """The network without its groups: what every one of them is."""
        return DenseMemory(**{f.name: getattr(self, f.name) for f in fields(DenseMemory)})

    def parts(self, theta: Tensor) -> list[Tensor]:
        """[(R,K,N)]: the memories of each group."""
        assert self.mean is not None
        opened = int(self.mean.isfinite().any(0).sum())
        first = range(0, opened * self.each, self.each)
        return [theta[:, m : m + self.each].contiguous() for m in first]

    def known(self, theta: Tensor, probe: Tensor) -> Tensor:
        """(R,B,G): z, how well each group knows each item, in deviations from the items it has learned."""
        assert self.mean is not None
        assert self.deviation is not None
        net = self.alone()
        e = torch.stack([familiarity(net, part, probe) for part in self.parts(theta)], -1)
        opened = e.shape[-1]
        return (e - self.mean[:, None, :opened]) / self.deviation[:, None, :opened]

    def named(self, theta: Tensor, probe: Tensor) -> Tensor:
        """(R,B): the group that knows an item best."""
        return self.known(theta, probe).argmax(-1)

    def respond(self, theta: Tensor, probe: Tensor, task: int | None = None) -> Response:
        owner = self.owner
        if self.told and owner is not None and task is not None and task < owner.shape[1]:
            return self.alone().respond(taken(theta, places(owner[:, task], self.each)), probe)
        z = self.known(theta, probe)
        label = self._together(theta, probe, z).argmax(-1)
        if self.told or owner is None:
            return Response(label)
        return Response(label, z.argmax(-1)[..., None] == owner[:, None])

    def answers(self, theta: Tensor, probe: Tensor) -> Tensor:
        """(R,B,C): what the groups answer together, between -1 and 1."""
        return self._together(theta, probe, self.known(theta, probe))

    def _together(self, theta: Tensor, probe: Tensor, z: Tensor) -> Tensor:
        net, classes = self.alone().recalling, slice(self.visible, self.neurons)
        answers = [torch.tanh(net.scores(part, probe, classes)).to(z) for part in self.parts(theta)]
        answer = torch.stack(answers, 2)  # (R,B,G,C)
        best = answer.topk(min(2, answer.shape[-1]), -1).values
        p = torch.softmax(SHARPNESS * z + best[..., 0] - best[..., -1], -1)
        return (p[..., None] * answer).sum(2)

    def energy(self, theta: Tensor, state: Tensor) -> Tensor:
        net = self.alone()
        return self._best(theta, state, lambda part: net.energy(part, state))

    def relax(
        self,
        theta: Tensor,
        state: Tensor,
        steps: int = 20,
        neurons: slice | None = None,
        order: str = "synchronous",
    ) -> Relaxed:
        """As every network does, each state among the memories of the group that knows it best."""
        net = self.alone()
        ends = [net.relax(part, state, steps, neurons, order) for part in self.parts(theta)]
        awake = self.named(theta, net.kernel.prepare(state, theta.dtype))
        return Relaxed(*(_of(awake, torch.stack(part, 2)) for part in zip(*ends, strict=True)))

    def _best(self, theta: Tensor, probe: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        found = torch.stack([make(part) for part in self.parts(theta)], 2)
        return _of(self.named(theta, probe), found)


def _of(group: Tensor, found: Tensor) -> Tensor:
    """(R,B,...) out of (R,B,G,...): what the group (R,B) of each item says."""
    index = group.reshape(*group.shape, *[1] * (found.dim() - 2)).expand(*group.shape, 1, *found.shape[3:])
    return found.gather(2, index).squeeze(2)


def places(group: Tensor, each: int) -> Tensor:
    """(R,K): where the memories of one group (R,) a replica stand."""
    return group[:, None] * each + torch.arange(each, device=group.device)


def taken(theta: Tensor, where: Tensor) -> Tensor:
    """(R,K,N): of every replica the memories at its own places (R,K)."""
    return theta.gather(1, where[..., None].expand(-1, -1, theta.shape[-1]))


class Allotted(NamedTuple):
    """Which memories are whose."""

    owner: Tensor  # (R,T) the group of each task so far
    mean: Tensor  # (R,G) of e over the items that each group learned last; infinite where it learned none
    deviation: Tensor  # (R,G)
    beside: tuple[Any, ...]  # each group's state of the method beside


@dataclass(frozen=True)
class Allocation(Method):
    """Memories of their own for each task.

    `groups`: how many, None one a task; where there are fewer, tasks go round. `grow`: the run's memories
    are those of one group, and every group brings its own; else all groups share them equally.
    `wake` "energy": items name their group; "id": they are told whose they are. `begin` "centres": memories
    begin near centres of the task's items, class by class; "noise": as they were drawn; "nearest": as a copy
    of the group that knows the task's items best. `boundaries` "found": nobody says that a task is new: its
    first items are looked at, a group that knows them within `alarm` deviations goes on learning, and where
    none does another is opened. `beside`: what a group does about its own earlier tasks, a method by name
    and its strength.
    """

    groups: int | None = None
    grow: bool = False
    wake: Literal["energy", "id"] = "energy"
    begin: Literal["centres", "noise", "nearest"] = "centres"
    boundaries: Literal["given", "found"] = "given"
    alarm: float = 0.5
    beside: str = "vanilla"
    beside_strength: float | None = None

    # What suits it, where a run says nothing else.
    suits: ClassVar[dict[str, Any]] = {
        "task_id": False,
        "learning_rate": 0.03,
        "initial_temperature": "auto",
        "final_temperature": "auto",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups is not None and self.groups < 1:
            raise ValueError(f"groups must be at least 1, not {self.groups}")
        if not 0 < self.alarm < float("inf"):
            raise ValueError(f"alarm must be above 0, not {self.alarm}")
        if self.beside not in BESIDE:
            raise ValueError(f"beside must be one of {', '.join(BESIDE)}, not {self.beside!r}")
        kind = BESIDE[self.beside]
        if (kind.strength_name is None) != (self.beside_strength is None):
            has = "must be given" if self.beside_strength is None else "must be left out"
            raise ValueError(f"beside_strength {has} for {self.beside}")
        if self.boundaries == "found" and self.beside != "vanilla":
            raise ValueError("beside must be vanilla where boundaries are found")
        _ = self._beside  # whose limits are its own

    @cached_property
    def _beside(self) -> Method:
        kind = BESIDE[self.beside]
        return kind(**({kind.strength_name: self.beside_strength} if kind.strength_name else {}))

    @property
    def watches(self) -> str | None:
        return self._beside.watches

    @classmethod
    def memories(cls, settings: dict[str, Any], memories: int, tasks: int) -> tuple[int, int]:
        count = settings.get("groups") or tasks
        return (memories * count, memories) if settings.get("grow") else (memories, max(1, memories // count))

    @classmethod
    def rehearsed(
        cls, settings: dict[str, Any], strength: float | None, items: int, task: int
    ) -> tuple[float, float]:
        del strength
        beside, groups = BESIDE[settings.get("beside", cls.beside)], settings.get("groups")
        own = task // groups if groups else 0  # earlier tasks of the group that learns
        return beside.rehearsed({}, settings.get("beside_strength"), items, own)

    @classmethod
    def held(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        beside, own = BESIDE[settings.get("beside", cls.beside)], settings.get("beside_strength")
        each = beside.held({}, own, size._replace(memories=size.awake))
        kept = sum(beside.rehearsed({}, own, size.items, 1)) * size.tasks  # by all groups
        return size.memories // size.awake * each + kept * size.neurons

    @classmethod
    def kept(cls, settings: dict[str, Any], strength: float | None, size: Size) -> float:
        del strength
        groups = settings.get("groups") or size.tasks
        own = NUMBER * (size.tasks + 2 * groups)  # the group of each task; mean and deviation of each group
        kind, many = BESIDE[settings.get("beside", cls.beside)], min(groups, size.tasks)
        part = size._replace(memories=size.awake, tasks=size.tasks / many)
        return own + many * kind.kept({}, settings.get("beside_strength"), part)

    def start(self, theta: Tensor) -> Allotted:
        none = theta.new_zeros(len(theta), 0)
        return Allotted(none.long(), none, none, ())

    def awaken(self, state: Allotted, now: Now, theta: Tensor) -> Awake:
        most = self.groups or now.tasks
        each = theta.shape[1] // most
        if each == 0:
            raise ValueError(f"memories must be at least one a group, not {theta.shape[1]} for {most} groups")
        known = self._knows(state, now, theta, each)
        opened = state.mean.isfinite().sum(1)
        if self.boundaries == "given":
            group = torch.full_like(opened, self._group(now))
        else:
            best, which = known.max(1) if known.shape[1] else (opened - torch.inf, opened)
            group = torch.where((best > -self.alarm) | (opened == most), which, opened)
        fresh = group == opened
        where = places(group, each)
        part = taken(theta, where)
        if bool(fresh.any()):
            part = torch.where(fresh[:, None, None], self._begun(now, theta, part, known, each), part)
        more = most - state.mean.shape[1]  # all at first, then none
        mean = torch.nn.functional.pad(state.mean, (0, more), value=torch.inf)
        beside = state.beside
        if self.boundaries == "given" and len(beside) == self._group(now):
            beside = (*beside, self._beside.start(part))
        state = Allotted(
            torch.cat([state.owner, group[:, None]], 1),
            mean,
            torch.nn.functional.pad(state.deviation, (0, more), value=1.0),
            beside,
        )
        if self.boundaries == "given":
            first = self._group(now) * each
            return Awake(state, slice(first, first + each), part)
        return Awake(state, where, part)

    def _knows(self, state: Allotted, now: Now, theta: Tensor, each: int) -> Tensor:
        """(R,G): mean z of a few of the task's items, whose labels are known, under the groups so far."""
        opened = int(state.mean.isfinite().any(0).sum()) if state.mean.numel() else 0
        if opened == 0 or (self.boundaries == "given" and self.begin != "nearest"):
            return theta.new_zeros(len(theta), 0)
        few = now.task.train.row(slice(0, SAMPLE))
        groups = [theta[:, g * each : (g + 1) * each].contiguous() for g in range(opened)]
        e = [familiarity(now.network, part, few.probe, few.target).mean(1) for part in groups]
        return (torch.stack(e, 1) - state.mean[:, :opened]) / state.deviation[:, :opened]

    def _begun(self, now: Now, theta: Tensor, part: Tensor, known: Tensor, each: int) -> Tensor:
        """(R,K,N): the memories of a new group, as they begin to learn."""
        if self.begin == "noise":
            return part
        if self.begin == "nearest" and known.shape[1]:
            return taken(theta, places(known.argmax(1), each))
        begun = centres(now.task.train, each, now.network)
        return part + begun.repeat_interleave(len(theta) // len(begun), 0).to(theta)

    def rehearse(self, state: Allotted, now: Now) -> Items | None:
        return self._beside.rehearse(self._own(state, now), now)

    def steer(self, state: Allotted, now: Now, theta: Tensor, grad: Tensor) -> Tensor:
        return self._beside.steer(self._own(state, now), now, theta, grad)

    def observe(self, state: Allotted, now: Now, grad: Tensor, step: Tensor, move: Tensor) -> Allotted:
        return self._with(state, now, self._beside.observe(self._own(state, now), now, grad, step, move))

    def consolidate(self, state: Allotted, now: Now, theta: Tensor) -> Allotted:
        if not state.owner.shape[1]:
            raise ValueError("allocation must be there from the first task on: its groups are memories apart")
        state = self._with(state, now, self._beside.consolidate(self._own(state, now), now, theta))
        return self._calibrated(state, now, theta)

    def recall(self, state: Allotted, now: Now, theta: Tensor, learned: bool) -> DenseMemory:
        """The network with the groups there are so far, the one that is learning as it stands."""
        each = theta.shape[1] // (self.groups or now.tasks)
        if not learned:
            state = self._calibrated(state, now, taken(theta, places(state.owner[:, -1], each)))
        net = now.network
        told = {f.name: getattr(net, f.name) for f in fields(DenseMemory)}
        told |= {name: getattr(state, name) for name in ("mean", "deviation", "owner")}
        return Grouped(**told, each=each, told=self.wake == "id")

    def found_again(self, state: Allotted, now: Now, theta: Tensor, owner: list[int]) -> Allotted:
        """The state after a task, from the one before it and all memories (1,M,N) as they were then, given
        the group of every task, which the run reported."""
        groups = self.groups or now.tasks
        so_far = owner[: now.task.index + 1]
        if len(so_far) <= now.task.index or not set(so_far) <= set(range(groups)):
            raise ValueError(f"owner must be the group of each of {now.tasks} tasks, below {groups}")
        if not state.mean.numel():
            none = theta.new_full((1, groups), torch.inf)
            state = state._replace(mean=none, deviation=torch.ones_like(none))
        state = state._replace(owner=torch.tensor([so_far], device=theta.device))
        return self._calibrated(
            state, now, taken(theta, places(state.owner[:, -1], theta.shape[1] // groups))
        )

    def report(self, state: Allotted) -> dict[str, Any]:
        """Of each replica: the group of every task, and each group's mean energy on what it has learned,
        with its deviation."""
        names = ("owner", "mean", "deviation")
        return {name: getattr(state, name).tolist() for name in names}

    def _group(self, now: Now) -> int:
        """Of the task that is learned, where boundaries are given: known without a look at the device."""
        return now.task.index % (self.groups or now.tasks)

    def _own(self, state: Allotted, now: Now) -> Any:
        return state.beside[self._group(now)] if state.beside else None

    def _with(self, state: Allotted, now: Now, own: Any) -> Allotted:
        if not state.beside:
            return state
        group = self._group(now)
        return state._replace(beside=(*state.beside[:group], own, *state.beside[group + 1 :]))

    def _calibrated(self, state: Allotted, now: Now, part: Tensor) -> Allotted:
        """With the mean and deviation of the energies that the group awake has for what it learns."""
        e = familiarity(now.network, part.contiguous(), now.task.train.probe)
        column = torch.arange(state.mean.shape[1], device=e.device) == state.owner[:, -1:]
        small = torch.finfo(e.dtype).eps
        return state._replace(
            mean=torch.where(column, e.mean(1, keepdim=True), state.mean),
            deviation=torch.where(column, e.std(1, keepdim=True).clamp(min=small), state.deviation),
        )


def centres(items: Items, count: int, network: DenseMemory) -> Tensor:
    """(S,K,N): centres of the items of each class, equally many a class, with its class neuron on.

    They begin at items, and are moved to the mean of the items nearest to them, a few times. Without
    classes (states learned over all neurons): of all items alike.
    """
    found = [
        _centres(*row, count, network) for row in zip(items.probe, items.target, items.weight, strict=True)
    ]
    return torch.stack(found)


def _centres(probe: Tensor, target: Tensor, weight: Tensor, count: int, network: DenseMemory) -> Tensor:
    x = probe[weight > 0, : network.neurons].to(target)
    label = target[weight > 0].argmax(-1) if network.classes else torch.zeros_like(x[:, 0]).long()
    kinds = label.unique().tolist()
    made = torch.empty(count, network.neurons, dtype=x.dtype, device=x.device)
    for number, kind in enumerate(kinds[:count]):
        own, mine = x[label == kind], made[number :: len(kinds)]
        centre, _ = clustered(own, len(mine))
        mine.copy_(centre)
        if network.classes:
            mine[:, network.visible :] = -CLASS
            mine[:, network.visible + kind] = CLASS
    return made


def clustered(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(K,N) centres of items (B,N) and (K,) how many items are nearest to each: they begin at the first
    items, and move a few times to the mean of those nearest to them (Lloyd's algorithm)."""
    centre = x[torch.arange(count, device=x.device) % len(x)]
    size = torch.zeros_like(centre[:, 0])
    for _ in range(LLOYD):
        near = torch.cdist(x, centre).argmin(1)
        sums = torch.zeros_like(centre).index_add_(0, near, x)
        size = torch.zeros_like(size).index_add_(0, near, torch.ones_like(x[:, 0]))
        centre = torch.where(size[:, None] > 0, sums / size[:, None].clamp(min=1), centre)
    return centre, size
