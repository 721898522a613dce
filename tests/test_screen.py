"""The screening of protocols: with the published one it is the library's loop."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import screen as command
from benchmarks import screened, screening
from benchmarks.screening import Found, Point, screen
from benchmarks.tried import Hidden, Labelled, labelled, unit
from sklearn.metrics import accuracy_score, f1_score

from engramma.experiment import read
from engramma.interactions import LeakyRectifiedPolynomial
from engramma.network import DenseMemory, Items
from engramma.paper import numbers as paper
from engramma.runs.setup import build

SMALL = {"data": "digits", "items": 300, "tasks": 3, "epochs": 60, "memories": 32}
ROWS = [row for row in screened.ROWS if not row.endswith("@0.5")]


def library(row: str, vertex: int, seeds: tuple[int, ...], sizes: dict[str, object]) -> list[torch.Tensor]:
    """[(R,M,N)] after each task, by the library's own loop."""
    name, _, proportion = row.partition("@")
    strength = float(proportion) if proportion else paper.chosen_lambda(name, vertex)
    given = {**sizes, "method": name, "strength": strength, "vertex": float(vertex)}
    built = build([read({**given, "seed": seed}) for seed in seeds])
    return [built.theta, *(moment.theta for moment in built.train() if moment.ends_task)]


@pytest.mark.parametrize("row", ROWS)
def test_with_the_published_protocol_it_is_the_librarys_loop(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds, sizes = (3, 4), {**SMALL, "epochs": 20}  # few: rounding grows with every step
    start, *expected = library(row, 5, seeds, sizes)
    found, learn = [], screening.learn

    def watched(theta: torch.Tensor, *rest: Any) -> None:
        learn(theta, *rest)
        found.append(theta.clone())

    monkeypatch.setattr(screening, "learn", watched)
    screening.screen(row, 5, [Point(0.1, 0.875)], seeds, **sizes)
    assert len(found) == len(expected) == 3
    for ours, theirs, before in zip(found, expected, [start, *expected], strict=False):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-8)
        assert (ours - before).abs().mean() > 0.01


def test_points_train_together_as_alone() -> None:
    points = [Point(0.1, 0.875), Point(0.15, 0.95, class_rate=2.0), Point(0.1, 0.875, factor=30.0)]
    together = screen("mas", 5, points, (3, 4), **SMALL)
    for index, point in enumerate(points):
        alone = screen("mas", 5, [point], (3, 4), **SMALL)
        assert torch.allclose(alone.accuracy, together.accuracy[index :: len(points)])
    assert len({round(float(a), 4) for a in together.accuracy}) > 3


def test_scores_are_scikit_learns_and_the_pooled_one_is_of_all_items_at_once() -> None:
    found = screen("vanilla", 5, [Point(0.1, 0.875)], (3,), **SMALL)
    built = build([read({**SMALL, "vertex": 5.0, "seed": 3})])
    *_, last = built.train()
    truths, answers = [], []
    for task in range(3):
        test = built.stream[task].test
        truths.append(test.target[0].argmax(-1).numpy())
        answers.append(last.network.predict(last.theta, test.probe)[0].numpy())
    pairs = list(zip(truths, answers, strict=True))
    macro = [f1_score(truth, answer, average="macro") for truth, answer in pairs]
    assert float(found.accuracy[0]) == pytest.approx(np.mean([accuracy_score(*pair) for pair in pairs]))
    assert float(found.macro_f1[0]) == pytest.approx(np.mean(macro))
    pooled = f1_score(np.concatenate(truths), np.concatenate(answers), average="macro")
    assert float(found.pooled_f1[0]) == pytest.approx(pooled)
    assert abs(pooled - np.mean(macro)) > 0.01


def test_class_weights_have_a_rate_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0 they rest where they began, at 3 they move three times as far in the first epoch."""
    found, learn = [], screening.learn

    def watched(theta: torch.Tensor, *rest: Any) -> None:
        found.append(theta.clone())
        learn(theta, *rest)
        found.append(theta.clone())

    monkeypatch.setattr(screening, "learn", watched)
    points = [Point(0.1, 0.875, class_rate=rate) for rate in (0.0, 1.0, 3.0)]
    screen("vanilla", 5, points, (3,), **{**SMALL, "epochs": 1, "tasks": 1})
    moved = found[1] - found[0]
    assert (moved[0, :, -10:] == 0).all()
    assert torch.allclose(moved[2, :, -10:], 3 * moved[1, :, -10:])
    assert torch.equal(moved[2, :, :-10], moved[0, :, :-10])
    assert (moved[0, :, :-10] != 0).any()


def test_batches_take_every_item_once_an_epoch_each_time_in_another_order() -> None:
    ids = torch.arange(10)[None]
    items = Items(ids[..., None].double(), ids[..., None].double(), torch.ones(1, 10), ids)
    cut = screening._batches(items, 4, 3, 0)
    epochs = [[batch.ids[0].tolist() for batch in cut()] for _ in range(3)]
    assert all([len(batch) for batch in epoch] == [5, 5] for epoch in epochs)
    assert all(sorted(epoch[0] + epoch[1]) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    whole = [batch.ids[0].tolist() for batch in screening._batches(items, None, 3, 0)()]
    assert whole == [list(range(10))]


def network(kind: type[DenseMemory] = DenseMemory, **more: object) -> DenseMemory:
    return kind(12, 3, LeakyRectifiedPolynomial(3.0), beta=4.0, **more)  # type: ignore[arg-type]


def some_items(net: DenseMemory) -> SimpleNamespace:
    draw = torch.Generator().manual_seed(0)
    probe = torch.randint(0, 2, (1, 7, net.neurons), generator=draw).double() * 2 - 1
    probe[..., net.visible :] = -1
    truth = torch.randint(0, net.classes, (1, 7), generator=draw)
    target = torch.full((1, 7, net.classes), -1.0, dtype=torch.float64).scatter_(-1, truth[..., None], 1.0)
    theta = torch.randn(1, 5, net.neurons, generator=draw, dtype=torch.float64)
    return SimpleNamespace(probe=probe, target=target, truth=truth[0], theta=theta)


def test_labels_in_the_probe_are_algorithm_1_as_printed() -> None:
    """Neuron i on and off, every other neuron, class neurons too, as in the item: by autograd."""
    net = network(Labelled)
    some = some_items(net)
    items = labelled(Items(some.probe, some.target, torch.ones(1, 7).double(), torch.zeros(1, 7)), net)
    theta = some.theta.clone().requires_grad_(True)
    outputs = []
    for i in range(net.visible, net.neurons):
        on, off = items.probe[0].clone(), items.probe[0].clone()
        on[:, i], off[:, i] = 1.0, -1.0
        energy = [net.interaction.value(net.scale * x @ theta[0].T).sum(-1) for x in (on, off)]
        outputs.append(energy[0] - energy[1])
    loss = ((torch.tanh(torch.stack(outputs, -1)) - some.target[0]) ** 2).mean()
    (expected,) = torch.autograd.grad(loss, theta)
    found = net.gradient(some.theta, items)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-14)
    hidden = network().gradient(some.theta, items._replace(probe=some.probe))
    assert not torch.allclose(found, hidden, rtol=1e-3)


@pytest.mark.parametrize(("row", "name"), [("agem@0.05", "sample"), ("rehearsal@0.05", "sweep")])
def test_what_is_drawn_anew_every_step_is_refused(row: str, name: str) -> None:
    """A recorded epoch would draw the same for ever, and say nothing."""
    with pytest.raises(ValueError, match=f"{name} must be left out"):
        screen(row, 5, [Point(0.1, 0.875)], (3,), settings={name: 4}, **SMALL)


def test_one_largest_entry_moves_a_memory_by_the_rate_and_two_move_both_parts() -> None:
    g = torch.randn(2, 3, 8, dtype=torch.float64) * torch.tensor([1.0] * 5 + [50.0] * 3)
    joint, apart = unit(g, 5, "joint").abs(), unit(g, 5, "apart").abs()
    assert torch.allclose(joint.amax(-1), torch.ones(2, 3, dtype=torch.float64))
    assert (joint[..., :5].amax(-1) < 0.5).all()
    assert torch.allclose(apart[..., :5].amax(-1), torch.ones(2, 3, dtype=torch.float64))
    assert torch.allclose(apart[..., 5:].amax(-1), torch.ones(2, 3, dtype=torch.float64))
    assert torch.equal(unit(torch.zeros(1, 1, 8), 5, "apart"), torch.zeros(1, 1, 8))


def test_hidden_probes_relax_from_class_neurons_off() -> None:
    net, held = network(Hidden), network(Hidden, held=True)
    some = some_items(net)
    state = some.probe.clone()
    state[..., net.visible :] = 1.0
    assert torch.equal(net.relax(some.theta, state).state, network().relax(some.theta, some.probe).state)
    rest = held.relax(some.theta, state).state
    assert (rest[..., net.visible :] == -1).all()
    expected = network().relax(some.theta, some.probe, neurons=slice(0, net.visible)).state
    assert torch.equal(rest, expected)


def test_the_command_adds_lines_that_the_summary_reads(tmp_path, capsys) -> None:
    out = tmp_path / "screening.csv"
    small = ["--items", "100", "--epochs", "2", "--memories", "8", "--seeds", "3-4", "--device", "cpu"]
    given = ["l2", "--vertices", "2,5", "--pairs", "0.1/0.875,0.15/0.95", "--factors", "1,3"]
    told = command.parser().parse_args([*given, *small, "--set", "unit=0", "--out", str(out)])
    assert told.settings == [("unit", 0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "screen", lambda row, n, points, seeds, *a, **k: fake(len(points), len(seeds)))
        assert command.main([*given, *small, "--out", str(out)]) == 0
        assert command.main([*given, *small, "--out", str(out)]) == 0
    with out.open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 2 * 4  # one header for both
    assert lines[0]["accuracy"] == "0.000"
    assert lines[1]["settings"] == "lambda x3"
    assert lines[0]["seeds"] == "3-4"
    out.write_text(out.read_text().replace("\n100,", "\n10000,"))
    assert screened.main([str(out)]) == 0
    shown = capsys.readouterr().out
    assert "8 means" in shown  # those at the paper's lambda
    assert "0/4" in shown


def fake(points: int, seeds: int) -> Found:
    zero = torch.zeros(points * seeds)
    return Found(zero, zero, zero, zero, torch.zeros(points * seeds, 5))


def test_the_summary_finds_cells_that_never_agree_at_once() -> None:
    def line(n: int, off: float, rate: float) -> screened.Line:
        told = paper.printed(screened.ROWS["ewc"], n)
        assert told
        blank = screened.Line(*[""] * len(screened.Line._fields))
        return blank._replace(row="ewc", n=str(n), accuracy=str(told.mean + off), rate=str(rate), sd="0.01")

    one = [line(10, 0, 0.1), line(20, -0.3, 0.1), line(10, 0.3, 0.2), line(20, 0, 0.2)]
    assert screened.exclusive(one, fewest=2) == [("ewc", 10, 20, 2, 1, 1)]
    assert screened.exclusive(one, fewest=3) == []
    again = [*one, line(20, 0, 0.1), line(20, -0.3, 0.1)]  # other seeds of the first: inside once is inside
    assert screened.exclusive(again, fewest=2) == []
    assert screened.by_cell(again)["ewc", 20] == (2, 4)


def test_published_screening_is_readable_and_its_rows_are_table_2s() -> None:
    lines = screened.read(screened.SCREENING)
    assert {line.row for line in lines} == set(screened.ROWS)
    assert all(0 <= float(line.accuracy) <= 1 for line in lines)
    assert len(screened.by_cell(lines)) == 52


def test_the_screening_holds_the_ten_trial_tables() -> None:
    """What the page counts of it is with them: of the rows that were made in several ways each way apart."""
    ten = [line for line in screened.read(screened.SCREENING) if line.seeds == "0-9"]
    late = {
        "agem@0.05": "margin=0.06; sample=100",
        "agem@0.5": "margin=0.06; sample=0.25",
        "pseudorehearsal@0.05": "label=relaxed",
        "pseudorehearsal@0.5": "label=relaxed",
        "si": "path=mean; damping=0.0001; moves=meant",
    }
    tables: dict[str, list[bool]] = {"appendix": [], "published": [], "hundred": [], "plain": [], "rest": []}
    for line in ten:
        if line.rate == "0.1":
            names = ["appendix"]
        elif line.row not in late:
            names = ["published", "hundred", "plain"]
        elif line.settings == late[line.row]:
            names = ["published"] if line.row == "agem@0.5" else ["published", "hundred"]
        elif line.settings == "margin=0.06; sample=100":
            names = ["hundred"]
        else:
            names = ["rest" if line.settings == "temperature=1" else "plain"]
        for name in names:
            tables[name].append(line.inside)
    assert {name: (len(cells), sum(cells)) for name, cells in tables.items()} == {
        "appendix": (52, 38),
        "published": (52, 44),
        "hundred": (52, 43),
        "plain": (52, 39),
        "rest": (8, 4),
    }


def test_the_page_says_what_the_screening_says() -> None:
    page = (screened.SCREENING.parent / "reproduction.md").read_text("utf-8")
    lines = screened.read(screened.SCREENING)
    assert f"{len(lines):,} means" in page
    label = {"ewc": "EWC", "l2": "L2", "si": "SI"}
    found = [
        f"| {label.get(e.row, e.row)} | n = {e.n} and n = {e.other} "
        f"| {e.tried} | {e.first} | {e.second} | **0** |"
        for e in screened.exclusive(lines)
        if e.first or e.second
    ]
    assert len(found) == 5
    assert [row for row in found if row not in page] == []


def test_bad_input_gets_one_line(capsys, tmp_path) -> None:
    with pytest.raises(SystemExit):
        command.main(["dropout"])
    assert "vanilla" in capsys.readouterr().err
    for given, said in (
        (["ewc", "--vertices", "3"], "vertices must be of 2, 5, 10, 20 for ewc"),
        (["vanilla", "--probe", "labels", "--start", "held"], "start must be random"),
        (["mas", "--vertices", "2", "--set", "power=3"], "power must be 1 or 2"),
        (["mas", "--vertices", "2", "--set", "colour=3"], "colour"),
        (["gem@0.05", "--vertices", "2", "--set", "sample=3"], "sample must be left out"),
        (["vanilla", "--out", str(tmp_path / "none" / "x.csv")], "No such file"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("benchmarks.screening.read", lambda told: read({**told, **SMALL}))
            assert command.main([*given, "--device", "cpu"]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_a_reader_that_has_had_enough_is_told_nothing_more() -> None:
    """As in `python -m benchmarks.screened | head`: no traceback, whenever the pipe is closed."""
    for module in (["benchmarks.screened"], ["benchmarks", "nothing"]):
        process = subprocess.Popen(
            [sys.executable, "-m", *module], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[1],
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert process.wait() == (1 if len(module) == 1 else 2)
        assert "Broken" not in said
        assert "Traceback" not in said
