"""Tables say what numpy says of the records, and compare with the paper by the rule they state."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats
from stand_in import record

from engramma.paper import numbers as paper
from engramma.show import labels, tables, typeset
from engramma.show import select as trials
from engramma.show.agreement import Cell, LambdaCell
from engramma.show.statistics import student


def whole_table(trials_each: int = 3, spread: float = 0.02) -> list:
    draw = np.random.default_rng(1)
    made = []
    for row in paper.rows():
        for vertex in paper.vertices():
            printed = paper.printed(row, vertex)
            strength = row.proportion or paper.chosen_lambda(row.method, vertex)
            for seed in range(trials_each):
                mean = printed.mean + draw.normal(0, spread)
                made.append(record(mean, method=row.method, vertex=vertex, strength=strength, seed=seed))
    return made


def lines(table: tables.Table) -> dict[tuple[str, str], tuple]:
    return {(line.category, line.label): line.cells for line in table.lines}


# The paper's numbers


def test_paper_has_thirteen_rows_in_its_order_and_all_cells():
    keys = [labels.row(*row.key) for row in paper.rows()]
    assert keys == [
        "Vanilla", "Rehearsal 0.05", "Pseudorehearsal 0.05", "GEM 0.05", "A-GEM 0.05", "Rehearsal 0.5",
        "Pseudorehearsal 0.5", "GEM 0.5", "A-GEM 0.5", "L2", "EWC", "MAS", "SI",
    ]  # fmt: skip
    assert {row.category for row in paper.rows()} == set(paper.categories())
    for row in paper.rows():
        for vertex in paper.vertices():
            cell = paper.printed(row, vertex)
            assert cell is not None
            assert 0 < cell.sd < 0.1 < cell.mean < 1
        assert paper.printed(row, 3) is None


def test_paper_numbers_spot_checked_against_the_print():
    rows = {labels.row(*row.key): row for row in paper.rows()}
    assert paper.printed(rows["Vanilla"], 2) == (0.366, 0.016)
    assert paper.printed(rows["A-GEM 0.05"], 20.0) == (0.736, 0.069)
    assert paper.printed(rows["SI"], 5) == (0.683, 0.020)
    assert paper.chosen_lambda("l2", 10) == 1e-6
    assert paper.chosen_lambda("si", 20.0) == 0.031
    assert paper.chosen_lambda("ewc", 3) is None
    assert paper.chosen_lambda("gem", 2) is None
    assert json.loads((files("engramma.paper") / "paper.json").read_text())["source"]


# What is in a cell


def test_means_and_sds_are_numpys():
    records = whole_table(4)
    table = tables.table2(records)
    for row in paper.rows():
        for column, vertex in enumerate(paper.vertices()):
            want = [
                r.scores["accuracy"][-1].mean()
                for r in records
                if (r.description["method"], r.description["vertex"]) == (row.method, vertex)
                and (row.proportion is None or r.description["strength"] == row.proportion)
            ]
            assert len(want) == 4
            cell = lines(table)[row.category, row.label][column]
            assert cell.mean == pytest.approx(np.mean(want), abs=1e-12)
            assert cell.sd == pytest.approx(np.std(want, ddof=1), abs=1e-12)


def test_order_of_the_records_is_nothing():
    records = whole_table(3)
    assert typeset.markdown(tables.table2(records)) == typeset.markdown(tables.table2(records[::-1]))


def test_one_trial_has_no_sd_and_says_none():
    table = tables.table2([record(0.4)])
    cell = lines(table)["vanilla", "Vanilla"][0]
    assert math.isnan(cell.sd)
    assert typeset.faces(cell)[0] == "0.400"
    assert cell.pooled_sd == pytest.approx(cell.printed.sd)  # the paper's stands for both


def test_trials_that_differ_in_more_than_the_seed_are_refused():
    with pytest.raises(ValueError, match=r"Vanilla, n=2: its records differ in epochs \(500, 60\)"):
        tables.table2([record(0.4), record(0.5, epochs=60, seed=1)])


def test_a_diverged_trial_is_counted_and_in_no_mean():
    table = tables.table2([record(0.4), record(0.5, seed=1), record(0.9, diverged=True, seed=2)])
    cell = lines(table)["vanilla", "Vanilla"][0]
    assert cell.mean == pytest.approx(0.45)
    assert cell.diverged == 1
    assert "†1" in typeset.markdown(table)
    assert r"$\dagger$1" in typeset.latex(table)
    row = next(csv.DictReader(io.StringIO(typeset.as_csv(table))))
    assert (float(row["mean"]), row["diverged"]) == (cell.mean, "1")
    assert "1 trial diverged" in table.caption


def test_all_diverged_and_missing_are_told_apart():
    table = tables.table2([record(diverged=True)])
    diverged, missing = lines(table)["vanilla", "Vanilla"][:2]
    assert typeset.faces(diverged)[0] == "diverged †1"
    assert typeset.faces(missing)[0] == typeset.MISSING
    assert (diverged.missing, missing.missing) == (False, True)
    assert diverged.agrees is None
    assert missing.agrees is None
    assert "3 cells are missing" in table.caption
    assert "0 of 0 cells agree" in table.caption


# The rule


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=12),
    st.floats(0.1, 0.9),
    st.floats(0.001, 0.1),
)
def test_agreement_is_the_rule_in_the_caption(values, mean, sd):
    cell = Cell(np.array(values), printed=paper.Printed(mean, sd))
    s1 = np.std(values, ddof=1)
    allowed = max(0.03, 2 * math.sqrt((s1**2 + sd**2) / 2))
    difference = abs(np.mean(values) - mean)
    if abs(difference - allowed) > 1e-9:
        assert cell.agrees == (difference <= allowed)


def test_agreement_at_the_floor_and_just_past_it():
    def agrees(difference: float) -> bool | None:
        values = np.array([0.5, 0.5, 0.5]) + difference
        return Cell(values, printed=paper.Printed(0.5, 0.001)).agrees

    assert agrees(0.03)
    assert agrees(-0.03)
    assert not agrees(0.0301)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(0.001, 0.1))
def test_welch_is_scipys(values, sd):
    cell = Cell(np.array(values), printed=paper.Printed(0.5, sd))
    s1 = float(np.std(values, ddof=1))
    want = stats.ttest_ind_from_stats(np.mean(values), s1, len(values), 0.5, sd, 10, equal_var=False)
    assert cell.welch[0] == pytest.approx(want.statistic, rel=1e-9, abs=1e-12)
    assert cell.p == pytest.approx(want.pvalue, abs=1e-8, nan_ok=True)


@given(st.floats(-1e3, 1e3), st.floats(1, 1e3))
def test_students_distribution_is_scipys(t, freedom):
    assert student(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-8)


def test_a_single_trial_is_not_tested():
    assert math.isnan(Cell(np.array([0.4]), printed=paper.Printed(0.366, 0.016)).p)


def test_agreeing_cells_are_counted():
    records = [record(0.366 + 0.01), record(0.292 + 0.2, vertex=5)]
    table = tables.table2(records)
    assert table.agreeing == (1, 2)
    assert "1 of 2 cells agree" in table.caption


def test_a_table_of_other_runs_says_so():
    assert "other settings" not in tables.table2(whole_table(2)).caption
    other = tables.table2([record(0.366, data="digits", items=1000)])
    assert "The paper's runs had other settings: data mnist, items 10000" in other.caption


def test_runs_with_other_settings_than_the_papers_are_not_judged_by_it():
    """Digits are not MNIST: its number is shown, without a difference or a mark."""
    other = tables.table2([record(0.366, data="digits", items=1000)])
    assert other.agreeing == (0, 0)
    assert "agree" not in other.caption
    assert typeset.faces(other.lines[0].cells[0]) == ("0.366", "paper 0.366")
    assert tables.table2([record(0.366)]).agreeing == (1, 1)


# Bold


def test_the_best_of_each_category_is_bold_and_no_other():
    records = [
        record(0.9, method="mas", strength=58.0),
        record(0.8, method="si", strength=3.0),
        record(0.7, method="rehearsal", strength=0.5),
        record(0.6, method="gem", strength=0.5),
        record(0.95),
    ]
    table = tables.table2(records)
    bold = {(k, i) for k, cells in lines(table).items() for i, cell in enumerate(cells) if cell.best}
    assert bold == {(("regularisation", "MAS"), 0), (("proportion 0.5", "Rehearsal"), 0)}
    text = typeset.markdown(table)
    assert text.count("**") == 4
    assert "**0.900**" in text
    assert r"{\boldmath\textbf{0.900}}" in typeset.latex(table)
    assert typeset.latex(table).count(r"\textbf") == 2


def test_equal_as_printed_are_both_bold():
    records = [record(0.9001, method="mas", strength=58.0), record(0.9, method="si", strength=3.0)]
    assert typeset.markdown(tables.table2(records)).count("**0.900**") == 2


def test_least_forgetting_is_best():
    def forgets(amount: float, **settings) -> object:
        made = record(0.5, tasks=2, **settings)
        made.scores["accuracy"][:] = [[0.9, 0.1], [0.9 - amount, 0.9]]
        return made

    runs = [forgets(0.3, method="mas", strength=1.0), forgets(0.1, method="si", strength=1.0)]
    table = tables.scores(runs, measure="forgetting")
    assert [line.label for line in table.lines if line.cells[0].best] == ["SI λ=1"]
    assert lines(table)["", "SI λ=1"][0].mean == pytest.approx(0.1)


# Table 1


def searched(
    peak: float, method: str = "ewc", vertex: float = 2, count: int = 60, **settings: object
) -> list:
    draw = np.random.default_rng(0)
    at = peak * 10 ** draw.uniform(-2, 2, count)
    return [
        record(
            0.3 + 0.5 * math.exp(-(math.log10(x / peak) ** 2)),
            method=method,
            vertex=vertex,
            strength=float(x),
            **settings,
        )
        for x in at
    ]


def test_table1_finds_the_peak_of_a_search():
    table = tables.table1(searched(1100.0))
    cell = lines(table)["", "EWC"][0]
    assert isinstance(cell, LambdaCell)
    assert cell.chosen == pytest.approx(1100, rel=0.5)
    assert cell.printed == 1100
    assert cell.agrees
    assert cell.count == 60
    assert lines(table)["", "L2"][0].missing


def test_table1_says_where_the_search_disagrees_and_where_it_cannot_tell():
    far = lines(tables.table1(searched(1100.0 * 30)))["", "EWC"][0]
    assert far.ratio > 10
    assert far.agrees is False
    outside = lines(tables.table1(searched(1100.0 * 1e4)))["", "EWC"][0]
    assert outside.agrees is None


def test_a_lambda_of_other_data_is_not_judged_by_the_papers():
    other = tables.table1(searched(1100.0, data="digits"))
    assert other.agreeing == (0, 0)
    assert "agree" not in other.caption
    assert "other settings: data mnist" in other.caption


def test_a_grid_is_chosen_by_the_mean_over_seeds():
    runs = []
    for strength, values in ((1.0, (0.9, 0.1)), (10.0, (0.6, 0.6)), (100.0, (0.5, 0.4))):
        runs += [record(v, method="mas", strength=strength, seed=s) for s, v in enumerate(values)]
    assert lines(tables.table1(runs))["", "MAS"][0].chosen == 10.0


@given(st.integers(1, 7), st.integers(7, 25), st.integers(0, 99))
def test_moving_window_is_a_plain_loop(width, count, seed):
    draw = np.random.default_rng(seed)
    x, y = 10 ** draw.uniform(-3, 3, count), draw.uniform(size=count)
    curve = trials.moving_window(x, y, width)
    pairs = sorted(zip(x.tolist(), y.tolist(), strict=True))
    assert len(curve.x) == count - width + 1
    for i in range(count - width + 1):
        near = pairs[i : i + width]
        mean = sum(b for _, b in near) / width
        assert curve.mean[i] == pytest.approx(mean)
        assert curve.x[i] == pytest.approx(math.prod(a ** (1 / width) for a, _ in near))
        if width > 1:
            sd = math.sqrt(sum((b - mean) ** 2 for _, b in near) / (width - 1))
            assert curve.sd[i] == pytest.approx(sd, abs=1e-12)


def test_the_window_is_twenty_of_a_hundred():
    assert trials.response(searched(1.0, count=100)).window == 20
    assert trials.response(searched(1.0, count=30)).window == 6
    assert trials.response(searched(1.0, count=2)).window == 2


# How it is written


def test_csv_has_a_line_a_cell_and_reads_back():
    records = whole_table(3)
    table = tables.table2(records)
    rows = list(csv.DictReader(io.StringIO(typeset.as_csv(table))))
    assert len(rows) == 52
    first = rows[0]
    cell = table.lines[0].cells[0]
    assert float(first["mean"]) == cell.mean
    assert float(first["welch_t"]) == pytest.approx(cell.welch[0])
    assert float(first["difference"]) == pytest.approx(cell.mean - 0.366)
    assert first["agrees"] in ("true", "false")
    assert {"sd", "paper_sd", "pooled_sd", "diverged", "strength"} <= set(first)
    assert all("nan" not in value for row in rows for value in row.values())


def test_latex_escapes_what_latex_would_read():
    assert typeset.escape(r"a_b & 50% #1 {x} $ ~ ^ \z") == (
        r"a\_b \& 50\% \#1 \{x\} \$ \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )
    assert typeset.escape("2.0e-7") == r"$2.0\times10^{-7}$"
    assert typeset.escape("1.1e3") == r"$1.1\times10^{3}$"
    assert typeset.escape("±−≤λ†✓") == r"$\,\pm\,$$-$$\le$$\lambda$$\dagger$$\surd$"


@pytest.fixture(
    params=[
        lambda: tables.table2([*whole_table(2), record(diverged=True, seed=9)]),
        lambda: tables.table1(searched(1100.0)),
        lambda: tables.scores([record(0.4, method="my_pkg.mod:My#Class")], rows=("method", "data")),
    ],
    ids=["table2", "table1", "scores"],
)
def some_table(request):
    return request.param()


def test_latex_is_plain_ascii_with_equal_columns(some_table):
    text = typeset.latex(some_table)
    assert text.isascii()
    assert text.count("{") == text.count("}")
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    for row in body.split(r"\\"):
        cut = len(re.findall(r"(?<!\\)&", row))
        assert cut in (0, len(some_table.columns)), row


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles_without_overfull_lines(some_table, tmp_path):
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "t.tex").write_text(head + typeset.latex(some_table) + r"\end{document}")
    made = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout[-2000:]
    assert "Overfull" not in made.stdout
    assert (tmp_path / "t.pdf").stat().st_size > 1000


def test_terminal_table_fits_eighty_columns_and_loses_nothing():
    table = tables.table2([*whole_table(2), *(record(diverged=True, seed=s) for s in range(7, 9))])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(typeset.terminal(table))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for line in table.lines:
        assert line.label in text
        for cell in line.cells:
            for face in typeset.faces(cell):
                assert face in text


def test_markdown_rows_have_equal_cells(some_table):
    rows = [row for row in typeset.markdown(some_table).splitlines() if row.startswith("|")]
    assert {row.count("|") for row in rows} == {len(some_table.columns) + 2}


def test_a_table_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    table = tables.table2([record(0.4)])
    place = tmp_path / "new" / "t.md"
    typeset.write(table, place, "md")
    assert place.read_text() == typeset.markdown(table)

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_text", fails)
    with pytest.raises(OSError, match="disk full"):
        typeset.write(table, place, "csv")
    assert [p.name for p in place.parent.iterdir()] == ["t.md"]
    assert "Vanilla" in place.read_text()


def test_scores_table_of_nothing_says_so():
    with pytest.raises(ValueError, match="no records"):
        tables.scores([])
    with pytest.raises(ValueError, match=r"measure must be one of average, .* not 'f1'"):
        tables.scores([record()], measure="f1")
    assert tables.table2([]).agreeing == (0, 0)


def test_the_caption_says_how_sure_its_count_is():
    assert "drawn again" not in tables.table2(whole_table(2)).caption
    assert "drawn again, in 95 % of 2,000 draws" in tables.table2(whole_table(3)).caption


# Rows by whatever differs


def names(table: tables.Table) -> list[str]:
    return [line.label for line in table.lines]


def test_rows_are_told_apart_by_whatever_differs_but_the_seed():
    def runs(**settings) -> list:
        return [record(0.5, seed=seed, vertex=v, **settings) for seed in (0, 1) for v in (2.0, 5.0)]

    table = tables.scores([*runs(tasks=10), *runs(tasks=50), *runs(tasks=5)])
    assert names(table) == ["Vanilla, tasks 5", "Vanilla, tasks 10", "Vanilla, tasks 50"]
    assert [len(cell.values) for line in table.lines for cell in line.cells] == [2] * 6
    assert names(tables.scores(runs(angle=10.0) + runs(angle=30.0))) == [
        "Vanilla, angle 10",
        "Vanilla, angle 30",
    ]
    given, found = ({"boundaries": b, "grow": True} for b in ("given", "found"))
    table = tables.scores(
        runs(method="allocation", settings=given) + runs(method="allocation", settings=found)
    )
    assert names(table) == ["allocation, boundaries found", "allocation, boundaries given"]
    several = runs(order=[0, 1], memories=8) + runs(order=None, memories=9)  # a list, and none
    assert names(tables.scores(several)) == ["Vanilla, memories 8, order [0, 1]", "Vanilla, memories 9"]
    warm = runs(initial_temperature="auto") + runs(initial_temperature=0.9)  # words and numbers
    assert names(tables.scores(warm)) == [
        "Vanilla, initial_temperature 0.9", "Vanilla, initial_temperature auto"
    ]  # fmt: skip


def test_a_lambda_is_told_from_a_share():
    one = record(0.4, method="ewc", strength=1100.0)
    two = record(0.4, method="rehearsal", strength=0.5)
    three = record(0.4, method="mine:Own", strength=3.0)
    assert names(tables.scores([one, two, three])) == ["EWC λ=1100", "Own 3", "Rehearsal 0.5"]


def test_rows_say_nothing_that_does_not_tell_them_apart():
    """Methods differ in their settings, and strengths in rate: the row's name says enough."""
    one = record(0.4, method="rehearsal", strength=0.5, learning_rate=0.1, settings={"sample": 20})
    two = record(0.4, method="rehearsal", strength=0.05, learning_rate=0.2, settings={"sample": 10})
    assert names(tables.scores([one, two, record(0.3)])) == ["Rehearsal 0.05", "Rehearsal 0.5", "Vanilla"]


def test_a_method_s_setting_named_like_an_experiment_s_still_counts():
    one, two = (record(0.4, settings={"order": order}, order=None, seed=k) for k, order in enumerate("ab"))
    assert names(tables.scores([one, two])) == ["Vanilla, settings.order a", "Vanilla, settings.order b"]
    with pytest.raises(ValueError, match=r"its records differ in settings.order \('a', 'b'\)"):
        trials.check_alike([one, two], "here")


def test_rows_that_the_paper_does_not_have_come_last_and_alone():
    """With nothing beside them; and what can be compared with the paper is said before any number."""
    others = dict(data="digits", items=500)
    records = [record(0.3 + seed / 10, seed=seed, **others) for seed in range(2)]
    own = [record(0.9 + seed / 100, method="allocation", seed=seed, **others) for seed in range(2)]
    table = tables.table2([*own, *records])
    last = table.lines[-1]
    assert (last.label, last.category) == ("Allocation", "beyond")
    assert [cell.mean for cell in last.cells[:1]] == [pytest.approx(0.905)]
    assert all(cell.printed is None for cell in last.cells)
    assert table.head == "8x8 digits, not MNIST: compare which row beats which, not numbers"
    assert typeset.terminal(table).title.plain == table.head
    assert tables.table2([record(0.3)]).head == ""
    only = tables.table2([*own, *records], only={("allocation", None)})
    assert [line.label for line in only.lines] == ["Allocation"]
    assert "Beyond the paper" in typeset.latex(table)
