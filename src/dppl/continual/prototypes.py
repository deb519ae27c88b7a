"""The cosine classifier for a stream of tasks: noisy class sums, accumulated."""

import os
from contextlib import AbstractContextManager
from dataclasses import field, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from dppl._utils.types import Array, Float, Float32
from dppl.continual._stream import NEVER, ContinualClassifier, Tasks
from dppl.continual._sums import ReleasedSums, evidence_of
from dppl.errors import ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.privacy.terms import Caveat, Statistic, Term
from dppl.kernel.queries import ClassSums, factors
from dppl.kernel.queries.correlated import CorrelatedClassSums, opened
from dppl.kernel.queries.correlated import (
    recover as recover,
)  # a stub names modules of its package only
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import Count, LatticeParameter, parameters
from dppl.methods.shared import cosine_sharpness, noise_variance, unit_directions

Accumulate: TypeAlias = Literal["weighted", "sum"]
Noise: TypeAlias = Literal["independent", "toeplitz"]


@parameters
class ContinualPrototypes(LatticeParameter, ContinualClassifier):
    r"""One prototype per class, of noisy class sums that arrive task after task.

    Each `partial_fit` is one task. It releases noisy sums as `MeanPrototypes` does, and
    the model keeps nothing else of the records; the prototypes are computed from the
    sums of all tasks so far. With one task and independent noise the model is the model
    of `MeanPrototypes`, bit for bit.

    Parameters
    ----------
    noise : {"independent", "toeplitz"}, default="independent"
        With independent noise the variance of sums over T tasks grows with T.
        ``"toeplitz"``, by the square root of the matrix of prefix sums [2]_, keeps it
        to some multiple of log(T)², for classes that come in many tasks, and needs a
        private state between tasks (`partial_fit`). Only for disjoint tasks.
    max_tasks : int, default=None
        Public bound on the number of tasks, at most 10,000, which correlated noise is
        made for and needs.
    accumulate : {"weighted", "sum"}, default=None
        None is ``"weighted"`` for independent noise and ``"sum"``, the only choice, for
        the others. ``"sum"`` adds all sums of a class up [1]_, with the noise of every
        task, also of those that hold no record of the class. ``"weighted"`` computes
        from the released sums how likely a class is present in each task, and how
        likely all classes are spread over all tasks, and weighs accordingly; it costs
        nothing further.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, dim), float64
        Directions of the classes, in the order of `classes_`. Safe to publish.
    released_ : ReleasedSums
        The noisy sums that they are computed from, added up over tasks. Safe to
        publish.

    Notes
    -----
    **Privacy.** Unit: one record; of overlapping tasks, a person with at most one
    record in each. Relation: add one record to one task, or remove it from one; of
    overlapping tasks, do so in any number of them. Released: a noisy sum for every
    class that a task may hold, in every task; all models in between may be published.
    Sensitivity: s in L2 over the sums of one task, where s = 127·√dim/4 lattice steps;
    a record touches one class of one task, so over all sums of disjoint tasks it is s
    as well. After T overlapping tasks mu is √T times as large. With correlated noise
    every task releases, for every class, one row of weighted sums of the tasks so far,
    and the sensitivity over all rows is s times the largest norm of a column of the
    public integer matrix of weights. Public inputs: `classes`, `task_classes`, the
    boundaries and the order of tasks, all parameters, `public`, `n_features`. Not
    covered: records or persons in several disjoint tasks, whose costs add up, or
    several times in one; boundaries set by private counts; skipping a task because it
    is empty; choice of parameters by private data, timing, a changed label (two steps);
    with correlated noise, who reads the file of the state.

    References
    ----------
    .. [1] Tobaben, Klasson, Li, Solin, Honkela (2024), Differentially private continual
    learning using pre-trained
       models, arXiv:2411.04680v2, Algorithm A4, the cosine similarity classifier.
    .. [2] Fichtenberger, Henzinger, Upadhyay (2023), Constant matters,
    arXiv:2202.11205.

    Examples
    --------
    >>> from dppl import ApproxDP
    >>> from dppl.continual import ContinualPrototypes
    >>> from dppl.io import load_sample
    >>> sample = load_sample()
    >>> model = ContinualPrototypes(ApproxDP(1, 1e-6), classes=sample.classes)
    >>> for task in (slice(0, 700), slice(700, None)):
    ...     model = model.partial_fit(sample.X[task], sample.y[task])
    >>> model.n_tasks_, bool(model.score(sample.X_test, sample.y_test) > 0.5)
    (2, True)
    """

    prototypes_: Float = field(init=False)
    released_: ReleasedSums = field(init=False)
    _RELEASED = "prototypes_"

    tasks: Tasks = "disjoint"
    noise: Noise = "independent"
    max_tasks: Count | None = None
    accumulate: Accumulate | None = None

    def _opened(
        self, state: str | os.PathLike[str] | None, earlier: Self | None
    ) -> AbstractContextManager[Any]:
        if self.noise == "independent":
            return super()._opened(state, earlier)
        if state is None:
            raise ParameterError(
                f"must name the file of the private state, which noise={self.noise!r} needs between tasks.",
                parameter="state",
            )
        n_tasks = 0 if earlier is None else earlier.n_tasks_
        if n_tasks >= len(factors.factor(int(self.max_tasks or 0)).rows):
            raise ParameterError(
                f"is {self.max_tasks}, and as many tasks have been learned; start a new stream with a larger bound.",
                parameter="max_tasks",
            )
        return opened(state, earlier, n_tasks)

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        if self.noise == "independent":
            if self.max_tasks is not None:
                raise ParameterError(
                    "is for correlated noise; leave it out.", parameter="max_tasks"
                )
            return
        if self.max_tasks is None:
            raise ParameterError(
                f"must be a public bound on the number of tasks, which noise={self.noise!r} is made for; got None.",
                parameter="max_tasks",
            )
        if self.max_tasks > factors.MOST_TASKS:
            raise ParameterError(
                f"must be at most {factors.MOST_TASKS}; got {self.max_tasks}.",
                parameter="max_tasks",
            )
        if self.tasks == "overlapping":
            raise ParameterError(
                "must be 'independent' where tasks overlap: a person in several tasks would be in one row several "
                "times, which correlated noise is not made for.",
                parameter="noise",
            )
        if self.accumulate == "weighted":
            raise ParameterError(
                "must be 'sum' or None with correlated noise, from which single tasks cannot be separated.",
                parameter="accumulate",
            )

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the class sums of one task, or of the row of a matrix for all tasks."""
        n_classes = setting.n_classes
        if self.noise == "independent":
            sums = ClassSums(setting.lattice, n_classes)
            of_task = Term(Statistic.OF_ONE_TASK, of=sums.statistic)
            return {"sums": Measurement(sums, statistic=of_task)}
        most = int(self.max_tasks or 0)
        rows = CorrelatedClassSums(
            setting.lattice, n_classes, most, setting.task.number
        )
        return {"sums": Measurement(rows)}

    @property
    def not_covered(self) -> tuple[Term[Caveat], ...]:  # type: ignore[override]
        """The private state of correlated noise."""
        if self.noise == "independent":
            return ()
        return (Term(Caveat.STREAM_STATE),)

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Ask for the sums of the task, and add them to the sums of earlier ones."""
        task = setting.task
        n_classes = setting.n_classes
        scale = measure.unit("sums")
        if task.earlier:
            before = task.earlier.released_
        else:
            before = ReleasedSums.none(n_classes, setting.lattice.dim)
        if self.noise != "independent":
            # A row for every class, of which nothing but the total is kept.
            n_sums = before.n_sums + np.isin(np.arange(n_classes), task.allowed)
            self.released_ = replace(
                before, n_sums=n_sums, total=before.total + measure("sums") / scale
            )
            variance = (
                factors.prefix_variance(task.number)
                * measure.noise_std("sums") ** 2
                / scale**2
            )
            variances = np.full(n_classes, variance)
        else:
            sums = measure("sums", classes=task.allowed) / scale
            # Rounding adds a twelfth of a step to the noise.
            variance = float((measure.noise_std("sums") ** 2 + 1 / 12) / scale**2)
            self.released_ = before.added(task.allowed, sums, variance)
            if self.accumulate != "sum":
                self._set_model(*self.released_.weighted(variance))
                return
            variances = variance * np.maximum(self.released_.n_sums, 1)
        total = self.released_.total.copy()
        self._set_model(total, variances, evidence_of(total, variances))

    def _set_model(self, sums: Float, variances: Float, evidence: Float) -> None:
        """Set what predicts from one sum for each class, their variances of noise, and evidence of records."""
        self.prototypes_ = sums

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        return {"prototypes": (np.float64, (len(self.classes_), self.lattice_.dim))}

    def _tensors(self) -> dict[str, Array]:
        return {**super()._tensors(), **self.released_.to_tensors()}

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        shape = len(self.classes_), self.lattice_.dim
        self.released_ = ReleasedSums.of_tensors(tensors, *shape, n_tasks=self.n_tasks_)

    def _class_scores(self, features: Float32) -> Float:
        scores = features.astype(np.float64) @ unit_directions(self.prototypes_).T
        scores[:, self.released_.n_sums == 0] = NEVER
        return scores

    def _sharpness(self) -> float:
        possible = self.released_.n_sums > 0
        return cosine_sharpness(
            self.prototypes_[possible], self._noise_of_totals()[possible]
        )

    def _noise_of_totals(self) -> Float:
        """Return the variance of the noise in each class's sum over all tasks."""
        variance = noise_variance(self.guarantee_, float(self.lattice_.scale))
        if self._fitted_with["noise"] == "independent":
            return np.asarray(variance * self.released_.n_sums, np.float64)
        growth = factors.prefix_variance(self.n_tasks_)
        return np.full(len(self.classes_), variance * growth, np.float64)
