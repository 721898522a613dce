"""Vanilla learning of permuted MNIST forgets as the paper says it does."""

from __future__ import annotations

import pytest
import torch

from engramma import measures
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.kernels import kernel_for
from engramma.methods import Vanilla
from engramma.network import DenseMemory
from engramma.optimiser import Optimiser
from engramma.replicas import Replicas
from engramma.streams import ClassStream
from engramma.streams.datasets import Dataset
from engramma.train import train


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_vanilla_on_permuted_mnist(mnist_there: Dataset, device: torch.device, dtype: torch.dtype) -> None:
    """n = 2, 2,000 items a task, five seeds, 500 epochs: tasks are learned, the first one too, and earlier
    ones are lost. (With the velocity scaled, as in the authors' package, seed 1 does not learn its fourth
    task: docs/log.md says why.)"""
    replicas, kernel = Replicas((0, 1, 2, 3, 4)), kernel_for(device)
    stream = ClassStream(mnist_there, replicas, items=2_000, device=device, dtype=dtype, kernel=kernel)
    network = DenseMemory(stream.neurons, stream.classes, LeakyRectifiedPolynomial(2), kernel=kernel)
    theta = replicas.memories(512, stream.neurons, device=device, dtype=dtype)
    ends = [
        stream.evaluate(moment.network, moment.theta)["accuracy"]
        for moment in train(network, stream, Vanilla(), Optimiser(), replicas, theta)
        if moment.ends_task
    ]
    scores = torch.stack(ends, 1)
    print(scores, measures.average(scores))  # shown by pytest -s, and where a bound is missed
    assert (measures.own(scores) > 0.80).all()
    assert ((measures.average(scores) > 0.30) & (measures.average(scores) < 0.42)).all()
