from .classifier import PrivateClassifier as PrivateClassifier
from .embedding import Embedded as Embedded
from .embedding import embed as embed
