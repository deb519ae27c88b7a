"""For research: comparison methods, ceilings without privacy, made-up data, and the experiments that use them.

Nothing outside this package imports it.
"""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.lab.adamix import AdaMix
    from dppl.lab.ceilings import NonPrivateLDA, NonPrivateLogisticRegression, NonPrivateNearestMean
    from dppl.lab.film import FilmEnsemble
    from dppl.lab.global_adapt import GlobalAdapt
    from dppl.lab.heads import FullDataContinual, NaiveContinual
    from dppl.lab.longtail import long_tailed, long_tailed_sizes
    from dppl.lab.moments import FeatureCovariance, LeastSquares, Newton
    from dppl.lab.projected import ProjectedPrototypes

__all__ = [
    "AdaMix",
    "FeatureCovariance",
    "FilmEnsemble",
    "FullDataContinual",
    "GlobalAdapt",
    "LeastSquares",
    "NaiveContinual",
    "Newton",
    "NonPrivateLDA",
    "NonPrivateLogisticRegression",
    "NonPrivateNearestMean",
    "ProjectedPrototypes",
    "long_tailed",
    "long_tailed_sizes",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AdaMix": "dppl.lab.adamix",
        "FeatureCovariance": "dppl.lab.moments",
        "FilmEnsemble": "dppl.lab.film",
        "FullDataContinual": "dppl.lab.heads",
        "GlobalAdapt": "dppl.lab.global_adapt",
        "LeastSquares": "dppl.lab.moments",
        "NaiveContinual": "dppl.lab.heads",
        "Newton": "dppl.lab.moments",
        "NonPrivateLDA": "dppl.lab.ceilings",
        "NonPrivateLogisticRegression": "dppl.lab.ceilings",
        "NonPrivateNearestMean": "dppl.lab.ceilings",
        "ProjectedPrototypes": "dppl.lab.projected",
        "long_tailed": "dppl.lab.longtail",
        "long_tailed_sizes": "dppl.lab.longtail",
    },
)
