"""The Gaussian mechanism on sums over Poisson samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dppl.errors import BudgetError
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import ApproxDP, Budget
from dppl.kernel.privacy.release import Release, cost_of
from dppl.kernel.privacy.rounding import root_above
from dppl.kernel.privacy.sampling import sampled_gaussian_multiplier
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term

# Sampling rates are multiples of 2⁻³², so that 32 fair coins a record decide exactly.
_RATE_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussian:
    """Gaussian noise on sums over Poisson samples, drawn for each of `times` releases."""

    each: RoundedGaussian  # the noise of one release
    times: int
    threshold: int  # a record is in a sample with probability threshold/2³²
    delta: float  # of the budget

    @classmethod
    def within(
        cls,
        budget: Budget,
        squared_sensitivity: Fraction,
        times: int,
        rate: float,
        mu: float = 0.0,
    ) -> SampledGaussian:
        """Return the least noise that stays within `budget`; rounding it is post-processing.

        The sensitivity is for all records, and `rate` the probability with which one is
        sampled, rounded down to a multiple of 2⁻³², and at least that. Sampling
        improves (epsilon, delta), not zCDP. Other Gaussian releases of the same
        records, which cost `mu`, are within the budget, too.
        """
        if not isinstance(budget, ApproxDP):
            raise BudgetError(
                f"sampling_rate below 1 is accounted in approximate DP; use ApproxDP, not {budget!r}."
            )
        threshold = max(1, math.floor(rate * 2**_RATE_BITS))
        sampling = {"sampling_rate": threshold / 2**_RATE_BITS, "steps": times}
        multiplier = sampled_gaussian_multiplier(
            budget.epsilon, budget.delta, mu=mu, **sampling
        )
        noise_std = root_above(
            squared_sensitivity / Fraction(math.nextafter(1 / multiplier, 0.0)) ** 2
        )
        each = RoundedGaussian(
            squared_sensitivity=squared_sensitivity, noise_std=noise_std
        )
        return cls(each=each, times=times, threshold=threshold, delta=budget.delta)

    @property
    def noise_std(self) -> float:
        """Standard deviation in one release."""
        return self.each.noise_std

    def sample(self, n: int, source: Randomness) -> NDArray[np.bool_]:
        """Toss a coin for each of n records; which are in the sample is as private as they are."""
        draws = source.bits(_RATE_BITS * n).to_bytes(_RATE_BITS // 8 * n, "little")
        return np.frombuffer(draws, "<u4") < self.threshold

    def describe(self, statistic: Term[Statistic]) -> Release:
        """Return the entry of the guarantee."""
        code = Mechanism.SAMPLED_ROUNDED_GAUSSIAN
        squared = self.each.squared_sensitivity
        parameters = {
            "noise_std": self.noise_std,
            "sampling_rate": self.threshold / 2**_RATE_BITS,
        }
        return Release(
            mechanism=Term(code),
            statistic=statistic,
            sensitivity=math.sqrt(squared),
            norm=Norm.L2,
            parameters=parameters,
            cost=cost_of(code, squared, parameters, self.times, self.delta),
            times=self.times,
        )
