"""The cosine classifier for a stream of tasks: noisy class sums, accumulated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl.continual._stream import NEVER, ContinualClassifier, Task
from dppl.continual._sums import ReleasedSums
from dppl.estimators.model_file import check_tensor
from dppl.estimators.plan import Plan
from dppl.estimators.public_data import PublicData
from dppl.estimators.reading import Codes
from dppl.lattice import Lattice, RowSource, class_sums, sum_blocks
from dppl.mechanisms import Randomness, RoundedGaussian
from dppl.privacy import Budget, Release
from dppl.prototypes._shared import unit_directions

RULES = ("weighted", "sum")


class ContinualPrototypes(ContinualClassifier):
    r"""One prototype per class, of noisy class sums that arrive task after task.

    Each `partial_fit` is one task. It releases noisy sums as `MeanPrototypes` does, and keeps nothing else of the
    records; the prototypes are computed from the sums of all tasks so far. With one task the model is that of
    `MeanPrototypes`, bit for bit.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP
        What each task may spend. Where tasks are disjoint, this is also what a record pays in all.
    classes : array-like of shape (n_classes,), default=None
        Public list of all classes of all tasks; `partial_fit` needs it. Classes that never come cost hardly any
        accuracy, so a list that is too long is the safe choice. With None, `fit` reads the list from `y`, and warns.
    tasks : {"disjoint", "overlapping"}, default="disjoint"
        Whether a record is in one task, or a person may have a record in each of several. The costs of tasks that
        overlap add up, and the guarantee states the total so far.
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
    **Privacy.** Unit: one record; of overlapping tasks, a person with at most one record in each. Relation: add one
    record to one task, or remove it from one; of overlapping tasks, do so in any number of them. Released: a noisy sum
    for every class that a task may hold, in every task; all models in between may be published. Sensitivity: s in L2
    over the sums of one task, where s = 127·√dim/4 lattice steps; a record touches one class of one task, so over all
    sums of disjoint tasks it is s as well. After T overlapping tasks mu is √T times that of one. Public inputs:
    `classes`, `task_classes`, the boundaries and the order of tasks, all parameters, `X_public`, `n_features`.
    Not covered: records or persons in several disjoint tasks, whose costs add up, or several times in one; boundaries
    set by private counts; leaving out a task because it is empty; choice of parameters by private data, timing, a
    changed label (two steps).

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

    def __init__(
        self,
        budget: Budget,
        classes: ArrayLike | None = None,
        *,
        tasks: str = "disjoint",
        accumulate: str = "weighted",
        pool: int = 1,
        center: ArrayLike | str | None = None,
        rotation: int | str | None = None,
        unknown_labels: str = "error",
        random_state: int | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.tasks = tasks
        self.accumulate = accumulate
        self.pool = pool
        self.center = center
        self.rotation = rotation
        self.unknown_labels = unknown_labels
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        _validate.one_of(RULES, accumulate=self.accumulate)

    def _mechanism(self, lattice: Lattice, public: PublicData) -> RoundedGaussian:
        return RoundedGaussian.within(self.budget, lattice.squared_norm)

    def _releases(self, mechanism: RoundedGaussian, n_classes: int, dim: int) -> tuple[Release, ...]:
        return (mechanism.describe(f"class sums of lattice rows of one task ({n_classes} x {dim})"),)

    def _release_task(self, task: Task, plan: Plan, rows: RowSource, codes: Codes, source: Randomness) -> None:
        n_classes, dim, scale = len(self.classes_), self.lattice_.dim, self.lattice_.scale
        mechanism: RoundedGaussian = plan.mechanism
        exact = class_sums(sum_blocks(self.lattice_, rows), codes, n_classes, dim)
        sums = mechanism.release(exact[task.allowed], source) / scale
        # From here on nothing private is at hand. Rounding adds a twelfth of a step to the noise.
        variance = (mechanism.noise_std**2 + 1 / 12) / scale**2
        before = ReleasedSums.none(n_classes, dim) if task.earlier is None else task.earlier.released_
        self.released_ = before.added(task.allowed, sums, variance)
        weighted = self.accumulate == "weighted"
        self.prototypes_ = self.released_.weighted(variance) if weighted else self.released_.total.copy()

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {**super()._tensors(), "prototypes": self.prototypes_, **self.released_.to_tensors()}

    def _restore(self, tensors: dict[str, NDArray[Any]], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        shape = len(self.classes_), self.lattice_.dim
        self.released_ = ReleasedSums.of_tensors(tensors, *shape, n_tasks=self.n_tasks_)
        self.prototypes_ = check_tensor(tensors, "prototypes", shape, np.float64)

    def _class_scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        scores = np.asarray(features @ unit_directions(self.prototypes_).T, np.float64)
        scores[:, self.released_.n_sums == 0] = NEVER
        return scores
