"""Budgets, conversions and guarantees. Knows no arrays of records."""

from typing import TYPE_CHECKING

from dppl.privacy.budgets import ZCDP, ApproxDP, Budget, GaussianDP, PureDP
from dppl.privacy.composition import Composed, Cost, compose
from dppl.privacy.guarantee import Guarantee, Release

if TYPE_CHECKING:
    from dppl.privacy.ledger import Ledger

__all__ = [
    "ZCDP",
    "ApproxDP",
    "Budget",
    "Composed",
    "Cost",
    "GaussianDP",
    "Guarantee",
    "Ledger",
    "PureDP",
    "Release",
    "compose",
]


def __getattr__(name: str) -> object:
    if name != "Ledger":
        raise AttributeError(f"module 'dppl.privacy' has no attribute {name!r}")
    from dppl.privacy.ledger import Ledger  # here, because a ledger needs SQLAlchemy, and loading a model does not

    globals()[name] = Ledger
    return Ledger


def __dir__() -> list[str]:
    return sorted({*globals(), "Ledger"})
