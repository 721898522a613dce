"""engramma: sequential learning in the Dense Associative Memory."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("engramma")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0.1.0"
