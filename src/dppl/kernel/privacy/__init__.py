"""Budgets, conversions and guarantees. Knows no arrays of records."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy
from dppl.kernel.privacy.budgets import ZCDP, ApproxDP, Budget, GaussianDP, PureDP
from dppl.kernel.privacy.composition import Composed, Cost, compose
from dppl.kernel.privacy.guarantee import Guarantee, Release

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

__all__ = ["ZCDP", "ApproxDP", "Budget", "Composed", "Cost", "GaussianDP", "Guarantee"]
__all__ += ["Ledger", "PureDP", "Release", "compose"]

# A ledger needs SQLAlchemy, and loading a model does not.
__getattr__, __dir__ = lazy(__name__, {"Ledger": "dppl.kernel.privacy.ledger"})
