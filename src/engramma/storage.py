"""Where trials are kept: any storage that Optuna knows, by its URL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from engramma.records import Store

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


@contextlib.contextmanager
def opened(url: str | None, store: Store) -> Iterator[BaseStorage]:
    """The Optuna storage at a URL (default: tune.db in the store). Errors never show a password."""
    import optuna
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    place = f"sqlite:///{store.path / 'tune.db'}" if url is None else url
    example = "an Optuna URL such as sqlite:///search.db or postgresql://user@host/base"
    try:
        parts = make_url(place)
    except (ArgumentError, ValueError):
        raise ValueError(f"storage must be {example}") from None
    shown = f"{parts.drivername}://{parts.host or ''}/{parts.database or ''}"
    if parts.drivername == "postgresql":  # the driver that the extra `postgres` installs
        parts = parts.set(drivername="postgresql+psycopg")
    patience = {"connect_args": {"timeout": 60}} if parts.get_backend_name() == "sqlite" else {}
    plain = parts.render_as_string(hide_password=False)
    base = _or_refused(
        lambda: optuna.storages.RDBStorage(plain, engine_kwargs=patience),
        f"storage must be {example} that can be opened; {shown} cannot",
    )
    try:
        yield base
    finally:
        base.remove_session()
        base.engine.dispose()


def _or_refused(make: Callable[[], Any], message: str) -> Any:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return make()
    except (SQLAlchemyError, ImportError, ValueError, OSError, RuntimeError) as error:
        # The error's own text may hold the URL, and with it a password.
        raise ValueError(f"{message} ({type(error).__name__})") from None
