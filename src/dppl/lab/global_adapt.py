"""DPSGD-Global-Adapt: gradient descent that scales most gradients alike instead of clipping them."""

import math
from dataclasses import field
from functools import partial
from typing import Annotated, TypeAlias

import numpy as np

from dppl._utils import validate
from dppl._utils.progress import steps
from dppl.kernel import Measure, Measurement
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.kernel.queries import LongResiduals, NumberOfRecords, SoftmaxGradients
from dppl.methods.fit_plan import Setting
from dppl.methods.linear import SIZE_PERCENT, measured_size
from dppl.methods.parameters import Positive, parameters
from dppl.methods.probe import GradientClassifier

# Percentage of mu² for all counts of long gradients, which only say whether the bound
# rises or falls.
_LONGER_PERCENT = 1
# No residual is longer than √2, so a higher bound would do nothing; a lower one would
# make outliers of all records.
_BOUNDS = 1e-3, math.sqrt(2)
_WITHIN = partial(
    validate.numbers,
    "lie between 0.001 and sqrt(2)",
    lambda bound: _BOUNDS[0] <= bound <= _BOUNDS[1],
)
Bound: TypeAlias = Annotated[float, _WITHIN]


@parameters
class GlobalAdapt(GradientClassifier):
    r"""Softmax regression by DPSGD-Global-Adapt, with all records in every step.

    Clipping shortens long gradients only and so turns their sum away from the classes
    that need it, often the rare ones. Here records with gradients of norm at most Z are
    all scaled by C/Z, which keeps the direction of their sum, and only longer ones are
    clipped to norm C. After each step Z is multiplied by exp(-η + the share of records
    longer than τ·Z), from a noisy count.

    Parameters
    ----------
    upper_bound : float, default=None
        The first Z, between 0.001 and √2, where it is kept. None is √2, the longest
        gradient that there is.
    threshold : float, default=1.0
        τ.

    Notes
    -----
    The norm of a gradient is the norm of its residual here, because rows have norm 1. C is 1, since the learning rate
    scales all gradients too, and η is 0.1: Z settles where about this share of the records is longer than τ·Z. The
    published update divides the count by the batch size; here a noisy number of records takes its place, since the
    true one is private.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    gradients of all steps, the counts of long gradients and the number of records;
    `coef_` is computed from those. Sensitivity: 2²⁰·s in L2 over the whole gradient of
    a step, where s = 127·√dim/4 lattice steps; 1 for every count. A step depends on
    earlier ones only through what they released, so squares of mu add. Public inputs:
    `classes`, all parameters, `public`, `n_features`. Not covered: choice of parameters
    by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] Esipova, Ghomi, Luo, Cresswell (2023), Disparate impact in differential
    privacy from gradient misalignment,
       ICLR, arXiv:2206.07737, DPSGD-Global-Adapt.
    .. [2] DPPL-v1 (arXiv:2406.08039), section 5 and appendix D.2: its full-batch form
    as comparison.
    """

    upper_bound: Bound | None = None
    threshold: Positive = 1.0
    upper_bound_rate: float = field(default=0.1, init=False)  # η

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare a gradient and a number of long ones for each step, and the number of records."""
        gradients = SoftmaxGradients(setting.lattice, setting.n_classes)
        rest = 100 - SIZE_PERCENT - _LONGER_PERCENT
        scaled = Term(
            Statistic.SCALED_GRADIENTS,
            n_classes=setting.n_classes,
            dim=setting.lattice.dim,
        )
        return {
            "gradients": Measurement(gradients, rest, self.steps, scaled),
            "longer": Measurement(
                LongResiduals(setting.lattice, setting.n_classes),
                _LONGER_PERCENT,
                self.steps,
            ),
            "size": Measurement(NumberOfRecords(), SIZE_PERCENT),
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Take steps along scaled gradients, whose bound follows the number of long ones."""
        # The number of records is private, so a released one divides the sums.
        size = measured_size(measure, setting.n_classes)
        scale = 1 / measure.unit("gradients")
        step = self._step_size(size, measure.noise_std("gradients") * scale)
        if self.upper_bound is None:
            bound = _BOUNDS[1]
        else:
            bound = float(self.upper_bound)
        coef = np.zeros((setting.n_classes, setting.lattice.dim))
        velocity = np.zeros_like(coef)
        for _ in steps(self.steps):
            at = {"weights": coef, "offsets": np.zeros(setting.n_classes)}
            # The kernel divides residuals by max(bound, norm): C/Z for those up to Z =
            # bound, a clip to C for the rest.
            noisy = measure("gradients", **at, clip=bound)
            (longer,) = measure("longer", **at, threshold=self.threshold * bound)
            velocity = self.momentum * velocity + noisy * (scale / size)
            coef = coef + step * velocity
            share = min(max(float(longer) / size, 0.0), 1.0)
            bound = min(
                max(bound * math.exp(share - self.upper_bound_rate), _BOUNDS[0]),
                _BOUNDS[1],
            )
        self.coef_ = coef
