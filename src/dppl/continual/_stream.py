"""What all classifiers of streams share: a task at a time, and one guarantee for all of them.

Where tasks are disjoint a record is in one of them, so all of them cost it what one
does. Where they may overlap their costs add up. A classifier offers both by taking the
parameter `tasks`.
"""

from __future__ import annotations

import copy
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dppl._utils.types import Array
from dppl.errors import ParameterError, warn_once
from dppl.kernel import reading
from dppl.kernel.privacy import Budget, Cost, Guarantee
from dppl.kernel.privacy.budgets import checked_budget, refuse_slip
from dppl.kernel.privacy.composition import total_budget
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.privacy.terms import (
    Assumption,
    Caveat,
    Neighbours,
    PublicInput,
    Term,
    Unit,
)
from dppl.kernel.reading import Codes
from dppl.methods import EmbeddingClassifier
from dppl.methods.fit_plan import (
    Plan,
    Setting,
    Task,
    of_persons,
)
from dppl.methods.model_file import check_tensor
from dppl.methods.parameters import same_value

if TYPE_CHECKING:
    from dppl.kernel.privacy.ledger import Ledger

Tasks: TypeAlias = Literal["disjoint", "overlapping"]
# The score of classes that no task could hold: below every other, and finite.
NEVER = -1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What the statement of a stream says of who is protected."""

    unit: Unit
    neighbours: Term[Neighbours]
    assumption: Term[Assumption]
    not_covered: Term[Caveat]


RELATIONS = {
    "disjoint": Relation(
        unit=Unit.RECORD,
        neighbours=Term(Neighbours.RECORD_OF_A_TASK),
        assumption=Term(Assumption.DISJOINT_TASKS),
        not_covered=Term(Caveat.RECORD_IN_SEVERAL_TASKS),
    ),
    "overlapping": Relation(
        unit=Unit.PERSON_IN_TASKS,
        neighbours=Term(Neighbours.RECORD_OF_EACH_TASK),
        assumption=Term(Assumption.ONCE_IN_EACH_TASK),
        not_covered=Term(Caveat.SEVERAL_RECORDS_IN_A_TASK),
    ),
}


class ContinualClassifier(EmbeddingClassifier):
    """A classifier of a stream of tasks, each of which spends the budget on its records.

    Subclasses say what a task releases, and what becomes of it and of the model of the
    earlier tasks. Those that take the parameter `tasks` offer streams whose tasks
    overlap.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP, default=None
        What each task may spend. Where tasks are disjoint, this is also what a record
        pays in all.
    classes : array-like of shape (n_classes,), default=None
        Public list of all classes of all tasks. One that is too long costs hardly any
        accuracy.
    tasks : {"disjoint", "overlapping"}, default="disjoint"
        Whether a record is in one task, or a person may have a record in each of
        several. The costs of tasks that overlap add up, and the guarantee states the
        total so far.

    Attributes
    ----------
    n_tasks_ : int
        Number of tasks so far.
    """

    tasks: Tasks = "disjoint"
    # Whether each task is given the records of all earlier ones, too.
    takes_earlier_records: ClassVar[bool] = False
    n_tasks_: int

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        task_classes: ArrayLike | None = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn one more task. If that fails, the model is unchanged.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n_records, n_features)
            Private embeddings of the task. Where tasks are disjoint, of records that
            are in no other task. An empty task is one, too: leaving it out would tell
            that it is empty. Or a table in parts that holds its own labels
            (`dppl.io.read_parts`).
        y : array-like of shape (n_records,), default=None
            Private labels. None is for a table in parts.
        groups : array-like of shape (n_records,), default=None
            Private ids of persons, as of `fit`: in all tasks, or in none. A person is
            in one task, or in any of those that overlap, with any number of records.
        task_classes : array-like, default=None
            Classes that the task may hold by public knowledge, never by its records. A
            class that no task may hold is never predicted. None is all.
        ledger : Ledger, default=None
            Account of the data set, as of `fit`. Another try is a second release.
        partition : str, default=None
            Name of the task in the account. Tasks of different names cost the maximum
            over them, see `Ledger.charge`; without names their costs add up. Tasks that
            may overlap have none.
        state : path, default=None
            For ``noise="toeplitz"`` alone, the file of the private
            state: the first task makes it, and each later one reads and replaces it. It
            holds true sums, only its owner may read it, and it goes with the model of
            the last task alone. Keep it as secret as the records, and delete it when
            the stream ends.

        Raises
        ------
        ParameterError, BudgetError, BudgetExceeded, InputError, UnknownLabelError, EngineError
            As `fit`; also if a parameter is not what it was in earlier tasks, or
            `state` belongs to another model.
        """
        self.check_parameters()
        # A copy, since another thread may learn a task meanwhile.
        earlier = None
        if hasattr(self, self._RELEASED):
            earlier = copy.copy(self)
        if earlier is not None:
            earlier._check_next(self, X)
        allowed = codes_of_task(task_classes, reading.public_classes(self.classes))
        task = Task(earlier, allowed, groups is not None)
        later = copy.copy(self)
        with self._opened(state, earlier) as file:
            later._fit(X, y, groups, ledger, partition, task, file)
        self.__dict__.update(vars(later))  # all at once, or nothing
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        groups: Any,
        ledger: Ledger | None,
        partition: str | None,
        *stream: Any,
    ) -> Self:
        refuse_partition(partition, self.tasks)
        return super()._fit(X, y, groups, ledger, partition, *stream)

    def _opened(
        self, state: str | os.PathLike[str] | None, earlier: Self | None
    ) -> AbstractContextManager[Any]:
        """Open the private state between tasks, for methods that have one. It is never an attribute of a model."""
        if state is not None:
            raise ParameterError(
                "is for correlated noise; nothing is kept here.", parameter="state"
            )
        return nullcontext()

    def _check_next(self, later: Self, X: Any) -> None:
        """Refuse a task that does not continue this model."""
        self._check_continues(X)
        for name, value in later.get_params(deep=False).items():
            # What is made of public rows, the first task settles.
            if name not in ("random_state", "public") and not same_value(
                value, self._fitted_with[name]
            ):
                raise ParameterError(
                    f"{name} must stay what it was in the earlier tasks, order included; set it back, or start over "
                    "with a new estimator."
                )

    def _plan(self, n_features: int, *given: Any, **private: Any) -> Plan:
        """Plan a task; `fit` is the first task, with all classes."""
        plan = super()._plan(n_features, *given, **private)
        task = plan.setting.task
        guarantee = of_stream(plan.guarantee, self._relation, self.tasks)
        if task.earlier is not None:
            if task.of_persons:
                whose = of_persons(guarantee, self.max_classes_per_person)
            else:
                whose = guarantee
            check_same_promise(
                task.earlier.guarantee_, self._of_tasks(whose, task.number - 1)
            )
            # A total that promises nothing is refused before the charge; a weak one
            # warns.
            total = self._of_tasks(guarantee, task.number).budget
            refuse_slip(total, allowed=self.budget.allow_weak)
            if (weakness := total.weakness) and not self.budget.weakness:
                warn_once(weakness, 4)
        return replace(plan, guarantee=guarantee)

    def _of_tasks(self, guarantee: Guarantee, n_tasks: int) -> Guarantee:
        return of_tasks(guarantee, n_tasks, self.tasks)

    @property
    def _task_budget(self) -> Budget | None:
        """What each task may spend, where the statement is of more than one."""
        fitted = (
            self._fitted_with
        )  # parameters that were set after the fit have no part in it
        if fitted.get("tasks", self.tasks) != "overlapping":
            return None
        return checked_budget(fitted["budget"])

    @property
    def _relation(self) -> Relation:
        return RELATIONS[self.tasks]

    def _join(self, task: Task) -> None:
        """State what all tasks so far cost."""
        self.n_tasks_ = task.number
        if task.earlier is not None:
            later = self._of_tasks(self.guarantee_, task.number)
            self.guarantee_ = combined(task.earlier.guarantee_, later, task.number)
            self.encoder_ = self.encoder_ or task.earlier.encoder_

    def _complete(self, setting: Setting) -> None:
        self._join(setting.task)
        super()._complete(setting)

    def _tensors(self) -> dict[str, Array]:
        return {"n_tasks": np.array([self.n_tasks_], np.int64), **super()._tensors()}

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        self.n_tasks_ = int(check_tensor(tensors, "n_tasks", (1,), np.int64)[0])
        if self.n_tasks_ < 1:
            raise Misfit("it says that there was no task")
        super()._restore(tensors, parameters)


def of_stream(guarantee: Guarantee, relation: Relation, tasks: str) -> Guarantee:
    """Return the guarantee of one task with what the statement of a stream adds."""
    usual = guarantee.not_covered
    if tasks == "overlapping":
        usual = tuple(
            one for one in usual if one.code is not Caveat.SEVERAL_RECORDS
        )  # except several in one task
    return replace(
        guarantee,
        unit=relation.unit,
        neighbours=relation.neighbours,
        assumptions=(*guarantee.assumptions, relation.assumption),
        public_inputs=(*guarantee.public_inputs, Term(PublicInput.TASKS)),
        not_covered=(*usual, relation.not_covered, Term(Caveat.PRIVATE_BOUNDARIES)),
    )


def of_tasks(guarantee: Guarantee, n_tasks: int, tasks: str) -> Guarantee:
    """Return the guarantee of a number of tasks from the guarantee of one."""
    if tasks == "disjoint" or n_tasks == 1:
        return guarantee
    releases = tuple(release.repeated(n_tasks) for release in guarantee.releases)
    costs = [Cost.from_dict(release.cost) for release in releases]
    return replace(
        guarantee, releases=releases, budget=total_budget(guarantee.budget, costs)
    )


def refuse_partition(partition: str | None, tasks: str) -> None:
    """Refuse the name of a part of an account where tasks overlap."""
    if partition is not None and tasks == "overlapping":
        raise ParameterError(
            "names a part that shares no record with other parts, and tasks that overlap may share some; leave it "
            "out, so that their costs add up.",
            parameter="partition",
        )


def codes_of_task(task_classes: ArrayLike | None, classes: Array) -> Codes:
    """Return the positions of the classes that a task may hold."""
    if task_classes is None:
        return np.arange(len(classes))
    if not np.size(np.asarray(task_classes, object)):
        raise ParameterError(
            "must name at least one class, or be None for all.",
            parameter="task_classes",
        )
    chosen = reading.public_classes(task_classes)
    reading.check_kind(chosen, classes, "task_classes")
    codes = reading.class_codes(chosen, classes, "ignore")
    if (codes < 0).any():
        # Not which: whoever takes them from private labels by mistake would see one.
        raise ParameterError(
            "must be some of the classes of the estimator.", parameter="task_classes"
        )
    return np.sort(codes)


def check_same_promise(earlier: Guarantee, later: Guarantee) -> None:
    """Refuse a task whose statement could not cover the earlier tasks, for instance after a search."""
    # Further assumptions of earlier tasks, such as a cluster, hold for the stream from
    # then on.
    shared = replace(
        earlier,
        assumptions=tuple(
            one for one in later.assumptions if one in earlier.assumptions
        ),
    )
    for name in (
        "budget",
        "adjacency",
        "neighbours",
        "unit",
        "exact",
        "releases",
        "assumptions",
    ):
        if getattr(shared, name) != getattr(later, name):
            raise ParameterError(
                f"the statement of the earlier tasks has other {name} than this task would have (a search released "
                "them, or another program wrote the file), and one cannot stand for both; start over with fit."
            )


def combined(earlier: Guarantee, later: Guarantee, n_tasks: int) -> Guarantee:
    """Merge the statements of earlier tasks into `later`, which has the costs of all."""
    partly = bool(earlier.charges) != bool(later.charges)
    unpaid = [Term(Caveat.PARTLY_CHARGED)] * partly
    return replace(
        later,
        n_models=n_tasks,
        secure_noise=earlier.secure_noise and later.secure_noise,
        assumptions=tuple(dict.fromkeys([*earlier.assumptions, *later.assumptions])),
        public_inputs=tuple(
            dict.fromkeys([*earlier.public_inputs, *later.public_inputs])
        ),
        not_covered=tuple(
            dict.fromkeys([*earlier.not_covered, *later.not_covered, *unpaid])
        ),
        charges=(*earlier.charges, *later.charges),
        software={
            name: " and ".join(
                dict.fromkeys(
                    [*earlier.software.get(name, version).split(" and "), version]
                )
            )
            for name, version in later.software.items()
        },
    )
