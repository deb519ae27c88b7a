"""What every classifier here is: the way a fit runs, how records are read, and the model file."""

from dppl.estimators.base import EmbeddingClassifier
from dppl.estimators.model_file import load
from dppl.estimators.search import PrivateSearch
from dppl.estimators.splitters import PublicRows

__all__ = ["EmbeddingClassifier", "PrivateSearch", "PublicRows", "load"]
