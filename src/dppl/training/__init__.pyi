from .classifier import PrivateClassifier as PrivateClassifier
