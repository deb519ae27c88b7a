"""A linear discriminant for a stream of tasks: what is made of noisy class sums when public rows may help."""

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy.special import expit

from dppl._utils.types import Array, Float, Float32
from dppl.continual import _sums
from dppl.continual._stream import NEVER
from dppl.continual.prototypes import Accumulate, ContinualPrototypes
from dppl.errors import ParameterError
from dppl.kernel import Measure
from dppl.kernel.lattice import Lattice, RowSource, iter_blocks
from dppl.methods.ascent import axis_filter
from dppl.methods.fit_plan import Setting
from dppl.methods.model_file import check_tensor
from dppl.methods.parameters import ROTATION, LatticeOptions, parameters
from dppl.methods.shared import cosine_sharpness

_PUBLIC_ROWS = 2048
# Share of the covariance within classes that follows the public one; the rest is alike
# along all axes.
_PUBLIC_SHARE = 0.25
# How many standard deviations of its noise a squared length is raised by.
_RAISED = 2.0
# Taken off the evidence of each class where the share of classes with records is
# fitted: that follows the long tail of what a fitted variance gains on noise, and
# Akaike's unit pays for the mean. From 0.3 to 0.5 all streams were alike.
_DOUBT = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Axes:
    """Principal axes of public rows."""

    directions: (
        Float32  # shape (dim, dim); in columns, in the coordinates of lattice rows
    )
    spectrum: Float  # shape (dim,); share of each axis in the second moment of public rows, of sum 1

    @classmethod
    def of(cls, lattice: Lattice, public: RowSource) -> Self:
        """Fit the axes on public rows, as the lattice maps them."""
        dim = lattice.dim
        count = public.shape[0]
        moment = np.zeros((dim, dim))
        for block in iter_blocks(public, _PUBLIC_ROWS):
            features = lattice.features(block)
            moment += features.T @ features
        values, directions = np.linalg.eigh(moment)
        shares = np.maximum(values, 0) / max(float(np.trace(moment)), 1e-300)
        # One more row, spread over all axes: a small pool says nothing of those on
        # which it has no rows.
        return cls(
            directions.astype(np.float32),
            (count * shares + 1 / dim) / (count * shares.sum() + 1),
        )


@parameters
class ContinualDiscriminant(ContinualPrototypes):
    r"""A linear discriminant, of noisy class sums that arrive task after task.

    It releases what `ContinualPrototypes` releases, of rows minus the public mean, and
    uses it better, at no further cost: public rows tell along which axes classes may
    differ and how records scatter within classes, and sums are divided by their lengths
    without noise, so that classes with few records are not drowned by those with many.
    Give it public rows: without any, lengths are all that helps (docs/continual.md).

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, dim), float64
        Weights of the scores, in the order of `classes_`. Safe to publish.
    prototypes_ : ndarray of shape (n_classes, dim), float64
        Noisy class sums that they are computed from, one for each class.
    axes_ : Axes or None
        Principal axes of the public rows of the first task; None without any.

    Notes
    -----
    With independent noise a class has one sum, weighted over tasks as in `ContinualPrototypes`. Along each axis it is
    drawn to its signal by empirical Bayes [1]_ and divided by a covariance of which a fourth follows the public
    spectrum. Then each class is divided by its length in that metric, less the part that is noise, as far as the
    lengths of classes differ by more than noise makes them [2]_ and as likely as the class holds any record. Without
    public rows only the last step remains, and the share of classes with records is fitted to all of them.

    **Privacy.** As `ContinualPrototypes`. Unit: one record; of overlapping tasks, a
    person with at most one record in each. Relation: add one record to one task, or
    remove it. Released: a noisy sum for every class that a task may hold, in every
    task; all else is computed from these and from `public`. Sensitivity: s in L2 over
    all sums of disjoint tasks, where s = 127·√dim/4 lattice steps. Public inputs:
    `classes`, `task_classes`, the boundaries and the order of tasks, `public`, all
    parameters, `n_features`. Not covered: records or persons in several disjoint tasks;
    boundaries set by private counts; skipping a task because it is empty; choice of
    parameters by private data, timing, a changed label (two steps); with correlated
    noise, who reads the file of the state.

    References
    ----------
    .. [1] Linear discriminant analysis (Fisher 1936) on the sums of arXiv:2411.04680v2,
    Algorithm A4.
    .. [2] James, Stein (1961), Estimation with quadratic loss.
    """

    public_rows = "optional"

    coef_: Float = field(init=False)
    axes_: Axes | None = field(init=False)
    accumulate: Accumulate | None = field(init=False)
    lattice: LatticeOptions | None = field(
        default=LatticeOptions(center="public", rotation="auto"), init=False
    )

    def _lattice(self, n_features: int, public: RowSource | None) -> Lattice:
        if public is None:
            # Nothing shows whether the encoder has huge coordinates, which rounding
            # would cut off.
            return Lattice(n_features, rotation=ROTATION)
        return super()._lattice(n_features, public)

    def prepare(self, setting: Setting) -> Axes | None:
        """Return the axes of the public rows of the first task."""
        earlier = setting.task.earlier
        public = setting.public.rows
        if earlier is None:
            if public is None:
                return None
            return Axes.of(setting.lattice, public)
        if earlier.axes_ is None and public is not None:
            raise ParameterError(
                "is read in the first task, and this stream began without.",
                parameter="public",
            )
        axes: Axes | None = earlier.axes_
        return axes

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Ask for the sums of the task, and weigh them along the axes."""
        self.axes_ = setting.prepared
        super().learn(measure, setting)

    def _set_model(self, sums: Float, variances: Float, evidence: Float) -> None:
        super()._set_model(sums, variances, evidence)
        possible = self.released_.n_sums > 0
        self.coef_ = np.zeros_like(sums)
        self.coef_[possible] = discriminant_weights(
            sums[possible], variances[possible], evidence[possible], self.axes_
        )

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        return {
            **super()._shapes(),
            "coef": (np.float64, (len(self.classes_), self.lattice_.dim)),
        }

    def _tensors(self) -> dict[str, Array]:
        tensors = super()._tensors()
        if self.axes_ is not None:
            tensors |= {"axes": self.axes_.directions, "spectrum": self.axes_.spectrum}
        return tensors

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        self.axes_ = None
        dim = self.lattice_.dim
        if "axes" in tensors:
            directions = check_tensor(tensors, "axes", (dim, dim), np.float32)
            self.axes_ = Axes(
                directions, check_tensor(tensors, "spectrum", (dim,), np.float64)
            )

    def _class_scores(self, features: Float32) -> Float:
        scores = np.asarray(features @ self.coef_.T, np.float64)
        scores[:, self.released_.n_sums == 0] = NEVER
        return scores

    def _sharpness(self) -> float:
        possible = self.released_.n_sums > 0
        coef = self.coef_[possible]
        length = math.sqrt(np.square(coef).sum(axis=1).mean())
        signal = cosine_sharpness(
            self.prototypes_[possible], self._noise_of_totals()[possible]
        )
        return signal / length if length > 0 else signal


def discriminant_weights(
    sums: Float, variances: Float, evidence: Float, axes: Axes | None
) -> Float:
    """Return the weights of a linear discriminant from noisy class sums; no `axes` takes all directions for alike."""
    dim = sums.shape[1]
    if axes is None:
        return (
            sums
            / _lengths(
                sums,
                variances,
                np.ones(dim),
                _share_of_noise(sums, variances, evidence),
            )[:, None]
        )
    along = sums @ axes.directions
    signal = axis_filter(along / np.sqrt(variances)[:, None], 1.0, axes.spectrum)
    believed = np.sqrt(signal)
    inverse = 1 / (_PUBLIC_SHARE * dim * axes.spectrum + 1 - _PUBLIC_SHARE)
    directions = along * (believed * inverse)
    # Each by itself, at even odds; one is the price of the fitted variance, which
    # counts where evidence adds up.
    exists = expit(_sums.evidence_of(sums, variances) + 1)
    result = (
        directions / _lengths(along, variances, believed**2 * inverse, exists)[:, None]
    )
    return np.asarray(result @ axes.directions.T)


def _share_of_noise(sums: Float, variances: Float, evidence: Float) -> Float:
    """Return the share of its noise that may be taken off each sum's length, where nothing public tells of directions.

    One that seems to hold no record stays longer, but by no more than classes with
    records are long on average: else, where noise hides most classes, those that happen
    to stand out would win.
    """
    noise = sums.shape[1] * variances
    exists = _sums.posterior(evidence, np.full(len(evidence), _DOUBT))
    lengths = np.sqrt(np.maximum(np.square(sums).sum(axis=1) - noise, 0))
    typical = float(exists @ lengths / exists.sum())
    return np.asarray(1 - (1 - exists) * np.minimum(1, typical**2 / noise))


def _lengths(sums: Float, variances: Float, gains: Float, shares: Float) -> Float:
    """Return lengths of class sums without what noise adds to them; `gains` is what the square of a coordinate counts.

    Noise is taken off only as far as lengths differ between classes by more than it
    makes them differ, and by a share for each class: else one without any record would
    be divided by next to nothing.
    """
    energy = np.square(sums) @ gains
    noise = variances * gains.sum()
    spread = variances * math.sqrt(2 * float(gains @ gains))
    excess = energy - noise
    # Signal and noise multiply, too.
    crossed = np.square(sums) @ gains**2 / np.maximum(energy, 1e-300)
    sampling = spread**2 + 4 * variances * np.maximum(excess, 0) * crossed
    trust = max(0.0, 1 - float(sampling.mean()) / max(float(excess.var()), 1e-300))
    return np.asarray(
        np.sqrt(np.maximum(energy - trust * shares * noise, 0) + _RAISED * spread)
    )
