"""What people would use instead of prototypes, one a file."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AdaMix": "dppl.baselines.adamix",
        "NonPrivateLDA": "dppl.baselines.ceilings",
        "NonPrivateLogisticRegression": "dppl.baselines.ceilings",
        "NonPrivateNearestMean": "dppl.baselines.ceilings",
        "FeatureCovariance": "dppl.baselines.covariance",
        "GlobalAdapt": "dppl.baselines.global_adapt",
        "LeastSquares": "dppl.baselines.least_squares",
        "Newton": "dppl.baselines.newton",
        "LinearProbe": "dppl.baselines.probe",
    },
)
