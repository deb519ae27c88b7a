"""What a stream has released so far: noisy class sums, added up over tasks, and which of them hold records.

A sum over records of a class is long; one of noise has a squared norm of about dim
times the noise variance. With x the ratio of the two, the largest likelihood of a
Gaussian signal of any variance exceeds the one of none by the factor exp(dim/2·(x - 1 -
ln x)) for x > 1, and by 1 otherwise. One is taken off its logarithm for the fitted
variance (Akaike 1974), so that the evidence of noise does not add up over many tasks.
All of it follows from released values and the public noise alone, and may be published.
"""

import math
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dppl._utils.types import Array, Float
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.reading import Codes
from dppl.methods.model_file import check_tensor

# Prior probability that a class occurs in a task. Any small one does; results were
# alike from 0.03 to 0.1.
_PRESENT = 0.1
_MOST_STEPS = 200
_CLOSE = 1e-9


def evidence_of(sums: Float, variance: Float) -> Float:
    """Return the log-likelihood ratio of a signal against none for each row of sums with noise of that variance."""
    x = np.maximum(_lengths(sums, variance), 1.0)
    return np.asarray(sums.shape[1] / 2 * (x - 1 - np.log(x)) - 1)


def presence(sums: Float, variance: Float) -> tuple[Float, Float]:
    """Return a weight for each sum of a task, and the evidence that its class is in some tasks and not in others."""
    odds = evidence_of(sums, variance) + math.log(_PRESENT / (1 - _PRESENT))
    # The posterior probability that the class is present, times what James and Stein
    # (1961) shrink such a sum by.
    weights = expit(odds) * (1 - 1 / np.maximum(_lengths(sums, variance), 1.0))
    return weights, np.logaddexp(0, odds) + math.log(1 - _PRESENT)


def posterior(for_one: Float, for_other: Float) -> Float:
    """Return the posterior probability for each class that the first of two cases holds, from their log-likelihoods.

    The share of such classes is fitted to all of them by expectation-maximisation.
    """
    share = 0.5
    for _ in range(_MOST_STEPS):
        probabilities = expit(for_one - for_other + math.log(share / (1 - share)))
        before = share
        share = float(np.clip(probabilities.mean(), _CLOSE, 1 - _CLOSE))
        if abs(share - before) < _CLOSE:
            break
    return np.asarray(probabilities)


def _lengths(sums: Float, variance: Float) -> Float:
    """Return the squared norm of each sum, in units of what noise alone has on average."""
    # Without any task there is neither sum nor noise.
    return np.asarray(
        np.square(sums).sum(axis=1) / (sums.shape[1] * np.maximum(variance, 1e-300))
    )


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedSums:
    """Noisy sums of unit rows, added up over tasks. With correlated noise all but the first two are zero."""

    n_sums: NDArray[
        np.int64
    ]  # shape (n_classes,); number of tasks that could hold each class: public
    total: Float  # shape (n_classes, dim); sums of all tasks, with equal weights
    present: Float  # the same, weighted by how likely their class is in the task
    weight: Float  # shape (n_classes,); those weights, added up over tasks
    squared_weight: Float  # and their squares
    # Logarithm of the likelihood of all sums, if the class is in some tasks and not in
    # others.
    evidence: Float

    @classmethod
    def none(cls, n_classes: int, dim: int) -> Self:
        """Return the sums of no task."""
        return cls(
            np.zeros(n_classes, np.int64),
            *np.zeros((2, n_classes, dim)),
            *np.zeros((3, n_classes)),
        )

    def to_tensors(self) -> dict[str, Array]:
        """Return everything as arrays, which a model file holds by the names of the fields."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def of_tensors(
        cls, tensors: dict[str, Array], n_classes: int, dim: int, *, n_tasks: int
    ) -> Self:
        """Read what `to_tensors` wrote; raise `Misfit` if it does not fit."""
        n_sums = check_tensor(tensors, "n_sums", (n_classes,), np.int64)
        if n_sums.min() < 0 or n_sums.max() > n_tasks:
            raise Misfit("its numbers of tasks contradict each other")
        shapes = {"total": (n_classes, dim), "present": (n_classes, dim)}
        names = [one.name for one in fields(cls)][1:]
        return cls(
            n_sums,
            *(
                check_tensor(tensors, one, shapes.get(one, (n_classes,)), np.float64)
                for one in names
            ),
        )

    def added(self, classes: Codes, sums: Float, variance: float) -> Self:
        """Add the sums of one more task, a row for each of `classes`, with noise of `variance`."""
        weights, evidence = presence(sums, np.full(len(sums), variance))
        later = deepcopy(self)
        later.n_sums[classes] += 1
        later.total[classes] += sums
        later.present[classes] += weights[:, None] * sums
        later.weight[classes] += weights
        later.squared_weight[classes] += weights**2
        later.evidence[classes] += evidence
        return later

    def weighted(self, variance: float) -> tuple[Float, Float, Float]:
        """Return one sum for each class, between `total` and `present`, by how likely it is spread over its tasks.

        With it come the variances of noise, if weights depended on nothing else, and
        the evidence of each class: the log-likelihood ratio of records in any task
        against none in all. That is not from the weighted sum, whose weights follow the
        noise: it is longer than noise by itself.
        """
        tasks = np.maximum(self.n_sums, 1).astype(np.float64)
        evidence = evidence_of(self.total, variance * tasks)
        share = np.ones(len(tasks))
        # There is nothing to weigh in a single sum.
        several = np.flatnonzero(self.n_sums > 1)
        if len(several):
            for_spread = evidence[several]
            for_presence = self.evidence[several]
            share[several] = posterior(for_spread, for_presence)
            evidence[several] = np.logaddexp(for_spread, for_presence) - math.log(
                2
            )  # either, at even odds
        rest = 1 - share
        weight = share * tasks + rest * self.weight
        squares = (
            share**2 * tasks
            + 2 * share * rest * self.weight
            + rest**2 * self.squared_weight
        )
        sums = (share[:, None] * self.total + rest[:, None] * self.present) * (
            weight / squares
        )[:, None]
        return sums, variance * weight**2 / squares, evidence
