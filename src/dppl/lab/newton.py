"""DP-Newton: softmax regression by noisy Newton steps."""

from __future__ import annotations

import numpy as np

from dppl import _validate
from dppl._progress import steps
from dppl.estimators.classifier import Classifier
from dppl.estimators.parameters import LatticeParameter, parameters
from dppl.estimators.plan import Setting
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice.residuals import check_clip
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.kernel.queries import SoftmaxCurvatures, SoftmaxGradients
from dppl.lab.least_squares import noise_radius, solve_ridges


@parameters
class Newton(LatticeParameter, Classifier):
    r"""Noisy Newton steps on the softmax loss, with a Hessian for each class (DP-Newton).

    From weights θ_c = 0, each step releases the sum G of the records' clipped descent directions and, for each class,
    the block H_c = Σ p_c(1 - p_c)·u·uᵀ on the diagonal of the Hessian, and moves by η·(H_c + λI)⁻¹·G_c. The Hessians
    need a generous budget; `FeatureCovariance` does with one matrix for all classes and steps.

    A step takes n_records·n_classes·dim² operations, and noise for n_classes·dim² numbers: about a minute per ten
    million on one core. That suits tens of classes and hundreds of dimensions.

    Parameters
    ----------
    steps : int, default=3
        Number of gradients, and of Hessians for each class.
    learning_rate : float, default=1.0
        η. The whole Hessian is at most twice its blocks on the diagonal, so steps up to 1 are stable.
    hessian_share : float, default=0.5
        Share of the budget for the Hessians; the gradients have the rest.
    ridge : float, default=None
        λ, in units of unit rows. None is 1, the curvature of a few records, without which steps run away where all
        records are fitted, plus half the largest eigenvalue that the noise in a Hessian has: √(dim/2)·σ, where σ is its
        standard deviation on the diagonal, which is public.
    clip : float, default=1.0
        Bound on the length of a record's residual, the one-hot label minus the probabilities.
    adjacency : {"add-remove", "replace-one"}, default="add-remove"
        ``"replace-one"`` replaces a record by any other, of whatever class.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, dim), float64
        Weights θ_c on unit rows, in the order of `classes_`. Safe to publish.
    intercept_, classes_, guarantee_, lattice_, n_features_in_, encoder_
        As in `LinearProbe`, without an intercept.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one by any other). Released: the
    gradients and Hessians of all steps; `coef_` is computed from those. Sensitivity: r·s in L2 for a gradient and
    √(4/27)·s² in the Frobenius norm over the Hessians of one step, where s = 127·√dim/4 lattice steps and r = 2²⁰ steps
    are the longest residual (2·r·s and √(8/27)·s² under replace-one); both are taken at weights that were computed from
    earlier releases. Public inputs: `classes`, all parameters, `public`, `n_features`. Not covered: choice of
    parameters by private data, timing, a changed label under add/remove (two steps).

    References
    ----------
    .. [1] Mehta, Krichene, Thakurta, Kurakin, Cutkosky (2023), Differentially private image classification from
       features, TMLR, arXiv:2211.13403, DP-Newton.

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.lab import Newton
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = Newton(ApproxDP(1, 1e-6), classes=sample.classes).fit(sample.X, sample.y)
    >>> bool(model.score(sample.X_test, sample.y_test) > 0.5)
    True
    """

    steps: int = 3
    learning_rate: float = 1.0
    hessian_share: float = 0.5
    ridge: float | None = None
    clip: float = 1.0
    adjacency: Adjacency = "add-remove"

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        _validate.positive_integer(steps=self.steps)
        _validate.positive(learning_rate=self.learning_rate, clip=self.clip)
        check_clip(self.clip)
        _validate.open_unit(hessian_share=self.hessian_share)
        if self.ridge is not None:
            _validate.positive(ridge=self.ridge)

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare Hessians and a gradient for each step."""
        lattice, n_classes, share = setting.lattice, setting.n_classes, self.hessian_share
        hessians, gradients = SoftmaxCurvatures(lattice, n_classes), SoftmaxGradients(lattice, n_classes)
        return {
            "hessians": Measurement(hessians, share, self.steps),
            "gradients": Measurement(gradients, 1 - share, self.steps),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Take Newton steps, with a ridge that is one plus half the radius of the Hessians' noise."""
        dim, unit, ridge = setting.lattice.dim, measure.unit("hessians"), self.ridge
        if ridge is None:
            ridge = 1 + noise_radius(measure.noise_std("hessians") / unit, dim) / 2
        coef = np.zeros((setting.n_classes, dim))
        for _ in steps(self.steps):
            # Both are asked at the same weights, so a step is that of one quadratic model of the loss.
            scaled = (hessian / unit for hessian in measure("hessians", weights=coef))
            noisy = measure("gradients", weights=coef, clip=self.clip)
            directions = noisy * (self.clip / measure.unit("gradients"))
            coef += self.learning_rate * solve_ridges(scaled, float(ridge), directions)
        self.coef_ = coef
