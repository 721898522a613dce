"""A step with every method against a step without, and the importances against an epoch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.race import race, write
from benchmarks.setting import initial, items, network, optimiser, task
from engramma.methods import AGEM, EWC, GEM, L2, MAS, SI, Method, Now, Vanilla
from engramma.replicas import Replicas


def main(rounds: int = 5, n: float = 2) -> None:
    every = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    for dtype, count in ((torch.float32, 1600), (torch.float64, 8000)):
        rows += [{"dtype": str(dtype)[6:], "items": count, **row} for row in _steps(dtype, count, n, rounds)]
    rows += [{"dtype": "float64", "items": 8000, **row} for row in _importances(n, 3)]
    torch.set_num_threads(every)
    write("methods", rows, threads=1)


def _now(n: float, count: int, dtype: torch.dtype, index: int = 4) -> Now:
    return Now(network(n), task(index, items(count, dtype)), 1, 0, Replicas((0,)))


def _steps(dtype: torch.dtype, count: int, n: float, rounds: int) -> list[dict[str, object]]:
    """The body of the loop in `train`, in the fifth task."""
    now, rule, theta = _now(n, count, dtype), optimiser(), initial(dtype)
    velocity, k = rule.start(theta), count // 20
    methods = {"vanilla": Vanilla(), "l2, ewc, mas": L2(), "si": SI()}
    methods |= {f"agem, {4 * k} items": AGEM(proportion=0.05), f"gem, 4 x {k} items": GEM(proportion=0.05)}

    def step(method: Method) -> Callable[[], None]:
        state = method.start(theta)
        for index in range(4):
            before = now._replace(task=task(index, items(count, dtype, seed=index)))
            state = method.consolidate(state, before, theta)

        def run() -> None:
            grad = now.network.gradient(theta, now.task.train)
            turned = method.steer(state, now, theta, grad)
            moved, _ = rule.step(theta, turned, velocity, 1, now.network)
            if method.watches:
                method.observe(state, now, grad, turned, moved - theta)

        return run

    times = race({name: step(method) for name, method in methods.items()}, rounds)
    for name, time in times.items():
        print(f"{str(dtype)[6:]} B={count} {name:20} {time['cpu_ratio']:5.2f} x vanilla", flush=True)
    return [{"method": name, "buffer": 4 * k if "gem" in name else 0, **time} for name, time in times.items()]


def _importances(n: float, rounds: int) -> list[dict[str, object]]:
    now, rule, theta = _now(n, 8000, torch.float64), optimiser(), initial(torch.float64)
    velocity = rule.start(theta)

    def epoch() -> None:
        grad = now.network.gradient(theta, now.task.train)
        rule.step(theta, grad, velocity, 1, now.network)

    ewc, mas = EWC(), MAS()
    start = ewc.start(theta)
    times = race(
        {
            "epoch": epoch,
            "ewc importances": lambda: ewc.importance(start, now, theta),
            "mas importances": lambda: mas.importance(start, now, theta),
        },
        rounds,
    )
    for name, time in times.items():
        print(f"float64 B=8000 {name:20} {time['cpu_ratio']:5.2f} x an epoch", flush=True)
    return [{"method": name, **time} for name, time in times.items()]
