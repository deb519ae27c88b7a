"""DP-SGD on a linear layer, with exact full-batch gradients or Poisson samples."""

import math
from dataclasses import field
from typing import ClassVar

import numpy as np

from dppl._utils.progress import steps
from dppl._utils.types import Float
from dppl.errors import ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice.residuals import check_clip
from dppl.kernel.queries import NumberOfRecords, SoftmaxGradients
from dppl.methods import Classifier
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import Count, Positive, Probability, parameters
from dppl.methods.sizes import SIZE_PERCENT, measured_size

# Where noise does not bound the default step, this is the step, in units of the number
# of classes.
_LARGEST_STEP = 4.0


@parameters
class GradientClassifier(Classifier):
    """Softmax regression by noisy gradient steps with a momentum of 0.9.

    Parameters
    ----------
    steps : int, default=40
        Number of gradient steps; each gets the same share of the budget.
    learning_rate : float, default=None
        Step along the mean gradient, in units of the number of classes (the inverse
        curvature of the loss at the start). None is as long as the noise of all steps
        moves a logit by a standard deviation of 1.5 (0.6 of `AdaMix`, if all are
        clipped as the first), and at most 4.
    """

    steps: Count = 40
    learning_rate: Positive | None = None
    momentum: float = field(
        default=0.9, init=False
    )  # share of the velocity that the next step keeps (Polyak 1964)

    # With the default step, the noise of all steps moves a logit by this standard
    # deviation.
    _NOISE_OF_LOGIT: ClassVar[float] = 1.5

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare a gradient for each step, and the number of records."""
        gradients = SoftmaxGradients(setting.lattice, setting.n_classes)
        return {
            "gradients": Measurement(gradients, 100 - SIZE_PERCENT, self.steps),
            "size": Measurement(NumberOfRecords(), SIZE_PERCENT),
        }

    def _step_size(self, n_records: float, noise_std: float) -> float:
        """Return the step along the mean gradient, from parameters and released values.

        A gradient is divided by `n_records`; `noise_std` is of one step, in units of
        the residual's clipping norm and unit rows.
        """
        n_classes = len(self.classes_)
        if self.learning_rate is not None:
            return self.learning_rate * n_classes
        noise = (
            noise_std
            * math.sqrt(self.steps)
            * n_classes
            / n_records
            / (1 - self.momentum)
        )
        return n_classes * min(_LARGEST_STEP, self._NOISE_OF_LOGIT / noise)


@parameters
class LinearProbe(GradientClassifier):
    r"""Softmax regression by differentially private gradient descent.

    Every step sums the records' gradients, their residuals clipped, adds Gaussian
    noise, and moves the weights with momentum. By default all records take part in
    every step and the sums are exact integers; that is the comparison of the DPPL
    papers. With `sampling_rate` below 1 each step sees a Poisson sample (DP-SGD).

    Parameters
    ----------
    clip : float, default=1.0
        Longest residual (one-hot label minus probabilities, at most √2) that keeps its
        length, and so the longest gradient.
    sampling_rate : float, default=1.0
        Probability with which a record takes part in a step. Below 1 the budget is an
        ApproxDP.
    batch_size : float, default=None
        A public number to divide the sums of a step by: the expected size of a sample.
        None releases the number of records, for a hundredth of the budget; needed with
        `sampling_rate` below 1. Never take it from the private data.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    gradients of all steps and, without `batch_size`, the number of records; `coef_` is
    computed from those. Sensitivity: 2²⁰·s in L2 over the whole gradient of a step,
    where s = 127·√dim/4 lattice steps; 1 for the number of records. A step's gradient
    depends on earlier ones only through what they released, so squares of mu add.
    Public inputs: `classes`, all parameters, `public`, `n_features`. Not covered:
    choice of parameters by private data, timing, a changed label (two steps). With
    `sampling_rate` below 1 the cost is accounted by privacy loss distributions, in
    (epsilon, delta) only.

    References
    ----------
    .. [1] Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang (2016),
    arXiv:1607.00133, Algorithm 1.
    .. [2] DPPL-v1 (arXiv:2406.08039), section 5 and appendix D.2: full-batch linear
    probing as comparison.
    .. [3] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).
    """

    clip: Positive = 1.0
    sampling_rate: Probability = 1.0
    batch_size: Positive | None = None

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        check_clip(self.clip)
        if self.batch_size is None and self.sampling_rate < 1:
            raise ParameterError(
                "is the expected size of a sample, which sampling_rate below 1 needs, since the number of records is "
                "private; got None.",
                parameter="batch_size",
            )

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare a gradient for each step and, unless a public number takes its place, the number of records."""
        if self.batch_size is None:
            return super().measurements(setting)
        gradients = SoftmaxGradients(
            setting.lattice, setting.n_classes, sampling_rate=self.sampling_rate
        )
        return {"gradients": Measurement(gradients, times=self.steps)}

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Take steps along gradients."""
        size = self.batch_size or measured_size(measure, setting.n_classes)
        scale = self.clip / measure.unit("gradients")
        step = self._step_size(size, measure.noise_std("gradients") * scale)
        coef = self._start(setting)
        velocity = np.zeros_like(coef)
        for _ in steps(self.steps):
            noisy = measure("gradients", weights=coef, clip=self.clip)
            velocity = self.momentum * velocity + noisy * (scale / size)
            coef = coef + step * velocity
        self.coef_ = coef

    def _start(self, setting: Setting) -> Float:
        """Return the weights before the first step."""
        return np.zeros((setting.n_classes, setting.lattice.dim))
