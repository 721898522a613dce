"""Searches by ask and tell: k strengths asked at once, k x seeds replicas trained as one run, k values told.

Every run of a trial is a record in the store, and the trials are in an Optuna storage, so that a search
which was killed goes on: trials left running are taken up again with the strengths they had, and what
was trained is found. What is asked follows from the search and the trials of earlier batches, and what is
trained together from the trials that there are: of one process, a search that was killed is the same search.
Several processes may work on one search, over one store: they ask in turn, and a trial is the one's that
claimed it. An even search asks nobody: its strengths are known beforehand, and are trained together.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engramma.experiment import Experiment
from engramma.runs import study
from engramma.runs.options import Options, device_for
from engramma.runs.study import Outcome, Work, total_work
from engramma.search.pruning import forget, train_pruned
from engramma.search.smooth import LEVEL, Response, smooth
from engramma.search.spaces import START, Search, rounded
from engramma.search.storage import opened, patiently
from engramma.store.claims import Claims
from engramma.store.records import Record, Store
from engramma.store.scores import value

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Found:
    """A search that has all its trials, and what was chosen."""

    search: Search
    params: list[dict[str, Any]]  # of each complete trial, in the order asked: numbers, or "auto"
    values: np.ndarray  # (trials, seeds): 0 where a run diverged
    pruned: int
    response: Response | None = None  # of a strength
    runs: list[str] = field(default_factory=list)  # their names, trial by trial
    held: dict[str, Record] = field(default_factory=dict, repr=False)  # of these, what was read on the way

    @property
    def means(self) -> np.ndarray:
        return self.values.mean(1)

    @property
    def best(self) -> dict[str, Any]:
        """What was chosen: the top of the smoothed response; of a grid, the cell with the highest mean."""
        if self.response is not None:
            return {"strength": self.response.chosen}
        return self.params[int(self.means.argmax())]

    @property
    def top(self) -> tuple[float, float]:
        """The response at what was chosen and its standard error (of a grid: over seeds, 0 for one)."""
        if self.response is not None:
            return self.response.top, self.response.top_error
        row, count = self.values[int(self.means.argmax())], len(self.search.seeds)
        return float(row.mean()), float(row.std(ddof=1) / count**0.5) if count > 1 else 0.0

    @property
    def flat_cells(self) -> list[dict[str, Any]]:
        """Of a grid: the cells as good as the best, within its standard error or LEVEL."""
        mean, error = self.top
        alike = self.means >= mean - max(error, LEVEL)
        return [params for params, near in zip(self.params, alike, strict=True) if near]


def tune(
    searches: Sequence[Search],
    store: Store,
    options: Options = Options(),
    storage: str | None = None,
    watch: Work | None = None,
    run: Callable[..., Outcome] = study.run,  # or a cluster's
) -> list[Found]:
    """Run searches, one after another, each to its number of complete trials."""
    if run is study.run:
        device_for(options.device)  # one that is not here is said before anything is asked
    elif any(search.prune for search in searches):
        raise ValueError("prune must be left out with a cluster: it looks at packs while they train here")
    study.tidy(store.open())  # here too: where every record is there already, no run does
    watch = watch or Work()
    even = [search for search in searches if search.even]
    if even and len(even) < len(searches):
        raise ValueError("searches must be all even, or none of them")
    if even:
        return _evenly(even, store, options, watch, run)
    with Claims(store.claims) as claims, contextlib.ExitStack() as stack:
        with claims.held("tune"):  # two would make the same tables
            place = stack.enter_context(opened(storage, store))
            begun = [patiently(lambda s=search: _study(s, place)) for search in searches]
        told = patiently(lambda: [len(_in(b, "COMPLETE")) for b in begun])
        left = [max(0, search.trials - done) for search, done in zip(searches, told, strict=True)]
        watch.total = sum(_work(s) * n for s, n in zip(searches, left, strict=True))
        return [
            _finish(search, trialled, store, claims, options, run, watch)
            for search, trialled in zip(searches, begun, strict=True)
        ]


def _evenly(
    searches: Sequence[Search], store: Store, options: Options, watch: Work, run: Callable[..., Outcome]
) -> list[Found]:
    """Train all strengths of all searches, in their order: a record is all that is kept of a trial."""
    wanted = [[s.experiments(dict(point)) for point in s.points] for s in searches]
    held = _train(run, [e for each in wanted for runs in each for e in runs], store, options, watch)
    found = []
    for search, each in zip(searches, wanted, strict=True):
        names = [e.name for runs in each for e in runs]
        values = np.array([[value(held[e.name], search.measure) for e in runs] for runs in each])
        params = [dict(point) for point in search.points]
        found.append(_made(search, params, np.nan_to_num(values), 0, names, held))
    return found


def _finish(
    search: Search,
    trialled: optuna.Study,
    store: Store,
    claims: Claims,
    options: Options,
    run: Callable[..., Outcome],
    watch: Work,
) -> Found:
    """Ask, train, tell, until the search has its trials."""
    held: dict[str, Record] = {}
    while (turn := patiently(lambda: _next(search, trialled, claims))) is not None:
        if not turn.trials:  # others have the last trials in hand, or will leave them
            time.sleep(0.2)
            continue
        runs = {trial.number: search.experiments(trial.params) for trial in turn.trials}
        wanted = [e for each in runs.values() for e in each]
        # A search in which most is pruned would never end.
        train = (
            train_pruned if search.prune and turn.pruned < search.trials else functools.partial(_train, run)
        )
        records = train(wanted, store, options, _part(watch, search))
        for trial in turn.trials:
            found = [records.get(e.name) for e in runs[trial.number]]
            patiently(lambda t=trial, f=found: _tell(trialled, search, t, f))
        claims.release(_claim(search, trial.number) for trial in turn.trials)
        held |= records
        if search.prune:
            _tidy(search, trialled, store)
    if search.prune:
        _tidy(search, trialled, store)
    return patiently(lambda: _found(search, trialled, held))


def _tidy(search: Search, trialled: optuna.Study, store: Store) -> None:
    """Remove what said that trials are to be pruned, now that they have been told so."""
    told = patiently(lambda: _in(trialled, "PRUNED"))
    forget({e.name for trial in told for e in search.experiments(trial.params)}, store)


class Turn(NamedTuple):
    """What a process trains next, together."""

    trials: list[FrozenTrial]
    pruned: int  # trials that were pruned before these


def _next(search: Search, trialled: optuna.Study, claims: Claims) -> Turn | None:
    """The first round in which something is left to do: its trials that a dead process left running, and
    those that were not asked yet. None: the search is done."""
    with claims.held(_claim(search)):
        left = _in(trialled, "RUNNING")
        held = set(claims.take(_claim(search, t.number) for t in left))
        # Looked at again: one may have been told before its claim was given back.
        there = trialled.get_trials(deepcopy=False)
        if sum(t.state.name == "COMPLETE" for t in there) >= search.trials:
            claims.release(held)
            return None
        turn = Turn([], 0)
        for numbers in _rounds(search, there):
            left = [t for t in there[numbers.start : numbers.stop] if t.state.name == "RUNNING"]
            mine = [t for t in left if _claim(search, t.number) in held]
            lacking = numbers.stop - max(numbers.start, len(there))
            if mine or lacking > 0:
                before = sum(t.state.name == "PRUNED" for t in there[: numbers.start])
                turn = Turn(mine + _ask(trialled, search, there, lacking), before)
                break
        taken = [_claim(search, t.number) for t in turn.trials]
        claims.release(held - set(taken))
        claims.take(taken)
        return turn


def _rounds(search: Search, there: Sequence[FrozenTrial]) -> Iterator[range]:
    """The numbers of the trials that are trained together: a batch, or less where no more are wanted.

    They follow from the trials that there are: a search that is taken up again has those it would have had.
    """
    first = hoped = 0
    while (size := min(search.batch - first % search.batch, search.trials - hoped)) > 0:
        yield range(first, first + size)
        hoped += sum(t.state.name in ("COMPLETE", "RUNNING") for t in there[first : first + size])
        first += size


def _claim(search: Search, *number: int) -> str:
    mark = hashlib.sha256(search.name.encode()).hexdigest()[:20]
    return "-".join(["tune", mark, *map(str, number)])


def _train(
    run: Callable[..., Outcome], experiments: list[Experiment], store: Store, options: Options, watch: Work
) -> dict[str, Record]:
    """{name: record} of every run."""
    # Curves are not what a search is for: measured once a task, a third of the time is saved.
    options = replace(options, curve_every=experiments[0].epochs)
    return {r.name: r for r in run(experiments, store, options=options, watch=watch).records}


def _ask(
    trialled: optuna.Study, search: Search, there: Sequence[FrozenTrial], count: int
) -> list[FrozenTrial]:
    """New trials, each in the storage with its parameters or not at all."""
    from optuna.trial import TrialState, create_trial

    space = search.distributions()
    for params in itertools.islice(_proposed(search, there), max(0, count)):
        trialled.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=space))
    return trialled.get_trials(deepcopy=False)[len(there) :]


def _proposed(search: Search, there: Sequence[FrozenTrial]) -> Iterator[dict[str, Any]]:
    """The parameters of one trial after another: the search's first points, then what the sampler says.

    The sampler is shown the trials of earlier batches with their values, and those of the same batch as
    running, whether they still are or not; and it is seeded by the search and the trial's number.
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    space, own = search.distributions(), len(there) - len(there) % search.batch

    running = functools.partial(create_trial, state=TrialState.RUNNING)
    shown = optuna.create_study(direction="maximize")
    shown.add_trials(there[:own])
    shown.add_trials(running(params=t.params, distributions=t.distributions) for t in there[own:])
    for number in itertools.count(len(there)):
        if number < len(search.points):
            params = dict(search.points[number])
            shown.add_trial(running(params=params, distributions=space))
        else:
            seed = int.from_bytes(hashlib.sha256(f"{search.name} {number}".encode()).digest()[:4])
            shown.sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=START, multivariate=False, constant_liar=True
            )
            params = shown.ask(space).params
        yield params


def _tell(trialled: optuna.Study, search: Search, trial: FrozenTrial, records: list[Record | None]) -> None:
    """The mean over seeds; a run that diverged counts 0. A trial with a run left out was pruned.

    What was told once stays.
    """
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import Trial, TrialState

    kept = [record for record in records if record is not None]
    if len(kept) < len(records):
        trialled.tell(trial.number, state=TrialState.PRUNED, skip_if_finished=True)
        return
    each = [value(record, search.measure) for record in kept]
    with contextlib.suppress(UpdateFinishedTrialError):  # told before, and the answer was lost
        told = Trial(trialled, trial._trial_id)
        told.set_user_attr("runs", [record.name for record in kept])
        told.set_user_attr("diverged", int(np.isnan(each).sum()))
        told.set_user_attr("values", [0.0 if np.isnan(v) else v for v in each])
        trialled.tell(trial.number, float(np.nan_to_num(each).mean()), skip_if_finished=True)


def _found(search: Search, trialled: optuna.Study, held: dict[str, Record]) -> Found:
    done = _in(trialled, "COMPLETE")
    params = [rounded(t.params) for t in done]
    values = np.array([t.user_attrs["values"] for t in done], dtype=float)
    runs = [name for t in done for name in t.user_attrs["runs"]]
    return _made(search, params, values, len(_in(trialled, "PRUNED")), runs, held)


def _made(
    search: Search,
    params: list[dict[str, Any]],
    values: np.ndarray,
    pruned: int,
    runs: list[str],
    held: dict[str, Record],
) -> Found:
    response = None
    if search.kind != "grid":
        strengths = np.array([p["strength"] for p in params])
        response = smooth(strengths, values, log=search.kind == "lambda")
    return Found(search, params, values, pruned, response, runs, held)


def _in(trialled: optuna.Study, state: str) -> list[FrozenTrial]:
    from optuna.trial import TrialState

    return trialled.get_trials(deepcopy=False, states=(TrialState[state],))


def _study(search: Search, place: BaseStorage) -> optuna.Study:
    import optuna

    # It keeps trials and samples none (see `_proposed`).
    sampler = optuna.samplers.RandomSampler(0)
    made = optuna.create_study(
        study_name=search.name, storage=place, sampler=sampler, direction="maximize", load_if_exists=True
    )
    told = search.base.describe()
    keys = ("method", "vertex", "data", "stream", "tasks", "items", "memories", "epochs")
    said = {**{k: told[k] for k in keys}, "seeds": list(search.seeds), "objective": search.measure}
    for key, what in said.items():
        if key not in made.user_attrs:
            made.set_user_attr(key, what)
    return made


def _work(search: Search) -> float:
    """Of one trial, about."""
    points = search.points[:: max(1, len(search.points) // 11)]
    each = [total_work(search.experiments(dict(point))[0]) for point in points]
    return len(search.seeds) * sum(each) / len(each)


def _part(watch: Work, search: Search) -> Work:
    """The work of a batch, as a part of that of all searches."""
    before, where = watch.done, f"{search.base.method}, n = {search.base.vertex:g}"

    def change(part: Work) -> None:
        watch.own, watch.doing = before + part.done, part.doing or where
        watch.on_change(watch)

    return Work(on_change=change)
