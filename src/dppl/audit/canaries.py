"""Data sets on which one record shows as much as it ever can, and the statistics that see it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl.audit.bounds import CAUTION, clopper_pearson, event_epsilon, event_rho
from dppl.errors import ParameterError
from dppl.privacy import ZCDP, ApproxDP, Budget
from dppl.prototypes import MeanPrototypes, PublicPrototypes

Estimator: TypeAlias = MeanPrototypes | PublicPrototypes
Row: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Callable[[Any], float]

# In 16 dimensions a coordinate vector is the longest lattice row: 127 steps, and s = 127·√16/4.
_DIM = 16
# CoinPress clips around its last estimate; it takes this many zero rows to make its last ball small.
_COINPRESS_ROWS = 300
_MOST_OTHERS = 400


@dataclass(frozen=True, slots=True)
class Records:
    """The records and public rows that both neighbours share.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
    y : array-like of shape (n,)
    X_public : array-like of shape (m, n_features), default=None
    """

    X: ArrayLike
    y: ArrayLike
    X_public: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Canary:
    """The record in which neighbours differ, and what to look at.

    Parameters
    ----------
    row : array-like of shape (n_features,)
    label : object
    statistic : callable
        Maps a fitted model to a number that tells neighbours apart. It sees released attributes only if the audit is to
        be one of the release.
    other : array-like of shape (n_features,), default=None
        The record of the same label that stands in its place in the other data set (replace-one). None leaves the
        place empty (add-remove).
    """

    row: ArrayLike
    label: Any
    statistic: Statistic
    other: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """The class's prototype along a row: for Gaussian noise this is the most powerful statistic (Neyman, Pearson).

    Parameters
    ----------
    row : array-like of shape (n_features,)
    label : object
    """

    row: ArrayLike
    label: Any

    def __call__(self, model: MeanPrototypes) -> float:
        """Return the product of the prototype with the row's lattice row."""
        direction = model.lattice_.transform(np.asarray(self.row)[None])[0].astype(np.float64)
        return float(model.prototypes_[_position(model, self.label)] @ direction)


@dataclass(frozen=True, slots=True)
class Similarity:
    """The smallest similarity of a row with the public rows selected for its class.

    Parameters
    ----------
    row : array-like of shape (n_features,)
    label : object
    """

    row: ArrayLike
    label: Any

    def __call__(self, model: PublicPrototypes) -> float:
        """Return the similarity in lattice steps, clipped as the utilities are."""
        direction = model.lattice_.transform(np.asarray(self.row)[None])[0].astype(np.int64)
        similarity = model.prototypes_[_position(model, self.label)].astype(np.int64) @ direction
        low, high = ((bound - 1) * float(model.lattice_.squared_norm) for bound in model.clip_)
        return float(np.clip(similarity, low, high).min())


def worst_case(estimator: Estimator, *, runs: int = 1000, confidence: float = 0.95) -> tuple[Records, Canary]:
    """Return data on which an estimator's privacy loss shows best.

    Parameters
    ----------
    estimator : MeanPrototypes or PublicPrototypes
        With a public list of classes, and without `pool`, `center` and `rotation`, whose image of a row these data do
        not know.
    runs : int, default=1000
        Runs of the audit with and without the canary; they and `confidence` decide the size of the public pool.
    confidence : float, default=0.95

    Returns
    -------
    Records, Canary
        For means: the longest lattice row in a class of its own; under replace-one its negative takes its place. For
        public rows: the canary raises the utilities of `n_prototypes` target rows by the whole sensitivity and those of
        the others by nothing (replace-one: its negative does the opposite). The target set has a small probability a
        before, so that its log-probability grows by epsilon - ln(1 - a + a·e^epsilon), nearly epsilon.

    Raises
    ------
    ParameterError
        If the estimator has parameters that these data cannot serve.
    """
    classes = _checked_classes(estimator)
    label, row = classes[0], _coordinate(0)
    other = None if estimator.adjacency == "add-remove" else -row
    n_zeros = _COINPRESS_ROWS if getattr(estimator, "mechanism", None) == "coinpress" else 0
    X = np.concatenate([np.zeros((n_zeros, _DIM)), _coordinate(1)[None]])
    # One record elsewhere, so that the audit would see whether another class's record comes through.
    y = np.array([label] * n_zeros + [classes[-1]] if len(classes) > 1 else [label] * (n_zeros + 1), classes.dtype)
    if isinstance(estimator, MeanPrototypes):
        return Records(X, y), Canary(row, label, Projection(row, label), other)
    size = estimator.n_prototypes
    n_others = _best_pool(estimator.budget, size, replaces=other is not None, runs=runs, confidence=confidence)
    # Similarities of plus and minus one reach both ends of any clip. Targets come last: ties must not favour them.
    X_public = np.concatenate([np.tile(-row, (n_others, 1)), np.tile(row, (size, 1))])
    in_class = y == label
    return Records(X[~in_class], y[~in_class], X_public), Canary(row, label, Similarity(row, label), other)


def orthogonal_canaries(estimator: MeanPrototypes) -> list[Canary]:
    """Return 16 orthogonal canaries of full length for each class, for `audit_in_one_run`.

    They do not disturb each other: each shows along its own coordinate of its own class.
    """
    classes = _checked_classes(estimator)
    if not isinstance(estimator, MeanPrototypes):
        raise ParameterError("orthogonal canaries are for MeanPrototypes: public rows are selected, not added up.")
    replaces = estimator.adjacency == "replace-one"
    return [
        Canary(row, label, Projection(row, label), -row if replaces else None)
        for label in classes
        for row in np.eye(_DIM)
    ]


def _coordinate(index: int) -> Row:
    return np.asarray(np.eye(_DIM)[index])


def _position(model: Estimator, label: Any) -> int:
    return int(np.flatnonzero(model.classes_ == label)[0])


def _checked_classes(estimator: Estimator) -> NDArray[Any]:
    plain = estimator.pool == 1 and estimator.center is None and estimator.rotation is None
    if estimator.classes is None or not plain:
        raise ParameterError(
            "the built-in worst case needs a list of classes, and no pool, center or rotation; leave them out, or pass "
            "Records and a Canary of your own."
        )
    return np.asarray(estimator.classes)


def _best_pool(budget: Budget, size: int, *, replaces: bool, runs: int, confidence: float) -> int:
    """Return the number of rows beside the targets for which the expected bound is largest."""
    half, error = max(1, runs // 2), CAUTION * (1 - confidence) / 2
    epsilon, pools = budget.selection_epsilon(), range(1, _MOST_OTHERS)
    p, q = np.array([_target_probabilities(epsilon, size, n_others, replaces) for n_others in pools]).T
    p_low, _ = clopper_pearson(half * p, half, error)
    _, q_high = clopper_pearson(half * q, half, error)
    if isinstance(budget, ZCDP):
        expected = event_rho(p_low, q_high)
    else:
        expected = event_epsilon(p_low, q_high, budget.delta if isinstance(budget, ApproxDP) else 0.0)
    return pools[int(np.argmax(expected))]


def _target_probabilities(epsilon: float, size: int, n_others: int, replaces: bool) -> tuple[float, float]:
    """Return the probability that the targets are selected, with and without the canary."""
    n_sets = math.comb(n_others + size, size)
    if not replaces:
        lifted = math.exp(epsilon)
        return lifted / (n_sets - 1 + lifted), 1 / n_sets
    # Each selection is half as sharp. The replacement lifts the sets without any target.
    lifted, untouched = math.exp(epsilon / 2), n_sets - math.comb(n_others, size)
    return lifted / (n_sets - 1 + lifted), 1 / (untouched + (n_sets - untouched) * lifted)
