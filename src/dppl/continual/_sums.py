"""What a stream has released so far: noisy class sums, added up over tasks."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dppl.continual import _presence
from dppl.errors import ParameterError
from dppl.estimators.model_file import Misfit, check_tensor
from dppl.kernel.reading import Codes

Float = NDArray[np.float64]

_SUMS = ("total", "present")
_OF_CLASSES = ("weight", "squared_weight", "evidence")


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedSums:
    """Noisy sums of unit rows, added up over tasks; all of it may be published."""

    n_sums: NDArray[np.int64]  # shape (n_classes,); number of tasks that could hold each class: public
    total: Float  # shape (n_classes, dim); sums of all tasks, with equal weights
    # Shape (n_classes, dim). Sums of all tasks, weighted by how likely their class is in the task. Zero with correlated
    # noise.
    present: Float
    # weight, squared_weight: Shape (n_classes,). Those weights, and their squares, added up over tasks. Zero with
    # correlated noise.
    weight: Float
    squared_weight: Float
    # Shape (n_classes,). Logarithm of the likelihood of all sums, if the class is in some tasks and not in others. Zero
    # with correlated noise.
    evidence: Float

    @classmethod
    def none(cls, n_classes: int, dim: int) -> Self:
        """Return those of no task."""
        return cls(np.zeros(n_classes, np.int64), *np.zeros((2, n_classes, dim)), *np.zeros((3, n_classes)))

    @classmethod
    def of_tensors(cls, tensors: dict[str, NDArray[Any]], n_classes: int, dim: int, *, n_tasks: int) -> Self:
        """Read what `to_tensors` wrote; raise `Misfit` if it does not fit."""
        n_sums = check_tensor(tensors, "n_sums", (n_classes,), np.int64)
        if n_sums.min() < 0 or n_sums.max() > n_tasks:
            raise Misfit("its numbers of tasks contradict each other")
        sums = (check_tensor(tensors, name, (n_classes, dim), np.float64) for name in _SUMS)
        return cls(n_sums, *sums, *(check_tensor(tensors, name, (n_classes,), np.float64) for name in _OF_CLASSES))

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {name: getattr(self, name) for name in ("n_sums", *_SUMS, *_OF_CLASSES)}

    def added(self, classes: Codes, sums: Float, variance: float) -> Self:
        """Return these with those of one more task.

        `classes` are the positions of those that have a row in `sums`; `variance` is of the noise of each coordinate.
        """
        weights, evidence = _presence.presence(sums, np.full(len(sums), variance))
        later = deepcopy(self)
        later.n_sums[classes] += 1
        later.total[classes] += sums
        later.present[classes] += weights[:, None] * sums
        later.weight[classes] += weights
        later.squared_weight[classes] += weights**2
        later.evidence[classes] += evidence
        return later

    def totalled(self, classes: Codes, sums: Float) -> Self:
        """Return these with those of one more task, of which nothing but the total is kept.

        `classes` are the positions of those that the task may hold; `sums` has a row for every class.
        """
        n_sums = self.n_sums.copy()
        n_sums[classes] += 1
        return replace(self, n_sums=n_sums, total=self.total + sums)

    def weighted(self, variance: float) -> tuple[Float, Float, Float]:
        """Return one sum for each class, between `total` and `present`, by how likely it is spread over its tasks.

        Returns these, the variances of the noise of their coordinates, if weights depended on nothing else, and the
        evidence of each class: the log-likelihood ratio of records in any task against none in all. That is not from
        the weighted sum, whose weights follow the noise: it is longer than noise by itself.

        Weights are such that a class in a single task has the sum of that task, and one that is spread over all the
        sum of all.
        """
        tasks = np.maximum(self.n_sums, 1).astype(np.float64)
        evidence = _presence.evidence(self.total, variance * tasks)
        share = np.ones(len(tasks))
        # There is nothing to weigh in a single sum.
        several = np.flatnonzero(self.n_sums > 1)
        if len(several):
            for_spread, for_presence = evidence[several], self.evidence[several]
            share[several] = _presence.posterior(for_spread, for_presence)
            evidence[several] = np.logaddexp(for_spread, for_presence) - math.log(2)  # either, at even odds
        rest = 1 - share
        weight = share * tasks + rest * self.weight
        squares = share**2 * tasks + 2 * share * rest * self.weight + rest**2 * self.squared_weight
        sums = (share[:, None] * self.total + rest[:, None] * self.present) * (weight / squares)[:, None]
        return sums, variance * weight**2 / squares, evidence


@dataclass(frozen=True, slots=True, eq=False)
class KeptSums:
    """Noisy sums of each task by itself, so that a task can be left out later; all of it may be published."""

    tasks: NDArray[np.int64]  # shape (n_kept,); numbers of the tasks, from 1, increasing
    allowed: NDArray[np.bool_]  # shape (n_kept, n_classes); classes that each task could hold: public
    sums: Float  # shape (n_kept, n_classes, dim); zero for other classes
    variances: Float  # shape (n_kept,); of the noise of each coordinate

    @classmethod
    def none(cls, n_classes: int, dim: int) -> Self:
        """Return those of no task."""
        sums = np.zeros((0, n_classes, dim))
        return cls(np.zeros(0, np.int64), np.zeros((0, n_classes), np.bool_), sums, np.zeros(0))

    @classmethod
    def of_tensors(cls, tensors: dict[str, NDArray[Any]], n_classes: int, dim: int, *, n_tasks: int) -> Self:
        """Read what `to_tensors` wrote; raise `Misfit` if it does not fit."""
        count = len(tensors["kept_tasks"])
        tasks = check_tensor(tensors, "kept_tasks", (count,), np.int64)
        if not set(tasks.tolist()) <= set(range(1, n_tasks + 1)) or (np.diff(tasks) <= 0).any():
            raise Misfit("its numbers of tasks contradict each other")
        allowed = check_tensor(tensors, "kept_allowed", (count, n_classes), np.bool_)
        sums = check_tensor(tensors, "kept_sums", (count, n_classes, dim), np.float64)
        return cls(tasks, allowed, sums, check_tensor(tensors, "kept_variances", (count,), np.float64))

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {f"kept_{name}": getattr(self, name) for name in ("tasks", "allowed", "sums", "variances")}

    def added(self, task: int, classes: Codes, sums: Float, variance: float) -> Self:
        """Return these with those of one more task, of these classes."""
        allowed, whole = np.zeros(self.allowed.shape[1:], np.bool_), np.zeros(self.sums.shape[1:])
        allowed[classes], whole[classes] = True, sums
        return type(self)(
            np.append(self.tasks, task),
            np.concatenate([self.allowed, allowed[None]]),
            np.concatenate([self.sums, whole[None]]),
            np.append(self.variances, variance),
        )

    def without(self, task: int) -> Self:
        """Return these without those of one task; raise `ParameterError` if it is not among them."""
        others = self.tasks != task
        if others.all():
            kept = ", ".join(map(str, self.tasks[:20].tolist())) or "none"
            raise ParameterError(
                f"must be the number of a task that is kept: {kept}{', …' * (len(self.tasks) > 20)}; got {task}.",
                parameter="task",
            )
        return type(self)(self.tasks[others], self.allowed[others], self.sums[others], self.variances[others])

    def together(self) -> ReleasedSums:
        """Return all of them added up."""
        total = ReleasedSums.none(*self.sums.shape[1:])
        for allowed, sums, variance in zip(self.allowed, self.sums, self.variances.tolist(), strict=True):
            total = total.added(np.flatnonzero(allowed), sums[allowed], variance)
        return total
