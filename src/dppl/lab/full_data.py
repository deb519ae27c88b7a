"""One head that is fitted anew on all records so far, in every task, and paid for each time."""

from __future__ import annotations

from dppl.continual._stream import Relation
from dppl.estimators.parameters import parameters
from dppl.lab.naive import ContinualProbe

_RELATION = Relation(
    unit="one record",
    neighbours=(
        "two data sets are neighbours when one record is added to or removed from the records of one task, which all "
        "later tasks are given again"
    ),
    assumption="what a task is given holds a record at most once",
    not_covered=(
        "several records of one person, in one task or in different ones (the guarantee weakens with their number)"
    ),
)


@parameters
class FullDataContinual(ContinualProbe):
    r"""A new linear probe of all records so far in every task; what that costs adds up.

    Each `partial_fit` takes the records of its task *and of all earlier ones*, and starts from zero. After T tasks the
    records of the first have been released T times. A reference for methods that may keep no record.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What each model may spend. All T together cost √T times its mu, as `guarantee_` states; where the total is
        given, `dppl.kernel.privacy.composition.split` gives that of each.

    Notes
    -----
    The model keeps no record: whoever calls it does, and hands all of them in each time. So a fitted model is as public
    as its file, and one that was loaded goes on. `task_classes` names the classes of all records that are handed in,
    and there is no `partition` of a ledger.

    **Privacy.** Unit: one record. Relation: add one record to one task, or remove it, and with it from what all later
    tasks are given. Released: for every task what `LinearProbe` releases, at the full budget; all models may be
    published. Sensitivity: that of `LinearProbe` in each task, so after T tasks mu is √T times that of one.
    Public inputs: `classes`, `task_classes`, the boundaries and the order of tasks, all parameters, `public`,
    `n_features`. Not covered: several records of one person, in one task or in different ones; boundaries set by
    private counts; leaving out a task because it is empty; choice of parameters by private data, timing, a changed
    label (two steps).

    References
    ----------
    .. [1] Tobaben, Klasson, Li, Solin, Honkela (2024), Differentially private continual learning using pre-trained
       models, arXiv:2411.04680v2, Algorithm A2.
    .. [2] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.lab import FullDataContinual
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = FullDataContinual(ApproxDP(1, 1e-6), classes=sample.classes, steps=10)
    >>> for so_far in (700, 1400):
    ...     model = model.partial_fit(sample.X[:so_far], sample.y[:so_far])
    >>> round(model.guarantee_.mu, 3), bool(model.score(sample.X_test, sample.y_test) > 0.5)
    (0.335, True)
    """

    tasks = "overlapping"
    takes_earlier_records = True

    @property
    def _relation(self) -> Relation:
        return _RELATION
