"""DP-SGD on a linear layer, with exact full-batch gradients or Poisson samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl._progress import steps
from dppl.baselines._descent import GradientClassifier
from dppl.errors import ParameterError
from dppl.estimators.descent import SIZE_PERCENT, RepeatedGaussian, SampledGaussian, release_size
from dppl.estimators.plan import Plan
from dppl.estimators.public_data import PublicData
from dppl.estimators.reading import Codes, UnknownLabels
from dppl.estimators.sums import HeldRecords, Records, class_sizes, gradients
from dppl.lattice import Lattice, SoftmaxGradient
from dppl.lattice.residuals import check_clip
from dppl.mechanisms import Randomness, RoundedGaussian
from dppl.privacy import Budget, Release, composition
from dppl.privacy.guarantee import Adjacency


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mechanisms:
    """The kernel, the noise of its sums, and that of the number of records, unless a public number takes its place."""

    gradient: SoftmaxGradient
    noise: RepeatedGaussian | SampledGaussian
    size: RoundedGaussian | None


class LinearProbe(GradientClassifier):
    r"""Softmax regression by differentially private gradient descent.

    Every step sums the records' gradients, their residuals clipped, adds Gaussian noise, and moves the weights
    with momentum. By default all records take part in every step and the sums are exact integers; that is the
    comparison of the DPPL papers. With `sampling_rate` below 1 each step sees a Poisson sample (DP-SGD).

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What the whole fit may spend. ApproxDP with `sampling_rate` below 1.
    classes : array-like of shape (n_classes,), default=None
        Public list of classes.
    steps : int, default=40
        Number of gradient steps; each gets the same share of the budget.
    learning_rate : float, default=None
        Step along the mean gradient, in units of the number of classes (the inverse curvature of the loss at the
        start). None is as long as the noise of all steps together moves a logit by a standard deviation of 1.5, and at
        most 4.
    momentum : float, default=0.9
        Share of the velocity kept from one step to the next; 0 is plain gradient descent.
    clip : float, default=1.0
        Longest residual (one-hot label minus probabilities, at most √2) that keeps its length, and so the longest
        gradient.
    l2 : float, default=0.0
        Strength of the penalty ``l2 / 2 * ‖coef_‖²`` beside the mean loss.
    intercept_scaling : float, default=0.0
        A constant coordinate of this size ends each row, and its weight gives the intercept. It lengthens unit rows,
        and with them the noise, to ``hypot(1, intercept_scaling)``. 0 fits no intercept.
    sampling_rate : float, default=1.0
        Probability with which a record takes part in a step.
    batch_size : float, default=None
        A public number to divide the sums of a step by: the expected size of a sample. None releases the number of
        records, for a hundredth of the budget; needed with `sampling_rate` below 1. Never take it from the private
        data.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        ``"replace-one"`` replaces a record by any other, of whatever class; only without sampling.
    pool : int, default=1
        Kernel size of average pooling over neighbouring coordinates.
    center : array-like of shape (n_features,) or "public", default=None
        Public mean that is subtracted from unit rows; ``"public"`` takes that of `X_public`.
    rotation : int or "auto", default=None
        Seed of a public rotation, for encoders with a few huge coordinates; ``"auto"`` rotates if `X_public` needs it.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or leave the record out silently.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the guarantee then says that the model
        must not be released.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, dim), float64
        Weights on unit rows after the last step, in the order of `classes_`. Safe to publish.
    intercept_ : ndarray of shape (n_classes,), float64
        Zeros without `intercept_scaling`.
    classes_ : ndarray of shape (n_classes,)
        The sorted class list.
    guarantee_ : Guarantee
        What is promised. ``print(model.guarantee_)``.
    lattice_ : Lattice
        The public map from embeddings to integer rows.
    n_features_in_ : int
        Width of the embeddings.
    encoder_ : str or None
        The encoder that the table of embeddings names, if it does.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one by any other). Released: the
    gradients of all steps and, without `batch_size`, the number of records; `coef_` and `intercept_` are computed from
    those. Sensitivity: 2²⁰·√(s² + b²) in L2 over the whole gradient of a step, where s = 127·√dim/4 lattice steps and b
    is the constant coordinate (twice that under replace-one); 1 for the number of records. A step's gradient depends on
    earlier ones only through what they released, so squares of mu add. Public inputs: `classes`, all parameters,
    `X_public`, `n_features`. Not covered: choice of parameters by private data, timing, a changed label under
    add/remove (two steps). With `sampling_rate` below 1 the cost is accounted by privacy loss distributions, in
    (epsilon, delta) only.

    References
    ----------
    .. [1] Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang (2016), arXiv:1607.00133, Algorithm 1.
    .. [2] DPPL-v1 (arXiv:2406.08039), section 5 and appendix D.2: full-batch linear probing as comparison.
    .. [3] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.baselines import LinearProbe
    >>> from dppl.data import load_sample
    >>> sample = load_sample()
    >>> model = LinearProbe(ApproxDP(1, 1e-6), classes=sample.classes, steps=10).fit(sample.X, sample.y)
    >>> bool(model.score(sample.X_test, sample.y_test) > 0.5)
    True
    """

    def __init__(
        self,
        budget: Budget | None = None,
        classes: ArrayLike | None = None,
        *,
        steps: int = 40,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        clip: float = 1.0,
        l2: float = 0.0,
        intercept_scaling: float = 0.0,
        sampling_rate: float = 1.0,
        batch_size: float | None = None,
        adjacency: Adjacency = "add-remove",
        pool: int = 1,
        center: ArrayLike | Literal["public"] | None = None,
        rotation: int | Literal["auto"] | None = None,
        unknown_labels: UnknownLabels = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.steps = steps
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.clip = clip
        self.l2 = l2
        self.intercept_scaling = intercept_scaling
        self.sampling_rate = sampling_rate
        self.batch_size = batch_size
        self.adjacency = adjacency
        self.pool = pool
        self.center = center
        self.rotation = rotation
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _validate.positive(clip=self.clip)
        check_clip(self.clip)
        if self.batch_size is not None:
            _validate.positive(batch_size=self.batch_size)
        if self.sampling_rate == 1:
            return
        _validate.probability(sampling_rate=self.sampling_rate)
        if self.batch_size is None:
            raise ParameterError(
                "sampling_rate below 1 needs batch_size, the expected size of a sample, since the number of records is "
                "private."
            )
        if self.adjacency != "add-remove":
            raise ParameterError(
                f"sampling_rate below 1 is accounted under adjacency='add-remove' only; got {self.adjacency!r}."
            )

    def _mechanism(self, lattice: Lattice, public: PublicData) -> _Mechanisms:
        gradient = self._gradient(lattice)
        squared = gradient.squared_sensitivity * (4 if self.adjacency == "replace-one" else 1)
        if self.sampling_rate < 1:
            sampled = SampledGaussian.within(self.resolved_budget, squared, self.steps, self.sampling_rate)
            return _Mechanisms(gradient=gradient, noise=sampled, size=None)
        if self.batch_size is not None:
            return _Mechanisms(
                gradient=gradient, noise=RepeatedGaussian.within(self.resolved_budget, squared, self.steps), size=None
            )
        parts = composition.split(self.resolved_budget, (SIZE_PERCENT, 100 - SIZE_PERCENT))
        return _Mechanisms(
            gradient=gradient,
            noise=RepeatedGaussian.within(parts[1], squared, self.steps),
            size=RoundedGaussian.within(parts[0], Fraction(1)),
        )

    def _releases(self, mechanism: _Mechanisms, n_classes: int, dim: int) -> tuple[Release, ...]:
        releases = [
            mechanism.noise.describe(f"sum of clipped gradients ({self._shape(mechanism.gradient, n_classes)})")
        ]
        if mechanism.size is not None:
            releases.append(mechanism.size.describe("number of records"))
        return tuple(releases)

    @property
    def _sums_alone(self) -> bool:
        return self.sampling_rate == 1  # the coins of samples are noise, which is drawn in one place

    def _release_sums(self, plan: Plan, records: Records, source: Randomness) -> None:
        mechanism: _Mechanisms = plan.mechanism
        gradient, noise, n_classes = mechanism.gradient, mechanism.noise, len(self.classes_)
        size = self.batch_size
        if mechanism.size is not None:
            (sizes,) = records.total(class_sizes, n_classes)
            size = release_size(mechanism.size, int(sizes.sum()), n_classes, source)
        assert size is not None  # _check_parameters saw to that
        scale = self.clip / gradient.unit
        step = self._step_size(size, noise.noise_std * scale)
        descent = self._descent(gradient)
        for _ in steps(self.steps):
            if isinstance(noise, RepeatedGaussian):
                (exact,) = records.total(gradients, gradient, descent.coef, descent.intercept, self.clip)
            else:
                assert isinstance(records, HeldRecords)  # _sums_alone says so
                blocks, codes = _sample(noise, records, self.lattice_, source)
                exact = gradient.sum(blocks, codes, descent.coef, descent.intercept, clip=self.clip)
            descent.move(noise.release(exact, source) * (scale / size), step)
        self.coef_, self.intercept_ = descent.coef, descent.intercept


def _sample(
    noise: SampledGaussian, records: HeldRecords, lattice: Lattice, source: Randomness
) -> tuple[Iterable[NDArray[np.int8]], Codes]:
    """Return the rows and codes of the records of one step."""
    mask = noise.sample(len(records.codes), source)
    return _masked(records.again(lattice), mask), records.codes[mask]


def _masked(blocks: Iterable[NDArray[np.int8]], mask: NDArray[np.bool_]) -> Iterator[NDArray[np.int8]]:
    start = 0
    for block in blocks:
        yield block[mask[start : start + len(block)]]
        start += len(block)
