"""The whole way from raw images and texts to a private classifier."""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.training.classifier import PrivateClassifier

__all__ = ["PrivateClassifier"]

__getattr__, __dir__ = lazy(__name__, {"PrivateClassifier": "dppl.training.classifier"})
