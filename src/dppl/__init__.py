"""Differentially private classifiers on frozen, publicly pre-trained encoders."""

from dppl._version import __version__
from dppl.estimators import PrivateSearch, load
from dppl.privacy import ZCDP, ApproxDP, GaussianDP, Guarantee, Ledger, PureDP
from dppl.prototypes import DiscriminantPrototypes, MeanPrototypes, PublicPrototypes, SoftmaxPrototypes
from dppl.training import PrivateClassifier

__all__ = [
    "ZCDP",
    "ApproxDP",
    "DiscriminantPrototypes",
    "GaussianDP",
    "Guarantee",
    "Ledger",
    "MeanPrototypes",
    "PrivateClassifier",
    "PrivateSearch",
    "PublicPrototypes",
    "PureDP",
    "SoftmaxPrototypes",
    "__version__",
    "load",
]
