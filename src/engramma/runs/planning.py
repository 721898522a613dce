"""How experiments are packed: how much memory and work they need, and what fits the device."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from engramma.checks import method_class, stream_class
from engramma.experiment import Experiment
from engramma.methods.method import Method
from engramma.store.scores import size_of

SHARE = 0.8  # of the device's free memory
CPU_SHARE = 0.5  # of the free memory of a machine that has other things to do
FULL = 40_000  # items a step that keep a GPU busy: below, more replicas are nearly free
SMALL = 5e8  # multiplications an epoch below which a second thread costs more than it brings
GROUPS = Path("/sys/fs/cgroup")


def sizes(e: Experiment) -> tuple[int, int, int]:
    """(N neurons, K scored neurons, B training items of a task)."""
    return stream_class(e.stream).sizes(dict(e))


def rehearsed(e: Experiment, task: int) -> tuple[float, float]:
    """Items beside the task's own in an epoch of `task`: (trained on, looked at in every step)."""
    return method_class(e.method).rehearsed(e.settings, e.strength, sizes(e)[2], task)


def memories(e: Experiment) -> tuple[int, int]:
    """How many there are in all, and how many of them learn at once."""
    return method_class(e.method).memories(e.settings, e.memories, e.tasks)


def _batch(e: Experiment, most: float) -> float:
    """Items of the largest step, of `most` there are; one at least, where a stream will find too few."""
    if isinstance(e.batch_size, str):  # all
        return max(1, most)
    return max(1, min(e.batch_size or sizes(e)[2], most))


def work(e: Experiment, task: int) -> float:
    """Multiplications of one epoch, about: two products with the memories, and K clamped neurons each way.

    For saying how long; only its ratios matter. A clamped neuron costs as much as some 20 multiplications.
    """
    neurons, scored, items = sizes(e)
    extra, guarded = rehearsed(e, task)
    steps = math.ceil((items + extra) / _batch(e, items + extra))
    return (items + extra + steps * guarded) * memories(e)[1] * (2 * neurons + 20 * scored)


@contextmanager
def suited_threads(device: torch.device | str, experiments: Sequence[Experiment]) -> Iterator[None]:
    """One thread for small problems on a CPU: threads would mostly wait for each other."""
    before = torch.get_num_threads()
    small = sum(work(e, e.tasks - 1) for e in experiments) < SMALL
    if torch.device(device).type != "cpu" or not small:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def memory(experiments: Sequence[Experiment]) -> int:
    """Bytes that training a pack needs at its height, about, and rather too many than too few.

    With R replicas of S seeds, B items a step, M memories, N neurons, K scored ones and T tasks:

        memories   8 R M N: theta, velocity, gradient, step and their successors, of the memories that learn;
                   4 R M N of all, where they are apart from these; and what the method says it holds
        step       6 R B M: similarities, f and f' of them on and off, what is pulled back; the same for
                   tests, and for the earlier items that the method looks at in a step; and 8 R M for every
                   item of a task of which the method takes stock, which may be of every item alone
        items      (N + K) of every item: S rows of training items, T test sets and the buffer (R rows
                   where there is one: a replica may have items of its own), and a shuffled batch of them

    all times the bytes of a number, and 1.2 for what the allocator cannot use.
    """
    first, count = experiments[0], len(experiments)
    method = method_class(first.method)
    number = 4 if first.dtype == "float32" else 8
    neurons, scored, items = sizes(first)
    tasks = first.tasks
    extra = max(sum(rehearsed(e, tasks - 1)) for e in experiments)
    guarded = max(rehearsed(e, tasks - 1)[1] for e in experiments)
    step = _batch(first, items + extra)
    rows = len({e.seed for e in experiments})
    test = first.items - items if first.stream != "states" else items
    kept_rows = count if extra or guarded else rows
    total, awake = memories(first)
    held = max(method.held(e.settings, e.strength, size_of(dict(e))) for e in experiments)
    apart = 0 if method.awaken is Method.awaken else 4 * total
    arrays = count * (neurons * (8 * awake + apart) + held)
    whole = 0 if method.consolidate is Method.consolidate else 8 * items
    scratch = count * (max(6 * step * awake, whole * awake, 6 * test * total) + 6 * guarded * awake)
    learned = (neurons + scored) * (rows * (items + tasks * test) + 2 * kept_rows * (items + extra))
    return int(1.2 * number * (arrays + scratch + learned))


def free_memory(device: torch.device | str) -> int:
    """Bytes that packs may use on a device."""
    place = torch.device(device)
    if place.type == "cuda":
        return int(SHARE * torch.cuda.mem_get_info(place)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        try:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        except (ValueError, OSError, AttributeError):
            free = 4 << 30
    return int(CPU_SHARE * min(free, _limit()))


def _limit() -> int:
    """What a container may use, where this is one: by control groups, of the second kind or the first."""
    least = 1 << 62
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # not there; "max"
            least = min(least, int((GROUPS / file).read_text()))
    return least


def seed_major(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Replicas of one seed together, so that they share its items; otherwise in the order given."""
    place = {seed: i for i, seed in enumerate(dict.fromkeys(e.seed for e in experiments))}
    return sorted(experiments, key=lambda e: place[e.seed])


def plan(
    experiments: Sequence[Experiment], device: torch.device | str, room: int | None = None
) -> list[list[Experiment]]:
    """Packs of experiments that train together and fit the device, in the order of their first members."""
    room = free_memory(device) if room is None else room
    families: dict[str, list[Experiment]] = {}
    for e in experiments:
        families.setdefault(e.family(), []).append(e)
    packs = []
    for family in families.values():
        for group in _alike(family, torch.device(device).type == "cuda"):
            packs += split(seed_major(group), room)
    return packs


def _alike(family: list[Experiment], busy: bool) -> list[list[Experiment]]:
    """Replicas with unequal buffers all wait for the largest: they are kept apart, unless a device
    would be idle anyway."""
    by_buffer: dict[float, list[Experiment]] = {}
    for e in family:
        by_buffer.setdefault(sum(rehearsed(e, e.tasks - 1)), []).append(e)
    groups: list[list[Experiment]] = []
    for buffer in sorted(by_buffer):
        fits = busy and groups and len(groups[-1]) * sizes(family[0])[2] < FULL
        if fits:
            groups[-1] += by_buffer[buffer]
        else:
            groups.append(list(by_buffer[buffer]))
    return groups


def split(pack: list[Experiment], room: int) -> list[list[Experiment]]:
    """Halves, and halves of them, until each fits; between seeds where possible."""
    if len(pack) == 1 or memory(pack) <= room:
        return [pack]
    return [part for half in halves(pack) for part in split(half, room)]


def halves(pack: list[Experiment]) -> list[list[Experiment]]:
    seeds = list(dict.fromkeys(e.seed for e in pack))
    if len(seeds) > 1:
        low = set(seeds[: (len(seeds) + 1) // 2])
        return [[e for e in pack if e.seed in low], [e for e in pack if e.seed not in low]]
    middle = (len(pack) + 1) // 2
    return [pack[:middle], pack[middle:]]
