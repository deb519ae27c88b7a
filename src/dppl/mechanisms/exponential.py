"""The exponential mechanism on integer utilities, for one candidate or an unordered set of several, sampled exactly."""

from __future__ import annotations

import decimal
import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError
from dppl.mechanisms.randomness import Randomness
from dppl.privacy import Budget, Release
from dppl.privacy.accounting import rho_of_bounded_range
from dppl.privacy.tradeoff import selection_mu

Int64 = NDArray[np.int64]

_ENVELOPE_BITS = 40
# Relative head room of the integer envelope over float weights; float errors stay below 2⁻³⁰ of a weight.
_HEAD_ROOM = 1 + 2.0**-20
# Weights are computed for this many candidates at a time, which stay in a core's cache, and again for the chunk drawn.
_CHUNK = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialMechanism:
    r"""Select candidates with probability proportional to exp(epsilon · utility / sensitivity).

    Parameters
    ----------
    epsilon : float
        Bounded range of one selection: with utilities that only grow when a record is added, by at most `sensitivity`
        each, adding or removing a record changes every log-probability by at most this.
    sensitivity : int
        Largest growth of one utility.
    size : int, default=1
        Number of different candidates to select together. A set's utility is that of its worst member.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one. The exponent carries no factor 1/2 because the utilities
    are monotone (McSherry, Talwar 2007; DPPL-v1 Lemma 2): epsilon in pure DP and, by bounded range, epsilon²/8 in zCDP
    [2]_ and the trade-off function of a logistic variable moved by epsilon (`dppl.privacy.tradeoff`). The smallest
    utility in a set is monotone as well, with the same sensitivity, so selecting a set costs the same. Sampling is
    exact: no float rounding enters the probabilities.

    DPPL-v1 eq. (6) counts binom(y, K) sets whose worst member has rank y (from 0 in the released code). The number is
    binom(y-1, K-1) with ranks from 1; with the published count the best set has probability zero, and positive
    probability for some neighbour. The term -u_K of its eq. (5) is the same for all sets and cancels.

    References
    ----------
    .. [1] McSherry, Talwar (2007), Mechanism design via differential privacy, Theorem 6.
    .. [2] Cesar, Rogers (2021), arXiv:2004.07223v2, Lemma 3.4; Dong, Durfee, Rogers (2020), arXiv:1909.13830.
    .. [3] Gillenwater, Joseph, Munoz Medina, Ribero (2022), A joint exponential mechanism for top-k.
    """

    epsilon: float
    sensitivity: int
    size: int = 1

    @classmethod
    def within(
        cls, budget: Budget, sensitivity: int, size: int = 1, *, adjacency: str = "add-remove"
    ) -> ExponentialMechanism:
        """Return the sharpest selection for each of several disjoint classes whose cost stays within `budget`.

        Under replace-one each is half as sharp; `describe` says why.

        Parameters
        ----------
        budget : Budget
            What all selections may cost together.
        sensitivity : int
            By how much one record changes a utility at most.
        size : int, default=1
            How many candidates are selected for a class, jointly.
        adjacency : {"add-remove", "replace-one"}, default="add-remove"
            Which data sets are neighbours.
        """
        epsilon = budget.selection_epsilon()
        return cls(
            epsilon=epsilon if adjacency == "add-remove" else epsilon / 2,
            sensitivity=sensitivity,
            size=size,
        )

    @property
    def rho(self) -> float:
        """ZCDP cost under add/remove, epsilon²/8 rounded up."""
        return rho_of_bounded_range(self.epsilon)

    def select(self, utilities: Int64, source: Randomness) -> Int64:
        """Return the positions of the selected candidates.

        Parameters
        ----------
        utilities : ndarray of shape (m,), int64
        source : Randomness

        Returns
        -------
        ndarray of shape (size,), int64
            For ``size > 1`` in ascending order, since the order inside a set says nothing.

        Raises
        ------
        InputError
            If there are fewer candidates than `size`.
        """
        if len(utilities) < self.size:
            raise InputError(f"selecting {self.size} candidates needs at least as many; got {len(utilities)}.")
        if self.size == 1:
            return np.array([self._draw(utilities, source)], np.int64)
        # Best first. Ties may stand in any order: all sets with the same worst utility have the same probability.
        order = np.argsort(-utilities, kind="stable")
        worst = self._draw(utilities[order], source)
        better = _subset(worst, self.size - 1, source)
        return np.sort(order[[*better, worst]])

    def describe(self, statistic: str, *, adjacency: str) -> Release:
        """Return the entry of the guarantee, with the cost of one selection for each of several disjoint classes.

        Under replace-one a record leaves one selection and enters another, or the same one: twice epsilon in pure DP,
        and in zCDP the square of twice the range over eight (the same class is the worse case).

        Parameters
        ----------
        statistic : str
            What is selected, in words.
        adjacency : {"add-remove", "replace-one"}
            Which data sets are neighbours.
        """
        epsilon = self.epsilon if adjacency == "add-remove" else 2 * self.epsilon
        return Release(
            mechanism="exponential mechanism" if self.size == 1 else f"joint exponential mechanism (top-{self.size})",
            statistic=statistic,
            sensitivity=float(self.sensitivity),
            norm="monotone utility",
            parameters={"epsilon_per_selection": self.epsilon},
            cost={"epsilon": epsilon, "mu": selection_mu(epsilon), "rho": rho_of_bounded_range(epsilon)},
        )

    def _draw(self, utilities: Int64, source: Randomness) -> int:
        """Draw a position with weight binom(position, size-1)·exp(epsilon·utility/sensitivity), by rejection.

        A candidate is proposed by an integer weight that is at least its true one and accepted with their exact ratio,
        so floats decide how often a proposal is turned down, never a probability. For sets, positions are ranks and the
        binomial counts the sets whose worst member has this rank.
        """
        # The best utility that a worst member can have; better ones have no sets, and far gaps would cost precision.
        best = int(utilities.max() if self.size == 1 else utilities[self.size - 1])
        rate = Fraction(self.epsilon) / self.sensitivity
        starts = range(0, len(utilities), _CHUNK)

        def log_weights(start: int) -> NDArray[np.float64]:
            weights = np.multiply(best - utilities[start : start + _CHUNK], -float(rate), dtype=np.float64)
            if self.size > 1:
                weights += _log_binomials(start, len(weights), self.size - 1)
            return weights

        top = 0.0 if self.size == 1 else max(float(log_weights(start).max()) for start in starts)
        bits = min(_ENVELOPE_BITS, 61 - len(utilities).bit_length())

        def envelope(start: int) -> Int64:
            # Plus one: never below the true weight, however small.
            return (np.exp(log_weights(start) - top) * (2.0**bits * _HEAD_ROOM)).astype(np.int64) + 1

        totals = list(accumulate(int(envelope(start).sum()) for start in starts))
        while True:
            ticket = source.below(totals[-1])
            chunk = bisect_right(totals, ticket)
            proposed = envelope(starts[chunk])
            inside = ticket - (totals[chunk - 1] if chunk else 0)
            offset = int(np.searchsorted(np.cumsum(proposed), inside, side="right"))
            position = starts[chunk] + offset
            factor = Fraction(math.comb(position, self.size - 1) << bits, int(proposed[offset]))
            exponent = rate * (best - int(utilities[position])) + Fraction(top)
            if _bernoulli(factor, exponent, source):
                return position


def _log_binomials(start: int, n: int, k: int) -> NDArray[np.float64]:
    """Return log binom(r, k) for n values of r from `start`; minus infinity where it is zero."""
    ranks = np.arange(start, start + n, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return sum((np.log(np.maximum(ranks - i, 0)) - math.log(i + 1) for i in range(k)), np.zeros(n))


def _subset(n: int, k: int, source: Randomness) -> list[int]:
    """Return a uniform k-subset of range(n) (Floyd 1987)."""
    chosen: set[int] = set()
    for last in range(n - k, n):
        draw = source.below(last + 1)
        chosen.add(last if draw in chosen else draw)
    return sorted(chosen)


def _bernoulli(factor: Fraction, exponent: Fraction, source: Randomness) -> bool:
    """Return True with probability factor·exp(-exponent), exactly.

    Bits of a uniform number are drawn until it lies on one side of an interval around the probability; both shrink from
    round to round.
    """
    if factor == 0:
        return False
    digits, count, uniform = 25, 0, 0
    while True:
        low, high = _probability_bounds(factor, exponent, digits)
        if low > 1:
            raise AssertionError("the sampling envelope lies below a weight; please report this.")
        uniform, count = (uniform << 64) | source.bits(64), count + 64
        if _dyadic(uniform + 1, count) <= low:
            return True
        if _dyadic(uniform, count) >= high:
            return False
        digits += 20


def _probability_bounds(factor: Fraction, exponent: Fraction, digits: int) -> tuple[decimal.Decimal, decimal.Decimal]:
    """Enclose factor·exp(-exponent): the decimal module rounds each operation correctly to `digits`."""
    extra = len(str(abs(int(exponent)))) + 5
    context = decimal.Context(prec=digits + extra, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[])
    power = context.divide(decimal.Decimal(-exponent.numerator), decimal.Decimal(exponent.denominator))
    ratio = context.divide(decimal.Decimal(factor.numerator), decimal.Decimal(factor.denominator))
    value = context.multiply(ratio, context.exp(power))
    one, error = decimal.Decimal(1), decimal.Decimal(f"1E-{digits}")
    # By the context's methods: operators would round to the 28 digits of the thread's own context.
    return context.multiply(value, context.subtract(one, error)), context.multiply(value, context.add(one, error))


def _dyadic(numerator: int, bits: int) -> decimal.Decimal:
    """Return numerator / 2**bits without rounding."""
    return decimal.Decimal(f"{numerator * 5**bits}E-{bits}")
