"""What can be wrong with data."""

from __future__ import annotations


class DataError(ValueError):
    """A data set is missing, damaged or too small. The message says which and what to do."""


class Missing(DataError):
    """It is not where it was looked for, and could not be fetched."""
