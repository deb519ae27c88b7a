"""Costs of both mechanisms, and fractions and roots as floats: rounded to the safe side, decided in rationals."""

import math
from contextlib import suppress
from fractions import Fraction
from operator import ge, le

from dppl.errors import BudgetError
from dppl.kernel.privacy.tradeoff import selection_mu


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


def above(exact: Fraction) -> float:
    """Return the smallest float that is at least `exact`; 0 is one."""
    if exact == 0:
        return 0.0
    return _first(exact, 1, up=True)


def below(exact: Fraction) -> float:
    """Return the largest float that is at most `exact`, or the one before it."""
    return _first(exact, 1, up=False)


def root_above(square: Fraction) -> float:
    """Return the smallest float whose square is at least this."""
    return _first(square, 2, up=True)


def root_below(square: Fraction) -> float:
    """Return the largest float whose square is at most this, or the one before it."""
    return _first(square, 2, up=False)


def _first(exact: Fraction, power: int, *, up: bool) -> float:
    """Return the first float from about the root on, up or down, whose power is at least or at most `exact`."""
    back, towards = (0.0, math.inf) if up else (math.inf, 0.0)
    holds = ge if up else le
    with suppress(OverflowError):  # of a fraction beyond all floats
        # The float root may be a step too far.
        value = math.nextafter(exact ** (1 / power), back)
        for _ in range(8):
            if 0 < value < math.inf and holds(Fraction(value) ** power, exact):
                return value
            value = math.nextafter(value, towards)
    raise BudgetError(
        "the budget, or a sum of costs, is outside the range of float arithmetic."
    )
