"""The moments accountant of DP-SGD, by which the papers found their noise; privacy loss distributions need less."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from dppl.errors import BudgetError

# Moments 1 to 255, and larger ones for small budgets: Rényi orders are one more.
ORDERS = (*range(2, 257), 512, 1024, 2048)
_LEAST, _MOST = 0.1, 1e6  # noise, in sensitivities


def divergence(order: int, multiplier: float, rate: float) -> float:
    """Return the Rényi divergence of a Gaussian sum over a Poisson sample, at an integer order.

    Of N(0, σ²) mixed with N(1, σ²) from N(0, σ²): Mironov, Talwar, Zhang (2019),
    arXiv:1908.10530, section 3.3; order - 1 times it is the log moment of Abadi et al.
    """
    k = np.arange(order + 1)
    terms = (
        gammaln(order + 1)
        - gammaln(k + 1)
        - gammaln(order - k + 1)
        + k * math.log(rate)
        + k * (k - 1) / (2 * multiplier**2)
    )
    if rate == 1:
        # Every record takes part, so only the last term has a probability.
        terms = terms[-1:]
    else:
        terms += (order - k) * math.log1p(-rate)
    return float(logsumexp(terms)) / (order - 1)


def epsilon_by_moments(
    multiplier: float, delta: float, rate: float, steps: int
) -> float:
    """Return the epsilon of so many steps: Abadi et al. (2016), arXiv:1607.00133v2, Theorem 2."""
    bounds = [
        steps * divergence(order, multiplier, rate) - math.log(delta) / (order - 1)
        for order in ORDERS
    ]
    return float(min(bounds))


@lru_cache(maxsize=64)
def multiplier_by_moments(
    epsilon: float, delta: float, rate: float, steps: int
) -> float:
    """Return the noise, in sensitivities, for which the accountant gives this epsilon, rounded up."""

    def excess(log_multiplier: float) -> float:
        return (
            epsilon_by_moments(math.exp(log_multiplier), delta, rate, steps) - epsilon
        )

    if excess(math.log(_MOST)) > 0:
        raise BudgetError(
            f"no noise makes the moments accountant prove epsilon = {epsilon:.4g} at delta = {delta:.4g}; raise the budget."
        )
    if excess(math.log(_LEAST)) <= 0:
        return _LEAST
    # So much above the root that rounding leaves none below it.
    root: float = brentq(excess, math.log(_LEAST), math.log(_MOST))
    return math.exp(root + 1e-9)
