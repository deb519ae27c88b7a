"""What the baselines that descend on noisy gradients of the softmax loss share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from dppl import _validate
from dppl.baselines._linear import LinearClassifier
from dppl.estimators.records import Codes
from dppl.lattice import SoftmaxGradient
from dppl.mechanisms import Randomness, RoundedGaussian
from dppl.privacy import Budget, Release

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

# With the default step, the noise of all steps together moves a logit by this standard deviation, ...
_NOISE_OF_LOGIT = 1.5
# ... and where that is no bound, this is the step, in units of the number of classes.
_LARGEST_STEP = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedGaussian:
    """The Gaussian mechanism, used `times` times on values that may depend on what it released before.

    Squares of mu add under such composition (Dong, Roth, Su 2022, arXiv:1905.02383v3, Corollary 3.3), so the total is
    that of one release whose squared sensitivity is the sum of theirs.

    Parameters
    ----------
    together : RoundedGaussian
        All releases as one.
    times : int
    """

    together: RoundedGaussian
    times: int

    @classmethod
    def within(cls, budget: Budget, squared_sensitivity: Fraction, times: int) -> RepeatedGaussian:
        """Return the least noise with which all releases together stay within `budget`."""
        return cls(together=RoundedGaussian.within(budget, times * squared_sensitivity), times=times)

    @property
    def noise_std(self) -> float:
        """Standard deviation in one release."""
        return self.together.noise_std

    def release(self, exact: Int64, source: Randomness) -> Int64:
        """Return `exact` plus the noise of one release."""
        return self.together.release(exact, source)

    def describe(self, statistic: str) -> Release:
        """Return the entry of the guarantee: the sensitivity of one release, the cost of all."""
        return replace(
            self.together.describe(statistic),
            mechanism=f"rounded Gaussian, {self.times} times",
            sensitivity=math.sqrt(self.together.squared_sensitivity / self.times),
        )


class GradientClassifier(LinearClassifier):
    """Softmax regression from zero weights by noisy gradient steps with momentum."""

    steps: int
    learning_rate: float | None
    momentum: float
    l2: float
    intercept_scaling: float

    def predict_proba(self, X: Any) -> Float:
        """Return the softmax of the scores. Clipping and noise leave it uncalibrated.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n, n_features)
            Rows to classify; they cost nothing.

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        return np.asarray(softmax(self._scores(X), axis=1))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _validate.positive_integer(steps=self.steps)
        if self.learning_rate is not None:
            _validate.positive(learning_rate=self.learning_rate)
        for name in ("l2", "intercept_scaling"):
            if getattr(self, name) != 0:
                _validate.positive(**{name: getattr(self, name)})
        if self.momentum != 0:
            _validate.open_unit(momentum=self.momentum)

    def _gradient(self) -> SoftmaxGradient:
        return SoftmaxGradient(self.lattice_, bias=round(self.intercept_scaling * self.lattice_.scale))

    def _shape(self) -> str:
        """Describe a gradient, for the guarantee."""
        column = " and a constant" if self._gradient().bias else ""
        return f"{len(self.classes_)} x {self.lattice_.dim}{column}"

    def _step_size(self, n_records: float, noise_std: float) -> float:
        """Return the step along the mean gradient, from parameters and released values.

        Parameters
        ----------
        n_records : float
            What a gradient is divided by.
        noise_std : float
            That of one step, in units of the residual's clipping norm and unit rows.
        """
        n_classes = len(self.classes_)
        if self.learning_rate is not None:
            return self.learning_rate * n_classes
        row = math.hypot(1.0, self.intercept_scaling)
        noise = noise_std * row * math.sqrt(self.steps) * n_classes / n_records / (1 - self.momentum)
        return n_classes * min(_LARGEST_STEP, _NOISE_OF_LOGIT / noise)


class Descent:
    """Weights that move along released gradients by the heavy-ball rule (Polyak 1964).

    Parameters
    ----------
    n_classes : int
    gradient : SoftmaxGradient
    momentum : float
        Share of the last step's velocity that is kept.
    l2 : float
        Strength of the penalty ``l2 / 2 * ‖coef‖²`` beside the mean loss.
    """

    def __init__(self, n_classes: int, gradient: SoftmaxGradient, *, momentum: float, l2: float) -> None:
        self.coef = np.zeros((n_classes, gradient.lattice.dim))
        self.intercept = np.zeros(n_classes)
        self._constant = gradient.bias / gradient.lattice.scale
        self._velocity = np.zeros((n_classes, gradient.lattice.dim + (gradient.bias != 0)))
        self._momentum, self._l2 = momentum, l2

    def move(self, direction: NDArray[Any], step: float) -> None:
        """Take a step along the negative gradient of the mean loss, as `SoftmaxGradient.sum` orders it."""
        dim = self.coef.shape[1]
        self._velocity = self._momentum * self._velocity + direction
        self._velocity[:, :dim] -= self._l2 * self.coef
        self.coef = self.coef + step * self._velocity[:, :dim]
        if self._constant:
            self.intercept = self.intercept + step * self._constant * self._velocity[:, dim]


def release_size(mechanism: RoundedGaussian, codes: Codes, n_classes: int, source: Randomness) -> float:
    """Release the number of records, raised to the width of its noise and to one record a class, to divide by."""
    exact = np.array([np.count_nonzero(codes >= 0)], np.int64)
    return max(float(mechanism.release(exact, source)[0]), mechanism.noise_std, float(n_classes))
