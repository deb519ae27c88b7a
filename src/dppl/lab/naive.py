"""One head that goes on learning from task to task, with nothing against forgetting."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.continual._stream import NEVER, ContinualClassifier
from dppl.estimators.descent import Descent
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


@parameters
class NaiveContinual(ContinualProbe):
    r"""A linear probe that goes on from the weights of the earlier task, and forgets what that had taught it.

    Each `partial_fit` is one task. A baseline for methods that remember.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add one record to one task, or remove it from one. Released: for every task
    what `LinearProbe` releases, at the full budget; all models in between may be published. Sensitivity: that of
    `LinearProbe` for the task that holds the record, and nothing for all others: they depend on it through what was
    released alone. Public inputs: `classes`, `task_classes`, the boundaries and the order of tasks, all parameters,
    `public`, `n_features`. Not covered: records or persons in several tasks, whose costs add up; boundaries set by
    private counts; leaving out a task because it is empty; choice of parameters by private data, timing, a changed
    label (two steps).

    References
    ----------
    .. [1] Tobaben, Klasson, Li, Solin, Honkela (2024), Differentially private continual learning using pre-trained
       models, arXiv:2411.04680v2, Algorithm A3.

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.lab import NaiveContinual
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = NaiveContinual(ApproxDP(1, 1e-6), classes=sample.classes, steps=10)
    >>> for task in (slice(0, 700), slice(700, None)):
    ...     model = model.partial_fit(sample.X[task], sample.y[task])
    >>> model.n_tasks_, bool(model.score(sample.X_test, sample.y_test) > 0.5)
    (2, True)
    """

    def _descent(self, setting: Setting) -> Descent:
        descent = super()._descent(setting)
        if setting.task is not None and setting.task.earlier is not None:
            descent.coef, descent.intercept = setting.task.earlier.coef_, setting.task.earlier.intercept_
        return descent
