"""The Dense Associative Memory as a scikit-learn classifier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from engramma.checks import of_strength, unknown
from engramma.interactions import INTERACTIONS
from engramma.kernels import kernel_for
from engramma.methods import METHODS, Allocation, Grouped, Method, Now, XdG
from engramma.network import DenseMemory, Items
from engramma.optimiser import Optimiser
from engramma.optimiser import temperature as suitable
from engramma.replicas import Replicas
from engramma.streams import Stream, Task
from engramma.streams.datasets import check_apart, middle
from engramma.train import train

# A classifier is not told of which task an item is, and XdG cannot do without.
LEARNED_BY = tuple(name for name in METHODS if name != "xdg")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class DenseMemoryClassifier(ClassifierMixin, BaseEstimator):
    """Learns items and labels as memories, and answers with the class neuron that scores highest.

    `fit` learns one task afresh; `partial_fit` learns one more task on top of those before it, with
    `method` against forgetting them.

    Features become neurons. `features` "scaled": each is divided by its largest deviation, "binary":
    each is +1 above `threshold` and -1 elsewhere. `centre` subtracts each one's mean: what all items
    have in common pulls every memory the same way, so without it learning is some twenty times slower
    (False gives the paper's own items). Means and deviations are those of the first task.

    Parameters
    ----------
    vertex
        The interaction vertex n.
    memories
        How many memories there are; of the method allocation, how many every task brings.
    features
        "scaled" or "binary": how a row of X becomes a state, see above.
    threshold
        Above which a binary feature is on. None: the middle of the range of the first task.
    centre
        Whether each feature's mean is subtracted, see above.
    method
        A name in `engramma.methods.METHODS`, or a method with settings of its own. A classifier never
        hears how many tasks there will be, so allocation grows with each of them; `Allocation(groups=5)`
        shares `memories` between five, and then goes round. Items name their own task.
    strength
        The method's lambda, which must be given, or the proportion of items it keeps; None for the default
        proportion.
    interaction
        "leaky", "rectified", "polynomial" or "exponential".
    temperature
        T. "auto": that of a run (`engramma.optimiser.temperature`), found for the paper's items, which are
        -1 and +1 and not centred. None: auto for such items (features "binary" and `centre` False), and for
        others one that falls with the number of neurons N, N^(-2/3) at vertex 3.
    reheat
        Tasks after the first begin at so many times the temperature and cool down to it. A trained
        network's scores are far out on tanh, where nothing more is learned; heat brings them back. None: 6,
        and 1 where the temperature is auto, by which scores stay smaller.
    learning_rate
        In the first epoch; it falls geometrically.
    final_rate
        In the last epoch.
    momentum
        The share of the last step that is kept.
    epochs
        How often each task's items are gone through.
    batch_size
        Items a step; None for a sixteenth of the task, at most 500.
    dtype
        "float32" or "float64", of training; answers are always in float64.
    device
        "cpu" or "cuda".
    kernel
        "auto", or one by name: "reference", "numba" or "triton".
    random_state
        Draws the initial memories and the order of items.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        Labels.
    memories_ : ndarray of shape (memories, features + K)
        What was learned.
    tasks_ : int
        Number of tasks learned.
    n_features_in_ : int
        Number of features.
    threshold_ : float
        Above which a binary feature is on.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from engramma.models.classifier import DenseMemoryClassifier
    >>> x, y = load_digits(return_X_y=True)
    >>> model = DenseMemoryClassifier(memories=64, random_state=0).fit(x[:1000], y[:1000])
    >>> model.score(x[1000:], y[1000:]) > 0.85
    True
    """

    def __init__(
        self,
        vertex: float = 3,
        *,
        memories: int = 256,
        features: str = "scaled",
        threshold: float | None = None,
        centre: bool = True,
        method: str | Method = "vanilla",
        strength: float | None = None,
        interaction: str = "leaky",
        temperature: float | str | None = None,
        reheat: float | None = None,
        learning_rate: float = 0.05,
        final_rate: float = 0.001,
        momentum: float = 0.6,
        epochs: int = 20,
        batch_size: int | None = None,
        dtype: str = "float32",
        device: str = "cpu",
        kernel: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.vertex = vertex
        self.memories = memories
        self.features = features
        self.threshold = threshold
        self.centre = centre
        self.method = method
        self.strength = strength
        self.interaction = interaction
        self.temperature = temperature
        self.reheat = reheat
        self.learning_rate = learning_rate
        self.final_rate = final_rate
        self.momentum = momentum
        self.epochs = epochs
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.kernel = kernel
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> DenseMemoryClassifier:
        """Forget everything and learn X (items, features) with labels y (items,)."""
        return self._learn(X, y, None, first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> DenseMemoryClassifier:
        """Learn one more task. The first call fixes the labels: `classes`, or where None those in y."""
        return self._learn(X, y, classes, first=not hasattr(self, "memories_"))

    def _learn(self, X: Any, y: Any, classes: Any, first: bool) -> DenseMemoryClassifier:
        self._check()
        X, y = validate_data(self, X, y, reset=first, dtype=np.float64)
        check_classification_targets(y)
        method = self._method()
        replicas = self._begin(X, y, classes) if first else Replicas((self._seed,))
        method, theta = self._with_room(method, replicas, first)
        if first:
            self._state = method.start(theta)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y has labels that the first task did not name in classes: {list(unknown)}")
        task = self._items(X, np.searchsorted(self.classes_, y))
        size = self.batch_size or min(500, -(-len(X) // 16))
        network = self._network()
        heat = self.reheat or (1.0 if self._auto else 6.0)
        optimiser = Optimiser(
            # The rate of epoch e is learning_rate decay^e with e from 1.
            learning_rate=self.learning_rate,
            decay=self._decay,
            momentum=self.momentum,
            initial_temperature=self._temperature() * (heat if self.tasks_ else 1.0),
            final_temperature=self._temperature(),
            epochs=self.epochs,
            normalise="velocity",  # its rates were chosen with it
        )
        stream = cast(Stream, _OneMore(self.tasks_, task))
        resume = (self.tasks_, self._state)
        for moment in train(network, stream, method, optimiser, replicas, theta, size, resume=resume):
            theta, self._state = moment.theta, moment.state
        self.memories_, self._learned_by = theta[0].cpu().numpy(), method
        self.tasks_ += 1
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(items, K): the scores of the class neurons; of two classes (items,), the second's lead.

        Of allocation, the score whose tanh its groups answer together: that of the one group there is, or of
        the one that knows the item.
        """
        o = self._scores(X)
        return o[:, 1] - o[:, 0] if o.shape[1] == 2 else o

    def predict_proba(self, X: Any) -> np.ndarray:
        """(items, K): softmax of the scores, which the paper reads as logits."""
        return torch.softmax(torch.as_tensor(self._scores(X)), 1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """(items,): the label whose neuron scores highest."""
        best = self._scores(X).argmax(1)
        return self.classes_[best]

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        network = self._network()
        theta = torch.as_tensor(self.memories_, dtype=torch.float64, device=self.device)[None]
        probe = self._probe(X, torch.float64, network)
        now = Now(network, None, 0, 0, Replicas((self._seed,)), self.tasks_)
        network = self._learned_by.recall(self._state, now, theta, learned=True)
        if isinstance(network, Grouped):
            most = 1 - torch.finfo(torch.float64).eps  # the answer of a large score is rounded to 1
            o = network.answers(theta, probe).clamp(-most, most).atanh()
        else:
            o = network.scores(theta, probe)
        return o[0].cpu().numpy()

    def _begin(self, X: np.ndarray, y: np.ndarray, classes: Any) -> Replicas:
        self.classes_ = np.unique(y if classes is None else column_or_1d(classes))
        self.tasks_ = 0
        self.threshold_ = middle(X) if self.threshold is None else float(self.threshold)
        if self.features == "binary":
            check_apart("X", X, self.threshold_)
        x = self._raw(X)
        self._mean = x.mean(0) if self.centre else np.zeros(x.shape[1])
        deviation = np.abs(x - self._mean).max(0)
        binary = self.features == "binary"
        self._scale = np.ones_like(deviation) if binary else np.where(deviation > 0, deviation, 1.0)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        replicas = Replicas((self._seed,))
        neurons = X.shape[1] + len(self.classes_)
        self.memories_ = replicas.memories(self.memories, neurons, dtype=DTYPES[self.dtype])[0].numpy()
        return replicas

    def _with_room(self, method: Method, replicas: Replicas, first: bool) -> tuple[Method, Tensor]:
        """The method, and the memories (1,M,N) there are; allocation finds those of one more group."""
        there = torch.as_tensor(self.memories_)
        if isinstance(method, Allocation):
            if method.wake == "id":
                raise ValueError("wake must be energy in a classifier, which is not told an item's task")
            opened = 0 if first else int(self._state.mean.isfinite().sum())
            groups = method.groups or opened + 1
            method = replace(method, groups=groups, grow=method.grow or method.groups is None)
            count, _ = method.memories(vars(method), self.memories, groups)
            drawn = replicas.memories(count, there.shape[1], dtype=there.dtype)[0]
            there = torch.cat([there, drawn[len(there) :]])
        return method, there[None].to(self.device)

    def _raw(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > self.threshold_, 1.0, -1.0) if self.features == "binary" else x

    def _probe(self, X: np.ndarray, dtype: torch.dtype, network: DenseMemory) -> Tensor:
        """(1,B,N): features, then class neurons at -1. Beyond what was seen, a feature stays at its end."""
        x = (self._raw(X) - self._mean) / self._scale
        if self.features == "scaled":
            x = x.clip(-1, 1)
        hidden = np.full((len(x), len(self.classes_)), -1.0)
        state = torch.as_tensor(np.concatenate([x, hidden], 1), dtype=dtype, device=self.device)
        return network.kernel.prepare(state[None], dtype)

    def _items(self, X: np.ndarray, code: np.ndarray) -> Items:
        dtype = DTYPES[self.dtype]
        target = np.full((len(X), len(self.classes_)), -1.0)
        target[np.arange(len(X)), code] = 1.0
        ids = (self.tasks_ << 32) + torch.arange(len(X), device=self.device)
        return Items(
            self._probe(X, dtype, self._network()),
            torch.as_tensor(target, dtype=dtype, device=self.device)[None],
            torch.ones(1, len(X), dtype=dtype, device=self.device),
            ids[None],
        )

    def _network(self) -> DenseMemory:
        return DenseMemory(
            neurons=self.memories_.shape[1],
            classes=len(self.classes_),
            interaction=INTERACTIONS[self.interaction](self.vertex),
            beta=1 / self._temperature(),
            kernel=kernel_for(self.device, self.kernel),
        )

    @property
    def _decay(self) -> float:
        return (self.final_rate / self.learning_rate) ** (1 / self.epochs)

    @property
    def _auto(self) -> bool:
        own = self.features == "binary" and not self.centre  # the paper's own items
        return self.temperature == "auto" or (self.temperature is None and own)

    def _temperature(self) -> float:
        # A step of a class weight moves its score by (beta/N) f'(h), and a random memory has h near
        # beta/sqrt(N): with beta = N^((n+1)/2n) that is the same for any number of features. Vertices
        # below 3 answer to such weak overlaps already, and were found to want less.
        n, neurons = self.vertex, self.memories_.shape[1]
        if self._auto:
            own = self._method()
            _, awake = own.memories(vars(own), self.memories, 1)  # that learn at once
            return suitable(n, awake, neurons, self.learning_rate, self._decay, self.epochs)
        if self.temperature is not None:
            return float(self.temperature)
        less = min(1.0, max(0.25, (n - 1) ** 2 / 4))
        return neurons ** (-(n + 1) / (2 * n)) / less

    def _method(self) -> Method:
        if isinstance(self.method, Method):
            if self.strength is not None:
                raise ValueError("strength must be None where method is not a name: set it in the method")
            return self.method
        return of_strength(self.method, self.strength)

    def _check(self) -> None:
        """Numbers and names that would otherwise fail far from where they were given."""
        names = {"features": ("scaled", "binary"), "interaction": tuple(INTERACTIONS), "dtype": tuple(DTYPES)}
        if not isinstance(self.method, Method):
            names["method"] = LEARNED_BY
        elif isinstance(self.method, XdG):
            raise ValueError("method must do without being told of which task an item is, which xdg cannot")
        for name, allowed in names.items():
            if getattr(self, name) not in allowed:
                raise unknown(name, getattr(self, name), allowed)
        whole = ("memories", "epochs") if self.batch_size is None else ("memories", "epochs", "batch_size")
        for name in whole:
            if not (getattr(self, name) >= 1 and getattr(self, name) == int(getattr(self, name))):
                raise ValueError(f"{name} must be a whole number of at least 1, not {getattr(self, name)!r}")
        if isinstance(self.temperature, str) and self.temperature != "auto":
            raise ValueError(f"temperature must be above 0, auto or None, not {self.temperature!r}")
        for name in ("learning_rate", "final_rate", "reheat", "temperature"):
            unset = {"reheat": (None,), "temperature": (None, "auto")}.get(name, ())
            if getattr(self, name) not in unset and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)!r}")


class _OneMore:
    """A stream in which task `index` is the only one still to come."""

    def __init__(self, index: int, items: Items) -> None:
        self.task = Task(index, items, items)

    def __len__(self) -> int:
        return self.task.index + 1

    def __getitem__(self, index: int) -> Task:
        if index != self.task.index:
            raise IndexError(index)
        return self.task
