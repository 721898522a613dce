from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from engramma import measures

# scores[r, k, j]: task j after task k. Two replicas, three tasks; the second replica never forgets.
SCORES = torch.tensor(
    [
        [[0.9, 0.2, 0.1], [0.5, 0.8, 0.3], [0.4, 0.6, 0.7]],
        [[0.9, 0.1, 0.1], [0.9, 0.9, 0.1], [0.9, 0.9, 0.9]],
    ],
    dtype=torch.float64,
)


def near(found: torch.Tensor, expected: list) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_known_answers() -> None:
    near(measures.average(SCORES), [(0.4 + 0.6 + 0.7) / 3, 0.9])
    near(measures.own(SCORES), [[0.9, 0.8, 0.7], [0.9, 0.9, 0.9]])
    near(measures.smallest_own(SCORES), [0.7, 0.9])
    near(measures.forgetting(SCORES), [((0.9 - 0.4) + (0.8 - 0.6)) / 2, 0.0])
    near(measures.backward_transfer(SCORES), [((0.4 - 0.9) + (0.6 - 0.8)) / 2, 0.0])
    near(measures.forward_transfer(SCORES, 0.1), [((0.2 - 0.1) + (0.3 - 0.1)) / 2, 0.0])
    untrained = torch.tensor([[0.5, 0.2, 0.0], [0.5, 0.0, 0.1]], dtype=torch.float64)
    near(measures.forward_transfer(SCORES, untrained), [0.15, 0.05])


def test_forgetting_is_from_the_best_and_backward_transfer_from_the_first() -> None:
    """A task that improved before it was lost: the two definitions part."""
    improved = torch.tensor([[[0.5, 0.0, 0.0], [0.8, 0.5, 0.0], [0.6, 0.5, 0.5]]], dtype=torch.float64)
    near(measures.forgetting(improved), [((0.8 - 0.6) + 0.0) / 2])
    near(measures.backward_transfer(improved), [((0.6 - 0.5) + 0.0) / 2])


def test_forgetting_is_from_the_best_over_time_not_over_tasks() -> None:
    """The second task was always the easier: its scores are not the first's to lose."""
    uneven = torch.tensor([[[0.3, 0.9, 0.0], [0.4, 0.8, 0.0], [0.2, 0.6, 0.5]]], dtype=torch.float64)
    near(measures.forgetting(uneven), [((0.4 - 0.2) + (0.9 - 0.6)) / 2])


def test_one_task_forgets_nothing() -> None:
    one = SCORES[:, :1, :1]
    near(measures.average(one), [0.9, 0.9])
    for found in (
        measures.forgetting(one),
        measures.backward_transfer(one),
        measures.forward_transfer(one, 0.1),
    ):
        near(found, [0.0, 0.0])


@given(seed=st.integers(0, 10_000), classes=st.integers(2, 6), items=st.integers(1, 40))
def test_accuracy_and_macro_f1_are_scikit_learns(seed: int, classes: int, items: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    predicted = torch.randint(0, classes, (3, items), generator=draw)
    truth = torch.randint(0, classes, (3, items), generator=draw)
    counts = measures.confusion(predicted, truth, classes)
    assert counts.sum((1, 2)).tolist() == [items] * 3
    for r in range(3):
        y, guess = truth[r].numpy(), predicted[r].numpy()
        expected = f1_score(y, guess, average="macro", zero_division=0)
        assert float(measures.macro_f1(counts)[r]) == pytest.approx(expected)
        assert float(measures.accuracy(counts)[r]) == pytest.approx(accuracy_score(y, guess))
        assert float(measures.accuracy(counts)[r]) == pytest.approx(f1_score(y, guess, average="micro"))


def test_confusion_is_truth_by_prediction() -> None:
    counts = measures.confusion(torch.tensor([[1, 1, 0]]), torch.tensor([[0, 1, 2]]), 3)
    assert counts.tolist() == [[[0, 1, 0], [0, 1, 0], [1, 0, 0]]]
