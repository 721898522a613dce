"""engramma: sequential learning in the Dense Associative Memory.

    import engramma as en

What stands here is imported when it is asked for: PyTorch takes seconds, and not everybody needs it.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engramma.experiment import Experiment
    from engramma.interactions import INTERACTIONS, Interaction
    from engramma.losses import LOSSES, Loss
    from engramma.methods import METHODS, Allocation, Method
    from engramma.models.associative import AssociativeMemory
    from engramma.models.classifier import DenseMemoryClassifier
    from engramma.models.guard import Guard
    from engramma.models.hopfield import Hopfield
    from engramma.models.layer import DenseMemoryLayer
    from engramma.network import DenseMemory
    from engramma.runs.results import Result, load, run
    from engramma.runs.setup import build
    from engramma.search.choice import tune
    from engramma.show.compare import Comparison, compare
    from engramma.store.memories import load_memory, save_memory
    from engramma.store.records import Store
    from engramma.streams import STREAMS, ClassStream, Stream
    from engramma.streams.avalanche import to_avalanche
    from engramma.streams.own import dataset

# PyTorch's threads on the CPU would spin for milliseconds after every small operation, on a core that the
# next product needs. Takes effect where engramma is imported before torch, as its command line does.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    __version__ = version("engramma")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0.2.0"

__all__ = [
    "INTERACTIONS",
    "LOSSES",
    "METHODS",
    "STREAMS",
    "Allocation",
    "AssociativeMemory",
    "ClassStream",
    "Comparison",
    "DenseMemory",
    "DenseMemoryClassifier",
    "DenseMemoryLayer",
    "Experiment",
    "Guard",
    "Hopfield",
    "Interaction",
    "Loss",
    "Method",
    "Result",
    "Store",
    "Stream",
    "build",
    "compare",
    "dataset",
    "load",
    "load_memory",
    "run",
    "save_memory",
    "to_avalanche",
    "tune",
]
_PLACES = {  # as above, for Python
    "experiment": ["Experiment"],
    "interactions": ["INTERACTIONS", "Interaction"],
    "losses": ["LOSSES", "Loss"],
    "methods": ["METHODS", "Allocation", "Method"],
    "models.associative": ["AssociativeMemory"],
    "models.classifier": ["DenseMemoryClassifier"],
    "models.guard": ["Guard"],
    "models.hopfield": ["Hopfield"],
    "models.layer": ["DenseMemoryLayer"],
    "network": ["DenseMemory"],
    "runs.results": ["Result", "load", "run"],
    "runs.setup": ["build"],
    "search.choice": ["tune"],
    "store.memories": ["load_memory", "save_memory"],
    "show.compare": ["Comparison", "compare"],
    "store.records": ["Store"],
    "streams": ["STREAMS", "ClassStream", "Stream"],
    "streams.avalanche": ["to_avalanche"],
    "streams.own": ["dataset"],
}


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"engramma.{place}"), name)
            return found
    from engramma.checks import near

    raise AttributeError(f"module 'engramma' has no attribute {name!r}{near(name, __all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
