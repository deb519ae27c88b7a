from .base import Classifier as Classifier
from .base import EmbeddingClassifier as EmbeddingClassifier
from .model_file import load as load
from .parameters import LatticeOptions as LatticeOptions
from .public_data import PublicData as PublicData
from .search import PrivateSearch as PrivateSearch
