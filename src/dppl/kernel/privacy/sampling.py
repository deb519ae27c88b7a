"""What Gaussian sums over Poisson samples cost, by the privacy loss distributions of dp-accounting."""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dppl._utils import validate
from dppl.errors import BudgetError
from dppl.kernel.privacy.rounding import below
from dppl.kernel.privacy.tradeoff import SMALLEST_EPSILON, gaussian_mu_within

# At which the trade-off function of sums over samples is known.
_EPSILONS = [0.0, *np.geomspace(1e-3, 100.0, 101).tolist()]
# Less noise is never calibrated: privacy loss distributions grow with its inverse
# square.
_LEAST_NOISE = 0.1
# Steps on samples that are accounted for: privacy loss distributions grow with them.
_MOST_STEPS = 10**5
# Points of a grid of privacy losses, on which time and memory depend: for one sum, and
# for the standard deviations of all sums within which dp-accounting looks.
_POINTS = 2**14
_TAIL = 9.8  # it has a probability of e^-50 to be further out
_FINEST = 1e-7  # closer points would show the rounding of floats
_LARGEST_LOSS = 500.0  # its exponential, and what is multiplied with it, is a float


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
    between them, costs `mu` in Gaussian DP. It is within a thousandth of the least for
    which `sampled_gaussian_epsilon` is at most `epsilon`.
    """
    left = gaussian_mu_within(epsilon, delta) ** 2 - mu**2
    if left <= 0:
        raise BudgetError(
            f"the other releases cost mu = {mu:.4g}, which leaves nothing of epsilon = {epsilon:.4g} at delta = "
            f"{delta:.4g} to the steps on samples. Raise the budget, or let the others cost less."
        )

    def enough(multiplier: float) -> bool:
        # A statement has less noise by the rounding of floats.
        less = (1 - 1e-8) * multiplier
        account = _sampled_gaussian(less, sampling_rate, steps, mu)
        with np.errstate(over="ignore"):
            return bool(account.get_epsilon(delta) <= epsilon)

    # Enough without sampling, where the factor covers the rounding of distributions.
    high = max(1.5 * math.sqrt(steps / left), _LEAST_NOISE)
    if not enough(high):
        raise BudgetError(
            f"{steps} steps on samples are too many to account for; take fewer."
        )
    # Halving on the scale of logarithms looks at some fifteen numbers at any budget.
    low = _LEAST_NOISE
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


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

    step, _ = _grid(multiplier, sampling_rate, steps, mu)
    account = pld.PLDAccountant(value_discretization_interval=step)
    return account.compose(_samples(multiplier, sampling_rate, steps, mu))


def _grid(
    multiplier: float, sampling_rate: float, steps: int, mu: float
) -> tuple[float, float]:
    """Return the step of a grid and the points that one sum has on it.

    The step is a thousandth of the mu of all releases, or a wider one where that would
    take too many points. A loss between two points counts as a mixture of both that is
    no more private (Doroshenko et al. 2022, arXiv:2207.04380, Algorithm 1), so any step
    is safe. Raise for numbers, as a forged file may have, with which dp-accounting does not compute.
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
    fine = min(1e-3 * about, 1e-3)
    widest = max(loss, 2 * _TAIL * min(about, math.hypot(mu, math.sqrt(steps) * loss)))
    step = max(_FINEST, fine, widest / _POINTS)
    return step, loss / step
