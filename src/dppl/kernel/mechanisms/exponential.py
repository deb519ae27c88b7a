"""The exponential mechanism on integer utilities, for one candidate or an unordered set of several, sampled exactly."""

from __future__ import annotations

import decimal
import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl.errors import InputError
from dppl.kernel.mechanisms.randomness import Randomness
from dppl.kernel.privacy.budgets import Budget
from dppl.kernel.privacy.release import Release, cost_of
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term

Int64 = NDArray[np.int64]

_ENVELOPE_BITS = 40
# Relative head room of the integer envelope over float weights; float errors stay below
# 2⁻³⁰ of a weight.
_HEAD_ROOM = 1 + 2.0**-20
# Weights differ within a bin by this factor at most, in logarithm; so many proposals
# out of e are turned down.
_BIN_WIDTH = Fraction(1, 2)
# Bins are counted separately until all sets of this many candidates weigh less than the
# best set, by a logarithm to spare.
_MANY = 2**32
_SPARE = 7
_ANY = 2**62
# Stands for a best candidate where there are too few; no utility is as low.
NONE = -(2**62)

# For each part of a pool that must be looked at again and each class that looks there,
# the bins of what is sought.
Requests: TypeAlias = dict[int, dict[int, list[tuple[int, int]]]]
# Yields, for these, the class, the part, utilities of candidates of the part, at least
# of those that `is_sought` tells, and their positions in the pool; entries of one class
# and part in the order of positions.
Look: TypeAlias = Callable[[Requests], Iterable[tuple[int, int, Int64, Int64]]]


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How many of some candidates lie in each bin, for several classes, each with its own utilities.

    A tally is a function of the utilities alone. Merging tallies in any order and
    grouping gives the tally of all their candidates, as integers; no randomness and no
    float enters one. So parts of a pool may be tallied in any process, and whoever
    draws merges them.

    A bin is an interval of utilities with a number; better candidates have higher ones.
    Bins far below the `size`-th best are counted together: they are below the window of
    any larger set of candidates too, whose `size`-th best is no worse. This is why a
    merge forgets nothing that the tally of the whole set holds.
    """

    n: int  # of candidates, the same for all classes
    # Shape (n_classes, size). The bins of the best candidates, in descending order,
    # filled up with `NONE`.
    best: Int64
    # Shape (n_classes, width + 1). How many candidates lie i bins below the last of
    # `best`, and in the last column all that lie further down. Candidates above it are
    # all in `best`.
    counts: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, bins: Int64, size: int, width: int) -> Tally:
        """Count candidates, whose bins have the shape (n_classes, n)."""
        best = _best(bins, size)
        # Candidates above the last of the best go to a separate column, which is
        # dropped.
        depths = best[:, -1:] - bins
        np.clip(depths, -1, width, out=depths)
        depths += 1
        counts = _count(depths, width + 2)[:, 1:]
        return cls(
            bins.shape[1], best, counts.astype(np.min_scalar_type(bins.shape[1]))
        )

    @classmethod
    def merged(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the tally of the candidates of all."""
        whole, *others = tallies
        width = whole.counts.shape[1] - 1
        for other in others:
            best = _best(np.hstack([whole.best, other.best]), whole.best.shape[1])
            counts = whole._below(best, width) + other._below(best, width)
            n = whole.n + other.n
            whole = cls(n, best, counts.astype(np.min_scalar_type(n)))
        return whole

    def _below(self, best: Int64, width: int) -> Int64:
        """Count the candidates by how far they lie below the last of other, better bins."""
        last = best[:, -1:]
        # Of candidates without a number, in the last column, it is known that they lie
        # below that window as well.
        fall = np.minimum(last - self.best[:, -1:], width)
        depths = np.minimum(np.arange(width + 1) + fall, width)
        counts = _count(depths, width + 1, self.counts)
        above = (self.best > self.best[:, -1:]) & (self.best <= last)
        rows, columns = np.nonzero(above)
        np.add.at(
            counts,
            (rows, np.minimum(last[rows, 0] - self.best[rows, columns], width)),
            1,
        )
        return counts


@dataclass(frozen=True, slots=True)
class Stratum:
    """Neighbouring bins whose candidates are counted as one: a single bin, or all below the window."""

    lowest: int
    highest: int
    count: int


def strata(whole: Tally, code: int) -> list[Stratum]:
    """Return the strata of a class that hold candidates, best first."""
    best = whole.best[code]
    counts = whole.counts[code]
    last = int(best[-1])
    width = len(counts) - 1
    above, times = np.unique(best[best > last], return_counts=True)
    inside = np.flatnonzero(counts[:width])
    bins = [*above[::-1].tolist(), *(last - inside).tolist()]
    single = zip(
        bins, bins, [*times[::-1].tolist(), *counts[inside].tolist()], strict=True
    )
    further = [Stratum(NONE, last - width, int(counts[width]))] * bool(counts[width])
    return [*(Stratum(*one) for one in single), *further]


class Places:
    """Where the candidates of one class lie, in parts of a pool in the order of positions."""

    def __init__(self, parts: Sequence[Tally], code: int) -> None:
        self._n = np.array([part.n for part in parts])
        self._best = np.stack([part.best[code] for part in parts])
        counts = np.stack([part.counts[code] for part in parts])
        self._width = counts.shape[1] - 1
        self._above = np.zeros(counts.shape, np.int64)
        np.cumsum(counts[:, : self._width], axis=1, out=self._above[:, 1:])

    def find(self, lowest: int, highest: int, ordinal: int) -> tuple[int, int]:
        """Return the part of a candidate, and how many others of its bins come before it in that part.

        The bins from `lowest` to `highest` are whole strata of the whole pool, and the
        windows of parts reach at least as far down. `ordinal` counts all candidates of
        these bins, in the order of positions.
        """
        if lowest == NONE:
            fewer = self._n
        else:
            fewer = self._better(lowest - 1)
        ends = np.cumsum(fewer - self._better(highest))
        part = int(np.searchsorted(ends, ordinal, side="right"))
        return part, ordinal - (int(ends[part - 1]) if part else 0)

    def _better(self, bin: int) -> Int64:
        """Return how many candidates of each part lie above a bin."""
        last = self._best[:, -1]
        inside = np.clip(last - bin, 0, self._width)
        above = (self._best > np.maximum(last, bin)[:, None]).sum(axis=1)
        return np.asarray(self._above[np.arange(len(last)), inside] + above)


def _best(bins: Int64, size: int) -> Int64:
    """Return the largest `size` of each row, in descending order, filled up with `NONE`."""
    n = bins.shape[1]
    if size == 1 and n:
        return np.asarray(bins.max(axis=1, keepdims=True))
    if n > size:
        largest = np.partition(bins, n - size, axis=1)[:, n - size :]
    else:
        largest = bins
    best = np.full((len(bins), size), NONE)
    best[:, : largest.shape[1]] = np.sort(largest, axis=1)[:, ::-1]
    return best


def _count(
    columns: Int64, width: int, weights: NDArray[np.unsignedinteger] | None = None
) -> Int64:
    """Count how often each row holds each number below `width`, exactly; the array of columns is overwritten."""
    columns += width * np.arange(len(columns))[:, None]
    flat = None if weights is None else weights.ravel()
    counts = np.bincount(columns.ravel(), flat, len(columns) * width).reshape(
        len(columns), width
    )
    return counts.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialMechanism:
    """Select candidates with probability proportional to exp(epsilon · utility / sensitivity).

    **Privacy.** Unit: one record. Relation: add or remove one. Utilities only grow when
    a record is added, by at most `sensitivity` each. So the exponent carries no factor
    1/2 (McSherry, Talwar 2007, Theorem 6; DPPL-v1 Lemma 2): epsilon in pure DP and, by
    bounded range, epsilon²/8 in zCDP (Cesar, Rogers 2021, arXiv:2004.07223v2, Lemma
    3.4; Dong, Durfee, Rogers 2020, arXiv:1909.13830) and the trade-off function of a
    logistic variable moved by epsilon (`kernel.privacy.tradeoff`). The smallest utility
    in a set is monotone as well, with the same sensitivity, so selecting a set costs
    the same. Sampling is exact: no float rounding enters the probabilities.

    DPPL-v1 eq. (6) counts binom(y, K) sets whose worst member has rank y (from 0 in the
    released code). The number is binom(y-1, K-1) with ranks from 1 (Gillenwater et al.
    2022, A joint exponential mechanism for top-k); with the published count the best
    set has probability zero, and positive probability for some neighbour. The term -u_K
    of its eq. (5) is the same for all sets and cancels.
    """

    epsilon: float  # bounded range: a record changes every log-probability of one selection by at most this
    sensitivity: int  # largest growth of one utility
    size: int = (
        1  # of candidates to select as a set, whose utility is its worst member's
    )
    adjacency: str = "add-remove"

    @classmethod
    def within(
        cls,
        budget: Budget,
        sensitivity: int,
        size: int = 1,
        *,
        adjacency: str = "add-remove",
    ) -> ExponentialMechanism:
        """Return the sharpest selection for each of disjoint classes within `budget`, half as sharp if replaced."""
        epsilon = budget.selection_epsilon() / (1 if adjacency == "add-remove" else 2)
        return cls(
            epsilon=epsilon, sensitivity=sensitivity, size=size, adjacency=adjacency
        )

    def select(self, utilities: Int64, source: Randomness) -> Int64:
        """Return the positions of the selected candidates, in ascending order."""
        look: Look = lambda _: [(0, 0, utilities, np.arange(len(utilities)))]  # noqa: E731
        return np.asarray(
            self.select_each([self.tally(utilities[None])], look, source)[0]
        )

    def tally(self, utilities: Int64) -> Tally:
        """Return what `select_each` needs of utilities below 2⁶¹, shape (n_classes, n); it is as private."""
        return Tally.of(utilities >> self._scale.shift, self.size, self._scale.width)

    def select_each(
        self, parts: Sequence[Tally], look: Look, source: Randomness
    ) -> Int64:
        """Return the positions of the selected candidates of each class, from tallies of a pool and a second look.

        The parts are consecutive; the more there are, the less is looked at again. What
        is selected depends on the utilities in the order of positions and on `source`,
        not on the parts. Positions have the shape (n_classes, size), and ascend within
        a class, since the order inside a set says nothing.
        """
        whole = Tally.merged(parts)
        if whole.n < self.size:
            raise InputError(
                f"selecting {self.size} candidates needs at least as many; got {whole.n} usable ones."
            )
        drawn: list[list[_Proposal]] = []
        for code in range(len(whole.best)):
            envelope = _Envelope.of(strata(whole, code), self.size, self._scale)
            places = Places(parts, code)
            # Until one is sure to be accepted, wherever in its bin its worst member
            # lies.
            proposals = [envelope.propose(places, source)]
            while not proposals[-1].sure:
                proposals.append(envelope.propose(places, source))
            drawn.append(proposals)
        requests: Requests = {}
        picks = [list(chain.from_iterable(one.picks for one in some)) for some in drawn]
        for code, own in enumerate(picks):
            for pick in own:
                requests.setdefault(pick.part, {}).setdefault(code, []).append(
                    (pick.lowest, pick.highest)
                )
        for code, part, utilities, positions in look(dict(sorted(requests.items()))):
            bins = utilities >> self._scale.shift
            for pick in picks[code]:
                if pick.part == part:
                    pick.look(bins, utilities, positions)
        if any(pick.position is None for pick in chain.from_iterable(picks)):
            raise InputError("the public rows changed while they were read.")
        selected = []
        for proposals in drawn:
            # Exact rejection sampling: the first proposal that passes has the law of the
            # mechanism, whatever the envelope was.
            accepted = next(one for one in proposals if one.sure or one.is_accepted())
            selected.append([pick.position for pick in accepted.picks])
        return np.sort(np.array(selected, np.int64))

    def is_sought(
        self, utilities: Int64, bins: Iterable[tuple[int, int]]
    ) -> NDArray[np.bool_]:
        """Mark the candidates that `select_each` seeks by their bins, so that who holds them sends no others."""
        own = utilities >> self._scale.shift
        sought = np.zeros(len(own), np.bool_)
        for lowest, highest in set(bins):
            sought |= (own >= lowest) & (own <= highest)
        return sought

    def describe(self, statistic: Term[Statistic]) -> Release:
        """Return the entry of the guarantee, with the cost of one selection for each of several disjoint classes.

        Under replace-one a record leaves one selection and enters another, or the same
        one: twice epsilon in pure DP, and in zCDP the square of twice the range over
        eight (the same class is the worse case).
        """
        if self.size == 1:
            mechanism = Term(Mechanism.EXPONENTIAL)
        else:
            mechanism = Term(Mechanism.JOINT_EXPONENTIAL, n_selected=self.size)
        parameters = {
            "epsilon_per_selection": self.epsilon,
            "n_selections": 1.0 if self.adjacency == "add-remove" else 2.0,
        }
        return Release(
            mechanism=mechanism,
            statistic=statistic,
            sensitivity=float(self.sensitivity),
            norm=Norm.MONOTONE_UTILITY,
            parameters=parameters,
            cost=cost_of(mechanism.code, Fraction(self.sensitivity) ** 2, parameters),
        )

    @property
    def _scale(self) -> _Scale:
        return _scale(self.epsilon, self.sensitivity, self.size)


class _Scale(NamedTuple):
    """Units of a selection: weights are exp(rate·utility), and `width` bins of 2**shift utilities are counted."""

    rate: Fraction
    shift: int
    width: int


@functools.cache
def _scale(epsilon: float, sensitivity: int, size: int) -> _Scale:
    rate = Fraction(epsilon) / sensitivity
    shift = min(max(math.floor(_BIN_WIDTH / rate).bit_length() - 1, 0), 61)
    needed = math.ceil(math.log(math.comb(_MANY, size))) + _SPARE
    return _Scale(rate, shift, max(1, math.ceil(needed / (rate * 2**shift))))


@dataclass(slots=True, eq=False)
class _Pick:
    """A candidate of which the bins are known, its part, and how many of these bins come before it in that part."""

    lowest: int
    highest: int
    part: int
    before: int
    utility: int = 0
    position: int | None = None

    def look(self, bins: Int64, utilities: Int64, positions: Int64) -> None:
        """Find it among candidates of its part, or go on to the next ones."""
        if self.position is not None:
            return
        inside = np.flatnonzero((bins >= self.lowest) & (bins <= self.highest))
        if self.before < len(inside):
            place = inside[self.before]
            self.utility = int(utilities[place])
            self.position = int(positions[place])
        self.before -= len(inside)


@dataclass(frozen=True, slots=True, eq=False)
class _Proposal:
    """A set, the worst members first, and what decides whether it is taken."""

    picks: list[_Pick]
    n_worst: int
    envelope: _Envelope
    factor: Fraction
    uniform: _Uniform
    sure: bool

    def is_accepted(self) -> bool:
        """Accept with the exact ratio of the set's weight to the one that it was proposed with."""
        worst = min(pick.utility for pick in self.picks[: self.n_worst])
        return self.uniform.is_below(self.factor, self.envelope.exponent(worst))


@dataclass(frozen=True, slots=True, eq=False)
class _Envelope:
    """Integer weights of strata that are at least the weights of the sets with their worst member there.

    With `before` candidates in better strata, binom(before + count, size) -
    binom(before, size) sets have their worst member in a stratum. None of them weighs
    more than if that were the best utility of the stratum.
    """

    size: int
    scale: _Scale
    strata: list[Stratum]
    before: list[int]
    sets: list[int]
    best: int
    top: float
    totals: list[int]

    @classmethod
    def of(cls, strata: list[Stratum], size: int, scale: _Scale) -> _Envelope:
        ends = list(accumulate(stratum.count for stratum in strata))
        combinations = [math.comb(end, size) for end in ends]
        sets = [last - first for first, last in pairwise([0, *combinations])]
        # Strata of which all candidates are among the best size - 1 are worst members
        # of no set.
        first = next(place for place, number in enumerate(sets) if number)
        strata = strata[first:]
        sets = sets[first:]
        before = [0, *ends][first:-1]
        highest = [((stratum.highest + 1) << scale.shift) - 1 for stratum in strata]
        rate = float(scale.rate)
        logs = [
            math.log(number) - rate * (highest[0] - each)
            for number, each in zip(sets, highest, strict=True)
        ]
        top = max(logs)
        # Plus one: never below the true weight, however small.
        weights = [
            int(math.exp(log - top) * 2.0**_ENVELOPE_BITS * _HEAD_ROOM) + 1
            for log in logs
        ]
        return cls(
            size,
            scale,
            strata,
            before,
            sets,
            highest[0],
            top,
            list(accumulate(weights)),
        )

    def exponent(self, worst: int) -> Fraction:
        """Return the log of the weight of all sets of the heaviest stratum over the weight of a set."""
        return self.scale.rate * (self.best - worst) + Fraction(self.top)

    def propose(self, places: Places, source: Randomness) -> _Proposal:
        """Draw a stratum by its integer weight, and a uniform set among those with their worst member in it."""
        place = bisect_right(self.totals, source.below(self.totals[-1]))
        stratum = self.strata[place]
        before = self.before[place]
        size = self.size
        ways = [
            math.comb(stratum.count, n) * math.comb(before, size - n)
            for n in range(1, size + 1)
        ]
        n_worst = 1
        if size > 1:
            drawn = source.below(self.sets[place])
            n_worst += bisect_right(list(accumulate(ways)), drawn)
        picks = []
        for lowest, highest, count, n_chosen in (
            (stratum.lowest, stratum.highest, stratum.count, n_worst),
            (stratum.highest + 1, _ANY, before, size - n_worst),
        ):
            chosen: set[int] = set()
            for last in range(count - n_chosen, count):  # a uniform subset (Floyd 1987)
                draw = source.below(last + 1)
                chosen.add(last if draw in chosen else draw)
            picks += [
                _Pick(lowest, highest, *places.find(lowest, highest, ordinal))
                for ordinal in sorted(chosen)
            ]
        weight = self.totals[place] - (self.totals[place - 1] if place else 0)
        factor = Fraction(self.sets[place] << _ENVELOPE_BITS, weight)
        uniform = _Uniform(source)
        sure = uniform.is_below(
            factor, self.exponent(stratum.lowest << self.scale.shift)
        )
        return _Proposal(picks, n_worst, self, factor, uniform, sure)


class _Uniform:
    """A uniform number between 0 and 1, of which as many bits are drawn as comparisons with it need."""

    def __init__(self, source: Randomness) -> None:
        self._source = source
        self._bits = 0
        self._count = 0

    def is_below(self, factor: Fraction, exponent: Fraction) -> bool:
        """Whether it is below factor·exp(-exponent), exactly: so with this probability.

        Bits are drawn until it lies on one side of an interval around the bound; both
        shrink from round to round.
        """
        while True:
            self._bits = (self._bits << 64) | self._source.bits(64)
            self._count = self._count + 64
            low, high = _probability_bounds(
                factor, exponent, 5 + 20 * self._count // 64
            )
            if low > 1:
                raise AssertionError(
                    "the sampling envelope lies below a weight; please report this."
                )
            if _dyadic(self._bits + 1, self._count) <= low:
                return True
            if _dyadic(self._bits, self._count) >= high:
                return False


def _probability_bounds(
    factor: Fraction, exponent: Fraction, digits: int
) -> tuple[decimal.Decimal, decimal.Decimal]:
    """Enclose factor·exp(-exponent): the decimal module rounds each operation correctly to `digits`."""
    extra = len(str(abs(int(exponent)))) + 5
    context = decimal.Context(
        prec=digits + extra, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[]
    )
    power = context.divide(
        decimal.Decimal(-exponent.numerator), decimal.Decimal(exponent.denominator)
    )
    ratio = context.divide(
        decimal.Decimal(factor.numerator), decimal.Decimal(factor.denominator)
    )
    value = context.multiply(ratio, context.exp(power))
    one = decimal.Decimal(1)
    error = decimal.Decimal(f"1E-{digits}")
    # By the context's methods: operators would round to the 28 digits of the thread's
    # own context.
    return context.multiply(value, context.subtract(one, error)), context.multiply(
        value, context.add(one, error)
    )


def _dyadic(numerator: int, bits: int) -> decimal.Decimal:
    """Return numerator / 2**bits without rounding."""
    return decimal.Decimal(f"{numerator * 5**bits}E-{bits}")
