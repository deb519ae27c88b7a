"""DP-SGD on a linear layer, with exact full-batch gradients or Poisson samples."""

from __future__ import annotations

from dataclasses import replace

from dppl import _validate
from dppl._progress import steps
from dppl.errors import ParameterError
from dppl.estimators.descent import SIZE_PERCENT, measured_size
from dppl.estimators.parameters import parameters
from dppl.estimators.plan import Setting
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice.residuals import check_clip
from dppl.kernel.queries import NumberOfRecords
from dppl.prototypes._gradients import GradientClassifier


@parameters
class LinearProbe(GradientClassifier):
    r"""Softmax regression by differentially private gradient descent.

    Every step sums the records' gradients, their residuals clipped, adds Gaussian noise, and moves the weights
    with momentum. By default all records take part in every step and the sums are exact integers; that is the
    comparison of the DPPL papers. With `sampling_rate` below 1 each step sees a Poisson sample (DP-SGD).

    Parameters
    ----------
    clip : float, default=1.0
        Longest residual (one-hot label minus probabilities, at most √2) that keeps its length, and so the longest
        gradient.
    sampling_rate : float, default=1.0
        Probability with which a record takes part in a step. Below 1 the budget is an ApproxDP, and
        the relation add-remove.
    batch_size : float, default=None
        A public number to divide the sums of a step by: the expected size of a sample. None releases the number of
        records, for a hundredth of the budget; needed with `sampling_rate` below 1. Never take it from the private
        data.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one by any other). Released: the
    gradients of all steps and, without `batch_size`, the number of records; `coef_` and `intercept_` are computed from
    those. Sensitivity: 2²⁰·√(s² + b²) in L2 over the whole gradient of a step, where s = 127·√dim/4 lattice steps and b
    is the constant coordinate (twice that under replace-one); 1 for the number of records. A step's gradient depends on
    earlier ones only through what they released, so squares of mu add. Public inputs: `classes`, all parameters,
    `public`, `n_features`. Not covered: choice of parameters by private data, timing, a changed label under
    add/remove (two steps). With `sampling_rate` below 1 the cost is accounted by privacy loss distributions, in
    (epsilon, delta) only.

    References
    ----------
    .. [1] Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang (2016), arXiv:1607.00133, Algorithm 1.
    .. [2] DPPL-v1 (arXiv:2406.08039), section 5 and appendix D.2: full-batch linear probing as comparison.
    .. [3] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).
    """

    clip: float = 1.0
    sampling_rate: float = 1.0
    batch_size: float | None = None

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
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

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare a gradient for each step and, unless a public number takes its place, the number of records."""
        gradients = replace(self._gradients(setting), sampling_rate=self.sampling_rate)
        if self.batch_size is not None:
            return {"gradients": Measurement(gradients, times=self.steps)}
        return {
            "gradients": Measurement(gradients, 100 - SIZE_PERCENT, self.steps),
            "size": Measurement(NumberOfRecords(), SIZE_PERCENT),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Take steps along gradients."""
        size = measured_size(measure, setting.n_classes) if self.batch_size is None else self.batch_size
        scale = self.clip / measure.unit("gradients")
        step = self._step_size(size, measure.noise_std("gradients") * scale)
        descent = self._descent(setting)
        for _ in steps(self.steps):
            noisy = measure("gradients", weights=descent.coef, offsets=descent.intercept, clip=self.clip)
            descent.move(noisy * (scale / size), step)
        self.coef_, self.intercept_ = descent.coef, descent.intercept
