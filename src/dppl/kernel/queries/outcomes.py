"""What may be asked of the outcomes of a classifier on private test records, and how far one record moves the answer.

A record has an outcome: the class of its label, the class that was predicted for it,
and perhaps how sure that was. An outcome depends on its record alone, so a test record
that leaves takes one outcome with it and moves no other. A label that names none of the
classes counts nowhere, as in fits. A record that could not be scored counts as a miss.

Every query here adds up integers in steps of 1/2¹⁶. A record of weight w adds what its
proof bounds by w in L2, and w is 2¹⁶. The records of a person that count share 2¹⁶ as
evenly as whole steps can be: what they add is then a sum of vectors that is no longer
than 2¹⁶, by the triangle inequality.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dppl.errors import MeasurementError
from dppl.kernel import persons, reading
from dppl.kernel.mechanisms.exponential import ExponentialMechanism
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import Budget
from dppl.kernel.privacy.sensitivity import STEPS
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries.base import (
    OwnAnswer,
    Query,
    first_labels,
    on_grid,
    shaped,
)
from dppl.kernel.reading import Codes

__all__ = [
    "CONFIDENCES",
    "SCORE_EDGES",
    "TEMPERATURES",
    "Guesses",
    "Outcomes",
    "SeveralOutcomes",
]
__all__ += [
    "BandOutcomes",
    "CalibrationSums",
    "ClassOutcomes",
    "Confusions",
    "FalseAlarms",
    "LabelOutcomes",
]
__all__ += [
    "Disagreements",
    "MostHits",
    "ReliabilityBins",
    "Rivals",
    "ScoreHistogram",
    "SignedHits",
    "Totals",
    "WholeSets",
]

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Probabilities are raised to 1/T by products and square roots alone. IEEE 754 rounds
# these correctly, so the bits are the same in any batch.
TEMPERATURES = (0.5, 2 / 3, 1.0, 4 / 3, 2.0)
_MOST = isqrt(
    STEPS**2 // len(TEMPERATURES)
)  # steps that a record adds at one temperature
# Ends of the ranges of confidence, round numbers that people type, closer where few
# answers are wrong.
CONFIDENCES = (
    0.0,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    0.98,
    0.99,
    1.0,
)
_NUMBERS = 2**17  # of probabilities that are looked at together, which a cache holds
# Bins of the probability of the second of two classes, by log-odds: narrow at the
# middle, where a model that noise made cautious has all of its records, and wide
# towards 0 and 1.
_LOG_ODDS = np.array([0.25, 0.5, 1, 1.5, 2.5, 4, 6])
SCORE_EDGES = 1 / (1 + np.exp(-np.concatenate([-_LOG_ODDS[::-1], [0], _LOG_ODDS])))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Guesses:
    """What a classifier says of some records, one after the other."""

    predicted: Codes  # shape (n,); position of the class, -1 where the record could not be scored
    # Shape (n, n_classes); probabilities, or, of a classifier that gives several
    # labels, margins: a label is predicted where its margin is above 0, and the larger
    # the likelier.
    table: NDArray[np.floating[Any]] | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Outcomes:
    """The outcomes of private test records, which only queries see."""

    codes: Codes  # shape (n,); class of the label, -1 where it names none
    predicted: Codes  # shape (n,); class that was predicted, -1 where the record could not be scored
    weights: Int64  # shape (n,); what a record counts, in steps; 0 where its label names no class
    among: NDArray[np.bool_] | None = (
        None  # shape (n,); whether the label is among the k likeliest classes
    )
    # Shape (n, len(TEMPERATURES)); probability of the predicted class at each
    # temperature.
    confidences: Float | None = None
    scores: Float | None = None  # shape (n,); probability of the second of two classes

    @classmethod
    def of(
        cls,
        labels: NDArray[Any],
        ids: NDArray[Any] | None,
        classes: NDArray[Any],
        guesses: Iterable[Guesses],
        *,
        top_k: int | None = None,
        confidences: bool = False,
    ) -> Self:
        """Compare labels with what a classifier says of each record, in the order of the records.

        `ids` are of persons, as `checked_ids` returns them. Whether there are
        probabilities is public.
        """
        codes = reading.class_codes(labels, classes, "ignore")
        start = 0
        columns = []
        for some in guesses:
            stop = start + len(some.predicted)
            columns.append(_compared(codes[start:stop], some, top_k, confidences))
            start = stop
        if not columns:  # without records all columns are empty
            none = Guesses(codes, np.empty((0, len(classes))))
            columns.append(_compared(codes, none, top_k, confidences))
        predicted, *rest = (
            np.concatenate(column) for column in zip(*columns, strict=True)
        )
        weights = np.full(len(codes), STEPS, np.int64)
        if ids is not None:
            weights = _shares(codes, persons.person_codes(ids), codes, predicted, *rest)
        among, sure, scores = rest or (None, None, None)
        return cls(
            codes, predicted, np.where(codes >= 0, weights, 0), among, sure, scores
        )

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the label of each record names the predicted class."""
        return np.asarray((self.codes >= 0) & (self.predicted == self.codes))

    def total(self, query: Any, **released: Any) -> Int64:
        """Return the value of a query of these outcomes."""
        total: Int64 = query.exact(self, **query.checked(**released))
        return total


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeveralOutcomes:
    """The outcomes of private test records that have several labels each, or none, which only queries see."""

    truth: NDArray[np.bool_]  # shape (n, n_classes)
    predicted: NDArray[
        np.bool_
    ]  # shape (n, n_classes); the `max_labels` likeliest ones
    right: NDArray[
        np.bool_
    ]  # shape (n,); whether all true labels were predicted, and no other
    weights: Int64  # shape (n,); as of `Outcomes`, but every record counts

    @classmethod
    def of(
        cls,
        truth: NDArray[np.bool_],
        ids: NDArray[Any] | None,
        guesses: Iterable[Guesses],
        max_labels: int,
    ) -> Self:
        """Compare sets of labels with what a classifier says of each record, in the order of the records."""
        predicted = np.zeros_like(truth)
        right = np.zeros(len(truth), bool)
        start = 0
        for some in guesses:
            few = slice(start, start + len(some.predicted))
            assert some.table is not None
            labels = (some.table > 0) & (some.predicted >= 0)[:, None]
            right[few] = (labels == truth[few]).all(axis=1) & (some.predicted >= 0)
            for row in np.flatnonzero(labels.sum(axis=1) > max_labels):
                likeliest = np.argsort(-some.table[row], kind="stable")
                labels[row, likeliest[max_labels:]] = False
            predicted[few], start = labels, few.stop
        weights = np.full(len(truth), STEPS, np.int64)
        if ids is not None:
            all_count = np.zeros(len(truth), np.intp)
            sets = (np.packbits(one, axis=1) for one in (truth, predicted))
            weights = _shares(all_count, persons.person_codes(ids), right, *sets)
        return cls(truth, predicted, right, weights)

    def total(self, query: Any, **released: Any) -> Int64:
        """Return the value of a query of these outcomes."""
        total: Int64 = query.exact(self, **query.checked(**released))
        return total


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rivals:
    """Which of several classifiers are right about the same private test records."""

    right: NDArray[np.bool_]  # shape (n_models, n)
    weights: Int64  # shape (n,); as of `Outcomes`

    @classmethod
    def of(cls, each: Sequence[Outcomes]) -> Self:
        """Put the outcomes of classifiers of the same classes side by side."""
        return cls(np.stack([one.right for one in each]), each[0].weights)

    def total(self, query: Any, **released: Any) -> Int64:
        """Return the value of a query of these outcomes."""
        total: Int64 = query.exact(self, **query.checked(**released))
        return total


def _shares(codes: Codes, numbers: Codes, *told: NDArray[Any]) -> Int64:
    """Share 2¹⁶ steps among the records of each person that count.

    What is left over goes to the first of them, by what queries are `told` of them: in
    whatever order records come.
    """
    counted = np.flatnonzero(codes >= 0)
    keys: list[Any] = []
    for one in told:
        keys.extend(np.atleast_2d(one[counted].T))
    order = counted[np.lexsort((*keys, numbers[counted]))]
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    each = np.diff(first, append=len(order))
    place = np.arange(len(order)) - np.repeat(first, each)
    many = np.repeat(each, each)
    weights = np.zeros(len(codes), np.int64)
    weights[order] = STEPS // many + (place < STEPS % many)
    return weights


def _compared(
    codes: Codes, some: Guesses, top_k: int | None, confidences: bool
) -> tuple[NDArray[Any], ...]:
    """Return predicted classes and, where there are probabilities, `among`, `confidences` and `scores`."""
    if some.table is None:
        return (some.predicted,)
    n, n_classes = some.table.shape
    among = np.zeros(n, bool)
    sure = np.zeros((n, len(TEMPERATURES) if confidences else 0))
    scores = np.zeros(n)
    step = max(1, _NUMBERS // n_classes)
    # Memory that every block uses again: new pages cost more than the arithmetic.
    spare = np.empty((5, min(step, n), n_classes), some.table.dtype)
    for start in range(0, n, step):
        few = slice(start, start + step)
        label = codes[few]
        predicted = some.predicted[few]
        p, root, square, cube, fourth = spare[:, : len(label)]
        np.minimum(np.maximum(some.table[few], 0, out=p), 1, out=p)
        total = p.sum(axis=1)
        scored = (predicted >= 0) & np.isfinite(
            total
        )  # a row with a NaN has no finite sum
        rows = np.arange(len(p))
        chosen = np.maximum(predicted, 0)
        if top_k is not None:
            own = p[rows, np.maximum(label, 0)]
            likelier = (p > own[:, None]).view(np.int8).sum(axis=1, dtype=np.int32)
            among[few] = (
                scored & (label >= 0) & (likelier < top_k) & (own > 0)
            )  # many may be 0
        if confidences:
            np.sqrt(p, out=root)
            np.multiply(root, np.sqrt(root, out=fourth), out=fourth)
            np.multiply(p, p, out=square)
            np.multiply(p, root, out=cube)
            for column, power in enumerate((square, cube, p, fourth, root)):
                whole = power.sum(axis=1)
                np.divide(
                    power[rows, chosen],
                    whole,
                    out=sure[few, column],
                    where=scored & (whole > 0),
                )
        scores[few] = np.where(scored, p[:, -1], 0)
    return some.predicted, among, sure, scores


class OutcomeQuery(Query):
    """A query of outcomes. A record adds a vector no longer than 2¹⁶; a person with all records adds none longer."""

    unit = float(STEPS)  # a record
    whole_persons = True

    def exact(self, held: Outcomes, **at: Any) -> Int64:  # type: ignore[override]
        """Return the value of some outcomes, without noise."""
        raise NotImplementedError


@dataclass(frozen=True)
class Totals(OutcomeQuery):
    """How many records are right; are wrong with the label among the k likeliest classes; are neither.

    A record adds its weight to one of three cells.
    """

    statistic = Term(Statistic.TOTALS, steps=STEPS)

    def exact(self, held: Outcomes) -> Int64:  # type: ignore[override]
        """Return them, shape (3,)."""
        if held.among is None:
            among = held.right
        else:
            among = held.among | held.right
        return counted(np.where(held.right, 0, np.where(among, 1, 2)), held.weights, 3)


@dataclass(frozen=True)
class ClassOutcomes(OutcomeQuery):
    """How many records of each class are right, and how many are not: a record adds its weight to one cell."""

    n_classes: int
    statistic = Term(Statistic.CLASS_OUTCOMES, steps=STEPS)

    def exact(self, held: Outcomes) -> Int64:  # type: ignore[override]
        """Return hits and misses, shape (2, n_classes)."""
        return _hits_and_misses(
            held, np.maximum(held.codes, 0), held.weights, self.n_classes
        )


@dataclass(frozen=True)
class BandOutcomes(OutcomeQuery):
    """How many records are right and how many are not in each band of classes, weighted by class.

    A record adds its weight times the weight of its class, which is limited to [0, 1]
    here whatever was released, to one cell; the product is rounded down.
    """

    n_classes: int
    statistic = Term(Statistic.BAND_OUTCOMES, steps=STEPS)

    def checked(self, *, bands: NDArray[np.intp], weights: Float) -> dict[str, Any]:
        """Round the weights of classes to steps; `bands` is the band of each class, from 0."""
        bands = np.asarray(bands)
        if (
            bands.shape != (self.n_classes,)
            or bands.min() < 0
            or bands.max() >= self.n_classes
        ):
            raise MeasurementError(
                f"bands must be one number for each of {self.n_classes} classes, from 0"
            )
        return {
            "bands": bands,
            "steps": on_grid(shaped("weights", weights, self.n_classes), STEPS),
        }

    def exact(self, held: Outcomes, *, bands: NDArray[np.intp], steps: Int64) -> Int64:  # type: ignore[override]
        """Return hits and misses, shape (2, n_bands)."""
        label = np.maximum(held.codes, 0)
        return _hits_and_misses(
            held,
            bands[label],
            held.weights * steps[label] // STEPS,
            int(bands.max()) + 1,
        )


@dataclass(frozen=True)
class FalseAlarms(OutcomeQuery):
    """How many records each class was wrongly predicted for: a record adds its weight to one cell, or nothing."""

    n_classes: int
    statistic = Term(Statistic.FALSE_ALARMS, steps=STEPS)

    def exact(self, held: Outcomes) -> Int64:  # type: ignore[override]
        """Return them, shape (n_classes,)."""
        wrong = ~held.right & (held.predicted >= 0)
        return counted(
            np.maximum(held.predicted, 0),
            np.where(wrong, held.weights, 0),
            self.n_classes,
        )


@dataclass(frozen=True)
class Confusions(OutcomeQuery):
    """How often each class is taken for each other one: a record adds its weight to one cell, or nothing."""

    n_classes: int
    statistic = Term(Statistic.CONFUSIONS, steps=STEPS)

    def exact(self, held: Outcomes) -> Int64:  # type: ignore[override]
        """Return them, shape (n_classes, n_classes), by label and predicted class."""
        wrong = ~held.right & (held.predicted >= 0)
        cells = np.maximum(held.codes, 0) * self.n_classes + np.maximum(
            held.predicted, 0
        )
        table = counted(cells, np.where(wrong, held.weights, 0), self.n_classes**2)
        return table.reshape(self.n_classes, self.n_classes)


@dataclass(frozen=True)
class CalibrationSums(OutcomeQuery):
    """By how much confidence exceeds accuracy, added up at each of J temperatures and divided by √J.

    Let L = ⌊2¹⁶/√J⌋, `_MOST`. A record of weight w adds trunc(x·wL/2¹⁶) at each
    temperature, where x = confidence - right lies in [-1, 1]. wL/2¹⁶ is a float without
    rounding, and a product with |x| ≤ 1 does not round above it. So a record adds J
    numbers of wL/2¹⁶ at most, whose norm is √J·L·w/2¹⁶ ≤ w.
    """

    statistic = Term(
        Statistic.CALIBRATION_SUMS, n_temperatures=len(TEMPERATURES), steps=_MOST
    )

    def exact(self, held: Outcomes) -> Int64:  # type: ignore[override]
        """Return them, shape (len(TEMPERATURES),)."""
        assert held.confidences is not None
        excess = np.clip(held.confidences, 0, 1) - held.right[:, None]
        steps = np.trunc(excess * (held.weights * _MOST / STEPS)[:, None])
        return np.asarray(steps.astype(np.int64).sum(axis=0))

    @property
    def unit(self) -> float:  # type: ignore[override]
        """Steps of a record whose confidence exceeds its accuracy by 1."""
        return float(_MOST)


@dataclass(frozen=True)
class ReliabilityBins(OutcomeQuery):
    """How many records of each range of confidence are right, and how many are not: a record adds to one cell."""

    statistic = Term(Statistic.RELIABILITY_BINS, steps=STEPS)

    def exact(self, held: Outcomes) -> Int64:  # type: ignore[override]
        """Return hits and misses, shape (2, len(CONFIDENCES) - 1)."""
        assert held.confidences is not None
        confidence = held.confidences[:, TEMPERATURES.index(1.0)]
        bins = np.searchsorted(CONFIDENCES[1:-1], confidence, side="right")
        return _hits_and_misses(held, bins, held.weights, len(CONFIDENCES) - 1)


@dataclass(frozen=True)
class ScoreHistogram(OutcomeQuery):
    """How many records of each of two classes have a score in each of 16 public bins: a record adds to one cell."""

    statistic = Term(Statistic.SCORE_HISTOGRAM, steps=STEPS)

    def exact(self, held: Outcomes) -> Int64:  # type: ignore[override]
        """Return them, shape (2, len(SCORE_EDGES) + 1)."""
        assert held.scores is not None
        n_bins = len(SCORE_EDGES) + 1
        bins = np.searchsorted(SCORE_EDGES, held.scores, side="right")
        return counted(
            np.maximum(held.codes, 0) * n_bins + bins, held.weights, 2 * n_bins
        ).reshape(2, n_bins)


@dataclass(frozen=True)
class WholeSets(OutcomeQuery):
    """Of how many records with several labels all are right, and of how many not: a record adds to one cell."""

    statistic = Term(Statistic.WHOLE_LABEL_SETS, steps=STEPS)

    def exact(self, held: SeveralOutcomes) -> Int64:  # type: ignore[override]
        """Return them, shape (2,)."""
        return counted(np.where(held.right, 0, 1), held.weights, 2)


@dataclass(frozen=True)
class LabelOutcomes(OutcomeQuery):
    """How many records of each label are found, how many are missed, and for how many it is a false alarm.

    Of a record, the first k true labels in the order of the classes count, and k
    predicted ones at most: rules that depend on the record alone. A true label that
    does not count is neither missed nor a false alarm. So a record of weight w adds w
    to a cell for each label that counts, and for each predicted one that is not true:
    disjoint sets of at most k labels, which are at most min(2k, n_classes) cells. Such
    a vector is as long as w times the root of that.
    """

    n_classes: int
    max_labels: int

    @property
    def statistic(self) -> Term[Statistic]:
        """With the number of labels that count."""
        return Term(
            Statistic.LABEL_OUTCOMES,
            max_labels=self.max_labels,
            n_classes=self.n_classes,
            steps=STEPS,
        )

    def exact(self, held: SeveralOutcomes) -> Int64:  # type: ignore[override]
        """Return found, missed and false labels, shape (3, n_classes)."""
        total = np.zeros((3, self.n_classes), np.int64)
        step = max(1, _NUMBERS // self.n_classes)
        for start in range(0, len(held.weights), step):
            few = slice(start, start + step)
            truth = held.truth[few]
            weights = held.weights[few]
            true, said = (
                first_labels(sets[few], self.max_labels)
                for sets in (held.truth, held.predicted)
            )
            total += [
                weights @ cells for cells in (true & said, true & ~said, said & ~truth)
            ]
        return total


@dataclass(frozen=True)
class SignedHits(OutcomeQuery):
    """Records that only the first of two classifiers is right about, minus those that only the second is right about.

    A record adds its weight, takes it away or does nothing: one number moves by 2¹⁶ at
    most. Two counts of right answers would move together, by √2 times that.
    """

    statistic = Term(Statistic.SIGNED_HITS)

    def exact(self, held: Rivals) -> Int64:  # type: ignore[override]
        """Return it, shape (1,)."""
        first, second = held.right
        return np.array(
            [held.weights[first].sum() - held.weights[second].sum()], np.int64
        )


@dataclass(frozen=True)
class Disagreements(OutcomeQuery):
    """How many records exactly one of two classifiers is right about, and how many others: to one cell each."""

    statistic = Term(Statistic.DISAGREEMENTS)

    def exact(self, held: Rivals) -> Int64:  # type: ignore[override]
        """Return them, shape (2,)."""
        first, second = held.right
        return counted(np.where(first == second, 1, 0), held.weights, 2)


@dataclass(frozen=True)
class MostHits(OwnAnswer):
    """Which of several classifiers is right most often, by the exponential mechanism.

    The utility of a classifier is the weight of all records that it is right about. A
    record that is added raises each utility by its weight or not at all: all in one
    direction, by 2¹⁶ at most, and so do all records of a person.
    """

    n_models: int
    unit = float(STEPS)
    whole_persons = True
    repeats = False
    selects = True

    @property
    def statistic(self) -> Term[Statistic]:
        """With their number."""
        return Term(Statistic.MOST_HITS, n_models=self.n_models, steps=STEPS)

    def mechanism(
        self, budget: Budget, times: int, relation: str
    ) -> ExponentialMechanism:
        """Return the selection that the budget allows."""
        return ExponentialMechanism.within(budget, STEPS, adjacency=relation)

    def answer(self, mechanism: Any, records: Rivals, source: Randomness) -> Int64:
        """Return the position of one model, shape (1,)."""
        utilities = np.array(
            [records.weights[right].sum() for right in records.right], np.int64
        )
        return np.asarray(mechanism.select(utilities, source))


def counted(cells: NDArray[np.integer[Any]], weights: Int64, n_cells: int) -> Int64:
    """Add weights by cell; integers below 2⁵³ are exact in any order."""
    return np.bincount(cells, weights.astype(np.float64), n_cells).astype(np.int64)


def _hits_and_misses(
    held: Outcomes, cells: NDArray[np.integer[Any]], weights: Int64, n_cells: int
) -> Int64:
    return counted(
        np.where(held.right, cells, cells + n_cells), weights, 2 * n_cells
    ).reshape(2, n_cells)
