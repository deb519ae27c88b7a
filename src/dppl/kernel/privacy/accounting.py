"""Conversions between notions, on plain floats, rounded to the safe side; `tradeoff` has those for Gaussian DP.

Then what a private search for hyper-parameters costs. An algorithm that fits and scores
a candidate under rho-zCDP is run K times, each time on a candidate drawn at random, and
only the best result is released. With a fixed K that costs K times as much; with K
hidden and drawn from a geometric distribution it costs little more than one run (Liu,
Talwar 2019; Papernot, Steinke 2022). K must stay secret: neither a log nor the content
of a file may show it. The running time does, and the times of files that are written
afterwards; every statement of a search lists that as not covered.

The arithmetic of Rényi orders is dp-accounting's; this module chooses the orders,
searches the inverse and checks the side on which the result lies. Here rho, mu and
epsilon are above 0, and delta is strictly between 0 and 1.
"""

import math
from functools import lru_cache

import numpy as np

from dppl._utils import validate
from dppl.errors import Argument, BudgetError, ParameterError

# Rényi orders minus 1: a coarse sweep, then a fine one around its best. The optimum
# lies near sqrt(log(1/delta)/rho).
_COARSE = np.geomspace(1e-5, 1e8, 261)
_FINE = np.geomspace(1 / 1.13, 1.13, 201)
# dp-accounting and the bounds below compute in float64; their relative error is far
# below this margin, which is added to every epsilon and divergence.
_MARGIN = 1e-12
# Rényi orders among which a search chooses its own, also where it is composed with
# others.
ORDERS = 1 + np.geomspace(0.02, 1e5, 400)


def epsilon_of_zcdp(rho: float, delta: float) -> float:
    """Return an epsilon of rho-zCDP, rounded up (Canonne, Kamath, Steinke 2020, arXiv:2004.00010v5, Proposition 12)."""
    epsilon, _ = epsilon_and_order(rho, delta)
    if not math.isfinite(epsilon):
        raise BudgetError(f"rho={rho!r} implies no finite epsilon at delta={delta!r}.")
    # A tiny rho rounds to epsilon = 0 (delta alone covers it); budgets are positive, so
    # name the smallest margin.
    return max(epsilon * (1 + _MARGIN), _MARGIN)


def epsilon_at_order(divergence: float, delta: float, order: float) -> float:
    """Return the epsilon at `delta` that a bound on the Rényi divergence of one order, above 1, proves, rounded up.

    Canonne, Kamath, Steinke (2020), arXiv:2004.00010v5, Proposition 12.
    """
    epsilon = (
        divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    )
    # Relative to the largest of the terms, which may cancel; it covers the rounding of
    # a sum of divergences as well.
    largest = divergence + abs(math.log(delta * order)) / (order - 1)
    return max(epsilon + _MARGIN * largest, _MARGIN)


def epsilon_and_order(rho: float, delta: float) -> tuple[float, float]:
    """Return the smallest epsilon that dp-accounting proves for rho-zCDP, and the Rényi order that proves it."""
    import dp_accounting  # here, because importing it takes longer than all else, and few commands convert

    order = 2.0  # its distance from 1 is the unit of the coarse sweep
    for orders in (_COARSE, _FINE):
        accountant = dp_accounting.rdp.RdpAccountant(1 + (order - 1) * orders)
        accountant.compose(dp_accounting.ZCDpEvent(rho))
        epsilon, order = accountant.get_epsilon_and_optimal_order(delta)
    return float(epsilon), float(order)


@lru_cache(maxsize=64)
def zcdp_within(epsilon: float, delta: float) -> float:
    """Return the largest rho that `epsilon_of_zcdp` puts within (epsilon, delta), rounded down."""

    def excess(log_rho: float) -> float:
        return epsilon_of_zcdp(math.exp(log_rho), delta) - epsilon

    start = math.log(epsilon) - 1
    low = next((start - step for step in range(400) if excess(start - step) <= 0), None)
    if low is None:
        raise BudgetError("no zCDP cost fits into this budget; raise epsilon or delta.")
    high = next(low + step for step in range(400) if excess(low + step) > 0)
    from scipy.optimize import bisect  # here, because loading a model needs none of it

    rho = math.exp(bisect(excess, low, high, xtol=1e-13))
    while epsilon_of_zcdp(rho, delta) > epsilon:
        rho *= 1 - 1e-12
    return rho


def renyi_of_best(rho: float, mean_runs: int, order: float) -> float:
    r"""Bound the Rényi divergence of the best of a geometric number of rho-zCDP runs, rounded up.

    With rho the cost of one run, its score included, and the number of runs geometric
    on 1, 2, … of mean m ≥ 2,

    .. math:: D \le \rho\,\alpha + \frac{\log m}{\alpha - 1}
              + 2 \min_{\hat\alpha \ge 1} \left[\rho (\hat\alpha - 1) + \frac{\log
              m}{\hat\alpha}\right].

    Papernot, Steinke (2022), arXiv:2110.03620v2, Theorem 2 with eta = 1 and rho-zCDP
    runs.
    """
    log_runs = math.log(mean_runs)
    # The minimum lies at sqrt(log m/rho), or at 1 where that is smaller.
    if log_runs >= rho:
        other = 2 * math.sqrt(rho * log_runs) - rho
    else:
        other = log_runs
    return (rho * order + log_runs / (order - 1) + 2 * other) * (1 + _MARGIN)


@lru_cache(maxsize=64)
def rho_per_run_within(epsilon: float, delta: float, mean_runs: int) -> float:
    """Return the largest rho of one run whose search stays within (epsilon, delta), rounded down."""
    check_mean_runs(mean_runs)

    def excess(log_rho: float) -> float:
        return (
            search_epsilon_and_order(math.exp(log_rho), mean_runs, delta)[0] - epsilon
        )

    # Above this a run alone would exceed the budget: rho-zCDP leads to more than
    # epsilon = rho.
    low = math.log(1e-12)
    high = math.log(epsilon + 1)
    if excess(low) > 0:
        raise BudgetError(
            f"no search fits into epsilon={epsilon!r} at delta={delta!r}; lower ",
            Argument("mean_runs", mean_runs),
            ".",
        )
    from scipy.optimize import bisect  # here, because loading a model needs none of it

    rho = math.exp(bisect(excess, low, high, xtol=1e-10))
    while excess(math.log(rho)) > 0:
        rho *= 1 - 1e-9
    return rho


def search_epsilon_and_order(
    rho: float, mean_runs: int, delta: float
) -> tuple[float, float]:
    """Return the smallest epsilon of a search at `delta`, and the Rényi order, of `ORDERS`, that proves it."""
    orders = ORDERS.tolist()
    return min(
        (epsilon_at_order(renyi_of_best(rho, mean_runs, order), delta, order), order)
        for order in orders
    )


def check_mean_runs(mean_runs: int) -> None:
    """Raise unless it is an integer of at least 2."""
    validate.positive_integer(mean_runs=mean_runs)
    if mean_runs < 2:
        raise ParameterError(
            "mean_runs must be at least 2; with one run there is nothing to choose from."
        )
