"""Streams of tasks for every estimator that learns from them, and the law of neighbours for all tasks together."""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from laws.recipes import CLASSES, FIRST, KINDS, rows
from laws.replay import spent, stated_times, watched

# Correlated noise keeps a private state between tasks, and has laws of its own.
OF_TASKS = [
    kind
    for kind in KINDS
    if hasattr(kind.cls, "partial_fit")
    and kind.recipe.options.get("noise", "independent") == "independent"
]
FIRST_OF_TASKS = [kind for kind in FIRST if kind in OF_TASKS]


def stream(kind, n_tasks=3):
    """Return a few tasks, of which the second is empty."""
    tasks = [kind.records(seed=seed) for seed in range(n_tasks)]
    tasks[1] = empty(kind)
    return tasks


def empty(kind):
    return np.zeros((0, kind.dim)), np.zeros(0, "<U1")


def handed_in(kind, tasks):
    """Return what `partial_fit` gets in each task."""
    if not kind.cls.takes_earlier_records:
        return tasks
    so_far = [tasks[: number + 1] for number in range(len(tasks))]
    return [
        (np.concatenate([X for X, _ in part]), [label for _, y in part for label in y])
        for part in so_far
    ]


def learn(kind, tasks, budget=None, how=None, **options):
    """Return a model of these tasks; `how` are arguments of every `partial_fit`."""
    model = kind.make(budget, **options)
    for X, y in handed_in(kind, tasks):
        model.partial_fit(X, y, **(how or {}))
    return model


def replay(kind, tasks, where, row, label, budget=None, **options):
    """Hold a stream to the law of neighbours: a record more in one task shows by the stated cost, and no more."""
    more = list(tasks)
    X, y = tasks[where]
    more[where] = np.concatenate([X, row[None]]), [*y, label]
    options = {"unknown_labels": "ignore", **options}
    with watched() as uses:
        first = learn(kind, more, budget, **options)
    with watched([answer for _, _, answer in uses]) as again:
        second = learn(kind, tasks, budget, **options)
    assert [one[1].shape for one in uses] == [other[1].shape for other in again]
    of_one_task = kind.make(budget, **options).plan(kind.dim).guarantee
    costs = [
        _cost_of_task(task, other, of_one_task)
        for task, other in zip(
            _cut(uses, len(tasks)), _cut(again, len(tasks)), strict=True
        )
    ]
    reached = range(where, len(tasks)) if kind.cls.takes_earlier_records else [where]
    assert not any(cost for task, cost in enumerate(costs) if task not in reached)
    assert max(costs) <= Fraction(of_one_task.mu) ** 2
    assert sum(costs) <= Fraction(first.guarantee_.mu) ** 2
    assert first.guarantee_.stays_within_budget()
    assert first.guarantee_ == second.guarantee_
    assert first.to_bytes() == second.to_bytes()


def _cut(uses, n_tasks):
    """Return the uses of mechanisms in each task, as many in one as in the other."""
    each, rest = divmod(len(uses), n_tasks)
    assert each
    assert not rest
    return [uses[number * each : (number + 1) * each] for number in range(n_tasks)]


def _cost_of_task(uses, again, guarantee):
    times = stated_times([mechanism for mechanism, *_ in uses], guarantee)
    return sum(
        spent(one, other, times[one[0]]) for one, other in zip(uses, again, strict=True)
    )


@st.composite
def streams_of_tasks(draw, dim):
    """Up to 4 tasks of up to 4 records, often empty or of one class."""
    tasks = []
    for _ in range(draw(st.integers(1, 4))):
        y = draw(st.lists(st.sampled_from(CLASSES), max_size=4))
        X = [draw(rows(dim)) for _ in y]
        tasks.append((np.array(X).reshape(len(y), dim), y))
    return tasks
