"""Differentially private classifiers on frozen, publicly pre-trained encoders."""

from dppl._version import __version__
from dppl.estimators import PrivateSearch, PublicRows, load
from dppl.planning import plan_budget
from dppl.privacy import ZCDP, ApproxDP, GaussianDP, Guarantee, Ledger, PureDP
from dppl.prototypes import MeanPrototypes, PublicPrototypes, SoftmaxPrototypes
from dppl.training import PrivateClassifier

__all__ = [
    "ZCDP",
    "ApproxDP",
    "GaussianDP",
    "Guarantee",
    "Ledger",
    "MeanPrototypes",
    "PrivateClassifier",
    "PrivateSearch",
    "PublicPrototypes",
    "PublicRows",
    "PureDP",
    "SoftmaxPrototypes",
    "__version__",
    "load",
    "plan_budget",
]
