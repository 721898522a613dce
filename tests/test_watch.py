"""The dashboard and the TensorBoard log, driven by a real run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from engramma.experiment import read
from engramma.runs import study
from engramma.runs.options import Options
from engramma.runs.setup import build
from engramma.runs.watch import Dashboard, Several, TensorBoard, duration, run_name, watching
from engramma.store.records import Store

SMALL = {"data": "digits", "tasks": 2, "items": 60, "memories": 5, "epochs": 4, "method": "rehearsal"}


def pack(**changes):
    experiments = [
        read({**SMALL, "seed": seed, "strength": s, **changes}) for seed in (3, 8) for s in (0.1, 0.5)
    ]
    return experiments, build(experiments)


def watch_through(watcher, experiments, built, stop_after=None):
    watcher.start(experiments, built)
    seen = []
    for moment in built.train():
        scores = built.stream.evaluate(moment.network, moment.theta) if moment.epoch % 2 == 0 else None
        watcher.update(moment, scores)
        if scores is not None:
            seen.append((moment, scores))
        if (moment.task, moment.epoch) == stop_after:
            return seen
    watcher.stop()
    return seen


def text_of(dashboard: Dashboard, width: int = 110, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(dashboard.render())
    return console.file.getvalue()  # type: ignore[attr-defined]


def quiet(height: int = 40) -> Console:
    return Console(file=io.StringIO(), width=110, height=height)


def test_dashboard_shows_replicas_epoch_loss_and_scores():
    experiments, built = pack()
    board = Dashboard(console=quiet())
    seen = watch_through(board, experiments, built, stop_after=(1, 2))
    shown = text_of(board)
    assert "4 replicas; task 2/2, epoch 2/4" in shown
    moment, scores = seen[-1]
    loss = moment.network.loss(moment.theta, built.stream[1].train)
    for row, experiment in enumerate(experiments):
        line = next(
            l
            for l in shown.splitlines()
            if l.split()[:2] == [str(experiment.seed), f"{experiment.strength:g}"]
        )
        accuracy = scores["accuracy"][row]
        assert line.split()[2:] == [f"{loss[row]:.4g}", f"{accuracy[1]:.3f}", f"{accuracy.mean():.3f}"]


def test_average_so_far_leaves_out_tasks_to_come():
    experiments, built = pack()
    board = Dashboard(console=quiet())
    seen = watch_through(board, experiments, built, stop_after=(0, 2))
    assert board.last is not None
    assert board.last.average == board.last.own == seen[-1][1]["accuracy"][:, 0].tolist()


def test_time_left_follows_the_pace():
    now = [0.0]
    done = [10.0]
    board = Dashboard(work=lambda: (done[0], 110.0), console=quiet(), clock=lambda: now[0])
    assert board.left() is None  # what was done before we watched says nothing about the pace
    now[0], done[0] = 30.0, 20.0
    assert board.left() == pytest.approx(270.0)
    assert "4 min left" in text_of(board)


def test_many_replicas_fit_a_small_terminal():
    experiments = [read({**SMALL, "seed": seed, "strength": 0.1}) for seed in range(30)]
    built = build(experiments)
    board = Dashboard(console=quiet(height=12))
    watch_through(board, experiments, built, stop_after=(0, 2))
    lines = text_of(board, height=12).splitlines()
    assert len(lines) <= 12
    assert "mean of 30, 25 not shown" in lines[-1]


def test_dashboard_writes_to_a_terminal_and_leaves_it():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    experiments, built = pack()
    with Dashboard(console=console) as board:
        watch_through(board, experiments, built)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert "task 2/2, epoch 4/4" in out
    assert "100%" in out
    assert out.rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_tensorboard_holds_what_was_measured(tmp_path):
    event = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    experiments, built = pack()
    board = TensorBoard(tmp_path)
    seen = watch_through(Several([board, Dashboard(console=quiet())]), experiments, built)
    assert len(list(tmp_path.iterdir())) == 4
    for row, experiment in enumerate(experiments):
        log = event.EventAccumulator(str(tmp_path / run_name(experiment)))
        log.Reload()
        found = log.Scalars("task/2")
        assert [e.step for e in found] == [m.task * 4 + m.epoch for m, _ in seen] == [2, 4, 6, 8]
        expected = [s["accuracy"][row, 1].item() for _, s in seen]
        assert [e.value for e in found] == pytest.approx(expected)
        assert {"loss", "own", "average so far", "task/1"} <= set(log.Tags()["scalars"])


def test_a_study_is_watched_and_finds_the_same(tmp_path, capsys):
    """Watching changes no number, and is told of every epoch of every pack."""
    runs = [read({**SMALL, "vertex": n, "seed": s}) for n in (2.0, 3.0) for s in (0, 1)]
    plain = study.run(runs, Store(tmp_path / "plain")).records
    work = study.Work()
    with watching(work, True, tmp_path / "board") as watcher:
        told = []
        watcher.watchers[0].update = lambda m, s: told.append((m.task, m.epoch, s is not None))  # type: ignore
        watched = study.run(runs, Store(tmp_path / "watched"), Options(curve_every=2), work, watcher)
    assert told == [(t, e, e % 2 == 0) for _ in range(2) for t in range(2) for e in range(1, 5)]
    assert len(list((tmp_path / "board").iterdir())) == 4
    for a, b in zip(plain, watched.records, strict=True):
        assert (a.scores["accuracy"] == b.scores["accuracy"]).all()
    assert "100%" in capsys.readouterr().err


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ValueError, match="tensorboard must be a folder"):
        TensorBoard(tmp_path / "taken")


def test_run_names_differ_and_are_plain():
    names = {run_name(read({**SMALL, "seed": s, "strength": x})) for s in (0, 1) for x in (0.1, 0.2)}
    assert len(names) == 4
    assert all("/" not in name for name in names)


def test_durations():
    assert [duration(s) for s in (5, 300, 7200)] == ["5 s", "5 min", "2.0 h"]
