"""What the probes share: softmax regression, whose steps are as long as noise allows."""

from __future__ import annotations

import math
from typing import ClassVar

from dppl import _validate
from dppl.estimators.classifier import Classifier
from dppl.estimators.descent import Descent
from dppl.estimators.parameters import AdjacencyParameter, LatticeParameter, parameters
from dppl.estimators.plan import Setting
from dppl.kernel.queries import SoftmaxGradients

# Where noise does not bound the default step, this is the step, in units of the number of classes.
_LARGEST_STEP = 4.0


@parameters
class GradientClassifier(AdjacencyParameter, LatticeParameter, Classifier):
    """Softmax regression by noisy gradient steps with momentum.

    Parameters
    ----------
    steps : int, default=40
        Number of gradient steps; each gets the same share of the budget.
    learning_rate : float, default=None
        Step along the mean gradient, in units of the number of classes (the inverse curvature of the loss at the
        start). None is as long as the noise of all steps moves a logit by a standard deviation of 1.5 (0.6 of
        `AdaMix`, if all are clipped as the first), and at most 4.
    momentum : float, default=0.9
        Share of the velocity kept from one step to the next; 0 is plain gradient descent.
    l2 : float, default=0.0
        Strength of the penalty ``l2 / 2 * ‖coef_‖²`` added to the mean loss.
    intercept_scaling : float, default=0.0
        A constant coordinate of this size ends each row, and its weight gives the intercept. It lengthens unit rows,
        and with them the noise, to ``hypot(1, intercept_scaling)``. 0 fits no intercept.
    """

    steps: int = 40
    learning_rate: float | None = None
    momentum: float = 0.9
    l2: float = 0.0
    intercept_scaling: float = 0.0

    # With the default step, the noise of all steps moves a logit by this standard deviation.
    _NOISE_OF_LOGIT: ClassVar[float] = 1.5

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        _validate.positive_integer(steps=self.steps)
        if self.learning_rate is not None:
            _validate.positive(learning_rate=self.learning_rate)
        for name in ("l2", "intercept_scaling"):
            if getattr(self, name) != 0:
                _validate.positive(**{name: getattr(self, name)})
        if self.momentum != 0:
            _validate.open_unit(momentum=self.momentum)

    def _gradients(self, setting: Setting) -> SoftmaxGradients:
        """Return the query of a step; the constant coordinate makes rows longer by as much as is declared."""
        bias = round(self.intercept_scaling * setting.lattice.scale)
        return SoftmaxGradients(setting.lattice, setting.n_classes, bias)

    def _descent(self, setting: Setting) -> Descent:
        """Return the weights before the first step."""
        constant = self._gradients(setting).bias / setting.lattice.scale
        dim = setting.lattice.dim
        return Descent(setting.n_classes, dim, momentum=self.momentum, l2=self.l2, constant=constant)

    def _step_size(self, n_records: float, noise_std: float) -> float:
        """Return the step along the mean gradient, from parameters and released values.

        A gradient is divided by `n_records`; `noise_std` is of one step, in units of the residual's clipping norm
        and unit rows.
        """
        n_classes = len(self.classes_)
        if self.learning_rate is not None:
            return self.learning_rate * n_classes
        row = math.hypot(1.0, self.intercept_scaling)
        noise = noise_std * row * math.sqrt(self.steps) * n_classes / n_records / (1 - self.momentum)
        return n_classes * min(_LARGEST_STEP, self._NOISE_OF_LOGIT / noise)
