"""The Gaussian mechanism on integers, its noise exactly rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dppl.errors import BudgetError
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import Budget
from dppl.kernel.privacy.release import Release, cost_of
from dppl.kernel.privacy.rounding import root_above
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term

Int64 = NDArray[np.int64]

# Noise that saturates at the ends of int64 would show the value it is added to. At this
# width that takes 2¹⁰ standard deviations.
_WIDEST = 2.0**52


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedGaussian:
    """Add Gaussian noise, rounded to integers, to integers of bounded L2 sensitivity.

    **Privacy.** Costs mu = sensitivity/sigma in Gaussian DP, exactly. An integer plus
    round(sigma·Z) is the integer plus sigma·Z, rounded: the release is post-processing
    of the continuous Gaussian mechanism, and all that is proven for that holds, in any
    number of dimensions (Dong, Roth, Su 2022, arXiv:1905.02383v3, Theorem 2.7): rho =
    mu²/2 in zCDP, and the exact (epsilon, delta) of `dppl.kernel.privacy.tradeoff`. It
    has no pure-DP guarantee.

    Several releases may depend on what was released before. Squares of mu add under
    such composition (Corollary 3.3), so all together cost what one release does whose
    squared sensitivity is the sum of theirs.
    """

    # Square of the L2 distance between the values of neighbours, over the whole array
    # and all releases. Squares of integer distances are rational, so nothing is rounded
    # here.
    squared_sensitivity: Fraction
    noise_std: float  # sigma, before the noise is rounded, in units of the array
    times: int = 1  # number of releases
    _code: ClassVar[Mechanism] = Mechanism.ROUNDED_GAUSSIAN
    _norm: ClassVar[Norm] = Norm.L2
    _stated: ClassVar[tuple[str, ...]] = ("noise_std",)

    def __post_init__(self) -> None:
        if not self.squared_sensitivity > 0:
            raise BudgetError("a release needs a positive sensitivity.")
        if self.noise_std > _WIDEST:
            raise BudgetError(
                "the budget is so small that its noise would leave 64-bit integers; raise it."
            )

    @classmethod
    def within(
        cls, budget: Budget, squared_sensitivity: Fraction, times: int = 1
    ) -> Self:
        """Return the least noise with which so many releases of this squared sensitivity stay within `budget`."""
        total = times * squared_sensitivity
        # Sensitivity/sigma ≤ mu: Dong, Roth, Su (2022), Theorem 2.7.
        noise_std = root_above(total / Fraction(budget.gaussian_allowance().mu) ** 2)
        return cls(squared_sensitivity=total, noise_std=noise_std, times=times)

    def release(self, exact: Int64, source: Randomness) -> Int64:
        """Return `exact`, which is private, plus noise of the same shape; the sum of two int64 arrays is exact."""
        return exact + source.rounded_gaussian(self.noise_std, exact.shape)

    def describe(self, statistic: Term[Statistic]) -> Release:
        """Return the entry of the guarantee: the sensitivity of one release, the cost of all."""
        of_one = self.squared_sensitivity / self.times
        parameters = {name: getattr(self, name) for name in self._stated}
        return Release(
            mechanism=Term(self._code),
            statistic=statistic,
            sensitivity=math.sqrt(of_one),
            norm=self._norm,
            parameters=parameters,
            cost=cost_of(self._code, of_one, parameters, self.times),
            times=self.times,
        )
