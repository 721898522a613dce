"""engramma table and engramma figure: from a store to files, and one line for what is wrong."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from engramma import studies
from engramma.cli import OneLine, tables
from engramma.cli import app as whole
from engramma.show import tables as made_tables
from engramma.store import archive, records
from engramma.store.records import Record, Store


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    made = typer.Typer(cls=OneLine)
    tables.register(made)
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    """Records of table2 and of the two-task example at the scale demo, scored by chance, not trained."""
    place = tmp_path_factory.mktemp("store")
    draw = np.random.default_rng(0)
    runs = studies.load("table2").runs("demo") + studies.load("lost-attractors").runs("demo")
    for run in runs:
        tasks = run.experiment.tasks
        name = "recalled" if run.experiment.stream == "states" else "accuracy"
        scores = draw.uniform(0.2, 0.9, (tasks, tasks))
        epoch = np.arange(0, tasks * run.experiment.epochs + 1, 20)
        curves = {"epoch": epoch, name: draw.uniform(0, 1, (len(epoch), tasks))}
        found = {name: scores} | ({"macro_f1": scores - 0.1} if name == "accuracy" else {})
        Store(place).write(Record(run.experiment.describe(), found, curves))
    return str(place)


def ask(app: typer.Typer, *words: str) -> tuple[int, str, str]:
    made = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    return made.exit_code, made.stdout, made.stderr


def test_a_score_that_some_records_have(app, tmp_path):
    """Those that have it make its table; in the table of the first score all are."""
    runs = studies.load("allocation").runs("demo") + studies.load("table2").runs("demo", rows=["vanilla"])
    for run in runs:
        found = {"accuracy": np.full((5, 5), 0.5)}
        named = run.experiment.method == "allocation" and run.experiment.seed > 0  # seed 0: an older record
        more = {"named": np.full((5, 5), 0.999)} if named else {}
        curves = {"epoch": np.arange(1), "accuracy": np.zeros((1, 5))}
        Store(tmp_path).write(Record(run.experiment.describe(), found | more, curves))
    asked = ("--from", str(tmp_path), "--format", "csv")
    code, text, error = ask(app, "table", "allocation", *asked, "--score", "named")
    assert code == 0, error
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(float(row["mean"]), int(row["trials"])) for row in rows] == [(0.999, 2)] * 4
    code, named, error = ask(app, "table", "scores", *asked, "--score", "named")
    assert (code, named) == (0, text), error
    code, text, _ = ask(app, "table", "allocation", *asked)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(float(row["mean"]), int(row["trials"])) for row in rows] == [(0.5, 3)] * 4
    code, text, _ = ask(app, "table", "scores", *asked)
    assert len(list(csv.DictReader(io.StringIO(text)))) == 8
    code, _, error = ask(app, "table", "table2", *asked, "--score", "named")
    assert (code, "score must be one of accuracy, not 'named'" in " ".join(error.split())) == (2, True)


def test_another_score_of_the_records(app, store):
    code, plain, _ = ask(app, "table", "table2", "--from", store, "--format", "csv")
    code, text, error = ask(app, "table", "table2", "--from", store, "--format", "csv", "--score", "macro_f1")
    assert code == 0, error
    means = [[float(row["mean"]) for row in csv.DictReader(io.StringIO(t))] for t in (plain, text)]
    assert np.allclose(np.array(means[1]), np.array(means[0]) - 0.1)  # as they were written
    code, text, _ = ask(app, "table", "table2", "--from", store, "--score", "macro_f1")
    assert "Average macro F1 after the last task" in " ".join(text.split())
    code, _, error = ask(app, "table", "table2", "--from", store, "--score", "f2")
    assert code == 2
    assert "score must be one of accuracy, macro_f1, not 'f2'" in " ".join(error.split())
    code, _, error = ask(app, "table", "lost-attractors", "--from", store, "--score", "accuracy")
    assert "score must be one of recalled" in " ".join(error.split())
    code, _, error = ask(app, "table", "table1", "--from", store, "--score", "macro_f1")
    assert code == 2
    assert "score must be left out" in error


def test_what_is_there_is_opened_once_and_its_table_made_once(store, tmp_path, monkeypatch):
    """By `engramma reproduce`: for the terminal, three files and the figure."""
    opened, made = Counter(), []
    read, table2 = records.read_folder, made_tables.table2
    monkeypatch.setattr(
        records, "read_folder", lambda place, *a, **k: opened.update([place.name]) or read(place, *a, **k)
    )
    counted = lambda found, **k: made.append(len(found)) or table2(found, **k)  # noqa: E731
    monkeypatch.setattr(made_tables, "table2", counted)
    monkeypatch.setitem(made_tables.TABLES, "table2", counted)
    words = ["reproduce", "table2", "--store", store, "--out", str(tmp_path), "--rows", "vanilla,ewc"]
    done = CliRunner().invoke(whole, words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "demo" / "table2.pdf").is_file()
    assert made == [24]
    assert len(opened) == 24
    assert set(opened.values()) == {1}


def test_table_in_every_format(app, store, tmp_path):
    code, text, _ = ask(app, "table", "table2", "--from", store, "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 52
    assert {row["trials"] for row in rows} == {"3"}
    for name, start in (
        ("t.md", "| | n=2"),
        ("t.tex", r"% needs \usepackage{booktabs}"),
        ("t.csv", "category,"),
    ):
        code, _, _ = ask(app, "table", "table2", "--from", store, "--out", str(tmp_path / name))
        assert code == 0
        assert (tmp_path / name).read_text().startswith(start)
    code, text, _ = ask(app, "table", "table2", "--from", store)
    assert code == 0
    assert "Pseudorehearsal" in text
    assert "The paper's runs had other settings" in " ".join(text.split())


def test_a_table_as_json_is_its_csv_with_numbers(app, store, tmp_path):
    for name in ("table2", "lost-attractors"):
        asked = ("table", name, "--from", store, "--format")
        _, text, _ = ask(app, *asked, "csv")
        code, told, error = ask(app, *asked, "json")
        assert (code, error) == (0, "")
        found, rows = json.loads(told), list(csv.DictReader(io.StringIO(text)))
        assert found["caption"]
        assert len(found["cells"]) == len(rows)
        for cell, row in zip(found["cells"], rows, strict=True):
            assert list(cell) == list(row)
            assert [cell["mean"], cell["sd"]] == [float(row["mean"]), float(row["sd"])]
            assert {key for key, given in cell.items() if given is None} == {
                k for k in row if row[k] == "" and k != "category"
            }
    code, _, _ = ask(app, "table", "table2", "--from", store, "--out", str(tmp_path / "t.json"))
    assert code == 0
    assert json.loads((tmp_path / "t.json").read_text())["name"] == "table2"


def test_a_study_without_a_table_gets_one_of_scores(app, store):
    code, text, _ = ask(app, "table", "lost-attractors", "--from", store, "--format", "md")
    assert code == 0
    assert "| Vanilla | " in text
    assert "| Rehearsal 1 | " in text


@pytest.mark.parametrize(
    ("study", "label", "files"),
    [
        ("allocation", "allocation", ["allocation.png"]),
        ("more-tasks", "allocation, tasks 20", ["more-tasks.png"]),
        ("related", "MAS tuned, fraction 0.2", []),
        ("split", "EWC tuned, stream split, task_id False", []),
        ("rotated", "allocation, angle 10", []),
        ("found-permuted", "allocation, boundaries found", []),
        ("found-split", "allocation, boundaries given", []),
    ],
)
def test_studies_beyond_the_paper_show_what_differs(app, tmp_path, study, label, files):
    """Their methods are run at several numbers of tasks, of memories, ...: each has a line."""
    draw, place = np.random.default_rng(0), tmp_path / "store"
    for run in studies.load(study).runs("demo"):
        told = run.experiment.describe()
        curves = {"epoch": np.arange(3), "accuracy": draw.uniform(0, 1, (3, told["tasks"]))}
        scores = {"accuracy": draw.uniform(0.2, 0.9, (told["tasks"], told["tasks"]))}
        Store(place).write(Record(told, scores, curves))
    code, text, error = ask(app, "table", study, "--from", str(place), "--format", "md")
    assert code == 0, error
    assert f"| {label} | " in text
    assert "over 3 trials a cell" in text
    assert ask(app, "table", "scores", "--from", str(place))[0] == 0
    if files:
        code, _, error = ask(app, "figure", study, "--from", str(place), "--out", str(tmp_path / "figures"))
        assert code == 0, error
        assert [p.name for p in (tmp_path / "figures").glob("*.png")] == files


def test_rows_that_were_not_asked_for_are_not_shown(app, store):
    code, text, _ = ask(app, "table", "table2", "--from", store, "--rows", "vanilla,ewc", "--format", "md")
    assert code == 0
    assert re.findall(r"^\| (\w[\w -]*\w) \|", text, flags=re.M) == ["Vanilla", "EWC"]
    assert "missing" not in text


def test_kinds_of_figures_and_all_scores_are_of_the_rows_asked_for(app, store, tmp_path):
    """Also where no study says which rows there are."""
    line = ("figure", "tasks", "--from", store, "--out", str(tmp_path), "--rows")
    code, _, error = ask(app, *line, "gem,mas")
    assert code == 0, error
    assert sorted(p.stem for p in tmp_path.glob("*.png")) == ["tasks-gem-0.05", "tasks-gem-0.5", "tasks-mas"]
    code, _, error = ask(app, *line, "gme")
    assert code == 2
    assert "rows must be some of" in " ".join(error.split())
    assert "did you mean gem?" in " ".join(error.split())
    code, text, _ = ask(app, "table", "scores", "--from", store, "--rows", "gem@0.5", "--format", "md")
    assert code == 0
    assert re.findall(r"^\| (\w[\w .-]*\w) \|", text, flags=re.M) == ["GEM 0.5"]


def test_bars_are_of_the_rows_asked_for(store, tmp_path, app, monkeypatch):
    from engramma.show.figures import bars

    drawn = []
    panel = bars._panel
    monkeypatch.setattr(bars, "_panel", lambda axes, *rest: (panel(axes, *rest), drawn.append(axes)))
    code, _, error = ask(
        app, "figure", "table2", "--from", store, "--out", str(tmp_path), "--rows", "ewc,mas"
    )
    assert code == 0, error
    # Panels that share an axis have its labels once.
    assert {tuple(t.get_text() for t in axes.get_yticklabels()) for axes in drawn} == {("EWC", "MAS"), ()}


def test_figures_of_a_study(app, store, tmp_path):
    code, text, _ = ask(app, "figure", "table2", "--from", store, "--out", str(tmp_path))
    assert code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["table2.pdf", "table2.png"]
    assert "table2.png" in text
    code, _, _ = ask(app, "figure", "lost-attractors", "--from", store, "--out", str(tmp_path))
    assert code == 0
    assert (tmp_path / "lost-attractors.png").exists()
    code, _, _ = ask(
        app, "figure", "table2", "--kind", "tasks", "--rows", "ewc", "--from", store, "--out", str(tmp_path)
    )
    assert code == 0
    assert (tmp_path / "table2-tasks-ewc.pdf").exists()


def test_every_study_names_kinds_that_there_are():
    from engramma.show.figures import KINDS
    from engramma.show.tables import TABLES

    for name in studies.names():
        study = studies.load(name)
        assert set(study.figures) <= set(KINDS)
        assert set(study.tables) <= set(TABLES)
        assert study.figures or study.tables


def test_present_shows_and_writes_all_of_a_study(store, tmp_path, capsys):
    study = studies.load("table2")
    records = [Store(store).find(run.experiment) for run in study.runs("demo")]
    made = tables.present(study, records, tmp_path)
    assert sorted(p.name for p in made) == [
        "table2.csv",
        "table2.md",
        "table2.pdf",
        "table2.png",
        "table2.tex",
    ]
    assert all(p.exists() for p in made)
    assert "Pseudorehearsal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("table", "table9"), "study must be one of table1"),
        (("table", "table2", "--scale", "big"), "scale must be one of demo, small, paper"),
        (
            ("table", "table2", "--format", "pdf"),
            "must be one of rich, md, latex, csv, json, not 'pdf'",
        ),
        (("table", "table2", "--format", "rich", "--out", "x"), "rich is for the terminal"),
        (("table", "table2", "--scale", "paper"), "engramma reproduce table2 --scale paper makes them"),
        (("table", "table2", "--rows", "adam"), "rows must be some of vanilla"),
        (("figure", "pie"), "figure must be one of table1, table2"),
        (("figure", "table1"), "study table1 has no figure of its own"),
        (("figure", "table2", "--kind", "pie"), "kind must be one of response"),
        (("figure", "table2", "--kind", "memories", "--rows", "vanilla"), "run with --keep-memories"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(app, store, tmp_path, words, message):
    code, _, error = ask(app, *words, "--from", store)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_records_of_several_folders_and_archives_make_one_table(app, store, tmp_path):
    halves, records = [tmp_path / "a", tmp_path / "b"], list(Store(store))
    for place, part in zip(halves, (records[::2], records[1::2]), strict=True):
        for record in part:
            Store(place).write(record)
    archive.pack(Store(halves[1]), tmp_path / "b.tar.gz")
    _, whole, _ = ask(app, "table", "table2", "--from", store, "--format", "csv")
    _, half, _ = ask(app, "table", "table2", "--from", str(halves[0]), "--format", "csv")
    beside = ("--from", str(tmp_path / "b.tar.gz"))
    _, both, _ = ask(app, "table", "table2", "--from", str(halves[0]), *beside, "--format", "csv")
    assert both == whole != half


def test_a_store_that_is_not_there(app, tmp_path):
    for words in (("table", "table2"), ("table", "scores"), ("figure", "bars")):
        code, _, error = ask(app, *words, "--from", str(tmp_path / "none"))
        assert code == 2
        assert "--from must be a folder or an archive of records" in error
    code, _, error = ask(app, "table", "scores", "--from", str(tmp_path))
    assert code == 2
    assert "has none" in error


def test_a_measure_in_every_table(app, store):
    """Of the same records, in a table of its own kind: not the paper's numbers beside it."""
    code, text, error = ask(
        app, "table", "table2", "--from", store, "--score", "forgetting", "--format", "csv"
    )
    assert code == 0, error
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["paper_mean"] for row in rows} == {""}
    found = {(row["row"], row["column"]): float(row["mean"]) for row in rows}
    vanilla = [r for r in Store(store) if r.description["method"] == "vanilla" and "accuracy" in r.scores]
    for vertex in (2, 20):
        lost = []
        for r in vanilla:
            s = r.scores["accuracy"]
            if r.description["vertex"] == vertex and len(s) == 5:
                lost.append(np.mean([s[:-1, j].max() - s[-1, j] for j in range(4)]))
        assert found["Vanilla", f"n={vertex}"] == pytest.approx(np.mean(lost))
    code, text, _ = ask(app, "table", "table2", "--from", store, "--score", "macro_f1:average")
    assert "Average macro F1 after the last task" in " ".join(text.split())
    code, text, _ = ask(app, "table", "lost-attractors", "--from", store, "--score", "backward_transfer")
    assert "Backward transfer: final recalled" in " ".join(text.split())
    code, text, _ = ask(app, "table", "beyond", "--from", store, "--score", "bytes_kept", "--format", "csv")
    there = [row for row in csv.DictReader(io.StringIO(text)) if row["mean"]]  # tuned rows were not all run
    kept = {row["row"]: float(row["mean"]) for row in there}
    assert kept["Vanilla"] == 0 < kept["Rehearsal 0.05"] < kept["Rehearsal 0.5"] < kept["EWC"]
    assert kept["EWC"] == 2 * 8 * 128 * 79  # two arrays as large as the memories
    code, text, _ = ask(
        app, "table", "beyond", "--from", store, "--score", "items_learned", "--format", "csv"
    )
    there = [row for row in csv.DictReader(io.StringIO(text)) if row["mean"]]
    shown = {row["row"]: float(row["mean"]) for row in there}
    assert shown["Vanilla"] == shown["EWC"] == 5 * 100 * 400
    assert shown["Rehearsal 0.5"] == 2 * shown["Vanilla"]
    code, _, error = ask(app, "table", "table2", "--from", store, "--score", "accuracy:lost")
    assert (code, "measure must be one of average" in " ".join(error.split())) == (2, True)


def test_differences_are_run_by_run_of_one_seed(app, store):
    asked = ("table", "beyond", "--from", store, "--format", "csv")
    code, text, error = ask(app, *asked, "--against", "rehearsal@0.05")
    assert code == 0, error
    there = [row for row in csv.DictReader(io.StringIO(text)) if row["mean"]]  # tuned rows were not all run
    found = {(r["row"], r["column"]): (float(r["mean"]), float(r["sd"])) for r in there}
    assert found["Rehearsal 0.05", "n=5"] == (0, 0)
    each = {
        name: {
            r.description["seed"]: r.average
            for r in Store(store)
            if (r.description["method"], r.description["vertex"], r.description["strength"]) == (name, 5, at)
        }
        for name, at in (("ewc", 100.0), ("rehearsal", 0.05))
    }
    apart = [each["ewc"][seed] - each["rehearsal"][seed] for seed in range(3)]
    assert found["EWC", "n=5"] == pytest.approx((np.mean(apart), np.std(apart, ddof=1)))
    code, _, error = ask(app, *asked, "--against", "gem")
    assert (code, "against must be one of vanilla, rehearsal@0.05" in error) == (2, True)
    code, _, error = ask(app, "table", "scores", "--from", store, "--against", "gem")
    assert (code, "against must be left out" in error) == (2, True)


def test_a_row_of_a_study_is_one_line_whatever_its_strengths(app, store):
    """EWC has another lambda at each vertex; of all records of a store, each is a line."""
    _, text, _ = ask(app, "table", "beyond", "--from", store, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [r["row"] for r in rows].count("EWC") == 4
    assert {float(r["strength"]) for r in rows if r["row"] == "EWC"} == {300, 100, 10}
