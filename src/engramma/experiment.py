"""An experiment: the full description of one run, which is one replica. Validated, frozen, hashed.

What is not in it (device, kernel, folders, how often to draw a curve) does not change what the numbers mean.
A description is read without PyTorch, which takes seconds to import.
"""

from __future__ import annotations

import functools
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from engramma.checks import LARGE, complete, explain, method_class, shown

VARYING = ("seed", "strength", "learning_rate", "initial_temperature", "final_temperature")
STATES = {"data": "states", "tasks": 2, "items": 10}  # of a stream of states, where nothing is said

COLDEST, HOTTEST = 1e-6, 1e6  # wide apart as they may be, what lies between two is never rounded to 0

# TOML has no null: "none" stands for it.
Optional = BeforeValidator(lambda value: None if value == "none" else value)


def _batch(value: Any) -> Any:
    if value in (None, "none"):
        return None
    if value == "all" or (type(value) is int and value >= 1):
        return value
    raise ValueError(f"batch_size must be a whole number of 1 or more, all, or none, not {shown(value)}")


def _temperature(value: Any) -> Any:
    if value == "auto" or (type(value) in (int, float) and COLDEST <= value <= HOTTEST):
        return value if value == "auto" else float(value)
    raise ValueError(
        f"a temperature must be between {COLDEST:g} and {HOTTEST:g}, or auto, not {shown(value)}"
    )


Temperature = Annotated[float | str, BeforeValidator(_temperature)]


def setting(default: Any, panel: str, description: str, **limits: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"panel": panel}, **limits)


class Experiment(BaseModel):
    """One run: one replica, of one seed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    data: str = setting("mnist", "Tasks", "mnist, digits, states, or the path of an .npz with arrays x and y")
    stream: Literal["permuted", "rotated", "split", "states"] = setting(
        "permuted", "Tasks", "how tasks are made of the data"
    )
    tasks: int = setting(5, "Tasks", "how many, one after another", ge=1, le=1000)
    items: int = setting(10_000, "Tasks", "items a task, training and test", ge=1, lt=2**31)
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
    interaction: Literal["leaky", "rectified", "polynomial"] = setting(
        "leaky", "Network", "x^n where x > 0; elsewhere a leak, 0, or x^n"
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
        None, description="run@task this run continues", pattern=r"^[0-9a-f]{20}@\d{1,3}$"
    )

    @model_validator(mode="before")
    @classmethod
    def _say_the_rest(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("stream") == "states":
            return {**STATES, "autoassociative": True, **given}
        if not isinstance(given, dict):
            return given
        if given.get("data") == "digits":
            given = {"items": 1000, **given}  # it has no 10,000
        cls = method_class(str(given.get("method", "vanilla")))
        return {**getattr(cls, "suits", {}), **given}

    @model_validator(mode="after")
    def _fits_together(self) -> Experiment:
        states = self.stream == "states"
        if self.autoassociative != states:
            raise ValueError("autoassociative must be true for a stream of states and false for others")
        if states != (self.data == "states") and not (states and self.data.endswith(".npz")):
            raise ValueError("data must be states (or an .npz) for a stream of states, and only for it")
        if self.data not in ("mnist", "digits", "states") and not self.data.endswith(".npz"):
            raise ValueError(
                f"data must be mnist, digits, states or the path of an .npz file, not {self.data!r}"
            )
        if self.recall_leak is not None and self.interaction != "leaky":
            raise ValueError("recall_leak must be left out: only the leaky interaction has a leak")
        if states and self.flips > self.size:
            raise ValueError(f"flips must be at most size, {self.size} neurons, not {self.flips}")
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
    try:
        return Experiment.model_validate(merged)
    except ValidationError as error:
        raise ValueError(explain(error, list(Experiment.model_fields))) from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, as they stand there."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is not valid TOML: nested too deeply") from None
    except ValueError as error:  # not TOML, not text, or a number of thousands of digits
        raise ValueError(f"{path} is not valid TOML: {error}") from None
