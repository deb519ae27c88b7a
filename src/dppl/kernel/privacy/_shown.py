"""How an account is written for people: what was spent is rounded up, and what is left down."""

from __future__ import annotations

from collections.abc import Mapping

from dppl.kernel.privacy._account import worth_showing
from dppl.kernel.privacy.budgets import USUAL_DELTA, GaussianDP, as_typed, rounded_up

__all__ = ["figures", "in_words", "rounded_down"]


def in_words(budget: Mapping[str, float]) -> str:
    """Write a budget, or what is spent of one; a mu with the epsilon that it implies."""
    text = ", ".join(figures(budget))
    if not budget.get("mu"):  # another notion, or nothing spent
        return text
    epsilon = GaussianDP(**budget).to_approx(USUAL_DELTA).epsilon
    return f"{text} (epsilon {rounded_up(epsilon, 4)} at delta {rounded_up(USUAL_DELTA)})"


def figures(cost: Mapping[str, float]) -> list[str]:
    """Write a cost, rounded up, a parameter each."""
    return [f"{name} {rounded_up(value)}" for name, value in cost.items()]


def rounded_down(left: Mapping[str, float], budget: Mapping[str, float]) -> str:
    """Write what is left of a budget; what is lost in rounding only counts as nothing."""
    return ", ".join(f"{name} {_typed(worth_showing(value, budget[name]))}" for name, value in left.items())


def _typed(left: float) -> str:
    """Write what is left with six digits, rounded down unless the nearest number, when it is typed, still fits."""
    nearest = f"{left:.6g}"
    return nearest if left > 0 and as_typed(float(nearest)) <= left else rounded_up(-left).removeprefix("-")
