"""With what runs are carried out: where, how much is kept of them, and by how many processes.

What is run is an `Experiment`. Nothing that stands here changes what its numbers mean.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from engramma.checks import near


@dataclass(frozen=True)
class Options:
    """Plain data, which goes to other processes as it is (`told`)."""

    device: str = "cpu"  # cpu, cuda or cuda:1; auto: a GPU where there is one
    kernel: str = "auto"
    data_dir: str | Path | None = None
    curve_every: int | None = None  # epochs between two points of a curve; None: 25 points a task
    keep_memories: bool = False  # in the record, after every task
    keep_checkpoints: bool = False  # to fork from
    checkpoint_share: float = 0.1  # of the time since the last one that writing a checkpoint may take
    processes: int = 1  # that share the work; 0: as many as suit it
    room: int | None = None  # bytes that packs may use; None: what is free

    @property
    def where(self) -> torch.device:
        """The device, which must be here."""
        return device_for(self.device)

    @property
    def place(self) -> tuple[torch.device, str, str | Path | None]:
        """What `build` takes of them, in its order."""
        return self.where, self.kernel, self.data_dir

    def told(self) -> dict[str, Any]:
        """As JSON has it, for another process: `Options(**told)`."""
        place = None if self.data_dir is None else str(Path(self.data_dir).resolve())
        return {**asdict(self), "data_dir": place}


def device_for(name: str) -> torch.device:
    """auto, cpu, cuda or cuda:1: the device, where there is one."""
    try:
        device = torch.device(
            "cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu")
        )
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"device must be auto, cpu or cuda, not {name!r}{near(name, ('auto', 'cpu', 'cuda'))}"
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device must be auto or cpu here: cuda was asked for, but PyTorch finds no such device"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device must be one of the {torch.cuda.device_count()} there are, not {name!r}")
    return device
