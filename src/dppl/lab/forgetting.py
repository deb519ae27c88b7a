"""How well a model knows earlier tasks, of a stream in which no task is named when it is tested.

All is computed from a(t, i), the accuracy on the test rows of task i after task t: entry (t, i) of a square matrix of
which nothing above the diagonal is read. Any accuracy will do, for instance the balanced one of
`dppl.metrics`. These are plain numbers without protection: on private records no guarantee covers them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl.errors import InputError

__all__ = ["average_accuracy", "forgetting"]

Float = NDArray[np.float64]


def average_accuracy(accuracies: ArrayLike) -> Float:
    """Return the mean of a(t, i) over the tasks i up to t, after each task t.

    Parameters
    ----------
    accuracies : array-like of shape (n_tasks, n_tasks)

    Returns
    -------
    ndarray of shape (n_tasks,)

    Examples
    --------
    >>> average_accuracy([[0.9, 0.0], [0.5, 0.7]]).tolist()
    [0.9, 0.6]
    """
    a = _checked(accuracies)
    return np.array([a[t, : t + 1].mean() for t in range(len(a))])


def forgetting(accuracies: ArrayLike) -> Float:
    """Return how much lower accuracies on earlier tasks are than they once were, after each task.

    For an earlier task i that is the largest a(s, i) after the tasks s from i to t - 1, minus a(t, i); it is averaged
    over all i before t. The maximum leaves the current task out, so forgetting is negative where a task's accuracy
    rises above all it was before.

    Parameters
    ----------
    accuracies : array-like of shape (n_tasks, n_tasks)

    Returns
    -------
    ndarray of shape (n_tasks,)
        Zero after the first task, before which there is nothing to forget.

    Examples
    --------
    >>> forgetting([[0.9, 0.0], [0.5, 0.7]]).tolist()
    [0.0, 0.4]
    """
    a = _checked(accuracies)
    lost = [[a[i:t, i].max() - a[t, i] for i in range(t)] for t in range(len(a))]
    return np.array([np.mean(of_task) if of_task else 0.0 for of_task in lost])


def _checked(accuracies: ArrayLike) -> Float:
    a = np.asarray(accuracies, np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not len(a):
        raise InputError(f"accuracies must be a square matrix, one row after each task; got shape {a.shape}.")
    if not np.isfinite(a[np.tril_indices(len(a))]).all():
        raise InputError("accuracies must be finite on and below the diagonal.")
    return a
