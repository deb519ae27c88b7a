"""The arithmetic of softmax prototypes that no private record enters: of public rows and examples, and of releases.

Rows are in units of unit-norm features and along the public axes, the eigenvectors of
the public covariance. Constants were chosen on embeddings of three public data sets,
over budgets of mu from 0.05 to 64.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from dppl._utils.types import Array, Flags, Float, Float32
from dppl.kernel import Measure
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.lattice import rotate
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.reading import Codes
from dppl.methods import Classifier
from dppl.methods.fit_plan import Setting
from dppl.methods.model_file import check_tensor
from dppl.methods.parameters import ROTATION, parameters
from dppl.methods.shared import unit_directions

# Percentage of mu² for the number of records. It decides only the length of a step, so
# little is paid for it.
SIZE_PERCENT = 1
# With 12 to 30 gradients accuracy is the same within its error; fewer fit less at large
# budgets.
STEPS = 16
# While nothing is fitted, all residuals are longer, and a shorter clip loses signal and
# noise alike. Later residuals of fitted records are shorter and go unclipped against
# half of the noise that clipping at 1 would need.
CLIP = 0.5
# Share of a step's velocity that the next one keeps.
_MOMENTUM = 0.5
# The mean weighs classes alike as far as its noise stays below this share of a unit
# row.
_BALANCE = 0.1
# Longest step along a mean gradient: factor, power of the records a class, bound; more
# records bear a closer fit. Steps diverge beyond six over the largest eigenvalue of the
# features' second moment; centring leaves about 0.1 of it.
_CAP = 8.0, 1 / 3, 90.0
# The same where no class is small: the records a class are the harmonic mean of their
# numbers.
_CAP_IF_LARGE = 4.5, 0.48, 400.0
# Standard deviation of a logit that the noise of all gradients may add up to, per
# logarithm of the number of classes, as the largest of so many logits grows; and the
# least where classes are equally large.
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
_POWERS = 10
_START = 1
# How much longer the squared second moment of rows is than that of round ones, from
# which on they do not count as round: 0.1 for ten round clusters that overlap, 0.7 for
# images of digits, 3 to 22 for embeddings of texts and images.
_NOT_ROUND = 0.5
# A gradient that points against the velocity by more standard deviations of its noise
# than this is an overshoot.
_OVERSHOOT = 3.0
# Length of the intercepts' step. Newton's is 1 for two classes at probabilities of 1/2;
# fitted scores are saturated.
_INTERCEPT_STEP = 1.5
# Furthest intercept, in deviations of a class's scores: beyond it, noise that passed for
# a surprise would leave a class without predictions.
_FURTHEST = 2.0
# Variances of noise that the squared length of shortfalls has to pass: the mean of a
# chi-squared and so many of its standard deviations; for two classes, on the side that
# the released mean lets expect and on the other.
_SURPRISE = 2.0
_EXPECTED_SIDE = 1.5
_OTHER_SIDE = 9.0
# How class differences may spread over the axes: by which power of the public spectrum,
# ...
_EXPONENTS = np.array((0, 0.5, 1, 1.5, 2, 2.5, 3))
# ... and at which multiple of the noise.
_SCALES = 2.0 ** np.arange(-6, 11)
_PUBLIC_ROWS = 2048
# Of a start from examples: gradients that are taken from zero weights, to see which
# examples they agree with.
_LOOK = 3
# Ridge of the classifier of the examples, whose loss is a sum.
_RIDGE = 0.1
# Length of the start, in multiples of that classifier, if all examples are right and if
# only some are.
_LENGTH = 4.0
_LENGTH_OF_SOME = 3.0
# Before anything was released: that no example is right, that each is with probability
# 1/2, that all are.
_PRIOR = np.array((0.10, 0.18, 0.72))
# How much better a right example may agree with the gradient of its class than a wrong
# one, and the share of records that right ones rank first; all alike before anything
# was released.
_SHIFTS = np.arange(1, 9) / 10
_ACCURACIES = np.arange(2, 10) / 10
# Least standard deviations of agreement between classes and examples, and of what is
# taken off for a class's size.
LEAST_SPREAD = 0.05
_USUAL_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Frame:
    """Public axes, and the coordinates in which rows become integers."""

    axes: Float  # shape (n_features, n_features); in columns
    center: Float  # shape (n_features,); mean of public unit rows along the axes; zero without any
    spectrum: Float  # shape (n_features,); share of each axis in the public second moment, of sum 1
    rotation: int | None  # of the lattice
    basis: Float  # shape (n_features, n_features); the axes in the coordinates of lattice rows, in columns

    @classmethod
    def of(cls, public: RowSource | None, n_features: int) -> Self:
        """Fit the frame on public rows; without any, its axes are the coordinates and all alike."""
        if public is None:
            # Nothing shows whether the encoder has huge coordinates, which rounding
            # would cut off.
            axes = np.eye(n_features)
            center = np.zeros(n_features)
            spectrum = np.full(n_features, 1 / n_features)
            return cls(axes, center, spectrum, ROTATION, rotate(axes, ROTATION).T)
        total = np.zeros(n_features)
        products = np.zeros((n_features, n_features))
        count = 0
        for u in map(Lattice(n_features).features, iter_blocks(public, _PUBLIC_ROWS)):
            kept = u[u.any(axis=1)]
            total += kept.sum(axis=0, dtype=np.float64)
            products += kept.T @ kept
            count += len(kept)
        mean = total / max(count, 1)
        _, ascending = np.linalg.eigh(products / max(count, 1) - np.outer(mean, mean))
        axes = ascending[:, ::-1]
        # Rows have length 1 again after the mean is taken off, so their moments are not
        # the eigenvalues.
        energy = np.zeros(n_features)
        for f in map(
            Lattice(n_features, center=mean).features, iter_blocks(public, _PUBLIC_ROWS)
        ):
            energy += np.square(f @ axes.astype(np.float32)).sum(
                axis=0, dtype=np.float64
            )
        if energy.any():
            moments = energy / energy.sum()
        else:
            moments = np.full(n_features, 1 / n_features)
        # One more row, spread over all axes: a small pool says nothing of those on
        # which it has no rows.
        spectrum = (public.shape[0] * moments + 1) / (public.shape[0] + n_features)
        rotation = None
        basis = axes
        if Lattice(n_features).loses_much(public):
            rotation = ROTATION
            basis = rotate(axes.T, rotation).T
        return cls(axes, mean @ axes, spectrum, rotation, basis)

    def lattice(self, center: Float | None = None) -> Lattice:
        """Return the map to integer rows, which subtracts a `center` that is along the axes."""
        given = None if center is None else self.axes @ center
        return Lattice(len(self.axes), center=given, rotation=self.rotation)


@parameters
class CentredClassifier(Classifier):
    """A linear classifier of unit rows minus a released mean, fitted along public axes.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, n_features), float32
        Representatives of the classes among unit rows, for reports: the mean, moved
        along the weights of the class.
    lattice_ : Lattice
        The map from embeddings to centred unit rows; its `center` is the released mean.
    path_ : ndarray of shape (n_classes, n_features), float32, or None
        The sum of the released gradients, from which another fit may start (`start`).
        Safe to publish, as are `path_variance_`, the variance of its noise, and
        `path_sizes_`, the records that each row counts as, both of shape (n_classes,).
    """

    prototypes_: Float32 = field(init=False)
    path_: Float32 | None = field(init=False)
    path_variance_: Float = field(init=False)
    path_sizes_: Float = field(init=False)
    public_rows = "optional"
    whole_persons = True

    def prepare(self, setting: Setting) -> Frame:
        """Fit the axes on public rows."""
        return Frame.of(setting.public.rows, setting.n_features)

    def _keep(self, ascent: "Ascent", frame: Frame) -> None:
        """Keep what another fit may start from."""
        self.path_ = (ascent.path @ frame.axes.T).astype(np.float32)
        self.path_variance_ = ascent.path_variance
        self.path_sizes_ = ascent.counted

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        shapes = super()._shapes()
        # Models of earlier versions and merged ones have None, and those that released
        # nothing have none. A fit that has not ended will have one.
        if not self.guarantee_.releases or getattr(self, "path_", shapes) is None:
            return shapes
        n_classes = len(self.classes_)
        of_classes = np.float64, (n_classes,)
        return shapes | {
            "path": (np.float32, (n_classes, self.n_features_in_)),
            "path_variance": of_classes,
            "path_sizes": of_classes,
        }

    def _set_model(
        self, coef: Float, center: Float, intercept: Float, shares: Float | None = None
    ) -> None:
        self.coef_ = coef
        self.intercept_ = intercept
        self.shares_ = shares
        self.lattice_ = Lattice(len(center), center=center)
        away = math.sqrt(max(0.0, 1 - float(center @ center)))
        self.prototypes_ = unit_directions(center + away * unit_directions(coef))

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        self.path_ = tensors.get("path")  # checked below, if there is one
        super()._restore(tensors, parameters)
        if self.path_ is not None and not (
            (self.path_variance_ > 0).all() and (self.path_sizes_ >= 0).all()
        ):
            raise Misfit("its path has no noise, or is of fewer than no records")
        center = check_tensor(tensors, "center", (self.n_features_in_,), np.float64)
        self._set_model(self.coef_, center, self.intercept_, self.shares_)


def measured_size(measure: Measure, n_classes: int) -> float:
    """Ask for the number of records, and raise it to the width of its noise and to one record a class, to divide by."""
    return max(float(measure("size")[0]), measure.noise_std("size"), float(n_classes))


@dataclass(frozen=True, slots=True)
class ClassSizes:
    """Class sizes, which differ only as far as noisy counts differ by more than their noise."""

    total: float  # number of records, at least two a class
    sizes: Float  # shape (n_classes,); not below 0
    least: (
        Float | float
    )  # what a class counts at least in a divisor: the noise, or the mean size if that is smaller
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
        return cls(
            total, sizes, least, math.sqrt(trust) * noise_std, raised / raised.sum()
        )

    @property
    def balancing(self) -> Float:
        """Weights of each class's records, 1 at most, with which all classes weigh alike."""
        return np.asarray(self.shares.min() / self.shares)

    def mean_weights(self, noise_std: float) -> Float:
        """Return weights from 0 to 1 of each class's records in a mean whose noise has the length `noise_std`.

        A class weighs up to a limit, as low as the noise stays below a share of the
        sum.
        """
        shares = np.sort(self.shares)
        needed = noise_std / (_BALANCE * self.total)
        # Cut to t, shares add up to the least of these lines in t: the k smallest
        # whole, and t for each of the rest. The limit is the smallest class, so that
        # all weigh alike, if that is enough.
        rest = np.arange(len(shares), 0, -1)
        most = max(
            shares[0], float(((needed - np.cumsum(shares) + shares) / rest).max())
        )
        return np.asarray(np.minimum(1.0, most / self.shares))


def shrunken_mean(
    total: Float, weight: float, center: Float, noise_std: float
) -> Float:
    """Return the mean of unit rows from their noisy weighted sum, drawn to a public one (James and Stein 1961)."""
    away = total - weight * center
    trust = max(0.0, 1 - len(away) * noise_std**2 / max(float(away @ away), 1e-300))
    mean = center + trust * away / weight
    return np.asarray(mean / max(1.0, float(np.linalg.norm(mean))))


def intercepts(
    shortfalls: Float,
    noise_std: float,
    sizes: ClassSizes,
    mean_weights: Float,
    spreads: Float,
) -> Float:
    """Return intercepts with which classes that weigh alike are predicted equally often, as far as noise shows it.

    Noisy sums of 1/C - p over balanced records are minus the gradient of the balanced
    softmax loss in the intercepts. They are believed as far as their squared length is
    beyond the noise's (James and Stein 1961, with more caution), and no further than
    some `spreads` of each class's scores.
    """
    freedom = len(shortfalls) - 1
    shortfalls = shortfalls - shortfalls.mean()
    limit = freedom + _SURPRISE * math.sqrt(2 * freedom)
    lean = sizes.shares * mean_weights
    if len(lean) == 2 and not math.isclose(*lean):
        # The boundary passes through the class that the mean leans to, which is then
        # predicted too seldom: that is expected before any noise.
        if shortfalls[lean.argmax()] > 0:
            limit = _EXPECTED_SIDE
        else:
            limit = _OTHER_SIDE
    trust = max(
        0.0, 1 - limit * noise_std**2 / max(float(shortfalls @ shortfalls), 1e-300)
    )
    steps = _INTERCEPT_STEP * trust * shortfalls / (sizes.total * sizes.shares.min())
    furthest = _FURTHEST * spreads
    return np.asarray(np.clip(steps, -furthest, furthest))


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
            moment.total - flat * np.eye(dim), math.ceil(size / moment.hidden / 4)
        )
        beyond = np.abs(away) > moment.hidden
        away = away[beyond]
        true = np.sign(away) * np.sqrt(away**2 - moment.hidden**2)
        found = np.maximum(flat + np.append(true, 0), 1e-9 * flat)
        counts = np.append(np.ones(len(away)), dim - len(away))
        found /= found @ counts
        bend = worth * found / _NEWTON_STEPS
        return cls(moment.basis.T @ axes[:, beyond], found, bend, counts)

    def damping(self, noise: Float, start: Float) -> Float:
        """Return what to add to the inverse of each class's steps, at which the noise of a logit is 1.

        `noise` is that at steps of length 1. It falls with what is added, so halving an
        interval of logarithms finds it.
        """
        low = 1e-3 * start
        high = start
        for _ in range(25):
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
    Musco 2015, arXiv:1504.05477).
    """
    dim = len(matrix)
    if 2 * _POWERS * count > dim:
        return np.linalg.eigh(matrix)
    block = rotate(np.eye(count, dim), _START).T
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

    @classmethod
    def of_nothing(cls, sizes: ClassSizes, dim: int) -> Self:
        """Return that of an ascent from zero."""
        n_classes = len(sizes.sizes)
        path = np.zeros((n_classes, dim))
        return cls(path, np.zeros(n_classes), np.ones(n_classes), sizes, path, path, 0)


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
        n_records = sizes.total
        sizes = self._pool.sizes
        n_classes = len(sizes.sizes)
        self._spectrum = spectrum
        self._noise_std = noise_std
        # Standard deviation of the noise in the whole path, once all gradients are in.
        self._noise = np.sqrt(
            self._pool.variance + (self._pool.weights * noise_std) ** 2 * STEPS
        )
        self._class_size = sizes.total / n_classes
        # Harmonic over arithmetic mean of the shares: 1 for equal classes, near 0 where
        # one is rare.
        balance = float(n_classes / np.mean(1 / sizes.shares))
        tolerance = max(
            _TOLERANCE * math.log(max(n_classes, 2)), _TOLERANCE_IF_LARGE * balance
        )
        self._tolerance = min(_LARGEST_TOLERANCE, tolerance)
        harmonic = balance * self._class_size
        # Longer steps for small classes, whose gradients are short, but not for those
        # that seem to be empty.
        caps = np.minimum(1, sizes.sizes / sizes.least) / np.sqrt(
            n_classes * sizes.shares
        )
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
            usual = float(np.median(self._noise))
            damping = usual / self._class_size / self._tolerance
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
        return self._pool.sizes.total * self._pool.sizes.shares

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
        limit = -_OVERSHOOT * self._noise_std * float(np.linalg.norm(self.velocity))
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
        variance = self._noise_std**2 * float(shares @ shares)
        self.path_variance = pool.variance + pool.weights**2 * variance
        # Where rows have noise of several sizes, in units of that of the gradients.
        units = np.sqrt(variance / self.path_variance)
        factors = axis_filter(self.path * units[:, None], variance, self._spectrum)
        noise = (
            self._noise * math.sqrt(float(factors**2 @ self._spectrum))
        ) / self._class_size
        damping = noise / self._tolerance
        if self._curvature is None:
            self.steps = self._lengths / (self._class_size * (1 / self._caps + damping))
            self.weights = self.steps[:, None] * self.path * factors
        else:
            bend, counts = self._curvature.bend, self._curvature.counts
            whole = self._noise / self._class_size / self._tolerance
            damping = self._curvature.damping(whole, damping)
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
        self.weights_noise = (
            self.steps * self._noise_std * math.sqrt(shares @ shares) / units
        )


def axis_filter(path: Float, variance: float, spectrum: Float) -> Float:
    """Return a factor for each axis by which sums of gradients are best believed, 1 at most.

    Differences between classes are taken for Gaussian, with variances that follow a
    power of the public spectrum, plus noise of `variance`. Factors are the roots of
    Wiener's, averaged over powers and scales by marginal likelihood.
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
    return np.asarray(np.sqrt(factors / factors.max()))


@dataclass(frozen=True, slots=True, eq=False)
class ExampleClassifier:
    """Ridge softmax regression on the public examples alone."""

    features: Float  # shape (n_examples, dim); centred unit rows
    codes: Codes  # shape (n_examples,)
    coef: Float  # shape (n_classes, dim); zero for classes without an example
    known: Flags  # shape (n_classes,); classes with an example

    @classmethod
    def fit(cls, features: Float, codes: Codes, n_classes: int) -> Self:
        """Fit it; rows of `coef` of classes with an example add up to zero, as at every minimum."""
        from scipy.optimize import (
            minimize,
        )  # here, as below, because a fit without examples needs no SciPy
        from scipy.special import log_softmax, softmax

        known, labels = np.unique(codes, return_inverse=True)
        target = np.eye(len(known))[labels]

        def loss(flat: Float) -> tuple[float, Float]:
            weights = flat.reshape(len(known), -1)
            logits = features @ weights.T
            gradient = (
                softmax(logits, axis=1) - target
            ).T @ features + _RIDGE * weights
            value = (
                -(log_softmax(logits, axis=1) * target).sum()
                + _RIDGE / 2 * (weights**2).sum()
            )
            return float(value), gradient.ravel()

        minimum = minimize(
            loss, np.zeros(len(known) * features.shape[1]), jac=True, method="L-BFGS-B"
        )
        coef = np.zeros((n_classes, features.shape[1]))
        coef[known] = minimum.x.reshape(len(known), -1)
        return cls(features, codes, coef, np.isin(np.arange(n_classes), known))

    @property
    def offsets(self) -> Float:
        """Offsets of logits that keep classes without an example from being ranked first."""
        return np.where(self.known, 0.0, -1e6)

    def gradient(self, weights: Float, offsets: Float, trust: Float) -> Float:
        """Return the sum of clipped gradients of the examples, each as much as its class is trusted."""
        from scipy.special import softmax

        residuals = -softmax(self.features @ weights.T + offsets, axis=1)
        residuals[np.arange(len(self.codes)), self.codes] += 1
        norms = np.linalg.norm(residuals, axis=1)
        residuals *= (
            trust[self.codes] * np.minimum(1, CLIP / np.maximum(norms, 1e-12))
        )[:, None]
        return np.asarray(residuals.T @ self.features)


@dataclass(frozen=True, slots=True)
class Trust:
    """What released values say of the examples."""

    all_right: float  # probability that the examples of all classes are right, times the share of classes that have any
    right: Float  # shape (n_classes,); what is left of the probability that its examples are right

    @classmethod
    def of(
        cls,
        agreement: Float,
        noise_std: Float,
        spread: Float,
        known: Flags,
        hits: tuple[float, float],
    ) -> Self:
        """Weigh three hypotheses on the examples: none is right, each is with probability 1/2, all are.

        `agreement` has each class's noisy gradient in a row and each class's examples
        in a column; `spread` is the relative deviation of the class sizes that rows
        were divided by. `hits` is the noisy share of records that the examples rank
        first, and its deviation. Examples of *other* classes show how wrong ones agree,
        as in the two-groups model of large-scale testing with an empirical null (Efron
        2008, DOI 10.1214/07-STS236).
        """
        from scipy.special import expit, softmax

        middle, variance = of_wrong(agreement, noise_std, spread, known)

        # How likely each class's own agreement is, if its examples are wrong or right.
        own = agreement.diagonal()[known]
        noise = noise_std[known] ** 2
        sizes = spread[known] ** 2
        wrong = log_normal(own, middle, variance * (1 + sizes) + noise)
        means = middle + _SHIFTS[:, None]
        right = log_normal(
            own, means, variance + noise + (abs(middle) + _SHIFTS[:, None]) ** 2 * sizes
        )
        some = np.logaddexp(wrong, right) - math.log(2)
        none = np.broadcast_to(wrong, right.shape)
        evidence = np.stack([part.sum(axis=1) for part in (none, some, right)])

        # How likely the share of hits is; wrong examples hit by chance.
        share = np.array((0, 0.5, 1))[:, None]
        chance = 1 / len(own)
        accuracies = share * _ACCURACIES + (1 - share) * chance
        likelihoods = log_normal(hits[0], accuracies, hits[1] ** 2 + (chance / 2) ** 2)
        evidence += (np.log(_PRIOR) + np.logaddexp.reduce(likelihoods, axis=1))[:, None]

        posterior = softmax(evidence)
        all_right = float(posterior[2].sum())
        complete = float(known.mean())
        left = np.zeros(len(known))
        left[known] = posterior[1] @ expit(right - wrong) + all_right * (1 - complete)
        return cls(all_right * complete, left)


def of_wrong(
    agreement: Float, noise_std: Float, spread: Float, known: Flags
) -> tuple[float, float]:
    """Return mean and variance, without noise, of how gradients of classes agree with the rows of other classes."""
    others = known & ~np.eye(len(known), dtype=bool)
    uneven = 1 + spread**2
    weights = others / ((noise_std**2 + _USUAL_SPREAD**2 * uneven) * uneven)[:, None]
    total = max(float(weights.sum()), 1e-300)
    middle = float((weights * agreement).sum()) / total
    excess = (
        float((weights * ((agreement - middle) ** 2 - noise_std[:, None] ** 2)).sum())
        / total
    )
    return middle, max(excess, LEAST_SPREAD**2)


def log_normal(x: Float | float, mean: Float | float, variance: Float | float) -> Float:
    """Return the logarithm of a Gaussian density, up to a constant."""
    return np.asarray(-((x - mean) ** 2) / (2 * variance) - np.log(variance) / 2)


class GuidedAscent(Ascent):
    """An ascent that starts, after a few gradients from zero, from the examples' classifier, as far as that is right.

    From there on examples are records without noise.
    """

    def __init__(
        self,
        sizes: ClassSizes,
        spectrum: Float,
        noise_std: float,
        examples: ExampleClassifier,
        hits: float,
        hits_std: float,
        moment: NoisyMoment | None = None,
    ) -> None:
        super().__init__(sizes, spectrum, noise_std, moment)
        self._sizes = sizes
        self._examples = examples
        records = sizes.total * max(float(sizes.shares[examples.known].sum()), 1e-3)
        self._hits = hits / records, hits_std / records
        self._early = np.zeros_like(self.weights)
        self._start = np.zeros_like(self.weights)
        self._weight = 1.0
        self._trust: Trust | None = None

    def move(self, gradient: Float) -> None:
        """Take a step along a noisy gradient, of shape (n_classes, dim)."""
        if self._trust is not None:
            trust = self._trust.all_right + self._trust.right
            gradient = gradient + self._examples.gradient(
                self.point, np.log(self._sizes.shares), trust
            )
        super().move(gradient)
        if self._trust is None:
            self._early += gradient
            if self.moves == _LOOK:
                self._trust = self._judged()
                self._set_start(self._trust)
        self.weights = self._start + self._weight * self.weights
        self.weights_noise = self._weight * self.weights_noise
        # As a path from zero that leads to these weights, for a fit that starts here.
        self.path = self._start / self.steps[:, None] + self._weight * self.path
        self.path_variance = self._weight**2 * self.path_variance

    def _judged(self) -> Trust:
        """Compare the first gradients with the examples, in units of the most that records can add along them."""
        sizes = self._sizes
        coef = self._examples.coef
        records = np.maximum(sizes.sizes, max(sizes.noise_std, 1.0))
        most = CLIP * _LOOK * records
        directions = coef / np.maximum(
            np.linalg.norm(coef, axis=1, keepdims=True), 1e-300
        )
        agreement = self._early @ directions.T / most[:, None]
        noise_std = self._noise_std * math.sqrt(_LOOK) / most
        return Trust.of(
            agreement,
            noise_std,
            sizes.noise_std / records,
            self._examples.known,
            self._hits,
        )

    def _set_start(self, trust: Trust) -> None:
        """Settle what the weights start from, and how much is added to it of what records say.

        The more of its gradients is signal, the shorter a class's start: records say
        more than examples then. The more is noise, the less records weigh if all
        examples are right, which they can only spoil.
        """
        # The share of signal in all gradients of classes of these sizes, and of the
        # mean size, if all are clipped.
        sizes = np.append(self._sizes.total * self._sizes.shares, self._class_size)
        ratio = (
            STEPS * (CLIP * sizes) ** 2 / (self._noise_std**2 * self.weights.shape[1])
        )
        *signals, usual = ratio / (1 + ratio)
        lengths = _LENGTH * trust.all_right + _LENGTH_OF_SOME * trust.right
        self._start = (lengths * (1 - np.array(signals)))[:, None] * self._examples.coef
        self._weight = 1 - trust.all_right * (1 - math.sqrt(usual))
