"""Differentially private classifiers on frozen, publicly pre-trained encoders."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy
from dppl._version import __version__

if TYPE_CHECKING:  # what `__getattr__` does, for type checkers
    from dppl import audit as audit
    from dppl import continual as continual
    from dppl import encoders as encoders
    from dppl import errors as errors
    from dppl import estimators as estimators
    from dppl import export as export
    from dppl import finetune as finetune
    from dppl import io as io
    from dppl import kernel as kernel
    from dppl import lab as lab
    from dppl import planning as planning
    from dppl import prototypes as prototypes
    from dppl import statement as statement
    from dppl import testing as testing
    from dppl import training as training
    from dppl.estimators import Classifier, LatticeOptions, PrivateSearch, PublicData, load
    from dppl.kernel.privacy import ZCDP, ApproxDP, GaussianDP, Guarantee, Ledger, PureDP
    from dppl.planning import plan_budget
    from dppl.prototypes import MeanPrototypes, PublicPrototypes, SoftmaxPrototypes
    from dppl.training import PrivateClassifier

__all__ = [
    "ZCDP",
    "ApproxDP",
    "Classifier",
    "GaussianDP",
    "Guarantee",
    "LatticeOptions",
    "Ledger",
    "MeanPrototypes",
    "PrivateClassifier",
    "PrivateSearch",
    "PublicData",
    "PublicPrototypes",
    "PureDP",
    "SoftmaxPrototypes",
    "__version__",
    "load",
    "plan_budget",
]

# Imported when they are first asked for: scikit-learn alone takes ten times as long as NumPy.
_PACKAGES = (
    "audit",
    "continual",
    "encoders",
    "errors",
    "estimators",
    "export",
    "finetune",
    "io",
    "kernel",
    "lab",
    "planning",
    "prototypes",
    "statement",
    "testing",
    "training",
)
_HOMES = {
    **dict.fromkeys(["Classifier", "LatticeOptions", "PrivateSearch", "PublicData", "load"], "dppl.estimators"),
    **dict.fromkeys(["ZCDP", "ApproxDP", "GaussianDP", "Guarantee", "Ledger", "PureDP"], "dppl.kernel.privacy"),
    **dict.fromkeys(["MeanPrototypes", "PublicPrototypes", "SoftmaxPrototypes"], "dppl.prototypes"),
    "PrivateClassifier": "dppl.training",
    "plan_budget": "dppl.planning",
}

__getattr__, __dir__ = lazy(__name__, _HOMES, _PACKAGES)
