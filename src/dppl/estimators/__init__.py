"""What every classifier here is: the way a fit runs, how records are read, and the model file."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.estimators.base import Classifier, EmbeddingClassifier
    from dppl.estimators.model_file import load
    from dppl.estimators.parameters import LatticeOptions
    from dppl.estimators.public_data import PublicData
    from dppl.estimators.search import PrivateSearch

__all__ = ["Classifier", "EmbeddingClassifier", "LatticeOptions", "PrivateSearch", "PublicData", "load"]

# Tables and commands need how records are read and the names of estimators, and no scikit-learn.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Classifier": "dppl.estimators.base",
        "EmbeddingClassifier": "dppl.estimators.base",
        "LatticeOptions": "dppl.estimators.parameters",
        "PrivateSearch": "dppl.estimators.search",
        "PublicData": "dppl.estimators.public_data",
        "load": "dppl.estimators.model_file",
    },
)
