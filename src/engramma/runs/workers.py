"""Workers of a cluster: what is asked of them before they work, and what they do."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.metadata
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import engramma
from engramma.experiment import read
from engramma.runs import study
from engramma.runs.options import Options, device_for
from engramma.runs.planning import CPU_SHARE, free_memory
from engramma.runs.study import Work
from engramma.store.claims import part
from engramma.store.records import Store

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger("engramma")


class Crowd(NamedTuple):
    """The workers that are there, as far as packs are planned for them."""

    workers: int
    device: str  # cpu, or cuda where a worker offers a GPU
    room: int  # bytes that a pack may use on any of them


def ready(client: Client, store: Store, device: str) -> Crowd:
    """Wait for the first worker, and see that every worker there can do the work."""
    if not client.nthreads():
        log.warning("no worker has come to the scheduler yet: waiting for the first")
        while not client.nthreads():
            time.sleep(0.2)
    told = client.scheduler_info()["workers"]
    offers = {name for name, about in told.items() if about.get("resources", {}).get("GPU")}
    if device == "auto":
        device = "cuda" if offers else "cpu"
    if device.startswith("cuda") and not offers:
        raise ValueError("device must be auto or cpu: no worker offers a GPU (dask worker --resources GPU=1)")
    device = "cuda" if device.startswith("cuda") else "cpu"
    used = sorted(offers) if device == "cuda" else sorted(told)
    for name in used:
        if (threads := told[name]["nthreads"]) != 1:
            raise ValueError(
                f"worker {name} must run one pack at a time: start it with --nthreads 1, not {threads} "
                "(--nworkers for more of them)"
            )
    _same_versions(client, used)
    probe = part(store.claims)
    probe.write_text(store.owner)
    try:
        with said("look at the store"):
            asked = (str(probe.resolve()), store.owner, device)
            found: Any = client.run(examine, *asked, workers=used)
    finally:
        probe.unlink(missing_ok=True)
    for name, about in found.items():
        same_source(name, about["source"], source())
        if about["store"]:
            raise ValueError(
                "store must be a folder that every worker sees at the same path and can write; "
                f"worker {name} does not ({store.path.resolve()}: {about['store']})"
            )
    limits = [CPU_SHARE * told[name]["memory_limit"] for name in used if told[name]["memory_limit"]]
    rooms = [about["room"] for about in found.values()]
    return Crowd(len(used), device, int(min(rooms + limits * (device == "cpu"))))


def _same_versions(client: Client, workers: list[str]) -> None:
    """Asked with functions of Python alone, which a worker has whatever else is wrong with it."""
    version = importlib.metadata.version
    for what in ("engramma", "torch"):
        here = version(what).partition("+")[0]
        told: Any = client.run(version, what, workers=workers, on_error="return")
        for name, there in told.items():
            if not isinstance(there, str):
                raise ValueError(f"worker {name} must have {what} {here}: it has none")
            if there.partition("+")[0] != here:
                raise ValueError(f"worker {name} must have {what} {here}, as here: it has {there}")
    here = platform.python_version()
    told = client.run(platform.python_version, workers=workers)
    for name, there in told.items():
        if there.split(".")[:2] != here.split(".")[:2]:
            raise ValueError(f"worker {name} must have Python {here}, as here: it has {there}")


def same_source(worker: str, there: str, here: str) -> None:
    if there != here:
        raise ValueError(f"worker {worker} must have the same engramma as here: its source is another")


@functools.cache
def source() -> str:
    """What the package is, to the letter: two that say the same version may still differ."""
    folder = Path(engramma.__file__).parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml"))
    told = b"".join(str(p.relative_to(folder)).encode() + b"\0" + p.read_bytes() for p in files)
    return hashlib.sha256(told).hexdigest()


@contextmanager
def said(what: str) -> Iterator[None]:
    """What went wrong on a worker, in one line; an error in the package itself is shown as it is."""
    from distributed import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise OSError(
            f"workers could not {what}: {error.allowed_failures + 1} of them ended with it in hand; the last "
            "one's log may say why (too little memory?)"
        ) from None
    except (ValueError, OSError, MemoryError, ImportError) as error:
        text = f"a worker could not {what}: {error}"
        raise (MemoryError if isinstance(error, MemoryError) else ValueError)(text) from None


# What follows runs on the workers.


def examine(probe: str, token: str, device: str) -> dict[str, Any]:
    """What a worker is, and what it sees of the store: why not, where it does not."""
    fault = ""
    try:
        if Path(probe).read_text() != token:
            fault = "another folder"
        elif not os.access(Path(probe).parent, os.W_OK):
            fault = "not to be written"
    except OSError as error:
        fault = error.strerror or type(error).__name__
    return {"source": source(), "store": fault, "room": free_memory(device_for(device))}


@functools.cache
def keep_freed() -> None:
    """Have the C library keep freed memory for the next step, as it does in a process of one thread.

    Dask has it give back whatever is above 64 kB, and to threads beside the first it maps large arrays
    anew each time: a third of the worker's time went into clearing pages. (glibc alone; sizes in bytes.)
    """
    if platform.libc_ver()[0] == "glibc":
        trim, large = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        library = ctypes.CDLL(None)
        library.mallopt(trim, 1 << 29)
        library.mallopt(large, 1 << 25)


def check(told: list[dict[str, Any]], options: dict[str, Any]) -> None:
    """See that data, settings and device fit together where the work is done."""
    study.check([read(each) for each in told], Options(**options))


def train(
    told: list[dict[str, Any]], store: str, origin: str, options: dict[str, Any], number: int, topic: str
) -> int:
    """Run a pack; how many of its runs were trained. Told on the way: how far it is, once a second."""
    from distributed import get_worker

    keep_freed()
    me, last = get_worker(), time.monotonic()
    same_source(me.address, source(), origin)

    def say(work: Work) -> None:
        nonlocal last
        if time.monotonic() - last > 1.0:
            last = time.monotonic()
            me.log_event(topic, (number, work.done))

    pack = [read(each) for each in told]
    return len(study.help_out(pack, Store(store), Options(**options), Work(on_change=say)))
