"""Which of several classifiers is better on the same private test records: two by how much, or the best of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl.errors import InputError, ParameterError
from dppl.evaluation import intervals
from dppl.evaluation.already_predicted import predictions_of
from dppl.evaluation.evaluation import Estimate, Written
from dppl.evaluation.measuring import Known, estimate, guarantee_of, number, variance
from dppl.kernel.measure import Calibrated, Measure, Measurement, calibrated
from dppl.kernel.privacy import Budget, Guarantee
from dppl.kernel.privacy.budgets import check_strength
from dppl.kernel.privacy.terms import Caveat, Term, Unit
from dppl.kernel.queries import ADD_REMOVE
from dppl.kernel.queries.outcomes import (
    Disagreements,
    MostHits,
    Outcomes,
    Rivals,
    SignedHits,
)
from dppl.kernel.reading import check_kind
from dppl.methods.base import charge, charged
from dppl.prediction.pending import Predicts
from dppl.statement import words

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

# Shares of mu².
_SIGNED = 80
_OTHERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Written):
    """How much more often the first of two classifiers is right than the second, on the same private test records.

    Parameters
    ----------
    difference : Estimate
        Accuracy of the first minus the accuracy of the second; its value is None where
        noise hides it.
    differ : Estimate
        Share of records that exactly one of both is right about.
    n : Estimate
        Number of test records, or persons.
    unit : str
        What the numbers count, as the guarantee says it.
    confidence : float
        Probability with which each interval covers, by itself.
    guarantee : Guarantee
    """

    difference: Estimate
    differ: Estimate
    n: Estimate
    unit: str
    confidence: float
    guarantee: Guarantee

    @property
    def better(self) -> Literal["first", "second"] | None:
        """Which classifier is better, or None where the interval holds 0."""
        if self.difference.low > 0:
            return "first"
        if self.difference.high < 0:
            return "second"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        return {"better": self.better} | Written.to_dict(self)

    def __str__(self) -> str:
        if self.unit == Unit.PERSON:
            counted = "persons"
        else:
            counted = "records"
        if self.better is None:
            verdict = "cannot tell which is better"
        else:
            verdict = f"the {self.better} is better"
        return (
            f"On private test {counted}, about {self.n} of them: {verdict}.\n"
            f"accuracy of the first minus the second  {self.difference}\n"
            f"exactly one of both is right            {self.differ}\n"
            f"{_promise(self.guarantee)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Written):
    """Which of several classifiers was chosen by private test records.

    Parameters
    ----------
    position : int
        Of the chosen one, from 0.
    n_models : int
    guarantee : Guarantee
    """

    position: int
    n_models: int
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        return {"evaluate_on_other_records": True} | Written.to_dict(self)

    def __str__(self) -> str:
        return (
            f"Number {self.position + 1} of {self.n_models} was chosen by private test records. These say nothing more "
            "about it: evaluate it on other records, which were not used to train or to choose.\n"
            f"{_promise(self.guarantee)}"
        )


def _promise(guarantee: Guarantee) -> str:
    return "\n".join(
        f"{heading}: {text}" for heading, text in words.in_short(guarantee)
    )


def compare(
    a: Predicts,
    b: Predicts,
    X: Any,
    y: Any,
    budget: Budget,
    *,
    groups: Any = None,
    ledger: Ledger | None = None,
    partition: str | None = None,
    confidence: float = 0.9,
    random_state: int | None = None,
) -> Comparison:
    r"""Say which of two classifiers is more often right on private test records, and by how much.

    Where both mostly agree, the interval is about half as wide as from two evaluations
    at the same cost. Noise alone hides a difference of fewer than about 1.8/mu records.

    Parameters
    ----------
    a, b : classifier
        Fitted, of the same classes, as for `evaluate`.
    X : array-like of shape (n_records, ...), or a pair of such
        Private records as both take them; a pair is what each takes, such as two tables
        of predictions.
    y, budget, groups, ledger, partition, confidence, random_state
        As for `evaluate`.

    Raises
    ------
    ParameterError, BudgetError, BudgetExceeded, InputError
        As for `evaluate`.

    Notes
    -----
    **Privacy.** Unit: one record, or one person with all records (`groups`). Relation:
    add or remove one. Released: the comparison, computed from two noisy tables.
    Sensitivity: 1 record in L2 for each: a record adds -1, 0 or 1 to the signed number
    of records that one alone is right about, and 1 to one of two cells. Public inputs:
    both models, their classes, all parameters. Not covered: as for `evaluate`.

    Examples
    --------
    >>> import numpy as np, dppl
    >>> from dppl.evaluation import AlreadyPredicted
    >>> labels, table = np.tile(["a", "b"], 500), AlreadyPredicted(["a", "b"])
    >>> wrong = np.where(np.arange(1000) % 5, labels, "a")
    >>> dppl.compare(table, table, (labels, wrong), labels, dppl.GaussianDP(1)).better
    'first'
    """
    validate.open_unit(confidence=confidence)
    declared = {
        "signed": Measurement(SignedHits(), _SIGNED),
        "disagreements": Measurement(Disagreements(), _OTHERS),
    }
    asked = _ask(
        "comparison",
        [a, b],
        X,
        y,
        budget,
        declared,
        groups,
        ledger,
        partition,
        random_state,
    )
    # Records about which both are right, or both wrong, cancel in the difference: only
    # their number enters, in the denominator.
    (signed,), v_signed = asked.in_records("signed")
    (differ, same), v = asked.in_records("disagreements")
    # Two-sided: half of the error on each side.
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return Comparison(
        difference=estimate(
            intervals.difference(signed, v_signed, differ, same, v, z), (-1.0, 1.0)
        ),
        differ=estimate(intervals.ratio(differ, same, v, v, z)),
        n=number(intervals.count(differ + same, 2 * v, z)),
        unit=asked.guarantee.unit,
        confidence=confidence,
        guarantee=asked.guarantee,
    )


def choose(
    models: Sequence[Predicts],
    X: Any,
    y: Any,
    budget: Budget,
    *,
    groups: Any = None,
    ledger: Ledger | None = None,
    partition: str | None = None,
    random_state: int | None = None,
) -> Choice:
    r"""Choose the classifier that is most often right on private test records, by the exponential mechanism.

    The budget buys one choice, whatever the number of classifiers. Evaluate the chosen
    one on other records. Two are chosen from as well as by `compare`, which also says
    by how much one is better.

    Parameters
    ----------
    models : sequence of classifiers
        At least two, fitted, of the same classes, as for `evaluate`.
    X : array-like of shape (n_records, ...), or a tuple of such
        Private records as all take them; a tuple is what each takes, such as tables of
        predictions.
    y, groups, ledger, partition, random_state
        As for `evaluate`.
    budget : Budget
        Any; pure DP, too.

    Raises
    ------
    ParameterError, BudgetError, BudgetExceeded, InputError
        As for `evaluate`.

    Notes
    -----
    **Privacy.** Unit: one record, or one person with all records (`groups`). Relation:
    add or remove one. Released: the position of the chosen model. Sensitivity: 1 of
    each model's number of right answers, which only grow when a record is added. Public
    inputs: all models, their classes, all parameters. Not covered: how good the chosen
    model is.

    Examples
    --------
    >>> import numpy as np, dppl
    >>> from dppl.evaluation import AlreadyPredicted, choose
    >>> labels, table = np.tile(["a", "b"], 500), AlreadyPredicted(["a", "b"])
    >>> guesses = tuple(np.where(np.arange(1000) % k, labels, "a") for k in (3, 5, 50))
    >>> choose([table] * 3, guesses, labels, dppl.PureDP(1)).position
    2
    """
    if len(models) < 2:
        raise ParameterError(
            f"must be at least two classifiers; got {len(models)}.", parameter="models"
        )
    declared = {"best": Measurement(MostHits(len(models)))}
    asked = _ask(
        "choice",
        models,
        X,
        y,
        budget,
        declared,
        groups,
        ledger,
        partition,
        random_state,
    )
    not_covered = (*asked.guarantee.not_covered, Term(Caveat.CHOSEN_MODEL))
    guarantee = replace(asked.guarantee, not_covered=not_covered)
    return Choice(
        position=int(asked.answers["best"][0]),
        n_models=len(models),
        guarantee=guarantee,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """Answers of the kernel in steps, and how they were paid for."""

    answers: Mapping[str, NDArray[np.int64]]
    paid: Mapping[str, Calibrated]
    guarantee: Guarantee

    def in_records(self, name: str) -> tuple[list[float], float]:
        """Return an answer in records, and the variance of the noise in each of its numbers."""
        unit = self.paid[name].measurement.query.unit
        return (self.answers[name] / unit).tolist(), variance(
            self.paid[name].mechanism.noise_std, unit
        )


def _ask(
    name: str,
    models: Sequence[Predicts],
    X: Any,
    y: Any,
    budget: Budget,
    declared: Mapping[str, Measurement],
    groups: Any,
    ledger: Ledger | None,
    partition: str | None,
    random_state: int | None,
) -> _Asked:
    """Plan, pay, predict with every model and ask, in this order."""
    check_strength(budget, stacklevel=3)
    tables = X if isinstance(X, tuple) else (X,) * len(models)
    if len(tables) != len(models):
        raise InputError(
            f"X must be one table for all models, or a tuple of one for each; got {len(tables)}."
        )
    pending = [
        predictions_of(model, table)
        for model, table in zip(models, tables, strict=True)
    ]
    first = pending[0]
    if any(one.several is not None for one in pending):
        raise ParameterError(
            "must give one label a record; evaluate each model of several labels by itself."
        )
    if any(
        sorted(map(str, one.classes)) != sorted(map(str, first.classes))
        for one in pending
    ):
        raise ParameterError("models must have the same classes.")
    if any(one.n != first.n for one in pending):
        raise InputError("X must have the same records for all models.")
    # All that follows from public values comes first: nothing is charged where
    # something does not fit.
    paid = calibrated(budget, declared, ADD_REMOVE)
    labels, ids = first.labels_and_ids(y, groups)
    for one in pending:
        check_kind(labels, one.classes)
    known = [Known.of(one.model, ledger, partition) for one in pending]
    guarantee = guarantee_of(
        budget, paid, pending, ids is not None, random_state, known[0].choices
    )
    names = [type(one.model).__name__ for one in pending]
    digests = [one.sha256 for one in known]
    recorded = {"models": names, "model_sha256": digests}
    guarantee, entry = charge(ledger, partition, guarantee, name, recorded)
    with charged(entry), np.errstate(all="ignore"):
        each = [Outcomes.of(labels, ids, one.classes, one.guesses()) for one in pending]
        with Measure(paid, Rivals.of(each), random_state) as measure:
            answers = {one: measure(one) for one in declared}
    if ledger is not None and entry is not None:
        ledger.finish(entry)
    return _Asked(answers, paid, guarantee)
