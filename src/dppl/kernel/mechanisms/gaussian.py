"""The Gaussian mechanism on integer vectors, symmetric matrices and Poisson samples, its noise exactly rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dppl.errors import BudgetError
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy import ApproxDP, Budget, Release
from dppl.kernel.privacy.accounting import root_above, sampled_gaussian_multiplier
from dppl.kernel.privacy.guarantee import cost_of
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term

Int64 = NDArray[np.int64]

# Noise that saturates at the ends of int64 would show the value it is added to. At this
# width that takes 2¹⁰ standard deviations.
_WIDEST = 2.0**52
# Sampling rates are multiples of 2⁻³², so that 32 fair coins a record decide exactly.
_RATE_BITS = 32


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricRoundedGaussian(RoundedGaussian):
    """Add symmetric Gaussian noise, rounded to integers, to symmetric integer matrices of bounded Frobenius norm.

    A Frobenius norm counts every entry off the diagonal twice, so those get noise
    narrower by √2: on and above the diagonal the noise is then as wide as the norm is
    long, in every direction.

    **Privacy.** Let neighbours differ by D, in all matrices together. Divided by their
    standard deviations, sigma on the diagonal and tau (`off_diagonal_noise_std`) above
    it, their entries there have the squared distance mu² = Σ_i D_ii²/σ² + Σ_{i<j}
    D_ij²/τ², and the noise is standard normal: mu in Gaussian DP, as for
    `RoundedGaussian`. As 2τ² ≥ σ², that is at most ‖D‖²/σ² in the Frobenius norm. The
    part below the diagonal is a copy.
    """

    _code: ClassVar[Mechanism] = Mechanism.SYMMETRIC_ROUNDED_GAUSSIAN
    _norm: ClassVar[Norm] = Norm.FROBENIUS
    _stated: ClassVar[tuple[str, ...]] = ("noise_std", "off_diagonal_noise_std")

    @property
    def off_diagonal_noise_std(self) -> float:
        """The smallest float τ with 2τ² ≥ σ²."""
        return root_above(Fraction(self.noise_std) ** 2 / 2)

    def release(self, exact: Int64, source: Randomness) -> Int64:
        """Return symmetric matrices, read on and above the diagonal, plus symmetric noise."""
        *stack, d, _ = exact.shape
        diagonal, (rows, columns) = np.arange(d), np.triu_indices(d, 1)
        noisy = exact.copy()
        noisy[..., diagonal, diagonal] += source.rounded_gaussian(
            self.noise_std, (*stack, d)
        )
        noisy[..., rows, columns] += source.rounded_gaussian(
            self.off_diagonal_noise_std, (*stack, len(rows))
        )
        noisy[..., columns, rows] = noisy[..., rows, columns]
        return noisy


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
