"""Protocols beside the published one, many at a time: `python -m benchmarks.screen --help` runs them,
`python -m benchmarks.screened` sums up what was found.

The loop is the library's, with the library's methods; only the step is written again, in place: memories,
velocity and rate stay where they are, so that on CUDA an epoch is recorded once a task and replayed, which
makes about two runs a second at paper scale on an H200.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.tried import Hidden, Labelled, labelled, unit
from engramma import measures
from engramma.experiment import read
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.methods import GEM, METHODS, Method, Now, Projection, Replay
from engramma.network import DenseMemory, Items
from engramma.paper import numbers as paper
from engramma.runs.setup import Built, build
from engramma.streams import ClassStream


class Point(NamedTuple):
    """What may differ from replica to replica."""

    rate: float
    temperature: float
    class_rate: float = 1.0  # of the class weights, as a multiple of the rate
    factor: float = 1.0  # of the paper's lambda


class Protocol(NamedTuple):
    """What replicas trained together share."""

    normalise: str = "mean"
    scaled: str = "apart"  # or "joint": one largest entry for a whole memory, as in the authors' package
    batch: int | None = None  # items, about; None: all at once
    probe: str = "-1"  # class neurons of items that are learned; or "labels": their own, but for the scored
    start: str = "random"  # class neurons of pseudo-probes; or "-1", or "held" there until the rest is stable
    momentum: float = 0.6
    decay: float = 0.999


PUBLISHED = Protocol()


def own(state: Any) -> Any:
    """A state whose tensors are its own, so that they can be written in place."""
    return type(state)(*(p.clone() if isinstance(p, Tensor) else p for p in state)) if state else state


def write(state: Any, fresh: Any) -> None:
    for part, new in zip(state or (), fresh or (), strict=True):
        if isinstance(part, Tensor) and part is not new:
            part.copy_(new)


def repeat(epoch: Callable[[], None], times: int, record: bool) -> None:
    """Runs `epoch` so many times; where it is recorded, all but the first two from a CUDA graph."""
    if not record or times < 3:
        for _ in range(times):
            epoch()
        return
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # what is compiled or chosen at first must not be recorded
        for _ in range(2):
            epoch()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # which runs nothing
        epoch()
    for _ in range(times - 2):
        graph.replay()


def column(values: Sequence[float], like: Tensor) -> Tensor:
    """(R,1,1), one value a replica."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None, None]


class Found(NamedTuple):
    """Of every replica: seed by seed, and of each seed point by point."""

    accuracy: Tensor  # (R,) average over the tasks after the last
    macro_f1: Tensor  # (R,) likewise
    pooled_f1: Tensor  # (R,) macro F1 of the test items of all tasks together
    without_leak: Tensor  # (R,) accuracy recalled without the leak
    own: Tensor  # (R,T) accuracy of each task after it was learned


def screen(
    row: str,
    vertex: int,
    points: Sequence[Point],
    seeds: Sequence[int],
    protocol: Protocol = PUBLISHED,
    settings: dict[str, Any] | None = None,
    device: str = "cpu",
    data_dir: str | None = None,
    **sizes: Any,
) -> Found:
    """Trains every point with every seed, together. `row`: a method, with @proportion where it has one."""
    each = [point for _ in seeds for point in points]
    precise = "mixed" if device.startswith("cuda") else "float64"
    common = {"vertex": float(vertex), "dtype": precise, **sizes}
    runs = [read({**common, "seed": seed}) for seed in seeds for _ in points]
    built = build(runs, device, "auto", data_dir)
    stream = built.stream
    assert isinstance(stream, ClassStream)
    theta, network = built.theta.clone(), _network(built, protocol, each)
    method = _method(row, vertex, each, settings or {}, theta)
    state, accuracies = method.start(theta), []
    for task in (stream[index] for index in range(len(stream))):
        if protocol.probe == "labels":
            task = task._replace(train=labelled(task.train, network))
        now, state = Now(network, task, 1, 0, built.replicas), own(state)
        learn(theta, now, method, state, each, protocol, runs[0].epochs)
        state = method.consolidate(state, now, theta.clone())
        accuracies.append(measures.accuracy(stream.confusion(network, theta, task.index)).double())
    return _found(stream, network, theta, accuracies)


def learn(
    theta: Tensor,
    now: Now,
    method: Method,
    state: Any,
    points: Sequence[Point],
    protocol: Protocol,
    epochs: int,
) -> None:
    """Learns a task; memories and the method's state are written where they stand."""
    network, order, share = now.network, protocol.normalise, protocol.momentum
    visible = network.visible
    extra = method.rehearse(state, now)
    if extra is not None and protocol.probe == "labels":
        extra = labelled(extra, network)
    items = now.task.train if extra is None else Items.join(now.task.train, extra)
    batches = _batches(items, protocol.batch, epochs, now.task.index)
    velocity, rate = torch.zeros_like(theta), column([p.rate for p in points], theta)
    faster = column([p.class_rate for p in points], theta)
    watches = type(method).observe is not Method.observe

    def meant(step: Tensor) -> Tensor:
        g = step if order == "velocity" else unit(step, visible, protocol.scaled)
        velocity.mul_(share).add_((1 - share) * g if order == "mean" else g)
        v = unit(velocity, visible, protocol.scaled) if order in ("velocity", "both") else velocity
        return torch.cat([-rate * v[..., :visible], -faster * rate * v[..., visible:]], -1)

    def epoch() -> None:
        rate.mul_(protocol.decay)
        for batch in batches():
            grad = network.gradient(theta, batch)
            step = method.steer(state, now, theta, grad)
            move = meant(step)
            there = theta + move
            there[..., :visible].clamp_(-1, 1)
            if watches:
                shown = move if method.moves == "meant" else there - theta
                write(state, method.observe(state, now, grad, step, shown))
            theta.copy_(there)

    # GEM solves small systems in every step, which a graph does not hold.
    repeat(epoch, epochs, theta.is_cuda and not isinstance(method, GEM))


def _batches(items: Items, size: int | None, epochs: int, task: int) -> Callable[[], Iterator[Items]]:
    """An epoch's batches, equally large, in an order of its own; all replicas in the same."""
    count, place = items.probe.shape[1], items.weight.device
    parts = 1 if size is None else max(1, round(count / size))
    if parts == 1:
        return lambda: iter([items])
    draw = torch.Generator().manual_seed(task)
    orders = torch.stack([torch.randperm(count, generator=draw) for _ in range(epochs)]).to(place)
    turn = torch.zeros(1, dtype=torch.long, device=place)

    def cut() -> Iterator[Items]:
        order = orders.index_select(0, turn)[0]
        turn.add_(1)
        for pick in order.chunk(parts):
            yield items.row(pick)

    return cut


def _network(built: Built, protocol: Protocol, points: Sequence[Point]) -> DenseMemory:
    known: dict[str, Any] = {k: getattr(built.network, k) for k in DenseMemory.__dataclass_fields__}
    known["beta"] = column([1 / p.temperature for p in points], built.theta)
    if protocol.probe == "labels":
        if protocol.start != "random":
            raise ValueError("start must be random where probes hold labels")
        return Labelled(**known)
    if protocol.start != "random":
        return Hidden(**known, held=protocol.start == "held")
    return DenseMemory(**known)


def _method(
    row: str,
    vertex: int,
    points: Sequence[Point],
    settings: dict[str, Any],
    theta: Tensor,
) -> Method:
    name, _, proportion = row.partition("@")
    kind: Any = METHODS[name]
    anew = {"sweep"} if issubclass(kind, Replay) else {"sample"} if issubclass(kind, Projection) else set()
    if anew & settings.keys():  # an epoch that is recorded would draw the same items for ever
        raise ValueError(f"{', '.join(anew)} must be left out: what is drawn anew cannot be screened")
    if proportion:
        return kind(proportion=float(proportion), **settings)
    if kind.strength_name is None:
        return kind(**settings)
    printed = paper.chosen_lambda(name, vertex)
    if printed is None:
        known = ", ".join(str(v) for v in paper.vertices())
        raise ValueError(
            f"vertices must be of {known} for {name}: the paper has no other lambdas, not {vertex}"
        )
    return kind(strength=column([printed * p.factor for p in points], theta), **settings)


def _found(stream: ClassStream, network: DenseMemory, theta: Tensor, own: list[Tensor]) -> Found:
    free = replace(network, interaction=LeakyRectifiedPolynomial(network.interaction.n, 0.0))
    counts = torch.stack([stream.confusion(network, theta, task) for task in range(len(stream))])
    return Found(
        measures.accuracy(counts).double().mean(0).cpu(),
        measures.macro_f1(counts).mean(0).cpu(),
        measures.macro_f1(counts.sum(0)).cpu(),
        stream.evaluate(free, theta)["accuracy"].mean(1).cpu(),
        torch.stack(own, 1).cpu(),
    )
