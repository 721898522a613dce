"""Studies on a real Dask cluster, and what is left of them when one of its processes is killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs Dask: pip install engramma[cluster]")

from cluster_parts import SOURCE, Parts, environment, kill, owners
from holding import hold, let_go
from test_study import same
from typer.testing import CliRunner

from engramma.cli import app
from engramma.experiment import Experiment, read
from engramma.runs import cluster, study, workers
from engramma.runs.options import Options
from engramma.runs.planning import plan
from engramma.runs.study import Work
from engramma.search.spaces import strength_search
from engramma.search.tune import tune
from engramma.store.records import Store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")

SIZES = ["--data", "states", "--stream", "states", "--size", "40", "--memories", "8", "--epochs", "20"]


# To recall states takes longer than to learn them.
SELDOM, AUTO = (Options(device=name, curve_every=75) for name in ("cpu", "auto"))


def grid() -> list[Experiment]:
    small: dict[str, Any] = {"data": "states", "stream": "states", "tasks": 3, "size": 16, "epochs": 150}
    return [
        read(small, {"memories": 8, "items": 5, "method": method, "vertex": n, "seed": seed})
        for method in ("vanilla", "si")
        for n in (2.0, 5.0)
        for seed in (0, 1)
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    study.run(grid(), store, SELDOM)
    return store


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path / "cluster")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """A cluster for tests that leave it as it was: two workers, the first of which offers a GPU."""
    made = Parts(tmp_path_factory.mktemp("standing"))
    made.start_scheduler()
    made.start_workers(1, "--name", "gpu", "--resources", "GPU=1")
    made.start_workers(1, "--name", "cpu")
    yield made
    made.stop()


def complete(store: Store, undisturbed: Store) -> None:
    """Every run once, equal to what nobody disturbed, and nothing left lying about."""
    study.tidy(store)  # as whoever works on the store next would
    found, expected = {r.name: r for r in store}, {r.name: r for r in undisturbed}
    assert found.keys() == expected.keys()
    assert all(same(found[name], expected[name]) for name in found)
    assert not (store.path / "set-aside").exists()
    assert not list(store.checkpoints.glob("*"))
    assert not list(store.path.rglob(".tmp-*"))
    assert not list(store.claims.glob("*.lock"))


def once(do: Callable[[], bool]) -> Work:
    """Call `do` while the study runs, until it says that it has done it."""
    done = []
    return Work(on_change=lambda _: done or (do() and done.append(1)))


def test_a_worker_killed_mid_run_is_made_up_for(standing: Parts, tmp_path: Path, undisturbed: Store) -> None:
    store = Store(tmp_path / "store")
    (victim,) = standing.start_workers(1)
    hold(store)

    def strike() -> bool:
        if victim.pid in owners(store):  # it has runs in hand
            kill(victim)
            let_go(store)
            return True
        return False

    with cluster.joined(standing.address) as client:
        client.wait_for_workers(3)
        outcome = cluster.run(grid(), store, client, SELDOM, once(strike))
    assert victim.poll() is not None
    assert [r.name for r in outcome.records] == [e.name for e in grid()]
    complete(store, undisturbed)


def test_a_scheduler_killed_is_said_and_the_study_goes_on_with_another(
    parts: Parts, standing: Parts, tmp_path: Path, undisturbed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 3.0)
    store = Store(tmp_path / "store")
    scheduler = parts.start_scheduler()
    (worker,) = parts.start_workers(1)
    hold(store, 1)

    def strike() -> bool:
        if len(store) and owners(store):
            kill(scheduler)
            return True
        return False

    with (
        pytest.raises(OSError, match=r"the scheduler was lost; .* the same command goes on"),
        cluster.joined(parts.address) as client,
    ):
        cluster.run(grid(), store, client, AUTO, once(strike))
    assert 0 < len(store) < len(grid())
    before = set(store.names())
    let_go(store)
    with cluster.joined(standing.address) as client:
        outcome = cluster.run(grid(), store, client, SELDOM)
    assert outcome.found >= len(before)
    worker.wait(60)  # it has seen that its scheduler is gone
    complete(store, undisturbed)


@pytest.mark.slow
def test_a_scheduler_that_comes_back_is_gone_on_with(
    parts: Parts, tmp_path: Path, undisturbed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 30.0)
    store = Store(tmp_path / "store")
    scheduler = parts.start_scheduler()
    parts.start_workers(1)
    hold(store, 1)

    def strike() -> bool:
        if len(store) and owners(store):
            kill(scheduler)
            let_go(store)
            parts.start_scheduler(port)
            parts.start_workers(1)
            return True
        return False

    with cluster.joined(parts.address) as client:
        assert client.scheduler is not None
        port = int(client.scheduler.address.rpartition(":")[2])
        outcome = cluster.run(grid(), store, client, AUTO, once(strike))
    assert len(outcome.records) == len(grid())
    assert parts.scheduler is not scheduler
    complete(store, undisturbed)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_over_tls_with_certificates_from_the_environment(tmp_path: Path, undisturbed: Store) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=cluster -keyout"
    subprocess.run([*make.split(), str(key), "-out", str(certificate)], check=True, capture_output=True)
    told = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
    told["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(certificate)
    for who in ("SCHEDULER", "WORKER", "CLIENT"):
        told[f"DASK_DISTRIBUTED__COMM__TLS__{who}__KEY"] = str(key)
        told[f"DASK_DISTRIBUTED__COMM__TLS__{who}__CERT"] = str(certificate)
    parts = Parts(tmp_path / "cluster", **told)
    try:
        parts.start_scheduler(protocol="tls")
        parts.start_workers(1, "--protocol", "tls")
        address = json.loads(Path(parts.address).read_text())["address"]
        assert address.startswith("tls://")
        line = [sys.executable, "-W", "ignore", "-c", COORDINATOR, address, str(tmp_path / "store")]
        line += [str(Path(__file__).parent)]
        subprocess.run(line, env={**environment(), **told}, check=True, capture_output=True)
        complete(Store(tmp_path / "store"), undisturbed)
        without = subprocess.run(line, env=environment(), check=False, capture_output=True, text=True)
        assert "no scheduler answers at tls://" in without.stderr
    finally:
        parts.stop()


COORDINATOR = """
import sys
sys.path.insert(0, sys.argv[3])
from test_cluster import SELDOM, grid
from engramma.runs import cluster
from engramma.store.records import Store
with cluster.joined(sys.argv[1]) as client:
    print("ran", cluster.run(grid(), Store(sys.argv[2]), client, SELDOM).ran)
"""


def test_a_coordinator_killed_and_started_again(standing: Parts, tmp_path: Path, undisturbed: Store) -> None:
    store = Store(tmp_path / "store")
    hold(store, 1)
    line = [sys.executable, "-W", "ignore", "-c", COORDINATOR]
    line += [standing.address, str(store.path), str(Path(__file__).parent)]
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL)
    while process.poll() is None and not (len(store) and owners(store)):
        time.sleep(0.01)
    assert process.poll() is None
    process.kill()
    process.wait()
    assert len(store) < len(grid())
    let_go(store)
    with cluster.joined(standing.address) as client:
        outcome = cluster.run(grid(), store, client, SELDOM)
    assert 0 < outcome.found < len(grid())
    complete(store, undisturbed)


def test_a_worker_with_another_version_is_named_before_anything_is_sent(parts: Parts, tmp_path: Path) -> None:
    old = tmp_path / "old" / "engramma-0.0.9.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: engramma\nVersion: 0.0.9\n")
    # One that says the same version, and yet is not the same.
    altered = tmp_path / "altered"
    shutil.copytree(Path(SOURCE) / "engramma", altered / "engramma")
    with (altered / "engramma" / "measures.py").open("a") as file:
        file.write("\n# as somebody left it\n")
    parts.start_scheduler()
    (worker,) = parts.start_workers(1, before=(str(old.parent),))
    store = Store(tmp_path / "store")
    with cluster.joined(parts.address) as client:
        with pytest.raises(
            ValueError, match=r"worker tcp://\S+ must have engramma \S+, as here: it has 0.0.9"
        ):
            cluster.run(grid(), store, client, AUTO)
        kill(worker)
        parts.start_workers(1, before=(str(altered),))
        with pytest.raises(ValueError, match=r"worker tcp://\S+ must have the same engramma as here"):
            cluster.run(grid(), store, client, AUTO)
        # And one that comes when all others were found in order.
        with pytest.raises(ValueError, match=r"could not run .* must have the same engramma as here"):
            cluster._send(client, [grid()[:1]], order(store), {}, Work())
    assert len(store) == 0


def order(store: Store) -> dict[str, Any]:
    return {"store": str(store.path), "origin": workers.source(), "options": SELDOM.told()}


def test_workers_must_see_the_store_and_run_one_pack_at_a_time(parts: Parts, tmp_path: Path) -> None:
    parts.start_scheduler()
    parts.start_workers(1, "--nthreads", "2", "--name", "wide")
    store = Store(tmp_path / "store").open()
    with cluster.joined(parts.address) as client:
        with pytest.raises(ValueError, match="one pack at a time: start it with --nthreads 1, not 2"):
            cluster.ready(client, store, "auto")
        with pytest.raises(ValueError, match="no worker offers a GPU"):
            cluster.ready(client, store, "cuda")
    probe = tmp_path / "probe"
    probe.write_text("mine")
    assert workers.examine(str(probe), "mine", "cpu")["store"] == ""
    assert workers.examine(str(probe), "another's", "cpu")["store"] == "another folder"
    assert "No such file" in workers.examine(str(tmp_path / "nowhere"), "mine", "cpu")["store"]


def test_a_pack_for_a_gpu_goes_only_where_one_is_offered(standing: Parts, tmp_path: Path) -> None:
    store = Store(tmp_path / "store").open()
    with cluster.joined(standing.address) as client:
        client.wait_for_workers(2)

        def done(dask_worker: Any) -> tuple[str, int]:
            """Who a worker is, and how many tasks it has carried out."""
            return dask_worker.name, dask_worker.state.executed_count

        before = dict(client.run(done).values())
        packs = plan(grid(), "cpu")[:3]
        assert cluster._send(client, packs, order(store), {"resources": {"GPU": 1}}, Work()) == 6
        after = dict(client.run(done).values())
    assert after["gpu"] - before["gpu"] == 3
    assert after["cpu"] == before["cpu"]


def test_what_is_wrong_with_the_runs_is_said_in_one_line_by_a_worker(standing: Parts, tmp_path: Path) -> None:
    too_many = read({"data": "digits", "items": 100_000, "epochs": 2})
    with (
        cluster.joined(standing.address) as client,
        pytest.raises(ValueError, match="a worker could not check the settings: items must be"),
    ):
        cluster.run([too_many], Store(tmp_path / "store"), client, Options())


def test_a_search_on_a_cluster_is_that_without_one(standing: Parts, tmp_path: Path) -> None:
    states = {"data": "states", "stream": "states", "size": 16, "items": 5, "memories": 4, "epochs": 10}
    search = strength_search(read(states, {"method": "ewc"}), "demo", (1000, 1001), 11)
    search = replace(search, batch=4)
    (here,) = tune([search], Store(tmp_path / "here"))
    line = [
        "tune",
        "--data",
        "states",
        "--stream",
        "states",
        "--size",
        "16",
        "--items",
        "5",
        "--memories",
        "4",
    ]
    line += ["--epochs", "10", "--method", "ewc", "--vertices", "2", "--trials", "2", "--seeds", "1"]
    line += ["--store", str(tmp_path / "line"), "--device", "cpu"]
    line += ["--out", str(tmp_path / "chosen.toml"), "--figures", str(tmp_path / "figures")]
    refused = engramma(*line, "--cluster", standing.address, "--prune")
    assert refused.exit_code == 2
    assert "prune must be left out with a cluster" in refused.stderr
    with cluster.joined(standing.address) as client:
        there = tune(
            [search],
            Store(tmp_path / "there"),
            run=partial(cluster.run, client=client),
        )[0]
    assert there.params == here.params
    assert (there.values == here.values).all()
    found = engramma(*line, "--cluster", standing.address)
    assert found.exit_code == 0, found.output
    assert (tmp_path / "chosen.toml").is_file()
    assert len(Store(tmp_path / "line")) == 2


def test_packs_are_cut_for_the_workers_but_not_those_begun(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), grid()
    packs = plan(runs, "cpu")
    cut = cluster.shares(packs, 2, "cpu", store)
    assert len(cut) == 8  # two workers, three each at least
    assert {e.name for pack in cut for e in pack} == {e.name for e in runs}
    assert len(cluster.shares(packs, 4, "cuda", store)) == 4  # enough for every GPU as it is
    assert sorted(map(len, cluster.shares(packs, 1, "cpu", store))) == [2] * 4

    class Stop(Exception): ...

    def stop(e: Experiment, replicas: int, task: int, epoch: int) -> None:
        if task == 1:
            raise Stop

    with pytest.raises(Stop):
        study.run_pack(packs[0], store, tick=stop)
    assert packs[0] in cluster.shares(packs, 4, "cpu", store)


def engramma(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_a_cluster_of_its_own_for_one_command(tmp_path: Path) -> None:
    """From the command line: three seeds with two processes; then all are found."""
    store = ["--store", str(tmp_path / "store")]
    result = engramma("run", *SIZES, *store, "--seeds", "3", "--cluster", "local:2")
    assert result.exit_code == 0, result.output
    assert "3 runs trained, 0 found" in result.output
    here = study.run([r.experiment for r in Store(tmp_path / "store")], Store(tmp_path / "here"))
    assert all(
        same(record, found) for record, found in zip(here.records, Store(tmp_path / "store"), strict=True)
    )


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("nowhere", "cluster must be tcp://host:8786"),
        ("http://127.0.0.1:1", "cluster must be tcp://host:8786"),
        ("missing.json", "there is no file missing.json"),
        ("local:0", "cluster local:N must name how many processes, from 1 to 1024, not '0'"),
        ("local:", "cluster local:N must name how many"),
        ("tcp://127.0.0.1:1", "no scheduler answers at tcp://127.0.0.1:1"),
        ("broken.json", "broken.json is not a scheduler's file"),
        ("list.json", "list.json is not a scheduler's file"),
    ],
)
def test_a_bad_cluster_is_refused_in_one_line(
    where: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    result = engramma("run", *SIZES, "--cluster", where)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()
