"""A linear classifier of unit rows: its public axes, and its mean and intercepts from what was released.

Units and axes are those of `ascent`.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from dppl._utils.types import Array, Float, Float32
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.kernel.lattice.lattice import rotate
from dppl.kernel.privacy.release import Misfit
from dppl.methods import Classifier
from dppl.methods.ascent import Ascent
from dppl.methods.fit_plan import Setting
from dppl.methods.model_file import check_tensor
from dppl.methods.parameters import ROTATION, parameters
from dppl.methods.shared import unit_directions
from dppl.methods.sizes import ClassSizes

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
_PUBLIC_ROWS = 2048
# No start is of more, nor longer; a forged one would take the next model beyond a file.
_MOST_RECORDS = 2.0**40


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

    def _keep(self, ascent: Ascent, frame: Frame) -> None:
        """Keep what another fit may start from, as far as a file takes it: a forged start would else cost the model."""
        path = (ascent.path @ frame.axes.T).astype(np.float32)
        self.path_ = np.clip(path, -_MOST_RECORDS, _MOST_RECORDS)
        self.path_variance_ = np.minimum(ascent.path_variance, _MOST_RECORDS**2)
        self.path_sizes_ = np.minimum(ascent.counted, _MOST_RECORDS)

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
            self.path_variance_.min() > 0
            and self.path_sizes_.min() >= 0
            and self.path_sizes_.max() <= _MOST_RECORDS
            and np.abs(self.path_).max() <= _MOST_RECORDS
        ):
            raise Misfit(
                "its path has no noise, or is of fewer records than none or more than any"
            )
        center = check_tensor(tensors, "center", (self.n_features_in_,), np.float64)
        self._set_model(self.coef_, center, self.intercept_, self.shares_)


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
    usual: Float,
) -> Float:
    """Return intercepts with which classes that weigh alike are predicted equally often, as far as noise shows it.

    Noisy sums of 1/C - p over balanced records are minus the gradient of the balanced
    softmax loss in the intercepts. Steps away from the `usual` ones are believed as far
    as their squared length is beyond the noise's (James and Stein 1961, with more
    caution), and no further than some `spreads` of each class's scores.
    """
    freedom = len(shortfalls) - 1
    length = sizes.total * sizes.shares.min() / _INTERCEPT_STEP
    shortfalls = shortfalls - shortfalls.mean() - length * usual
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
    steps = usual + trust * shortfalls / length
    furthest = _FURTHEST * spreads
    return np.asarray(np.clip(steps, -furthest, furthest))
