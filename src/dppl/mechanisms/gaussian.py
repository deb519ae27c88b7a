"""The discrete Gaussian mechanism on integer vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dppl.errors import BudgetError
from dppl.mechanisms.randomness import Randomness
from dppl.privacy import Budget, Release
from dppl.privacy.accounting import gaussian_noise_std, rho_of_gaussian

Int64 = NDArray[np.int64]

# Noise that saturates at the ends of int64 would show the value it is added to. At this width that takes 2¹⁰ standard
# deviations.
_WIDEST = 2.0**52
_HEARD: ContextVar[list[tuple[DiscreteGaussian, Int64]] | None] = ContextVar("heard", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussian:
    r"""Add discrete Gaussian noise to integers of bounded L2 sensitivity.

    Parameters
    ----------
    squared_sensitivity : Fraction
        Square of the L2 distance between the values of neighbours, over the whole array. Squares of integer distances
        are rational, so nothing is rounded here.
    noise_std : float
        Parameter sigma of the noise, P(k) proportional to exp(-k²/(2σ²)), in units of the array.

    Notes
    -----
    **Privacy.** Costs rho = sensitivity²/(2σ²) in zCDP, exactly. It has no pure-DP guarantee.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke (2020), arXiv:2004.00010v5, Definition 1 and Theorem 14.
    """

    squared_sensitivity: Fraction
    noise_std: float

    def __post_init__(self) -> None:
        if self.noise_std > _WIDEST:
            raise BudgetError(
                f"the budget is so small that its noise (standard deviation {self.noise_std:.3g}) would leave 64-bit "
                "integers; raise the budget."
            )

    @classmethod
    def within(cls, budget: Budget, squared_sensitivity: Fraction) -> Self:
        """Return the least noise that stays within `budget`.

        A ZCDP budget is met exactly. For ApproxDP the noise is the one of the largest zCDP cost that converts into it
        [1]_ (Proposition 12): conversions tighter for the continuous Gaussian are not proven for several discrete
        coordinates.

        Raises
        ------
        BudgetError
            For a PureDP budget, or one so small that its noise would not fit into 64-bit integers.
        """
        rho = budget.zcdp_allowance().rho
        return cls(squared_sensitivity=squared_sensitivity, noise_std=gaussian_noise_std(squared_sensitivity, rho))

    @property
    def rho(self) -> float:
        """ZCDP cost, rounded up."""
        return rho_of_gaussian(self.squared_sensitivity, self.noise_std)

    def release(self, exact: Int64, source: Randomness) -> Int64:
        """Return `exact` plus noise of the same shape; the sum of two int64 arrays is exact."""
        return self._told(exact + source.discrete_gaussian(self.noise_std, exact.shape))

    def _told(self, released: Int64) -> Int64:
        """Let an audit hear what was released."""
        heard = _HEARD.get()
        if heard is not None:
            heard.append((self, released))
        return released

    def describe(self, statistic: str) -> Release:
        """Return the entry of the guarantee."""
        return Release(
            mechanism="discrete Gaussian",
            statistic=statistic,
            sensitivity=float(self.squared_sensitivity) ** 0.5,
            norm="L2",
            parameters={"noise_std": self.noise_std},
            cost={"rho": self.rho},
        )


@contextmanager
def overheard() -> Iterator[list[tuple[DiscreteGaussian, Int64]]]:
    """Collect what Gaussian mechanisms release inside the block, each with its mechanism, for audits.

    That is all that a fit lets out of its records, and what a guarantee speaks of, before any post-processing. A search
    for hyper-parameters makes many fits of which it publishes one: what is heard of it must stay secret.
    """
    heard: list[tuple[DiscreteGaussian, Int64]] = []
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)
