"""The command line: what people do to it, and what it says."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from engramma import cli, studies
from engramma.cli import app, interrupt
from engramma.datasets import MNIST
from engramma.experiment import Experiment
from engramma.records import Store

TINY = "--data digits --tasks 2 --items 40 --memories 4 --epochs 2 --device cpu"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("ENGRAMMA_DATA", raising=False)
    return tmp_path


def engramma(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


def refused(result: Result, says: str) -> None:
    """One line on stderr, exit status 2, no traceback."""
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = [line for line in result.stderr.splitlines() if line.startswith("engramma:")]
    assert len(lines) == 1, result.stderr
    assert re.search(says, lines[0]), lines[0]
    assert "Traceback" not in result.output


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from engramma.cli import main; main()", *arguments]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--items -5", "items must be greater than or equal to 1, not -5"),
        ("--vertex 0", "vertex must be greater than 0, not 0"),
        ("--vertex -2", "vertex must be greater than 0"),
        ("--vertex two", "vertex must be a valid number, not 'two'"),
        ("--items 5000", "items must be at most 1797, what digits has"),
        ("--method sleep", "method must be one of vanilla, .* or package.module:Class, not 'sleep'"),
        ("--method nowhere:Thing", "cannot import nowhere"),
        ("--method ewc --set fisher=whole", "fisher must be item or batch"),
        ("--method ewc --set fisher", "--set must be name=value"),
        ("--method ewc --strengths strong", "strengths must be numbers such as"),
        ("--seeds 0", "seeds must be how many"),
        ("--seeds 1,x", "seeds must be how many"),
        ("--stream sideways", "stream must be 'permuted'"),
        ("--dtype float16", "dtype must be 'float64', 'float32' or 'mixed'"),
        ("--dtype mixed --kernel reference", "dtype mixed needs .* numba on the CPU, not kernel reference"),
        ("--device tpu", "device must be auto, cpu or cuda"),
        ("--kernel magic", "kernel must be auto"),
        ("--data nothing.npz", "nothing.npz: no such file"),
        ("--config nothing.toml", "nothing.toml"),
        ("--data states", "data must be states .* only for it"),
    ],
)
def test_run_says_what_is_wrong_and_writes_nothing(line: str, says: str, here: Path) -> None:
    refused(engramma(f"run {TINY} {line}"), says)
    assert not list(here.iterdir())


@pytest.mark.usefixtures("here")
def test_an_unknown_option_or_command() -> None:
    for line in ("run --memmories 3", "dance", "reproduce --scale"):
        result = engramma(line)
        assert result.exit_code == 2
        assert "Traceback" not in result.output


def test_an_unknown_key_in_a_file(here: Path) -> None:
    (here / "my.toml").write_text('data = "digits"\nmemmories = 3\n')
    refused(engramma("run --config my.toml"), "unknown setting memmories; did you mean memories")
    (here / "my.toml").write_text("data = digits")
    refused(engramma("run --config my.toml"), "my.toml is not valid TOML")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device here")
@pytest.mark.usefixtures("here")
def test_cuda_without_one() -> None:
    refused(engramma(f"run {TINY} --device cuda"), "device must be auto or cpu here")


def test_missing_and_damaged_data(here: Path) -> None:
    (here / "empty").mkdir()
    refused(engramma("run --data mnist --data-dir empty"), "MNIST's files are not there")
    (here / "bad").mkdir()
    for name in MNIST:
        (here / "bad" / name).write_bytes(gzip.compress(b"nothing"))
    refused(engramma("run --data mnist --data-dir bad"), "is damaged: its SHA-256 is not MNIST's")
    (here / "bad.npz").write_bytes(b"nothing")
    refused(engramma("run --data bad.npz"), "bad.npz: not an .npz")
    assert not (here / "runs").exists()


@pytest.mark.usefixtures("here")
def test_no_network(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    import pooch

    def fetch(*args: object, **options: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(pooch.core.Pooch, "fetch", fetch)
    refused(engramma("run --data mnist"), "could not be fetched; .*--data-dir")


def test_a_folder_that_cannot_be_written(here: Path) -> None:
    (here / "file").write_text("")
    refused(engramma(f"run {TINY} --store file"), "store file must be a folder")
    refused(engramma(f"run {TINY} --store file/runs"), "must be a folder that can be written")
    refused(engramma("runs list --store elsewhere"), "there is none at elsewhere")


def test_run_shows_every_task_after_every_task(here: Path) -> None:
    result = engramma(f"run {TINY} --seeds 2 --method ewc --strengths 1,10 --vertex 5")
    assert result.exit_code == 0, result.output
    for text in (
        "ewc 1, n = 5",
        "ewc 10, n = 5",
        "2 seeds",
        "task 2",
        "forgetting",
        "4 runs trained, 0 found",
    ):
        assert text in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert len(Store(here / "runs")) == 4
    again = engramma(f"run {TINY} --seeds 0,1 --method ewc --strengths 1,10 --vertex 5")
    assert "0 runs trained, 4 found" in again.stdout
    matrices = [
        record.scores["accuracy"] for record in Store(here / "runs") if record.description["strength"] == 1
    ]
    shown = [float(x) for x in re.findall(r"task 2 +(0\.\d+)±", result.stdout.split("ewc 10")[0])]
    assert shown == [pytest.approx(np.mean([m[1, 0] for m in matrices]), abs=5e-4)]


def test_options_win_over_the_file(here: Path) -> None:
    (here / "my.toml").write_text(
        'data = "digits"\ntasks = 2\nitems = 40\nmemories = 4\nepochs = 3\nseeds = 2\n'
        'method = "ewc"\nstrength = 5\n[settings]\nfisher = "batch"\nbatch = 7\n'
    )
    assert engramma("run --config my.toml --epochs 2 --set batch=9 --no-task-id").exit_code == 0
    records = list(Store(here / "runs"))
    assert sorted(r.description["seed"] for r in records) == [0, 1]
    told = records[0].description
    assert (told["epochs"], told["task_id"], told["strength"]) == (2, False, 5.0)
    assert (told["settings"]["fisher"], told["settings"]["batch"]) == ("batch", 9)


def test_a_method_from_the_folder_one_works_in(here: Path) -> None:
    (here / "beside.py").write_text("from engramma.methods import Vanilla\nclass Mine(Vanilla): ...\n")
    result = engramma(f"run {TINY} --method beside:Mine")
    assert result.exit_code == 0, result.output
    assert "beside:Mine, n = 2" in result.stdout


def test_every_setting_has_an_option(here: Path) -> None:
    help_text = engramma("run --help").stdout
    for name, field in Experiment.model_fields.items():
        if name not in ("seed", "settings", "autoassociative", "fork"):
            assert f"--{name.replace('_', '-')}" in help_text
            assert field.description
    assert max(map(len, help_text.splitlines())) <= 80


def test_fork_from_the_command_line(here: Path) -> None:
    assert engramma(f"run {TINY} --tasks 3 --seeds 2 --keep-checkpoints").exit_code == 0
    parent = Store(here / "runs").names()[0]
    result = engramma(f"fork {parent[:8]} --after 1 --method rehearsal --strength 0.5 --device cpu")
    assert result.exit_code == 0, result.output
    children = [r for r in Store(here / "runs") if r.description["fork"]]
    assert {r.description["method"] for r in children} == {"rehearsal"}
    assert len(children) == 2
    refused(engramma(f"fork {parent} --after 3 --device cpu"), "the task must be between")
    refused(engramma(f"fork {children[0].name} --after 1"), "must have kept its checkpoints")


def test_runs_list_show_verify_prune(here: Path) -> None:
    assert engramma(f"run {TINY} --seeds 3").exit_code == 0
    store = Store(here / "runs")
    names = store.names()
    listed = engramma("runs list")
    assert all(name[:8] in listed.stdout for name in names)
    assert "3 runs in runs" in listed.stdout
    assert "0 runs in runs" in engramma("runs list --method ewc").stdout
    shown = engramma(f"runs show {names[0][:6]}")
    assert names[0] in shown.stdout
    assert "stream_hash" in shown.stdout
    refused(engramma("runs show ../runs"), "hexadecimal digits")
    refused(engramma("runs show ffffffffffffffffffff"), "no run starts with")
    assert "3 runs sound, 0 damaged" in engramma("runs verify").stdout
    with open(store.path / names[0] / "arrays.safetensors", "ab") as file:
        file.write(b"x")
    result = engramma("runs verify")
    assert result.exit_code == 1
    assert names[0] in result.stdout.replace("\n", "")
    assert "2 runs sound, 1 damaged" in result.stdout
    assert "would be removed" in engramma(f"runs prune {names[1]} --dry-run").stdout
    assert len(store) == 2
    assert "1 runs, 1 set aside" in engramma(f"runs prune {names[1]}").stdout
    assert store.names() == [names[2]]
    assert not list((store.path / "set-aside").iterdir())


@pytest.mark.usefixtures("here")
def test_info() -> None:
    result = engramma("info")
    assert result.exit_code == 0, result.output
    for text in ("torch", "kernels", "pseudorehearsal", "data: mnist"):
        assert text in result.stdout


@pytest.mark.usefixtures("here")
def test_reproduce_lists_and_refuses() -> None:
    listed = engramma("reproduce --list").stdout
    assert all(name in listed for name in studies.names())
    refused(engramma("reproduce"), "study must be named")
    refused(engramma("reproduce table9"), "study must be one of table1, table2")
    refused(engramma("reproduce table2 --scale huge"), "scale must be one of demo, small, paper")
    refused(engramma("reproduce table2 --rows ewcc"), "rows must be some of vanilla")
    refused(engramma("reproduce table2 --vertices 3"), "vertices must be some of 2, 5, 10, 20")


def test_reproduce_runs_some_cells(here: Path) -> None:
    line = "reproduce lost-attractors --vertices 2 --seeds 1 --device cpu"
    dry = engramma(line + " --dry-run").stdout
    assert "2 of 2 different runs" in dry
    assert "an estimate" in dry
    assert not list((here / "runs").glob("*/record.json"))
    result = engramma(line)
    assert result.exit_code == 0, result.output
    assert "2 runs trained" in result.stdout
    by_method = {r.description["method"]: r.scores["recalled"] for r in Store(here / "runs")}
    assert by_method["vanilla"][0, 0] == 1  # learned,
    assert by_method["vanilla"][1, 0] < 0.5  # then lost;
    assert by_method["rehearsal"][1, 0] >= 0.75  # and with rehearsal kept
    assert (here / "output" / "demo" / "lost-attractors.png").is_file()
    assert "0 of 2 different runs" in engramma(line + " --dry-run").stdout


def test_every_study_expands() -> None:
    """One file for each table and figure; every experiment valid, every cell different."""
    assert len(studies.names()) == 29
    for name in studies.names():
        study = studies.load(name)
        assert study.title
        assert study.tables or study.figures
        for scale in studies.SCALES:
            runs = study.runs(scale)
            assert len({run.experiment.name for run in runs}) == len(runs) > 0
            data = {run.experiment.data for run in runs}
            assert data <= ({"digits", "states"} if scale == "demo" else {"mnist", "states"})


def test_it_runs_as_a_module() -> None:
    told = subprocess.run([sys.executable, "-m", "engramma", "--version"], capture_output=True, text=True)
    assert told.stdout.startswith("engramma "), told.stderr


def in_shares(e: Experiment) -> dict[str, Any]:
    """Its settings, with a sample by number of items as the share of what is kept of a task that it is."""
    sample = e.settings.get("sample")
    if sample is None or sample < 1:
        return e.settings
    assert e.strength
    return {**e.settings, "sample": round(sample / (e.strength * 0.8 * e.items), 9)}


def test_table_2_is_the_paper_s() -> None:
    runs = studies.load("table2").runs("paper")
    assert len(runs) == 520
    cells = {(run.row, run.experiment.vertex) for run in runs}
    assert len({row for row, _ in cells}) == 13
    assert {vertex for _, vertex in cells} == {2, 5, 10, 20}
    for run in runs:
        e = run.experiment
        assert (e.items, e.memories, e.epochs) == (10_000, 512, 500)
        assert (e.learning_rate, e.initial_temperature, e.final_temperature) == (0.15, 0.95, 0.95)
    # Nothing but lambda differs from cell to cell: a method has one setting, at all vertices and proportions.
    alike = {e.but(strength=None, settings={}, method="vanilla", vertex=2.0, seed=0) for _, e in runs}
    assert len(alike) == 1
    assert len({(e.method, str(in_shares(e))) for _, e in runs}) == 9
    strengths = {(r.experiment.method, r.experiment.vertex): r.experiment.strength for r in runs}
    assert strengths["mas", 20] == 0.84
    assert strengths["ewc", 5] == 750


# Ctrl-C, as a terminal sends it


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
def test_ctrl_c_says_what_was_kept(tmp_path: Path) -> None:
    settings = [
        "--data",
        "digits",
        "--tasks",
        "3",
        "--items",
        "40",
        "--memories",
        "4",
        "--device",
        "cpu",
        "--kernel",
        "reference",
    ]
    store = tmp_path / "runs"
    process = subprocess.Popen(
        command("run", *settings, "--epochs", "1000000", "--store", str(store)),
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(store.glob("claims/*.lock")):  # until it works on the run
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "stopped; 0 finished runs are kept" in " ".join(said.split())
    assert "Traceback" not in said
    assert not list(store.rglob(".tmp-*"))


def test_settings_of_a_file_must_be_a_table_to_be_added_to(here: Path) -> None:
    (here / "run.toml").write_text('method = "ewc"\nsettings = "fisher"\n')
    refused(engramma("run --config run.toml --set fisher=item"), "settings must be a table, not 'fisher'")


def test_records_with_other_scores_are_shown_apart(here: Path) -> None:
    """Of two seeds one has a score that the other has not, and no curve of it."""
    engramma(f"run {TINY} --seeds 2")
    store = Store("runs")
    first, _ = store
    accuracy = first.scores["accuracy"]
    store.remove(first.name)
    store.write(replace(first, scores={"guessed": accuracy}))
    result = engramma(f"run {TINY} --seeds 2")
    assert result.exit_code == 0, result.output
    assert "guessed of each task" in " ".join(result.output.split())
    assert "accuracy of each task" in " ".join(result.output.split())
    assert result.output.count("forward transfer") == 1


def test_ctrl_c_before_a_command_has_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the command line is still being put together."""

    def stopped() -> None:
        raise KeyboardInterrupt

    def leave() -> None:
        raise SystemExit(interrupt.STOPPED)

    monkeypatch.setattr(cli, "app", stopped)
    monkeypatch.setattr(interrupt, "leave", leave)
    monkeypatch.setattr(interrupt, "kept", lambda: "nothing was written")
    interrupt._answering.clear()
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert "stopped; nothing was written" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
def test_ctrl_c_in_the_middle_of_one_long_operation() -> None:
    code = (
        "import torch; from engramma.cli import interrupt\n"
        "a = torch.rand(4000, 4000, dtype=torch.float64)\n"
        "with interrupt.answered():\n"
        "    print('busy', flush=True)\n"
        "    torch.linalg.svd(a)\n"
        "    print('finished', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    time.sleep(1)  # it is inside the operation now
    os.kill(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "stopped" in said
