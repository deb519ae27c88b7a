"""How exactly a private evaluation will be able to say how good a classifier is, before any test record is read.

A plan is the intervals of an evaluation whose noisy tables are as expected: it asks the
same functions, so that a plan and an evaluation agree by construction. Class sizes fall
in equal ratios, as in `plan_budget`.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from scipy.stats import norm

from dppl._utils import validate
from dppl._utils.types import Float
from dppl.errors import BudgetError
from dppl.evaluation.intervals import (
    KNOWN,
    balanced_accuracy,
    bands_of,
    each_class,
    ratio,
)
from dppl.evaluation.measuring import measurements, variance
from dppl.kernel.measure import calibrated
from dppl.kernel.privacy import ZCDP, ApproxDP, Budget, GaussianDP, PureDP, RenyiDP
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.queries import ADD_REMOVE
from dppl.planning.guessed_sizes import checked_guesses, rising_sizes

Number: TypeAlias = Literal["accuracy", "recall", "balanced_accuracy"]

WORDS: dict[Number, str] = {
    "accuracy": "accuracy",
    "recall": "recall of the rarest class",
    "balanced_accuracy": "balanced accuracy",
}
# Half widths for which a plan names the budget.
USUAL_WIDTHS = (0.05, 0.02)
# Multiples of it, without their whole parts, lie evenly wherever one stops.
_GOLDEN = (math.sqrt(5) - 1) / 2
# How often any class may be hidden where a plan still has a balanced accuracy.
_HIDDEN = 0.05
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
        A guess of the accuracy.
    confidence : float
    accuracy : float
        Half the expected width.
    recall, balanced_accuracy : float or None
        Likewise, of the rarest class and of all. None if noise hides that at this
        budget.
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
    accuracy: float
    recall: float | None
    balanced_accuracy: float | None
    known_from: int

    def budget_for(
        self, half_width: float, number: Number = "accuracy"
    ) -> Budget | None:
        """Return the least budget at which a number is known this exactly, in the notion of the plan.

        Parameters
        ----------
        half_width : float
            Half the width of the interval.
        number : {"accuracy", "recall", "balanced_accuracy"}, default="accuracy"

        Returns
        -------
        Budget or None
            None if no budget is enough, since chance in the choice of test records
            alone is wider.
        """
        validate.open_unit(half_width=half_width)
        validate.one_of(get_args(Number), number=number)
        sizes = rising_sizes(self.n_classes, self.n_test, self.smallest)
        z = _quantile(self.confidence)

        def is_enough(mu: float) -> bool:
            half = _half_widths(mu, sizes, self.rate, z)[number]
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
            for number in WORDS:
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
        for number, words in WORDS.items():
            half: float | None = getattr(self, number)
            needed = [self.budget_for(width, number) for width in USUAL_WIDTHS]
            shown = ("more records" if one is None else _first(one) for one in needed)
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
        hidden = (
            f"Balanced accuracy cannot be planned: at this budget noise hides the size of a class of fewer than about "
            f"{self.known_from} test records, and the rarest has {self.smallest}. Each such class widens the interval "
            f"by up to 1/{self.n_classes}."
        )
        return [
            f"For {self.n_test} test records at {self.budget}, if the accuracy is about {self.rate:.2f}.",
            *[hidden] * (self.balanced_accuracy is None),
            "Test records that nobody trained on (`dppl split`) cost nothing more: a record pays for one of both.",
            "The number of test records must be a guess from public knowledge, too.",
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
        A guess of the accuracy.
    confidence : float, default=0.9
        Of each interval.

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
    n_test, smallest = checked_guesses(n_classes, smallest, n_test=n_test)
    validate.open_unit(rate=rate, confidence=confidence)
    if isinstance(budget, PureDP):
        raise BudgetError(
            "an evaluation adds Gaussian noise, which pure DP does not allow; add a delta."
        )
    mu = budget.gaussian_allowance().mu
    sizes = rising_sizes(n_classes, n_test, smallest)
    halves = _half_widths(mu, sizes, rate, _quantile(confidence))
    return EvaluationPlan(
        budget=budget,
        n_classes=n_classes,
        n_test=n_test,
        smallest=smallest,
        rate=rate,
        confidence=confidence,
        accuracy=halves["accuracy"] or 0.5,
        recall=halves["recall"],
        balanced_accuracy=halves["balanced_accuracy"],
        known_from=math.ceil(
            _known_from(math.sqrt(2 * _variances(mu, n_classes)["classes"]), n_classes)
        ),
    )


def _first(budget: Budget) -> str:
    """Write the parameter of a budget that grows with it."""
    name, value = next(iter(budget.to_dict().items()))
    return f"{name} = {rounded_up(value, 2)}"


def _quantile(confidence: float) -> float:
    return float(norm.ppf((1 + confidence) / 2))


def _variances(mu: float, n_classes: int) -> dict[str, float]:
    """Return the variance of the noise in a cell of each table, in records."""
    declared = calibrated(GaussianDP(mu), measurements(n_classes), ADD_REMOVE)
    return {
        name: variance(one.mechanism.noise_std, one.measurement.query.unit)
        for name, one in declared.items()
    }


def _known_from(error: float, n_classes: int) -> float:
    """Return the size s from which noise and chance hide no class in 19 of 20 evaluations: s - 3e = q·√(e² + s)."""
    q = norm.isf(_HIDDEN / n_classes)
    half = KNOWN * error + q * q / 2
    return float(half + np.sqrt(half**2 - error**2 * (KNOWN**2 - q**2)))


def _half_widths(
    mu: float, sizes: Float, rate: float, z: float
) -> dict[Number, float | None]:
    """Return half the width of each interval, where hits and misses are as expected; None for [0, 1]."""
    n = sizes.sum()
    smallest = sizes[0]
    n_classes = len(sizes)
    v = _variances(mu, n_classes)
    error = math.sqrt(2 * v["classes"])  # of a size, which is the sum of two cells
    # Noise in the sizes as on average, the same for every call, and in no order that
    # sizes have.
    noisy = sizes + error * norm.ppf((np.arange(n_classes) + 0.5) * _GOLDEN % 1)
    if "bands" not in v:
        bands, of_bands = (each_class(n_classes), "classes")
    else:
        bands, of_bands = (bands_of(noisy, error), "bands")
    # Hits and misses of each band, if every class is as often right.
    table = np.outer(
        [rate, 1 - rate], np.bincount(bands.of_class, bands.weights * sizes)
    )
    intervals: dict[Number, Any] = {
        "accuracy": ratio(rate * n, (1 - rate) * n, v["totals"], 2 * v["totals"], z),
        "recall": ratio(
            rate * smallest, (1 - rate) * smallest, v["classes"], v["classes"], z
        ),
        "balanced_accuracy": balanced_accuracy(
            table, v[of_bands], bands, noisy, error, z
        ),
    }
    halves = {name: float(high - low) / 2 for name, (_, low, high) in intervals.items()}
    if smallest < _known_from(error, n_classes):
        halves["balanced_accuracy"] = 0.5
    return {name: half if half < 0.5 else None for name, half in halves.items()}
