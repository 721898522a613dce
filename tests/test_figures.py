"""Figures show what is in the records, whole and legible, and leave matplotlib as it was."""

from __future__ import annotations

import itertools
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from stand_in import StandIn, legible, record, with_memories

from engramma.paper import numbers as paper
from engramma.show import figures
from engramma.show import select as trials
from engramma.show.figures import style
from engramma.store import scores

VERTICES = (2.0, 5.0, 10.0, 20.0)


def lambda_search(count: int = 40, methods=("l2", "ewc", "mas", "si")) -> list[StandIn]:
    draw = np.random.default_rng(0)
    made = []
    for method in methods:
        for vertex in VERTICES:
            peak = paper.chosen_lambda(method, vertex)
            for x in peak * 10 ** draw.uniform(-3, 3, count):
                value = 0.3 + 0.4 * np.exp(-(np.log10(x / peak) ** 2)) + draw.normal(0, 0.02)
                made.append(record(value, method=method, vertex=vertex, strength=float(x), items=2000))
    return made


def proportion_search(vertices=VERTICES) -> list[StandIn]:
    draw = np.random.default_rng(0)
    return [
        record(0.4 + 0.3 * p**0.3 + draw.normal(0, 0.02), method=method, vertex=v, strength=p, seed=seed)
        for method in ("rehearsal", "pseudorehearsal")
        for v in vertices
        for p in (0.0, 0.25, 0.5, 1.0)
        for seed in range(3)
    ]


def grid(vertices=VERTICES, **one: dict) -> list[StandIn]:
    return [
        record(0.2 + rate + temperature / 4, vertex=v, learning_rate=rate, initial_temperature=temperature,
               final_temperature=temperature, **one)
        for v in vertices
        for rate in (0.02, 0.08, 0.2)
        for temperature in (0.75, 0.95, 1.2)
    ]  # fmt: skip


def curved(**settings) -> list[StandIn]:
    return [
        record(0.4 + 0.01 * seed, vertex=v, seed=seed, epochs=20, **settings)
        for v in VERTICES
        for seed in range(3)
    ]


def states(vertices=(2.0, 5.0)) -> list[StandIn]:
    tables = [np.array([[1.0, 0.0], [0.1 * s, 0.9]]) for s in range(4)]
    return [
        StandIn({**record().description, "tasks": 2, "vertex": v, "seed": s}, {"recalled": t, "stable": t})
        for v in vertices
        for s, t in enumerate(tables)
    ]


# Responses


def test_a_lambda_search_has_points_window_and_log_axis():
    records = lambda_search()
    figure = figures.response(records)
    legible(figure)
    assert [axes.get_title() for axes in figure.axes] == ["L2", "EWC", "MAS", "SI"]
    for axes, method in zip(figure.axes, ("l2", "ewc", "mas", "si"), strict=True):
        assert axes.get_xscale() == "log"
        assert axes.get_xlabel() == r"$\lambda$"
        points, curves = axes.lines[0::2], axes.lines[1::2]
        assert len(points) == len(curves) == 4
        assert sum(isinstance(c, PolyCollection) for c in axes.collections) == 4
        mine = [r for r in records if r.description["method"] == method and r.description["vertex"] == 2.0]
        assert sorted(points[0].get_xdata()) == sorted(r.description["strength"] for r in mine)
        want = trials.response(mine)
        np.testing.assert_allclose(curves[0].get_ydata(), want.mean)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [f"$n={v:g}$" for v in VERTICES]


def test_a_hundred_trials_are_averaged_by_twenty():
    figure = figures.response(lambda_search(100, ("mas",)))
    assert len(figure.axes[0].lines[1].get_xdata()) == 81
    assert not figure.axes[0].texts  # a smaller window would be noted


def test_a_grid_of_a_hundred_trials_is_windowed_too_and_a_small_one_is_not():
    def tried(seeds: int) -> Figure:
        return figures.response(
            [record(0.5, method="mas", strength=10.0**k, seed=s) for k in range(20) for s in range(seeds)]
        )

    assert len(tried(5).axes[0].lines[1].get_xdata()) == 81
    assert len(tried(1).axes[0].lines[1].get_xdata()) == 17  # each alone: a window of 4
    small = [record(0.5, method="mas", strength=10.0**k, seed=s) for k in range(9) for s in range(2)]
    assert len(figures.response(small).axes[0].lines[1].get_xdata()) == 9


def test_a_smaller_window_is_noted():
    figure = figures.response(lambda_search(40, ("mas",)))
    assert [t.get_text() for t in figure.axes[0].texts] == ["window of 8"]


def test_proportions_have_mean_and_sd_at_each():
    records = proportion_search()
    figure = figures.response(records)
    legible(figure)
    axes = figure.axes[1]
    assert axes.get_title() == "Pseudorehearsal"
    assert axes.get_xscale() == "linear"
    assert len(axes.lines) == 4
    mine = [
        r for r in records if (r.description["method"], r.description["vertex"]) == ("pseudorehearsal", 5.0)
    ]
    want = [
        np.mean([scores.value(r) for r in mine if r.description["strength"] == p]) for p in (0, 0.25, 0.5, 1)
    ]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), want)
    upper = axes.collections[1].get_paths()[0].vertices[:, 1].max()
    sds = [
        np.std([scores.value(r) for r in mine if r.description["strength"] == p], ddof=1)
        for p in (0, 0.25, 0.5, 1)
    ]
    assert upper == pytest.approx(max(np.array(want) + sds))


def test_other_vertices_get_other_colours_and_one_panel_is_a_column_wide():
    few = [r for r in proportion_search((2.0, 3.0, 4.0, 5.0)) if r.description["method"] == "rehearsal"]
    figure = figures.response(few)
    legible(figure)
    assert figure.get_figwidth() == style.COLUMN
    assert len({line.get_color() for line in figure.axes[0].lines}) == 4
    assert style.vertex_colours([2, 3]) == {2.0: 0, 3.0: 1}
    assert style.vertex_colours([20, 2, 3])[20.0] == 3


def test_diverged_trials_are_marked_on_the_axis():
    records = [*lambda_search(40, ("mas",)), record(diverged=True, method="mas", strength=1e5)]
    axes = figures.response(records).axes[0]
    marks = [line for line in axes.lines if line.get_label() == "diverged"]
    assert len(marks) == 1
    assert list(marks[0].get_xdata()) == [1e5]


def test_no_strength_nothing_to_draw():
    with pytest.raises(ValueError, match="no records with a strength"):
        figures.response([record()])


# Heat maps


def framed(axes) -> tuple[float, float]:
    (frame,) = axes.patches
    return frame.get_x() + 0.5, frame.get_y() + 0.5


def test_a_heat_map_shows_the_means_and_marks_the_best_cell():
    records = grid()
    figure = figures.heat_map(records, measure="average")
    legible(figure)
    panels = figure.axes[:4]
    assert [a.get_title() for a in panels] == [f"$n={v:g}$" for v in VERTICES]
    shown = panels[0].images[0].get_array()
    for (i, j), value in np.ndenumerate(shown):
        rate, temperature = (0.02, 0.08, 0.2)[i], (0.75, 0.95, 1.2)[j]
        assert value == pytest.approx(0.2 + rate + temperature / 4)
    for axes in panels:
        assert framed(axes) == (2, 2)
    assert figure.axes[4].get_ylabel() == "average accuracy"


def test_the_chosen_cell_may_be_given_and_must_exist():
    axes = figures.heat_map(grid(), chosen=(0.75, 0.08)).axes[0]
    assert framed(axes) == (0, 1)
    with pytest.raises(ValueError, match="chosen must be a cell"):
        figures.heat_map(grid(), chosen=(0.5, 0.08))


def test_a_diverged_cell_is_named_and_never_chosen():
    records = grid((2.0,))[:-1]
    records.append(record(diverged=True, **{k: v for k, v in grid((2.0,))[-1].description.items()}))
    figure = figures.heat_map(records)
    legible(figure)
    assert "div." in [t.get_text() for t in figure.axes[0].texts]
    assert framed(figure.axes[0]) != (2, 2)
    assert "none" in [t.get_text() for t in figures.heat_map(records[:-1]).axes[0].texts]


def test_a_cell_that_diverged_at_one_vertex_is_chosen_for_none():
    records = [
        record(0.3 if rate < 0.2 else 0.9, diverged=(v, rate) == (20.0, 0.2), vertex=v, learning_rate=rate)
        for v in VERTICES
        for rate in (0.08, 0.2)
    ]
    figure = figures.heat_map(records, measure="average")
    assert {framed(axes) for axes in figure.axes[:4]} == {(0, 0)}


# Task curves and recall


def test_task_curves_have_a_line_a_task_and_boundaries():
    records = curved()
    figure = figures.task_curves(records)
    legible(figure)
    assert len(figure.axes) == 4
    assert figure.get_suptitle() == "Vanilla"
    for axes, vertex in zip(figure.axes, VERTICES, strict=True):
        assert axes.get_title() == f"$n={vertex:g}$"
        curves = [line for line in axes.lines if not line.get_label().startswith("_")]
        assert [c.get_label() for c in curves] == [f"task {k}" for k in range(1, 6)]
        ends = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
        assert ends == [20, 40, 60, 80]
        mine = np.stack([r.curves["accuracy"] for r in records if r.description["vertex"] == vertex])
        np.testing.assert_allclose(curves[2].get_ydata(), mine.mean(0)[:, 2])
        top = axes.collections[2].get_paths()[0].vertices[:, 1].max()
        assert top == pytest.approx((mine.mean(0) + mine.std(0, ddof=1))[:, 2].max())


def test_task_curves_count_the_diverged():
    records = [
        *curved(),
        record(diverged=True, vertex=2.0, epochs=20, seed=9),
        record(diverged=True, vertex=30.0),
    ]
    figure = figures.task_curves(records)
    legible(figure)
    notes = [[t.get_text() for t in axes.texts] for axes in figure.axes]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "", "epoch", "epoch"]
    assert notes == [["1 of 4 runs diverged"], [], [], [], ["1 of 1 runs diverged"]]


def test_recall_bars_are_the_means_over_seeds():
    figure = figures.lost_attractors(states())
    legible(figure)
    axes = figure.axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    np.testing.assert_allclose(heights, [1.0, 0.15, 0.0, 0.9])
    assert [t.get_text() for t in axes.get_xticklabels()] == ["after task 1", "after task 2"]
    both = [*states(), *(StandIn({**r.description, "method": "rehearsal"}, r.scores) for r in states())]
    titles = [axes.get_title() for axes in figures.lost_attractors(both).axes]
    assert titles == ["Vanilla, $n=2$", "Vanilla, $n=5$", "Rehearsal, $n=2$", "Rehearsal, $n=5$"]
    with pytest.raises(ValueError, match="stream of states"):
        figures.lost_attractors([record()])


# Bars


def test_bars_stand_beside_the_papers():
    draw = np.random.default_rng(0)
    records = [
        record(paper.printed(row, v).mean + draw.normal(0, 0.02), method=row.method, vertex=v, seed=seed,
               strength=row.proportion or paper.chosen_lambda(row.method, v))
        for row in paper.rows() for v in paper.vertices() for seed in range(3)
    ]  # fmt: skip
    figure = figures.table2_bars(records)
    legible(figure)
    assert len(figure.axes) == 4
    for axes, vertex in zip(figure.axes, paper.vertices(), strict=True):
        ours, theirs = axes.patches[:13], axes.patches[13:]
        want = [paper.printed(row, vertex).mean for row in paper.rows()]
        np.testing.assert_allclose([bar.get_width() for bar in theirs], want)
        assert ours[0].get_y() > theirs[0].get_y() > ours[1].get_y()  # ours above the paper's, row by row
    vanilla = [
        scores.value(r)
        for r in records
        if r.description["method"] == "vanilla" and r.description["vertex"] == 5
    ]
    assert figure.axes[1].patches[0].get_width() == pytest.approx(np.mean(vanilla))


def test_a_row_is_named_once_in_a_files_name(tmp_path):
    runs = [record(0.5, method="gem", strength=0.5)]
    for name, found in (
        ("curves-gem-0.5", "curves-gem-0.5"),
        ("mine", "mine-gem-0.5"),
        (None, "tasks-gem-0.5"),
    ):
        (path,) = figures.draw("tasks", runs, tmp_path, name, formats=("png",))
        assert path.stem == found


def test_bars_of_other_data_say_what_the_papers_were_of():
    def legend(**settings: object) -> list[str]:
        figure = figures.table2_bars([record(0.5, **settings)])
        return [text.get_text() for text in figure.legends[0].get_texts()]

    assert legend() == ["ours", "the paper's"]
    assert legend(data="digits") == ["ours", "the paper's (MNIST, 10,000 items)"]


def test_bars_leave_out_vertices_without_runs_and_name_missing_rows():
    runs = [record(0.4, vertex=10), record(diverged=True, vertex=10, seed=1)]
    figure = figures.table2_bars([*runs, record(0.5, vertex=10, method="l2", strength=1e-6)])
    legible(figure)
    assert [axes.get_title() for axes in figure.axes] == ["$n=10$"]
    notes = [t.get_text() for t in figure.axes[0].texts]
    assert notes == ["1 diverged"] + ["missing"] * 3  # of the categories tried


# The rows of a study


def several_rows() -> list[StandIn]:
    """Rehearsal at three proportions, vanilla, and EWC with another lambda at each of two vertices."""
    runs: list[StandIn] = []
    for seed, vertex in itertools.product((0, 1), (2, 20)):
        about = {"seed": seed, "vertex": vertex}
        runs += [record(0.5 + p, method="rehearsal", strength=p, **about) for p in (0.4, 0.1, 0.2)]
        runs += [record(0.3, **about), record(0.6, method="ewc", strength=1000.0 / vertex, **about)]
    return runs


def test_rows_are_bars_whatever_their_strengths_and_the_best_is_dark():
    figure = figures.row_bars(several_rows())
    legible(figure)
    assert [axes.get_title() for axes in figure.axes] == ["$n=2$", "$n=20$"]
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["Rehearsal 0.4", "Rehearsal 0.1", "Rehearsal 0.2", "Vanilla", "EWC"]
    for axes in figure.axes:
        bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert [bar.get_width() for bar in bars] == pytest.approx([0.9, 0.6, 0.7, 0.3, 0.6])
        assert [bar.get_facecolor() == bars[0].get_facecolor() for bar in bars] == [True] + [False] * 4
    split = figures.row_bars([record(0.1), record(0.2, items=50)], ["mine", "mine"])
    names = [text.get_text() for text in split.axes[0].get_yticklabels()]
    assert names == ["mine, items 50", "mine, items 10000"]


def test_what_is_kept_is_where_a_row_stands_and_rehearsal_is_a_curve():
    runs = several_rows()
    figure = figures.frontier(runs)
    legible(figure)
    for axes in figure.axes:
        boxes = {box.get_label(): box[0] for box in axes.containers}
        kept = {
            r.description["strength"]: scores.value(r, "bytes_kept")
            for r in runs
            if r.description["strength"]
        }
        x, y = boxes["Rehearsal"].get_data()
        assert x == pytest.approx([kept[p] for p in (0.1, 0.2, 0.4)])
        assert y == pytest.approx([0.6, 0.7, 0.9])
        assert list(boxes["Vanilla"].get_data()[0]) == [0]
        assert boxes["EWC"].get_data()[0][0] == 2 * 8 * 512 * 799


# Drawing into a folder


def test_draw_writes_pdf_and_png_for_every_kind(tmp_path, grouped):
    kept = [with_memories(5.0)]
    given = {
        "response": lambda_search(12, ("mas",)),
        "grid": grid(),
        "grid_average": grid(),
        "tasks": curved(),
        "over_tasks": of_many_tasks(),
        "bars": [record()],
        "rows": several_rows(),
        "frontier": several_rows(),
        "memories": kept,
        "pseudo_items": kept,
        "energy": kept,
        "energy_tells": grouped[:1],
        "attractors": states(),
    }
    assert set(given) == set(figures.KINDS)
    for kind, records in given.items():
        made = figures.draw(kind, records, tmp_path / kind)
        assert [p.suffix for p in made] == [".pdf", ".png"]
        assert made[0].read_bytes().startswith(b"%PDF")
        assert made[1].read_bytes().startswith(b"\x89PNG")
        assert sorted(p.name for p in (tmp_path / kind).iterdir()) == sorted(p.name for p in made)


def test_task_curves_come_one_figure_a_row(tmp_path):
    records = [*curved(), *curved(method="gem", strength=0.5), *curved(method="mas", strength=3.0)]
    made = figures.draw("tasks", records, tmp_path, formats=("png",))
    assert [p.name for p in made] == ["tasks-vanilla.png", "tasks-gem-0.5.png", "tasks-mas.png"]


def test_draw_refuses_what_it_cannot_draw(tmp_path):
    with pytest.raises(ValueError, match=r"figure must be one of response, .* not 'pie'"):
        figures.draw("pie", [record()], tmp_path)
    with pytest.raises(ValueError, match="no records to draw tasks from"):
        figures.draw("tasks", [], tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_same_records_give_the_same_bytes(tmp_path):
    first, second = (figures.draw("bars", [record()], tmp_path / name) for name in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    figure = figures.table2_bars([record()])

    def fails(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fails)
    with pytest.raises(OSError, match="disk full"):
        style.save(figure, tmp_path, "x")
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_left_as_it_was(tmp_path):
    with matplotlib.rc_context({"font.size": 23, "axes.grid": False}):
        before = dict(matplotlib.rcParams)
        figures.draw("bars", [record()], tmp_path)
        assert dict(matplotlib.rcParams) == before
    # Whatever the user's settings are, the figure is the same.
    with matplotlib.rc_context({"font.size": 23, "xtick.direction": "in", "hatch.color": "red"}):
        other = figures.draw("bars", [record()], tmp_path / "b", formats=("png",))[0]
    assert other.read_bytes() == (tmp_path / "bars.png").read_bytes()


def test_pyplot_is_never_imported():
    code = "import sys, engramma.show.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


# Over the number of tasks


def of_many_tasks(counts=(5, 10, 20, 50), **settings) -> list[StandIn]:
    return [
        record(0.9 - tasks / 500 + seed / 100, tasks=tasks, vertex=v, seed=seed, **settings)
        for v in (2.0, 20.0)
        for tasks in counts
        for seed in range(3)
        if v == 2.0 or tasks < 50  # not run
    ]


def drawn(figure: Figure) -> list:
    """Means and deviations of each line: [(x, mean, sd)]."""
    found = []
    for container in figure.axes[0].containers:
        line, _, (bars,) = container.lines
        low, high = np.array(bars.get_segments())[:, :, 1].T
        found.append((line, *line.get_xydata().T, (high - low) / 2))
    return found


def test_over_tasks_has_a_line_a_vertex_and_only_what_was_run():
    lost = record(diverged=True, method="allocation", vertex=20.0, tasks=50)
    figure = figures.over_tasks([*of_many_tasks(method="allocation"), lost])
    legible(figure)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["5", "10", "20", "50"]
    assert [text.get_text() for text in axes.texts] == ["1 of 22 runs diverged"]
    (two, x, mean, sd), (twenty, x20, _, _) = drawn(figure)
    assert list(x) == [5, 10, 20, 50]
    assert list(x20) == [5, 10, 20]
    assert np.allclose(mean, 0.91 - np.array(x) / 500)
    assert np.allclose(sd, 0.01)
    assert (two.get_color(), twenty.get_color()) == (style.COLOURS[0], style.COLOURS[3])
    assert axes.get_title() == "allocation"


def test_over_tasks_tells_methods_apart_by_dash_and_marker():
    others = [record(0.5, method=m, strength=s, vertex=2.0, seed=i)
              for m, s in (("vanilla", None), ("rehearsal", 0.5), ("rehearsal", 0.05), ("ewc", 1100.0))
              for i in range(2)]  # fmt: skip
    figure = figures.over_tasks([*others, *of_many_tasks(method="allocation")])
    legible(figure)
    looks = {line.get_color() + str((line.get_linestyle(), line.get_marker())) for line, *_ in drawn(figure)}
    assert len(looks) == 6
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert labels == ["allocation", "Vanilla", "Rehearsal 0.05", "Rehearsal 0.5", "EWC", "$n=2$", "$n=20$"]
    assert drawn(figure)[0][0].get_linestyle() == "-"  # the one with most numbers of tasks


def test_over_tasks_averages_nothing_else():
    mixed = [*of_many_tasks(), record(memories=102, tasks=5, vertex=2.0, seed=7)]
    with pytest.raises(ValueError, match=r"n=2, over tasks: its records differ in memories \(512, 102\)"):
        figures.over_tasks(mixed)
    with pytest.raises(ValueError, match="no records"):
        figures.over_tasks([])


def test_a_figure_of_one_row_says_its_name_once(tmp_path):
    made = figures.draw("tasks", curved(method="ewc"), tmp_path, "ewc", formats=("png",))
    assert [path.name for path in made] == ["ewc.png"]
    made = figures.draw("tasks", curved(method="ewc"), tmp_path, "few", formats=("png",))
    assert [path.name for path in made] == ["few-ewc.png"]
