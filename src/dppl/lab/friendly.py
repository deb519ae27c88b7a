"""FriendlyCore: the means of each class over the records that lie close to most of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.types import Float
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.lattice import Lattice
from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.mechanisms import Randomness, RoundedGaussian
from dppl.kernel.privacy import ApproxDP, Budget, GaussianDP, Release
from dppl.kernel.privacy.budgets import split
from dppl.kernel.privacy.release import QUARTERS, cost_of
from dppl.kernel.privacy.rounding import root_above
from dppl.kernel.privacy.terms import Mechanism, Norm, Statistic, Term
from dppl.kernel.queries.base import ADD_REMOVE, OwnAnswer, RowQuery
from dppl.kernel.records import HeldRecords

Int64 = NDArray[np.int64]

# Shares of mu²: the number of records, who is in the core, its size, and its mean.
SHARES = (1, 4, 1, 10)
# Steps of the grid of means, in lattice steps. A coordinate is rounded down to it.
_GRID = 2**16
# Pairs that are compared at a time.
_PAIRS = 2**22


@dataclass(frozen=True, slots=True)
class FriendlyCore:
    """Mean of the lattice rows of one class, without those that few others are near to.

    After Tsfadia, Cohen, Kaplan, Mansour, Stemmer (2022, arXiv:2110.10132), the variant
    for zCDP: all pairs are compared, and a row is kept where its noisy number of
    friends, rows within the radius, is above half of the class by a margin. Any two
    that are kept then share a friend, so they lie within two radii, and the mean needs
    noise of that length alone.

    **Privacy.** Unit: one record. Relation: one record added or removed. Let D have the
    N records of a class, D' all of them but x, and let G ≥ 0 be rounded Gaussian noise
    of deviation σ: P(G > t) ≤ exp(-t²/2σ²)/2. Compare what is drawn step by step, each
    step at the same earlier outcomes.

    1. N, with noise of mu₁. *most* is that plus t₁, so N ≤ most except for δ/4.
    2. For each of the N - 1 common records, twice its friends minus the number of
       records, with noise of √most/mu₂. Removing x moves each by 1, all by √(N - 1).
       Those above 1 + t₂ are kept, where P(G > t₂) ≤ δ/4/(most + 1). With D', toss for
       x as D would, and use it for nothing: it costs nothing.
    3. The size m of the core, with noise of mu₃. *fewest* is that minus t₃ + 1, so it
       is at most the size of the core without x, except for δ/4.
    4. The mean of the core on a grid, with noise of (2r/(fewest + 1) + √dim)/mu₄.

    B are the outcomes with N - 1 > most, with a kept record (x among them) that has at
    most N/2 friends in D, or with fewest above the size of the core without x. By the
    thresholds P(B) ≤ 3δ/4, whether D or D' was drawn from: in D' a number of friends is
    by 1 higher at most. Outside of B two records that are kept have more than half of D
    as friends each, so they share one and lie within 2r. Then x moves the mean by at
    most 2r/m, where m ≥ fewest + 1, and rounding down moves each coordinate by less
    than one step more. So outside of B all steps are Gaussian mechanisms of the stated
    mu, whose squares add up to mu² (Dong, Roth, Su 2022, arXiv:1905.02383v3, Corollary
    3.3), and P(S) ≤ P(S without B) + P(B) ≤ e^ε·P'(S) + δ/4 + 3δ/4, where mu allows ε
    at δ/4. A record is in one class, so all classes cost what one does.
    """

    delta: float  # of the budget
    mus: tuple[float, ...]  # of the four steps
    squared_radius: int  # within which rows are friends, in squares of lattice steps

    @classmethod
    def within(cls, budget: Budget, squared_radius: int) -> FriendlyCore:
        """Return the estimator that spends the budget."""
        if not isinstance(budget, ApproxDP):
            raise BudgetError(
                f"FriendlyCore fails with a small probability, so it is accounted in approximate DP; use ApproxDP, not "
                f"{budget!r}."
            )
        allowed = ApproxDP(budget.epsilon, budget.delta / QUARTERS)
        mus = tuple(one.mu for one in split(allowed, SHARES))
        return cls(budget.delta, mus, squared_radius)

    def release(self, rows: Int8, lattice: Lattice, source: Randomness) -> Float:
        """Return the noisy mean of the core, in units of unit rows; zero where the core is too small for one."""
        quarter = self.delta / QUARTERS
        of_size, of_friends, of_core, of_mean = map(GaussianDP, self.mus)
        counting = RoundedGaussian.within(of_size, Fraction(1))
        noisy = int(counting.release(np.array([len(rows)]), source)[0])
        most = max(1, noisy + tail(counting.noise_std, quarter))
        comparing = RoundedGaussian.within(of_friends, Fraction(most))
        threshold = 1 + tail(comparing.noise_std, quarter / (most + 1))
        surplus = 2 * friends(rows, self.squared_radius) - len(rows)
        core = rows[comparing.release(surplus, source) > threshold]
        sizing = RoundedGaussian.within(of_core, Fraction(1))
        noisy = int(sizing.release(np.array([len(core)]), source)[0])
        fewest = noisy - tail(sizing.noise_std, quarter) - 1
        if fewest < 1:
            return np.zeros(lattice.dim)
        total = core.sum(axis=0, dtype=np.int64)
        mean = total * _GRID // max(1, len(core))
        averaging = RoundedGaussian.within(
            of_mean, self.squared_sensitivity(fewest, lattice.dim)
        )
        return averaging.release(mean, source) / (_GRID * lattice.scale)

    def squared_sensitivity(self, fewest: int, dim: int) -> Fraction:
        """Return the square of how far a record moves the mean on its grid, of a core of `fewest` others."""
        moved = root_above(
            Fraction(4 * self.squared_radius * _GRID**2, (fewest + 1) ** 2)
        )
        rounded = root_above(Fraction(dim))
        return (Fraction(moved) + Fraction(rounded)) ** 2

    def describe(self, statistic: Term[Statistic]) -> Release:
        """Return the entry of the guarantee."""
        parameters = {
            "squared_radius": float(self.squared_radius),
            **{f"mu_{step}": mu for step, mu in enumerate(self.mus, 1)},
        }
        return Release(
            mechanism=Term(Mechanism.FRIENDLY_CORE),
            statistic=statistic,
            sensitivity=2.0,
            norm=Norm.L2_IN_RADII_OF_A_CORE,
            parameters=parameters,
            cost=cost_of(
                Mechanism.FRIENDLY_CORE, Fraction(4), parameters, delta=self.delta
            ),
        )


def tail(noise_std: float, probability: float) -> int:
    """Return a number that rounded Gaussian noise exceeds with at most this probability.

    For t ≥ 0, P(round(σZ) > t) ≤ P(Z ≥ t/σ) ≤ exp(-t²/2σ²)/2. Floats lose less than
    what the last factor adds.
    """
    return math.ceil(
        noise_std * math.sqrt(max(0.0, -2 * math.log(2 * probability))) * (1 + 1e-9)
    )


def friends(rows: Int8, squared_radius: int) -> Int64:
    """Count the rows within the radius of each, itself among them.

    Sums of products of lattice rows stay below the square of their norm, so all are
    integers that the floats hold, in any order.
    """
    few = 127**2 * rows.shape[1] < 2**24
    exact: NDArray[Any] = rows.astype(np.float32 if few else np.float64)
    squares = np.square(rows.astype(np.int64)).sum(axis=1)
    found = np.zeros(len(rows), np.int64)
    step = max(1, _PAIRS // max(1, len(rows)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        products = (exact[part] @ exact.T).astype(np.int64)
        apart = squares[part, None] + squares - 2 * products
        found[part] = np.count_nonzero(apart <= squared_radius, axis=1)
    return found


@dataclass(frozen=True, eq=False)
class FriendlyMeans(RowQuery, OwnAnswer):
    """The mean of each class over its core; what one record changes is proved by `FriendlyCore`."""

    radius: float  # in units of unit rows
    _code = Statistic.CORE_MEANS
    needs_rows = True
    repeats = False
    per_class = True
    squared_norm = Fraction(1)
    unit = 1.0  # means of unit rows

    def mechanism(self, budget: Budget, times: int, relation: str) -> FriendlyCore:
        """Return the estimator that spends the budget."""
        if relation != ADD_REMOVE:
            raise ParameterError("FriendlyCore is accounted under add-remove only")
        squared_radius = math.floor(
            Fraction(self.radius) ** 2 * self.lattice.squared_norm
        )
        return FriendlyCore.within(budget, squared_radius)

    def answer(
        self,
        mechanism: FriendlyCore,
        records: HeldRecords,
        source: Randomness,
        **released: Any,
    ) -> Float:
        """Return noisy means of unit rows, shape (n_classes, dim); the records lie in one place."""
        blocks = self.lattice.blocks(records.rows)
        rows = np.concatenate([np.empty((0, self.lattice.dim), np.int8), *blocks])
        parts = (rows[records.codes == code] for code in range(self.n_classes))
        return np.stack(
            [mechanism.release(part, self.lattice, source) for part in parts]
        )
