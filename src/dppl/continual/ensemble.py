"""An ensemble for a stream of tasks: a head for each task, over all classes."""

import math
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from dppl._utils.types import Array, Flags, Float, Float32
from dppl.continual._stream import NEVER, ContinualClassifier
from dppl.errors import ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import Lattice
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.privacy.terms import Statistic, Term
from dppl.methods import EmbeddingClassifier, LinearProbe, SoftmaxPrototypes
from dppl.methods.fit_plan import Setting, Task
from dppl.methods.parameters import LatticeParameter, parameters
from dppl.methods.shared import unit_directions

# How heads are fitted, and the parameters that a head takes.
HeadMethod: TypeAlias = Literal["probe", "softmax"]
_HEADS: dict[HeadMethod, tuple[type[EmbeddingClassifier], tuple[str, ...]]] = {
    "probe": (LinearProbe, ("steps", "learning_rate", "clip")),
    "softmax": (SoftmaxPrototypes, ()),
}
Scores: TypeAlias = Literal["normalised", "largest"]
# What turns normalised scores into logits.
_SHARPNESS = 1.5


@parameters
class ContinualEnsemble(LatticeParameter, ContinualClassifier):
    r"""A linear head for each task; their scores are combined when a row is classified.

    Each `partial_fit` is one task. It fits a new head on the records of the task, from
    zero and over all classes, since a head over those alone that occur would publish
    which do; earlier heads stay as they are.

    Parameters
    ----------
    head : {"probe", "softmax"}, default="probe"
        What fits a head: `LinearProbe`, as published [1]_, or `SoftmaxPrototypes`,
        which takes public rows of each task.
    head_options : dict, default=None
        For ``"probe"``: `steps`, `learning_rate` or `clip` of `LinearProbe`.
    scores : {"normalised", "largest"}, default="normalised"
        ``"largest"`` takes the largest logit over heads [1]_, which compares heads of
        different scales. With ``"normalised"`` the weights of each class in each head
        are centred over classes and have one length, with which noise gives logits of
        variance 1, and exponentials of logits are added up over heads. It costs nothing
        further.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_tasks, dim), float64
        Weights of the heads, in the order of `classes_` and of tasks. Safe to publish.
    intercepts_ : ndarray of shape (n_classes, n_tasks), float64, or None
        The centres of heads of `SoftmaxPrototypes`. Safe to publish.
    centers_ : ndarray of shape (dim, n_tasks), float64, or None
        What each head of `SoftmaxPrototypes` subtracts from unit rows. Safe to publish.
    allowed_ : ndarray of shape (n_classes, n_tasks), bool
        Which classes each task may hold: public. A head speaks for these alone.

    Notes
    -----
    Memory and time of predictions grow with the number of tasks; with `ContinualPrototypes` they do not.

    **Privacy.** Unit: one record. Relation: add one record to one task, or remove it
    from one. Released: for every task what the method of its head releases, at the full
    budget; all models in between may be published. Sensitivity: as for one head, as its
    class says, since a record is in one task and reaches no other head. Public inputs:
    `classes`, `task_classes`, the boundaries and the order of tasks, all parameters,
    `public`, `n_features`. Not covered: records or persons in several tasks, whose
    costs add up; boundaries set by private counts; skipping a task because it is empty;
    choice of parameters by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] Tobaben, Klasson, Li, Solin, Honkela (2024), Differentially private continual
    learning using pre-trained
       models, arXiv:2411.04680v2, Algorithm A5, equation A3. Here the encoder is
       frozen: a head is one linear layer.
    """

    coef_: Float = field(init=False)
    intercepts_: Float | None = field(init=False)
    centers_: Float | None = field(init=False)
    allowed_: Flags = field(init=False)
    _RELEASED = "coef_"
    has_similarity = False  # heads have different centres

    head: HeadMethod = "probe"
    head_options: dict[str, Any] | None = None
    scores: Scores = "normalised"

    def check_parameters(self) -> None:
        """Check parameters and budget against each other."""
        super().check_parameters()
        options = self.head_options
        known = _HEADS[self.head][1]
        if options is not None and not (
            isinstance(options, dict) and set(options) <= set(known)
        ):
            if known:
                takes = f"a dictionary with some of {', '.join(known)}"
            else:
                takes = "None"
            raise ParameterError(
                f"must be {takes} for head={self.head!r}.", parameter="head_options"
            )
        if self.head == "softmax" and self.lattice is not None:
            raise ParameterError(
                "is for head='probe'; SoftmaxPrototypes releases a centre.",
                parameter="lattice",
            )
        self._new_head().check_parameters()

    def _new_head(self) -> EmbeddingClassifier:
        return _HEADS[self.head][0](
            self.budget, self.classes, **(self.head_options or {})
        )

    @property
    def public_rows(self) -> Literal["unused", "optional", "required"]:  # type: ignore[override]
        """What they are to a head."""
        return self._new_head().public_rows

    def prepare(self, setting: Setting) -> Any:
        """As a head does."""
        return self._new_head().prepare(setting)

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare what a head does, of one task."""
        declared = self._new_head().measurements(setting)
        return {
            name: replace(
                one,
                statistic=Term(
                    Statistic.OF_ONE_TASK, of=one.statistic or one.query.statistic
                ),
            )
            for name, one in declared.items()
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Fit a head for the task, and keep the heads of earlier ones."""
        head = self._new_head()
        task = setting.task
        head.classes_ = setting.classes
        head.lattice_ = setting.lattice
        head.learn(measure, setting)
        allowed = np.isin(np.arange(setting.n_classes), task.allowed)
        self.coef_ = _with_one_more(task, "coef_", head.coef_)
        self.allowed_ = _with_one_more(task, "allowed_", allowed)
        self.intercepts_ = self.centers_ = None
        if self.head == "softmax":
            self.intercepts_ = _with_one_more(task, "intercepts_", head.intercept_)
            self.centers_ = _with_one_more(task, "centers_", head.lattice_.center)

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        n_classes = len(self.classes_)
        n_tasks = self.n_tasks_
        dim = self.lattice_.dim
        shapes = {
            "coef": (np.float64, (n_classes, n_tasks, dim)),
            "allowed": (np.bool_, (n_classes, n_tasks)),
        }
        if self.head == "probe":
            return shapes
        return {
            **shapes,
            "intercepts": (np.float64, (n_classes, n_tasks)),
            "centers": (np.float64, (dim, n_tasks)),
        }

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        self.intercepts_ = self.centers_ = None
        super()._restore(tensors, parameters)
        if not self.allowed_.any(axis=0).all():
            raise Misfit("one of its tasks may hold no class")

    def _class_scores(self, features: Float32) -> Float:
        logits = []
        for number, own in enumerate(self.allowed_.T):
            (weights, offsets), rows = self._layer(number), features
            if self.centers_ is not None:
                rows = Lattice(
                    self.lattice_.dim, center=self.centers_[:, number]
                ).features(features)
            logits.append(rows.astype(np.float64) @ weights[own].T + offsets[own])
        return combined_scores(logits, self.allowed_, len(features), self.scores)

    def _sharpness(self) -> float:
        return _SHARPNESS if self.scores == "normalised" else 1.0

    def _layer(self, number: int) -> tuple[Float, Float]:
        """Return the weights and intercepts of a head, as they are combined with others."""
        coef = self.coef_[:, number]
        if self.intercepts_ is None:
            offsets = np.zeros(len(coef))
        else:
            offsets = self.intercepts_[:, number]
        if self.scores == "largest":
            return coef, offsets
        weights = normalised(coef)
        # As much longer as the weights, in the direction in which these are compared.
        return weights, offsets * np.linalg.norm(weights) / max(
            float(np.linalg.norm(coef - coef.mean(axis=0))), 1e-300
        )


def normalised(coef: Float) -> Float:
    """Return the weights of a head, of shape (n_classes, dim), centred over classes and of length √dim."""
    # Weights of noise then give unit rows logits of variance 1, since such a cosine has
    # a variance of 1/dim.
    return math.sqrt(coef.shape[1]) * unit_directions(coef - coef.mean(axis=0)).astype(
        np.float64
    )


def combined_scores(
    logits: Iterable[Array], allowed: Flags, n_rows: int, scores: str
) -> Float:
    """Return the score of each class from the logits of all heads, each for its classes in `allowed`."""
    combine: np.ufunc = np.maximum
    if scores == "normalised":
        combine = np.logaddexp
    total = np.full((n_rows, len(allowed)), NEVER)
    for own, of_head in zip(allowed.T, logits, strict=True):
        with np.errstate(under="ignore"):  # the exponential of NEVER is 0
            total[:, own] = combine(total[:, own], of_head)
    return total


def _with_one_more(task: Task, name: str, value: Array | None) -> Array:
    """Append the value of the new head to an attribute of the earlier model, along the second axis."""
    one = np.asarray(value)[:, None]
    if task.earlier is None:
        return one
    return np.concatenate([getattr(task.earlier, name), one], axis=1)
