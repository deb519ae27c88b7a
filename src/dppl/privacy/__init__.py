"""Budgets, conversions and guarantees. Knows no arrays of records."""

from dppl.privacy.budgets import ZCDP, ApproxDP, Budget, PureDP
from dppl.privacy.composition import Composed, Cost, compose
from dppl.privacy.guarantee import Guarantee, Release

__all__ = ["ZCDP", "ApproxDP", "Budget", "Composed", "Cost", "Guarantee", "PureDP", "Release", "compose"]
