"""Laws: what is simulated agrees with theory within its error bars, is kept, and is never measured twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from typer.testing import CliRunner, Result

from engramma import laws, studies
from engramma.cli import app
from engramma.interactions import Polynomial
from engramma.laws import (
    basins,
    capacity,
    classical,
    dreaming,
    exponential,
    fits,
    forgetting,
    kept,
    mixtures,
    one_step,
    palimpsest,
    prototypes,
)
from engramma.laws.dynamics import recall, scores
from engramma.laws.law import Finding, Law, Point, Row, Where, batches, bipolar, columns, flipped, summary
from engramma.models.hopfield import Hopfield
from engramma.network import DenseMemory
from engramma.replicas import Replicas
from engramma.store.records import Store

HERE = Where()


def simulated(law: Law, keep: Callable[[Point], bool]) -> list[Row]:
    """Rows of the points of the demo scale that a test can afford."""
    points = [point for point in law.points("demo") if keep(point)]
    assert points
    return [{**point, **law.measure(point, HERE)} for point in points]


def agree(law: Law, rows: list[Row], *starts: str) -> None:
    found = [each for each in law.findings(rows) if each.what.startswith(starts)]
    assert len(found) == len(starts)
    for each in found:
        assert each.error > 0
        assert each.off < 3, each


@pytest.mark.parametrize("n", [2, 3, 4])
def test_two_products_give_the_scores_of_the_dense_associative_memory(n: int) -> None:
    seeds = Replicas((0, 1, 2))
    patterns, state = (bipolar(seeds, "test", (count, 13), count).double() for count in (7, 5))
    value = Polynomial(n).value
    network = DenseMemory(13, 0, Polynomial(n), autoassociative=True, beta=13.0)
    torch.testing.assert_close(scores(patterns, state, value), network.scores(patterns, state))
    relaxed = network.relax(patterns, state, 20)
    settled = relaxed.converged
    assert settled.any()
    assert torch.equal(recall(patterns, state, value, 20)[settled], relaxed.state[settled])


def test_flips_are_as_many_as_asked_and_a_replica_does_not_depend_on_the_others() -> None:
    states = bipolar(Replicas((3, 4)), "test", (6, 20))
    turned = flipped(Replicas((3, 4)), states, 7)
    assert ((turned != states).sum(-1) == 7).all()
    alone = flipped(Replicas((4,)), bipolar(Replicas((4,)), "test", (6, 20)), 7)
    assert torch.equal(alone[0], turned[1])
    parts = batches({"replicas": 5}, 10, largest=25)
    assert [part.seeds for part in parts] == [(0, 1), (2, 3), (4,)]


def test_a_line_is_found_within_its_error() -> None:
    rng, off = np.random.default_rng(0), []
    x = np.linspace(1, 4, 8)
    for _ in range(300):
        found = fits.line(x, 2 * x - 1 + rng.normal(0, 0.3, 8), np.full(8, 0.3))
        at, error = found.crossing(4)
        off.append([(found.slope - 2) / found.error, (at - 2.5) / error])
    assert (np.abs(np.mean(off, 0)) < 0.2).all()
    assert ((np.std(off, 0) > 0.75) & (np.std(off, 0) < 1.1)).all()


def test_capacity_grows_as_the_law_says() -> None:
    rows = simulated(capacity.LAW, lambda p: p["n"] == 3 or (p["n"] == 2 and p["neurons"] <= 400))
    agree(capacity.LAW, rows, "exponent of N at n = 2", "exponent of N at n = 3", "alpha_2", "alpha_3")


def test_the_moments_of_finite_networks_tend_to_the_law() -> None:
    for n in (2, 3, 4, 5):
        ratios = [capacity.full(n, size) / (capacity.alpha(n) * size ** (n - 1)) for size in (100, 1000)]
        assert abs(ratios[1] - 1) < abs(ratios[0] - 1) < 0.2
    assert capacity.alpha(2) == pytest.approx(0.1507, abs=1e-4)
    assert capacity.gaussian(capacity.alpha(2)) == pytest.approx(capacity.LEVEL)


def test_the_mean_field_of_the_classical_network_ends_at_its_published_load() -> None:
    load, overlap = classical.theory()
    assert load[-1] == pytest.approx(0.1379, abs=1e-4)
    assert overlap[-1] == pytest.approx(0.967, abs=1e-3)
    assert all(a < b for a, b in pairwise(load))


def test_below_the_load_recall_improves_with_size_and_above_it_fades() -> None:
    rows = simulated(classical.LAW, lambda p: p["neurons"] < 500 and p["patterns"] / p["neurons"] > 0.095)
    agree(classical.LAW, rows, "load at which the curves")
    few, many = ([r for r in rows if r["neurons"] == size][-1]["recalled"] for size in (128, 256))
    assert many < few - 0.1


def test_the_exponential_holds_two_to_the_half_n() -> None:
    rows = simulated(exponential.LAW, lambda p: p["neurons"] <= 16)
    agree(exponential.LAW, rows, "log2 of K", "K sqrt(N)")


def test_a_basin_ends_where_the_law_says() -> None:
    """At n = 3 and 4; at n = 2 the law is known to be too wide."""
    rows = simulated(basins.LAW, lambda p: p["n"] > 2 and p["neurons"] < 100 and p["load"] in (0.35, 0.5))
    for row in basins.edges(rows):
        assert abs(row["edge"] - basins.edge(row["load"], int(row["n"]))) < 0.03
    assert basins.largest(2) == pytest.approx(0.16, abs=0.002)  # as Amari and Maginu have it
    for n in (2, 3, 4):
        edges = [basins.edge(load, n) for load in (0.1, 0.5, 0.9)]
        assert 0.5 > edges[0] > edges[1] > edges[2] > 0


def test_bounded_weights_forget_as_a_walk_between_walls_does() -> None:
    rows = simulated(palimpsest.LAW, lambda p: p["neurons"] == 256 and p["bound"] in (0.15, 0.3, 0.6))
    for row in rows:
        law = np.array([fits.tail(z) for z in palimpsest.ratio(row["neurons"], row["bound"])])
        seen = law > 0.01
        np.testing.assert_allclose(np.array(row["wrong"])[seen], law[seen], rtol=0.35)
        assert abs(np.mean(np.array(row["wrong"])[seen] / law[seen]) - 1) < 0.15
    few, most, many = (row["span"] for row in sorted(rows, key=lambda row: row["bound"]))
    assert most > 1.3 * max(few, many)


def test_patterns_are_stored_and_slept_over_as_by_the_network_of_the_package() -> None:
    seeds = Replicas((0, 1))
    patterns = bipolar(seeds, "test", (60, 25)).double()
    for rule, most, time in (("bounded", 3, None), ("hebbian", 0, 2.0)):
        network = Hopfield(rule, bound=max(most, 1) / 5)
        network.store(patterns[1])
        if time is not None:
            network.dream(time)
        made = dreaming.dreamt(patterns, time) if time else palimpsest.stored(seeds, patterns, most) / 25
        torch.testing.assert_close(made[1], network.weights)


def test_a_walk_between_walls_far_away_is_never_lost_and_the_optimum_is_parisis() -> None:
    assert palimpsest.signal(50, 20) == pytest.approx(np.full(21, 100 / 101), abs=0.3)
    assert palimpsest.signal(1000, 5) == pytest.approx(np.ones(6), abs=0.01)
    assert max(palimpsest.span(40000, bound) for bound in (0.25, 0.3, 0.32, 0.35)) == pytest.approx(
        0.04, abs=0.002
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=12))
def test_the_area_is_the_share_of_pairs_in_the_right_order(items: list[tuple[int, bool]]) -> None:
    x, chosen = (np.array(part) for part in zip(*items, strict=True))
    pairs = [(a > b) + (a == b) / 2 for a, c in items for b, d in items if c and not d]
    assert forgetting.area(x, chosen) == pytest.approx(np.mean(pairs) if pairs else 0.5)


def test_items_whose_energy_rises_most_are_lost_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [each.but(tasks=3) for each in forgetting._runs("demo", 2.0, 4)]
    monkeypatch.setattr(forgetting, "_runs", lambda *_: runs)
    found = forgetting.measure({"scale": "demo", "n": 2.0, "replicas": 4}, HERE)
    assert found["rise"] - 3 * found["rise_error"] > 0.6
    assert found["lost"][-1] > found["lost"][0] + 0.2
    assert abs(found["depth"] - 0.5) < 0.1  # which of them it will be, the energy before does not say


def test_sleep_raises_the_load_as_random_matrices_say() -> None:
    rows = simulated(dreaming.LAW, lambda p: p["time"] in (0.3, 10.0))
    for time in (0.3, 10.0):
        at = dreaming.held(rows, time)
        assert at is not None
        assert at[0] == pytest.approx(dreaming.full(time), rel=0.03)
    assert dreaming.ratio(0.1, 1e-9) == pytest.approx(dreaming.ratio(0.1, 0), rel=1e-6)
    assert dreaming.ratio(0.99, 1e9) > 1e3  # at last nothing is wrong below N patterns,
    assert dreaming.ratio(2.0, 1e9) == pytest.approx(1, rel=1e-3)  # and above it 1 / sqrt(alpha - 1)


def test_sleep_ends_at_the_projection_onto_the_patterns() -> None:
    patterns = bipolar(Replicas((0, 1)), "test", (5, 30)).double()
    weights = dreaming.dreamt(patterns, 1e9)
    whole = patterns.mT @ torch.linalg.inv(patterns @ patterns.mT) @ patterns
    whole.diagonal(dim1=1, dim2=2).zero_()
    torch.testing.assert_close(weights, whole, rtol=0, atol=1e-6)
    hebb = patterns.mT @ patterns / 30
    hebb.diagonal(dim1=1, dim2=2).zero_()
    torch.testing.assert_close(dreaming.dreamt(patterns, 0), hebb)


def test_one_update_leaves_what_the_law_says_and_the_bound_holds() -> None:
    rows = simulated(one_step.LAW, lambda p: p["size"] == 64 and p["beta"] in (8.0, 12.0))
    for row in rows:
        law = one_step.missing(row["beta"], row["overlap"], row["size"], row["patterns"])
        assert row["once"] == pytest.approx(law, rel=0.02)
        assert row["once"] < row["bound"] ** 2
    clean, noisy = ([r["once"] for r in rows if r["overlap"] == c] for c in (1.0, 0.8))
    assert clean[0] > 10 * clean[1]
    assert noisy[1] > clean[1]


def test_prototypes_become_fixed_points_as_their_examples_become_more() -> None:
    rows = simulated(mixtures.LAW, lambda p: p["noise"] in (0.2, 0.3) and p["examples"] in (1, 4, 8, 32))
    for row in rows:
        law = mixtures.wrong(row["noise"], row["examples"], row["neurons"])
        assert row["wrong"] == pytest.approx(law, rel=0.1, abs=4 * row["wrong_error"] + 1e-4)
    few, *_, many = (row for row in rows if row["noise"] == 0.2)
    assert few["example"] == 1 > few["prototype"]
    assert many["prototype"] > 0.95 > many["example"]


def test_memories_turn_from_features_into_prototypes() -> None:
    rows = simulated(prototypes.LAW, lambda p: p["n"] in (2.0, 20.0))
    few, many = rows
    assert many["index"] > 5 * few["index"]
    assert many["participation"] < few["participation"] / 5
    assert many["likeness"] > few["likeness"] + 0.1
    assert np.shape(few["pictures"]) == (prototypes.PICTURES, 8, 8)


class Toy:
    """A law of three points: those that were measured, and those at which it is interrupted."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.stop: set[int] = set()
        self.law = Law("toy", self.points, self.measure, self.findings, self.draw)

    def points(self, scale: str) -> list[Point]:
        del scale
        return [{"x": x, "replicas": 2} for x in range(3)]

    def measure(self, point: Point, where: Where) -> dict[str, float]:
        del where
        if point["x"] in self.stop:
            raise KeyboardInterrupt
        self.asked.append(point["x"])
        return summary("y", bipolar(Replicas((0, 1)), "toy", (8,), point["x"]).double().mean(-1))

    def findings(self, rows: list[Row]) -> list[Finding]:
        return [Finding("sum of x", 3, sum(row["x"] for row in rows), 0.5)]

    def draw(self, rows: list[Row]) -> Figure:
        figure = Figure()
        figure.subplots().plot(*columns(rows, "x", "y"))
        return figure


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toy:
    made = Toy()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(laws.LAWS, "toy", laws.About("nobody", "three points"))
    monkeypatch.setattr(laws, "load", lambda name: {"toy": made.law}[name])
    return made


def engramma(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


def test_a_stopped_law_goes_on_at_the_point_where_it_was_and_ends_as_if_it_had_not_been(toy: Toy) -> None:
    toy.stop = {1}
    assert engramma("reproduce toy --store cut --out cut").exit_code == 130
    assert toy.asked == [0]
    assert "2 of 3 points" in engramma("reproduce toy --store cut --dry-run").stdout
    toy.stop = set()
    for out in ("cut", "whole"):
        result = engramma(f"reproduce toy --store {out} --out {out}")
        assert result.exit_code == 0, result.output
        assert "sum of x" in result.stdout
    assert toy.asked == [0, 1, 2, 0, 1, 2]
    for name in ("law-toy.csv", "law-toy.png", "law-toy.pdf"):
        assert Path("cut/demo", name).read_bytes() == Path("whole/demo", name).read_bytes()
    lines = Path("cut/demo/law-toy.csv").read_text().splitlines()
    assert lines[0] == "x,replicas,y,y_error"
    assert len(lines) == 4


def test_what_is_kept_is_not_measured_again_and_what_is_damaged_is(toy: Toy) -> None:
    rows = list(kept.measured(toy.law, toy.points("demo"), Path("runs"), HERE))
    again = list(kept.measured(toy.law, toy.points("demo"), Path("runs"), HERE))
    assert [new for _, new in rows] == [True] * 3
    assert again == [(row, False) for row, _ in rows]
    folder = kept.place(toy.law, toy.points("demo")[1], Path("runs"))
    (folder / kept.FILE).write_text("{}")
    assert [new for _, new in kept.measured(toy.law, toy.points("demo"), Path("runs"), HERE)] == [
        False,
        True,
        False,
    ]
    assert len(Store("runs")) == 0  # they are no runs


def test_laws_are_listed_beside_the_studies_and_wrong_input_is_told_in_a_line() -> None:
    listed = engramma("reproduce --list").stdout
    assert all(name in listed for name in laws.LAWS)
    assert not set(laws.LAWS) & {*studies.names(), laws.ALL, "all"}
    for line, says in (
        ("reproduce capacity --scale huge", "scale must be one of demo, small, paper, not 'huge'"),
        ("reproduce capacity --rows ewc", "--rows is for studies"),
        ("reproduce capacity --device cuda:99", "device must be"),
    ):
        result = engramma(line)
        assert result.exit_code == 2, result.output
        (told,) = [each for each in result.stderr.splitlines() if each.startswith("engramma:")]
        assert says in told
    with pytest.raises(ValueError, match="law must be one of capacity"):
        laws.load("gravity")


@pytest.mark.parametrize("name", laws.LAWS)
def test_every_law_has_points_at_three_scales_no_two_alike(name: str) -> None:
    law = laws.load(name)
    assert law.name == name
    sizes = []
    for scale in studies.SCALES:
        points = law.points(scale)
        assert len({kept.place(law, point, Path()) for point in points}) == len(points)
        assert all(point["replicas"] > 1 for point in points)
        sizes.append(sum(point["replicas"] for point in points))
    assert sizes == sorted(sizes)
