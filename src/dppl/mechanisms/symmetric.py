"""The discrete Gaussian mechanism on symmetric integer matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dppl.mechanisms.gaussian import DiscreteGaussian, Int64
from dppl.mechanisms.randomness import Randomness
from dppl.privacy import Release
from dppl.privacy.accounting import round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetricDiscreteGaussian(DiscreteGaussian):
    r"""Add symmetric discrete Gaussian noise to symmetric integer matrices of bounded Frobenius norm.

    A Frobenius norm counts every entry off the diagonal twice, so those get noise narrower by √2: on and above the
    diagonal the noise is then as wide as the norm is long, in every direction.

    Parameters
    ----------
    squared_sensitivity : Fraction
        Square of the Frobenius distance between the values of neighbours, over all matrices together.
    noise_std : float
        Parameter sigma of the noise on the diagonal, in units of the matrices.

    Notes
    -----
    **Privacy.** Let neighbours differ by D. Independent noise on the diagonal and above it costs
    Σ_i D_ii²/(2σ²) + Σ_{i<j} D_ij²/(2τ²) in zCDP [1]_, where τ is `off_diagonal_noise_std`. As 2τ² ≥ σ², that is at
    most ‖D‖²/(2σ²) in the Frobenius norm: `rho`. The part below the diagonal is a copy.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke (2020), arXiv:2004.00010v5, Theorem 14, which allows each coordinate its own width.
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
        noisy[..., diagonal, diagonal] = exact[..., diagonal, diagonal] + source.discrete_gaussian(
            self.noise_std, (*stack, d)
        )
        above = exact[..., rows, columns] + source.discrete_gaussian(self.off_diagonal_noise_std, (*stack, len(rows)))
        noisy[..., rows, columns] = above
        noisy[..., columns, rows] = above
        return self._told(noisy)

    def describe(self, statistic: str) -> Release:
        """Return the entry of the guarantee."""
        return Release(
            mechanism="discrete Gaussian on symmetric matrices",
            statistic=statistic,
            sensitivity=float(self.squared_sensitivity) ** 0.5,
            norm="Frobenius",
            parameters={"noise_std": self.noise_std, "off_diagonal_noise_std": self.off_diagonal_noise_std},
            cost={"rho": self.rho},
        )
