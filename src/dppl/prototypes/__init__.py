"""Estimators that release prototypes, one a file."""

from dppl.prototypes.choice import METHODS, method_for
from dppl.prototypes.mean import MeanPrototypes
from dppl.prototypes.public import PublicPrototypes
from dppl.prototypes.softmax import SoftmaxPrototypes

__all__ = [
    "METHODS",
    "MeanPrototypes",
    "PublicPrototypes",
    "SoftmaxPrototypes",
    "method_for",
]
