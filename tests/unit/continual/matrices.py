"""The whole matrix of a stream's noise, from its rows, and the variances that follow from it."""

import numpy as np


def matrix(factor):
    """Return the matrix, shape (n_tasks, n_tasks)."""
    whole = np.zeros((len(factor.rows),) * 2, np.int64)
    bins = []
    for task, row in enumerate(factor.rows):
        for weight, members in zip(row.weights.tolist(), bins, strict=True):
            whole[task, members] = weight
        whole[task, task] = row.own
        later = [[] for _ in range(row.homes[-1] + 1)]
        for members, home in zip([*bins, [task]], row.homes.tolist(), strict=True):
            later[home] += members
        bins = later
    return whole


def variances(factor):
    """Return the variance of each sum of all tasks so far, shape (n_tasks,), in units of that of a single task."""
    rows = matrix(factor).astype(np.float64)
    decoder = np.linalg.solve(rows.T, np.tri(len(rows)).T).T
    return np.square(decoder).sum(axis=1) * factor.squared_norm
