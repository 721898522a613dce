"""The networks that answered in a run, found again from its record and the memories it kept."""

from __future__ import annotations

from torch import Tensor

from engramma.methods import Allocation, Now
from engramma.network import DenseMemory
from engramma.runs.setup import Built
from engramma.store.scores import Recorded


def answering(record: Recorded, built: Built, network: DenseMemory, theta: Tensor) -> list[DenseMemory]:
    """What answered after each task, given the memories (T,M,N) after each: `network`, or groups of it."""
    method = built.method
    if not isinstance(method, Allocation):
        return [network] * len(theta)
    owner = (record.facts.get("report") or {}).get("owner")
    if not isinstance(owner, list):
        raise ValueError("the record does not say which memories are whose")
    state, found = method.start(theta[:1]), []
    for k in range(len(theta)):
        now = Now(network, built.stream[k], built.optimiser.epochs, 0, built.replicas, len(built.stream))
        state = method.found_again(state, now, theta[k : k + 1], owner)
        found.append(method.recall(state, now, theta[k : k + 1], learned=True))
    return found
