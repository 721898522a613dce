"""The command line: what people do to it, and what it says."""

from __future__ import annotations

import csv
import gzip
import io
import json
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
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner, Result

import engramma as en
from engramma import cli, studies
from engramma.checks import visible
from engramma.cli import app, interrupt, spelled_out
from engramma.cli.options import given
from engramma.experiment import Experiment, read
from engramma.interactions import INTERACTIONS
from engramma.losses import LOSSES
from engramma.methods import METHODS
from engramma.runs import study
from engramma.runs.options import Options
from engramma.runs.terminal import Terminal
from engramma.store.records import Record, Store
from engramma.streams import STREAMS
from engramma.streams.datasets import MNIST

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
        ("--vertex 0", "vertex must be greater than or equal to 0.000001, not 0"),
        ("--vertex -2", "vertex must be greater than or equal to"),
        ("--vertex two", "vertex must be a valid number, not 'two'"),
        ("--items 5000", "items must be at most 1797, what digits has"),
        ("--method sleep", "method must be one of vanilla, .* or ./file.py:Class, not 'sleep'"),
        ("--method nowhere:Thing", "cannot import nowhere"),
        ("--method ewc --set fisher=whole", "fisher must be item or batch"),
        ("--method ewc --set fisher", "--set must be name=value"),
        ("--method ewc --strength strong", "strength must be a valid number, not 'strong'"),
        ("--method ewc --strength 1,strong", "strength must be numbers such as"),
        ("--method ewc --strengths strong", "strength must be a valid number"),
        ("--vertex 2,x", "vertex must be numbers such as"),
        ("--seed 1 --seeds 2", "seed must be left out where --seeds says"),
        ("--method EWC", "method must be one of .* not 'EWC'; did you mean ewc"),
        ("--stream permutd", "did you mean permuted"),
        ("--interaction leeky", "did you mean leaky"),
        ("--data digts", "did you mean digits"),
        ("--normalise velocty", "did you mean velocity"),
        ("--method ewc --set fischer=item", "unknown setting settings.fischer of ewc; did you mean fisher"),
        ("--method ewc --set fisher=itm", "fisher must be item or batch, not 'itm'; did you mean item"),
        ("--seeds 0", "seeds must be how many"),
        ("--seeds 1,x", "seeds must be how many"),
        ("--stream sideways", "stream must be one of permuted, .*:Class, not 'sideways'"),
        ("--dtype float16", "dtype must be float64, float32 or mixed"),
        ("--dtype mixed --kernel reference", "dtype mixed needs .* numba on the CPU, not kernel reference"),
        ("--device tpu", "device must be auto, cpu or cuda"),
        ("--kernel magic", "kernel must be auto"),
        ("--data nothing.npz", "nothing.npz: no such file"),
        ("--config nothing.toml", "nothing.toml"),
        ("--data states", "data must be mnist, digits, an .npz file or a folder .* for the stream permuted"),
    ],
)
def test_run_says_what_is_wrong_and_writes_nothing(line: str, says: str, here: Path) -> None:
    refused(engramma(f"run {TINY} {line}"), says)
    assert not list(here.iterdir())


EXTREMES = [
    "0", "-0.0", "-1", "1e308", "-1e308", "5e-324", "nan", "inf", "-inf", "1e400", "9" * 401, "-" + "9" * 401,
    "9" * 5000, str(2**63), str(2**64), "1_0", "\u0661\u0662", "true", "[1]", "''", "1979-05-27",
]  # fmt: skip
NUMBERS = {k: str(f.annotation) for k, f in Experiment.model_fields.items() if k not in ("settings", "fork")}


@pytest.mark.parametrize("name", [k for k, kind in NUMBERS.items() if "int" in kind or "float" in kind])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_any_number_runs_or_is_refused_in_one_line(name: str, dtype: str, tmp_path: Path) -> None:
    """Whatever is written there; and what is taken can be computed with."""
    states = {"stream": "states", "size": 6, "items": 3, "flips": 1}
    own = {"strength": {"method": "ewc"}, "angle": {"stream": "rotated"}, "size": states, "flips": states}
    small = {"data": "digits", "items": 10, "tasks": 2, "memories": 2, "epochs": 1, "dtype": dtype}
    if own.get(name) is states:
        small |= {"data": "states"}
    refusals = []
    for text in EXTREMES:
        try:
            told = given({name: text})
            study.run([read(small, own.get(name, {}), told)], Store(tmp_path), Options(kernel="reference"))
        except ValueError as error:
            refusals.append(str(error))
    for said in refusals:
        assert re.match(rf"({name}|items) must|digits: only \d+ of 1797 items differ", said)
        assert len(said) < 200
        assert "\n" not in said


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run --seeds 99999999999999999999999", "seeds must be how many .1 to 10,000. or a list"),
        (f"run --seeds {'9' * 5000}", "seeds must be how many"),
        (f"run --seeds 0,{2**64}", "seed must be less than 9223372036854775808"),
        (f"run --method ewc --strengths 1,{'9' * 401}", "strength must be numbers such as"),
        (f"run --method ewc --strength {'9' * 401}", "strength must be"),
        (f"run --method rehearsal --set capacity={'9' * 401}", "capacity must be between -1e.30 and 1e.30"),
        (f"run --method si --set damping={10**300}", "damping must be between"),
        ("tune --method ewc --vertices 1e308", "vertex must be less than or equal to 1000000"),
        (f"tune --method ewc --vertices {'9' * 401}", "vertices must be numbers such as"),
        ("tune --method ewc --range 1,1e308", "range must be two numbers above 0, to 1e.30"),
        (f"tune --method ewc --seeds {2**63}", "seeds must be how many"),
        (f"reproduce table2 --seeds {2**64}", "seeds must be how many"),
        (f"reproduce table2 --vertices {'9' * 401}", "vertices must be numbers such as"),
        (
            "reproduce table2 --with final_temperature=5e-324",
            "final_temperature must be between",
        ),
    ],
    ids=lambda text: text[:50],
)
def test_numbers_out_of_all_bounds(line: str, says: str) -> None:
    result = engramma(line + " --device cpu")
    refused(result, says)
    assert len(result.stderr) < 300


@pytest.mark.parametrize("content", [b"nothing", b"PK\x03\x04nothing", b""])
def test_states_that_are_damaged_or_of_another_size(content: bytes, here: Path) -> None:
    (here / "junk.npz").write_bytes(content)
    line = "run --data junk.npz --stream states --memories 4 --epochs 1 --device cpu"
    refused(engramma(line), "junk.npz: not an .npz with an array `states`")
    np.savez(here / "junk.npz", states=np.ones((3, 2, 5)))
    refused(engramma(line), "tasks, items and size must be 3, 2 and 5, as .*, not 2, 10 and 100")
    assert engramma(line + " --tasks 3 --items 2 --size 5 --flips 1").exit_code == 0


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
    refused(engramma(f"run {TINY} --store file"), "file: not an archive of records")
    refused(engramma(f"run {TINY} --store file/runs"), "must be a folder that can be written")
    refused(engramma("runs list --store elsewhere"), "there is none at elsewhere")


def test_run_shows_every_task_after_every_task(here: Path) -> None:
    result = engramma(f"run {TINY} --seeds 2 --method ewc --strengths 1,10 --vertex 5")
    assert result.exit_code == 0, result.output
    for text in (
        "EWC λ=1, n=5",
        "EWC λ=10, n=5",
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
    shown = [float(x) for x in re.findall(r"task 2 +(0\.\d+)±", result.stdout.split("EWC λ=10")[0])]
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
    assert "Mine, n=2" in result.stdout
    assert "beside:Mine, n=2" not in result.stdout  # by its own name, as everywhere


def test_every_setting_has_an_option(here: Path) -> None:
    help_text = engramma("run --help").stdout
    for name, field in Experiment.model_fields.items():
        if name not in ("seed", "settings", "autoassociative", "fork"):
            assert f"--{name.replace('_', '-')}" in help_text
            assert field.description
    assert max(map(len, help_text.splitlines())) <= 80


def test_the_threshold_of_own_data_is_said_once(here: Path) -> None:
    x = np.random.default_rng(0).integers(100, 201, (40, 3, 3)).astype(np.uint8)
    x[0, 0] = (100, 150, 200)
    np.savez(here / "own.npz", x=x, y=np.arange(40) % 2)
    line = f"run {TINY.replace('digits', 'own.npz')} --seeds 2"
    result = engramma(line)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("own.npz: a pixel above 150 is on, the middle of 100 to 200") == 1
    for other in (f"{line} --threshold 140", f"{line} --no-binary", f"run {TINY}"):
        assert "middle of" not in engramma(other).stdout
    refused(engramma(f"{line} --threshold 0"), "own: .* range is 100 to 200, the threshold 0, 100% of pixels")


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


def test_runs_list_for_other_programs(here: Path) -> None:
    """Every setting and measure, as the frame of Python has them; nothing else on stdout."""
    assert engramma(f"run {TINY} --seeds 2").exit_code == 0
    assert engramma(f"run {TINY} --method rehearsal --set sweep=3 --vertex 5 --seeds 1").exit_code == 0
    rows = {row["run"]: row for row in en.load("runs").rows()}
    told = {row["run"]: row for row in json.loads(engramma("runs list --format json").stdout)}
    assert told == json.loads(json.dumps(rows))
    listed = csv.DictReader(io.StringIO(engramma("runs list --format csv").stdout))
    for row in listed:
        mine = rows[row["run"]]
        assert row["method"] == mine["method"]
        assert [float(row[k]) for k in ("average", "forgetting", "final.1", "vertex")] == [
            mine[k] for k in ("average", "forgetting", "final.1", "vertex")
        ]
        assert row["settings.sweep"] == ("3" if row["method"] == "rehearsal" else "")
    only = json.loads(engramma("runs list --format json --vertex 5").stdout)
    assert [row["method"] for row in only] == ["rehearsal"]
    assert json.loads(engramma("runs list --format json --method ewc").stdout) == []
    refused(engramma("runs list --format xml"), "format must be one of rich, csv, json, not 'xml'")


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


STILL = """
from dataclasses import dataclass
from engramma.methods import Method

@dataclass(frozen=True)
class Still(Method):
    def steer(self, state, now, theta, grad):
        return 0 * grad
"""


def test_a_method_in_a_file_in_several_processes(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A member of the crew that could not import it would stop, and say so."""
    (here / "still.py").write_text(STILL)
    told = {
        "data": "digits",
        "tasks": 2,
        "items": 40,
        "memories": 4,
        "epochs": 30,
        "method": "./still.py:Still",
    }
    runs = [read({**told, "vertex": float(n)}) for n in range(2, 8)]
    done = study.run(runs, Store(here / "runs"), Options(processes=2))
    assert [record.experiment for record in done.records] == runs
    assert not caplog.records
    line = f"run {TINY} --method ./still.py:Still --seeds 2 --processes 2"
    assert "2 runs trained" in engramma(line).stdout
    assert "0 runs trained" in engramma(line).stdout
    refused(engramma(f"run {TINY} --method ./gone.py:Still"), "method ./gone.py:Still: there is no file")


def test_a_strength_that_nobody_gave(here: Path) -> None:
    refused(engramma(f"run {TINY} --method ewc --vertex 3"), "strength must be given for ewc at n = 3")
    line = f"run {TINY} --method ewc --seeds 1"
    done = subprocess.run(command(*line.split()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("strength was not given: it is 1100, the paper's lambda for ewc at n = 2") == 1
    (record,) = Store(here / "runs")
    assert record.description["strength"] == 1100


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
    assert len(studies.names()) == 38
    for name in studies.names():
        study = studies.load(name)
        assert study.title
        assert study.tables or study.figures
        for scale in studies.SCALES:
            runs = study.runs(scale)
            # What was tuned may come out at the value that another row has.
            for some in ([r for r in runs if t == r.row.endswith("@tuned")] for t in (False, True)):
                assert len({run.experiment.name for run in some}) == len(some)
            assert runs
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


# Terminals without UTF-8


@pytest.mark.skipif(os.name == "nt", reason="locales are POSIX")
def test_a_plain_c_locale_is_answered_in_ascii(here: Path) -> None:
    given = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}

    def told(line: str, status: int = 0, **plain: str) -> str:
        bare = {**given, **path, "LC_ALL": "C", "PYTHONUTF8": "0", **plain}
        done = subprocess.run(command(*line.split()), env=bare, capture_output=True)
        assert done.returncode == status, done.stderr
        return done.stdout.decode("ascii") + done.stderr.decode("ascii")

    line = f"run {TINY} --kernel reference --seeds 2"
    assert re.search(r"0\.\d+\+-0\.\d+", told(line, PYTHONCOERCECLOCALE="0"))
    assert "must be one of" in told(f"{line} --method sleep\u00b1", 2, PYTHONIOENCODING="ascii")
    made = "reproduce lost-attractors --vertices 2 --seeds 2 --device cpu --kernel reference"
    assert "+-" in told(made, PYTHONIOENCODING="ascii")  # and its figures are written


def test_what_a_terminal_cannot_show_is_spelled_out() -> None:
    spelled_out()  # what main() does
    assert "0.5±0.1 λ ✓ ✗ † — \u732b".encode("ascii", "spelled") == b"0.5+-0.1 lambda v x * - ?"
    assert os.fsdecode(b"a\xff").encode("ascii", "spelled") == b"a\xff"  # a file's name as the disk has it


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
    assert "stopped; 0 runs of this command kept" in " ".join(said.split())
    assert "Traceback" not in said
    assert not list(store.rglob(".tmp-*"))


def test_what_an_interruption_keeps_is_of_this_command(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store has the runs of other days too."""
    assert engramma(f"run {TINY} --seeds 3").exit_code == 0
    assert engramma(f"run {TINY} --seeds 2 --vertex 5").exit_code == 0
    assert len(Store(here / "runs")) == 5
    assert interrupt.kept().startswith("2 runs of this command kept in runs")


def test_several_vertices_and_strengths_over_three_seeds(here: Path) -> None:
    """What is typed wins over a file, and what is in the file is as good as typed."""
    result = engramma(f"run {TINY} --method ewc --strength 1,10 --vertex 2,5")
    assert "12 runs trained" in result.stdout, result.output
    assert result.stdout.count("3 seeds") == 4
    told = [(r.description["vertex"], r.description["strength"], r.description["seed"])
            for r in Store(here / "runs")]  # fmt: skip
    assert sorted(told) == [(n, s, seed) for n in (2, 5) for s in (1, 10) for seed in range(3)]
    (here / "my.toml").write_text("method = 'ewc'\nvertices = [2, 5]\nstrength = [1, 10, 100]\nseeds = 2")
    again = engramma(f"run {TINY} --config my.toml --strength 10")
    assert "0 runs trained, 4 found" in again.stdout
    one = engramma(f"run {TINY} --config my.toml --strengths 1 --seed 2")
    assert "0 runs trained, 2 found" in one.stdout
    (here / "my.toml").write_text("method = 'ewc'\nvertex = 2\nstrength = 10\nseed = 1")
    assert "0 runs trained, 1 found" in engramma(f"run {TINY} --config my.toml").stdout
    assert "0 runs trained, 3 found" in engramma(f"run {TINY} --config my.toml --seeds 3 --vertex 5").stdout


@pytest.mark.usefixtures("here")
def test_a_bar_is_there_while_there_is_work() -> None:
    first = engramma(f"run {TINY}").stderr
    assert first.splitlines()[-1].startswith("done ")
    assert "100%" in first
    assert "left" not in first.splitlines()[-1]
    assert engramma(f"run {TINY}").stderr == ""


@pytest.mark.usefixtures("here")
def test_one_item_to_test_on_is_warned_of() -> None:
    line = f"run {TINY} --seeds 1 --test-share"
    says = "test_share 0.02 of 40 items is one item a task to test on"
    assert says in " ".join(engramma(f"{line} 0.02").stderr.split())
    assert "one item" not in engramma(f"{line} 0.05").stderr


def test_a_list_of_runs_is_uncut(here: Path) -> None:
    """In 80 columns what is longest in every column; all of it with --wide."""
    line = f"run {TINY} --method pseudorehearsal --strength 0.123 --vertex 2.125 --items 1500"
    assert engramma(f"{line} --seed 1000").exit_code == 0
    x = np.random.default_rng(0).random((40, 5))
    np.savez(here / "a-name-of-data-beyond-all-bounds.npz", x=x, y=np.arange(40) % 2)
    own = TINY.replace("digits", "a-name-of-data-beyond-all-bounds.npz")
    assert engramma(f"run {own} --seed 0").exit_code == 0
    lines = engramma("runs list").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = (line for line in lines if "1000" in line)
    for cell in ("pseudorehearsal", "0.123", "2.125", "digits", "1500", "1000"):
        assert cell in row.split()
    assert lines[1].split() == [
        "run",
        "method",
        "strength",
        "n",
        "data",
        "items",
        "seed",
        "average",
        "seconds",
    ]
    wide = engramma("runs list --wide").stdout
    assert "a-name-of-data-beyond-all-bounds" in wide
    assert "forgetting" in wide
    assert "…" not in wide


def offered(line: str) -> list[str]:
    """What a shell is given to complete the line."""
    words = line.split() + ([""] if line.endswith(" ") else [])
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_ENGRAMMA_COMPLETE": "complete_bash"}
    return CliRunner().invoke(app, [], env=env, prog_name="engramma").stdout.split()


@pytest.mark.usefixtures("here")
def test_a_shell_completes_values() -> None:
    assert offered("engramma run --method pseu") == ["pseudorehearsal"]
    assert offered("engramma tune --method ewc,pseu") == ["ewc,pseudorehearsal"]
    assert offered("engramma run --interaction ") == list(INTERACTIONS)
    assert offered("engramma run --loss ") == list(LOSSES)
    assert offered("engramma run --stream ") == list(STREAMS)
    assert offered("engramma run --normalise ") == ["mean", "velocity", "gradient"]
    assert offered("engramma reproduce curves-v") == ["curves-vanilla"]
    assert offered("engramma reproduce table2 --scale ") == list(studies.SCALES)
    assert offered("engramma table sco") == ["scores"]
    assert offered("engramma figure mem") == ["memories"]
    assert set(offered("engramma runs list --method ")) == set(METHODS)


def test_a_shell_completes_data(here: Path) -> None:
    (here / "mine.npz").touch()
    (here / "mine.csv").touch()
    (here / "more" / "deep").mkdir(parents=True)
    assert offered("engramma run --data ") == ["mnist", "digits", "states", "mine.npz", "more/"]
    assert offered("engramma run --data m") == ["mnist", "mine.npz", "more/"]
    assert offered("engramma run --data more/") == ["more/deep/"]


def test_settings_of_a_file_must_be_a_table_to_be_added_to(here: Path) -> None:
    (here / "run.toml").write_text('method = "ewc"\nsettings = "fisher"\n')
    refused(engramma("run --config run.toml --set fisher=item"), "settings must be a table, not 'fisher'")


def test_records_with_other_scores_are_shown_apart(here: Path) -> None:
    """Of two seeds one has a score that the other has not."""
    engramma(f"run {TINY} --seeds 2")
    store = Store("runs")
    first, _ = store
    accuracy = first.scores["accuracy"]
    store.remove(first.name)
    curves = {"epoch": first.curves["epoch"], "guessed": first.curves["accuracy"]}
    store.write(replace(first, scores={"guessed": accuracy}, curves=curves))
    result = engramma(f"run {TINY} --seeds 2")
    assert result.exit_code == 0, result.output
    assert "guessed of each task" in " ".join(result.output.split())
    assert "accuracy of each task" in " ".join(result.output.split())
    assert result.output.count("forward transfer") == 2


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


# Names from elsewhere: shown, never obeyed

HOSTILE = "evil\x1b[2J\x07[b]$x_{$<i>\n\u202e*|&:C"  # the name of a method; after the colon, a class


@pytest.fixture
def hostile(here: Path) -> Store:
    """A store whose folder, methods, scores and facts have such names; its checksums are right."""
    store = Store(here / "s_[b]$x")
    for seed in (0, 1):
        told = {**Experiment(data="digits", tasks=2, items=40, memories=4, epochs=2, seed=seed).describe(),
                "method": HOSTILE, "data": f"{HOSTILE}.npz"}  # fmt: skip
        curves = {"epoch": np.arange(3), HOSTILE: np.zeros((3, 2))}
        facts = {"seconds": "\x1b[2J", HOSTILE: {"x": HOSTILE}, "seconds_by_task": None}
        store.write(Record(told, {HOSTILE: np.eye(2)}, curves, facts))
    (store.path / store.names()[0] / "junk\x1b[2J[b]").write_text("")
    return store


@pytest.mark.parametrize(
    "line",
    [
        "runs list", "runs show {}", "runs verify", "table scores --from", "table scores --format md --from",
        "table scores --format csv --from", "table scores --format latex --from", "figure tasks --from",
        "report --from", "runs pack new.tar.gz", "runs prune",
    ],
)  # fmt: skip
def test_names_from_elsewhere_do_nothing_to_the_terminal(line: str, hostile: Store, here: Path) -> None:
    words = line.format(hostile.names()[1][:8]).split()
    words += [] if "--from" in words else ["--store"]
    result = CliRunner().invoke(app, [*words, str(hostile.path)])
    assert result.exit_code == {"verify": 1, "pack": 2}.get(words[1], 0), result.output
    assert not isinstance(result.exception, Exception), result.exception
    assert result.output.replace("\n", "").isprintable()
    if words[0] == "figure":
        (drawn,) = (here / "figures").glob("*.png")
        assert drawn.name.startswith("tasks-evil-")
    if words[0] == "report":
        text = (here / "report.html").read_text()
        assert "evil" in text
        assert "<i>" not in text.partition('id="data"')[2].partition("</script>")[0]


@pytest.mark.usefixtures("here")
def test_a_store_may_have_any_name() -> None:
    result = CliRunner().invoke(app, ["run", *TINY.split(), "--store", "s_[b]:x:\x1b[2J"])
    assert result.exit_code == 0, result.output
    assert "records in s_[b]:x:\\x1b[2J" in result.stdout.replace("\n", "")
    refused(CliRunner().invoke(app, ["runs", "list", "--store", "no\x1b[2J[/b]"]), r"at no\\x1b\[2J\[/b\]$")


def test_whatever_cannot_be_seen_is_an_escape() -> None:
    assert visible("plain, ±λ ✓ 漢字") == "plain, ±λ ✓ 漢字"
    assert visible("\x1b[2J\r\n\t\x9b\u202e\udc80\x7f") == r"\x1b[2J\r\n\t\x9b\u202e\udc80\x7f"
    console = Terminal(file=io.StringIO(), width=70, force_terminal=True, color_system=None)
    table = Table("[red]\x1b[2J", title="[b]\x1b[3J")
    table.add_row(Text("[i]\x1b[4J"))
    console.print(table, "\x1b[5J :smile:", Text("\x1b[6J"), f"two\nlines [/b]{chr(0x9B)}", sep="\n")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.replace("\n", "").isprintable()
    for text in (r"[red]\x1b[2J", r"[b]\x1b[3J", r"[i]\x1b[4J", r"\x1b[5J :smile:", r"\x1b[6J", r"[/b]\x9b"):
        assert text in shown


def test_a_warning_is_one_line_that_does_nothing(here: Path) -> None:
    store = here / "runs"
    assert engramma(f"run {TINY} --seeds 2").exit_code == 0
    name = Store(store).names()[0]
    (store / name / "x\n\x1b[2J").write_text("")
    result = engramma("runs list")
    (line,) = result.stderr.splitlines()
    assert line.startswith("engramma: ")
    assert line.isprintable()
    assert name in line
    assert "1 runs in runs" in result.stdout


def test_what_is_said_of_an_input_is_no_longer_than_a_page(here: Path) -> None:
    (here / "a.toml").write_text(f"{'x' * 9000} = 1")
    result = engramma("run --config a.toml")
    refused(result, r"unknown setting xxx.* \.\.\. xxx")
    assert len(result.stderr) < 2100


def test_a_damaged_archive_is_said_in_one_line(here: Path) -> None:
    assert engramma(f"run {TINY}").exit_code == 0
    assert engramma("runs pack a.tar.gz").exit_code == 0
    data = bytearray((here / "a.tar.gz").read_bytes())
    for place in range(10, len(data), 97):
        data[place] ^= 0xFF
        (here / "b.tar.gz").write_bytes(data)
        refused(engramma("runs unpack b.tar.gz --store other"), r"b\.tar\.gz")
        data[place] ^= 0xFF
    (here / "b.tar.gz").write_bytes(data)
    refused(
        engramma("runs unpack b.tar.gz --store other --limit 0.00001"), r"must unpack to at most 1e-05 GiB"
    )
    assert engramma("runs unpack b.tar.gz --store other").exit_code == 0


def test_memory_that_does_not_suffice_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 80896000 bytes."
        )

    monkeypatch.setattr("engramma.runs.estimate.build", short)
    refused(engramma("reproduce rehearsal --scale demo --dry-run"), "memory of this machine does not suffice")
