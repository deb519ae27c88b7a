"""What people would use instead of prototypes, one a file."""

from dppl.baselines.adamix import AdaMix
from dppl.baselines.ceilings import NonPrivateLDA, NonPrivateLogisticRegression, NonPrivateNearestMean
from dppl.baselines.covariance import FeatureCovariance
from dppl.baselines.global_adapt import GlobalAdapt
from dppl.baselines.least_squares import LeastSquares
from dppl.baselines.newton import Newton
from dppl.baselines.probe import LinearProbe

__all__ = [
    "AdaMix",
    "FeatureCovariance",
    "GlobalAdapt",
    "LeastSquares",
    "LinearProbe",
    "Newton",
    "NonPrivateLDA",
    "NonPrivateLogisticRegression",
    "NonPrivateNearestMean",
]
