"""Data sets on which one record shows as much as it ever can, and the statistics that see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from dppl._utils import validate
from dppl._utils.types import Array, Float
from dppl.audit.bounds import CAUTION, clopper_pearson, proved_by
from dppl.errors import ParameterError, WeakBudgetWarning
from dppl.kernel.privacy import ZCDP, ApproxDP, Budget, RenyiDP
from dppl.kernel.queries import CoinPressMeans
from dppl.methods import EmbeddingClassifier, PublicData
from dppl.testing import Asked, recorded

CanaryStatistic: TypeAlias = Callable[[Any], float]

# In 16 dimensions a coordinate vector is the longest lattice row: 127 steps, and s =
# 127·√16/4.
_DIM = 16
# In 4 dimensions one of 63 steps nearly is (s = 63.5), and a Gram matrix has few
# entries to draw noise for.
_FEW_DIM = 4
_CONTRADICTIONS = 2
# So many of each side hold prototypes in place that are released first.
_SETTLED = 60
# CoinPress clips around its last estimate; it takes this many zero rows to make its
# last ball small.
_COINPRESS_ROWS = 300
_MOST_OTHERS = 400
# At this budget noise is far below what one record adds.
_HARDLY_ANY_NOISE = ZCDP(1e13)


@dataclass(frozen=True, slots=True)
class AuditData:
    """The records and public data that both neighbours share.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
    y : array-like of shape (n,)
    public : PublicData, default=None
        What every fit gets.
    groups : array-like of shape (n,), default=None
        IDs of persons. With them fits protect persons, and the canary is one more
        person.
    """

    X: ArrayLike
    y: ArrayLike
    public: PublicData | None = None
    groups: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Canary:
    """The record in which neighbours differ, and the statistic to look at.

    Parameters
    ----------
    row : array-like of shape (n_features,)
    label : object
    statistic : callable
        Maps a fitted model to a number that separates neighbours; it should read
        released attributes only. A `Likelihood` or `Selected` sees the noisy answers of
        the fit instead.
    other : array-like of shape (n_features,), default=None
        The record of the same label that replaces it in the other data set
        (replace-one). None leaves the place empty (add-remove).
    records : AuditData, default=None
        All records of the canary, which is then a person. None is the one record.
    """

    row: ArrayLike
    label: Any
    statistic: CanaryStatistic | Likelihood | Selected
    other: ArrayLike | None = None
    records: AuditData | None = None


@dataclass(frozen=True, slots=True)
class Selected:
    """Whether all public rows that were selected for the first class are targets, which stand from a position on."""

    first: int

    def __call__(self, asked: Sequence[Asked]) -> float:
        """Return 1 or 0."""
        (selection,) = asked
        return float((selection.answer[0] >= self.first).all())


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The log-likelihood ratio of all noisy answers of a fit: the most powerful statistic (Neyman, Pearson).

    Of rounded noise it is the ratio of what was rounded, nearly.
    """

    without: tuple[Array, ...]  # answers without the canary and with hardly any noise
    # What the canary adds to them. Later answers of a fit depend on earlier ones, so
    # for these it is a guess.
    differences: tuple[Array, ...]

    def __call__(self, asked: Sequence[Asked]) -> float:
        """Return the ratio's logarithm, up to a constant."""
        noisy = [one for one in asked if one.noise_std is not None]
        # Noise off the diagonal of symmetric matrices is narrower, but its entries
        # occur twice.
        return sum(
            float(np.vdot(added / one.noise_std, (one.answer - before) / one.noise_std))
            for one, before, added in zip(
                noisy, self.without, self.differences, strict=False
            )
        )


def worst_case(
    estimator: EmbeddingClassifier,
    *,
    runs: int = 1000,
    confidence: float = 0.95,
    examples: bool = False,
    person_records: int | None = None,
    spread: bool = False,
) -> tuple[AuditData, Canary]:
    """Return data on which an estimator's privacy loss shows best.

    Parameters
    ----------
    estimator : EmbeddingClassifier
        With a public list of classes, and without `lattice`, whose image of a row these
        data do not know. Gradients show all of their sensitivity if `clip` (for
        `GlobalAdapt`, `upper_bound`) is at most 0.5 and, with several steps,
        `learning_rate` so small that the canary is never fitted.
    runs : int, default=1000
        Runs of the audit with and without the canary; they and `confidence` determine
        the size of the public pool.
    confidence : float, default=0.95
    examples : bool, default=False
        Whether `SoftmaxPrototypes` starts from public examples of the classes, which
        rank the canary's class first.
    person_records : int, default=None
        Records of the canary, which is then a person: fits get IDs and promise to
        protect persons. None audits the promise to a record.
    spread : bool, default=False
        Whether this person has barely more than half of their records in the canary's
        class, and the rest in all others.

    Returns
    -------
    AuditData, Canary
        Derived from the queries that the estimator declares. For a selection, the
        canary raises the utilities of `n_prototypes` target rows by the whole
        sensitivity (under replace-one its negative lowers them). The target set has a
        small probability a before, so its log-probability grows by epsilon - ln(1 - a +
        a·e^epsilon), nearly epsilon. Otherwise the canary is the longest lattice row,
        seen through the likelihood ratio of all answers; under replace-one its negative
        or an orthogonal row takes its place. A person has that row in all of their
        records, and its negative in the records of other classes.

    Raises
    ------
    ParameterError
        If the estimator has parameters that these data cannot serve.
    """
    if (
        estimator.classes is None
        or estimator.get_params(deep=False).get("lattice") is not None
    ):
        raise ParameterError(
            "the built-in worst case needs a list of classes and no lattice; pass AuditData and a Canary of your own."
        )
    classes = np.asarray(estimator.classes)
    public = PublicData(
        np.ones((_MOST_OTHERS, _DIM)),
        *_examples(estimator, np.eye(1, _DIM)[0], classes, True),
    )
    plan = clone(estimator).set_params(public=public).plan(_DIM)
    queries = [one.measurement.query for one in plan.measurements.values()]
    if any(getattr(query, "sampling_rate", 1) < 1 for query in queries):
        raise ParameterError(
            "the built-in worst case knows no samples; leave sampling_rate at 1."
        )
    # Sums of classes are as long as their rows; matrices of few entries are drawn
    # sooner.
    if all(query.per_class or query.selects for query in queries):
        dim = _DIM
    else:
        dim = _FEW_DIM
    label, (row, opposite, orthogonal) = (
        classes[0],
        np.array([[1, 0], [-1, 0], [0, 1]]) @ np.eye(2, dim),
    )
    replaces = estimator.adjacency == "replace-one"
    # Records that contradict the canary: models that descend on gradients never fit it,
    # so its gradient stays long.
    data = AuditData(
        np.tile(row, (_CONTRADICTIONS, 1)), np.repeat(classes[-1:], _CONTRADICTIONS)
    )
    if any(query.selects for query in queries):
        size = estimator.n_prototypes
        n_others = _best_pool(
            estimator.budget, size, replaces=replaces, runs=runs, confidence=confidence
        )
        # Similarities of plus and minus one reach both ends of any clip. Targets come
        # last: ties must not favour them.
        pool = np.concatenate(
            [np.tile(opposite, (n_others, 1)), np.tile(row, (size, 1))]
        )
        kept = np.asarray(data.y) != label
        data = AuditData(
            np.asarray(data.X)[kept], np.asarray(data.y)[kept], PublicData(pool)
        )
        canary = Canary(row, label, Selected(n_others), opposite if replaces else None)
    else:
        if any(isinstance(query, CoinPressMeans) for query in queries):
            data = AuditData(
                np.zeros((_COINPRESS_ROWS, dim)),
                np.repeat(classes[:1], _COINPRESS_ROWS),
            )
        if "first" in plan.measurements:  # prototypes that later releases depend on
            both = np.tile([row, opposite], (_SETTLED, 1))
            data = AuditData(both, np.tile([classes[-1], label], _SETTLED))
        # Of AdaMix, whose clipping norm follows from its examples.
        contradict = hasattr(estimator, "clip_quantile")
        if estimator.starts_from_examples and (examples or contradict):
            made = _examples(estimator, row, classes, contradict)
            data = replace(data, public=PublicData(None, *made))
        # A gradient changes most by the opposite row; a Gram matrix cannot tell that
        # from the row itself.
        others = [opposite, orthogonal] if replaces else [None]
        canary = _likeliest(estimator, data, row, label, others)
    if person_records is not None:
        return _person(estimator, data, canary, person_records, spread)
    if spread:
        raise ParameterError("spread goes with person_records: pass both or neither.")
    return data, canary


def _likeliest(
    estimator: EmbeddingClassifier,
    data: AuditData,
    row: Float,
    label: Any,
    others: Sequence[Float | None],
) -> Canary:
    """Return the canary, by what takes its place, whose likelihood ratio shows most."""
    # The worst record is one record, and fits that try it have no person IDs.
    single: EmbeddingClassifier = clone(estimator)
    if single.max_classes_per_person is not None:
        single.set_params(max_classes_per_person=None)
    tried = []
    for other in others:
        canary = Canary(row, label, Likelihood((), ()), other)
        tried.append(_learn(single, data, canary))
    best, _ = max(tried, key=lambda case: case[1])
    return best


def _examples(
    estimator: EmbeddingClassifier, row: Float, classes: Array, contradict: bool
) -> tuple[Array | None, Array | None]:
    """Return examples that rank the class of the canary first, or contradict each other, if the estimator takes any."""
    if not estimator.starts_from_examples:
        return None, None
    others = np.tile(row if contradict else -row, (len(classes) - 1, 1))
    return np.concatenate([row[None], others]), classes


def _person(
    estimator: EmbeddingClassifier,
    data: AuditData,
    canary: Canary,
    n_records: int,
    spread: bool,
) -> tuple[AuditData, Canary]:
    """Make the canary a person with many records, and each other record a person."""
    validate.positive_integer(person_records=n_records)
    others = [
        name for name in np.asarray(estimator.classes).tolist() if name != canary.label
    ]
    if canary.other is not None:
        raise ParameterError(
            "is for the adjacency add-remove: nobody can stand in a person's place.",
            parameter="person_records",
        )
    if spread and not (others and n_records > 2):
        raise ParameterError(
            "needs a person of at least 3 records, and two classes.", parameter="spread"
        )
    n_home = n_records // 2 + 1 if spread else n_records
    labels = [canary.label] * n_home + [
        others[place % len(others)] for place in range(n_records - n_home)
    ]
    # Opposite rows in other classes: the gradients of a softmax model then add up, and
    # do not cancel.
    signs = np.where(np.arange(n_records) < n_home, 1.0, -1.0)
    records = AuditData(np.outer(signs, np.asarray(canary.row)), labels)
    data = replace(data, groups=np.arange(len(np.asarray(data.y))))
    canary = replace(canary, records=records)
    if not isinstance(canary.statistic, Selected):
        canary, _ = _learn(estimator, data, canary)
    return data, canary


def neighbour(
    data: AuditData, canary: Canary, include: bool
) -> tuple[Array, Array, dict[str, Any]]:
    """Return rows, labels and IDs of the shared records, with the canary or what replaces it."""
    X = np.asarray(data.X)
    y = np.asarray(data.y)
    if include and canary.records is not None:
        rows = np.asarray(canary.records.X)
        labels = np.asarray(canary.records.y)
    else:
        row = canary.row if include else canary.other
        if row is None:
            if data.groups is None:
                return X, y, {}
            return X, y, {"groups": np.asarray(data.groups).tolist()}
        rows = np.asarray(row)[None]
        labels = np.asarray([canary.label])
    groups: dict[str, Any] = {}
    if data.groups is not None:  # the canary is a separate person
        groups["groups"] = [
            *np.asarray(data.groups).tolist(),
            *[-1] * len(labels),
        ]
    return (
        np.concatenate([X, rows]),
        np.concatenate([y, labels]) if len(y) else labels,
        groups,
    )


def _learn(
    estimator: EmbeddingClassifier, data: AuditData, canary: Canary
) -> tuple[Canary, float]:
    """Learn what a canary adds to each release, and how strongly it shows, from fits with hardly any noise."""
    sides = []
    for include in (True, False):
        rows, labels, groups = neighbour(data, canary, include)
        quiet = clone(estimator).set_params(
            budget=_HARDLY_ANY_NOISE, public=data.public, random_state=0
        )
        with recorded() as asked, catch_warnings():
            simplefilter("ignore", WeakBudgetWarning)  # of a budget that nobody chose
            quiet.fit(rows, labels, **groups)
        sides.append([one for one in asked if one.noise_std is not None])
    # With hardly any noise the first steps fit the canary, and with more none does. So
    # the first answer to a question shows best what the canary adds to all of them.
    first: dict[str, Array] = {}
    for with_it, without in zip(*sides, strict=True):
        first.setdefault(with_it.name, with_it.answer - without.answer)
    differences = tuple(first[one.name] for one in sides[1])
    strength = sum(
        float(np.square(first[one.name] / one.noise_std).sum()) for one in sides[1]
    )
    statistic = Likelihood(tuple(one.answer for one in sides[1]), differences)
    return replace(canary, statistic=statistic), strength


def _best_pool(
    budget: Budget, size: int, *, replaces: bool, runs: int, confidence: float
) -> int:
    """Return the number of other rows for which the expected bound is largest."""
    half = max(1, runs // 2)
    error = CAUTION * (1 - confidence) / 2
    epsilon = budget.selection_epsilon()
    pools = range(1, _MOST_OTHERS)
    p, q = np.array(
        [_target_probabilities(epsilon, size, n_others, replaces) for n_others in pools]
    ).T
    p_low, _ = clopper_pearson(half * p, half, error)
    _, q_high = clopper_pearson(half * q, half, error)
    parameter: Literal["rho", "epsilon"] = (
        "rho" if isinstance(budget, ZCDP | RenyiDP) else "epsilon"
    )
    expected = proved_by(
        p_low, q_high, parameter, budget.delta if isinstance(budget, ApproxDP) else 0.0
    )
    return pools[int(np.argmax(expected))]


def _target_probabilities(
    epsilon: float, size: int, n_others: int, replaces: bool
) -> tuple[float, float]:
    """Return the probability that the targets are selected, with and without the canary."""
    n_sets = math.comb(n_others + size, size)
    if not replaces:
        lifted = math.exp(epsilon)
        return lifted / (n_sets - 1 + lifted), 1 / n_sets
    # Each selection is half as sharp. The replacement lifts the sets without any
    # target.
    lifted = math.exp(epsilon / 2)
    untouched = n_sets - math.comb(n_others, size)
    return lifted / (n_sets - 1 + lifted), 1 / (
        untouched + (n_sets - untouched) * lifted
    )
