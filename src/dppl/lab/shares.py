"""Noise in shares, for institutions of which somebody sees the sum alone: a bound, and a sum to try it on.

n institutions add round(s·Z) each, and σ = s·√n. Were their noise continuous, the sum
would be the Gaussian mechanism. It is rounded n times instead, and such a sum is no
rounded Gaussian. It is close to one, by Poisson summation:

* The chance of round(s·Z) = m is the density at m of s·Z + U, where U is uniform on
  ±1/2. So the characteristic function of the draw is Σ_j φ(t + 2πj) with φ(w) =
  exp(-s²w²/2)·sin(w/2)/(w/2), and S, the sum of n draws, has its n-th power.
* Let Q = round(σ·Z + U_2 + ... + U_n). The chance of Q = m is the density at m of σ·Z +
  U_1 + ... + U_n, so Q has Σ_j φ(t + 2πj)ⁿ. An integer plus Q is the integer plus σ·Z,
  then plus what is independent, then rounded: it is post-processing of the Gaussian
  mechanism, and costs exactly mu = sensitivity/σ.
* The two functions differ by products of φ at two aliases or more. For |t| ≤ π, s ≥ 1
  and 2 ≤ n ≤ 1000 let A = |φ(t)| and B the sum of |φ| over the other aliases. Then B ≤
  1.28·exp(-s²(2π - |t|)²/2), and AB and B² are at most 1.28·exp(-π²s²) and
  1.64·exp(-π²s²). C(n, r) ≤ n·C(n - 2, r - 1) for 0 < r < n bounds the mixed products
  by n·AB·(A + B)ⁿ⁻², where the last factor is below 1.01, and all others by 2B². In all
  this is below 3n·exp(-π²s²).
* So no chance differs by more than 3n·exp(-π²s²). Beyond M = n/2 + √2·π·s·σ both tails
  are below 2·exp(-π²s²). Therefore the distance in total variation between S and Q is
  at most exp(-π²s²)·(1.5n·(2M + 1) + 2).

Distances of independent coordinates add up, and so do distances of asks, whatever is
asked next. So whatever sees all sums of a run distinguishes neighbours no better than
mu allows, except with the total distance d: f(α) ≥ G_mu(α + d) - d, and delta(ε) ≤
delta_mu(ε) + (1 + exp(ε))·d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl.errors import ParameterError


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """Noise that the institutions of one sum draw in shares.

    For research: nothing in dppl keeps a sum from whoever adds it up. A share by itself
    protects nobody.

    Parameters
    ----------
    noise_std : float
        Standard deviation of the noise for which a release is accounted, in integer
        steps.
    n_parties : int
        Institutions that answer, at most 1000.
    n_absent : int, default=0
        How many of them may leave, or tell others their shares; what the rest draws
        must do.

    Raises
    ------
    ParameterError
        If fewer than two are left, or a share is below 1, where the bound does not
        hold.
    """

    noise_std: float
    n_parties: int
    n_absent: int = 0

    def __post_init__(self) -> None:
        validate.positive(noise_std=self.noise_std)
        if not 2 <= self.n_parties - self.n_absent <= self.n_parties <= 1000:
            raise ParameterError(
                "must leave two institutions or more, of at most 1000.",
                parameter="n_absent",
            )
        if self.share < 1:
            raise ParameterError(
                f"must be larger for so many shares; got {self.noise_std}.",
                parameter="noise_std",
            )

    @property
    def share(self) -> float:
        """Standard deviation of one share, rounded up: those that are left have `noise_std` together."""
        # The root, the quotient and the product are off by 2⁻⁵³ of their values each.
        return self.noise_std / math.sqrt(self.n_parties - self.n_absent) * (1 + 2**-51)

    def distance(self, coordinates: int) -> float:
        """Return the total variation that so many coordinates of all asks add to what mu allows."""
        n = self.n_parties - self.n_absent
        s = self.share
        reach = n / 2 + math.sqrt(2) * math.pi * s * s * math.sqrt(n)
        return (
            coordinates
            * math.exp(-((math.pi * s) ** 2))
            * (1.5 * n * (2 * reach + 1) + 2)
        )

    def add(self, sums: Sequence[NDArray[np.int64]], source: Any) -> NDArray[np.int64]:
        """Return what would be seen: the sum, modulo 2⁶⁴, of what each institution has and its share of the noise.

        Parameters
        ----------
        sums : sequence of ndarray of int64
            Exact answers, one of each institution.
        source : Randomness
            Where the noise comes from (`dppl.kernel.mechanisms`).
        """
        total = np.zeros(sums[0].shape, np.uint64)  # of which additions wrap around
        for exact in sums:
            total += (exact + source.rounded_gaussian(self.share, exact.shape)).astype(
                np.uint64
            )
        return total.astype(np.int64)
