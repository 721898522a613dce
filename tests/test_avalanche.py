"""EWC and MAS beside Avalanche's own (`pip install avalanche-lib torchvision`; skipped without it).

Its plugins are called as its training loop calls them, around the network, optimiser and batches that a
`Guard` has, so that nothing else differs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_guard import data, flat, model
from torch import Tensor
from torch.nn.functional import cross_entropy

from engramma.methods import EWC, MAS, Method
from engramma.models.guard import Guard

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ewc = pytest.importorskip("avalanche.training.plugins.ewc", exc_type=ImportError)
    mas = pytest.importorskip("avalanche.training.plugins.mas", exc_type=ImportError)

STEPS = 5


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Its importances are of the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def ours(method: Method, tasks: int) -> Tensor:
    net = model()
    guard = Guard(net, cross_entropy, method)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.6)
    for task in range(tasks):
        x, y = data(task)
        for _ in range(STEPS):
            optimiser.zero_grad()
            cross_entropy(net(x), y).backward()
            guard.steer()
            optimiser.step()
            guard.observe()
        guard.consolidate(x, y)
    return flat(net)


def theirs(plugin: Any, tasks: int, batch: int) -> Tensor:
    net = model()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.6)
    for task in range(tasks):
        x, y = data(task)
        triples = [(a, b, torch.tensor(0)) for a, b in zip(x, y, strict=True)]
        strategy = SimpleNamespace(
            clock=SimpleNamespace(train_exp_counter=task),
            model=net,
            _criterion=cross_entropy,
            optimizer=optimiser,
            experience=SimpleNamespace(dataset=triples),
            device="cpu",
            train_mb_size=batch,
        )
        for _ in range(STEPS):
            optimiser.zero_grad()
            strategy.loss = cross_entropy(net(x), y)
            plugin.before_backward(strategy)
            strategy.loss.backward()
            optimiser.step()
        plugin.after_training_exp(strategy)
    return flat(net)


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize(("merge", "decay"), [("separate", None), ("online", 0.5)])
def test_ewc(merge: Any, decay: float | None, batch: int) -> None:
    """Its lambda counts twice: it has no half."""
    method = EWC(20.0, fisher="item" if batch == 1 else "batch", batch=batch, merge=merge, decay=decay or 1.0)
    found = ours(method, 3)
    plugin = ewc.EWCPlugin(10.0, mode=merge, decay_factor=decay)
    torch.testing.assert_close(found, theirs(plugin, 3, batch), rtol=0, atol=1e-9)
    assert (found - ours(EWC(0.0), 3)).abs().max() > 1e-3


def test_mas() -> None:
    """Of two tasks: after that it blends importances otherwise."""
    found = ours(MAS(10.0, power=1), 2)
    torch.testing.assert_close(
        found, theirs(mas.MASPlugin(lambda_reg=10.0, alpha=0.5), 2, 1), rtol=0, atol=1e-9
    )
    assert (found - ours(MAS(0.0), 2)).abs().max() > 1e-3
