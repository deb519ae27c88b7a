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
from dppl.lab.adapt_queries import CountedGradients, count_weight
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import Positive, parameters
from dppl.methods.probe import LinearProbe
from dppl.methods.sizes import SIZE_PERCENT, measured_size

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
class GlobalAdapt(LinearProbe):
    r"""Softmax regression by DPSGD-Global-Adapt, by default with all records in every step.

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
    clip : float, default=1.0
        C, which scales steps as the learning rate does.
    sampling_rate : float, default=1.0
        Probability with which a record is in the batch of a step, as published; of this
        batch are the gradient and the count.
    batch_size : float, default=None
        The published divisor of both: a public number, never taken from the private
        data. None releases the number of records.

    Notes
    -----
    The norm of a gradient is the norm of its residual here, because rows have norm 1. η is 0.1: Z settles where about
    this share of the records is longer than τ·Z. With a `batch_size` gradient and count are one vector with one noise,
    and of its square a hundredth is the count's.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    gradients of all steps, the counts of long gradients and the number of records;
    `coef_` is computed from those. Sensitivity: 2²⁰·s in L2 over the whole gradient of
    a step, where s = 127·√dim/4 lattice steps; 1 for every count. With a `batch_size`
    it is √(2⁴⁰·s² + w²) of both together, w being the weight of a count. A step depends
    on earlier ones only through what they released, so squares of mu add. With
    `sampling_rate` below 1 the cost is accounted by privacy loss distributions, in
    (epsilon, delta) only. Public inputs: `classes`, all parameters, `public`,
    `n_features`. Not covered: choice of parameters by private data, timing, a changed
    label (two steps).

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
        """Declare a gradient and a number of long ones for each step and, where no public number is given, of records."""
        if self.batch_size is not None:
            both = CountedGradients(
                setting.lattice, setting.n_classes, sampling_rate=self.sampling_rate
            )
            return {"both": Measurement(both, times=self.steps)}
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
        # The number of records is private, so a public or a released one divides the
        # sums.
        size = self.batch_size or measured_size(measure, setting.n_classes)
        name = "both" if self.batch_size else "gradients"
        scale = self.clip / measure.unit(name)
        step = self._step_size(size, measure.noise_std(name) * scale)
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
            threshold = self.threshold * bound
            # Of one batch as published, or each of all records.
            if self.batch_size:
                *gradient, count = measure(
                    "both", **at, clip=bound, threshold=threshold
                )
                noisy = np.reshape(gradient, coef.shape)
                longer = count / count_weight(setting.lattice)
            else:
                noisy = measure("gradients", **at, clip=bound)
                (longer,) = measure("longer", **at, threshold=threshold)
            velocity = self.momentum * velocity + noisy * (scale / size)
            coef = coef + step * velocity
            share = min(max(float(longer) / size, 0.0), 1.0)
            bound = min(
                max(bound * math.exp(share - self.upper_bound_rate), _BOUNDS[0]),
                _BOUNDS[1],
            )
        self.coef_ = coef
