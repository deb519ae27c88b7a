"""The Gaussian mechanism on symmetric integer matrices, its noise exactly rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dppl.kernel.mechanisms.gaussian import Int64, RoundedGaussian
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy import Release
from dppl.kernel.privacy.accounting import round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricRoundedGaussian(RoundedGaussian):
    r"""Add symmetric Gaussian noise, rounded to integers, to symmetric integer matrices of bounded Frobenius norm.

    A Frobenius norm counts every entry off the diagonal twice, so those get noise narrower by √2: on and above the
    diagonal the noise is then as wide as the norm is long, in every direction.

    Parameters
    ----------
    squared_sensitivity : Fraction
        Square of the Frobenius distance between the values of neighbours, over all matrices together.
    noise_std : float
        Standard deviation sigma of the noise on the diagonal before it is rounded, in units of the matrices.

    Notes
    -----
    **Privacy.** Let neighbours differ by D. Divided by their standard deviations, sigma on the diagonal and tau
    (`off_diagonal_noise_std`) above it, their entries there lie mu² = Σ_i D_ii²/σ² + Σ_{i<j} D_ij²/τ² apart, squared,
    and the noise is standard normal: mu in Gaussian DP [1]_. As 2τ² ≥ σ², that is at most ‖D‖²/σ² in the Frobenius
    norm. The part below the diagonal is a copy.

    References
    ----------
    .. [1] Dong, Roth, Su (2022), arXiv:1905.02383v3, Theorem 2.7; rounding is post-processing, see `RoundedGaussian`.
    """

    @property
    def off_diagonal_noise_std(self) -> float:
        """The smallest float τ with 2τ² ≥ σ²."""
        squared = Fraction(self.noise_std) ** 2
        return round_up(self.noise_std / math.sqrt(2), lambda std: 2 * std**2 >= squared)

    def release(self, exact: Int64, source: Randomness) -> Int64:
        """Return symmetric matrices plus symmetric noise.

        Parameters
        ----------
        exact : ndarray of shape (..., d, d), int64
            Only the entries on and above the diagonal are read.
        source : Randomness

        Returns
        -------
        ndarray of the same shape, int64
        """
        *stack, d, _ = exact.shape
        diagonal = np.arange(d)
        rows, columns = np.triu_indices(d, 1)
        noisy = np.empty_like(exact)
        noisy[..., diagonal, diagonal] = exact[..., diagonal, diagonal] + source.rounded_gaussian(
            self.noise_std, (*stack, d)
        )
        above = exact[..., rows, columns] + source.rounded_gaussian(self.off_diagonal_noise_std, (*stack, len(rows)))
        noisy[..., rows, columns] = above
        noisy[..., columns, rows] = above
        return self._told(noisy)

    def describe(self, statistic: str) -> Release:
        """Return the entry of the guarantee."""
        return Release(
            mechanism="rounded Gaussian on symmetric matrices",
            statistic=statistic,
            sensitivity=math.sqrt(self.squared_sensitivity / self.times),
            norm="Frobenius",
            parameters={"noise_std": self.noise_std, "off_diagonal_noise_std": self.off_diagonal_noise_std},
            cost=self.cost,
            times=self.times,
        )
