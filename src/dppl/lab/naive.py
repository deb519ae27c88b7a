"""One head that goes on learning from task to task, with nothing against forgetting."""

from __future__ import annotations

from dppl.continual._probe import ContinualProbe
from dppl.estimators.descent import Descent
from dppl.estimators.parameters import parameters
from dppl.estimators.plan import Setting


@parameters
class NaiveContinual(ContinualProbe):
    r"""A linear probe that goes on from the weights of the earlier task, and forgets what that had taught it.

    Each `partial_fit` is one task. A baseline for methods that remember.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What each task may spend. Tasks are disjoint, so this is also what a record pays in all.
    classes : array-like of shape (n_classes,), default=None
        Public list of all classes of all tasks.

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
