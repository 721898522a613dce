"""Experiments: every setting checked, one line of explanation, a hash that says what was run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engramma import checks
from engramma.experiment import VARYING, Experiment, read, read_toml
from engramma.methods import AGEM, METHODS, Method, Penalty
from engramma.optimiser import ORDERS
from engramma.paper import numbers as paper
from engramma.runs import study
from engramma.runs.options import Options
from engramma.runs.setup import build
from engramma.store.records import Store

LAMBDAS = sorted(paper.reference()["lambda"])

positive = st.floats(1e-6, 1e6)
share = st.floats(0, 1)
valid = st.fixed_dictionaries(
    {},
    optional={
        "data": st.sampled_from(["mnist", "digits", "mine.npz"]),
        "stream": st.sampled_from(["permuted", "rotated", "split"]),
        "tasks": st.integers(1, 20),
        "items": st.integers(1, 70_000),
        "fraction": share,
        "angle": st.floats(-360, 360),
        "task_id": st.booleans(),
        "threshold": st.one_of(st.none(), st.floats(-10, 10)),
        "vertex": positive,
        "interaction": st.sampled_from(["leaky", "rectified", "polynomial"]),
        "memories": st.integers(1, 10_000),
        "method": st.sampled_from(sorted(METHODS)),
        "learning_rate": positive,
        "decay": st.floats(0.5, 1),
        "epochs": st.integers(1, 10_000),
        "batch_size": st.one_of(st.none(), st.just("all"), st.integers(1, 10_000)),
        "normalise": st.sampled_from(ORDERS),
        "clamp": st.one_of(st.none(), positive),
        "dtype": st.sampled_from(["float64", "float32"]),
        "seed": st.integers(0, 2**63 - 1),
    },
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def strong(settings: dict[str, Any]) -> dict[str, Any]:
    """With a strength, where it must be given."""
    kind = METHODS.get(settings.get("method", "vanilla"), Method)
    return {"strength": 1.0, **settings} if issubclass(kind, Penalty) else settings


def refusal(call: Callable[[Any], Any], argument: Any) -> str | None:
    """What a call says against its argument; None where it takes it. Only a ValueError is an answer."""
    try:
        call(argument)
    except ValueError as error:
        return str(error)
    return None


@given(valid)
def test_a_description_describes_the_experiment(settings: dict[str, Any]) -> None:
    experiment = read(strong(settings))
    told = json.loads(json.dumps(experiment.describe()))
    again = read(told)
    assert again == experiment
    assert again.hash() == experiment.hash()
    assert len(experiment.name) == 20
    assert set(experiment.name) <= set("0123456789abcdef")


@given(valid, st.sampled_from(["seed", "tasks", "memories", "epochs", "items"]))
def test_other_settings_other_hash(settings: dict[str, Any], name: str) -> None:
    experiment = read(strong(settings))
    other = experiment.but(**{name: getattr(experiment, name) // 2 + 1})
    assert (other.hash() == experiment.hash()) == (getattr(other, name) == getattr(experiment, name))
    assert (other.family() == experiment.family()) == (name in VARYING or other == experiment)


@given(st.dictionaries(st.sampled_from([*Experiment.model_fields, "nonsense"]), junk, min_size=1, max_size=4))
def test_anything_else_is_one_line(settings: dict[str, Any]) -> None:
    said = refusal(read, settings)
    assert said != ""
    assert "\n" not in (said or "")


@given(st.text(max_size=60))
def test_any_file_is_read_or_refused_in_one_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.toml"
        path.write_text(text, "utf-8")
        said = refusal(read_toml, path)
        assert said is None or "not valid TOML" in said


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"memmories": 3}, "unknown setting memmories; did you mean memories"),
        ({"quux": 3}, "unknown setting quux; allowed: data"),
        ({"memories": -3}, "memories must be greater than or equal to 1, not -3"),
        ({"items": 0}, "items must be"),
        ({"vertex": 0}, "vertex must be greater than or equal to 0.000001, not 0"),
        ({"vertex": -2.0}, "vertex must be greater than or equal to"),
        ({"vertex": float("nan")}, "vertex must be a finite number"),
        ({"learning_rate": float("inf")}, "learning_rate must be a finite number"),
        ({"tasks": "five"}, "tasks must be a valid whole number, not 'five'"),
        ({"tasks": 2.5}, "tasks must be a valid whole number"),
        ({"task_id": 1}, "task_id must be a valid boolean"),
        ({"seed": -1}, "seed must be"),
        (
            {"stream": "shuffled"},
            "stream must be one of permuted, rotated, split, domains, states, package.module:Class",
        ),
        ({"method": "ewx"}, "method must be one of vanilla, .*did you mean ewc"),
        ({"method": "nowhere.at_all:Thing"}, "cannot import nowhere"),
        ({"method": "json:Thing"}, "json has no Thing"),
        ({"method": "json:dumps"}, "method json:dumps must be a class derived from engramma.Method"),
        ({"method": "json:JSONDecoder"}, "JSONDecoder must be a class derived from engramma.Method"),
        ({"stream": "json:JSONDecoder"}, "JSONDecoder must be a class derived from engramma.Stream"),
        ({"interaction": "lekay"}, "interaction must be one of leaky, .*did you mean leaky"),
        ({"interaction": "json:dumps"}, "json:dumps must be a class derived from engramma.Interaction"),
        ({"loss": "hinge"}, "loss must be one of squared, .*:Class, not 'hinge'"),
        ({"loss": "json:JSONDecoder"}, "JSONDecoder must be a class derived from engramma.Loss"),
        ({"loss": "json:Nothing"}, "loss json:Nothing: json has no Nothing"),
        (
            {"method": "ewc", "settings": {"fischer": "item"}},
            "unknown setting settings.fischer of ewc; did you mean fisher?",
        ),
        ({"method": "ewc", "settings": {"fisher": "whole"}}, "fisher must be item or batch"),
        ({"method": "ewc", "settings": {"batch": "many"}}, "batch must be a valid whole number"),
        ({"method": "ewc", "settings": {"strength": 1.0}}, "settings.strength must be given as strength"),
        ({"method": "ewc", "settings": {"batch": {1}}}, "settings must be numbers"),
        ({"method": "rehearsal", "strength": 1.5}, "proportion must be between 0 and 1"),
        ({"method": "vanilla", "strength": 1.0}, "strength must be left out for vanilla"),
        ({"method": "l2", "strength": -1.0}, "strength must be greater than or equal to 0"),
        (
            {"data": "digts"},
            "data must be mnist, digits, an .npz file or a folder .* for the stream permuted, .*mean digits",
        ),
        ({"stream": "states", "flips": 101}, "flips must be at most size"),
        ({"autoassociative": True}, "autoassociative must be"),
        ({"interaction": "rectified", "recall_leak": 0.0}, "recall_leak must be left out: only the leaky"),
        ({"fork": "../elsewhere@1"}, "fork"),
    ],
)
def test_what_is_wrong_and_what_is_allowed(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        read(settings)
    assert "\n" not in str(caught.value)


def test_the_description_is_full() -> None:
    """A method's defaults are written out, so that another default is another run."""
    assert read({"method": "rehearsal"}).strength == 0.05
    assert read({"method": "ewc"}).settings["fisher"] == "item"
    spelled = read({"method": "ewc", "settings": {"fisher": "item"}, "strength": 1})
    assert spelled.hash() == read({"method": "ewc", "strength": 1}).hash()
    assert spelled.hash() != read({"method": "ewc", "settings": {"fisher": "batch"}, "strength": 1}).hash()


@pytest.mark.parametrize("method", LAMBDAS)
def test_a_lambda_that_nobody_gave_is_the_papers_or_none(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    checks._say_lambda.cache_clear()
    for vertex in paper.vertices():
        told = {"data": "digits", "method": method, "vertex": float(vertex)}
        with caplog.at_level(logging.WARNING, "engramma"):
            runs = [read(told, {"seed": seed}) for seed in (0, 1)]
        assert {run.strength for run in runs} == {paper.chosen_lambda(method, vertex)} - {None, 1.0}
        (said,) = (r.getMessage() for r in caplog.records)  # once
        assert f"it is {runs[0].strength:g}, the paper's lambda for {method} at n = {vertex} on MNIST" in said
        caplog.clear()
        assert read(told, {"strength": 7.0}).strength == 7.0
        assert read(runs[0].describe()) == runs[0]
    for other in ({"vertex": 3.0}, {"settings": {"unit": True}}):
        with pytest.raises(ValueError, match=f"strength must be given for {method} at n = .*engramma tune"):
            read({"data": "digits", "method": method}, other)
        assert read({"data": "digits", "method": method, "strength": 1e-3}, other).strength == 1e-3
    assert not caplog.records
    assert {read({"method": m, "vertex": 3.0}).strength for m in ("rehearsal", "gem", "agem")} == {0.05}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_lambda_that_is_the_methods_own_default_is_said(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A proportion has a default that suits. A lambda fits no two problems: it is said which one it is, or
    none is taken."""
    checks._say_lambda.cache_clear()
    told = {"data": "digits", "method": method, "vertex": 3.0}
    with caplog.at_level(logging.WARNING, "engramma"):
        if issubclass(METHODS[method], Penalty):
            with pytest.raises(ValueError, match=f"strength must be given for {method} at n = 3"):
                read(told)
        else:
            run = read(told)
            assert read(run.describe()) == run
            if METHODS[method].strength_name:
                read(told, {"strength": 0.5})
    said = [record.getMessage() for record in caplog.records]
    default = {"lwf": 1, "xdg": 0}.get(method)
    expected = (
        [] if default is None else [f"strength was not given: it is {default}, the default of {method}"]
    )
    assert [line.partition(" (")[0] for line in said] == expected


def test_a_description_holds_every_setting() -> None:
    """Written out, a default changes nothing: there is one description of a run, and one name."""
    plain = read({"method": "agem"})
    assert plain.describe().keys() == Experiment.model_fields.keys()
    assert plain.settings.keys() == {f.name for f in dataclasses.fields(AGEM)} - {"proportion"}
    assert read(plain.describe()).hash() == plain.hash()
    assert read({"method": "agem", "settings": {"margin": 0.0}, "normalise": "mean"}).hash() == plain.hash()
    others = [read({"method": "agem", "settings": {"margin": 0.1}}), plain.but(normalise="gradient")]
    others += [plain.but(recall_leak=0.0)]
    assert len({plain.hash(), *(other.hash() for other in others)}) == 4
    assert all(other.family() != plain.family() for other in others)


def test_later_parts_win_and_none_is_nothing() -> None:
    assert read({"clamp": "none"}).clamp is None
    plain = {"method": "pseudorehearsal"}
    assert read(plain, {"settings": {"capacity": "none"}, "recall_leak": "none"}) == read(plain)
    with pytest.raises(ValueError, match="pairs must be homogeneous or heterogeneous, not 'none'"):
        read(plain, {"settings": {"pairs": "none"}})
    assert read({"epochs": 3}, {"epochs": 4}).epochs == 4
    assert read({"data": "digits"}).items == 1000
    for stream in ("permuted", "rotated", "split"):  # as many as there are, of two digits too
        build([read({"data": "digits", "stream": stream})])
    assert read({"stream": "states"}).autoassociative


def test_build_puts_what_differs_on_the_replica_axis() -> None:
    base = {"data": "digits", "items": 50, "memories": 3, "method": "ewc"}
    pack = [
        read(base, {"strength": s, "seed": seed, "learning_rate": 0.1}) for seed in (0, 1) for s in (1.0, 5.0)
    ]
    built = build(pack, "cpu", "reference")
    assert built.method.strength == (1.0, 5.0, 1.0, 5.0)  # type: ignore[attr-defined]
    assert built.optimiser.learning_rate == 0.1
    assert built.theta.shape == (4, 3, 79)
    assert torch.equal(built.theta[0], built.theta[1])
    assert not torch.equal(built.theta[0], built.theta[2])
    assert built.stream[0].train.probe.shape[0] == 2  # one row a seed
    with pytest.raises(ValueError, match="may differ only in"):
        build([pack[0], pack[1].but(vertex=5.0)])


def test_what_is_built_trains_as_it_was_read(tmp_path: Path) -> None:
    """Batch size too: it finds what a study finds of the same runs, and goes on where it stopped."""
    base = {"data": "digits", "items": 50, "memories": 3, "tasks": 2, "epochs": 3, "method": "rehearsal"}
    ways = [{}, {"batch_size": 15}, {"batch_size": "none"}]
    ends = []
    for told in ways:
        runs = [read(base, told, {"strength": 0.5, "seed": seed}) for seed in (0, 1)]
        setup = build(runs)
        moments = list(setup.train())
        ends.append(moments[-1].theta)
        (first,) = [m for m in moments if m.ends_task and m.task == 0]
        *_, again = setup._replace(theta=first.theta).train(resume=(1, first.state))
        assert torch.equal(again.theta, ends[-1])
        records = study.run(runs, Store(tmp_path), Options(keep_memories=True)).records
        kept = torch.stack([torch.as_tensor(r.memories(1)) for r in records])
        assert torch.equal(kept, ends[-1])
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(ends, 2))


OWN = """
from dataclasses import dataclass
from typing import ClassVar
from engramma.methods import Method

@dataclass(frozen=True)
class Damp(Method):
    strength_name: ClassVar[str] = "factor"
    factor: float | tuple[float, ...] = 0.5
    kind: str = "plain"

class Bare:
    def start(self, theta): return None
"""


def test_a_method_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_method.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = read({"data": "digits", "items": 50, "method": "own_method:Damp", "strength": 0.25})
    assert mine.settings == {"kind": "plain"}
    method = build([mine]).method
    assert isinstance(method, Method)
    assert method.factor == 0.25  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"unknown setting settings.speed of own_method:Damp; allowed: kind"):
        mine.but(settings={"speed": 3})
    with pytest.raises(ValueError, match=r"own_method:Bare must be a class derived from engramma.Method"):
        read({"method": "own_method:Bare"})
    sys.modules.pop("own_method", None)


def test_a_module_is_imported_only_where_all_else_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"^epochs must be greater than or equal to 1, not -1$"):
        read({"method": "trap:Method", "epochs": -1})
    with pytest.raises(RuntimeError, match="imported"):
        read({"method": "trap:Method"})


FILE = """
from dataclasses import dataclass
from engramma.methods import EWC, Method

@dataclass(frozen=True)
class Still(Method):
    share: float = 0.5

    def steer(self, state, now, theta, grad):
        return 0 * grad

class Stiff(EWC): ...
"""


def test_a_method_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by its path, from any folder; read back from a record only where it was named before."""
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "still.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    base = {"data": "digits", "items": 50, "memories": 2, "tasks": 2, "epochs": 2}
    run = read(base, {"method": "./methods/still.py:Still"})
    assert run.settings == {"share": 0.5}
    assert read(base, {"method": f"{tmp_path}/methods/still.py:Still"}).settings == run.settings
    store = Store(tmp_path / "runs")
    (record,) = study.run([run], store).records
    assert record.experiment == run
    with pytest.raises(ValueError, match=r"strength must be given for ./methods/still.py:Stiff at n = 2"):
        read(base, {"method": "./methods/still.py:Stiff"})
    monkeypatch.delitem(sys.modules, str(tmp_path / "methods" / "still.py"))
    with pytest.raises(ValueError, match="method of one's own: name it"):
        _ = store.get(run.name).experiment
    assert read(base, {"method": "./methods/still.py:Still"}) == store.get(run.name).experiment == run


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./gone.py:Still", "method ./gone.py:Still: there is no file .*gone.py"),
        ("./still.py:Stilll", "method ./still.py:Stilll: ./still.py has no Stilll"),
        ("./still.py:", "method ./still.py:: ./still.py has no"),
        ("./still:Still", "a file must be named with its ending, ./still.py:Still"),
        ("./still.py", "package.module:Class or ./file.py:Class, not './still.py'"),
        ("./broken.py:Still", "method ./broken.py:Still: cannot import ./broken.py .*invalid syntax"),
        ("./needs.py:Still", "cannot import ./needs.py .*No module named 'nothing_of_this_name'"),
        ("./still.py:dataclass", "must be a class derived from engramma.Method"),
        ("nothing_of_this_name:Still", "cannot import nothing_of_this_name"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, text in (("still", FILE), ("broken", "class ("), ("needs", "import nothing_of_this_name")):
        (tmp_path / f"{file}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # what failed once fails again
        with pytest.raises(ValueError, match=says) as caught:
            read({"data": "digits", "method": name})
        assert "\n" not in str(caught.value)


def test_descriptions_are_read_without_pytorch() -> None:
    code = "import sys, engramma.experiment; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
