"""What all methods share that descend on noisy sums of gradients: repeated noise and momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.errors import BudgetError
from dppl.mechanisms import Randomness, RoundedGaussian
from dppl.privacy import ApproxDP, Budget, Release
from dppl.privacy.accounting import gaussian_noise_std, sampled_gaussian_multiplier

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Sampling rates are multiples of 2⁻³², so that 32 fair coins a record decide exactly.
_RATE_BITS = 32
# Percentage of mu² for the number of records. It decides only the length of a step, so little is paid for it.
SIZE_PERCENT = 1


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
            times=self.times,
            sensitivity=math.sqrt(self.together.squared_sensitivity / self.times),
        )


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
        """Return `exact` plus the noise of one release."""
        return self.each.release(exact, source)

    def sample(self, n: int, source: Randomness) -> NDArray[np.bool_]:
        """Toss a coin for each of n records."""
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


class Descent:
    """Weights that move from zero along released gradients by the heavy-ball rule (Polyak 1964).

    Parameters
    ----------
    n_classes, dim : int
    momentum : float
        Share of the last step's velocity that is kept.
    l2 : float, default=0.0
        Strength of the penalty ``l2 / 2 * ‖coef‖²`` beside the mean loss.
    constant : float, default=0.0
        A constant coordinate that ends every row, and so the column of a gradient that moves the intercept; 0 is none.

    Attributes
    ----------
    coef : ndarray of shape (n_classes, dim)
    intercept : ndarray of shape (n_classes,)
    velocity : ndarray of shape (n_classes, dim) or (n_classes, dim + 1)
    """

    def __init__(self, n_classes: int, dim: int, *, momentum: float, l2: float = 0.0, constant: float = 0.0) -> None:
        self.coef, self.intercept = np.zeros((n_classes, dim)), np.zeros(n_classes)
        self.velocity = np.zeros((n_classes, dim + (constant != 0)))
        self._momentum, self._l2, self._constant = momentum, l2, constant

    def move(self, direction: NDArray[Any], step: float = 1.0) -> None:
        """Take a step along the negative gradient of the mean loss, as `SoftmaxGradient.sum` orders it."""
        dim = self.coef.shape[1]
        self.velocity = self._momentum * self.velocity + direction
        self.velocity[:, :dim] -= self._l2 * self.coef
        self.coef = self.coef + step * self.velocity[:, :dim]
        if self._constant:
            self.intercept = self.intercept + step * self._constant * self.velocity[:, dim]


def release_size(mechanism: RoundedGaussian, n_records: int, n_classes: int, source: Randomness) -> float:
    """Release the number of records, raised to the width of its noise and to one record a class, to divide by."""
    exact = np.array([n_records], np.int64)
    return max(float(mechanism.release(exact, source)[0]), mechanism.noise_std, float(n_classes))
