"""Group privacy: what several rows of one person cost together, whatever mechanism reads them.

Rows that enter releases which follow from one class each cost as releases on disjoint data that one person's rows are
in, sqrt(k) times mu for k rows. In general they cost what k neighbour steps do, k times mu.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from dppl.errors import BudgetError
from dppl.kernel.privacy.accounting import cost_of_gaussian, float_below, mu_below, rho_of_bounded_range, round_up
from dppl.kernel.privacy.budgets import ZCDP, ApproxDP, Budget, GaussianDP, PureDP, as_typed
from dppl.kernel.privacy.guarantee import Release
from dppl.kernel.privacy.tradeoff import selection_mu

# Costs of single rows are rounded up, and once more those of several that follow from them: their squares add up to
# less than this share above what they are.
_HEAD_ROOM = 1 + Fraction(1, 2**48)


def budget_of_one(budget: Budget, n_rows: int, *, apart: bool, selects: bool = False) -> Budget:
    """Return what a fit on single rows may spend, so that so many rows together cost no more than `budget`.

    It is in the notion of `budget`; of approximate DP, what it allows in Gaussian DP, or in pure DP to selections. The
    rows are in different classes. `apart` says that what is released of a class follows from the rows of that class
    alone, with noise of its own; `selects`, that all releases are selections, whose costs add up in pure DP.

    Dong, Roth, Su (2022), arXiv:1905.02383v3, Theorem 2.14 (groups) and Corollary 3.3 (composition).
    Bun and Steinke (2016), arXiv:1605.02065v1, Proposition 1.9 (groups) and Lemma 1.7 (composition).
    """
    if budget.is_zero:
        return budget
    if isinstance(budget, PureDP) or (selects and isinstance(budget, ApproxDP)):
        return PureDP(float_below(Fraction(as_typed(budget.epsilon)) / n_rows))
    squared = _HEAD_ROOM * (n_rows if apart else n_rows**2)
    if isinstance(budget, ZCDP):
        return ZCDP(float_below(Fraction(as_typed(budget.rho)) / squared))
    return GaussianDP(mu_below(Fraction(budget.gaussian_allowance().mu) ** 2 / squared))


def release_of_several(release: Release, n_rows: int, *, apart: bool) -> Release:
    """Return the entry of a release for a person of so many rows, from that for single rows.

    Only Gaussian noise and selections have such an entry; sums over samples do not.
    """
    names = set(release.cost)
    if names == {"mu", "rho"}:
        squared = n_rows if apart else n_rows**2
        cost = cost_of_gaussian(squared * Fraction(release.cost["mu"]) ** 2)
        return replace(release, sensitivity=math.sqrt(squared) * release.sensitivity, cost=cost)
    if names != {"epsilon", "mu", "rho"}:
        raise BudgetError(f"costs of {release.mechanism} to several rows together are not known.")
    # Selections for several classes, or several steps of one selection: the ranges add up.
    whole = n_rows * Fraction(release.cost["epsilon"])
    epsilon = round_up(float(whole), lambda value: value >= whole)
    cost = {"epsilon": epsilon, "mu": selection_mu(epsilon), "rho": rho_of_bounded_range(epsilon)}
    return replace(release, cost=cost)
