"""engramma: sequential learning in the Dense Associative Memory."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

# PyTorch's threads on the CPU would spin for milliseconds after every small operation, on a core that the
# next product needs. Takes effect where engramma is imported before torch, as its command line does.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    __version__ = version("engramma")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0.1.0"
