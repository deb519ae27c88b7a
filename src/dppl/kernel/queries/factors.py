"""Public integer matrices whose rows are released, so that the noise of sums of all tasks so far stays small.

With X the class sums of tasks, one a row, a stream releases C·X plus independent noise,
a row after each task. Sums of all tasks so far are A·X, A lower triangular and of ones,
and are estimated as A·C⁻¹ times what was released. C is lower triangular, so that no
row needs a later task, and holds integers, so that its rows of sums are integers, and
the largest norm of its columns, by which a record is multiplied, is known exactly. Row
t gives one weight to all tasks of a bin, a run of earlier tasks: a row needs one sum
for each bin, and bins, once joined, are never split.

``"toeplitz"`` has binom(2k, k)/4ᵏ for k = t - i, the square root of A (Fichtenberger,
Henzinger, Upadhyay 2023, arXiv:2202.11205), rounded to 4096ths. Tasks so old that these
differ by a twentieth at most share a bin and their mean (the idea of Andersson, Pagh
2024, Streaming private continual counting via binning). The binary mechanism (Chan,
Shi, Song 2011), a tree of sums, has 2.5 to 8 times its variance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.privacy.sensitivity import OWN_WEIGHT

# Planning a stream takes time and memory in proportion.
MOST_TASKS = 10_000
# The share by which coefficients of a bin differ at most.
_ALIKE = 20
# Coefficients as integers of this unit, so that every machine rounds them alike.
_FINE = 2**60

Int64 = NDArray[np.int64]
# First and last task of each bin, oldest first.
Bins = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row of the matrix, and what becomes of the bins after it."""

    own: int  # weight of the task itself
    weights: Int64  # shape (n_bins,); weight of each bin of earlier tasks, oldest first
    # Shape (n_bins + 1,). Which bin of the next row each of these, and the task, is
    # part of. It does not decrease.
    homes: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A matrix for streams of at most so many tasks."""

    rows: tuple[Row, ...]
    squared_norm: int  # square of the largest norm of its columns, exactly


def prefix_variance(n_tasks: int) -> float:
    """Return the variance of a sum of so many tasks, in units of a row's noise, within 2 %."""
    ages = np.arange(1, n_tasks)
    return float(1 + np.square(np.cumprod(1 - 1 / (2 * ages))).sum()) / OWN_WEIGHT**2


@lru_cache(maxsize=8)
def factor(n_tasks: int) -> Factor:
    """Return the matrix for at most `n_tasks` tasks."""
    planned = list(_toeplitz(n_tasks))
    # What each row adds to the squared norms of the columns from a task on.
    steps = [0] * (n_tasks + 1)
    for task, (row, bins) in enumerate(planned):
        for weight, (first, last) in zip(
            [*row.weights.tolist(), row.own], [*bins, (task, task)], strict=True
        ):
            steps[first] += weight**2
            steps[last + 1] -= weight**2
    return Factor(tuple(row for row, _ in planned), max(accumulate(steps)))


def _toeplitz(n_tasks: int) -> Iterator[tuple[Row, Bins]]:
    coefficients = [_FINE]
    for k in range(1, n_tasks + 1):
        coefficients.append(coefficients[-1] * (2 * k - 1) // (2 * k))
    totals = [0, *accumulate(coefficients)]
    bins: Bins = []
    for task in range(n_tasks):
        weights = []
        for (
            first,
            last,
        ) in bins:  # the mean coefficient of the ages, in the unit of weights, to the nearest integer
            scale = (last - first + 1) * _FINE
            weights.append(
                (
                    2 * OWN_WEIGHT * (totals[task - first + 1] - totals[task - last])
                    + scale
                )
                // (2 * scale)
            )
        homes = [0]
        later = [(bins or [(task, task)])[0]]
        for first, last in [*bins, (task, task)][1:]:
            oldest = later[-1][0]
            # Seen from the next task.
            if (
                _ALIKE * coefficients[task + 1 - oldest]
                >= (_ALIKE - 1) * coefficients[task + 1 - last]
            ):
                later[-1] = oldest, last
            else:
                later.append((first, last))
            homes.append(len(later) - 1)
        yield (
            Row(OWN_WEIGHT, np.array(weights, np.int64), np.array(homes, np.intp)),
            bins,
        )
        bins = later
