"""What the classifiers of streams share that have one linear probe for all tasks."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.continual._stream import NEVER, ContinualClassifier
from dppl.estimators.model_file import check_tensor
from dppl.estimators.parameters import parameters
from dppl.estimators.plan import Setting
from dppl.kernel import Measure
from dppl.kernel.privacy.guarantee import Adjacency
from dppl.prototypes import LinearProbe


@parameters
class ContinualProbe(ContinualClassifier, LinearProbe):
    """A linear probe that is fitted in every task; subclasses say on what and from where.

    Attributes
    ----------
    allowed_ : ndarray of shape (n_classes,), bool
        Which classes some task could hold: public. No other is predicted.
    """

    allowed_: NDArray[np.bool_] = field(init=False)
    adjacency: Adjacency = field(init=False)
    sampling_rate: float = field(init=False)
    batch_size: float | None = field(init=False)

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Fit the probe on the task, and add its classes."""
        super().learn(measure, setting)
        assert setting.task is not None
        earlier, allowed = setting.task.earlier, np.isin(np.arange(setting.n_classes), setting.task.allowed)
        self.allowed_ = allowed if earlier is None else allowed | earlier.allowed_

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {**super()._tensors(), **LinearProbe._tensors(self), "allowed": self.allowed_}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        LinearProbe._restore(self, tensors, parameters)
        self.allowed_ = check_tensor(tensors, "allowed", (len(self.classes_),), np.bool_)

    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.where(self.allowed_, super()._class_scores(features), NEVER)
