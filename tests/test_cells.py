"""How many cells agree with the paper, and how sure that number is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from engramma.paper import numbers as paper
from engramma.show.agreement import Cell, Line, Table


def of_trials(*cells: list[float]) -> Table:
    """A table of vanilla's cell at n = 2 (paper: 0.366 ± 0.016), as often as there are lists of trials."""
    printed = paper.Printed(0.366, 0.016)
    line = Line("Vanilla", tuple(Cell(np.array(values), printed=printed) for values in cells))
    return Table("table2", "", ("n=2",) * len(cells), (line,))


def test_what_cannot_change_is_counted_the_same_in_every_draw():
    near, far = [0.36, 0.365, 0.37, 0.375], [0.5, 0.505, 0.51, 0.515]
    assert of_trials(near).redrawn() == (1, 1)
    assert of_trials(far).redrawn() == (0, 0)
    assert of_trials(near, far, near).redrawn() == (2, 2)


def test_the_share_of_draws_that_agree_is_the_bootstraps():
    """Against every draw there is, 4^4 of them, one by one."""
    trials = [0.37, 0.39, 0.41, 0.43]
    cell = Cell(np.array(trials), printed=paper.Printed(0.366, 0.016))
    every = [Cell(np.array(t), printed=cell.printed).agrees for t in product(trials, repeat=4)]
    share = cell.redrawn(20_000, np.random.default_rng(1)).mean()
    assert share == pytest.approx(np.mean(every), abs=0.015)
    assert 0.2 < share < 0.9
    assert of_trials(trials, trials).redrawn() == (0, 2)


def test_the_order_of_the_trials_changes_no_draw():
    cell = of_trials([0.37, 0.39, 0.41, 0.43]).lines[0].cells[0]
    other = of_trials([0.43, 0.37, 0.41, 0.39]).lines[0].cells[0]
    assert isinstance(cell, Cell)
    assert isinstance(other, Cell)
    first, second = (c.redrawn(500, np.random.default_rng(1)) for c in (cell, other))
    assert np.array_equal(first, second)


def test_how_near_cells_lie_is_counted_without_their_deviations():
    """0.366 +- 0.016 over ten trials is the paper's; the second agrees by its own spread alone."""
    near, wide, far = [0.366, 0.386], [0.31, 0.51], [0.5, 0.52]
    table = of_trials(near, wide, far)
    assert [cell.agrees for cell in table.cells] == [True, True, False]
    assert table.nearness == ((1, 2), pytest.approx((0.01 + 0.044 + 0.144) / 3), 2)
    assert "1 cells lie within 0.03 of the paper's mean and 2 within 0.05" in table.caution
    assert "0.066 from it on average; Welch's test finds no difference in 2 at 5 %." in table.caution


def test_where_a_cell_has_a_single_trial_nothing_is_said_of_tests():
    table = of_trials([0.366, 0.386], [0.4])
    assert table.nearness is not None
    assert table.nearness.alike is None
    assert "Welch" not in table.caution
    assert of_trials().caution == ""


def test_a_range_only_where_there_are_trials_to_draw_from():
    assert of_trials([0.36, 0.37]).redrawn() is None
    assert of_trials([0.36, 0.37, 0.38], [0.5]).redrawn() is None
    assert of_trials().redrawn() is None
