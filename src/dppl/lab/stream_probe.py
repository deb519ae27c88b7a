"""One linear probe for a whole stream of tasks, as Tobaben et al. (arXiv:2411.04680v2) compare it: references."""

from dataclasses import field

import numpy as np

from dppl._utils.types import Flags, Float, Float32
from dppl.continual._stream import NEVER, ContinualClassifier, Relation
from dppl.kernel import Measure
from dppl.kernel.privacy.terms import Assumption, Caveat, Neighbours, Term, Unit
from dppl.methods import LinearProbe
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import parameters

_RELATION = Relation(
    unit=Unit.RECORD,
    neighbours=Term(Neighbours.RECORD_OF_LATER_TASKS),
    assumption=Term(Assumption.ONCE_IN_WHAT_IS_GIVEN),
    not_covered=Term(Caveat.SEVERAL_RECORDS_IN_TASKS),
)


@parameters
class ContinualProbe(ContinualClassifier, LinearProbe):
    """A linear probe that is fitted in every task; subclasses say on what and from where.

    Attributes
    ----------
    allowed_ : ndarray of shape (n_classes,), bool
        Which classes some task could hold: public. No other is predicted.
    """

    allowed_: Flags = field(init=False)
    sampling_rate: float = field(init=False)
    batch_size: float | None = field(init=False)

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Fit the probe on the task, and add its classes."""
        super().learn(measure, setting)
        earlier = setting.task.earlier
        allowed = np.isin(np.arange(setting.n_classes), setting.task.allowed)
        if earlier is None:
            self.allowed_ = allowed
        else:
            self.allowed_ = allowed | earlier.allowed_

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        return {**super()._shapes(), "allowed": (np.bool_, (len(self.classes_),))}

    def _class_scores(self, features: Float32) -> Float:
        return np.where(self.allowed_, super()._class_scores(features), NEVER)


@parameters
class NaiveContinual(ContinualProbe):
    r"""A linear probe that goes on from the weights of the earlier task, and forgets what that had taught it.

    Each `partial_fit` is one task. A baseline for methods that remember (Algorithm A3).

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add one record to one task, or remove it
    from one. Released: for every task what `LinearProbe` releases, at the full budget;
    all models in between may be published. Sensitivity: as for `LinearProbe` for the
    task that holds the record, and nothing for all others: they depend on it through
    what was released alone. Public inputs: `classes`, `task_classes`, the boundaries
    and the order of tasks, all parameters, `public`, `n_features`. Not covered: records
    or persons in several tasks, whose costs add up; boundaries set by private counts;
    skipping a task because it is empty; choice of parameters by private data, timing, a
    changed label (two steps).
    """

    def _start(self, setting: Setting) -> Float:
        earlier = setting.task.earlier
        if earlier is None:
            return super()._start(setting)
        return np.asarray(earlier.coef_)


@parameters
class FullDataContinual(ContinualProbe):
    r"""A new linear probe of all records so far in every task; what that costs adds up.

    Each `partial_fit` takes the records of its task *and of all earlier ones*, and
    starts from zero. After T tasks the records of the first have been released T times.
    A reference for methods that may keep no record (Algorithm A2).

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What each model may spend. All T together cost √T times its mu, as `guarantee_`
        states; where the total is given, `dppl.kernel.privacy.composition.split` gives
        the budget of each.

    Notes
    -----
    The model keeps no record: whoever calls it does, and hands all of them in each time. So a fitted model is as public
    as its file, and one that was loaded goes on. `task_classes` names the classes of all records that are handed in,
    and there is no `partition` of a ledger.

    **Privacy.** Unit: one record. Relation: add one record to one task, or remove it,
    and with it from what all later tasks are given. Released: for every task what
    `LinearProbe` releases, at the full budget; all models may be published.
    Sensitivity: as for `LinearProbe` in each task, so after T tasks mu is √T times the
    mu of one. Public inputs: `classes`, `task_classes`, the boundaries and the order of
    tasks, all parameters, `public`, `n_features`. Not covered: several records of one
    person, in one task or in different ones; boundaries set by private counts; skipping
    a task because it is empty; choice of parameters by private data, timing, a changed
    label (two steps).
    """

    tasks = "overlapping"
    takes_earlier_records = True

    @property
    def _relation(self) -> Relation:
        return _RELATION
