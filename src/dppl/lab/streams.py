"""Streams of evaluation data: which rows of a labelled set are in which task, and which classes each task may hold.

All randomness is public. A stream of real records is cut by the calendar or by source, and never by what the records
hold; see docs/continual.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl.errors import InputError, ParameterError

__all__ = ["Task", "blurry", "class_incremental", "data_sets", "shuffled"]


class Task(NamedTuple):
    """One task of a stream.

    Attributes
    ----------
    rows : ndarray of shape (n,), int64
        Its rows, in increasing order.
    classes : ndarray of shape (n_classes,)
        Classes that it may hold, which is public.
    """

    rows: NDArray[np.int64]
    classes: NDArray[Any]


def class_incremental(y: ArrayLike, classes: ArrayLike, n_tasks: int, seed: int) -> list[Task]:
    """Give each task classes of its own, in a random order.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
        Labels, in the type of `classes`.
    classes : array-like of shape (n_classes,)
        Public list of classes; tasks have nearly equal numbers of them.
    n_tasks : int
    seed : int
        Of the order.

    Returns
    -------
    list of Task

    Examples
    --------
    >>> [task.rows.tolist() for task in class_incremental(["a", "b", "a", "c"], ["a", "b", "c"], 2, seed=0)]
    [[0, 2, 3], [1]]
    """
    labels, names = _checked(y, classes, n_tasks)
    if n_tasks > len(names):
        raise ParameterError(f"n_tasks must be at most the number of classes, {len(names)}; got {n_tasks}.")
    parts = np.array_split(np.random.default_rng(seed).permutation(names), n_tasks)
    return [Task(np.flatnonzero(np.isin(labels, part)), np.sort(part)) for part in parts]


def shuffled(y: ArrayLike, classes: ArrayLike, n_tasks: int, seed: int) -> list[Task]:
    """Spread all classes over all tasks: each row goes to a task at random.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
    classes : array-like of shape (n_classes,)
    n_tasks : int
    seed : int

    Returns
    -------
    list of Task
        Each may hold every class.
    """
    labels, names = _checked(y, classes, n_tasks)
    place = np.random.default_rng(seed).integers(n_tasks, size=len(labels))
    return [Task(np.flatnonzero(place == number), np.sort(names)) for number in range(n_tasks)]


def blurry(y: ArrayLike, classes: ArrayLike, n_tasks: int, seed: int, *, elsewhere: float = 0.1) -> list[Task]:
    """Give each task classes of its own, and let a share of the rows of each class go to any task.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
    classes : array-like of shape (n_classes,)
    n_tasks : int
    seed : int
    elsewhere : float, default=0.1
        Probability of each row to go to a task at random, from 0 to 1; it is public.

    Returns
    -------
    list of Task
        Each may hold every class.
    """
    if not 0 <= elsewhere <= 1:
        raise ParameterError(f"elsewhere must be from 0 to 1; got {elsewhere!r}.")
    labels, names = _checked(y, classes, n_tasks)
    place = np.empty(len(labels), np.intp)
    for number, task in enumerate(class_incremental(labels, names, n_tasks, seed)):
        place[task.rows] = number
    # Another stream of numbers than that of the order of classes.
    rng = np.random.default_rng([seed, 1])
    moved, anywhere = rng.random(len(labels)) < elsewhere, rng.integers(n_tasks, size=len(labels))
    place = np.where(moved, anywhere, place)
    return [Task(np.flatnonzero(place == number), np.sort(names)) for number in range(n_tasks)]


def data_sets(lengths: Sequence[int], classes: Sequence[ArrayLike]) -> list[Task]:
    """Make each data set a task, of data sets whose rows stand one after another.

    Parameters
    ----------
    lengths : sequence of int
        Number of rows of each.
    classes : sequence of array-like
        Public list of classes of each; they may share some.

    Returns
    -------
    list of Task

    Examples
    --------
    >>> [task.rows.tolist() for task in data_sets([2, 1], [["a", "b"], ["c"]])]
    [[0, 1], [2]]
    """
    if len(lengths) != len(classes):
        raise InputError(f"there must be a class list for each data set; got {len(classes)} for {len(lengths)}.")
    ends = np.cumsum(lengths, dtype=np.int64)
    return [
        Task(np.arange(end - length, end), np.sort(np.asarray(names)))
        for end, length, names in zip(ends, lengths, classes, strict=True)
    ]


def _checked(y: ArrayLike, classes: ArrayLike, n_tasks: int) -> tuple[NDArray[Any], NDArray[Any]]:
    _validate.positive_integer(n_tasks=n_tasks)
    labels, names = np.asarray(y), np.asarray(classes)
    if labels.ndim != 1 or names.ndim != 1 or len(np.unique(names)) != len(names):
        raise InputError("y and classes must be one-dimensional, and the classes different.")
    if not np.isin(labels, names).all():
        raise InputError("every label of a stream must be one of its classes.")
    return labels, names
