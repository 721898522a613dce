from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import shuffle
from sklearn.utils.estimator_checks import check_estimator

from engramma.experiment import read
from engramma.methods import EWC, Allocation
from engramma.models.classifier import LEARNED_BY, DenseMemoryClassifier
from engramma.runs.setup import build
from engramma.streams.datasets import Dataset


def quick(**settings: Any) -> DenseMemoryClassifier:
    return DenseMemoryClassifier(**{"memories": 48, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_iris(return_X_y=True)
    return shuffle(x, y, random_state=0)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def some_digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return x[:600], y[:600]


@pytest.mark.parametrize("method", ["vanilla", "allocation"])
def test_scikit_learns_own_checks(method: str) -> None:
    """All of them with default settings; those that need a package not installed here are left out."""
    results = check_estimator(DenseMemoryClassifier(method=method), on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} <= {"passed", "skipped"}
    assert not [r["check_name"] for r in results if r["expected_to_fail"]]


def test_in_pipelines_searches_and_cross_validation(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    assert cross_val_score(quick(), x, y, cv=3).mean() > 0.9
    search = GridSearchCV(
        make_pipeline(PCA(3), quick()), {"densememoryclassifier__vertex": [2, 3]}, cv=2, error_score="raise"
    ).fit(x, y)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["setosa", "versicolour", "virginica"]),
        np.array(["setosa", "versicolour", "virginica"], dtype=object),
        np.array([-7, 0, 40]),
        np.array([1.0, 2.0, 3.0]),
    ],
)
def test_any_kind_of_label(iris: tuple[np.ndarray, np.ndarray], labels: np.ndarray) -> None:
    x, y = iris
    model = quick(epochs=10).fit(x, labels[y])
    assert model.predict(x).dtype == labels.dtype
    assert model.score(x, labels[y]) > 0.9
    np.testing.assert_array_equal(model.predict(x), labels[quick(epochs=10).fit(x, y).predict(x)])


def test_features_all_above_nothing_are_told_apart(iris: tuple[np.ndarray, np.ndarray]) -> None:
    """The threshold is the middle of the first task's range unless one is given; one that makes all items
    the same is refused."""
    x, y = iris[0] + 100, iris[1]
    model = quick(features="binary").fit(x, y)
    assert model.threshold_ == pytest.approx((x.min() + x.max()) / 2)
    assert model.score(x, y) > 0.6
    assert quick(features="binary", threshold=104).fit(x, y).threshold_ == 104
    with pytest.raises(ValueError, match=r"range is 100\.1 to 107\.9, the threshold 0, 100% of"):
        quick(features="binary", threshold=0).fit(x, y)


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_any_number_of_classes(iris: tuple[np.ndarray, np.ndarray], classes: int) -> None:
    x, y = iris[0][iris[1] < classes], iris[1][iris[1] < classes]
    model = quick(epochs=10).fit(x, y)
    p = model.predict_proba(x)
    assert p.shape == (len(x), classes)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_array_equal(p.argmax(1), model.predict(x))
    assert model.score(x, y) > 0.9
    assert model.decision_function(x).shape == ((len(x),) if classes == 2 else (len(x), classes))
    if classes == 2:
        np.testing.assert_array_equal(model.decision_function(x) > 0, model.predict(x) == 1)


@pytest.mark.parametrize("features", ["scaled", "binary"])
def test_features_scaled_or_binary(some_digits: tuple[np.ndarray, np.ndarray], features: str) -> None:
    x, y = some_digits
    model = quick(features=features, threshold=7.0).fit(x[:400], y[:400])
    assert model.score(x[400:], y[400:]) > 0.7
    # A binary feature is only ever above the threshold or not; a scaled one is neither.
    other = np.where(x > 7, 16.0, 0.0)
    same = np.array_equal(model.decision_function(x), model.decision_function(other))
    assert same == (features == "binary")


def test_scaling_forgives_units(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    units = np.array([1.0, 1024.0, 2.0**-10, 4.0])
    there = quick(epochs=3).fit(x, y).decision_function(x)
    np.testing.assert_allclose(quick(epochs=3).fit(x * units, y).decision_function(x * units), there)


def test_pickled_cloned_and_seeded(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    model = quick(epochs=3, method="ewc", strength=10.0).fit(x, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(x), model.decision_function(x))
    np.testing.assert_array_equal(clone(model).fit(x, y).memories_, model.memories_)
    assert not np.array_equal(clone(model).set_params(random_state=1).fit(x, y).memories_, model.memories_)
    # What was pickled between two tasks goes on as if it had not been.
    turned = x[:, ::-1]
    np.testing.assert_array_equal(
        again.partial_fit(turned, y).memories_, model.partial_fit(turned, y).memories_
    )


def test_fit_is_the_first_task_and_forgets_what_was(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    first = quick(epochs=3).fit(x, y)
    assert first.tasks_ == 1
    np.testing.assert_array_equal(quick(epochs=3).partial_fit(x, y).memories_, first.memories_)
    again = quick(epochs=3).fit(x[:, ::-1], y).partial_fit(x, y)
    assert again.tasks_ == 2
    np.testing.assert_array_equal(again.fit(x, y).memories_, first.memories_)


@pytest.mark.parametrize("method", LEARNED_BY)
def test_partial_fit_learns_one_more_task(some_digits: tuple[np.ndarray, np.ndarray], method: str) -> None:
    """Two tasks of permuted pixels: the second is learned, and any method but vanilla keeps some of the
    first that vanilla loses."""
    x, y = some_digits
    order = np.random.default_rng(0).permutation(x.shape[1])
    strength = {"l2": 3e-4, "ewc": 1e5, "mas": 10.0, "si": 10.0}
    strength |= {"ewc_moments": 1e4, "mas_moments": 1.0, "si_moments": 1.0, "lwf": 1.0} | dict.fromkeys(
        ("gem", "agem", "rehearsal", "pseudorehearsal"), 0.3
    )
    kept = {}
    for name in {"vanilla", method}:
        model = quick(method=name, strength=strength.get(name)).fit(x, y)
        assert model.score(x, y) > 0.9
        model.partial_fit(x[:, order], y)
        kept[name] = model.score(x, y), model.score(x[:, order], y)
    print(method, kept)
    assert kept["vanilla"][0] < 0.5
    assert kept["vanilla"][1] > 0.9
    if method != "vanilla":
        assert kept[method][0] > kept["vanilla"][0] + 0.05
        assert sum(kept[method]) > sum(kept["vanilla"])


def permuted(x: np.ndarray, tasks: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [x, *(x[:, draw.permutation(x.shape[1])] for _ in range(tasks - 1))]


def test_allocation_gives_every_task_memories_of_its_own(some_digits: tuple[np.ndarray, np.ndarray]) -> None:
    """They are not moved by a bit when others learn, items name their task, and nothing is forgotten."""
    x, y = some_digits
    tasks = permuted(x, 3)
    model = quick(vertex=5, method="allocation", features="binary", centre=False, epochs=40, memories=30)
    for count, task in enumerate(tasks, 1):
        before = getattr(model, "memories_", np.empty((0, 74)))
        model.partial_fit(task, y)
        assert model.memories_.shape == (30 * count, 74)
        np.testing.assert_array_equal(model.memories_[: len(before)], before)
        assert model.predict_proba(task).argmax(1).tolist() == model.predict(task).tolist()
    assert min(model.score(task, y) for task in tasks) > 0.9
    # Where it is said how many there will be, they share, and go round.
    shared = clone(model).set_params(method=Allocation(groups=2), memories=60)
    for task in tasks:
        shared.partial_fit(task, y)
        assert shared.memories_.shape == (60, 74)
    np.testing.assert_array_equal(shared.memories_[30:], model.memories_[30:60])
    assert shared.score(tasks[0], y) < 0.7
    assert shared.score(tasks[2], y) > 0.9
    with pytest.raises(ValueError, match="wake must be energy in a classifier"):
        clone(model).set_params(method=Allocation(wake="id")).fit(x, y)


def test_allocation_of_one_task_scores_as_any_method_does(
    some_digits: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = some_digits
    model = quick(method=Allocation(begin="noise"), epochs=3).fit(x, y)
    plain = quick(epochs=3).fit(x, y)
    np.testing.assert_array_equal(model.memories_, plain.memories_)
    np.testing.assert_allclose(model.decision_function(x), plain.decision_function(x), atol=1e-6)


def test_allocation_finds_out_by_itself_what_comes_again(
    some_digits: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = some_digits
    first, second = permuted(x, 2)
    model = quick(
        vertex=5,
        method=Allocation(boundaries="found", alarm=1.0),
        features="binary",
        centre=False,
        epochs=20,
        memories=20,
    )
    half = slice(0, None, 2), slice(1, None, 2)
    for task, part in ((first, half[0]), (second, half[0]), (first, half[1])):
        model.partial_fit(task[part], y[part])
    assert model.tasks_ == 3
    assert model._state.owner.tolist() == [[0, 1, 0]]
    assert len(model.memories_) == 3 * 20  # the last group was not needed, and is there for the next task
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(second), model.predict(second))
    assert min(model.score(task, y) for task in (first, second)) > 0.85


def test_later_tasks_bring_no_new_labels(iris: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = iris
    model = quick(epochs=2).partial_fit(x[y < 2], y[y < 2], classes=[0, 1, 2])
    assert model.partial_fit(x, y).predict_proba(x).shape == (len(x), 3)
    with pytest.raises(ValueError, match="labels that the first task did not name"):
        quick(epochs=2).fit(x[y < 2], y[y < 2]).partial_fit(x, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": "raw"}, "features must be one of scaled, binary"),
        ({"method": "none"}, "method must be one of vanilla"),
        ({"interaction": "cubic"}, "interaction must be one of leaky"),
        ({"dtype": "float16"}, "dtype must be one of float32"),
        ({"memories": 0}, "memories must be a whole number"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": "warm"}, "temperature must be above 0, auto or None, not 'warm'"),
        ({"vertex": 0}, "vertex must be a number above 0"),
        ({"strength": 1.0}, "strength must be None for the method 'vanilla'"),
        ({"method": "ewc"}, "strength must be given for the method 'ewc'.*engramma tune"),
        ({"method": "mas_moments"}, "strength must be given for the method 'mas_moments'.*engramma tune"),
        ({"method": "lwf"}, "strength must be given for the method 'lwf'.*engramma tune"),
        ({"method": EWC(), "strength": 1.0}, "strength must be None where method is not a name"),
    ],
)
def test_bad_settings_are_named(
    iris: tuple[np.ndarray, np.ndarray], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(*iris)


@pytest.mark.parametrize("name", ["memories", "epochs", "batch_size"])
def test_one_is_enough(iris: tuple[np.ndarray, np.ndarray], name: str) -> None:
    """Of memories, epochs and items a step; and no item a step more or less than was asked for."""
    x, y = iris[0][:20], iris[1][:20]
    model = quick(**{"epochs": 2, name: 1}).fit(x, y)
    assert model.memories_.shape == (1 if name == "memories" else 48, 4 + 3)
    assert np.isfinite(model.decision_function(x)).all()
    assert not np.array_equal(model.memories_, quick(**{"epochs": 2, name: 2}).fit(x, y).memories_)


@pytest.mark.parametrize(("vertex", "less"), [(1.2, 0.25), (2, 0.25), (2.5, 0.5625), (3, 1), (10, 1)])
def test_the_default_temperature(iris: tuple[np.ndarray, np.ndarray], vertex: float, less: float) -> None:
    """N^(-(n+1)/2n), N^(-2/3) at vertex 3, and up to four times as hot below it; one given stands."""
    x, y = iris[0][:30], iris[1][:30]
    model = quick(vertex=vertex, epochs=3).fit(x, y)
    neurons = 4 + 3
    there = neurons ** (-(vertex + 1) / (2 * vertex)) / less
    same = quick(vertex=vertex, epochs=3, temperature=there).fit(x, y)
    np.testing.assert_array_equal(model.memories_, same.memories_)
    np.testing.assert_array_equal(model.decision_function(x), same.decision_function(x))
    other = quick(vertex=vertex, epochs=3, temperature=1.2 * there).fit(x, y)
    assert not np.array_equal(model.decision_function(x), other.decision_function(x))
    if vertex == 3:
        assert there == pytest.approx(neurons ** (-2 / 3))


@pytest.mark.parametrize("vertex", [2.0, 5.0, 20.0])
def test_an_automatic_temperature_is_that_of_a_run(
    some_digits: tuple[np.ndarray, np.ndarray], vertex: float
) -> None:
    """Of the same vertex, size, rates and epochs."""
    x, y = some_digits
    own = {"features": "binary", "centre": False, "epochs": 3, "vertex": vertex}
    model = quick(**own, temperature="auto").fit(x, y)
    np.testing.assert_array_equal(quick(**own).fit(x, y).memories_, model.memories_)  # such items' own
    same = {"vertex": vertex, "memories": 48, "epochs": 3, "learning_rate": 0.05, "decay": 0.02 ** (1 / 3)}
    auto = dict.fromkeys(("initial_temperature", "final_temperature"), "auto")
    run = build([read({**same, **auto, "data": "digits", "items": 50, "task_id": False})])
    there = run.optimiser.initial_temperature
    assert isinstance(there, float)
    told = quick(**own, temperature=there).fit(x, y)
    np.testing.assert_allclose(model.decision_function(x), told.decision_function(x))
    np.testing.assert_array_equal(model.memories_, told.memories_)
    scaled = quick(vertex=vertex, epochs=3).fit(x, y)
    assert not np.array_equal(
        quick(vertex=vertex, epochs=3, temperature="auto").fit(x, y).memories_, scaled.memories_
    )
    # Of allocation, with the memories that learn at once; and later tasks are not heated.
    shared = quick(**own, memories=96, method=Allocation(groups=2, begin="noise")).fit(x, y)
    assert shared._temperature() == there
    warm = quick(**own).fit(x, y).partial_fit(x, y)
    np.testing.assert_array_equal(
        warm.memories_, quick(**own, reheat=1.0).fit(x, y).partial_fit(x, y).memories_
    )


def mnist_score(data: Dataset, seed: int) -> float:
    chosen = np.random.default_rng(seed).permutation(len(data))[:10_000]
    test, train = chosen[:2_000], chosen[2_000:]
    model = DenseMemoryClassifier(random_state=seed).fit(data.x[train], data.y[train])
    return float(model.score(data.x[test], data.y[test]))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_mnist_with_default_settings(mnist_there: Dataset) -> None:
    """8,000 items to learn from and 2,000 to test on."""
    scores = [mnist_score(mnist_there, seed) for seed in (0, 1, 2)]
    print(scores)
    assert min(scores) > 0.93
