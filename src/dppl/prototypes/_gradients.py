"""What the probes share: softmax regression, whose steps are as long as noise allows."""

from __future__ import annotations

import math
from typing import ClassVar

from dppl import _validate
from dppl.estimators.classifier import Classifier
from dppl.estimators.descent import Descent
from dppl.estimators.plan import Setting
from dppl.kernel.queries import SoftmaxGradients

# Where noise does not bound the default step, this is the step, in units of the number of classes.
_LARGEST_STEP = 4.0


class GradientClassifier(Classifier):
    """Softmax regression by noisy gradient steps with momentum."""

    steps: int
    learning_rate: float | None
    momentum: float
    l2: float
    intercept_scaling: float

    # With the default step, the noise of all steps together moves a logit by this standard deviation.
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

        A gradient is divided by `n_records`; `noise_std` is that of one step, in units of the residual's clipping norm
        and unit rows.
        """
        n_classes = len(self.classes_)
        if self.learning_rate is not None:
            return self.learning_rate * n_classes
        row = math.hypot(1.0, self.intercept_scaling)
        noise = noise_std * row * math.sqrt(self.steps) * n_classes / n_records / (1 - self.momentum)
        return n_classes * min(_LARGEST_STEP, self._NOISE_OF_LOGIT / noise)
