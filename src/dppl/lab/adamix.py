"""AdaMix: noisy gradient descent from public examples, which also set its clipping norm and its subspace."""

from dataclasses import field
from typing import Literal

import numpy as np
from scipy.special import softmax

from dppl._utils.progress import steps
from dppl._utils.types import Float
from dppl.errors import InputError
from dppl.kernel import Measure, Measurement
from dppl.kernel.reading import Codes
from dppl.methods.examples import ExampleClassifier
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import ClosedUnit, Count, parameters
from dppl.methods.probe import GradientClassifier
from dppl.methods.sizes import measured_size

# Examples that are fitted must not take the clipping norm to zero, where only rounding
# would be left of residuals.
_LEAST_CLIP = 1e-3


@parameters
class AdaMix(GradientClassifier):
    r"""Softmax regression from public examples of the classes, after AdaMix, with all records in every step.

    The weights of softmax regression on the examples alone are the start. In every step
    the examples' gradients at the current weights say at which norm private gradients
    are clipped and on which subspace their noisy sum is projected, and their own sum is
    added.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What the whole fit may spend: a hundredth on the number of records, the rest on
        the gradients. With mu = 0 it is a model of the examples alone.
    clip_quantile : float, default=0.9
        Which quantile of the norms of the examples' gradients is the clipping norm; it
        is kept above 0.001.
    n_components : int or "all", default=None
        Dimension of the subspace of features, at most what the examples span. None is
        all that they span; ``"all"`` are all directions, which is no projection.

    Notes
    -----
    AdaMix trains networks, by its abstract: on few public examples first, and then adaptively on private and public
    data. This is an adaptation to one linear layer. All records take part in every step, and an example counts as ten
    of them. The start is a ridge regression, with zero weights for classes without an example. The norm of a gradient
    is its residual's, as rows have norm 1. The subspace is one of features: a gradient is the outer product of a
    residual and a row, so all examples' stacked gradients have the right singular vectors of the
    rows, each as long as its residual. The span of whole gradients would let weights move along examples alone. With
    few examples the subspace is small and costs accuracy, which ``n_components="all"`` keeps.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    gradients of all steps and the number of records; `coef_` is computed from those and
    from the examples. Sensitivity: 2²⁰·s in L2 over the whole gradient of a step, in
    units of its grid, where s = 127·√dim/4 lattice steps, whatever the clipping norm
    is; 1 for the number of records. Clipping norm and subspace of a step follow from
    examples and earlier releases, and the projection is done on what was released, so
    squares of mu add. Public inputs: `classes`, all parameters, `public`, `n_features`.
    Not covered: choice of parameters by private data, examples that were chosen by
    private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] Golatkar, Achille, Wang, Roth, Kearns, Soatto (2022), Mixed differential
    privacy in computer vision, CVPR,
       arXiv:2203.11481v2.
    .. [2] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).
    """

    clip_quantile: ClosedUnit = 0.9
    n_components: Count | Literal["all"] | None = None
    public_weight: float = field(
        default=10.0, init=False
    )  # how many records an example counts for

    starts_from_examples = True
    _NOISE_OF_LOGIT = 0.6

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare a gradient for each step, and the number of records; nothing for a budget of 0."""
        if setting.public.examples is None:
            raise InputError(
                "AdaMix starts from public examples of the classes; give public=PublicData(examples=..., "
                "example_classes=...)."
            )
        if self.budget.is_zero:
            return {}
        return super().measurements(setting)

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Start from the classifier of the examples, and add their gradients to the projected ones in every step."""
        examples = setting.public.examples
        n_classes = setting.n_classes
        assert examples is not None  # measurements saw to that
        features = setting.lattice.features(examples.rows).astype(np.float64)
        coef = ExampleClassifier.fit(features, examples.codes, n_classes).coef
        if "size" not in measure:
            self.coef_ = coef
            return
        velocity = np.zeros_like(coef)
        size = measured_size(measure, n_classes)
        unit = measure.unit("gradients")
        # Public examples count as so many records each, without noise.
        weight = size + self.public_weight * len(features)
        residuals = _residuals(features, examples.codes, coef)
        step = self._step_size(
            weight, measure.noise_std("gradients") * self._clip(residuals) / unit
        )
        for _ in steps(self.steps):
            # Examples and released weights settle the clipping norm and the subspace,
            # before records are looked at.
            residuals = _residuals(features, examples.codes, coef)
            clip = self._clip(residuals)
            noisy = measure("gradients", weights=coef, clip=clip)
            projected = self._projected(
                np.asarray(noisy * (clip / unit), np.float64), residuals, features
            )
            velocity = (
                self.momentum * velocity
                + (projected + self.public_weight * residuals.T @ features) / weight
            )
            coef = coef + step * velocity
        self.coef_ = coef

    def _clip(self, residuals: Float) -> float:
        """Return the quantile of the norms of the examples' gradients."""
        norms = np.linalg.norm(residuals, axis=1)
        return max(float(np.quantile(norms, self.clip_quantile)), _LEAST_CLIP)

    def _projected(self, gradient: Float, residuals: Float, features: Float) -> Float:
        """Project the rows of a released gradient on the subspace of the examples' gradients."""
        if self.n_components == "all":
            return gradient
        norms = np.linalg.norm(residuals, axis=1, keepdims=True)
        _, values, axes = np.linalg.svd(norms * features, full_matrices=False)
        # Directions below the rounding of the largest are none that the examples span.
        rank = int(
            np.count_nonzero(
                values > values[0] * max(features.shape) * np.finfo(np.float64).eps
            )
        )
        axes = axes[
            : rank if self.n_components is None else min(rank, self.n_components)
        ]
        return np.asarray(gradient @ axes.T @ axes)


def _residuals(features: Float, codes: Codes, coef: Float) -> Float:
    """Return the one-hot labels minus the probabilities, of shape (n_examples, n_classes)."""
    residuals: Float = -softmax(features @ coef.T, axis=1)
    residuals[np.arange(len(codes)), codes] += 1
    return residuals
