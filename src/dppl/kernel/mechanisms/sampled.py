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
from dppl.kernel.privacy import ApproxDP, Budget, Release
from dppl.kernel.privacy.accounting import gaussian_noise_std, sampled_gaussian_multiplier

# Sampling rates are multiples of 2⁻³², so that 32 fair coins a record decide exactly.
_RATE_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussian:
    """Gaussian noise on sums over Poisson samples, drawn anew for each of `times` releases.

    Parameters
    ----------
    each : RoundedGaussian
        The noise of one release.
    times : int
    threshold : int
        A record is in a sample with probability threshold/2³².
    budget : ApproxDP
        What all releases together cost at most.
    """

    each: RoundedGaussian
    times: int
    threshold: int
    budget: ApproxDP

    @classmethod
    def within(cls, budget: Budget, squared_sensitivity: Fraction, times: int, rate: float) -> SampledGaussian:
        """Return the least noise that stays within `budget`; rounding it is post-processing.

        Parameters
        ----------
        budget : ApproxDP
        squared_sensitivity : Fraction
            Square of the L2 distance between the exact values of neighbours, were all records sampled.
        times : int
            Number of releases, each of a new sample.
        rate : float
            Probability that a record is in a sample; rounded down to a multiple of 2⁻³², and at least that.

        Raises
        ------
        BudgetError
            If the budget is not ApproxDP: sampling improves (epsilon, delta) at small epsilon, not zCDP.
        """
        if not isinstance(budget, ApproxDP):
            raise BudgetError(
                f"sampling_rate below 1 is accounted in approximate DP; use ApproxDP(epsilon, delta), not {budget!r}."
            )
        threshold = max(1, math.floor(rate * 2**_RATE_BITS))
        multiplier = sampled_gaussian_multiplier(budget.epsilon, budget.delta, threshold / 2**_RATE_BITS, times)
        noise_std = gaussian_noise_std(squared_sensitivity, math.nextafter(1 / multiplier, 0.0))
        each = RoundedGaussian(squared_sensitivity=squared_sensitivity, noise_std=noise_std)
        return cls(each=each, times=times, threshold=threshold, budget=budget)

    @property
    def noise_std(self) -> float:
        """Standard deviation in one release."""
        return self.each.noise_std

    def release(self, exact: NDArray[np.int64], source: Randomness) -> NDArray[np.int64]:
        """Return `exact` plus the noise of one release.

        Parameters
        ----------
        exact : ndarray of int64
            The sum over one sample.
        source : Randomness
        """
        return self.each.release(exact, source)

    def sample(self, n: int, source: Randomness) -> NDArray[np.bool_]:
        """Toss a coin for each of n records.

        Parameters
        ----------
        n : int
        source : Randomness

        Returns
        -------
        ndarray of shape (n,), bool
            Which records are in the sample; as private as they are.
        """
        draws = source.bits(_RATE_BITS * n).to_bytes(_RATE_BITS // 8 * n, "little")
        return np.frombuffer(draws, "<u4") < self.threshold

    def describe(self, statistic: str) -> Release:
        """Return the entry of the guarantee."""
        return Release(
            mechanism="rounded Gaussian on Poisson samples",
            statistic=statistic,
            sensitivity=math.sqrt(self.each.squared_sensitivity),
            norm="L2",
            parameters={"noise_std": self.noise_std, "sampling_rate": self.threshold / 2**_RATE_BITS},
            cost=self.budget.to_dict(),
            times=self.times,
        )
