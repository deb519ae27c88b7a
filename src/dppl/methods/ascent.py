"""From released gradients to weights: how long the steps are, along which axes, and how much of them is believed.

Rows are in units of unit-norm features and along the public axes, the eigenvectors of
the public covariance. Constants were chosen on embeddings of three public data sets,
over budgets of mu from 0.05 to 64.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dppl._utils.types import Float
from dppl.kernel.lattice.lattice import rotate
from dppl.methods.sizes import ClassSizes

# With 12 to 30 gradients accuracy is the same within its error; fewer fit less at large
# budgets.
STEPS = 16
# While nothing is fitted, all residuals are longer, and a shorter clip loses signal and
# noise alike. Later residuals of fitted records are shorter and go unclipped against
# half of the noise that clipping at 1 would need.
CLIP = 0.5
# Share of a step's velocity that the next one keeps.
_MOMENTUM = 0.5
# Longest step along a mean gradient: factor, power of the records a class, bound; more
# records bear a closer fit. Steps diverge beyond six over the largest eigenvalue of the
# features' second moment; centring leaves about 0.1 of it.
_CAP = 8.0, 1 / 3, 90.0
# The same where no class is small: the records a class are the harmonic mean of their
# numbers.
_CAP_IF_LARGE = 4.5, 0.48, 400.0
# Standard deviation of a logit that the noise of all gradients may add up to, per
# logarithm of the number of classes, as the largest of so many logits grows; and the
# least where classes are equally large. Classes smaller than the middle one bear more,
# by the root of how much smaller: else logits of larger neighbours drown theirs.
_TOLERANCE = 0.58
_LARGEST_TOLERANCE = 2.0
_TOLERANCE_IF_LARGE = 1.2
# Percentage of mu² for the second moment, times the number of classes and at most. With
# more classes or features it is not asked for: there it bought nothing, or its noise
# takes longer than the rest of a fit.
_MOMENT_PERCENT = 10.0, 5.0
_MOST_CLASSES = 20
_MOST_FEATURES = 2048
# Longest step where classes have more records than features and curvature is known, in
# units of one over what the second moment's noise hides.
_REACH = 12.0
# Newton's steps that the sum of all steps is worth along axes of known curvature.
_NEWTON_STEPS = 6.0
# Powers of the second moment in which its largest axes are looked for, and what names
# the rotation of what they are taken of: no coordinates of rows, some of which may be 0.
_POWERS = 8
_START = 1
# How much longer the squared second moment of rows is than that of round ones, from
# which on they do not count as round: 0.1 for ten round clusters that overlap, 0.7 for
# images of digits, 3 to 22 for embeddings of texts and images.
_NOT_ROUND = 0.5
# A gradient that points against the velocity by more standard deviations of its noise
# than this is an overshoot.
_OVERSHOOT = 3.0
# How class differences may spread over the axes: by which power of the public spectrum,
# ...
_EXPONENTS = np.array((0, 0.5, 1, 1.5, 2, 2.5, 3))
# ... and at which multiple of the noise.
_SCALES = 2.0 ** np.arange(-6, 11)


def moment_percent(n_classes: int, n_features: int) -> float:
    """Return the percentage of mu² for the second moment; 0 where it is not asked for."""
    if n_classes > _MOST_CLASSES or n_features > _MOST_FEATURES:
        return 0
    of_classes, most = _MOMENT_PERCENT
    return min(most, of_classes / n_classes)


@dataclass(frozen=True, slots=True)
class NoisyMoment:
    """A noisy sum of f·fᵀ over centred unit rows f."""

    total: Float  # shape (n_features, n_features); along the axes of lattice rows
    noise_std: float  # of its diagonal
    basis: Float  # the public axes in the coordinates of lattice rows, in columns

    @property
    def hidden(self) -> float:
        """Largest eigenvalue of the noise, which fill a semicircle."""
        return math.sqrt(2 * len(self.total)) * self.noise_std

    def roundness(self, size: float) -> float:
        """Return how alike so many unit rows are along all axes, from 0 to 1.

        The squared length of their moment is size²/dim at least, and that if they are
        round. What is found is raised by its noise's standard deviation, and by the
        square, so that rows of which noise hides all are not round.
        """
        dim = len(self.total)
        unit = dim * (self.noise_std / size) ** 2
        cells = dim * (dim + 1)  # twice as many as have noise of their own
        found = dim * float(np.square(self.total).sum()) / size**2 - unit * cells / 2
        std = unit * math.sqrt(cells)
        return float(np.clip(1 - (found - 1 + std + std**2) / _NOT_ROUND, 0, 1))


@dataclass(frozen=True, slots=True)
class Curvature:
    """Axes and spectrum of the rows that a fit is of, by which steps are shorter along large axes.

    The last entry of `spectrum`, `bend` and `counts` is of what no axis is along.
    """

    axes: Float  # shape (n_features, k); in columns
    spectrum: Float  # shape (k + 1,); share of each axis, of sum 1 over `counts`
    bend: Float  # shape (k + 1,); what it adds to the inverse of a step
    counts: Float  # shape (k + 1,); how many axes there are of each kind

    @classmethod
    def of(cls, moment: NoisyMoment, size: float, worth: float) -> Self:
        """Draw a noisy moment of so many rows to that of rows without a direction; `worth` from 0 to 1 weighs it.

        Of a difference from it that is beyond the noise's eigenvalues, an eigenvector
        holds the root of what the squares differ by (Benaych-Georges, Nadakuditi 2011,
        arXiv:0910.2120). All other axes are alike.
        """
        dim = len(moment.total)
        flat = size / dim
        away, axes = _largest(
            moment.total - flat * np.eye(dim), math.ceil(size / moment.hidden / 8)
        )
        beyond = np.abs(away) > moment.hidden
        away = away[beyond]
        true = np.sign(away) * np.sqrt(away**2 - moment.hidden**2)
        found = np.maximum(flat + np.append(true, 0), 1e-9 * flat)
        counts = np.append(np.ones(len(away)), dim - len(away))
        found /= found @ counts
        return cls(
            moment.basis.T @ axes[:, beyond],
            found,
            worth * found / _NEWTON_STEPS,
            counts,
        )

    def damping(self, noise: Float, start: Float) -> Float:
        """Return what to add to the inverse of each class's steps, at which the noise of a logit is 1.

        `noise` is that at steps of length 1. It falls with what is added, so halving an
        interval of logarithms finds it.
        """
        low = 1e-3 * start
        high = start
        for _ in range(12):
            middle = np.sqrt(low * high)
            squares = self.spectrum / (self.bend + middle[:, None]) ** 2
            above = noise**2 * (squares @ self.counts) > 1
            low = np.where(above, middle, low)
            high = np.where(above, high, middle)
        return high

    def stepped(self, path: Float, lengths: Float) -> Float:
        """Return a path whose rows are so long along each kind of axis, by `lengths` of shape (n_classes, k + 1)."""
        rest = lengths[:, -1:]
        return rest * path + (path @ self.axes * (lengths[:, :-1] - rest)) @ self.axes.T


def _largest(matrix: Float, count: int) -> tuple[Float, Float]:
    """Return the eigenvalues of a symmetric matrix that are largest in size, several times `count`, and their vectors.

    All of them take most of the time of a fit. Of few, powers of the matrix times a few
    vectors hold all but what is close to the many small ones (block Krylov; Musco,
    Musco 2015, arXiv:1504.05477). In float32 both take half as long.
    """
    dim = len(matrix)
    matrix = matrix.astype("float32")
    if 2 * _POWERS * count > dim:
        return np.linalg.eigh(matrix)
    block = rotate(np.eye(count, dim), _START).T.astype("float32")
    blocks = []
    for _ in range(_POWERS):
        block, _ = np.linalg.qr(matrix @ block)
        blocks.append(block)
    within, _ = np.linalg.qr(np.hstack(blocks))
    values, axes = np.linalg.eigh(within.T @ matrix @ within)
    return values, within @ axes


@dataclass(frozen=True, slots=True, eq=False)
class PooledPath:
    """What an ascent goes on from: class by class a weighted sum of an earlier fit's path and of its own gradients."""

    path: Float  # shape (n_classes, dim); the earlier one, weighed
    variance: Float  # shape (n_classes,); of the noise in each coordinate of it
    weights: Float  # shape (n_classes,); what own gradients weigh
    sizes: ClassSizes  # records that both together count as
    # Shapes (n_classes, dim); what is kept of the moves before, their sum and the last.
    own: Float
    velocity: Float
    moves: int
    intercepts: Float  # shape (n_classes,); of the earlier fit, as far as believed

    @classmethod
    def of_nothing(cls, sizes: ClassSizes, dim: int) -> Self:
        """Return that of an ascent from zero."""
        n_classes = len(sizes.sizes)
        path = np.zeros((n_classes, dim))
        none = np.zeros(n_classes)
        return cls(path, none, np.ones(n_classes), sizes, path, path, 0, none)


class Ascent:
    """Weights of a softmax that follow noisy sums of clipped gradients with momentum, from zero or from a pool."""

    def __init__(
        self,
        sizes: ClassSizes,
        spectrum: Float,
        noise_std: float,
        moment: NoisyMoment | None = None,
        pool: PooledPath | None = None,
    ) -> None:
        self._pool = pool or PooledPath.of_nothing(sizes, len(spectrum))
        self.intercepts = self._pool.intercepts
        n_records = sizes.total
        sizes = self._pool.sizes
        self.sizes = sizes
        n_classes = len(sizes.sizes)
        self._spectrum = spectrum
        self.noise_std = noise_std
        self._class_size = sizes.total / n_classes
        # Harmonic over arithmetic mean of the shares: 1 for equal classes, near 0 where
        # one is rare.
        balance = float(n_classes / np.mean(1 / sizes.shares))
        tolerance = max(
            _TOLERANCE * math.log(max(n_classes, 2)), _TOLERANCE_IF_LARGE * balance
        )
        tolerance = min(_LARGEST_TOLERANCE, tolerance)
        middle = np.quantile(sizes.shares, 0.5, method="lower")
        rarity = np.sqrt(np.maximum(1, middle / sizes.shares))
        # Standard deviation of the noise in the whole path, once all gradients are in.
        noise = np.sqrt(
            self._pool.variance + (self._pool.weights * noise_std) ** 2 * STEPS
        )
        # What it adds to the inverse of a step of which no axis is taken out.
        self._damping = noise / (self._class_size * tolerance * rarity)
        harmonic = balance * self._class_size
        # Longer steps for small classes, whose gradients are short, but half as long for
        # those that seem to be empty: noise may hide one that is not.
        caps = np.minimum(1, (sizes.sizes + sizes.least) / (2 * sizes.least))
        caps /= np.sqrt(n_classes * sizes.shares)
        rules = (_CAP, self._class_size), (_CAP_IF_LARGE, harmonic)
        longest = max(
            min(bound, factor * size**power) for (factor, power, bound), size in rules
        )
        self._curvature: Curvature | None = None
        # 1 for rows as of equal, round clusters, whose means are the best classifier:
        # gradients are taken at weights of zero, and add up to class sums.
        self._round = 0.0
        if moment is not None:
            self._round = balance * moment.roundness(n_records)
            known = 2 * n_records / moment.hidden
            longer = max(longest, min(harmonic**2 / len(spectrum), _REACH * known))
            # 0 to 1: how much longer this makes a step that noise shortens, too.
            damping = np.median(self._damping)
            worth = 1 - ((1 / longer + damping) / (1 / longest + damping)) ** 2
            worth *= 1 - self._round
            if worth > 0:
                longest = longer
                self._curvature = Curvature.of(moment, n_records, worth)
        # Of a round cluster, the best weights are its mean over the variance along an
        # axis, 1/dim. Its gradients are CLIP times its sum each, so a step is as long.
        of_round = len(spectrum) / (CLIP * STEPS)
        longest /= 1 - self._round + self._round * longest / of_round
        self._longest = longest
        # Weights of round clusters are as long for small classes, whose sums are short.
        self._lengths = (n_classes * sizes.shares) ** -self._round
        self._caps = np.maximum(caps * longest, 1e-9)
        self.own = self._pool.own
        self.velocity = self._pool.velocity
        self.moves = self._pool.moves
        self.weights: Float = self.own
        self.weights_noise: Float = np.zeros(n_classes)
        # Of which a model keeps what another fit may start from.
        self.path: Float = self.own
        self.path_variance: Float = np.zeros(n_classes)
        # How long the weights are for a path of length 1.
        self.steps: Float = np.ones(n_classes)
        if pool is not None:
            self._turn()

    @property
    def counted(self) -> Float:
        """Records that each row of the path counts as."""
        return self.sizes.total * self.sizes.shares

    @property
    def gradient_weights(self) -> Float:
        """What each gradient so far weighs in the sum of moves."""
        return np.asarray(1 - _MOMENTUM ** np.arange(1, self.moves + 1))

    @property
    def point(self) -> Float:
        """Weights at which the next gradient is taken."""
        return (1 - self._round) * self.weights

    def move(self, gradient: Float) -> None:
        """Take a step along a noisy gradient, of shape (n_classes, dim)."""
        # The velocity was there before the gradient's noise, so their product has noise
        # of the velocity's length.
        limit = -_OVERSHOOT * self.noise_std * float(np.linalg.norm(self.velocity))
        if float((gradient * self.velocity).sum()) < limit:
            self._caps = self._caps / 2
        self.velocity = _MOMENTUM * self.velocity + (1 - _MOMENTUM) * gradient
        self.own = self.own + self.velocity
        self.moves += 1
        self._turn()

    def _turn(self) -> None:
        """Turn the path into weights."""
        pool = self._pool
        shares = self.gradient_weights
        self.path = pool.path + pool.weights[:, None] * self.own
        variance = self.noise_std**2 * float(shares @ shares)
        self.path_variance = pool.variance + pool.weights**2 * variance
        # Where rows have noise of several sizes, in units of that of the gradients.
        units = np.sqrt(variance / self.path_variance)
        signal = axis_filter(self.path * units[:, None], variance, self._spectrum)
        # By square roots, rare classes lost axes that tell them from their neighbours.
        factors = np.cbrt(signal)
        damping = self._damping * math.sqrt(float(factors**2 @ self._spectrum))
        if self._curvature is None:
            self.steps = self._lengths / (self._class_size * (1 / self._caps + damping))
            self.weights = self.steps[:, None] * self.path * factors
        else:
            bend, counts = self._curvature.bend, self._curvature.counts
            damping = self._curvature.damping(self._damping, damping)
            each = self._lengths[:, None] / (
                self._class_size
                * ((1 + self._longest * bend) / self._caps[:, None] + damping[:, None])
            )
            self.weights = self._curvature.stepped(self.path * factors, each)
            self.steps = np.sqrt(np.square(each) @ counts / counts.sum())
        # The noises of the gradients are independent, and their weighted sum is in each
        # coordinate of the weights, by a factor of the axis that is 1 at most. Steps that
        # differ by axis count by their mean square. Steps and factors count as given, and
        # that later gradients answer to earlier noise is left out. So is the noise of the
        # mean by which rows are centred: where residuals do not add up to zero, it is in
        # the gradients, too. Over seeds of one fit to 4,000 rows of four tables, without
        # a second moment, weights differed by .93 to 1.07 of this at epsilon 1, by .93 to
        # 2.0 at 8, and there by .91 to 1.15 if all seeds had one mean.
        self.weights_noise = self.steps * np.sqrt(self.path_variance)


def axis_filter(path: Float, variance: float, spectrum: Float) -> Float:
    """Return the share of signal in sums of gradients along each axis, as a part of the largest.

    Differences between classes are taken for Gaussian, with variances that follow a
    power of the public spectrum, plus noise of `variance`. Shares, which are Wiener's
    factors, are averaged over powers and scales by marginal likelihood.
    """
    freedom = len(path) - 1
    dim = path.shape[1]
    energy = np.square(path - path.mean(axis=0)).sum(axis=0) / variance
    powers = spectrum ** _EXPONENTS[:, None, None]
    # In units of the noise, which is the 1; of shape (n_exponents, n_scales, dim).
    total = 1 + _SCALES[:, None] * powers * (dim / powers.sum(axis=-1, keepdims=True))
    evidence = -0.5 * (freedom * np.log(total) + energy / total).sum(axis=-1)
    # A unit of the power costs as much as it adds for free.
    evidence -= 2 * math.log(dim) * _EXPONENTS[:, None]
    likelihood = np.exp(evidence - evidence.max())
    factors = np.tensordot(likelihood, 1 - 1 / total, axes=2)
    return np.asarray(factors / factors.max())
