"""Readers of models that earlier versions of dppl fitted by methods that are gone. They predict, and do not fit."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl.errors import ParameterError
from dppl.estimators import EmbeddingClassifier
from dppl.estimators.model_file import Misfit, check_tensor
from dppl.estimators.reading import UnknownLabels
from dppl.privacy import Budget

Float = NDArray[np.float64]

_LARGEST_TEMPERATURE = 8.0


class DiscriminantPrototypes(EmbeddingClassifier):
    """A linear model fitted by the default method of dppl 0.1, which `SoftmaxPrototypes` replaced.

    `dppl.load` returns it for such a model file. It predicts as it did, and its guarantee is what the file states.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
    classes : array-like of shape (n_classes,), default=None
    unknown_labels : {"error", "ignore"}, default="error"
    random_state : int, default=None

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), float64
        Weights for centred unit rows.
    prototypes_ : ndarray of shape (n_classes, n_features), float32
        Representatives of the classes among unit rows, for reports.
    temperature_ : float
        What `predict_proba` multiplies scores by.
    """

    coef_: Float
    prototypes_: NDArray[np.float32]
    temperature_: float
    _RELEASED = "coef_"
    adjacency = "add-remove"
    pool, center, rotation = 1, None, None

    def __init__(
        self,
        budget: Budget | None = None,
        classes: ArrayLike | None = None,
        *,
        unknown_labels: UnknownLabels = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    def _sharpness(self) -> float:
        return self.temperature_

    def _mechanism(self, lattice: Any, public: Any) -> NoReturn:
        raise ParameterError("DiscriminantPrototypes reads models of dppl 0.1 only; fit SoftmaxPrototypes instead.")

    def _releases(self, mechanism: Any, n_classes: int, dim: int) -> NoReturn:
        raise NotImplementedError  # there is no mechanism

    def _release(self, plan: Any, rows: Any, codes: Any, source: Any) -> NoReturn:
        raise NotImplementedError

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {"coef": self.coef_, "prototypes": self.prototypes_, "temperature": np.array([self.temperature_])}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        shape = len(self.classes_), self.n_features_in_
        self.coef_ = check_tensor(tensors, "coef", shape, np.float64)
        self.prototypes_ = check_tensor(tensors, "prototypes", shape, np.float32)
        self.temperature_ = float(check_tensor(tensors, "temperature", (1,), np.float64)[0])
        if not 1 <= self.temperature_ <= _LARGEST_TEMPERATURE:
            raise Misfit("its temperature is not one of its method")

    def _class_scores(self, features: NDArray[np.float32]) -> Float:
        return np.asarray(features @ self.coef_.T, np.float64)
