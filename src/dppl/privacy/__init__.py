"""Budgets, conversions and guarantees. Knows no arrays of records."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy
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

# A ledger needs SQLAlchemy, and loading a model does not.
__getattr__, __dir__ = lazy(__name__, {"Ledger": "dppl.privacy.ledger"})
