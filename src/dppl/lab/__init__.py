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

_HOMES = {
    "adamix": ["AdaMix"],
    "ceilings": ["NonPrivateLDA", "NonPrivateLogisticRegression", "NonPrivateNearestMean"],
    "film": ["FilmEnsemble"],
    "global_adapt": ["GlobalAdapt"],
    "heads": ["FullDataContinual", "NaiveContinual"],
    "longtail": ["long_tailed", "long_tailed_sizes"],
    "moments": ["FeatureCovariance", "LeastSquares", "Newton"],
    "projected": ["ProjectedPrototypes"],
}
__getattr__, __dir__ = lazy(__name__, {name: f"dppl.lab.{home}" for home, names in _HOMES.items() for name in names})
