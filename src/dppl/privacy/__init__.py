"""Budgets, conversions and guarantees. Knows no arrays of records."""

from dppl.privacy.budgets import ZCDP, ApproxDP, Budget, PureDP
from dppl.privacy.guarantee import Guarantee, Release

__all__ = ["ZCDP", "ApproxDP", "Budget", "Guarantee", "PureDP", "Release"]
