"""Studies: which runs they have, some of them, and the same with other settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from engramma import studies
from engramma.cli import app
from engramma.runs.options import Options
from engramma.runs.study import check
from engramma.store.records import Store


def table2() -> list[studies.Run]:
    return studies.load("table2").runs("demo")


def test_a_rows_name_without_its_proportion_means_all_of_them() -> None:
    found = studies.load("table2").runs("demo", rows=["gem", "l2"])
    assert {run.row for run in found} == {"gem@0.05", "gem@0.5", "l2"}
    one = studies.load("table2").runs("demo", rows=["gem@0.5"])
    assert {run.row for run in one} == {"gem@0.5"}
    with pytest.raises(ValueError, match=r"rows must be some of vanilla, .* not ge$"):
        studies.load("table2").runs("demo", rows=["gem", "ge"])


def test_a_change_reaches_every_run_and_nothing_else() -> None:
    plain, other = table2(), studies.changed(table2(), {"normalise": "velocity", "batch_size": 100})
    for before, after in zip(plain, other, strict=True):
        assert (after.row, after.experiment.normalise, after.experiment.batch_size) == (
            before.row,
            "velocity",
            100,
        )
        own = {k: getattr(before.experiment, k) for k in ("normalise", "batch_size")}
        assert after.experiment.but(**own) == before.experiment
    assert not {run.experiment.name for run in plain} & {run.experiment.name for run in other}
    assert studies.changed(plain, {}) == plain


def test_a_setting_of_one_method_changes_its_rows_alone() -> None:
    for before, after in zip(table2(), studies.changed(table2(), {"si.damping": 0.1}), strict=True):
        if before.row == "si":
            assert after.experiment.settings == {**before.experiment.settings, "damping": 0.1}
        else:
            assert after == before


def test_a_scale_may_have_settings_of_a_method_and_no_row_else_has_them() -> None:
    both = {scale: studies.load("table2").runs(scale, seeds=[0], vertices=[2]) for scale in studies.SCALES}
    margins = {
        scale: {r.row: r.experiment.settings.get("margin") for r in found} for scale, found in both.items()
    }
    assert {row: m for row, m in margins["paper"].items() if m} == {
        "gem@0.05": 0.006,
        "gem@0.5": 0.006,
        "agem@0.05": 0.06,
        "agem@0.5": 0.06,
    }
    assert margins["small"] == margins["paper"]
    assert margins["demo"].keys() == margins["paper"].keys()
    assert not any(margins["demo"].values())


def test_a_row_may_differ_from_its_method() -> None:
    """A-GEM at 0.05 has a quarter of its buffer by the number of items: as its records say."""
    runs = studies.load("table2").runs("paper", seeds=[0], vertices=[2], rows=["agem", "gem"])
    found = {run.row: (run.experiment.settings, run.experiment.strength) for run in runs}
    assert found["agem@0.5"] == ({"margin": 0.06, "sample": 0.25}, 0.5)
    kept = round(0.05 * 0.8 * runs[0].experiment.items)
    assert found["agem@0.05"] == ({"margin": 0.06, "sample": 0.25 * kept}, 0.05)
    assert found["gem@0.5"][0]["sample"] is None


@pytest.mark.parametrize("part", [{"methods": {"agm": {"sample": 1}}}, {"strengths": {"agem@0.5": [0.5]}}])
def test_a_scale_that_names_no_row_is_refused(part: dict[str, object]) -> None:
    row = {"name": "agem@0.05", "method": "agem", "strengths": [0.05]}
    given = {"name": "own", "title": "", "paper": "", "rows": [row], "scales": {"demo": {"seeds": 1, **part}}}
    with pytest.raises(
        ValueError, match=r"scales\.demo\.(methods|strengths) must name what its rows are, not ag"
    ):
        studies.Study.model_validate(given)


@pytest.mark.parametrize(
    ("study", "changes", "says"),
    [
        ("table2", {"vertex": 3}, "with must leave vertex to the study"),
        ("table2", {"seed": 3}, "with must leave seed to the study"),
        ("general-average", {"learning_rate": 0.1}, "with must leave learning_rate to the study"),
        ("table2", {"normalize": "velocity"}, "normalise"),
        ("table2", {"epochs": -1}, "epochs must be"),
        ("table2", {"si.dampening": 1}, "damping"),
        ("l2", {"si.damping": 1.0}, "with must name settings of methods that are run, not of si"),
    ],
)
def test_bad_changes_are_refused(study: str, changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        studies.changed(studies.load(study).runs("demo"), changes)


def test_reproduced_and_shown_with_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that made the runs and the one that shows them name them alike."""
    monkeypatch.chdir(tmp_path)
    ask = CliRunner().invoke
    some = ["lost-attractors", "--rows", "vanilla", "--with", "memories=6", "--with", "epochs=10"]
    made = ask(app, ["reproduce", *some, "--vertices", "2", "--seeds", "1", "--device", "cpu"])
    assert made.exit_code == 0, made.output
    (record,) = Store(tmp_path / "runs")
    assert (record.experiment.memories, record.experiment.epochs) == (6, 10)
    shown = ask(app, ["table", *some, "--format", "csv"])
    assert shown.exit_code == 0, shown.output
    assert "Vanilla" in shown.stdout
    without = ask(app, ["table", "lost-attractors", "--rows", "vanilla"])
    assert without.exit_code != 0
    assert "no records of lost-attractors" in without.stderr
    wrong = ask(app, ["table", "lost-attractors", "--with", "memories"])
    assert "--with must be name=value" in wrong.stderr
    name = "lost-attractors-epochs=10-memories=6"
    assert f"{name} (" in made.stdout
    assert {p.stem for p in (tmp_path / "output" / "demo").iterdir()} == {name}
    drawn = ask(app, ["figure", *some, "--out", "drawn"])
    assert drawn.exit_code == 0, drawn.output
    assert {p.stem for p in (tmp_path / "drawn").iterdir()} == {name}


def test_a_variant_has_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made of what was changed, in whatever order it was said; not of what is the study's own anyway."""
    monkeypatch.chdir(tmp_path)

    def named(*words: str) -> str:
        done = CliRunner().invoke(app, ["reproduce", "table2", "--dry-run", "--device", "cpu", *words])
        assert done.exit_code == 0, done.output
        return done.stdout.partition(" ")[0]

    changes = [
        ("table2", []),
        ("table2", ["normalise=velocity"]),
        ("table2-normalise=gradient", ["normalise=gradient"]),
        ("table2-normalise=gradient-si.damping=2", ["si.damping=2", "normalise=gradient"]),
        ("table2-normalise=gradient-si.damping=2", ["normalise=gradient", "si.damping=2", "momentum=0.6"]),
    ]
    some = ["--vertices", "2", "--seeds", "1", "--rows", "vanilla,si"]
    for name, said in changes:
        assert named(*some, *(word for each in said for word in ("--with", each))) == name
    assert named(*some, "--dtype", "float32") == "table2-dtype=float32"
    assert studies.variant("x", {"data": "../my data.npz"}) == "x-data=.._my_data.npz"
    assert studies.variant("x", {}, Path("here/chosen.toml")) == "x-strengths=chosen"


def test_a_study_like_another_has_its_rows_with_settings_of_its_own() -> None:
    for scale in studies.SCALES:
        theirs = {(r.row, r.experiment.vertex): r.experiment for r in studies.load("beyond").runs(scale, [3])}
        found = studies.load("related").runs(scale, [3], [2, 20], ["ewc", "allocation"])
        assert [(r.row, r.experiment.vertex, r.experiment.fraction) for r in found] == [
            (row, vertex, fraction)
            for row in ("allocation", "ewc@tuned")
            for vertex in (2, 20)
            for fraction in (0.1, 0.2, 0.5)
        ]
        for row, e in found:
            assert e.but(fraction=1.0) == theirs[row, e.vertex]
    whole = studies.load("related").runs("paper")
    assert {r.experiment.seed for r in whole} == set(range(10))
    assert {r.row for r in whole} == set(studies.load("related").only)


def test_a_search_of_a_study_like_another_is_between_the_same_strengths() -> None:
    like, own = studies.load("beyond"), studies.load("related")
    assert own.searched("ewc@tuned", 2.0, "paper") == like.searched("ewc@tuned", 2.0, "paper") == (100.0, 1e5)
    assert own.searched("vanilla", 2.0, "paper") is None


def test_rows_may_have_settings_of_their_own_runs() -> None:
    (run,) = studies.load("beyond").runs("paper", [0], [20], ["xdg"])
    others = studies.load("beyond").runs("paper", [0], [20], ["mas_moments"])
    assert run.experiment.initial_temperature == run.experiment.final_temperature == "auto"
    assert {r.experiment.initial_temperature for r in others} == {0.95}
    assert run.experiment.learning_rate < others[0].experiment.learning_rate


@pytest.mark.parametrize("name", ["beyond", "more-tasks", "split", "rotated", "related", "frontier"])
def test_every_row_can_be_run_on_digits(name: str) -> None:
    """Its settings fit its data, as far as that is seen before anything is trained."""
    check([run.experiment for run in studies.load(name).runs("demo", [0])], Options("cpu"))
