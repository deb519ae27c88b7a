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
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dppl._utils import validate
from dppl.errors import BudgetError, ParameterError
from dppl.kernel.privacy.tradeoff import (
    SMALLEST_EPSILON,
    gaussian_mu_within,
    selection_mu,
)

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
# At which the trade-off function of sums over samples is known.
_EPSILONS = [0.0, *np.geomspace(1e-3, 100.0, 101).tolist()]
# Less noise is never calibrated: privacy loss distributions grow with its inverse
# square.
_LEAST_NOISE = 0.1
# Steps on samples that are accounted for, and those that are added in one go.
_MOST_STEPS = 10**6
_AT_ONCE = 10**5
# Points of a grid of privacy losses, on which time and memory depend: for one sum, and
# for the standard deviations of all sums within which dp-accounting looks.
_POINTS = 2**15
_TAIL = 9.8  # it has a probability of e^-50 to be further out
_FINEST = 1e-7  # closer points would show the rounding of floats
_LARGEST_LOSS = 500.0  # its exponential, and what is multiplied with it, is a float


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


def cost_of_gaussian(squared_mu: Fraction) -> dict[str, float]:
    """Return what Gaussian noise costs in Gaussian DP and in zCDP, each rounded up.

    Rho = mu²/2: Bun and Steinke (2016), arXiv:1605.02065v1, Proposition 1.6.
    """
    return {"mu": root_above(squared_mu), "rho": above(squared_mu / 2)}


def cost_of_selection(epsilon: float) -> dict[str, float]:
    """Return what a selection of this bounded range costs in pure DP, Gaussian DP and zCDP, each rounded up.

    Rho = epsilon²/8: Cesar and Rogers (2021), arXiv:2004.07223v2, Lemma 3.4.
    """
    return {
        "epsilon": epsilon,
        "mu": selection_mu(epsilon),
        "rho": above(Fraction(epsilon) ** 2 / 8),
    }


def _samples(multiplier: float, sampling_rate: float, steps: int, mu: float) -> Any:
    """Return dp-accounting's event of Gaussian sums over Poisson samples and of Gaussian releases of cost `mu`."""
    from dp_accounting import (  # here, because importing it takes longer than all else
        ComposedDpEvent,
        GaussianDpEvent,
        PoissonSampledDpEvent,
        SelfComposedDpEvent,
    )

    one = PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(multiplier))
    sums = SelfComposedDpEvent(one, steps)
    if mu == 0:
        return sums
    return ComposedDpEvent([GaussianDpEvent(below(1 / Fraction(mu))), sums])


@lru_cache(maxsize=64)
def sampled_gaussian_multiplier(
    epsilon: float, delta: float, sampling_rate: float, steps: int, mu: float = 0.0
) -> float:
    """Return the noise, in sensitivities, with which Gaussian sums over Poisson samples stay within (epsilon, delta).

    Each of the `steps` sums is over its own sample. What was released with them, or
    between them, costs `mu` in Gaussian DP. Calibrated by dp-accounting with privacy
    loss distributions, on the safe side, for adding or removing one record. The
    tolerance is a thousandth.
    """
    from dp_accounting import ExplicitBracketInterval, calibrate_dp_mechanism, pld

    event = partial(_samples, sampling_rate=sampling_rate, steps=steps, mu=mu)

    def fresh(multiplier: float) -> Any:
        # A finer grid gains nothing here, and the time grows with its size.
        step, _ = _grid(1e-3 * epsilon, multiplier, sampling_rate, steps, mu)
        return pld.PLDAccountant(value_discretization_interval=step)

    def enough(multiplier: float) -> bool:
        account = fresh(multiplier).compose(event(multiplier))
        return bool(account.get_epsilon(delta) <= epsilon)

    # Enough without sampling, where the factor covers the rounding of distributions.
    # Little noise makes them long, so the search goes down from there.
    left = gaussian_mu_within(epsilon, delta) ** 2 - mu**2
    if left <= 0:
        raise BudgetError(
            f"the other releases cost mu = {mu:.4g}, which leaves nothing of epsilon = {epsilon:.4g} at delta = "
            f"{delta:.4g} to the steps on samples. Raise the budget, or let the others cost less."
        )
    high = 1.5 * math.sqrt(steps / left)
    if not enough(high):
        raise BudgetError(
            f"{steps} steps on samples are too many to account for; take fewer."
        )
    low = high / 2
    while enough(low):
        high = low
        low = low / 2
        if high < _LEAST_NOISE:  # samples so rare that delta covers them
            break
    found = high
    if high >= _LEAST_NOISE:
        bracket = ExplicitBracketInterval(low, high)
        found = float(
            calibrate_dp_mechanism(
                partial(fresh, low), event, epsilon, delta, bracket, tol=1e-3 * low
            )
        )

    def stated(multiplier: float) -> float:
        # A statement accounts on its own grid, with less noise by the rounding of
        # floats.
        less = (1 - 1e-8) * multiplier
        return sampled_gaussian_epsilon(less, delta, sampling_rate, steps, mu)

    while stated(found) > epsilon:
        found *= 1 + 1e-3
    return found


def sampled_gaussian_epsilon(
    multiplier: float, delta: float, sampling_rate: float, steps: int, mu: float = 0.0
) -> float:
    """Return the epsilon of Gaussian sums over Poisson samples, rounded up; `multiplier` is noise in sensitivities.

    It covers Gaussian releases that cost `mu`, too.
    """
    validate.open_unit(delta=delta)
    account = _sampled_gaussian(multiplier, sampling_rate, steps, mu)
    with np.errstate(over="ignore"):
        epsilon = float(account.get_epsilon(delta))
    if not math.isfinite(epsilon):
        raise BudgetError(
            f"sums over samples imply no finite epsilon at delta={delta!r}."
        )
    return max(epsilon, SMALLEST_EPSILON)


@lru_cache(maxsize=16)  # a curve asks for them at each of its points
def sampled_gaussian_pairs(
    multiplier: float, sampling_rate: float, steps: int, mu: float = 0.0
) -> tuple[tuple[float, float], ...]:
    """Return pairs (epsilon, delta) that hold for the same releases (Dong, Roth, Su 2022, 2.12)."""
    deltas = _sampled_gaussian(multiplier, sampling_rate, steps, mu).get_delta(
        _EPSILONS
    )
    return tuple(
        (epsilon, min(max(float(delta), 0.0), 1.0))
        for epsilon, delta in zip(_EPSILONS, deltas, strict=True)
    )


@lru_cache(maxsize=16)
def _sampled_gaussian(
    multiplier: float, sampling_rate: float, steps: int, mu: float
) -> Any:
    """Return dp-accounting's account of such releases, of these numbers alone."""
    from dp_accounting import pld

    step, points = _grid(None, multiplier, sampling_rate, steps, mu)
    account = pld.PLDAccountant(value_discretization_interval=step)
    # dp-accounting raises the number of points, if they are few, to the number of steps.
    most = _AT_ONCE if points < 1000 else steps
    for done in range(0, steps, most):
        part = min(most, steps - done)
        account.compose(_samples(multiplier, sampling_rate, part, 0.0 if done else mu))
    return account


def _grid(
    fine: float | None,
    multiplier: float,
    sampling_rate: float,
    steps: int,
    mu: float,
) -> tuple[float, float]:
    """Return the step of a grid and the points that one sum has on it.

    The step is `fine`, or a thousandth of the mu of all releases, or a wider one where
    that would take too many points. A loss between two points counts as a mixture of both that is no more private
    (Doroshenko et al. 2022, arXiv:2207.04380, Algorithm 1), so any step is safe. Raise
    for numbers, as a forged file may have, with which dp-accounting does not compute.
    """
    if steps > _MOST_STEPS:
        raise BudgetError(
            f"the steps on samples are too many to account for; take {_MOST_STEPS} at most."
        )
    # The largest loss of one sum, and of the other releases, without sampling.
    loss, other = (0.5 * cost**2 + _TAIL * cost for cost in (1 / multiplier, mu))
    if max(loss, other) > _LARGEST_LOSS:
        cost = max(1 / multiplier, mu)
        raise BudgetError(
            f"a release of mu = {cost:.3g} is too much to account for together with samples; add noise."
        )
    loss = math.log1p(sampling_rate * math.expm1(loss))
    # About the mu that so many sums come to (Dong, Roth, Su 2022, Corollary 5.4).
    of_one = sampling_rate * math.sqrt(math.expm1(min(multiplier**-2, 700.0)))
    about = math.hypot(mu, math.sqrt(steps) * of_one)
    fine = min(1e-3 * about if fine is None else fine, 1e-3)
    widest = max(loss, 2 * _TAIL * min(about, math.hypot(mu, math.sqrt(steps) * loss)))
    step = max(_FINEST, fine, widest / _POINTS)
    return step, loss / step


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
    other = 2 * math.sqrt(rho * log_runs) - rho if log_runs >= rho else log_runs
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
            f"no search fits into epsilon={epsilon!r} at delta={delta!r}; lower mean_runs={mean_runs}."
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


def above(exact: Fraction) -> float:
    """Return the smallest float that is at least `exact`; 0 is one."""
    return 0.0 if exact == 0 else _first(exact, math.inf, lambda value: value >= exact)


def below(exact: Fraction) -> float:
    """Return the largest float that is at most `exact`, or the one before it."""
    return _first(exact, 0.0, lambda value: value <= exact)


def root_above(square: Fraction) -> float:
    """Return the smallest float whose square is at least this."""
    return _first(math.sqrt(square), math.inf, lambda root: root**2 >= square)


def root_below(square: Fraction) -> float:
    """Return the largest float whose square is at most this, or the one before it."""
    return _first(math.sqrt(square), 0.0, lambda root: root**2 <= square)


def _first(
    guess: float | Fraction, towards: float, holds: Callable[[Fraction], bool]
) -> float:
    """Return the first float from about `guess` on, in this direction, for which `holds` is true."""
    with suppress(OverflowError):  # of a fraction beyond all floats
        # The guess itself may be a step too far.
        value = math.nextafter(float(guess), math.inf if towards == 0.0 else 0.0)
        for _ in range(8):
            if 0 < value < math.inf and holds(Fraction(value)):
                return value
            value = math.nextafter(value, towards)
    raise BudgetError(
        "the budget, or a sum of costs, is outside the range of float arithmetic."
    )
