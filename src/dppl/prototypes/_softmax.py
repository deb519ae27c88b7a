"""The arithmetic of softmax prototypes that no private record enters: public axes and post-processing of releases.

Everything here is a function of public rows, of the budget and of released values. Rows are in units of unit-norm
features and along the public axes, the eigenvectors of the public covariance. The constants are universal: they were
chosen on embeddings of three public data sets, over budgets of mu from 0.05 to 64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dppl.estimators.descent import Descent
from dppl.estimators.parameters import ROTATION
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.lattice import rotate

Float = NDArray[np.float64]

# With 12 to 30 gradients accuracy is the same within its error; fewer fit less at large budgets.
STEPS = 16
# While nothing is fitted, every residual is longer than this, and a shorter one loses signal and noise alike. Later
# those of fitted records are shorter and go unclipped against half of the noise that clipping at 1 would need.
CLIP = 0.5
# Share of a step's velocity that the next one keeps.
_MOMENTUM = 0.5
# The mean weighs classes alike as far as its noise stays below this share of a unit row.
_BALANCE = 0.1
# Longest step along a mean gradient: factor, power of the records a class, bound; more records bear a closer fit.
# Steps diverge beyond six over the largest eigenvalue of the features' second moment; centring leaves about 0.1 of it.
_CAP = 8.0, 1 / 3, 90.0
# The same where no class is small: the records a class are the harmonic mean of their numbers.
_CAP_IF_LARGE = 4.5, 0.48, 400.0
# Standard deviation of a logit that the noise of all gradients may add up to, per logarithm of the number of
# classes, as the largest of so many logits grows; and the least where classes are equally large.
_TOLERANCE, _LARGEST_TOLERANCE, _TOLERANCE_IF_LARGE = 0.58, 2.0, 1.2
# A gradient that points against the velocity by more standard deviations of its noise than this is an overshoot.
_OVERSHOOT = 3.0
# Length of the intercepts' step. Newton's is 1 for two classes at probabilities of 1/2; fitted scores are saturated.
_INTERCEPT_STEP = 1.5
# Variances of noise that the squared length of shortfalls has to pass: the mean of a chi-squared and so many of its
# standard deviations; for two classes, on the side that the released mean lets expect and on the other.
_SURPRISE = 2.0
_EXPECTED_SIDE, _OTHER_SIDE = 1.5, 9.0
# How class differences may spread over the axes: by which power of the public spectrum, ...
_EXPONENTS = np.array((0, 0.5, 1, 1.5, 2, 2.5, 3))
# ... and at which multiple of the noise.
_SCALES = 2.0 ** np.arange(-6, 11)
_PUBLIC_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Frame:
    """Public axes, and the coordinates in which rows become integers."""

    axes: Float  # shape (n_features, n_features); in columns
    center: Float  # shape (n_features,); mean of public unit rows along the axes; zero without any
    spectrum: Float  # shape (n_features,); share of each axis in the public second moment, of sum 1
    rotation: int | None  # of the lattice

    @classmethod
    def of(cls, public: RowSource | None, n_features: int) -> Self:
        """Fit the frame on public rows; without any, its axes are the coordinates and all alike."""
        if public is None:
            # Nothing tells whether the encoder has huge coordinates, which rounding would cut off.
            return cls(np.eye(n_features), np.zeros(n_features), np.full(n_features, 1 / n_features), ROTATION)
        total, products, count = np.zeros(n_features), np.zeros((n_features, n_features)), 0
        for u in map(Lattice(n_features).features, iter_blocks(public, _PUBLIC_ROWS)):
            kept = u[u.any(axis=1)]
            total += kept.sum(axis=0, dtype=np.float64)
            products += kept.T @ kept
            count += len(kept)
        mean = total / max(count, 1)
        _, ascending = np.linalg.eigh(products / max(count, 1) - np.outer(mean, mean))
        axes = ascending[:, ::-1]
        # Rows have length 1 again after the mean is taken off, so their moments are not the eigenvalues.
        energy = np.zeros(n_features)
        for f in map(Lattice(n_features, center=mean).features, iter_blocks(public, _PUBLIC_ROWS)):
            energy += np.square(f @ axes.astype(np.float32)).sum(axis=0, dtype=np.float64)
        moments = energy / energy.sum() if energy.any() else np.full(n_features, 1 / n_features)
        # One more row, spread over all axes: a small pool says nothing of those on which it has no rows.
        spectrum = (public.shape[0] * moments + 1) / (public.shape[0] + n_features)
        rotation = ROTATION if Lattice(n_features).loses_much(public) else None
        return cls(axes, mean @ axes, spectrum, rotation)

    def lattice(self, center: Float | None = None) -> Lattice:
        """Return the map to integer rows, which subtracts a `center` that is along the axes."""
        given = None if center is None else self.axes @ center
        return Lattice(len(self.axes), center=given, rotation=self.rotation)

    @property
    def basis(self) -> Float:
        """The axes in the coordinates of lattice rows, in columns."""
        return self.axes if self.rotation is None else rotate(self.axes.T, self.rotation).T


@dataclass(frozen=True, slots=True)
class ClassSizes:
    """Class sizes, which differ only as far as noisy counts differ by more than their noise."""

    total: float  # number of records, at least two a class
    sizes: Float  # shape (n_classes,); not below 0
    # what a class counts at least where sizes are divided by: the noise, or the mean size if that is smaller
    least: float
    noise_std: float  # standard deviation of the noise that is left in sizes
    shares: Float  # shape (n_classes,); above 0 and of sum 1

    @classmethod
    def of(cls, total: float, counts: Float, noise_std: float) -> Self:
        """Read them off a noisy number of records and noisy counts."""
        n_classes = len(counts)
        total = max(total, 2.0 * n_classes)
        # The part of the differences between counts that is no noise.
        trust = max(0.0, 1 - noise_std**2 / max(float(counts.var()), 1e-9))
        sizes = np.maximum(total / n_classes + trust * (counts - counts.mean()), 0)
        least = min(noise_std, total / n_classes)
        raised = sizes + least
        return cls(total, sizes, least, math.sqrt(trust) * noise_std, raised / raised.sum())

    @property
    def balancing(self) -> Float:
        """Weights of each class's records, 1 at most, with which all classes weigh alike."""
        return np.asarray(self.shares.min() / self.shares)

    def mean_weights(self, noise_std: float) -> Float:
        """Return weights from 0 to 1 of each class's records in a mean.

        `noise_std` is the length of the noise in the sum of weighted unit rows.

        A class weighs up to a limit, which is as low as the noise stays below a share of the sum: the smallest class,
        so that all weigh alike, if that is enough; and no limit if nothing is.
        """
        shares = np.sort(self.shares)
        needed = noise_std / (_BALANCE * self.total)
        # Cut to t, shares add up to the least of these lines in t: the k smallest whole, and t for each of the rest.
        rest = np.arange(len(shares), 0, -1)
        most = max(shares[0], float(((needed - np.cumsum(shares) + shares) / rest).max()))
        return np.asarray(np.minimum(1.0, most / self.shares))


def shrunken_mean(total: Float, weight: float, center: Float, noise_std: float) -> Float:
    """Return the mean of unit rows from their noisy weighted sum, drawn to a public one (James and Stein 1961).

    `weight` is the sum of the weights; `noise_std` is in each coordinate of `total`.
    """
    away = total - weight * center
    trust = max(0.0, 1 - len(away) * noise_std**2 / max(float(away @ away), 1e-300))
    mean = center + trust * away / weight
    return np.asarray(mean / max(1.0, float(np.linalg.norm(mean))))


def intercepts(shortfalls: Float, noise_std: float, sizes: ClassSizes, mean_weights: Float) -> Float:
    r"""Return intercepts with which classes that weigh alike are predicted equally often, as far as noise shows it.

    `shortfalls` are noisy sums of 1/C - p over records, those of a class weighing `ClassSizes.balancing`, with
    `noise_std` in each; `mean_weights` is what a record of each class weighed in the released mean.

    Divided by the records that each class then weighs, shortfalls are minus the gradient of the balanced softmax loss
    in the intercepts: 1 minus C times the share of predictions. They are believed as far as their squared length is
    beyond that of their noise (James and Stein 1961, with more caution). Where the mean of two classes could not be
    balanced, the boundary passes through the one that it leans to, which is predicted too seldom. That side is expected
    before any noise, so it is believed earlier, and the other later.
    """
    freedom = len(shortfalls) - 1
    shortfalls = shortfalls - shortfalls.mean()
    limit = freedom + _SURPRISE * math.sqrt(2 * freedom)
    lean = sizes.shares * mean_weights
    if len(lean) == 2 and not math.isclose(*lean):
        limit = _EXPECTED_SIDE if shortfalls[lean.argmax()] > 0 else _OTHER_SIDE
    trust = max(0.0, 1 - limit * noise_std**2 / max(float(shortfalls @ shortfalls), 1e-300))
    return np.asarray(_INTERCEPT_STEP * trust * shortfalls / (sizes.total * sizes.shares.min()))


class Ascent:
    """Weights of a softmax that follow noisy sums of clipped gradients, from zero and with momentum.

    `spectrum` is the public second moment of the features, of sum 1; `noise_std` is in each entry of a gradient.
    """

    def __init__(self, sizes: ClassSizes, spectrum: Float, noise_std: float) -> None:
        n_classes = len(sizes.sizes)
        self._spectrum, self._noise_std, self._class_size = spectrum, noise_std, sizes.total / n_classes
        # Harmonic over arithmetic mean of the shares: 1 for equal classes, near 0 where one is rare.
        balance = float(n_classes / np.mean(1 / sizes.shares))
        tolerance = max(_TOLERANCE * math.log(max(n_classes, 2)), _TOLERANCE_IF_LARGE * balance)
        self._tolerance = min(_LARGEST_TOLERANCE, tolerance)
        # Longer steps for small classes, whose gradients are short, but not for those that seem to be empty.
        caps = np.minimum(1, sizes.sizes / sizes.least) / np.sqrt(n_classes * sizes.shares)
        rules = (_CAP, self._class_size), (_CAP_IF_LARGE, balance * self._class_size)
        longest = max(min(bound, factor * size**power) for (factor, power, bound), size in rules)
        self._caps = np.maximum(caps * longest, 1e-9)
        self._path = Descent(n_classes, len(spectrum), momentum=_MOMENTUM)
        self._moves = 0
        self.weights: Float = self._path.coef

    def move(self, gradient: Float) -> None:
        """Take a step along a noisy gradient, of shape (n_classes, dim)."""
        # The velocity was there before the gradient's noise, so their product has noise of the velocity's length.
        limit = -_OVERSHOOT * self._noise_std * float(np.linalg.norm(self._path.velocity))
        if float((gradient * self._path.velocity).sum()) < limit:
            self._caps = self._caps / 2
        self._path.move((1 - _MOMENTUM) * gradient)
        self._moves += 1
        # What each gradient so far weighs in the path.
        shares = 1 - _MOMENTUM ** np.arange(1, self._moves + 1)
        factors = axis_filter(self._path.coef, self._noise_std**2 * float(shares @ shares), self._spectrum)
        noise = self._noise_std * math.sqrt(STEPS * float(factors**2 @ self._spectrum)) / self._class_size
        steps = 1 / (self._class_size * (1 / self._caps + noise / self._tolerance))
        self.weights = steps[:, None] * self._path.coef * factors


def axis_filter(path: Float, variance: float, spectrum: Float) -> Float:
    """Return a factor for each axis by which sums of gradients are best believed, 1 at most.

    `path` has shape (n_classes, dim), with noise of `variance` in each entry.

    Differences between classes are taken for Gaussian, with variances that follow a power of the public spectrum, plus
    the noise. The factors are the roots of Wiener's, averaged over powers and scales by their marginal likelihood; a
    unit of the power costs as much as it adds for free, the logarithm of the number of axes. Where the spectrum is
    flat, all factors are 1.
    """
    freedom, dim = len(path) - 1, path.shape[1]
    energy = np.square(path - path.mean(axis=0)).sum(axis=0) / variance
    powers = spectrum ** _EXPONENTS[:, None, None]
    # In units of the noise, which is the 1; of shape (n_exponents, n_scales, dim).
    total = 1 + _SCALES[:, None] * powers * (dim / powers.sum(axis=-1, keepdims=True))
    evidence = -0.5 * (freedom * np.log(total) + energy / total).sum(axis=-1)
    evidence -= 2 * math.log(dim) * _EXPONENTS[:, None]
    likelihood = np.exp(evidence - evidence.max())
    factors = np.tensordot(likelihood, 1 - 1 / total, axes=2)
    return np.asarray(np.sqrt(factors / factors.max()))
