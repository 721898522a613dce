"""Searches in a real PostgreSQL: shared, interrupted, and without a word of its password anywhere."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import optuna
import pytest

pytest.importorskip("psycopg", reason="needs psycopg: pip install engramma[postgres]")

from cluster_parts import environment
from postgres_part import PASSWORD, Server, lacking, server
from test_tune import tiny
from typer.testing import CliRunner

from engramma.cli import app
from engramma.runs.study import Work
from engramma.search import storage
from engramma.search.spaces import Search
from engramma.search.tune import tune
from engramma.store.records import Store

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking() or "it is there")


@pytest.fixture(scope="module")
def base() -> Iterator[Server]:
    with server() as made:
        yield made


@pytest.fixture
def known(base: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, with what it asks for in the environment."""
    for name, value in base.environment.items():
        monkeypatch.setenv(name, value)
    return base


def trials_of(search: Search, url: str, store: Store) -> list[optuna.trial.FrozenTrial]:
    with storage.opened(url, store) as place:
        return optuna.load_study(study_name=search.name, storage=place).trials


def check(search: Search, url: str, store: Store, trials: int) -> None:
    """Every trial told once, with the mean of the records of its runs; no run that no trial tells of."""
    found = trials_of(search, url, store)
    assert [t.state.name for t in found] == ["COMPLETE"] * trials
    assert len({t.params["strength"] for t in found}) == trials
    assert sorted(run for t in found for run in t.user_attrs["runs"]) == store.names()
    for t in found:
        each = [store.get(run).average for run in t.user_attrs["runs"]]
        assert t.value == pytest.approx(np.mean(each))


def test_a_search_in_postgres_is_that_in_sqlite(known: Server, tmp_path: Path) -> None:
    search = tiny(trials=12, batch=5)
    (here,) = tune([search], Store(tmp_path / "sqlite"))
    (there,) = tune([search], Store(tmp_path / "postgres"), storage=known.url)
    assert there.params == here.params
    np.testing.assert_array_equal(there.values, here.values)


def test_stopped_and_started_mid_search(
    known: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes down at once, as in a crash, while a batch trains, and comes back a second later."""
    search, store = tiny(trials=9, batch=3, vertex=3.0, strength=1.0), Store(tmp_path)
    back: list[threading.Thread] = []

    def strike(work: Work) -> None:
        if not back and len(store) >= 6:
            known.stop()
            back.append(threading.Timer(1.0, known.start))
            back[0].start()

    with caplog.at_level(logging.WARNING, "engramma"):
        (found,) = tune([search], store, storage=known.url, watch=Work(on_change=strike))
    back[0].join()
    assert "the storage does not answer: waiting for it" in caplog.text
    assert len(found.params) == 9
    check(search, known.url, store, 9)
    (undisturbed,) = tune([search], Store(tmp_path / "undisturbed"))
    assert found.params == undisturbed.params
    np.testing.assert_array_equal(found.values, undisturbed.values)


def test_stopped_for_long_is_said_and_the_search_resumes(
    known: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "PATIENCE", 0.5)
    search, store = tiny(trials=6, batch=3, vertex=4.0, strength=1.0), Store(tmp_path)
    stopped = []

    def strike(work: Work) -> None:
        if not stopped and len(store) >= 2:
            stopped.append(True)
            known.stop()

    try:
        with pytest.raises(OSError, match=r"has not answered for 0.5 s .* the same command goes on") as error:
            tune([search], store, storage=known.url, watch=Work(on_change=strike))
    finally:
        known.start()
    assert PASSWORD not in str(error.value)
    (found,) = tune([search], store, storage=known.url)
    assert len(found.params) == 6
    check(search, known.url, store, 6)


def line(folder: Path, number: int, url: str) -> list[str]:
    text = (
        "tune --data states --stream states --items 5 --size 20 --memories 6 --epochs 12 --method ewc"
        f" --vertices 2 --seeds 1 --device cpu --trials 6 --batch 2 --storage {url}"
        f" --store {folder}/store --out {folder}/{number}.toml --figures {folder}/figures-{number}"
    )
    return [sys.executable, "-W", "ignore", "-c", "from engramma.cli import main; main()", *text.split()]


def test_many_processes_on_one_study_and_no_password_in_anything_they_leave(
    base: Server, tmp_path: Path
) -> None:
    """One knows the password from the environment, one from a service file."""
    services = tmp_path / "service.conf"
    at = f"host=127.0.0.1\nport={base.port}\ndbname=postgres\nuser=seeker\n"
    services.write_text(f"[search]\n{at}password={PASSWORD}\n")
    left = tmp_path / "left"
    left.mkdir()
    ways = [
        (base.url, base.environment),
        ("postgresql://", {"PGSERVICE": "search", "PGSERVICEFILE": str(services)}),
    ]
    crowd = []
    for number, (url, told) in enumerate(ways):
        with open(left / f"{number}.log", "wb") as log:
            crowd.append(
                subprocess.Popen(
                    line(left, number, url), env={**environment(), **told}, stdout=log, stderr=log
                )
            )
    done = [process.wait(120) for process in crowd]
    assert done == [0, 0], "".join(path.read_text() for path in sorted(left.glob("*.log")))
    store = Store(left / "store")
    assert len(store) == 6
    kept = [path for path in left.rglob("*") if path.is_file()]
    assert len(kept) > 20
    assert not [path for path in kept if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.parametrize("wrong", ["password", "base", "port"])
def test_what_refuses_does_not_show_the_password(known: Server, wrong: str, tmp_path: Path) -> None:
    url = f"postgresql://seeker:{PASSWORD}@127.0.0.1:{known.port}/postgres"
    url = {
        "password": url.replace("@", "-not@"),
        "base": url.replace("/postgres", "/nowhere"),
        "port": url.replace(str(known.port), "1"),
    }[wrong]
    result = CliRunner().invoke(app, line(tmp_path, 0, url)[5:])
    assert result.exit_code == 2
    assert "storage must be" in result.stderr
    assert PASSWORD not in result.output
