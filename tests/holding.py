"""Work held in the middle, so that a test can strike just then, on a machine of any speed.

A process under test sets this up (`dask worker --preload`, or by calling it). While <store>/hold is there,
it waits after the next epoch it trains, as soon as the store has as many records as the file says.
"""

from __future__ import annotations

import time
from typing import Any

from engramma.experiment import Experiment
from engramma.runs import study
from engramma.runs.options import Options
from engramma.runs.pack import run_pack
from engramma.store.records import Store


def hold(store: Store, records: int = 0) -> None:
    store.path.mkdir(parents=True, exist_ok=True)
    (store.path / "hold").write_text(f"{records}\n")


def let_go(store: Store) -> None:
    (store.path / "hold").unlink(missing_ok=True)


def _held(store: Store) -> bool:
    try:
        text = (store.path / "hold").read_text()
    except FileNotFoundError:
        return False
    return not text.endswith("\n") or len(store) >= int(text)


def run_held(experiments: list[Experiment], store: Store, options: Options, tick: Any, *more: Any) -> Any:
    def wait(*moment: Any) -> None:
        while _held(store):
            time.sleep(0.01)
        tick(*moment)

    return run_pack(experiments, store, options, wait, *more)


def dask_setup(worker: Any = None) -> None:
    study.run_pack = run_held
