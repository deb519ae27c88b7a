"""CoinPress: a private mean that tightens its clipping ball step by step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dppl._utils import validate
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.lattice import round_within
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import Budget, GaussianDP
from dppl.kernel.privacy.release import Release, cost_of
from dppl.kernel.privacy.rounding import root_below
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term

Float = NDArray[np.float64]

# DPPL-v1 section 4.1 spends less on the early steps than Biswas et al., who split 1/8,
# 1/8, 3/4.
COINPRESS_SPLITS = {
    "dppl": (5 / 64, 7 / 64, 52 / 64),
    "original": (1 / 8, 1 / 8, 3 / 4),
}
# Coordinates and radii are kept where float64 holds squared norms exactly; at tiny
# budgets they would run away.
_EXACT = 2.0**52
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class CoinPress:
    """Mean of lattice rows by steps of clipping around the last estimate and adding noise.

    One unit is the standard deviation of a coordinate when rows have norm √dim: 127/4
    lattice steps. In these units CoinPress (Biswas, Dong, Kamath, Ullman 2020,
    arXiv:2006.06618, Algorithms 1 and 2; DPPL-v1, section 4.1 and A.4) presumes data of
    about unit variance. The mean is sought first within √dim of the origin, where all
    rows lie.

    **Privacy.** Unit: one record. Relation: one record replaced by another of the same
    class; the class sizes are public, as published. In each step rows lie within R of
    the current centre, so their sum moves by at most 2R. Radii and centres depend on
    earlier releases only, so the squares of the steps' mu add up to at most mu² (Dong,
    Roth, Su 2022, arXiv:1905.02383v3, Corollary 3.3).
    """

    mu: float  # of all steps together
    # Shares of mu² (and so of rho = mu²/2) per step, which must not sum to more than 1.
    split: tuple[float, ...] = COINPRESS_SPLITS["dppl"]

    def __post_init__(self) -> None:
        validate.positive(
            mu=self.mu, **{f"split[{i}]": share for i, share in enumerate(self.split)}
        )
        if not self.split or sum(map(Fraction, self.split)) > 1:
            raise ParameterError(
                f"split must hold shares that sum to at most 1; got {self.split!r}."
            )

    @classmethod
    def within(
        cls, budget: Budget, lattice: Lattice, split: tuple[float, ...]
    ) -> CoinPress:
        """Return the estimator that spends what `budget` allows, whose noise fits whatever the class size."""
        mechanism = cls(budget.gaussian_allowance().mu, split)
        mechanism.radii(
            1, lattice
        )  # no class needs more noise, so what is too much is refused here
        return mechanism

    def release(
        self, rows: NDArray[np.int8], lattice: Lattice, source: Randomness
    ) -> Float:
        """Return the private mean of one class's lattice rows, whose number is public, in units of φ."""
        size = max(len(rows), 1)
        mean = np.zeros(lattice.dim)
        for bound, noise, _ in self._steps(size, lattice):
            center = _exact_center(mean)
            mean = (
                center + noise.release(_clipped_sum(rows, center, bound), source) / size
            )
        return mean / lattice.scale

    def radii(self, size: int, lattice: Lattice) -> list[float]:
        """Return the radius of the ball in which the mean is sought, first and after each step, in units; public.

        >>> [round(radius, 2) for radius in CoinPress(2**0.5).radii(1000, Lattice(16))]
        [4.0, 0.4, 0.28, 0.22]
        """
        return [
            math.sqrt(lattice.dim),
            *(radius for _, _, radius in self._steps(max(size, 1), lattice)),
        ]

    def describe(self, statistic: Term[Statistic]) -> Release:
        """Return the entry of the guarantee."""
        shares = {f"share_{i}": share for i, share in enumerate(self.split, 1)}
        parameters = {"mu": self.mu, **shares}
        return Release(
            mechanism=Term(Mechanism.COINPRESS, n_steps=len(self.split)),
            statistic=statistic,
            sensitivity=2.0,
            norm=Norm.L2_IN_RADII,
            parameters=parameters,
            cost=cost_of(Mechanism.COINPRESS, Fraction(4), parameters),
        )

    def _steps(
        self, size: int, lattice: Lattice
    ) -> Iterator[tuple[Fraction, RoundedGaussian, float]]:
        """Yield the squared norm to which differences from the centre are clipped, their noise, and the new radius."""
        unit = lattice.scale / math.sqrt(lattice.dim)
        radius = math.sqrt(lattice.dim)
        log = math.log(100)
        # The norm of a standard normal vector is below this with probability 0.99
        # (Laurent, Massart 2000, Lemma 1).
        tail = math.sqrt(lattice.dim + 2 * math.sqrt(lattice.dim * log) + 2 * log)
        for share in self.split:
            bound = Fraction(math.floor(min(((radius + tail) * unit) ** 2, _EXACT)))
            each = GaussianDP(root_below(Fraction(self.mu) ** 2 * Fraction(share)))
            noise = RoundedGaussian.within(each, 4 * bound)
            spread = noise.noise_std / (size * unit)
            radius = tail * math.sqrt(1 / size + spread**2)
            yield bound, noise, radius


def _clipped_sum(
    rows: NDArray[np.int8], center: Float, bound: Fraction
) -> NDArray[np.int64]:
    """Sum the rows' differences from the centre, each clipped to squared norm `bound` and rounded."""
    total = np.zeros(rows.shape[1], np.int64)
    for start in range(0, len(rows), _BLOCK):
        near = round_within(rows[start : start + _BLOCK] - center, bound)
        total += near.sum(axis=0).astype(np.int64)
    return total


def _exact_center(mean: Float) -> Float:
    limit = math.floor(math.sqrt(_EXACT / len(mean))) - 128
    return np.clip(np.rint(mean), -limit, limit)
