"""Estimators that release prototypes, one a file."""

from dppl.prototypes.choice import automatic
from dppl.prototypes.discriminant import DiscriminantPrototypes
from dppl.prototypes.mean import MeanPrototypes
from dppl.prototypes.public import PublicPrototypes

__all__ = ["DiscriminantPrototypes", "MeanPrototypes", "PublicPrototypes", "automatic"]
