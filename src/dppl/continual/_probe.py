"""What the classifiers of streams share that have one linear probe for all tasks."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl.baselines import LinearProbe
from dppl.continual._stream import NEVER, ContinualClassifier
from dppl.estimators.model_file import check_tensor
from dppl.estimators.plan import Setting
from dppl.kernel import Measure
from dppl.kernel.privacy import Budget
from dppl.kernel.reading import UnknownLabels


class ContinualProbe(ContinualClassifier, LinearProbe):
    """A linear probe that is fitted in every task; subclasses say on what and from where."""

    allowed_: NDArray[np.bool_]
    sampling_rate, batch_size = 1.0, None

    def __init__(
        self,
        budget: Budget | None = None,
        classes: ArrayLike | None = None,
        *,
        steps: int = 40,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        clip: float = 1.0,
        l2: float = 0.0,
        intercept_scaling: float = 0.0,
        pool: int = 1,
        center: ArrayLike | Literal["public"] | None = None,
        rotation: int | Literal["auto"] | None = None,
        unknown_labels: UnknownLabels = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.steps = steps
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.clip = clip
        self.l2 = l2
        self.intercept_scaling = intercept_scaling
        self.pool = pool
        self.center = center
        self.rotation = rotation
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Fit the probe on the task, and add its classes."""
        super().learn(measure, setting)
        earlier, allowed = self._now.earlier, np.isin(np.arange(setting.n_classes), self._now.allowed)
        self.allowed_ = allowed if earlier is None else allowed | earlier.allowed_

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {**super()._tensors(), **LinearProbe._tensors(self), "allowed": self.allowed_}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        LinearProbe._restore(self, tensors, parameters)
        self.allowed_ = check_tensor(tensors, "allowed", (len(self.classes_),), np.bool_)

    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.where(self.allowed_, super()._class_scores(features), NEVER)
