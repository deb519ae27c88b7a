"""Estimates and intervals from noisy tables: pure functions of released numbers.

`v` is the variance of the noise in a cell, in records squared, and z the normal
quantile of the interval. Every function returns an estimate, a lower and an upper end,
which cover sampling and noise alike. An interval from 0 to 1 says that the number is
lost in noise.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._utils.types import Flags, Float
from dppl.kernel.queries.outcomes import TEMPERATURES

Interval: TypeAlias = tuple[Any, Any, Any]  # estimate, lower end, upper end

# A class size counts as known from this many standard errors on.
KNOWN = 3.0
# Share of the error probability that is spent on the noisy number of answers.
_OF_NUMBER = 0.1
# Known classes are in one band if their sizes differ by less than this factor; this
# many bands at most.
_FACTOR = 3.0
_MOST_BANDS = 6


def ratio(
    hits: ArrayLike,
    misses: ArrayLike,
    v_hits: ArrayLike,
    v_misses: ArrayLike,
    z: float,
    design: float = 1.0,
) -> Interval:
    """Return the share of hits among hits and misses.

    Of all shares a it holds those with ((1-a)·h - a·m)² ≤ z²·(N·a(1-a) + (1-a)²·v_h +
    a²·v_m), the roots of a quadratic: Wilson's interval (1927, J. Amer. Statist. Assoc.
    22) without noise, Fieller's (1954, J. Roy. Statist. Soc. B 16) where the number of
    records is large. The lower end is 0 exactly if h ≤ z·√v_h, the upper end 1 exactly
    if m ≤ z·√v_m. `design` multiplies the sampling variance.

    >>> [round(float(end), 3) for end in ratio(80, 20, 0, 0, 1.645)]
    [0.8, 0.727, 0.858]
    """
    vh = np.asarray(v_hits, np.float64)
    vm = np.asarray(v_misses, np.float64)
    h, m = (np.maximum(np.asarray(one, np.float64), 0.0) for one in (hits, misses))
    n = h + m
    sampling = np.maximum(n, 1) * design
    estimate = np.where(n > 0, h / np.maximum(n, 1e-9), 0.5)
    # Coefficients of a², a and 1 in the inequality, all on one side.
    a = n * n + z * z * (sampling - vh - vm)
    b = -2 * h * n - z * z * (sampling - 2 * vh)
    c = h * h - z * z * vh
    root = np.sqrt(np.maximum(b * b - 4 * a * c, 0))
    with np.errstate(
        all="ignore"
    ):  # where a is 0 there is one root, and the ends are 0 and 1 or next to it
        roots = np.sort(
            np.stack([(-b - root) / (2 * a), (-b + root) / (2 * a)]), axis=0
        )
    low = np.where(
        roots[1] < estimate, roots[1], roots[0]
    )  # the root next to the estimate, on its side
    high = np.where(roots[0] > estimate, roots[0], roots[1])
    low = np.where((c <= 0) | ~np.isfinite(low), 0, np.clip(low, 0, estimate))
    high = np.where(
        (m * m <= z * z * vm) | ~np.isfinite(high), 1, np.clip(high, estimate, 1)
    )
    return estimate, low, high


def count(value: ArrayLike, v: ArrayLike, z: float) -> Interval:
    """Return a number of records, which is not negative; it covers the noise, as the records are those at hand."""
    noisy = np.asarray(value, np.float64)
    half = z * np.sqrt(np.asarray(v, np.float64))
    return (
        np.maximum(noisy, 0.0),
        np.maximum(noisy - half, 0.0),
        np.maximum(noisy + half, 0.0),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """Classes of similar size, by released sizes: what is asked of a band is a mean over its classes."""

    of_class: NDArray[np.intp]  # shape (n_classes,)
    weights: (
        Float  # shape (n_classes,); at most 1, so that classes of a band weigh alike
    )
    tail: Flags  # shape (n_bands,); whether sizes in a band are lost in noise


def bands_of(sizes: Float, error: float) -> Bands:
    """Cut classes whose noisy size is known into bands by factors of 3 from the largest; all others are the tail."""
    known = sizes >= KNOWN * error
    # The number of a band is the logarithm, to the base 3, of how much smaller than the
    # largest its classes are.
    below_largest = max(float(sizes.max()), 1e-9) / np.maximum(sizes, 1e-9)
    number = np.minimum(
        np.floor(np.log(below_largest) / np.log(_FACTOR)), _MOST_BANDS - 1
    )
    _, of_class = np.unique(np.where(known, number, _MOST_BANDS), return_inverse=True)
    weights = np.ones(len(sizes))
    tail = np.zeros(int(of_class.max()) + 1, bool)
    for band in range(len(tail)):
        inside = of_class == band
        tail[band] = not known[inside].all()
        # A record of a larger class weighs less, so that a sum over records is a sum of
        # recalls.
        if not tail[band]:
            weights[inside] = sizes[inside].min() / sizes[inside]
    return Bands(of_class, weights, tail)


def each_class(n_classes: int) -> Bands:
    """Return bands of one class each, for few classes."""
    return Bands(np.arange(n_classes), np.ones(n_classes), np.zeros(n_classes, bool))


def balanced_accuracy(
    table: Float, v: float, bands: Bands, sizes: Float, error: float, z: float
) -> Interval:
    """Return the mean recall of the classes, from hits and misses of bands, shape (2, n_bands).

    Recalls of bands are not limited to [0, 1] before they are added up, which would
    make them biased. A band that is lost in noise counts as [0, 1]. In the tail sizes
    are unknown. If none is above F, the largest noisy size and its error, Σ recall ≥
    hits/F and Σ (1 - recall) ≥ misses/F, which bound the mean recall without any
    assumption. The estimate is NaN where there are bounds alone: their middle would be
    a guess.
    """
    n_classes = len(bands.of_class)
    n_bands = len(bands.tail)
    in_band = np.bincount(bands.of_class, minlength=n_bands)
    n = table.sum(axis=0)
    lost = n < KNOWN * np.sqrt(2 * v)
    records = np.where(lost, 1.0, np.maximum(n, 1.0))
    recall = np.where(lost, 0.5, table[0] / records)
    p = np.clip((table[0] + 2) / (records + 4), 0.02, 0.98)  # for the variance alone
    variance = np.where(
        lost, 0.0, (records * p * (1 - p) + ((1 - p) ** 2 + p**2) * v) / records**2
    )
    # Bounds of a tail are wider by `spread`; noisy sizes of known classes add
    # `of_sizes` to the variance.
    spread = np.ones(n_bands)
    of_sizes = np.zeros(n_bands)
    for band in range(n_bands):
        inside = sizes[bands.of_class == band]
        if (
            bands.tail[band] and len(inside) > 1
        ):  # the largest plausible class over the mean class
            spread[band] = max(
                (max(float(inside.max()), 0.0) + error) * len(inside) / records[band],
                1.0,
            )
        elif not lost[band] and len(inside) > 1:  # weights rest on noisy sizes
            of_sizes[band] = (
                np.mean((error / inside) ** 2) * p[band] * (1 - p[band]) / len(inside)
            )
    low = np.where(lost, 0, recall / spread)
    high = np.where(lost, 1, 1 - (1 - recall) / spread)
    share = in_band / n_classes
    half = z * np.sqrt(np.sum(share**2 * (variance / spread**2 + of_sizes)))
    ends = np.clip([share @ low - half, share @ high + half], 0, 1)
    if lost.any() or (spread > 1).any():
        middle = np.nan
    else:
        middle = np.clip(share @ recall, *ends)
    return middle, ends[0], ends[1]


def mean_ratio(
    hits: Float, misses: Float, v_hits: float, v_misses: float, z: float, design: float
) -> Interval:
    """Return the mean over classes of the share of hits among hits and misses, of shape (n_classes,) each.

    Shares are not limited to [0, 1] before they are added up, and the bias of a
    quotient of noisy numbers is taken off in its first order. Of classes that are lost
    in noise, bounds are known as in `balanced_accuracy`: none is above F, so their
    shares add up to hits/F or more. The estimate is NaN then. `design` multiplies the
    sampling variance: errors of classes may agree where a record enters so many of them
    (Cauchy and Schwarz).
    """
    n = hits + misses
    error = np.sqrt(v_hits + v_misses)
    lost = n < KNOWN * error
    records = np.where(lost, 1.0, np.maximum(n, 1.0))
    share = hits / records
    share = np.where(
        lost, 0.0, share + (v_hits - share * (v_hits + v_misses)) / records**2
    )
    p = np.clip((hits + 2) / (records + 4), 0.02, 0.98)  # for the variance alone
    variance = (
        design * records * p * (1 - p) + (1 - p) ** 2 * v_hits + p**2 * v_misses
    ) / records**2
    # That a class is known tells of its noise, which is then no longer 0 in the mean.
    # Simulated, not proven.
    chosen = np.where(lost, 0.0, 3 * (v_hits + v_misses) / records**2)
    known = float(np.sum(np.where(lost, 0.0, variance)))
    low = share.sum() - z * np.sqrt(known)
    high = share.sum() + lost.sum() + z * np.sqrt(known)
    if lost.any():
        largest = max(float(n[lost].max()), 0.0) + error
        pooled = hits[lost].sum(), misses[lost].sum()
        m = max(sum(pooled), 1.0)
        q = np.clip(pooled[0] / m, 0.02, 0.98)
        sampling = design * m * q * (1 - q)
        of_hits, of_misses = (
            z * np.sqrt(known + (sampling + lost.sum() * v) / largest**2)
            for v in (v_hits, v_misses)
        )
        low = max(low, share.sum() + pooled[0] / largest - of_hits)
        rest = lost.sum() - pooled[1] / largest
        high = min(high, share.sum() + rest + of_misses)
    ends = np.array([low - chosen.sum(), high + chosen.sum()]) / len(n)
    low, high = np.clip(ends, 0, 1)
    return np.nan if lost.any() else np.clip(share.mean(), low, high), low, high


def auroc(histogram: Float, v: float, z: float) -> Interval:
    """Return the probability that a record of the second class scores above one of the first, shape (2, n_bins).

    Rows are the two classes. Cells are not limited to 0, which would make sums biased.
    Pairs within a bin count half. That may be off by half of them at most. Pairs of
    neighbouring bins, minus those the other way around, show how fast the odds change:
    if evenly, it is off by a twelfth of them. Twice that is allowed, and more where a
    bin has much of both classes. Simulated, not proven.
    """
    negative, positive = histogram
    n_bins = len(positive)
    n = float(positive.sum())
    m = float(negative.sum())
    if min(n, m) < KNOWN * np.sqrt(v * n_bins):
        return 0.5, 0.0, 1.0
    # For each bin, the share of the other class that is on its right side: the
    # statistic of Mann and Whitney (1947).
    below = (np.cumsum(negative) - negative / 2) / m
    above = 1 - (np.cumsum(positive) - positive / 2) / n
    a = float(positive @ below / n)
    # Variances of ranks need shares that are none below 0, and are biased by that; the
    # estimate is not.
    p = np.maximum(positive, 0)
    q = np.maximum(negative, 0)
    p = p / p.sum()
    q = q / q.sum()
    noise = v * (
        np.sum((below - a) ** 2) / n**2
        + np.sum((above - a) ** 2) / m**2
        + v * n_bins / 3 / (n * m) ** 2
    )
    of_positive, of_negative = (
        min(float(share @ (np.clip(rank, 0, 1) - a) ** 2), 0.25)
        for share, rank in ((p, below), (q, above))
    )
    half = z * np.sqrt(noise + of_positive / n + of_negative / m)
    pairs = p * q
    next_to = positive[1:] @ negative[:-1] - positive[:-1] @ negative[1:]
    half += min(
        float(pairs.sum()) / 2, abs(float(next_to)) / (n * m) / 6 + float(pairs @ pairs)
    )
    return float(np.clip(a, 0, 1)), max(a - half, 0.0), min(a + half, 1.0)


def answered_from(
    right: Float, wrong: Float, v: float, max_error: float, confidence: float
) -> int | None:
    """Return the lowest range of confidence from which on at most `max_error` of the answers are wrong, or None.

    Thresholds are tested from the highest down, each at an equal share of 1 -
    `confidence`, to which one that passes adds the level at which it passed: the
    fallback procedure (Wiens 2003, Pharmaceutical Statistics 2), one of the graphs of
    Angelopoulos et al. (2021, Learn then test, arXiv:2110.01052). However the tests
    depend on each other, one that should not passes with probability 1 - `confidence`
    at most. No share goes to thresholds that would not pass without a single wrong
    answer (Tarone 1990, Biometrics 46), which the number of answers shows.
    """
    answered = np.cumsum((right + wrong)[::-1])
    wrong = np.cumsum(wrong[::-1])
    noise = v * np.arange(1, len(wrong) + 1)
    able = [
        keeps_error(0, n, noisy, max_error, 1 - confidence)
        for n, noisy in zip(answered, noise, strict=True)
    ]
    share = (1 - confidence) / max(sum(able), 1)
    level = 0.0
    lowest = None
    for place in np.flatnonzero(able).tolist():
        level += share
        if keeps_error(wrong[place], answered[place], noise[place], max_error, level):
            lowest = len(wrong) - 1 - place
        else:
            level = 0.0
    return lowest


def keeps_error(
    wrong: float, answered: float, v: float, max_error: float, level: float
) -> bool:
    """Return whether noisy numbers show that fewer than `max_error` of answers are wrong, at a level of significance.

    Of n answers, were the error as large, wrong - max_error·n would be a binomial less
    its mean, plus noise: exact, and less likely to be as low the smaller n is. So n is
    raised by its noise, at a part of the level.
    """
    from scipy.stats import binom, norm  # here, because it is slow to import

    of_number = _OF_NUMBER * level if v else 0.0
    n = max(
        0, int(np.ceil(answered + (norm.isf(of_number) * np.sqrt(2 * v) if v else 0.0)))
    )
    below = wrong - max_error * answered
    half = int(10 * np.sqrt(n * max_error * (1 - max_error))) + 10
    possible = np.arange(
        max(0, int(n * max_error) - half), min(n, int(n * max_error) + half) + 1
    )
    chance = binom.pmf(possible, n, max_error)
    excess = below - (possible - max_error * n)
    # Noise of wrong answers counts 1 - max_error, and of right ones max_error.
    spread = np.sqrt(v * ((1 - max_error) ** 2 + max_error**2))
    likely = norm.cdf(excess / spread) if v else excess > -0.5
    beyond = 1 - chance.sum()
    return bool(chance @ likely + beyond <= level - of_number)


def gap(
    sums: Float, v: float, accuracy: float, n: float, v_n: float, z: float
) -> Interval:
    """Return mean confidence c minus accuracy a, from sums at each of `TEMPERATURES`, in records.

    The variance of confidence minus right answer is at most a(1-a) where confidence is
    as often right as it says, and at most c(1-c) where all answers are alike. The
    larger one is taken, which is no bound if both are unrelated.
    """
    total = float(sums[TEMPERATURES.index(1.0)])
    confidence = float(np.clip(accuracy + total / max(n, 1.0), 0, 1))
    spread = max(accuracy * (1 - accuracy), confidence * (1 - confidence))
    return _signed_share(total, max(n, 0.0) * spread + v, n, v_n, z)


def difference(
    signed: float, v_signed: float, differ: float, same: float, v: float, z: float
) -> Interval:
    """Return how much more often the first of two classifiers is right than the second, as a share of all records.

    `signed` counts records that only the first is right about, minus those that only
    the second is right about. Each of the `differ` records adds 1 at most to its
    variance; their noisy number counts a standard deviation more.
    """
    return _signed_share(
        signed, max(differ + np.sqrt(v), 0.0) + v_signed, differ + same, 2 * v, z
    )


def _signed_share(total: float, v: float, n: float, v_n: float, z: float) -> Interval:
    """Return total/n by Fieller's interval, all d with (total - d·n)² ≤ z²·(v + d²·v_n); anything if noise hides n."""
    a = n * n - z * z * v_n
    if n < KNOWN * np.sqrt(v_n) or a <= 0:
        return 0.0, -1.0, 1.0
    middle = total * n / a
    half = z * np.sqrt(a * v + total * total * v_n) / a
    estimate, low, high = np.clip(
        [total / n, middle - half, middle + half], -1, 1
    ).tolist()
    return estimate, low, high


def temperature(sums: Float) -> float:
    """Return where sums at `TEMPERATURES` cross 0, linear in the logarithm; the nearest end if they do not.

    A higher temperature lowers confidence, so without noise the sums fall.
    """
    logs = np.log(TEMPERATURES)
    falling = np.minimum.accumulate(sums)
    return float(np.exp(np.interp(0.0, -falling, logs)))
