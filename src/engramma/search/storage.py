"""Where trials are kept: any storage that Optuna knows, by its URL."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from engramma.store.records import Store

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

T = TypeVar("T")
log = logging.getLogger("engramma")
PATIENCE = 120.0  # seconds that a database may be away: time enough to start it again
KINDS = ("sqlite", "postgresql", "mysql", "mariadb", "oracle", "mssql")


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
    # Of a URL that was given its kind alone is shown: written wrong, it may have a password anywhere.
    kind = parts.drivername.partition("+")[0]
    shown = place if url is None else f"this {kind} URL" if kind in KINDS else "this URL"
    if parts.drivername == "postgresql":  # the driver that the extra `postgres` installs
        parts = parts.set(drivername="postgresql+psycopg")
    kept: dict[str, Any] = {"pool_pre_ping": True}  # a connection that a restart has cut is made anew
    if parts.get_backend_name() == "sqlite":
        kept = {"connect_args": {"timeout": 60}}
    elif parts.get_backend_name() == "postgresql":
        kept["connect_args"] = {"connect_timeout": 10}
    plain = parts.render_as_string(hide_password=False)
    base = _or_refused(
        lambda: optuna.storages.RDBStorage(plain, engine_kwargs=kept),
        f"storage must be {example} that can be opened; {shown} cannot",
    )
    try:
        yield base
    finally:
        base.remove_session()
        base.engine.dispose()


def _or_refused(make: Callable[[], Any], message: str) -> Any:
    try:
        return make()
    except ModuleNotFoundError as error:
        missing = "pip install 'engramma[postgres]'" if error.name == "psycopg" else f"no module {error.name}"
        raise ValueError(f"{message} ({missing})") from None
    except Exception as error:
        # Drivers raise errors of every kind; their own text may hold the URL, and with it a password.
        raise ValueError(f"{message} ({type(error).__name__})") from None


def patiently(step: Callable[[], T]) -> T:
    """`step()`, again and again while the database does not answer; given up after PATIENCE seconds.

    So a step must do no harm when done twice. An error's own text is not shown: it may hold a password.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DBAPIError, PendingRollbackError

    since = None
    while True:
        try:
            return step()
        except (DBAPIError, PendingRollbackError, StorageInternalError) as error:
            if since is None:
                since = time.monotonic()
                log.warning("the storage does not answer: waiting for it")
            if time.monotonic() - since > PATIENCE:
                raise OSError(
                    f"the storage has not answered for {PATIENCE:g} s ({type(error).__name__}); the trials "
                    "so far are kept there, and when it runs again the same command goes on from there"
                ) from None
            time.sleep(0.2)
