"""engramma info: what is installed, what it runs on, what data it finds."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated, Optional

import typer

from engramma.cli import show


def info(
    data_dir: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--data-dir", help="Folder with MNIST's files (or ENGRAMMA_DATA)."),
    ] = None,
) -> None:
    """Versions, device, kernels, methods, and the data found."""
    from importlib.metadata import PackageNotFoundError, version

    import torch
    from rich.table import Table

    from engramma import __version__, studies
    from engramma.methods import METHODS
    from engramma.runs import planning

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_row("engramma", __version__)
    table.add_row("python", f"{platform.python_version()} on {platform.platform()}")
    for name in ("torch", "numpy", "numba", "triton", "scikit-learn", "pydantic", "safetensors", "optuna"):
        table.add_row(name, installed(name))
    cores = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    table.add_row("cpu", f"{cores}, {show.size(planning.free_memory('cpu'))} for packs")
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            free = show.size(planning.free_memory(f"cuda:{i}"))
            table.add_row(f"cuda:{i}", f"{torch.cuda.get_device_name(i)}, {free} for packs")
    else:
        table.add_row("cuda", "none found")
    table.add_row("kernels", _kernels())
    table.add_row("methods", ", ".join(METHODS))
    table.add_row("studies", f"{len(studies.names())} (engramma reproduce --list)")
    table.add_row("data: digits", "ships with scikit-learn")
    table.add_row("data: mnist", _mnist(data_dir))
    show.out.print(table)


def _kernels() -> str:
    import torch

    from engramma.kernels import kernel_for

    found = [f"{kernel_for('cpu').name} (cpu)"]
    if torch.cuda.is_available():
        found.append(f"{kernel_for('cuda').name} (cuda)")
    return ", ".join(found)


def _mnist(data_dir: Path | None) -> str:
    """Where MNIST is, without fetching it."""
    from engramma.streams.datasets import MNIST, DataError, mnist_folder

    if data_dir or os.environ.get("ENGRAMMA_DATA"):
        try:
            return f"{mnist_folder(data_dir)}, checksums right"
        except DataError as error:
            return str(error)
    import pooch

    cache = pooch.os_cache("engramma") / "mnist"
    there = all((cache / file).is_file() for file in MNIST)
    return str(cache) if there else "not here yet: fetched when first used"
