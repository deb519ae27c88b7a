"""What the linear baselines share: released weights, and scores from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.estimators import EmbeddingClassifier
from dppl.estimators.model_file import check_tensor


class LinearClassifier(EmbeddingClassifier):
    """Score a row φ(x) by ``coef_ @ φ(x) + intercept_``; subclasses say how both are released."""

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    _RELEASED = "coef_"

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        n_classes = len(self.classes_)
        self.coef_ = check_tensor(tensors, "coef", (n_classes, self.lattice_.dim), np.float64)
        self.intercept_ = check_tensor(tensors, "intercept", (n_classes,), np.float64)

    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(features.astype(np.float64) @ self.coef_.T + self.intercept_)
