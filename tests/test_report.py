"""The report: what the page is given, and the command that writes it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from reported import EVIL, SMALL
from stand_in import record as made_up

from engramma import streams
from engramma.experiment import read
from engramma.runs import study
from engramma.runs.opened import answering
from engramma.runs.options import Options
from engramma.runs.setup import build
from engramma.show import tables
from engramma.show.agreement import RULE
from engramma.show.report import contents, portraits
from engramma.show.report.write import in_script, report
from engramma.store.records import Store
from engramma.streams.datasets import digits

# What the page is given


def test_json_in_a_script_element_cannot_end_it():
    found = {"a": EVIL, "b": ["</SCRIPT>", "<!--", float("nan")], "ü": np.float64(1.5)}
    text = in_script(found)
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": EVIL, "b": ["</SCRIPT>", "<!--", None], "ü": 1.5}


def test_every_panel_has_its_content(records):
    found = contents.content(records, "t")
    assert found["choices"][0]["summary"]["runs"] == 11
    assert len(found["choices"][0]["curves"]) == 11
    assert [(s["label"], s["setting"]) for s in found["choices"][0]["searches"]] == [("EWC", "strength")]
    assert found["choices"][0]["searches"][0]["lines"]["average"]["x"] == [1, 30, 1000]
    assert len(found["portraits"]) == 11
    assert len(found["scenes"]) == 2  # one a seed: methods share it
    assert {(p["label"], *p["x"]) for p in found["choices"][0]["prototypes"]} == {
        ("Vanilla", 2.0, 20.0), ("Rehearsal 0.5", 2.0), ("EWC", 2.0)
    }  # fmt: skip


def test_a_cell_holds_the_mean_of_its_seeds_and_the_paper(records):
    table = contents.content(records, "t", networks=0)["choices"][0]["table"]
    row = next(r for r in table["rows"] if r["label"] == "Vanilla")
    cell = row["cells"][table["vertices"].index(20)]
    mine = [
        r.average for r in records if r.description["method"] == "vanilla" and r.description["vertex"] == 20
    ]
    assert cell["mean"] == pytest.approx(np.mean(mine))
    assert cell["sd"] == pytest.approx(np.std(mine, ddof=1))
    assert cell["paper"] == 0.277
    assert cell["difference"] == pytest.approx(np.mean(mine) - 0.277)
    assert [r["run"] for r in table["rows"]].count(True) == 3
    assert len(table["rows"]) == 13  # all of the paper's, run or not


def test_runs_that_differ_in_more_than_the_seed_have_no_mean_in_common(records):
    """The best of them would be a mean that was chosen by how it looks."""
    table = contents.content(records, "t", networks=0)["choices"][0]["table"]
    row = next(r for r in table["rows"] if r["label"] == "EWC")
    cell = row["cells"][table["vertices"].index(2)]
    assert (cell["mixed"], cell["trials"], cell["agrees"]) == (["strength"], 6, None)
    assert np.isnan(cell["mean"])


def test_allocation_is_compared_first_and_own_methods_have_their_bare_name():
    names = ["vanilla", "/home/me/mine.py:Mine", "allocation"]
    there = [
        made_up(0.3 + k / 10 + s / 100, method=name, seed=s) for k, name in enumerate(names) for s in (0, 1)
    ]
    found = contents.content(there, "t")["choices"][0]
    assert found["comparison"]["first"] == "allocation"
    assert {r["other"]: round(r["difference"], 6) for r in found["comparison"]["rows"]} == {
        "Vanilla": 0.2,
        "Mine": 0.1,
    }
    assert "Mine" in [row["label"] for row in found["table"]["rows"]]
    assert contents.content(there[:4], "t")["choices"][0]["comparison"]["first"] == "Vanilla"


def test_the_report_counts_as_the_table_does():
    there = [made_up(0.366 + x, seed=s) for s, x in enumerate((0.01, 0.0, -0.02))]
    assert contents.content(there, "t")["choices"][0]["table"]["said"].startswith(
        f"A cell agrees where {RULE}. 1 of 1 cell"
    )
    assert tables.table2(there).count in contents.content(there, "t")["choices"][0]["table"]["said"]
    elsewhere = [made_up(0.366, data="digits")]
    assert contents.content(elsewhere, "t")["choices"][0]["table"]["said"] == ""


def test_memories_come_first_seed_first_and_within_the_budget(records):
    found = contents.content(records, "t", networks=5)
    assert {p["seed"] for p in found["portraits"]} == {0}
    assert "6 more runs" in found["notes"][0]
    assert contents.content(records, "t", memory_budget=0)["portraits"] == []


def test_quantised_memories_are_near_the_kept_ones(records):
    one, _ = portraits.portrait(records[0])
    for k, theta in enumerate(portraits.weights_of(one)):
        kept = records[0].memories(k)
        assert np.abs(theta - kept).max() <= one["scale"] / 2 + 1e-6


def test_the_page_recalls_as_the_network_does():
    built = build([read({**SMALL, "items": 50, "recall_leak": 0.001})])
    assert portraits._interaction(built.network) == {"kind": "leaky", "n": 2, "leak": 0.001}


@pytest.mark.parametrize("kind", ["permuted", "split"])
def test_items_are_undone_to_the_original_pictures(kind):
    built = build([read({**SMALL, "stream": kind, "items": 50, "seed": 4})])
    scene = portraits.scene(built, [built.stream[k].test for k in range(3)])
    shows, undone, items = (portraits.unpack(scene[k]) for k in ("shows", "undone", "items"))
    for task in range(3):
        chosen = built.stream.view(4, task).test
        original = np.where(digits().x[chosen] > digits().threshold, 127, -127)
        np.testing.assert_array_equal(items[task][:, undone[task]], original)
        np.testing.assert_array_equal(original[:, shows[task]], items[task])


@pytest.mark.parametrize("degrees", [15, 90, 200])
def test_turned_pictures_follow_the_streams_rotation(degrees):
    picture = np.zeros((20, 20))
    picture[3:12, 5:9] = picture[10:13, 5:17] = 1
    place = portraits._turned((20, 20), degrees)
    mine = np.where(place < 0, 0, picture.ravel()[place])
    theirs = streams.rotate(picture[None], degrees)[0].ravel()
    assert np.corrcoef(mine, theirs)[0, 1] > 0.85
    assert np.corrcoef(picture.ravel()[portraits._turned((20, 20), -degrees)], theirs)[0, 1] < 0.6


def test_what_a_method_kept_is_found_again(records):
    record = next(r for r in records if r.description["method"] == "rehearsal")
    one, _ = portraits.portrait(record)
    count = np.array(one["coverage"]["count"])
    assert count.sum(1).tolist() == [60, 60, 60]  # half of the 120 training items of every task
    train = build([record.experiment]).stream[1].train
    expected = np.bincount(train.target[0, :60].argmax(-1).numpy(), minlength=10)
    assert count[1].tolist() == expected.tolist()


def test_the_networks_that_answered_are_found_again(grouped):
    """From records and memories alone: those of the training itself, after every task."""
    for record in grouped:
        built, network, theta = portraits.opened(record, None)
        found = answering(record, built, network, theta)
        setup = build([record.experiment], kernel="reference")
        ends = [moment for moment in setup.train() if moment.ends_task]
        for k, (mine, moment) in enumerate(zip(found, ends, strict=True)):
            theirs = moment.network
            assert (mine.each, mine.told, mine.owner.tolist()) == (
                theirs.each,
                theirs.told,
                theirs.owner.tolist(),
            )
            torch.testing.assert_close(mine.mean, theirs.mean)
            torch.testing.assert_close(mine.deviation, theirs.deviation)
            scores = built.stream.evaluate(mine, theta[k : k + 1])
            for name, score in record.scores.items():
                np.testing.assert_allclose(scores[name][0], score[k], err_msg=name)
    assert grouped[1].facts["report"]["owner"] == [0, 1, 0, 1]
    assert grouped[2].facts["report"]["owner"] == [0, 1, 0, 2]


def test_groups_that_no_task_has_named_are_refused(grouped):
    for owner, said in (
        (None, "does not say which memories"),
        ([0, 1], "owner must be"),
        ([0, 9] * 2, "owner must be"),
    ):
        odd = replace(grouped[0], facts={"report": {"owner": owner}})
        with pytest.raises(ValueError, match=said):
            portraits.portrait(odd)
    found = contents.content([odd, grouped[0]], "t")  # the others are shown, and why this one is not
    assert len(found["portraits"]) == 1
    assert "owner must be" in found["notes"][0]


def test_a_portrait_says_whose_memories_are(grouped, records):
    one, _ = portraits.portrait(grouped[2])
    groups, owner = one["groups"], portraits.unpack(one["owner"])
    assert (groups["each"], groups["owner"], groups["told"]) == (6, [0, 1, 0, 2], False)
    assert owner.tolist() == [
        [0] * 6 + [1 if k > 0 else -1] * 6 + [2 if k > 2 else -1] * 6 + [-1] * 6 for k in range(4)
    ]
    mean = portraits.unpack(groups["mean"])
    assert np.isfinite(mean).sum(1).tolist() == [1, 2, 2, 3]
    assert mean[1, 0] != mean[2, 0]  # the first group has learned again
    assert portraits.portrait(records[0])[0]["groups"] is None


def test_a_stream_of_states_has_a_portrait(tmp_path):
    run = read({"stream": "states", "vertex": 3.0, "memories": 12, "epochs": 4, "size": 60})
    record = study.run([run], Store(tmp_path), Options(keep_memories=True, curve_every=4)).records[0]
    one, scene = portraits.portrait(record)
    assert scene["shape"] == (6, 10)
    assert one["coverage"] is None
    assert len(one["census"]) == 2


def test_the_page_is_written_whole_or_not_at_all(tmp_path, records):
    with pytest.raises(ValueError, match="out must be the name of a file"):
        report(records[:1], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        report(records[:1], tmp_path / "file" / "report.html")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_file_asks_nobody_and_is_small(page_file):
    text = page_file.read_text("utf-8")
    assert page_file.stat().st_size < 15e6
    assert "default-src 'none'" in text
    assert not re.search(r'<(script|link|img|iframe)[^>]+(src|href)="http', text)
    assert len(re.findall(r"<!--(title|style|plotly|script|data)-->", text)) == 0


# On the command line


@pytest.fixture
def call():
    from typer.testing import CliRunner

    from engramma.cli import app

    return lambda *words: CliRunner().invoke(app, list(map(str, words)))


def test_report_command_writes_the_page_and_names_it(call, records, tmp_path):
    out = tmp_path / "new" / "page.html"
    done = call(
        "report", "--from", records[0].folder.parent, "--out", out, "--networks", "1", "--title", EVIL
    )
    assert done.exit_code == 0, done.output
    assert str(out) in done.output.replace("\n", "")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', out.read_text("utf-8"))
    assert data is not None
    found = json.loads(data.group(1))
    assert (found["title"], found["choices"][0]["summary"]["runs"], len(found["portraits"])) == (EVIL, 11, 1)


@pytest.mark.parametrize("store", ["missing", "."])
def test_report_command_says_that_there_are_no_records(call, tmp_path, store):
    done = call("report", "--from", tmp_path / store, "--out", tmp_path / "page.html")
    assert done.exit_code == 2
    assert "from must be a folder or an archive of records" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_run_command_watches_and_logs(call, tmp_path):
    small = "--data digits --tasks 2 --items 60 --memories 5 --epochs 4 --seeds 2 --watch --keep-memories"
    done = call("run", *small.split(), "--store", tmp_path / "s", "--tensorboard", tmp_path / "board")
    assert done.exit_code == 0, done.output
    assert "2 replicas; task 2/2, epoch 4/4" in done.stderr
    assert len(list((tmp_path / "board").iterdir())) == 2
