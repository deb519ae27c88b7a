"""Budgets, conversions and guarantees. Knows no arrays of records."""

from dppl.privacy.budgets import ZCDP, ApproxDP, Budget, GaussianDP, PureDP
from dppl.privacy.composition import Composed, Cost, compose
from dppl.privacy.guarantee import Guarantee, Release
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
