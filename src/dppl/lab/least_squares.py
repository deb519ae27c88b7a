"""DP-LS: ridge regression on class indicators from a noisy Gram matrix and noisy class sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl import _validate
from dppl.errors import ParameterError
from dppl.estimators.classifier import Classifier
from dppl.estimators.parameters import LatticeParameter, parameters
from dppl.estimators.plan import Setting
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice.threads import in_order
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.kernel.queries import ClassGramMatrices, ClassSums, GramMatrix
from dppl.prototypes._shared import SHARPNESS

Float = NDArray[np.float64]


@parameters
class LeastSquares(LatticeParameter, Classifier):
    r"""Least squares on noisy moments, one linear score per class (DP-LS).

    With rows u of norm at most 1, the Gram matrix A = Σ u uᵀ and class sums b_c are released once. The weights of class
    c solve (α·A + λI)·θ_c = b_c: ridge regression on the indicator of the class. With `class_grams`, the Gram matrices
    A_c of the classes are released too, and (A_c + α·A + λI)·θ_c = b_c, which weighs records of other classes by α.

    Parameters
    ----------
    class_grams : bool, default=False
        Whether each class gets a Gram matrix of its own: n_classes·dim² numbers, whose noise takes about a minute per
        ten million to draw on one core.
    alpha : float, default=1.0
        Weight of the Gram matrix of all records.
    ridge : float, default=None
        λ, in units of unit rows. None is half the largest eigenvalue that the noise in the matrices has, α·√(dim/2)·σ,
        where σ is its standard deviation on the diagonal: public, and what the noise needs to be invertible.
    split : tuple of float, default=None
        Shares of the budget for the class sums, the Gram matrix and, with `class_grams`, those of the classes. None
        shares equally.
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
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one by any other). Released: class
    sums, Gram matrix and, with `class_grams`, Gram matrices of the classes; `coef_` is computed from those.
    Sensitivity: s in L2 over all class sums and s² in the Frobenius norm over all Gram matrices of one release, where
    s = 127·√dim/4 lattice steps (2s and √2·s² under replace-one). Public inputs: `classes`, all parameters,
    `public`, `n_features`. Not covered: choice of parameters by private data, timing, a changed label under
    add/remove (two steps).

    References
    ----------
    .. [1] Mehta, Krichene, Thakurta, Kurakin, Cutkosky (2023), Differentially private image classification from
       features, TMLR, arXiv:2211.13403, DP-LS.

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.lab import LeastSquares
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = LeastSquares(ApproxDP(1, 1e-6), classes=sample.classes).fit(sample.X, sample.y)
    >>> bool(model.score(sample.X_test, sample.y_test) > 0.5)
    True
    """

    class_grams: bool = False
    alpha: float = 1.0
    ridge: float | None = None
    split: Sequence[float] | None = None
    adjacency: Adjacency = "add-remove"

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        if not isinstance(self.class_grams, bool | np.bool_):
            raise ParameterError(f"class_grams must be True or False; got {self.class_grams!r}.")
        _validate.positive(alpha=self.alpha)
        if self.ridge is not None:
            _validate.positive(ridge=self.ridge)
        if self.split is not None and len(self.split) != self._n_releases:
            raise ParameterError(f"split must have {self._n_releases} shares here; got {self.split!r}.")
        _validate.positive(**{f"split[{i}]": share for i, share in enumerate(self.split or ())})

    @property
    def _n_releases(self) -> int:
        return 3 if self.class_grams else 2

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare class sums, a Gram matrix and, with `class_grams`, one of each class."""
        lattice, n_classes = setting.lattice, setting.n_classes
        shares = [1.0] * self._n_releases if self.split is None else self.split
        queries = {"sums": ClassSums(lattice, n_classes), "gram": GramMatrix(lattice, n_classes)}
        if self.class_grams:
            queries["class grams"] = ClassGramMatrices(lattice, n_classes)
        return {name: Measurement(one, share) for (name, one), share in zip(queries.items(), shares, strict=True)}

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Solve for the ridge weights of each class."""
        sums = measure("sums") / measure.unit("sums")
        # In units of unit rows, where α and λ have their meaning.
        unit = measure.unit("gram")
        gram = self.alpha * measure("gram") / unit
        ridge = self._ridge(measure, setting.lattice.dim)
        if "class grams" in measure:
            noisy = measure("class grams")
            self.coef_ = solve_ridges((one / unit + gram for one in noisy), ridge, sums)
        else:
            self.coef_ = solve_ridge(gram, ridge, sums)

    def _sharpness(self) -> float:
        # Scores estimate a 1 for the own class and a 0 for others, as cosines with prototypes do.
        return SHARPNESS

    def _ridge(self, measure: Measure, dim: int) -> float:
        """Return the ridge: by default half the radius of the noise in the matrix."""
        if self.ridge is not None:
            return float(self.ridge)
        stds = [self.alpha * measure.noise_std("gram")]
        if "class grams" in measure:
            stds.append(measure.noise_std("class grams"))
        return noise_radius(math.hypot(*stds) / measure.unit("gram"), dim) / 2


def noise_radius(noise_std: float, dim: int) -> float:
    """Return √(2·dim)·σ, about the largest eigenvalue of symmetric noise of width σ on and σ/√2 off the diagonal."""
    return math.sqrt(2 * dim) * noise_std


def solve_ridge(gram: NDArray[Any], ridge: float, targets: NDArray[Any]) -> Float:
    """Return the rows θ of ``(gram₊ + ridge·I)·θ = target``, with the positive semidefinite part of a noisy matrix.

    `gram` has shape (dim, dim), `targets` (..., dim).
    """
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((targets @ vectors / (np.maximum(values, 0) + ridge)) @ vectors.T)


def solve_ridges(grams: Iterable[NDArray[Any]], ridge: float, targets: NDArray[Any]) -> Float:
    """Return `solve_ridge` of each matrix and its target, one on each core."""
    return np.stack(list(in_order(lambda pair: solve_ridge(pair[0], ridge, pair[1]), zip(grams, targets, strict=True))))
