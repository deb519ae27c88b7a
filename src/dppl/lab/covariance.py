"""DP-FC: softmax regression by noisy gradient steps, preconditioned by a noisy Gram matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl._progress import steps
from dppl.estimators.classifier import Classifier
from dppl.estimators.parameters import LatticeParameter, parameters
from dppl.estimators.plan import Setting
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice.residuals import check_clip
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.kernel.queries import GramMatrix, SoftmaxGradients
from dppl.lab.least_squares import noise_radius, solve_ridge

Float = NDArray[np.float64]


@parameters
class FeatureCovariance(LatticeParameter, Classifier):
    r"""Noisy gradient descent on the softmax loss in the metric of a noisy Gram matrix (DP-FC).

    The Gram matrix A = Σ u uᵀ of rows u of norm at most 1 is released once. From weights Θ = 0, each step releases the
    sum G of the records' clipped descent directions and moves by η·G·(A + λI)⁻¹. A stands in for the Hessian of the
    loss: it costs once what a Hessian would cost in every step.

    Parameters
    ----------
    steps : int, default=10
        Number of gradients.
    learning_rate : float, default=4.0
        η. The Hessian of the softmax loss is at most A/2 [2]_, so steps up to 4 are stable.
    covariance_share : float, default=0.2
        Share of the budget for the Gram matrix; the gradients share the rest equally.
    ridge : float, default=None
        λ, in units of unit rows. None is half the largest eigenvalue that the noise in the Gram matrix has: √(dim/2)·σ,
        where σ is its standard deviation on the diagonal, which is public.
    clip : float, default=1.0
        Bound on the length of a record's residual, the one-hot label minus the probabilities.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        ``"replace-one"`` replaces a record by any other, of whatever class.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, dim), float64
        Weights Θ on unit rows, in the order of `classes_`. Safe to publish.
    intercept_, classes_, guarantee_, lattice_, n_features_in_, encoder_
        As in `LinearProbe`, without an intercept.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one by any other). Released: the Gram
    matrix and the gradients of all steps; `coef_` is computed from those. Sensitivity: s² in the Frobenius norm for the
    Gram matrix and r·s for a gradient, where s = 127·√dim/4 lattice steps and r = 2²⁰ steps are the longest residual
    (√2·s² and 2·r·s under replace-one);
    every gradient is taken at weights that were computed from earlier releases. Public inputs: `classes`, all
    parameters, `public`, `n_features`. Not covered: choice of parameters by private data, timing, a changed label
    under add/remove (two steps).

    References
    ----------
    .. [1] Mehta, Krichene, Thakurta, Kurakin, Cutkosky (2023), Differentially private image classification from
       features, TMLR, arXiv:2211.13403, DP-FC.
    .. [2] Böhning (1992), Multinomial logistic regression algorithm.

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.lab import FeatureCovariance
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = FeatureCovariance(ApproxDP(1, 1e-6), classes=sample.classes).fit(sample.X, sample.y)
    >>> bool(model.score(sample.X_test, sample.y_test) > 0.5)
    True
    """

    steps: int = 10
    learning_rate: float = 4.0
    covariance_share: float = 0.2
    ridge: float | None = None
    clip: float = 1.0
    adjacency: Adjacency = "add-remove"

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        _validate.positive_integer(steps=self.steps)
        _validate.positive(learning_rate=self.learning_rate, clip=self.clip)
        check_clip(self.clip)
        _validate.open_unit(covariance_share=self.covariance_share)
        if self.ridge is not None:
            _validate.positive(ridge=self.ridge)

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare a Gram matrix, and a gradient for each step."""
        lattice, n_classes, share = setting.lattice, setting.n_classes, self.covariance_share
        gradients = SoftmaxGradients(lattice, n_classes)
        return {
            "gram": Measurement(GramMatrix(lattice, n_classes), share),
            "gradients": Measurement(gradients, 1 - share, self.steps),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Take steps along gradients, times the inverse of the Gram matrix."""
        # Released once; all steps use it, since the rows do not change.
        # A Newton step with Böhning's bound A/2 in place of the Hessian [2].
        dim, unit, ridge = setting.lattice.dim, measure.unit("gram"), self.ridge
        if ridge is None:
            ridge = noise_radius(measure.noise_std("gram") / unit, dim) / 2
        preconditioner = solve_ridge(measure("gram") / unit, float(ridge), np.eye(dim))
        coef = np.zeros((setting.n_classes, dim))
        for _ in steps(self.steps):
            noisy = measure("gradients", weights=coef, clip=self.clip)
            coef += self.learning_rate * (noisy * (self.clip / measure.unit("gradients")) @ preconditioner)
        self.coef_ = coef
