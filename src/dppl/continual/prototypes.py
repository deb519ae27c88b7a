"""The cosine classifier for a stream of tasks: noisy class sums, accumulated."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from dppl import _validate
from dppl.continual._sums import ReleasedSums
from dppl.errors import ParameterError, UnknownLabelError, WeakBudgetWarning
from dppl.estimators import EmbeddingClassifier, reading
from dppl.estimators.model_file import check_tensor
from dppl.estimators.plan import Plan, same_value
from dppl.estimators.public_data import PublicArguments, PublicData
from dppl.estimators.reading import Codes
from dppl.estimators.splitters import warn_of_uncounted_fits
from dppl.lattice import Lattice, RowSource, class_sums, sum_blocks
from dppl.mechanisms import Randomness, RoundedGaussian, randomness
from dppl.privacy import Budget, Guarantee, Ledger, Release
from dppl.prototypes._shared import unit_directions

RULES = ("weighted", "sum")
_ONE_TASK = "two data sets are neighbours when one record is added to or removed from one task"
_DISJOINT = "tasks are disjoint: a record is in one task"
_BOUNDARIES = "the boundaries of the tasks and the classes that each may hold"
_UNCOVERED = (
    "a record or a person in several tasks, whose costs add up",
    "boundaries of tasks that depend on private records, such as their number",
)
# Below every cosine.
_NEVER = -2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What a task starts from: the model of the earlier ones, and the positions of the classes that it may hold."""

    earlier: ContinualPrototypes | None
    allowed: Codes


class ContinualPrototypes(EmbeddingClassifier):
    r"""One prototype per class, of noisy class sums that arrive task after task.

    Each `partial_fit` is one task. It releases noisy sums as `MeanPrototypes` does, and keeps nothing else of the
    records; the prototypes are computed from the sums of all tasks so far. With one task the model is that of
    `MeanPrototypes`, bit for bit.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP
        What each task may spend. Tasks are disjoint, so this is also what a record pays in all.
    classes : array-like of shape (n_classes,), default=None
        Public list of all classes of all tasks; `partial_fit` needs it. Classes that never come cost hardly any
        accuracy, so a list that is too long is the safe choice. With None, `fit` reads the list from `y`, and warns.
    accumulate : {"weighted", "sum"}, default="weighted"
        ``"sum"`` adds all sums of a class up [1]_, with the noise of every task, also of those that hold no record of
        the class. ``"weighted"`` computes from the released sums how likely a class is present in each task, and how
        likely all classes are spread over all tasks, and weighs accordingly; it costs nothing further.
    pool : int, default=1
        Kernel size of average pooling over neighbouring coordinates (the papers' k_pool).
    center : array-like of shape (n_features,) or "public", default=None
        Public mean that is subtracted from unit rows; ``"public"`` takes that of `X_public`.
    rotation : int or "auto", default=None
        Seed of a public rotation, for encoders with a few huge coordinates; ``"auto"`` rotates if `X_public` needs it.
    unknown_labels : {"error", "ignore"}, default="error"
        What to do with a label outside `classes`: stop without showing it, or leave the record out silently.
    random_state : int, default=None
        None draws noise from the operating system. An integer repeats a run, and the guarantee then says that the model
        must not be released.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, dim), float64
        Directions of the classes, in the order of `classes_`. Safe to publish.
    released_ : ReleasedSums
        The noisy sums that they are computed from, added up over tasks. Safe to publish.
    n_tasks_ : int
        Number of tasks so far.
    classes_ : ndarray of shape (n_classes,)
        The sorted class list.
    guarantee_ : Guarantee
        What is promised. ``print(model.guarantee_)``.
    lattice_ : Lattice
        The public map from embeddings to integer rows.
    n_features_in_ : int
        Width of the embeddings.
    encoder_ : str or None
        The encoder that the table of embeddings names, if it does.

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add one record to one task, or remove it from one. Released: a noisy sum
    for every class that a task may hold, in every task; all models in between may be published. Sensitivity: s in L2
    over all sums of all tasks, where s = 127·√dim/4 lattice steps: a record touches one class of one task.
    Public inputs: `classes`, `task_classes`, the boundaries and the order of tasks, all parameters, `X_public`,
    `n_features`. Not covered: records or persons in several tasks, whose costs add up; boundaries set by private
    counts; leaving out a task because it is empty; choice of parameters by private data, timing, a changed label (two
    steps).

    References
    ----------
    .. [1] Tobaben, Klasson, Li, Solin, Honkela (2024), Differentially private continual learning using pre-trained
       models, arXiv:2411.04680v2, Algorithm A4, the cosine similarity classifier.

    Examples
    --------
    >>> from dppl import ZCDP
    >>> from dppl.continual import ContinualPrototypes
    >>> from dppl.data import load_sample
    >>> sample = load_sample()
    >>> model = ContinualPrototypes(ZCDP(8.0), classes=sample.classes)
    >>> for task in (slice(0, 700), slice(700, None)):
    ...     model = model.partial_fit(sample.X[task], sample.y[task])
    >>> model.n_tasks_, bool(model.score(sample.X_test, sample.y_test) > 0.5)
    (2, True)
    """

    prototypes_: NDArray[np.float64]
    released_: ReleasedSums
    _RELEASED = "prototypes_"
    _task: _Task | None = None
    adjacency = "add-remove"

    def __init__(
        self,
        budget: Budget,
        classes: ArrayLike | None = None,
        *,
        accumulate: str = "weighted",
        pool: int = 1,
        center: ArrayLike | str | None = None,
        rotation: int | str | None = None,
        unknown_labels: str = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.accumulate = accumulate
        self.pool = pool
        self.center = center
        self.rotation = rotation
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    @property
    def n_tasks_(self) -> int:
        """Number of tasks so far."""
        return self.released_.n_tasks

    def partial_fit(
        self,
        X: Any,
        y: Any,
        X_public: Any = None,
        *,
        task_classes: ArrayLike | None = None,
        ledger: Ledger | None = None,
        partition: str | None = None,
    ) -> Self:
        """Learn one more task. If that fails, the model of the earlier tasks stays as it was.

        Parameters
        ----------
        X : array-like, torch tensor or table of shape (n_records, n_features)
            Private embeddings of the task, of records that are in no other task. An empty task is one, too: leaving it
            out would tell that it is empty.
        y : array-like of shape (n_records,)
            Private labels.
        X_public : array-like, torch tensor or table of shape (n_public, n_features), default=None
            Public embeddings of the same encoder, for the first task; later ones keep its map.
        task_classes : array-like, default=None
            Classes that the task may hold by public knowledge, never by its records. Only these get a noisy sum. None
            is all.
        ledger : Ledger, default=None
            Account of the data set. The task is charged before any private value is read. If it fails after that, the
            charge stays, and trying again is a second release.
        partition : str, default=None
            Name of the task in the account. Tasks of different names cost together the maximum over them, see
            `Ledger.charge`; without names their costs add up.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, BudgetError, BudgetExceeded, InputError, UnknownLabelError
            As `fit`; also if `classes` is None, or a parameter is not what it was in earlier tasks.
        """
        self.check_parameters()
        if self.classes is None:
            raise ParameterError("classes must be the public list of the classes of all tasks; got None.")
        if self.budget.is_weak:
            warnings.warn(self.budget.weakness, WeakBudgetWarning, stacklevel=2)
        if ledger is None:
            warn_of_uncounted_fits()
        earlier = self if hasattr(self, self._RELEASED) else None
        if earlier is not None:
            self._check_next(X)
        later = copy.copy(self)
        later._task = _Task(earlier, self._allowed(task_classes))
        later._fit(X, y, PublicArguments.of(X_public, None, None), None, ledger, partition)
        del later._task
        self.__dict__.update(vars(later))
        return self

    def _check_next(self, X: Any) -> None:
        """Refuse a task that does not continue the earlier ones."""
        reading.as_rows(X)  # whose messages show nothing; those of scikit-learn show shapes
        validate_data(self, X, reset=False, skip_check_array=True)
        reading.check_encoder(X, self.encoder_, "X")
        for name, value in self.get_params(deep=False).items():
            if name != "random_state" and not same_value(value, self._fitted_with[name]):
                raise ParameterError(f"{name} must stay what it was in the earlier tasks, or start again with fit.")

    def _allowed(self, task_classes: ArrayLike | None) -> Codes:
        classes = reading.public_classes(self.classes, np.empty(0, np.intp))
        if task_classes is None:
            return np.arange(len(classes))
        chosen = reading.public_classes(task_classes, np.empty(0, np.intp))
        codes = reading.class_codes(chosen, classes, "ignore")
        if (codes < 0).any():
            raise ParameterError("must be some of the classes of the estimator.", parameter="task_classes")
        return np.sort(codes)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _validate.one_of(RULES, accumulate=self.accumulate)

    def public_lattice(self, n_features: int, public: RowSource | None) -> Lattice:
        """Return the public map from embeddings to integer rows: that of the first task."""
        if self._task is not None and self._task.earlier is not None:
            return self._task.earlier.lattice_
        return super().public_lattice(n_features, public)

    def _planned(self, classes: NDArray[Any], public: PublicData, n_features: int) -> Plan:
        plan = super()._planned(classes, public, n_features)
        guarantee = replace(plan.guarantee, assumptions=(*plan.guarantee.assumptions, _DISJOINT))
        if self._task is not None and self._task.earlier is not None:
            _check_same_promise(self._task.earlier.guarantee_, guarantee)
        return replace(plan, guarantee=guarantee)

    def _mechanism(self, lattice: Lattice, public: PublicData) -> RoundedGaussian:
        return RoundedGaussian.within(self.budget, lattice.squared_norm)

    def _releases(self, mechanism: RoundedGaussian, n_classes: int, dim: int) -> tuple[Release, ...]:
        return (mechanism.describe(f"class sums of lattice rows of one task ({n_classes} x {dim})"),)

    def _neighbours(self) -> str:
        return _ONE_TASK

    def _public_inputs(self, public: PublicData) -> tuple[str, ...]:
        return (*super()._public_inputs(public), _BOUNDARIES)

    def _not_covered(self) -> tuple[str, ...]:
        return (*super()._not_covered(), *_UNCOVERED)

    def _release(self, plan: Plan, rows: RowSource, codes: Codes, source: Randomness) -> None:
        n_classes, dim, scale = len(self.classes_), self.lattice_.dim, self.lattice_.scale
        task = self._task or _Task(None, np.arange(n_classes))
        if self.unknown_labels == "error" and not np.isin(codes, task.allowed).all():
            raise UnknownLabelError("every label must be one of task_classes, but at least one is not.")
        before = ReleasedSums.none(n_classes, dim)
        if task.earlier is not None:
            before = task.earlier.released_
            self.guarantee_ = _together(task.earlier.guarantee_, self.guarantee_)
            self.encoder_ = self.encoder_ or task.earlier.encoder_
            if self.random_state is not None:
                source = randomness(_seed_of(self.random_state, before.n_tasks))
        mechanism: RoundedGaussian = plan.mechanism
        exact = class_sums(sum_blocks(self.lattice_, rows), codes, n_classes, dim)
        sums = mechanism.release(exact[task.allowed], source) / scale
        # From here on nothing private is at hand. Rounding adds a twelfth of a step to the noise.
        variance = (mechanism.noise_std**2 + 1 / 12) / scale**2
        self.released_ = before.added(task.allowed, sums, variance)
        weighted = self.accumulate == "weighted"
        self.prototypes_ = self.released_.weighted(variance) if weighted else self.released_.total.copy()

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {"prototypes": self.prototypes_, **self.released_.to_tensors()}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        shape = len(self.classes_), self.lattice_.dim
        self.released_ = ReleasedSums.of_tensors(tensors, *shape)
        self.prototypes_ = check_tensor(tensors, "prototypes", shape, np.float64)

    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        scores = np.asarray(features @ unit_directions(self.prototypes_).T, np.float64)
        scores[:, self.released_.n_sums == 0] = _NEVER
        return scores


def _check_same_promise(earlier: Guarantee, later: Guarantee) -> None:
    """Refuse a task whose statement could not stand for the earlier ones, such as those of a search."""
    for name in ("budget", "adjacency", "neighbours", "unit", "exact", "releases", "assumptions"):
        if getattr(earlier, name) != getattr(later, name):
            raise ParameterError(
                f"the statement of the earlier tasks has other {name} than this task would have (a search released "
                "them, or another program wrote the file), and one cannot stand for both; start again with fit."
            )


def _together(earlier: Guarantee, later: Guarantee) -> Guarantee:
    """Return the guarantee of all tasks: a record is in one, so it costs no more; all else adds up."""
    entries = [entry for entry in (earlier.ledger_entry, later.ledger_entry) if entry is not None]
    return replace(
        later,
        fit_for_release=earlier.fit_for_release and later.fit_for_release,
        public_inputs=tuple(dict.fromkeys([*earlier.public_inputs, *later.public_inputs])),
        not_covered=tuple(dict.fromkeys([*earlier.not_covered, *later.not_covered])),
        ledger_entry="; ".join(entries) or None,
        software={
            name: " and ".join(dict.fromkeys([*earlier.software.get(name, version).split(" and "), version]))
            for name, version in later.software.items()
        },
    )


def _seed_of(seed: int, task: int) -> int:
    """Return a seed for a later task, so that the noise of no two tasks is the same."""
    return int.from_bytes(sha256(f"{int(seed)} {task}".encode()).digest()[:8], "big")
