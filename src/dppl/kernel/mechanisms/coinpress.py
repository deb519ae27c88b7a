"""CoinPress: a private mean that tightens its clipping ball step by step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl.errors import ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.lattice import round_within
from dppl.kernel.mechanisms.gaussian import RoundedGaussian
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy import Budget, GaussianDP, Release
from dppl.kernel.privacy.accounting import cost_of_gaussian, root_below

Float = NDArray[np.float64]

# DPPL-v1 section 4.1 spends less on the early steps than Biswas et al., who split 1/8, 1/8, 3/4.
DPPL_SPLIT = (5 / 64, 7 / 64, 52 / 64)
COINPRESS_SPLIT = (1 / 8, 1 / 8, 3 / 4)
_TAIL = 0.01
# Coordinates and radii are kept where float64 holds squared norms exactly; at tiny budgets they would run away.
_EXACT = 2.0**52
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class _Step:
    """The squared norm to which differences from the centre are clipped, their sum's noise, and the radius after it."""

    bound: Fraction
    noise: RoundedGaussian
    radius: float


@dataclass(frozen=True, slots=True)
class CoinPress:
    r"""Mean of lattice rows by steps of clipping around the last estimate and adding noise.

    One unit is the standard deviation of a coordinate when rows have norm √dim: 127/4 lattice steps. In these units
    CoinPress presumes data of about unit variance, as published.

    Parameters
    ----------
    mu : float
        Cost of all steps together, in Gaussian DP.
    split : tuple of float
        Shares of mu² (and so of rho = mu²/2) per step, which must not sum to more than 1.
    radius : float, default=None
        Radius of the ball in which the mean is sought first, in units. None is √dim.
    center : array-like of shape (dim,), default=None
        Its centre, in units. None is the origin.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: one record replaced by another of the same class; the class sizes are
    public, as published. In each step rows lie within R of the current centre, so their sum moves by at most 2R. Radii
    and centres depend on earlier releases only, so the squares of the steps' mu add up to at most mu² [3]_.

    References
    ----------
    .. [1] Biswas, Dong, Kamath, Ullman (2020), arXiv:2006.06618, Algorithm 1 and 2.
    .. [2] DPPL-v1 (arXiv:2406.08039), section 4.1 and A.4.
    .. [3] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3.
    """

    mu: float
    split: tuple[float, ...] = DPPL_SPLIT
    radius: float | None = None
    center: ArrayLike | None = None

    def __post_init__(self) -> None:
        _validate.positive(mu=self.mu, **{f"split[{i}]": share for i, share in enumerate(self.split)})
        if not self.split or sum(map(Fraction, self.split)) > 1:
            raise ParameterError(f"split must hold shares that sum to at most 1; got {self.split!r}.")
        if self.radius is not None:
            _validate.positive(radius=self.radius)

    @classmethod
    def within(cls, budget: Budget, dim: int, **options: object) -> CoinPress:
        """Return the estimator that spends what `budget` allows, checked for rows of width `dim`.

        Parameters
        ----------
        budget : Budget
            What all steps may cost together.
        dim : int
            Width of a row.
        **options : object
            Further parameters of the class.
        """
        mechanism = cls(budget.gaussian_allowance().mu, **options)  # type: ignore[arg-type]
        mechanism._first_center(dim)
        mechanism.radii(1, Lattice(dim))  # no class needs more noise, so what is too much is refused here
        return mechanism

    def release(self, rows: NDArray[np.int8], lattice: Lattice, source: Randomness) -> Float:
        """Return the private mean of one class's lattice rows.

        Parameters
        ----------
        rows : ndarray of shape (n, dim), int8
            Their number is public.
        lattice : Lattice
        source : Randomness

        Returns
        -------
        ndarray of shape (dim,), float64
            In units of φ: the mean of unit rows, with noise.
        """
        size = max(len(rows), 1)
        mean = self._first_center(lattice.dim) * _unit(lattice)
        for step in self._steps(size, lattice):
            center = _exact_center(mean)
            mean = center + step.noise.release(_clipped_sum(rows, center, step.bound), source) / size
        return mean / lattice.scale

    def radii(self, size: int, lattice: Lattice) -> list[float]:
        """Return the radius of the ball in which the mean is sought, first and after each step, in units.

        They depend on parameters and the size of the class alone, which is public.

        Parameters
        ----------
        size : int
            Number of rows of the class; an empty one counts one.
        lattice : Lattice

        Examples
        --------
        >>> [round(radius, 2) for radius in CoinPress(2**0.5).radii(1000, Lattice(16))]
        [4.0, 0.4, 0.28, 0.22]
        """
        return [self._first_radius(lattice), *(step.radius for step in self._steps(max(size, 1), lattice))]

    def describe(self, statistic: str) -> Release:
        """Return the entry of the guarantee."""
        return Release(
            mechanism=f"CoinPress mechanism ({len(self.split)} steps of rounded Gaussian noise)",
            statistic=statistic,
            sensitivity=2.0,
            norm="L2 in radii of each step's ball",
            parameters={f"share_{i + 1}": share for i, share in enumerate(self.split)},
            cost=cost_of_gaussian(Fraction(self.mu) ** 2),
        )

    def _steps(self, size: int, lattice: Lattice) -> Iterator[_Step]:
        unit, tail = _unit(lattice), _gaussian_tail(lattice.dim)
        radius = self._first_radius(lattice)
        for share in self.split:
            bound = Fraction(math.floor(min(((radius + tail) * unit) ** 2, _EXACT)))
            each = GaussianDP(root_below(Fraction(self.mu) ** 2 * Fraction(share)))
            noise = RoundedGaussian.within(each, 4 * bound)
            spread = noise.noise_std / (size * unit)
            radius = tail * math.sqrt(1 / size + spread**2)
            yield _Step(bound, noise, radius)

    def _first_radius(self, lattice: Lattice) -> float:
        return math.sqrt(lattice.dim) if self.radius is None else self.radius

    def _first_center(self, dim: int) -> Float:
        center = np.zeros(dim) if self.center is None else np.asarray(self.center, np.float64)
        if center.shape != (dim,) or not np.isfinite(center).all():
            raise ParameterError(f"the CoinPress center must be {dim} finite numbers; got shape {center.shape}.")
        return center


def _unit(lattice: Lattice) -> float:
    """Return a unit in lattice steps."""
    return lattice.scale / math.sqrt(lattice.dim)


def _clipped_sum(rows: NDArray[np.int8], center: Float, bound: Fraction) -> NDArray[np.int64]:
    """Sum the rows' differences from the centre, each clipped to squared norm `bound` and rounded."""
    total = np.zeros(rows.shape[1], np.int64)
    for start in range(0, len(rows), _BLOCK):
        near = round_within(rows[start : start + _BLOCK] - center, bound)
        total += near.sum(axis=0).astype(np.int64)
    return total


def _exact_center(mean: Float) -> Float:
    limit = math.floor(math.sqrt(_EXACT / len(mean))) - 128
    return np.clip(np.rint(mean), -limit, limit)


def _gaussian_tail(dim: int) -> float:
    """Bound the norm of a standard normal vector with probability 0.99 (Laurent, Massart 2000, Lemma 1)."""
    log = math.log(1 / _TAIL)
    return math.sqrt(dim + 2 * math.sqrt(dim * log) + 2 * log)
