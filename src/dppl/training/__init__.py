"""The whole way from raw images and texts to a private classifier."""

from dppl.training.classifier import PrivateClassifier, encoder_of_model

__all__ = ["PrivateClassifier", "encoder_of_model"]
