"""Estimators that release prototypes, one a file."""

from dppl.prototypes.mean import MeanPrototypes
from dppl.prototypes.projected import ProjectedPrototypes
from dppl.prototypes.public import PublicPrototypes
from dppl.prototypes.softmax import SoftmaxPrototypes

__all__ = [
    "MeanPrototypes",
    "ProjectedPrototypes",
    "PublicPrototypes",
    "SoftmaxPrototypes",
]
