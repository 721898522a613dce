"""An experiment: the full description of one run, which is one replica. Validated, frozen, hashed.

What is not in it (device, kernel, folders, how often to draw a curve) does not change what the numbers mean.
A description is read without PyTorch, which takes seconds to import.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from engramma.checks import (
    LARGE,
    check_data,
    complete,
    explain,
    interaction_class,
    loss_class,
    method_class,
    shown,
    stream_class,
)

VARYING = ("seed", "strength", "learning_rate", "initial_temperature", "final_temperature")
# What hangs on the classes of a stream and a method, which may be one's own.
OWN = ("stream", "data", "autoassociative", "method", "settings", "strength")

COLDEST, HOTTEST = 1e-6, 1e6  # wide apart as they may be, what lies between two is never rounded to 0

# TOML has no null: "none" stands for it.
Optional = BeforeValidator(lambda value: None if value == "none" else value)


def _batch(value: Any) -> Any:
    if value in (None, "none"):
        return None
    if value == "all" or (type(value) is int and value >= 1):
        return value
    raise ValueError(f"batch_size must be a whole number of 1 or more, all, or none, not {shown(value)}")


def _temperature(value: Any, info: ValidationInfo) -> Any:
    if value == "auto" or (type(value) in (int, float) and COLDEST <= value <= HOTTEST):
        return value if value == "auto" else float(value)
    allowed = f"between {COLDEST:g} and {HOTTEST:g}, or auto"
    raise ValueError(f"{info.field_name} must be {allowed}, not {shown(value)}")


Temperature = Annotated[float | str, BeforeValidator(_temperature)]


def setting(default: Any, panel: str, description: str, **limits: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"panel": panel}, **limits)


class Experiment(BaseModel):
    """One run: one replica, of one seed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    data: str = setting(
        "mnist",
        "Tasks",
        "mnist, digits, states, the path of an .npz with arrays x and y, or a folder of IDX files",
    )
    stream: str = setting(
        "permuted",
        "Tasks",
        "how tasks are made of the data: permuted, rotated, split, domains, states, or your own "
        "./file.py:Class",
    )
    tasks: int = setting(5, "Tasks", "how many, one after another", ge=1, le=1000)
    items: int = setting(10_000, "Tasks", "items a task, training and test", ge=1, lt=2**31)
    order: Annotated[list[int] | None, Optional] = setting(
        None, "Tasks", "which task each one is, [0, 1, 0] where the first comes again; none: all differ"
    )
    test_share: float = setting(0.2, "Tasks", "share of the items set aside for testing", gt=0, lt=1)
    fraction: float = setting(1.0, "Tasks", "share of the pixels that a permutation moves", ge=0, le=1)
    angle: float = setting(15.0, "Tasks", "degrees from one rotated task to the next")
    task_id: bool = setting(True, "Tasks", "neurons that say which task an item is of")
    threshold: Annotated[float | None, Optional] = setting(
        None, "Tasks", "a pixel above it is on; none: the data set's own, the middle of the range of yours"
    )
    binary: bool = setting(True, "Tasks", "pixels -1 or +1, or scaled between them")
    flips: int = setting(5, "Tasks", "states: neurons turned over in a probe", ge=0, le=1_000_000)
    size: int = setting(100, "Tasks", "states: neurons", ge=1, le=1_000_000)

    vertex: float = setting(2.0, "Network", "n of the interaction function", ge=1e-6, le=1e6)
    interaction: str = setting(
        "leaky",
        "Network",
        "x^n where x > 0; elsewhere a leak, 0, or x^n: leaky, rectified, polynomial; exp(n (x - 1)): "
        "exponential; or your own ./file.py:Class",
    )
    leak: float = setting(0.01, "Network", "slope of the leaky interaction below 0", ge=-LARGE, le=LARGE)
    recall_leak: Annotated[float | None, Optional] = setting(
        None,
        "Network",
        "that slope when items are tested and probes relax; none: as when it learns",
        ge=-LARGE,
        le=LARGE,
    )
    memories: int = setting(512, "Network", "how many", ge=1, le=1_000_000)
    spread: float = setting(0.1, "Network", "standard deviation of the initial memories", gt=0, le=LARGE)
    loss: str = setting("squared", "Network", "squared: (t - tanh o)^2; or your own ./file.py:Class")
    autoassociative: bool = setting(
        False, "Network", "every neuron is learned; so it is for states, only there"
    )

    method: str = setting(
        "vanilla", "Method", "by name (`engramma info` lists them), or your own ./file.py:Class"
    )
    settings: dict[str, Any] = setting({}, "Method", "the method's other settings")
    strength: Annotated[float | None, Optional] = setting(
        None,
        "Method",
        "its lambda or its proportion; none: the paper's lambda, where it has one",
        ge=0,
        le=LARGE,
    )

    learning_rate: float = setting(0.1, "Training", "at the start of each task", gt=0, le=LARGE)
    decay: float = setting(0.999, "Training", "of the learning rate, each epoch", gt=0, le=1)
    momentum: float = setting(0.6, "Training", "share of the last step kept", ge=0, lt=1)
    initial_temperature: Temperature = setting(
        0.875, "Training", "1/beta at the start of each task; auto: what suits n and the memories that learn"
    )
    final_temperature: Temperature = setting(0.875, "Training", "1/beta at its end; auto: the same")
    epochs: int = setting(500, "Training", "of each task", ge=1, le=1_000_000_000)
    batch_size: Annotated[int | str | None, BeforeValidator(_batch)] = setting(
        "all", "Training", "items a step; all, rehearsed ones too; none: as many as a task has"
    )
    clamp: Annotated[float | None, Optional] = setting(
        1.0, "Training", "largest weight but of class neurons; none: no limit", gt=0, le=LARGE
    )
    normalise: Literal["mean", "velocity", "gradient"] = setting(
        "mean",
        "Training",
        "scaled for each memory: gradients, of which the step is a running mean (or a sum: gradient), "
        "or their velocity",
    )
    dtype: Literal["float64", "float32", "mixed"] = setting(
        "float64", "Training", "precision; mixed: memories float64, the work on items in less"
    )
    seed: int = setting(0, "Training", "of the data, the initial memories and all chance", ge=0, lt=2**63)
    fork: str | None = Field(  # continued from the end of a task of another run
        default=None, description="run@task this run continues", pattern=r"^[0-9a-f]{20}@\d{1,3}$"
    )

    if not TYPE_CHECKING:  # which knows the settings by their names

        def __init__(self, /, **settings: Any) -> None:
            """Errors are one line: setting, allowed, given."""
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise ValueError(explain(error, list(type(self).model_fields))) from None
            self.__dict__["_told"] = settings

    @model_validator(mode="wrap")
    @classmethod
    def _say_the_rest(cls, given: Any, read: Callable[[Any], Experiment]) -> Experiment:
        """With what suits the stream and the method, where nothing is said of it."""
        if not isinstance(given, dict):
            return read(given)
        names = [str(given.get(key, cls.model_fields[key].default)) for key in ("stream", "method")]
        if any(":" in name for name in names):  # of one's own: imported when all else is right
            read({k: v for k, v in given.items() if k not in OWN})
        stream, method = stream_class(names[0]), method_class(names[1])
        told = {"data": stream.sources[0], "autoassociative": stream.autoassociative, **stream.suits}
        if given.get("data") == "digits":
            told["items"] = (
                300 if names[0] in ("split", "domains") else 1000
            )  # it has no 10,000, nor 1,000 of two digits
        return read({**told, **method.suits, **given})

    @model_validator(mode="after")
    def _fits_together(self) -> Experiment:
        check_data(self.stream, self.data)
        stream_class(self.stream).check(dict(self))
        interaction_class(self.interaction)
        loss_class(self.loss)
        if self.recall_leak is not None and self.interaction != "leaky":
            raise ValueError("recall_leak must be left out: only the leaky interaction has a leak")
        # The description holds every setting of the method: one that changes its defaults later is another.
        full, strength = complete(self.method, self.settings, self.strength, self.vertex)
        object.__setattr__(self, "settings", full)
        object.__setattr__(self, "strength", strength)
        return self

    def describe(self) -> dict[str, Any]:
        """Every setting; `read` makes the experiment of it again."""
        return self.model_dump()

    def canonical(self, *without: str) -> str:
        return canonical({k: v for k, v in self.describe().items() if k not in without})

    def hash(self) -> str:
        """SHA-256 of the description; a run's folder has the first 20 digits as its name."""
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        return digest(self.describe())

    def __hash__(self) -> int:
        return hash(self._digest)

    @property
    def name(self) -> str:
        return self.hash()[:20]

    def family(self) -> str:
        """What experiments must share to be trained together, as replicas."""
        after = self.fork.partition("@")[2] if self.fork else ""
        return self.canonical(*VARYING, "fork") + after

    def grid(self, **lists: Any) -> list[Experiment]:
        """Every combination of the values listed, each as if it had been written out: what was left to be
        chosen here is chosen anew. All of the first seed, then all of the next."""
        names = sorted(lists, key=lambda name: name != "seed")
        for name in names:
            many = lists[name].tolist() if hasattr(lists[name], "tolist") else lists[name]
            lists[name] = (
                [many] if isinstance(many, str | dict) or not isinstance(many, Iterable) else list(many)
            )
            if not lists[name]:
                raise ValueError(f"{name} must be at least one value")
        told: dict[str, Any] = self.__dict__["_told"]
        points = itertools.product(*(lists[name] for name in names))
        return [Experiment(**{**told, **dict(zip(names, point, strict=True))}) for point in points]

    def but(self, **changes: Any) -> Experiment:
        """The same with other settings, checked again."""
        return read({**self.model_dump(), **changes})


def canonical(description: dict[str, Any]) -> str:
    """A description as the one text that is hashed."""
    return json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(description: dict[str, Any]) -> str:
    """The hash of a description, whatever version of the package wrote it."""
    return hashlib.sha256(canonical(description).encode()).hexdigest()


def read(*parts: dict[str, Any]) -> Experiment:
    """An experiment from settings, later parts winning. Errors are one line: setting, allowed, given."""
    merged = {key: value for part in parts for key, value in part.items()}
    return Experiment(**merged)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, as they stand there."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is not valid TOML: nested too deeply") from None
    except ValueError as error:  # not TOML, not text, or a number of thousands of digits
        raise ValueError(f"{path} is not valid TOML: {error}") from None
