"""The Gaussian mechanism on symmetric integer matrices."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dppl.kernel.mechanisms.gaussian import Int64, RoundedGaussian
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.rounding import root_above
from dppl.kernel.privacy.terms import Mechanism, Norm


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
        diagonal = np.arange(d)
        noisy = exact.copy()
        noisy[..., diagonal, diagonal] += source.rounded_gaussian(
            self.noise_std, (*stack, d)
        )
        noise = source.rounded_gaussian(
            self.off_diagonal_noise_std, (*stack, d * (d - 1) // 2)
        )
        for row in range(d):
            above = noisy[..., row, row + 1 :]
            above += noise[..., : d - 1 - row]
            noise = noise[..., d - 1 - row :]
            noisy[..., row + 1 :, row] = above
        return noisy
