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


def drawn(seed: int, tasks: int, points: int = 4) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """A curve (2,E,T) by chance, the places of its ends, and the scores (2,T,T) there."""
    draw = torch.Generator().manual_seed(seed)
    curve = torch.rand(2, 1 + points * tasks, tasks, generator=draw, dtype=torch.float64)
    ends = [points * (k + 1) for k in range(tasks)]
    return curve, ends, curve[:, ends]


def slow_min_accuracy(curve: torch.Tensor, ends: list[int]) -> float:
    worst = [
        min(float(curve[e, task]) for e in range(ends[task] + 1, len(curve))) for task in range(len(ends) - 1)
    ]
    return sum(worst) / len(worst)


def slow_gap(curve: torch.Tensor, ends: list[int]) -> float:
    pairs = []
    for k in range(1, len(ends)):
        for j in range(k):
            before, after = float(curve[ends[k - 1], j]), float(curve[ends[k], j])
            least = min(float(curve[e, j]) for e in range(ends[k - 1] + 1, ends[k] + 1))
            pairs.append(max(0.0, min(before, after) - least))
    return sum(pairs) / len(pairs)


@given(seed=st.integers(0, 10_000), tasks=st.integers(2, 5), points=st.integers(1, 4))
def test_what_curves_say_is_as_defined(seed: int, tasks: int, points: int) -> None:
    curve, ends, scores = drawn(seed, tasks, points)
    for r in range(2):
        assert float(measures.min_accuracy(curve, ends)[r]) == pytest.approx(
            slow_min_accuracy(curve[r], ends)
        )
        assert float(measures.stability_gap(curve, ends)[r]) == pytest.approx(slow_gap(curve[r], ends))
    lowest = measures.min_accuracy(curve, ends)
    assert (lowest <= scores[:, -1, :-1].mean(-1) + 1e-12).all()  # the last evaluation is one of them
    gap = measures.stability_gap(curve, ends)
    assert (gap >= 0).all()
    if points == 1:  # measured after tasks alone: a dip within one is not seen
        near(gap, [0.0, 0.0])


def test_what_is_lost_for_good_is_no_gap_and_a_dip_is() -> None:
    lost = torch.tensor([[0.9, 0.0], [0.6, 0.5], [0.3, 0.9]], dtype=torch.float64)
    dip = torch.tensor([[0.9, 0.0], [0.2, 0.5], [0.8, 0.9]], dtype=torch.float64)
    assert float(measures.stability_gap(lost, [0, 2])) == 0
    assert float(measures.stability_gap(dip, [0, 2])) == pytest.approx(0.8 - 0.2)
    assert float(measures.min_accuracy(dip, [0, 2])) == pytest.approx(0.2)


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 5))
def test_one_run_is_measured_as_it_is_among_many(seed: int, tasks: int) -> None:
    curve, ends, scores = drawn(seed, tasks)
    reference = torch.linspace(0.1, 0.9, tasks, dtype=torch.float64)
    for of_scores in (
        measures.average,
        measures.own,
        measures.smallest_own,
        measures.plasticity,
        measures.forgetting,
        measures.backward_transfer,
        lambda s: measures.forward_transfer(s, reference),
        lambda s: measures.intransigence(s, reference),
    ):
        each = torch.stack([of_scores(scores[r]) for r in range(2)])
        torch.testing.assert_close(of_scores(scores), each)
    for of_curve in (measures.min_accuracy, measures.stability_gap):
        each = torch.stack([of_curve(curve[r], ends) for r in range(2)])
        torch.testing.assert_close(of_curve(curve, ends), each)


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 5))
def test_transfer_intransigence_and_plasticity_hang_together(seed: int, tasks: int) -> None:
    """By their definitions: the average is what was learned, and what became of it since."""
    _, _, scores = drawn(seed, tasks)
    share = (tasks - 1) / tasks
    whole = measures.plasticity(scores) + share * measures.backward_transfer(scores)
    torch.testing.assert_close(whole, measures.average(scores))
    assert (measures.forgetting(scores) >= -measures.backward_transfer(scores) - 1e-12).all()
    other = measures.own(scores.flip(0))
    apart = measures.plasticity(scores.flip(0)) - measures.plasticity(scores)
    torch.testing.assert_close(measures.intransigence(scores, other), apart)
    near(measures.intransigence(scores, measures.own(scores)), [0.0, 0.0])
