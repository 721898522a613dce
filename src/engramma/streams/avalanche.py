"""A stream as a benchmark of Avalanche, for the strategies and plugins of that library."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import TensorDataset

from engramma.network import Items
from engramma.streams.pixels import ClassStream


def to_avalanche(stream: ClassStream) -> Any:
    """The tasks of a stream of one seed as a benchmark of Avalanche (avalanche-lib 0.6).

    An experience is a task. Items are floats, -1 and +1 or greys between them: (1, height, width) of images,
    (features,) of other data, without the neurons of task and class. Classes are numbered from 0; every
    experience has its own task label where the stream's items say their task, else all have 0.
    """
    if not isinstance(stream, ClassStream):
        raise ValueError(f"stream must be of classes, not a {type(stream).__name__}")
    if len(stream.replicas.rows) != 1:
        raise ValueError(f"stream must be of one seed, not of {len(stream.replicas.rows)}")
    try:
        from avalanche.benchmarks import (  # type: ignore[import-not-found]
            benchmark_from_datasets,
            with_classes_timeline,
            with_task_labels,
        )
        from avalanche.benchmarks.utils import (  # type: ignore[import-not-found]
            AvalancheDataset,
            DataAttribute,
        )
    except ImportError as error:
        raise ValueError(
            f"avalanche must be installed for this: pip install avalanche-lib ({error})"
        ) from None
    shape = (1, *stream.dataset.shape) if stream.dataset.shape else (stream.pixels,)

    def told(items: Items, task: int) -> Any:
        x = items.probe[0, :, : stream.pixels].to("cpu", torch.float32).reshape(-1, *shape)
        y = items.target[0].argmax(-1).cpu()
        labels = [task if stream.task_id else 0] * len(y)
        about = [
            DataAttribute(y.tolist(), "targets"),
            DataAttribute(labels, "targets_task_labels", use_in_getitem=True),
        ]
        return AvalancheDataset([TensorDataset(x, y)], data_attributes=about)

    tasks = [stream[task] for task in range(stream.tasks)]
    parts = {
        "train": [told(task.train, task.index) for task in tasks],
        "test": [told(task.test, task.index) for task in tasks],
    }
    return with_task_labels(with_classes_timeline(benchmark_from_datasets(**parts)))
