"""How exactly a private evaluation will be able to say how good a classifier is, before any test record is read.

A plan is the intervals of an evaluation whose noisy tables are as expected: it asks the
same functions, so that a plan and an evaluation agree by construction. Class sizes fall
in equal ratios, as in `plan_budget`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from scipy.stats import norm

from dppl._utils import validate
from dppl._utils.types import Float
from dppl.errors import BudgetError, ParameterError
from dppl.evaluation.intervals import (
    KNOWN,
    balanced_accuracy,
    bands_of,
    each_class,
    ratio,
)
from dppl.evaluation.measuring import Tables, measurements, said_of_labels, variance
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.measure import calibrated
from dppl.kernel.privacy import ZCDP, ApproxDP, Budget, GaussianDP, PureDP, RenyiDP
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.queries import ADD_REMOVE
from dppl.planning.guessed_sizes import checked_guesses, rising_sizes
from dppl.prediction.pending import MAX_LABELS, LabelSets

Number: TypeAlias = Literal[
    "accuracy", "recall", "balanced_accuracy", "micro_f1", "macro_f1"
]

WORDS: dict[Number, str] = {
    "accuracy": "accuracy",
    "recall": "recall of the rarest class",
    "balanced_accuracy": "balanced accuracy",
}
WORDS_OF_LABELS: dict[Number, str] = {
    "micro_f1": "micro F1",
    "recall": "recall of the rarest label",
    "macro_f1": "macro F1",
}
# Half widths from which on a number says little in print.
_WIDE = 0.1
# Half widths for which a plan names the budget.
USUAL_WIDTHS = (0.05, 0.02)
# Multiples of it, without their whole parts, lie evenly wherever one stops.
_GOLDEN = (math.sqrt(5) - 1) / 2
# How often any class may be hidden where a plan still has a balanced accuracy.
_HIDDEN = 0.05
# Epsilon of a budget that nobody is told to spend.
_MOST = 20
# Budgets that are searched; with the largest, only sampling is left.
_LEAST_MU = 1e-4
_MOST_MU = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """Expected half widths of intervals; `print` says them in sentences, `to_dict` for machines.

    Parameters
    ----------
    budget : Budget
    n_classes, n_test, smallest : int
        Of the test records; `smallest` is the size of the rarest class.
    rate : float
        A guess of the accuracy, or of the F1 of labels.
    confidence : float
    labels_each : float or None
        Labels of a record, where it may have several.
    counted : {"records", "persons"}
    accuracy, balanced_accuracy : float or None
        Half the expected width, of one label a record. None if noise hides the number
        at this budget.
    micro_f1, macro_f1 : float or None
        Likewise, of several labels.
    recall : float or None
        Likewise, of the rarest class or label.
    known_from : int
        About how many test records a class needs so that the noise does not hide its
        size.
    """

    budget: Budget
    n_classes: int
    n_test: int
    smallest: int
    rate: float
    confidence: float
    labels_each: float | None
    counted: Literal["records", "persons"]
    accuracy: float | None
    recall: float | None
    balanced_accuracy: float | None
    micro_f1: float | None
    macro_f1: float | None
    known_from: int

    @property
    def numbers(self) -> dict[Number, str]:
        """What is planned, and what it is called."""
        return WORDS if self.labels_each is None else WORDS_OF_LABELS

    def budget_for(
        self, half_width: float, number: Number = "accuracy"
    ) -> Budget | None:
        """Return the least budget at which a number is known this exactly, in the notion of the plan.

        Parameters
        ----------
        half_width : float
            Half the width of the interval.
        number : {"accuracy", "recall", "balanced_accuracy"}, default="accuracy"
            Of several labels {"micro_f1", "recall", "macro_f1"}.

        Returns
        -------
        Budget or None
            None if no budget is enough, since chance in the choice of test records
            alone is wider.
        """
        validate.open_unit(half_width=half_width)
        validate.one_of(list(self.numbers), number=number)
        widths = _widths_at(
            self.n_classes,
            self.n_test,
            self.smallest,
            self.rate,
            self.confidence,
            self.labels_each,
        )

        def is_enough(mu: float) -> bool:
            half = widths(mu)[number]
            return half is not None and half <= half_width

        if not is_enough(_MOST_MU):
            return None
        # A width shrinks as the budget grows, so halving the logarithm of mu finds the
        # least that is enough.
        low = math.log(_LEAST_MU)
        high = math.log(_MOST_MU)
        while high - low > 0.001:
            middle = (low + high) / 2
            if is_enough(math.exp(middle)):
                low, high = (low, middle)
            else:
                low, high = (middle, high)
        mu = math.exp(high)
        if isinstance(self.budget, ApproxDP):
            return GaussianDP(mu).to_approx(self.budget.delta)
        if isinstance(self.budget, ZCDP):
            return ZCDP(mu * mu / 2)
        if isinstance(self.budget, RenyiDP):
            alpha = self.budget.alpha
            return RenyiDP(alpha, alpha * mu * mu / 2)
        return GaussianDP(mu)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON-ready dictionary."""
        needed: dict[str, Any] = {str(width): {} for width in USUAL_WIDTHS}
        for width in USUAL_WIDTHS:
            for number in self.numbers:
                budget = self.budget_for(width, number)
                needed[str(width)][number] = budget and budget.to_dict()
        return asdict(self) | {
            "budget": self.budget.to_dict(),
            "needed": needed,
            "sentences": self.sentences(),
        }

    def table(self) -> list[tuple[str, ...]]:
        """Return a row for each number: its name, half its width, and the budgets that `USUAL_WIDTHS` need."""
        rows = []
        for number, words in self.numbers.items():
            half: float | None = getattr(self, number)
            needed = [self.budget_for(width, number) for width in USUAL_WIDTHS]
            shown = (
                "more records"
                if one is None or one.usual_epsilon > _MOST
                else _first(one)
                for one in needed
            )
            rows.append(
                (words, "cannot tell" if half is None else f"±{half:.3f}", *shown)
            )
        return rows

    @staticmethod
    def headings() -> tuple[str, ...]:
        """Return what the columns of `table` are."""
        return ("", "half width", *(f"budget for ±{width:g}" for width in USUAL_WIDTHS))

    def sentences(self) -> list[str]:
        """Return what the widths mean."""
        counted = self.counted
        (first, name), *_ = self.numbers.items()
        said = [
            f"For {self.n_test} test {counted} at {self.budget}, if the {name} is about {self.rate:.2f}."
        ]
        half = getattr(self, first)
        if half is not None:
            ends = (self.rate, max(self.rate - half, 0), min(self.rate + half, 1))
            value, low, high = (f"{100 * end:.0f} %" for end in ends)
            said.append(
                f"The line for print will be like: {name} {value} ({100 * self.confidence:g} % interval {low} to {high})."
            )
        wide = [
            words
            for number, words in self.numbers.items()
            if (getattr(self, number) or 1) > _WIDE
        ]
        if wide:
            said.append(
                f"Too wide to print (more than ±{_WIDE:g}): {', '.join(wide)}. It takes more test {counted} or budget."
            )
        if self.labels_each is None and self.balanced_accuracy is None:
            said.append(
                f"Balanced accuracy cannot be planned: at this budget noise hides the size of a "
                f"class of fewer than about {self.known_from} test {counted}, and the rarest has {self.smallest}. Each "
                f"such class widens the interval by up to 1/{self.n_classes}."
            )
        return [
            *said,
            f"Test {counted} that nobody trained on (`dppl split`) cost nothing more: each pays for one of both.",
            f"The number of test {counted} must be a guess from public knowledge, too.",
        ]

    def __str__(self) -> str:
        rows = (f"{name}: {half}" for name, half, *_ in self.table())
        return "\n".join((*rows, *self.sentences()))


def plan_evaluation(
    budget: Budget,
    *,
    n_classes: int,
    n_test: int,
    smallest: int | None = None,
    rate: float = 0.8,
    confidence: float = 0.9,
    labels_each: float | None = None,
    counted: Literal["records", "persons"] = "records",
) -> EvaluationPlan:
    """Say how exactly `dppl.evaluate` will say how good a classifier is, before any test record is read.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP
        What the evaluation may spend.
    n_classes : int
        Number of classes, at least 2.
    n_test : int
        A guess of the number of test records, at least one per class; of persons if the
        evaluation has their ids.
    smallest : int, default=None
        A guess of the number of test records of the rarest class. None assumes that all
        classes are equally frequent.
    rate : float, default=0.8
        A guess of the accuracy; of several labels of the F1.
    confidence : float, default=0.9
        Of each interval.
    labels_each : float, default=None
        How many labels a record has on average, where it may have several; a person who
        has records of different labels counts likewise. None is one label a record.
    counted : {"records", "persons"}, default="records"
        What sentences call the test records.

    Raises
    ------
    ParameterError, BudgetError
        If a parameter breaks its rule, or the budget allows no Gaussian noise.

    Notes
    -----
    **Privacy.** Unit: none. Relation: none. Released: nothing. Sensitivity: none, as no
    private record is read. Public inputs: all. Not covered: a number that was counted
    in private records; guess it.

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.planning import plan_evaluation
    >>> plan = plan_evaluation(ApproxDP(1, 1e-6), n_classes=10, n_test=5000)
    >>> f"{plan.accuracy:.3f}", f"{plan.balanced_accuracy:.3f}"
    ('0.010', '0.011')
    >>> plan.budget_for(0.005) is None  # chance alone is wider
    True
    """
    if labels_each is not None:
        validate.positive(labels_each=labels_each)
        if labels_each > n_classes:
            raise ParameterError(
                f"must be at most the number of classes, {n_classes}; got {labels_each!r}.",
                parameter="labels_each",
            )
    validate.positive_integer(n_test=n_test)
    n_labels = round(n_test * (labels_each or 1))
    _, smallest = checked_guesses(n_classes, smallest, n_test=n_labels)
    validate.open_unit(rate=rate, confidence=confidence)
    validate.one_of(("records", "persons"), counted=counted)
    if isinstance(budget, PureDP):
        raise BudgetError(
            "an evaluation adds Gaussian noise, which pure DP does not allow; add a delta."
        )
    mu = budget.gaussian_allowance().mu
    halves = _widths_at(n_classes, n_test, smallest, rate, confidence, labels_each)(mu)
    if labels_each is None:
        halves["accuracy"] = halves["accuracy"] or 0.5
    return EvaluationPlan(
        budget=budget,
        n_classes=n_classes,
        n_test=n_test,
        smallest=smallest,
        rate=rate,
        confidence=confidence,
        labels_each=labels_each,
        counted=counted,
        **{number: halves.get(number) for number in get_args(Number)},
        known_from=math.ceil(
            _known_from(_error(_variances(mu, n_classes, labels_each)), n_classes)
        ),
    )


def _first(budget: Budget) -> str:
    """Write the parameter of a budget that grows with it."""
    name, value = next(iter(budget.to_dict().items()))
    return f"{name} = {rounded_up(value, 2)}"


def _quantile(confidence: float) -> float:
    return float(norm.ppf((1 + confidence) / 2))


def _variances(
    mu: float, n_classes: int, labels_each: float | None
) -> dict[str, float]:
    """Return the variance of the noise in a cell of each table, in records."""
    several = None
    if labels_each is not None:
        several = LabelSets(MAX_LABELS, MultiLabel())
    asked = measurements(n_classes, several=several)
    declared = calibrated(GaussianDP(mu), asked, ADD_REMOVE)
    return {
        name: variance(one.mechanism.noise_std, one.measurement.query.unit)
        for name, one in declared.items()
    }


def _known_from(error: float, n_classes: int) -> float:
    """Return the size s from which noise and chance hide no class in 19 of 20 evaluations: s - 3e = q·√(e² + s)."""
    q = norm.isf(_HIDDEN / n_classes)
    half = KNOWN * error + q * q / 2
    return float(half + np.sqrt(half**2 - error**2 * (KNOWN**2 - q**2)))


def _error(v: dict[str, float]) -> float:
    """Return the standard deviation of the noise of a class's size, which is the sum of two cells."""
    return math.sqrt(2 * v["labels" if "labels" in v else "classes"])


def _widths_at(
    n_classes: int,
    n_test: int,
    smallest: int,
    rate: float,
    confidence: float,
    labels_each: float | None,
) -> Callable[[float], dict[str, float | None]]:
    """Return what gives half the width of each interval at a mu; None where noise hides the number."""
    n_labels = round(n_test * (labels_each or 1))
    sizes = rising_sizes(n_classes, n_labels, smallest)

    def widths(mu: float) -> dict[str, float | None]:
        v = _variances(mu, n_classes, labels_each)
        # Noise in the sizes as on average, the same for every call, and in no order
        # that sizes have.
        spread = norm.ppf((np.arange(n_classes) + 0.5) * _GOLDEN % 1)
        noise = _error(v) * spread
        if labels_each is None:
            found = _of_classes(v, sizes, noise, rate, confidence)
            if smallest < _known_from(_error(v), n_classes):
                found["balanced_accuracy"] = (0.0, 1.0)
        else:
            # No label is on more records than there are.
            each = np.minimum(sizes, n_test)
            found = _of_labels(v, n_test, each, noise, rate, confidence)
        halves = {name: (high - low) / 2 for name, (low, high) in found.items()}
        return {name: half if half < 0.5 else None for name, half in halves.items()}

    return widths


def _of_classes(
    v: dict[str, float], sizes: Float, noise: Float, rate: float, confidence: float
) -> dict[str, tuple[float, float]]:
    """Return the ends of intervals where hits and misses are as expected."""
    z = _quantile(confidence)
    n = sizes.sum()
    smallest = sizes[0]
    noisy = sizes + noise
    error = _error(v)
    if "bands" not in v:
        bands, of_bands = (each_class(len(sizes)), "classes")
    else:
        bands, of_bands = (bands_of(noisy, error), "bands")
    # Hits and misses of each band, if every class is as often right.
    table = np.outer(
        [rate, 1 - rate], np.bincount(bands.of_class, bands.weights * sizes)
    )
    intervals: dict[str, Any] = {
        "accuracy": ratio(rate * n, (1 - rate) * n, v["totals"], 2 * v["totals"], z),
        "recall": ratio(
            rate * smallest, (1 - rate) * smallest, v["classes"], v["classes"], z
        ),
        "balanced_accuracy": balanced_accuracy(
            table, v[of_bands], bands, noisy, error, z
        ),
    }
    return {
        name: (float(low), float(high)) for name, (_, low, high) in intervals.items()
    }


def _of_labels(
    v: dict[str, float],
    n_test: int,
    sizes: Float,
    noise: Float,
    rate: float,
    confidence: float,
) -> dict[str, tuple[float, float]]:
    """Return the ends of intervals where recall and precision of each label are as expected."""
    # As many false alarms as misses, so that precision is as high as recall.
    missed = (1 - rate) * sizes
    table = np.stack([rate * sizes, missed, missed])
    table[:, 1:] += noise[1:] / 2  # but for the rarest, of which recall is planned
    totals = np.array([rate * n_test, (1 - rate) * n_test])
    noisy = Tables(
        {"totals": totals, "labels": table, "classes": table[:2], "alarms": table[2]},
        v | {"classes": v["labels"], "alarms": v["labels"]},
        each_class(len(sizes)),
    )
    said = said_of_labels(noisy, [*range(len(sizes))], confidence, MAX_LABELS)
    found = {
        "micro_f1": said["labels"].f1,
        "recall": said["per_class"][0].recall,
        "macro_f1": said["labels"].macro_f1,
    }
    return {name: (one.low, one.high) for name, one in found.items()}
