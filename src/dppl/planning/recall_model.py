"""Expected recall of a class, from public numbers: signal over noise, and how many other classes there are.

A record is distinguished from the other classes with a strength D, its detectability:
its own class wins if a standard normal variable plus D is larger than one such variable
for every other class (signal detection with several alternatives). So recall is at
least chance and at most 1. The variance 1/D² is a sum::

    1/D² = s · (floor + e),    e = 1/n + noise · (d / 384)^width / (n_s · spend)²,    n_s = n · (n / n_mean)^share

`s` says how hard the classes are to distinguish without privacy. `floor` is what the
method loses even so, 1/n stands for few records, and the last term for the noise: n_s
is the number of records of the class, less if other classes have more, d the number of
features, and `spend` the cost in mu (or, where public rows are selected, the epsilon of
the selection). What the names of classes tell is a second estimate of a class, whose
variance no budget changes: 1 / (1/e + 1/names) replaces e. `benchmarks/planning.py`
fits the constants; docs/planning.md says how far they are off.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr

from dppl._utils.types import Float
from dppl.kernel.privacy import Budget

# Of features; any number does, as `noise` is relative to it.
USUAL_WIDTH = 384
# Both are (accuracy without privacy, classes) of calibration sets.
EASY = (0.931, 77)
HARD = (0.738, 10)
MIDDLE_TABLE = (0.848, 2)  # as hard as the calibration sets that are tables, on average
# The trapezoidal rule, which is exact to rounding for smooth integrands that vanish at
# both ends.
_POINTS = np.linspace(-9, 9, 181)
_WEIGHTS = np.exp(-np.square(_POINTS) / 2) / np.exp(-np.square(_POINTS) / 2).sum()
_STRONGEST = 12.0
# Ends of ranges are multiples of a twentieth.
_STEPS = 20


@dataclass(frozen=True, slots=True)
class Law:
    """Constants of a method."""

    floor: float  # variance that neither records nor budget take away, relative to that without privacy
    noise: float  # variance of the noise with 384 features, one record and a cost of 1
    width: float  # power of the number of features
    share: float  # how much a class loses to larger ones
    # factor of the variance, up and down, within which four of five classes of the
    # calibration sets lay
    spread: float = 1.0
    wide: float = 1.0  # the same where the accuracy without privacy is unknown
    # variance of what the names of classes tell, where a fit starts from them; infinite
    # where it does not
    names: float = math.inf


def recall(detectability: ArrayLike, n_classes: ArrayLike) -> Float:
    """Return the probability that the own class wins against all others."""
    # Green and Swets (1966), Signal detection theory and psychophysics, section 2.6:
    # m-alternative forced choice.
    several = np.asarray(n_classes, float)
    logs = log_ndtr(_POINTS + np.asarray(detectability, float)[..., None])
    return np.asarray(
        np.clip(np.exp((several[..., None] - 1) * logs) @ _WEIGHTS, 1 / several, 1)
    )


def hardness(accuracy: float, n_classes: int) -> float:
    """Return the variance s at which classes are distinguished with this balanced accuracy without privacy."""
    most = float(recall(_STRONGEST, n_classes))
    return float(
        brentq(
            lambda d: float(recall(d, n_classes)) - min(accuracy, most), 0.0, _STRONGEST
        )
        ** -2
    )


def variance(
    law: Law,
    s: ArrayLike,
    sizes: ArrayLike,
    mean_size: ArrayLike,
    n_features: ArrayLike,
    spend: ArrayLike,
) -> Float:
    """Return 1/D² of classes of these sizes and `hardness` s; see the module."""
    n = np.asarray(sizes, float)
    effective = n * (n / np.asarray(mean_size, float)) ** law.share
    wide = (np.asarray(n_features, float) / USUAL_WIDTH) ** law.width
    noise = law.noise * wide / np.square(effective * np.asarray(spend, float))
    learnt = 1 / n + noise
    return np.asarray(
        np.asarray(s, float) * (law.floor + learnt / (1 + learnt / law.names))
    )


def recall_range(
    v: ArrayLike, n_classes: ArrayLike, factor: float
) -> tuple[Float, Float]:
    """Return both ends of recalls, rounded outwards to twentieths, where the variance may be off by `factor`."""
    # At the low end only what exceeds chance counts: a classifier that misses a class
    # may give its name to hardly any record, less often than chance would.
    v = np.asarray(v, float)
    chance = 1 / np.asarray(n_classes, float)
    low, high = (
        recall(1 / np.sqrt(v * scale), n_classes) for scale in (factor, 1 / factor)
    )
    beyond = (low - chance) / (1 - chance)
    return np.floor(_STEPS * beyond) / _STEPS, np.ceil(_STEPS * high) / _STEPS


def share_found(
    law: Law, s: ArrayLike, recalls: ArrayLike, n_classes: ArrayLike
) -> Float:
    """Return how much of what could be learnt of a class without noise a recall is; chance is 0."""
    chance = 1 / np.asarray(n_classes, float)
    best = recall(1 / np.sqrt(law.floor * np.asarray(s, float)), n_classes)
    return np.asarray((np.asarray(recalls, float) - chance) / (best - chance))


def spend(method: str, budget: Budget) -> float:
    """Return the cost in the last term: mu of the noise, or the epsilon of a selection of public rows."""
    if method == "public":
        return budget.selection_epsilon()
    return budget.gaussian_allowance().mu


def usual_hardness(*, table: bool = False) -> float:
    """Return the middle between the easy and the hard calibration set."""
    if table:
        return hardness(*MIDDLE_TABLE)
    return math.sqrt(hardness(*EASY) * hardness(*HARD))


# By method, and whether it has public rows.
LAWS: dict[tuple[str, bool], Law] = {
    ("softmax", False): Law(1.19, 159, 0.582, 0.434, 1.79, 2.32),
    ("softmax", True): Law(1.16, 144, 0.48, 0.319, 1.65, 2.27),
    ("mean", False): Law(1.27, 469, 1.8, 1.09, 2.61, 3.13),
    ("public", True): Law(3.12, 951, 1.03, 0.223, 2.66, 3.46),
}
# Softmax on the columns of a table, by balanced accuracies.
TABLE = Law(1.66, 1200, 0.0, 0.136, 1.68, 3.9)
# By whether there are public rows: softmax from the names of classes. Ranges stay, and
# hold more than four of five.
NAMED: dict[bool, Law] = {
    public: replace(LAWS["softmax", public], names=variance)
    for public, variance in ((False, 1.14), (True, 1.39))
}
