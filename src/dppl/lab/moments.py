"""The methods of Mehta, Krichene, Thakurta, Kurakin and Cutkosky (TMLR 2023, arXiv:2211.13403) on noisy second moments.

DP-LS solves a ridge regression once; DP-FC and DP-Newton take steps along noisy
gradients in the metric of matrices of which one is released, or one for each class in
every step.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np

from dppl._utils.progress import steps
from dppl._utils.types import Array, Float
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice.stream import in_order
from dppl.kernel.queries import (
    ClassGramMatrices,
    ClassSums,
    GramMatrix,
    SoftmaxCurvatures,
    SoftmaxGradients,
)
from dppl.methods import Classifier
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import (
    Count,
    LatticeParameter,
    Positive,
    Share,
    parameters,
)
from dppl.methods.shared import SHARPNESS


@parameters
class Moments(Classifier):
    """What methods share that invert noisy matrices.

    Parameters
    ----------
    ridge : float, default=None
        λ, which is added to the diagonal, in units of unit rows. None is half the
        largest eigenvalue that the noise in the matrix has, √(dim/2)·σ, where σ is its
        standard deviation on the diagonal: public, and what the noise needs to be
        invertible. `Newton` adds 1, the curvature of a few records, without which steps
        run away where all records are fitted.
    """

    ridge: Positive | None = None

    def _ridge(self, noise_std: float, setting: Setting) -> float:
        if self.ridge is None:
            return noise_radius(noise_std, setting.lattice.dim) / 2
        return float(self.ridge)


@parameters
class LeastSquares(LatticeParameter, Moments):
    r"""Least squares on noisy moments, one linear score per class (DP-LS).

    With rows u of norm at most 1, the Gram matrix A = Σ u uᵀ and class sums b_c are
    released once. The weights of class c solve (α·A + λI)·θ_c = b_c: ridge regression
    on the indicator of the class. With `class_grams`, the Gram matrices A_c of the
    classes are released too, and (A_c + α·A + λI)·θ_c = b_c, which weighs records of
    other classes by α.

    Parameters
    ----------
    class_grams : bool, default=False
        Whether each class gets a separate Gram matrix: n_classes·dim² numbers, whose
        noise takes about a minute per ten million to draw on one core.
    alpha : float, default=1.0
        Weight of the Gram matrix of all records.

    Notes
    -----
    All releases have equal shares of the budget.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: class
    sums, Gram matrix and, with `class_grams`, Gram matrices of the classes; `coef_` is
    computed from those. Sensitivity: s in L2 over all class sums and s² in the
    Frobenius norm over all Gram matrices of one release, where s = 127·√dim/4 lattice
    steps. Public inputs: `classes`, all parameters, `public`, `n_features`. Not
    covered: choice of parameters by private data, timing, a changed label (two steps).
    """

    class_grams: bool = False
    alpha: Positive = 1.0

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare class sums, a Gram matrix and, with `class_grams`, one of each class."""
        lattice = setting.lattice
        n_classes = setting.n_classes
        asked = {
            "sums": Measurement(ClassSums(lattice, n_classes)),
            "gram": Measurement(GramMatrix(lattice, n_classes)),
        }
        if self.class_grams:
            asked["class grams"] = Measurement(ClassGramMatrices(lattice, n_classes))
        return asked

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Solve for the ridge weights of each class."""
        sums = measure("sums") / measure.unit("sums")
        # In units of unit rows, where α and λ have their meaning.
        unit = measure.unit("gram")
        gram = self.alpha * measure("gram") / unit
        noise_std = self.alpha * measure.noise_std("gram")
        if not self.class_grams:
            self.coef_ = solve_ridge(gram, self._ridge(noise_std / unit, setting), sums)
            return
        noise_std = math.hypot(noise_std, measure.noise_std("class grams"))
        grams = (one / unit + gram for one in measure("class grams"))
        self.coef_ = solve_ridges(grams, self._ridge(noise_std / unit, setting), sums)

    def _sharpness(self) -> float:
        # Scores estimate a 1 for the own class and a 0 for others, as cosines with
        # prototypes do.
        return SHARPNESS


@parameters
class _Steps(Moments):
    """Softmax regression by noisy gradients, each times the inverse of a noisy matrix; subclasses say of which."""

    steps: Count
    learning_rate: Positive
    share: Share
    # name and query of what is inverted, and whether every step asks for it
    _INVERTED: ClassVar[tuple[str, type[GramMatrix | SoftmaxCurvatures], bool]]

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare a gradient for each step, and what is inverted."""
        name, query, every_step = self._INVERTED
        matrices = query(setting.lattice, setting.n_classes)
        gradients = SoftmaxGradients(setting.lattice, setting.n_classes)
        return {
            name: Measurement(matrices, self.share, self.steps if every_step else 1),
            "gradients": Measurement(gradients, 1 - self.share, self.steps),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Take steps from zero."""
        step = self._step(measure, setting)
        self.coef_ = np.zeros((setting.n_classes, setting.lattice.dim))
        for _ in steps(self.steps):
            self.coef_ = self.coef_ + self.learning_rate * step(self.coef_)

    @abstractmethod
    def _step(self, measure: Measure, setting: Setting) -> Callable[[Float], Float]:
        """Return the function from weights to the step that starts there."""

    def _direction(self, measure: Measure, coef: Float) -> Float:
        """Ask for the descent direction at these weights, in units of unit rows; residuals are clipped to length 1."""
        return np.asarray(
            measure("gradients", weights=coef) * (1 / measure.unit("gradients"))
        )


@parameters
class FeatureCovariance(_Steps):
    r"""Noisy gradient descent on the softmax loss in the metric of a noisy Gram matrix (DP-FC).

    The Gram matrix A = Σ u uᵀ of rows u of norm at most 1 is released once. From
    weights Θ = 0, each step releases the sum G of the records' clipped descent
    directions and moves by η·G·(A + λI)⁻¹. A replaces the Hessian of the loss: it costs
    once what a Hessian would cost in every step.

    Parameters
    ----------
    steps : int, default=10
        Number of gradients.
    learning_rate : float, default=4.0
        η. The Hessian of the softmax loss is at most A/2 (Böhning 1992), so steps up to
        4 are stable.
    share : float, default=0.2
        Share of the budget for the Gram matrix; the gradients share the rest equally.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    Gram matrix and the gradients of all steps; `coef_` is computed from those.
    Sensitivity: s² in the Frobenius norm for the Gram matrix and r·s for a gradient,
    where s = 127·√dim/4 lattice steps and r = 2²⁰ steps are the longest residual; every
    gradient is taken at weights that were computed from earlier releases. Public
    inputs: `classes`, all parameters, `public`, `n_features`. Not covered: choice of
    parameters by private data, timing, a changed label (two steps).
    """

    steps: Count = 10
    learning_rate: Positive = 4.0
    share: Share = 0.2

    _INVERTED = "gram", GramMatrix, False

    def _step(self, measure: Measure, setting: Setting) -> Callable[[Float], Float]:
        # Released once; all steps use it, since the rows do not change. It is a Newton
        # step with Böhning's bound A/2 instead of the Hessian.
        unit = measure.unit("gram")
        ridge = self._ridge(measure.noise_std("gram") / unit, setting)
        inverse = solve_ridge(
            measure("gram") / unit, ridge, np.eye(setting.lattice.dim)
        )
        return lambda coef: self._direction(measure, coef) @ inverse


@parameters
class Newton(_Steps):
    r"""Noisy Newton steps on the softmax loss, with a Hessian for each class (DP-Newton).

    From weights θ_c = 0, each step releases the sum G of the records' clipped descent
    directions and, for each class, the block H_c = Σ p_c(1 - p_c)·u·uᵀ on the diagonal
    of the Hessian, and moves by η·(H_c + λI)⁻¹·G_c. The Hessians need a generous
    budget; `FeatureCovariance` does with one matrix for all classes and steps.

    A step takes n_records·n_classes·dim² operations, and noise for n_classes·dim²
    numbers: about a minute per ten million on one core. That suits tens of classes and
    hundreds of dimensions.

    Parameters
    ----------
    steps : int, default=3
        Number of gradients, and of Hessians for each class.
    learning_rate : float, default=1.0
        η. The whole Hessian is at most twice its blocks on the diagonal, so steps up to
        1 are stable.
    share : float, default=0.5
        Share of the budget for the Hessians; the gradients have the rest.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    gradients and Hessians of all steps; `coef_` is computed from those. Sensitivity:
    r·s in L2 for a gradient and √(4/27)·s² in the Frobenius norm over the Hessians of
    one step, where s = 127·√dim/4 lattice steps and r = 2²⁰ steps are the longest
    residual; both are taken at weights that were computed from earlier releases. Public
    inputs: `classes`, all parameters, `public`, `n_features`. Not covered: choice of
    parameters by private data, timing, a changed label (two steps).
    """

    steps: Count = 3
    learning_rate: Positive = 1.0
    share: Share = 0.5

    _INVERTED = "hessians", SoftmaxCurvatures, True

    def _step(self, measure: Measure, setting: Setting) -> Callable[[Float], Float]:
        unit = measure.unit("hessians")
        ridge = (self.ridge is None) + self._ridge(
            measure.noise_std("hessians") / unit, setting
        )

        def step(coef: Float) -> Float:
            # Both are asked at the same weights, so a step belongs to one quadratic
            # model of the loss.
            hessians = (one / unit for one in measure("hessians", weights=coef))
            return solve_ridges(hessians, ridge, self._direction(measure, coef))

        return step


def noise_radius(noise_std: float, dim: int) -> float:
    """Return √(2·dim)·σ, about the largest eigenvalue of symmetric noise of width σ on and σ/√2 off the diagonal."""
    return math.sqrt(2 * dim) * noise_std


def solve_ridge(gram: Array, ridge: float, targets: Array) -> Float:
    """Solve ``(gram₊ + ridge·I)·θ = target`` for rows of targets, with the positive part of a noisy matrix."""
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((targets @ vectors / (np.maximum(values, 0) + ridge)) @ vectors.T)


def solve_ridges(grams: Iterable[Array], ridge: float, targets: Array) -> Float:
    """Return `solve_ridge` of each matrix and its target, one on each core."""
    return np.stack(
        list(
            in_order(
                lambda pair: solve_ridge(pair[0], ridge, pair[1]),
                zip(grams, targets, strict=True),
            )
        )
    )
