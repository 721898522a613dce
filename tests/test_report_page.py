"""The report in a real browser: what it shows, and how it answers."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from reported import EVIL, SMALL

from engramma.experiment import read
from engramma.interactions import INTERACTIONS
from engramma.network import DenseMemory
from engramma.runs import study
from engramma.runs.opened import answering
from engramma.runs.options import Options
from engramma.runs.setup import build
from engramma.show.report import portraits
from engramma.show.report.write import report
from engramma.store.records import Store
from engramma.store.scores import value
from engramma.streams.datasets import digits

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        chrome = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chrome
        chrome.close()


@pytest.fixture
def look(browser):
    """Open a page from disk; at the end it must have logged no error and asked for nothing else."""
    opened, troubles = [], []

    def open_page(path, width=1400, kept="", **options):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, reduced_motion="reduce", **options
        )
        page = context.new_page()
        page.on("console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: troubles.append(str(e)))
        page.on(
            "request", lambda r: troubles.append(r.url) if r.url.partition("#")[0] != path.as_uri() else None
        )
        page.goto(path.as_uri() + kept)
        page.wait_for_function("window.engramma !== undefined")
        opened.append(context)
        return page

    yield open_page
    for context in opened:
        context.close()
    assert troubles == []


def column(page, place):
    """The numbers of a column of the heat map, None for a dash."""
    cells = page.locator("#heat tbody tr").evaluate_all(
        f"rows => rows.map(r => r.querySelectorAll('td')[{place}].firstChild.textContent)"
    )
    return [None if c == "–" else float(c.replace("−", "-")) for c in cells]


def pixels(page, selector):
    return page.locator(selector).evaluate_all("all => all.map(c => c.toDataURL())")


def test_every_panel_shows_something(look, page_file):
    page = look(page_file)
    assert "Dense Associative Memory" in page.locator("h1").text_content()
    assert page.locator("#heat tbody tr").count() == 3
    for chart in ("curve-chart", "search-chart", "diag-owner", "diag-census", "diag-prototypes"):
        assert page.locator(f"#{chart} .main-svg").count() > 0
    assert page.locator("#memory-grid button").count() == 16
    assert page.locator("#relax-scores tr").count() == 4
    assert page.locator("#memory-detail .near figure").count() == 6


def test_runs_at_several_strengths_have_no_mean_in_common(look, page_file):
    page = look(page_file)
    row = page.locator("#heat tbody tr", has_text="EWC")
    several = row.locator("td").first
    assert several.text_content() == "several"
    assert several.get_attribute("title") == "6 runs, which differ in strength: no one mean is theirs"


def test_a_search_alone_has_its_column(look, tmp_path, records):
    search = [r for r in records if r.description["method"] == "ewc"]
    page = look(report(search, tmp_path / "page.html", networks=0))
    assert page.locator("#heat tbody td", has_text="several").count() == 1


def test_heat_map_sorts_and_filters(look, page_file):
    page = look(page_file)
    page.locator("#table-run").uncheck()
    assert page.locator("#heat tbody tr").count() >= 13
    page.get_by_role("button", name="n=20").nth(1).click()  # the paper's
    values = [v for v in column(page, 6) if v is not None]  # after ours, a gap, three of theirs
    head = page.locator("th[aria-sort=descending]")
    assert head.count() == 1
    assert values == sorted(values, reverse=True)
    assert values[0] == 0.884
    page.keyboard.press("Enter")  # the heading keeps the focus
    values = [v for v in column(page, 6) if v is not None]
    assert values == sorted(values)
    assert values[0] == 0.277
    page.locator("#table-filter").fill("reh")
    names = page.locator("#heat tbody th").all_text_contents()
    assert len(names) == 4
    assert all("reh" in name.lower() for name in names)
    page.locator("#table-filter").fill("no such thing")
    assert "No row" in page.locator("#heat tbody").text_content()


def test_forgetting_stands_beside_accuracy(look, page_file, records):
    page = look(page_file)
    mine = [r for r in records if r.description["method"] == "vanilla" and r.description["vertex"] == 2]
    wanted = [np.mean([value(r, measure) for r in mine]) for measure in ("average", "forgetting")]
    vanilla = "document.querySelector('#heat tbody tr').querySelectorAll('td')"
    page.select_option("#table-measure", "both")
    here = page.evaluate(f"[...{vanilla}].map(td => td.firstChild?.textContent)")
    assert [float(here[k].replace("−", "-")) for k in (0, 3)] == pytest.approx(
        wanted, abs=6e-4
    )  # two and a gap
    page.select_option("#table-measure", "forgetting")
    assert page.evaluate(f"Number({vanilla}[0].firstChild.textContent)") == pytest.approx(wanted[1], abs=6e-4)
    assert page.locator("#heat th.group").all_text_contents() == ["forgetting here"]  # none of the paper's
    page.get_by_role("button", name="n=2", exact=True).click()
    assert page.locator("th[aria-sort=descending]").count() == 1


def test_what_is_left_out_is_said(look, page_file):
    said = look(page_file).locator("#table-left").text_content()
    assert "6 runs in cells whose runs differ in more than their seed" in said
    assert "GEM 0.5" in said
    assert "Vanilla" not in said


def test_methods_are_compared_pair_by_pair(look, page_file, records):
    page = look(page_file)
    rows = page.locator("#pairs tbody tr")
    mine = [
        [value(r) for r in records if (r.description["method"], r.description["vertex"]) == (name, 2)]
        for name in ("vanilla", "rehearsal")
    ]
    cells = rows.first.locator("th, td").all_text_contents()
    assert cells[:2] == ["Rehearsal 0.5", "n=2"]
    assert float(cells[2].replace("−", "-")) == pytest.approx(mine[0][0] - mine[1][0], abs=6e-4)
    assert rows.count() == 1
    assert "EWC is left out" in page.locator("#comparison-says").text_content()


def test_a_single_method_has_nothing_to_be_compared_with(look, tmp_path, records):
    page = look(report(records[:1], tmp_path / "page.html", networks=0))
    assert "Nothing to compare" in page.locator("#comparison .empty").text_content()


def test_rows_that_differ_in_more_than_their_method_say_in_what(look, tmp_path, records):
    other = replace(records[-1], description={**records[-1].description, "task_id": False})
    page = look(report([records[0], other], tmp_path / "page.html", networks=0))
    assert "these runs differ in task id." in page.locator("#table-left").text_content()


def test_the_table_is_downloaded_as_csv(look, page_file, records):
    page = look(page_file)
    page.locator("#table-filter").fill("vanilla")
    with page.expect_download() as waited:
        page.click("#table-csv")
    assert waited.value.suggested_filename == "engramma.csv"
    with open(waited.value.path(), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"Vanilla"}
    for n in (2, 20):
        row = next(row for row in rows if float(row["vertex"]) == n)
        mine = [r for r in records if r.description["method"] == "vanilla" and r.description["vertex"] == n]
        assert float(row["mean"]) == pytest.approx(np.mean([value(r) for r in mine]))
        assert float(row["forgetting"]) == pytest.approx(np.mean([value(r, "forgetting") for r in mine]))
        assert int(row["trials"]) == len(mine)


def test_names_in_the_csv_are_quoted(look, tmp_path, records):
    name = 'a, "b"'
    odd = replace(records[0], description={**records[0].description, "method": name})
    page = look(report([odd], tmp_path / "page.html", networks=0))
    rows = list(csv.DictReader(io.StringIO(page.evaluate("engramma.asCsv()"), newline="")))
    assert [row["method"] for row in rows] == [name]


def test_the_address_keeps_what_is_chosen(look, page_file):
    page = look(page_file)
    assert "#" not in page.url
    page.get_by_role("button", name="n=20").first.click()
    page.select_option("#table-measure", "both")
    page.select_option("#curve-method", "EWC λ=30")
    page.select_option("#curve-seed", "1")
    page.select_option("#memory-which", "2")
    page.locator("#memory-after").fill("3")
    page.locator("#memory-grid button").nth(3).click()
    page.locator("nav a", has_text="Diagnostics").click()
    seen = "main select, main input, #memory-after-out, #heat, #memory-detail h3, #diag-note"
    state = f"""[...document.querySelectorAll("{seen}")].map(e => [e.id, e.checked, e.value,
      e.matches("select, input") || e.textContent])"""
    other = look(page_file, kept="#" + page.url.partition("#")[2])
    assert other.evaluate(state) == page.evaluate(state)
    assert other.evaluate("scrollY") > 500
    assert other.evaluate(state) != look(page_file).evaluate(state)


@pytest.mark.parametrize(
    "kept", ["#of=9&memory=x&sort=here-99-up&curve-method=none", "#table", "#a=%3Cb%3E&at=no"]
)
def test_an_address_of_another_report_is_harmless(look, page_file, kept):
    page = look(page_file, kept=kept)
    assert page.locator("#heat tbody tr").count() == 3


def test_runs_of_other_settings_are_chosen_and_not_mixed(look, tmp_path, records):
    vanilla = [r for r in records if r.description["method"] == "vanilla"]
    longer = [replace(r, description={**r.description, "epochs": 999}) for r in vanilla[:1]]
    path = report([*longer, *vanilla], tmp_path / "page.html")
    page = look(path)
    assert page.locator("#choice option").all_text_contents() == ["epochs 25 (4 runs)", "epochs 999 (1 run)"]
    assert "1 runs of other data" not in page.locator("#table-left").text_content()
    assert "run of other data" in page.locator("#table-left").text_content()
    assert "differ" not in page.locator("#table-left").text_content()
    assert "several" not in page.locator("#heat").text_content()
    assert page.locator("#memory-which option").count() == 4
    page.select_option("#choice", "1")
    page.locator("#summary", has_text="epochs 999").wait_for()  # the page begins anew
    assert page.locator("#curve-vertex option").count() == page.locator("#memory-which option").count() == 1
    assert not look(report(vanilla, tmp_path / "one.html", networks=0)).locator("#choice").is_visible()


def test_coverage_is_of_one_vertex(look, tmp_path, records):
    kept = [r for r in records if r.description["method"] == "rehearsal"]
    vanilla = [r for r in records if r.description["method"] == "vanilla"]
    page = look(report([*kept, *vanilla], tmp_path / "page.html"))
    assert page.locator("#diag-coverage .main-svg").count() > 0
    names = page.locator("#memory-which option").all_text_contents()
    page.select_option("#memory-which", str(next(k for k, name in enumerate(names) if "n=20" in name)))
    assert "n=20" in page.locator("#diag-coverage.empty").text_content()


def test_curves_follow_their_switches(look, page_file):
    page = look(page_file)
    y = "document.getElementById('curve-chart').data.filter(t => t.name).map(t => Array.from(t.y))"
    both = page.evaluate(y)
    assert len(both) == 3
    page.select_option("#curve-seed", "1")
    one = page.evaluate(y)
    page.select_option("#curve-seed", "0")
    other = page.evaluate(y)
    np.testing.assert_allclose(both, (np.array(one) + np.array(other)) / 2, atol=1e-6)
    page.select_option("#curve-vertex", "20")
    assert page.evaluate(y) != other
    page.select_option("#curve-method", "Rehearsal 0.5")
    assert page.locator("#curve-vertex option").count() == 1


def test_slider_and_unpermuting_change_the_memories(look, page_file):
    page = look(page_file)
    page.select_option("#memory-sort", "none")
    first = pixels(page, "#memory-grid canvas")
    page.locator("#memory-after").focus()
    page.keyboard.press("ArrowRight")
    second = pixels(page, "#memory-grid canvas")
    assert page.locator("#memory-after-out").text_content() == "2"
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 8
    page.select_option("#memory-task", "1")
    assert pixels(page, "#memory-grid canvas") != second
    assert "Memory" in page.locator("#memory-detail h3").first.text_content()


def test_memories_sort_by_owner_and_importance(look, page_file):
    page = look(page_file)
    page.locator("#memory-after").fill("3")
    shown = "[...document.querySelectorAll('#memory-grid button')].map(b => Number(b.dataset.memory))"
    facts = "(n) => { const p = engramma.portrait(); return Array.from(p[n].slice(2 * p.memories)); }"
    page.select_option("#memory-sort", "strength")
    strength = np.array(page.evaluate(facts, "strength"))[page.evaluate(shown)]
    assert (np.diff(strength) <= 0).all()
    page.select_option("#memory-sort", "owner")
    owner = np.array(page.evaluate(facts, "owner"))[page.evaluate(shown)]
    assert (np.diff(np.where(owner < 0, 99, owner)) >= 0).all()


def test_a_click_or_a_key_chooses_a_memory(look, page_file):
    page = look(page_file)
    page.locator("#memory-grid button").nth(3).click()
    chosen = page.locator("#memory-grid button[aria-selected=true]").get_attribute("data-memory")
    title = page.locator("#memory-detail h3").first
    assert title.text_content() == f"Memory {int(chosen) + 1} after task 1"
    drawn = page.evaluate("Array.from(document.querySelector('#memory-detail .js-plotly-plot').data[0].y)")
    weights = page.evaluate(
        f"(() => {{ const p = engramma.portrait(); return Array.from(p.theta[0].slice({chosen} * p.neurons, "
        f"({chosen} + 1) * p.neurons)).slice(p.visible); }})()"
    )
    assert drawn == weights
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#memory-grid button[aria-selected=true]").get_attribute("data-memory") != chosen
    assert title.text_content() != f"Memory {int(chosen) + 1} after task 1"


def test_drawing_changes_the_scores(look, page_file):
    page = look(page_file)
    page.click("#relax-clear")
    scores = page.locator("#relax-scores")
    blank = scores.text_content()
    box = page.locator("#relax-draw").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] - 15, steps=20)
    page.mouse.up()
    drawn = scores.text_content()
    assert drawn != blank
    ink = page.evaluate(
        "[...document.getElementById('relax-draw').getContext('2d').getImageData(4, 0, 1, 8).data]"
    )
    assert ink[0::4].count(26) == 8  # a line from top to bottom
    page.locator("#relax-draw").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    assert scores.text_content() != drawn


def test_relaxation_lowers_the_energy_one_by_one(look, page_file):
    page = look(page_file)
    page.select_option("#relax-order", "asynchronous")
    page.locator("#relax-noise").fill("30")
    page.click("#relax-go")
    page.wait_for_function("/At rest|Still moving/.test(document.getElementById('relax-says').textContent)")
    energy = np.array(page.evaluate("Array.from(document.getElementById('relax-energy').data[0].y)"))
    assert len(energy) == page.locator("#relax-film figure").count() >= 2
    assert (np.diff(energy) <= 1e-12).all()


@pytest.mark.parametrize(
    ("kind", "n"),
    [("leaky", 2), ("leaky", 20), ("leaky", 2.5), ("rectified", 3), ("polynomial", 4), ("polynomial", 3.5),
     ("exponential", 20)],
)  # fmt: skip
def test_the_page_computes_what_the_network_computes(look, page_file, kind, n):
    """Scores, energies and relaxations of the page's own script against network.py, on the same numbers."""
    page, size, memories = look(page_file), 40, 12
    draw = np.random.default_rng(7)
    theta = np.clip(draw.normal(0, 0.7, (memories, size)), -1, 1)
    probes = draw.choice([-1.0, 1.0], (6, size))
    f = {"kind": kind, "n": n, "leak": 0.01}
    found = page.evaluate(
        """([theta, neurons, f, probes]) => {
          const net = new engramma.Memory(Float64Array.from(theta.flat()), neurons, f, 1 / 0.95);
          const states = (p, order) => net.relax(p, 15, order).states.map((s) => [...s]);
          return probes.map((p) => ({
            scores: [...net.scores(p)], some: [...net.scores(p, 30, 40)], energy: net.energy(p),
            together: states(p, "synchronous"), singly: states(p, "asynchronous"),
          }));
        }""",
        [theta.tolist(), size, f, probes.tolist()],
    )
    leak = {"leak": 0.01} if kind == "leaky" else {}
    network = DenseMemory(size, 0, INTERACTIONS[kind](n, **leak), autoassociative=True, beta=1 / 0.95)
    memory, state = torch.as_tensor(theta)[None], torch.as_tensor(probes)[None]
    scores = network.scores(memory, state)[0].numpy()
    np.testing.assert_allclose(
        [x["scores"] for x in found], scores, rtol=1e-9, atol=1e-12 * np.abs(scores).max()
    )
    np.testing.assert_allclose([x["some"] for x in found], np.array([x["scores"] for x in found])[:, 30:])
    np.testing.assert_allclose([x["energy"] for x in found], network.energy(memory, state)[0], rtol=1e-9)
    for order, name in (("synchronous", "together"), ("asynchronous", "singly")):
        ends = network.relax(memory, state, 15, order=order)
        np.testing.assert_array_equal([x[name][-1] for x in found], ends.state[0])
        assert [len(x[name]) - 1 for x in found] == ends.steps[0].tolist()


def test_the_page_scores_a_record_as_python_does(look, page_file, records):
    """The class scores of a test item, from the quantised memories: the table's numbers."""
    page = look(page_file)
    shown = page.locator("#relax-scores td.best").all_text_contents()
    record = next(r for r in records if r.description["method"] == "vanilla")
    one, _ = portraits.portrait(record)
    built = build([record.experiment])
    network = built.network.at(one["beta"])
    probe = built.stream[0].test.probe[:, :1]
    scores = [network.scores(torch.as_tensor(t)[None], probe)[0, 0] for t in portraits.weights_of(one)]
    assert shown == [f"{torch.tanh(s.max()):.2f}".replace("-", "−") for s in scores]


@pytest.fixture(scope="module")
def grouped_page(grouped, tmp_path_factory):
    return report(grouped, tmp_path_factory.mktemp("grouped-page") / "report.html")


def test_the_page_knows_items_as_groups_do(look, grouped_page, grouped):
    """Energies, claims and answers of the page's own script, after every task, beside Python's."""
    page = look(grouped_page)
    for which, record in enumerate(grouped):
        one, _ = portraits.portrait(record)
        built, network, theta = portraits.opened(record, None)
        nets = answering(record, built, network, theta)
        memories = torch.as_tensor(portraits.weights_of(one))[:, None]
        mean, deviation = (
            torch.as_tensor(portraits.unpack(one["groups"][name]).astype(float))
            for name in ("mean", "deviation")
        )
        probe = torch.cat([built.stream.test(task).probe[:, :5] for task in range(4)], 1)
        page.select_option("#memory-which", str(which))
        found = page.evaluate(
            """(probes) => engramma.portrait().networks.map((net) => probes.map((x) => {
              const state = Float64Array.from(x), p = engramma.portrait();
              return { known: [...net.known(state)], claim: net.claim(state), told: net.claim(state, 1),
                answers: net.answers(state, p.visible), energy: net.awake(state).energy(state) };
            }))""",
            probe[0].double().tolist(),
        )
        for k, net in enumerate(nets):
            net = replace(net, beta=one["beta"], mean=mean[k : k + 1], deviation=deviation[k : k + 1])
            z = net.known(memories[k], probe)
            np.testing.assert_allclose([x["known"] for x in found[k]], z[0], rtol=1e-6, atol=1e-9)
            assert [x["claim"] for x in found[k]] == net.named(memories[k], probe)[0].tolist()
            said = [int(np.argmax(x["answers"])) for x in found[k]]
            assert said == net.predict(memories[k], probe)[0].tolist()
            energy = net.energy(memories[k], probe)[0]
            np.testing.assert_allclose([x["energy"] for x in found[k]], energy, rtol=1e-9)
            owner = one["groups"]["owner"]
            if net.told and k >= 1:
                assert {x["told"] for x in found[k]} == {owner[1]}


def test_a_drawn_digit_is_claimed_by_a_group(look, grouped_page):
    page = look(grouped_page)
    page.select_option("#memory-which", "0")
    page.locator("#memory-after").fill("4")
    claimed = set()
    for task in range(4):
        page.select_option("#relax-task", str(task))
        says = page.locator("#relax-claim").text_content()
        group = page.evaluate("engramma.claim()")
        assert says.startswith(f"After task 4 the group of task {group + 1} claims it: it lies ")
        bars = page.evaluate("(() => { const t = document.getElementById('relax-groups').data[0]; "
                             "return [Array.from(t.y), t.marker.color, t.x]; })()")  # fmt: skip
        assert int(np.argmax(bars[0])) == group
        assert [c.startswith("#") for c in bars[1]] == [g == group for g in range(4)]  # the others are faded
        assert bars[2] == ["1", "2", "3", "4"]
        frame = page.locator("#relax-draw").evaluate("c => getComputedStyle(c).boxShadow")
        tile = page.locator(f"#memory-grid [title$='group of task {group + 1}']").first
        assert tile.evaluate("t => getComputedStyle(t).borderTopColor") in frame
        claimed.add(group)
    assert len(claimed) >= 3  # of four tasks two are the same
    page.click("#relax-clear")
    before = page.locator("#relax-claim").text_content()
    box = page.locator("#relax-draw").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] - 15, steps=20)
    page.mouse.up()
    assert page.locator("#relax-claim").text_content() != before
    page.click("#relax-go")
    page.wait_for_function("/At rest|Still moving/.test(document.getElementById('relax-says').textContent)")


def test_groups_are_named_by_what_they_have_learned(look, grouped_page, page_file):
    page = look(grouped_page, 390)
    found = "[...document.querySelectorAll('#memory-legend span > span')].map(s => s.textContent)"
    page.select_option("#memory-which", "2")
    assert page.evaluate(found) == ["task 1: 6", "no task: 18"]
    page.locator("#memory-after").fill("4")
    assert page.evaluate(found) == ["tasks 1, 3: 6", "task 2: 6", "task 4: 6", "no task: 6"]
    pictures = pixels(page, "#memory-grid canvas")
    page.select_option("#memory-task", "1")  # un-permuted for one task, and no more for each its own
    assert sum(a != b for a, b in zip(pictures, pixels(page, "#memory-grid canvas"), strict=True)) >= 12
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    plain = look(page_file)
    assert not plain.locator("#relax-known").is_visible()
    assert "own" not in plain.locator("#memory-task").text_content()


def test_names_are_shown_as_text(look, tmp_path, records):
    bunch = digits()
    x, y = bunch.x.reshape(-1, 8, 8)[:200], np.array([f"<b>{EVIL}{c}" for c in bunch.y[:200]])
    np.savez(tmp_path / "own.npz", x=x, y=y)
    run = read({**SMALL, "data": str(tmp_path / "own.npz"), "epochs": 5})
    record = study.run([run], Store(tmp_path / "store"), Options(keep_memories=True)).records[0]
    strange = replace(record, description={**record.description, "method": EVIL, "data": EVIL}, folder=None)
    path = report([record, strange], tmp_path / f"a {EVIL.replace('/', '')}.html", title=f"</title>{EVIL}")
    page = look(path, kept="#of=1")
    assert EVIL in page.locator("#choice option").last.text_content()
    assert page.evaluate("window.hacked") is None
    assert page.title() == f"</title>{EVIL}"
    assert page.locator("h1").text_content() == f"</title>{EVIL}"
    assert EVIL in page.locator("#heat tbody").text_content()
    page.select_option("#curve-method", EVIL)
    page = look(path)
    assert page.evaluate("window.hacked") is None
    assert page.locator("#relax-scores th").first.text_content() == f"<b>{EVIL}0"
    assert f"<b>{EVIL}0" in page.locator("#memory-detail .xtick text").first.text_content()
    assert page.locator("body script").count() == 3  # ours: data, plotly, the page's own


def test_panels_without_data_say_so(look, tmp_path, records):
    page = look(report([], tmp_path / "empty.html"))
    assert page.locator("#summary").text_content() == "0 runs"
    assert "nothing was run" in page.locator("#heat").text_content()
    for panel in ("comparison", "curves", "searches", "memories", "relaxation", "diagnostics"):
        assert page.locator(f"#{panel} .empty").is_visible(), panel
    bare = replace(records[0], folder=None, kept=(), curves={})
    page = look(report([bare], tmp_path / "bare.html"))
    assert "--keep-memories" in page.locator("#memories").text_content()


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_follows_the_colour_scheme(look, page_file, width, scheme):
    page = look(page_file, width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    assert before == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
    page.click("#theme")
    assert page.evaluate(ground) != before
    tops = page.locator("#memory-grid button").evaluate_all(
        "all => all.map(b => [b.getBoundingClientRect().top, b.getBoundingClientRect().bottom])"
    )
    rows = sorted({(round(a), round(b)) for a, b in tops})
    assert len(rows) > 1
    assert all(above[1] <= below[0] + 1 for above, below in pairwise(rows))  # no row lies on another


@pytest.mark.parametrize("width", [390, 1400])
def test_what_is_out_of_sight_is_said(look, page_file, width):
    """A box whose content is wider or higher than itself has a hint beside it, until its end is in sight."""
    page = look(page_file, width)
    page.click("#relax-go")
    page.wait_for_timeout(100)  # observers are told after the next frame
    seen = page.locator(".scroll, .film, #memory-grid").evaluate_all(
        "all => all.map(b => [b.scrollWidth > b.clientWidth + 2, b.scrollHeight > b.clientHeight + 2, "
        "b.nextElementSibling.className, b.nextElementSibling.textContent])"
    )
    for wide, high, kind, says in seen:
        assert kind == "more"
        assert ("right" in says, bool(says)) == (wide, wide or high)
    scores = page.locator(".scroll:has(#relax-scores)")
    hint = page.locator(".scroll:has(#relax-scores) + .more")
    assert hint.is_visible() == (width == 390)
    if width == 390:
        scores.evaluate("b => b.scrollTo(b.scrollWidth, 0)")
        page.wait_for_timeout(100)
        assert "left" in hint.text_content()
        last = page.locator("#relax-scores tr:first-child th").last.bounding_box()
        assert last["x"] + last["width"] <= width


def test_the_space_beside_a_memory_is_used(look, page_file):
    page = look(page_file)
    grid, detail = (page.locator(f"#memory-{part}").bounding_box() for part in ("grid", "detail"))
    assert grid["height"] > 0.7 * detail["height"]


def test_everything_is_reached_by_the_keyboard(look, page_file):
    page = look(page_file)
    reached = set()
    for _ in range(70):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.parentElement.id"))
    wanted = {
        "theme",
        "table-filter",
        "table-view",
        "curve-method",
        "search-which",
        "memory-after",
        "memory-play",
    }
    assert wanted | {"memory-grid", "relax-draw", "relax-go"} <= reached
