"""Pictures of memories, pseudo-items and energies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from stand_in import DIGITS, StandIn, legible, record, stream_of, with_memories

from engramma.show import figures
from engramma.show.figures import energy, memories, whose


def test_unpermuted_items_are_the_pictures_of_the_data_set():
    run = record(0.5, **DIGITS)
    stream = stream_of(run)
    data = stream.dataset
    for task in range(2):
        view = stream.view(3, task)
        shown = stream.test(task).probe[0].double().numpy()
        want = np.where(data.x[view.test] > data.threshold, 1.0, -1.0).reshape(-1, 8, 8)
        np.testing.assert_array_equal(memories.unpermuted(shown, view.permutation, (8, 8)), want)


def test_speakers_of_memorised_items_are_of_their_task_and_class():
    run = memories.trained(with_memories())
    chosen = memories.speakers(run)
    assert chosen.shape == (2, 10)
    # Memory i is of task i // 40 and class i // 4 % 10; within noise nearly all should be found.
    right = [(m // 40, m // 4 % 10) == (t, c) for (t, c), m in np.ndenumerate(chosen)]
    assert np.mean(right) >= 0.8


def test_a_mosaic_keeps_every_tile():
    tiles = np.arange(2 * 3 * 4 * 5, dtype=float).reshape(2, 3, 4, 5)
    picture = memories.mosaic(tiles, 1)
    assert picture.shape == (2 * 5 - 1, 3 * 6 - 1)
    np.testing.assert_array_equal(picture[5:9, 6:11], tiles[1, 1])
    assert np.isnan(picture[4]).all()
    assert np.isnan(picture[:, 5]).all()


def test_memory_images_one_mosaic_a_vertex():
    figure = figures.memory_images([with_memories(5.0), with_memories(20.0)])
    legible(figure)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["$n=5$", "$n=20$"]
    axes = figure.axes[0]
    assert axes.images[0].get_array().shape == (2 * 9 - 1, 10 * 9 - 1)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["task 1", "task 2"]
    assert [t.get_text() for t in axes.get_xticklabels()] == [str(c) for c in range(10)]


def test_pseudo_items_are_states_at_rest_shared_out_among_tasks():
    rows = memories._relaxed_rows(memories.trained(with_memories(20.0)), 64, 10, 10)
    assert {label.split("\n")[0] for label in rows} <= {"task 1", "task 2", "unclear"}
    for images, classes in rows.values():
        assert set(np.unique(images)) <= {-1.0, 1.0}
        assert len(images) == len(classes) <= 10
    figure = figures.pseudo_items([with_memories(20.0), with_memories(10.0)], probes=64)
    legible(figure)
    assert len(figure.axes) == 2


def test_energy_never_rises_one_neuron_after_the_other():
    run = memories.trained(with_memories(5.0))
    for start in energy.starts(run, 6, 0.1).values():
        found = energy.along(run, start, 3, "asynchronous")
        assert found.shape == (4, 6)
        assert (np.diff(found, axis=0) <= 1e-9).all()
        state = start.expand(1, -1, -1)
        np.testing.assert_allclose(found[0], run.network.energy(run.theta, state)[0])
        # Random memories: there the two orders go different ways.
        wild = run._replace(theta=torch.as_tensor(np.random.default_rng(0).normal(size=run.theta.shape)))
        ends = []
        for order in ("synchronous", "asynchronous"):
            rest = wild.network.relax(wild.theta, state, 3, order=order).state
            ends.append(energy.along(wild, start, 3, order)[-1])
            np.testing.assert_allclose(ends[-1], wild.network.energy(wild.theta, rest)[0])
        assert not np.allclose(*ends)
    figure = figures.energy_curves([with_memories(5.0), with_memories(10.0)], count=4, steps=3)
    legible(figure)
    assert len(figure.axes[0].lines) == 6 + 2
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "random states", "items of task 1", "items of task 2", "all neurons at once", "one after the other",
    ]  # fmt: skip


def test_records_without_memories_say_what_to_do():
    for make in (figures.memory_images, figures.pseudo_items, figures.energy_curves):
        with pytest.raises(ValueError, match="--keep-memories"):
            make([record(0.5, **DIGITS)])


def test_memories_of_several_methods_are_not_mixed():
    one = with_memories(5.0)
    other = StandIn({**one.description, "method": "gem", "strength": 0.5}, one.scores, kept=one.kept)
    with pytest.raises(ValueError, match=r"one method at a time, not of Vanilla, GEM 0\.5"):
        figures.memory_images([one, other])
    assert figures.memory_images([other]).get_suptitle() == "GEM 0.5"


def test_memories_are_looked_at_in_full_precision_however_they_were_trained():
    run = with_memories()
    other = replace(run, description={**run.description, "dtype": "float32"})
    full, single = memories.trained(run), memories.trained(other)
    assert single.theta.dtype == single.stream.test(0).target.dtype == torch.float64
    assert np.array_equal(memories.speakers(single), memories.speakers(full))


def test_a_record_without_memories_says_how_to_have_them():
    with pytest.raises(ValueError, match="memories of some tasks are missing: run with --keep-memories"):
        memories.trained(replace(with_memories(), kept=None))


def test_energies_name_as_many_items_as_the_record_says(grouped):
    """Counted anew from the memories that were kept, task by task; and drawn once for each setting."""
    shared = grouped[1]  # two groups, each of which has learned two tasks
    for run in (grouped[0], shared):
        own, others = whose.told_apart(memories.trained(run))
        assert (own > others).mean() == pytest.approx(run.scores["named"][-1].mean(), abs=1e-9)
    run = memories.trained(grouped[0])  # its third task is its first again, with a group of its own
    items = run.stream.test(0).probe
    alone = run.network.known(run.theta, items)[0, :, run.network.owner[0, 0]].numpy()
    both = whose.told_apart(run)[0][: len(alone)]
    assert (both >= alone).all()
    assert (both > alone).any()
    figure = figures.energy_tells([shared, replace(shared, kept=(), folder=None)])
    legible(figure)
    (axes,) = figure.axes
    assert axes.get_title() == f"permuted, $n=5$: named {shared.scores['named'][-1].mean():.3f}"
    for part in axes.containers:  # every item is in some bar
        assert sum(bar.get_height() for bar in part) == pytest.approx(1)


def test_energies_that_no_figure_tells_apart_are_refused(grouped):
    with pytest.raises(ValueError, match="whose memories stand in groups"):
        figures.energy_tells([with_memories()])
    with pytest.raises(ValueError, match="no record has its memories"):
        figures.energy_tells([record(0.5)])
