"""The Gaussian mechanism on integer vectors, its noise exactly rounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dppl.errors import BudgetError
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy import Budget, Release
from dppl.kernel.privacy.accounting import cost_of_gaussian, gaussian_noise_std

Int64 = NDArray[np.int64]

# Noise that saturates at the ends of int64 would show the value it is added to. At this width that takes 2¹⁰ standard
# deviations.
_WIDEST = 2.0**52
_HEARD: ContextVar[list[tuple[RoundedGaussian, Int64]] | None] = ContextVar("heard", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedGaussian:
    r"""Add Gaussian noise, rounded to integers, to integers of bounded L2 sensitivity.

    Parameters
    ----------
    squared_sensitivity : Fraction
        Square of the L2 distance between the values of neighbours, over the whole array. Squares of integer distances
        are rational, so nothing is rounded here. Of all releases together, if there are several.
    noise_std : float
        Standard deviation sigma of the noise before it is rounded, in units of the array.
    times : int, default=1
        How often it releases values that may depend on what it released before. Squares of mu add under such
        composition ([1]_, Corollary 3.3), so all together cost what one release does whose squared sensitivity is the
        sum of theirs.

    Notes
    -----
    **Privacy.** Costs mu = sensitivity/sigma in Gaussian DP, exactly. An integer plus round(sigma·Z) is the integer
    plus sigma·Z, rounded: the release is post-processing of the continuous Gaussian mechanism, and all that is proven
    for that holds, in any number of dimensions [1]_ (Theorem 2.7): rho = mu²/2 in zCDP, and the exact
    (epsilon, delta) of `dppl.kernel.privacy.tradeoff`. It has no pure-DP guarantee.

    References
    ----------
    .. [1] Dong, Roth, Su (2022), Gaussian differential privacy, arXiv:1905.02383v3.
    """

    squared_sensitivity: Fraction
    noise_std: float
    times: int = 1

    def __post_init__(self) -> None:
        if self.noise_std > _WIDEST:
            raise BudgetError(
                f"the budget is so small that its noise (standard deviation {self.noise_std:.3g}) would leave 64-bit "
                "integers; raise the budget."
            )

    @classmethod
    def within(cls, budget: Budget, squared_sensitivity: Fraction, times: int = 1) -> Self:
        """Return the least noise with which all releases stay within `budget`.

        Parameters
        ----------
        budget : Budget
            What the releases may cost together.
        squared_sensitivity : Fraction
            Square of the L2 sensitivity of one, exact.
        times : int, default=1

        Raises
        ------
        BudgetError
            For a PureDP budget, or one so small that its noise would not fit into 64-bit integers.
        """
        total = times * squared_sensitivity
        noise_std = gaussian_noise_std(total, budget.gaussian_allowance().mu)
        return cls(squared_sensitivity=total, noise_std=noise_std, times=times)

    @property
    def cost(self) -> dict[str, float]:
        """What all releases cost, in Gaussian DP and in zCDP, rounded up."""
        return cost_of_gaussian(self.squared_sensitivity / Fraction(self.noise_std) ** 2)

    @property
    def squared_mu(self) -> Fraction:
        """Square of the stated cost in Gaussian DP; squares add up under composition."""
        return Fraction(self.cost["mu"]) ** 2

    def release(self, exact: Int64, source: Randomness) -> Int64:
        """Return `exact` plus noise of the same shape; the sum of two int64 arrays is exact.

        Parameters
        ----------
        exact : ndarray of int64
            Private; it is not changed.
        source : Randomness
            Where the noise is drawn.
        """
        return self._told(exact + source.rounded_gaussian(self.noise_std, exact.shape))

    def _told(self, released: Int64) -> Int64:
        """Let an audit hear what was released."""
        heard = _HEARD.get()
        if heard is not None:
            heard.append((self, released))
        return released

    def describe(self, statistic: str) -> Release:
        """Return the entry of the guarantee: the sensitivity of one release, the cost of all."""
        return Release(
            mechanism="rounded Gaussian",
            statistic=statistic,
            sensitivity=math.sqrt(self.squared_sensitivity / self.times),
            norm="L2",
            parameters={"noise_std": self.noise_std},
            cost=self.cost,
            times=self.times,
        )


@contextmanager
def overheard() -> Iterator[list[tuple[RoundedGaussian, Int64]]]:
    """Collect what Gaussian mechanisms release inside the block, each with its mechanism, for audits.

    That is all that a fit lets out of its records, and what a guarantee speaks of, before any post-processing. A search
    for hyper-parameters makes many fits of which it publishes one: what is heard of it must stay secret.
    """
    heard: list[tuple[RoundedGaussian, Int64]] = []
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)
