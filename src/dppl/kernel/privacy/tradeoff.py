r"""Trade-off functions of the two mechanisms, and what follows from them, on the safe side of certified values.

The trade-off function of a release is the smallest false-negative rate of any test for
a record at a given false-positive rate (Dong, Roth, Su 2022, arXiv:1905.02383v3,
Definition 2.1). Two are enough here:

* **Gaussian noise**: G(a) = Phi(Phi⁻¹(1 - a) - mu), of N(0, 1) against N(mu, 1).
  Squares of mu add up under composition (Corollary 3.3 there), also where mu itself is
  chosen by what came out before (Smith, Thakurta 2022, arXiv:2210.17520; Koskela,
  Tobaben, Honkela 2023, arXiv:2209.15596).
* **One selection** by the exponential mechanism: L(a) = (1 - a)/(1 + (e^epsilon -
  1)·a), of a logistic variable against the same one moved by epsilon.
  docs/review/public.md proves it, and that it is above G for `selection_mu`.

Values come from ball arithmetic (Arb, through python-flint): a ball holds the true
value, and its end on the safe side is returned. Throughout, mu is at least 0, epsilon
above 0, delta between 0 and 1, and `level` a false-positive rate.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from flint import arb, ctx

from dppl._utils import validate
from dppl.errors import BudgetError

# Bits of a ball, which are doubled as long as it does not decide a comparison.
_PRECISION = 128
_LARGEST_PRECISION = 1 << 14
# Budgets are positive, so this stands for an epsilon of 0, where delta covers all.
SMALLEST_EPSILON = 1e-12
# Beyond these no budget makes sense, and balls would take long.
SMALLEST_MU = 1e-15
_LARGEST_MU = 1e8
_LARGEST_EPSILON = 1e17


def check_mu(mu: float, *, least: float = 0.0) -> None:
    """Raise for the mu of all releases with which nothing can be done."""
    if not least <= mu <= _LARGEST_MU:
        raise BudgetError(
            f"mu must be from {SMALLEST_MU:g} to {_LARGEST_MU:g}; got {mu:.3g}."
        )


@lru_cache(maxsize=256)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest float epsilon of mu-GDP at delta (Dong, Roth, Su 2022, Corollary 2.13)."""
    validate.open_unit(delta=delta)
    check_mu(mu)
    return _smallest(
        lambda epsilon: _covers(mu, epsilon, delta), SMALLEST_EPSILON, _LARGEST_EPSILON
    )


@lru_cache(maxsize=256)
def gaussian_mu_within(epsilon: float, delta: float) -> float:
    """Return the largest float mu such that mu-GDP implies (epsilon, delta)."""
    validate.open_unit(delta=delta)
    if not 0 < epsilon <= _LARGEST_EPSILON:
        raise BudgetError(
            f"epsilon must be at most {_LARGEST_EPSILON:g}; got {epsilon:.3g}."
        )
    beyond = _smallest(
        lambda mu: not _covers(mu, epsilon, delta), 0.0, 10 * _LARGEST_MU
    )
    return math.nextafter(beyond, 0.0)


def gaussian_best_guess(mu: float) -> float:
    """Return how often a guess of membership at even odds is right at most under mu-GDP: Phi(mu/2), rounded up."""
    return _share(lambda: _phi(_ball(mu) / 2)) if mu else 0.5


def gaussian_power(mu: float, level: float) -> float:
    """Return the largest true-positive rate at the false-positive rate `level` under mu-GDP, rounded up."""
    if mu:
        return _share(lambda: _phi(_ball(mu) + _quantile(_ball(level))))
    return level


def selection_mu(epsilon: float) -> float:
    """Return a mu such that one selection of range epsilon is mu-GDP: 2·Phi⁻¹(1/(1 + e^(-epsilon/2))), rounded up."""
    if not epsilon <= _LARGEST_MU:
        raise BudgetError(
            f"epsilon must be at most {_LARGEST_MU:g}; got {epsilon:.3g}."
        )
    # The tail, since 1 minus it would lose all digits of a large epsilon.
    return _evaluated(lambda: -2 * _quantile(1 / (1 + (_ball(epsilon) / 2).exp())))


def selection_range_within(mu: float) -> float:
    """Return an epsilon such that one selection of this range is mu-GDP, rounded down."""
    epsilon = _evaluated(
        lambda: 2 * (_phi(_ball(mu) / 2) / _phi(-_ball(mu) / 2)).log(), lower=True
    )
    # Its cost is stated by `selection_mu`, which rounds the other way.
    while selection_mu(epsilon) > mu:
        epsilon = math.nextafter(epsilon, 0.0)
    return epsilon


def selection_epsilon(epsilon: float, delta: float) -> float:
    """Return the epsilon at `delta` of one selection of range `epsilon`, rounded up.

    The supremum of 1 - L(a) - e^x·a is (1 - e^(-(epsilon - x)/2))²/(1 - e^(-epsilon));
    this is the x where it is delta.
    """

    def exact() -> arb:
        slack = -_ball(delta) * (-_ball(epsilon)).expm1()
        return _ball(epsilon) + 2 * (1 - slack.sqrt()).log()

    return max(_evaluated(exact), SMALLEST_EPSILON)


def selection_best_guess(epsilon: float) -> float:
    """Return how often a guess of membership at even odds is right at most: 1/(1 + e^(-epsilon/2)), rounded up."""
    return _share(lambda: 1 / (1 + (-_ball(epsilon) / 2).exp()))


def selection_power(epsilon: float, level: float) -> float:
    """Return the largest true-positive rate at the false-positive rate `level`, 1 - L(level), rounded up."""
    # e^epsilon·a/(1 + (e^epsilon - 1)·a), without its overflow.
    return _share(lambda: 1 / (1 + (-_ball(epsilon)).exp() * (1 / _ball(level) - 1)))


def approximate_power(epsilon: float, delta: float, level: float) -> float:
    """Return the largest true-positive rate at the false-positive rate `level` under (epsilon, delta), rounded up.

    Wasserman, Zhou (2010), arXiv:0811.2501v2, Theorem 2.4; Kairouz, Oh, Viswanath
    (2015), arXiv:1311.0776, Theorem 2.1.
    """
    # Beyond 700 the exponential overflows, and this bound is far above 1.
    few = 1.0
    if epsilon < 700:
        few = _share(lambda: _ball(epsilon).exp() * _ball(level) + _ball(delta))
    many = _share(
        lambda: 1 - (-_ball(epsilon)).exp() * (1 - _ball(delta) - _ball(level))
    )
    return min(few, many)


def approximate_best_guess(epsilon: float, delta: float) -> float:
    """Return how often a guess at even odds is right at most under (epsilon, delta), rounded up.

    (e^epsilon + delta)/(1 + e^epsilon): Kairouz, Oh, Viswanath (2015), arXiv:1311.0776,
    Theorem 2.1.
    """
    return _share(
        lambda: (
            (1 + _ball(delta) * (-_ball(epsilon)).exp()) / (1 + (-_ball(epsilon)).exp())
        )
    )


def _covers(mu: float, epsilon: float, delta: float) -> bool:
    """Whether mu-GDP certainly implies (epsilon, delta)."""
    if mu == 0:
        return True
    precision = _PRECISION
    while precision <= _LARGEST_PRECISION:
        with ctx.workprec(precision):
            # delta(epsilon) of mu-GDP (Dong, Roth, Su 2022, Corollary 2.13).
            middle = _ball(epsilon) / _ball(mu)
            half = _ball(mu) / 2
            rest = _ball(delta) - (
                _phi(half - middle) - _ball(epsilon).exp() * _phi(-half - middle)
            )
            # A ball around 0 is neither, and needs more bits.
            if rest >= 0 or rest < 0:
                return bool(rest >= 0)
        precision *= 2
    return False  # undecided: then nothing is claimed


def _smallest(holds: Callable[[float], bool], low: float, limit: float) -> float:
    """Return the smallest float from which on `holds` is true, or `low` if it is true there."""
    if holds(low):
        return low
    high = max(1.0, 2 * low)
    while not holds(high):
        low = high
        high = 2 * high
        if high > limit:
            raise BudgetError(
                "the budget is outside the range of numbers that convert."
            )
    # Ends where no float lies between the two, so the result is exact.
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _share(value: Callable[[], arb]) -> float:
    """Return the upper end of a ball around a share, which is at most 1."""
    return min(_evaluated(value), 1.0)


def _evaluated(value: Callable[[], arb], *, lower: bool = False) -> float:
    """Return the upper end of a ball as a float, or the lower one."""
    with ctx.workprec(_PRECISION):
        ball = value()
        end = float(ball.lower() if lower else ball.upper())
    if not math.isfinite(end):
        raise BudgetError("the budget is outside the range of numbers that convert.")
    if arb(end) <= ball if lower else arb(end) >= ball:
        return end
    return math.nextafter(end, -math.inf if lower else math.inf)


def _ball(value: float) -> arb:
    """Return an exact ball; NumPy's narrow floats are as exact, but flint does not know them."""
    return arb(float(value))


def _phi(x: arb) -> arb:
    """Return the normal distribution function."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _quantile(p: arb) -> arb:
    """Return its inverse."""
    return -arb(2).sqrt() * (2 * p).erfcinv()
