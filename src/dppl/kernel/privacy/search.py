"""What a private search for hyper-parameters costs: the best of a random number of runs.

An algorithm that fits and scores a candidate under rho-zCDP is run K times, each time on a candidate drawn at random,
and only the best result is released. With a fixed K that costs K times as much; with K hidden and drawn from a
geometric distribution it costs little more than one run (Liu, Talwar 2019; Papernot, Steinke 2022). The number of runs
must stay secret: neither a log nor the content of a file may tell it. The running time does, and with it the times of
files that are written after the search; every statement of a search lists that as not covered.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dppl import _validate
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.privacy.accounting import epsilon_at_order

# Float arithmetic in the bounds below errs by far less than this share, which is added.
_MARGIN = 1e-12
# Rényi orders among which a search finds its own; also used where searches are composed with others.
ORDERS = 1 + np.geomspace(0.02, 1e5, 400)


def renyi_of_best(rho: float, mean_runs: int, order: float) -> float:
    r"""Bound the Rényi divergence of the best of a geometric number of rho-zCDP runs, rounded up.

    Here rho is the cost of one run, its score included, and m the mean number of runs, at least 2.

    With the number of runs geometric on 1, 2, … of mean m and runs of divergence rho·order,

    .. math:: D \le \rho\,\alpha + \frac{\log m}{\alpha - 1}
              + 2 \min_{\hat\alpha \ge 1} \left[\rho (\hat\alpha - 1) + \frac{\log m}{\hat\alpha}\right].

    Papernot, Steinke (2022), arXiv:2110.03620v2, Theorem 2 with eta = 1 and rho-zCDP runs.
    """
    check_mean_runs(mean_runs)
    _validate.positive(rho=rho)
    if not order > 1:
        raise ParameterError(f"order must be greater than 1; got {order!r}.")
    log_runs = math.log(mean_runs)
    # The minimum lies at sqrt(log m/rho), or at 1 where that is smaller.
    other = 2 * math.sqrt(rho * log_runs) - rho if log_runs >= rho else log_runs
    return (rho * order + log_runs / (order - 1) + 2 * other) * (1 + _MARGIN)


def rho_per_run_within(epsilon: float, delta: float, mean_runs: int) -> float:
    """Return the largest rho of one run whose search stays within (epsilon, delta), rounded down."""
    check_mean_runs(mean_runs)
    # Python's own numbers: as keys of the cache others are equal to them, and compute in less precision.
    return _rho_per_run_within(float(epsilon), float(delta), int(mean_runs))


@lru_cache(maxsize=64)
def _rho_per_run_within(epsilon: float, delta: float, mean_runs: int) -> float:
    def excess(log_rho: float) -> float:
        return _epsilon_and_order(math.exp(log_rho), mean_runs, delta)[0] - epsilon

    # Above this a run alone would exceed the budget: rho-zCDP leads to more than epsilon = rho.
    low, high = math.log(1e-12), math.log(epsilon + 1)
    if excess(low) > 0:
        raise BudgetError(
            f"a search with mean_runs={mean_runs} does not fit into epsilon={epsilon!r} at delta={delta!r}; raise "
            "epsilon, or lower mean_runs."
        )
    from scipy.optimize import bisect  # here, because loading a model needs none of it

    rho = math.exp(bisect(excess, low, high, xtol=1e-10))
    while excess(math.log(rho)) > 0:
        rho *= 1 - 1e-9
    return rho


def best_order(rho: float, mean_runs: int, delta: float) -> float:
    """Return the Rényi order, of `ORDERS`, that proves the smallest epsilon of a search at `delta`."""
    return _epsilon_and_order(rho, mean_runs, delta)[1]


def _epsilon_and_order(rho: float, mean_runs: int, delta: float) -> tuple[float, float]:
    return min(
        (epsilon_at_order(renyi_of_best(rho, mean_runs, order), delta, order), order) for order in ORDERS.tolist()
    )


def check_mean_runs(mean_runs: int) -> None:
    """Refuse what is not an integer of at least 2."""
    _validate.positive_integer(mean_runs=mean_runs)
    if mean_runs < 2:
        raise ParameterError("mean_runs must be at least 2; with one run there is nothing to choose from.")
