"""Streams cut each row into one task, and metrics are those of the definitions, computed by hand."""

import numpy as np
import pytest

from dppl.errors import InputError, ParameterError
from dppl.lab.task_streams import (
    average_accuracy,
    blurry,
    class_incremental,
    data_sets,
    drifting,
    forgetting,
    shuffled,
)

CLASSES = np.arange(7)
Y = np.random.default_rng(0).integers(7, size=3000)
MAKERS = [class_incremental, shuffled, blurry, drifting]


@pytest.mark.parametrize("make", MAKERS)
def test_each_row_is_in_one_task_which_may_hold_its_class(make):
    tasks = make(Y, CLASSES, 3, seed=4)
    assert sorted(np.concatenate([task.rows for task in tasks])) == list(range(len(Y)))
    for task in tasks:
        assert set(Y[task.rows]) <= set(task.classes)
    same = make(Y, CLASSES, 3, seed=4)
    other = make(Y, CLASSES, 3, seed=5)
    assert all(
        (one.rows == two.rows).all() for one, two in zip(tasks, same, strict=True)
    )
    assert any(
        len(one.rows) != len(two.rows) for one, two in zip(tasks, other, strict=True)
    )


def test_each_class_is_in_one_task_in_all_or_mostly_in_one():
    def sizes(tasks):
        return np.array([np.bincount(Y[task.rows], minlength=7) for task in tasks])

    apart, spread, mixed, moving = (
        sizes(make(Y, CLASSES, 3, seed=4)) for make in MAKERS
    )
    assert ((apart > 0).sum(axis=0) == 1).all()
    assert sorted(np.count_nonzero(apart, axis=1)) == [2, 2, 3]
    # Standard deviations of shares are below 0.03.
    assert (np.abs(spread / spread.sum(axis=0) - 1 / 3) < 0.15).all()
    home = mixed[apart.argmax(axis=0), CLASSES] / mixed.sum(axis=0)
    assert (np.abs(home - (0.9 + 0.1 / 3)) < 0.1).all()
    assert (home < 1).all()
    nothing = blurry(Y, CLASSES, 3, seed=4, elsewhere=0)
    assert (sizes(nothing) == apart).all()
    # A class that is half as frequent in the first task as in the middle is twice as
    # frequent in the last; other rows of the same seed drift alike.
    moved = np.log(moving[2] / moving[0])
    assert np.abs(moved).max() > 1.5
    assert (np.abs(np.log(spread[2] / spread[0])) < 0.5).all()
    assert (np.abs(np.log(moving[[0, 2]] / moving[1]).sum(axis=0)) < 0.5).all()
    half = drifting(Y[::2], CLASSES, 3, seed=4)
    first, _, last = (np.bincount(Y[::2][task.rows], minlength=7) for task in half)
    assert (np.abs(np.log(last / first) - moved) < 0.5).all()


def test_a_class_without_rows_belongs_to_a_task_and_a_task_may_be_empty():
    tasks = class_incremental(["a"], ["a", "b"], 2, seed=0)
    assert sorted(len(task.rows) for task in tasks) == [0, 1]
    assert sorted(name for task in tasks for name in task.classes) == ["a", "b"]


def test_data_sets_follow_one_another():
    tasks = data_sets([2, 0, 1], [["b", "a"], ["c"], ["a"]])
    assert [task.rows.tolist() for task in tasks] == [[0, 1], [], [2]]
    assert [task.classes.tolist() for task in tasks] == [["a", "b"], ["c"], ["a"]]
    with pytest.raises(InputError):
        data_sets([1], [])


def test_streams_that_cannot_be_are_refused():
    with pytest.raises(ParameterError, match="at most the number of classes"):
        class_incremental(Y, CLASSES, 8, seed=0)
    with pytest.raises(InputError, match="one of its classes"):
        shuffled(Y, CLASSES[1:], 2, seed=0)
    with pytest.raises(InputError, match="different"):
        shuffled(Y, [*CLASSES, 0], 2, seed=0)
    with pytest.raises(ParameterError, match="elsewhere"):
        blurry(Y, CLASSES, 2, seed=0, elsewhere=1.5)
    with pytest.raises(ParameterError, match="n_tasks"):
        shuffled(Y, CLASSES, 0, seed=0)


# Task 1 falls from 0.9 to 0.6 and rises to 0.7; task 2 falls from 0.8 to 0.5.
MATRIX = np.array([[0.9, np.nan, 5.0], [0.6, 0.8, np.nan], [0.7, 0.5, 1.0]])


def test_metrics_by_hand():
    assert average_accuracy(MATRIX) == pytest.approx([0.9, 0.7, 2.2 / 3])
    assert forgetting(MATRIX) == pytest.approx([0, 0.3, (0.2 + 0.3) / 2])
    # The current task is no part of the maximum.
    assert forgetting(np.array([[0.5, 0], [0.75, 0.5]])) == pytest.approx([0, -0.25])
