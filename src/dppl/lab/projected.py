"""A projection layer in front of prototypes, trained privately: what DPPL-v1 tried, in a form that is private."""

import math
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl._utils.progress import steps
from dppl._utils.types import Array, Float, Float32
from dppl.errors import Argument, InputError, ParameterError
from dppl.kernel import Measure, Measurement
from dppl.kernel.lattice import Lattice, take_rows
from dppl.kernel.lattice.lattice import rotate
from dppl.kernel.privacy.budgets import checked_budget
from dppl.kernel.privacy.release import Misfit
from dppl.kernel.queries import ClassSums, SoftmaxGradients
from dppl.kernel.queries.base import Query
from dppl.lab.episode_queries import RADIUS, EpisodeGradients
from dppl.lab.projection_queries import (
    IntegerProjection,
    Projected,
    ProjectedRows,
    PrototypicalLoss,
    check_size,
    softmax_gradient,
)
from dppl.methods import EmbeddingClassifier
from dppl.methods.fit_plan import Setting
from dppl.methods.mean import MeanPrototypes
from dppl.methods.parameters import (
    Count,
    LatticeParameter,
    Positive,
    Probability,
    Share,
    parameters,
)
from dppl.methods.public import PublicPrototypes
from dppl.methods.public_data import PublicValues
from dppl.methods.shared import cosine_sharpness, noise_variance, unit_directions

ProjectedHead: TypeAlias = Literal["mean", "public"]
Rule: TypeAlias = Literal["released", "published"]
Prototypes: TypeAlias = Literal["sums", "public"]
_HEADS: dict[ProjectedHead, type[MeanPrototypes] | type[PublicPrototypes]] = {
    "mean": MeanPrototypes,
    "public": PublicPrototypes,
}
# Percentage of the projection's budget for the prototypes that it is trained with.
_FIRST_PERCENT = 25
# Squared distances of unit rows are at most 4, too few for a softmax to be sure of
# anything.
_TEMPERATURE = 20.0


@parameters
class ProjectedPrototypes(LatticeParameter, EmbeddingClassifier):
    r"""Prototypes of rows that a privately trained linear layer has projected.

    DPPL-v1 (appendix C.5) trains the layer with the rule of prototypical networks, and
    finds that it does not help. It clips the gradient of each query, which bounds what
    a query adds but not what a *support* record does: that moves its class's prototype,
    and with it the gradients of all queries. Here noisy class sums are released first,
    and the layer is trained towards them. Prototypes then are public, every record is a
    query only, and its gradient is clipped by itself. With ``rule="published"`` the
    layer is trained as published, on support and query records, and the gradient of the
    batch is clipped as a whole, which is private, and noisier.

    The classifier is `MeanPrototypes` or `PublicPrototypes` on the projected rows.

    Parameters
    ----------
    head : {"mean", "public"}, default="mean"
        What the prototypes are: noisy class sums, or public rows, which are projected
        too and which `fit` needs as `public`.
    share : float, default=0.5
        Share of the budget, in squares of mu, for the projection (the paper's s). A
        quarter of it is for the prototypes that are released first.
    rule : {"released", "published"}, default="released"
        What the layer is trained towards: released prototypes, or, as published,
        the means of the support records of each batch.
    towards : {"sums", "public"}, default="sums"
        With ``rule="released"``, which prototypes are released first: class sums, or
        public rows, as the head "public" selects (the paper's C.5.3).
    episodes : int, default=1
        With ``rule="published"``, how many times a batch is split evenly into support
        and query records (the paper's augments per step n).
    sampling_rate : float, default=1.0
        With ``rule="published"``, probability with which a record is in the batch of a
        step. Below 1 the budget is an ApproxDP.
    clip : float, default=1.0
        With ``rule="published"``, longest gradient of a batch that keeps its length.
    n_components : int, default=None
        Dimensions of the projected rows (the paper's d_p), at most the embedding's.
        None keeps these.
    steps : int, default=20
        Number of gradient steps; each gets the same share.
    learning_rate : float, default=0.2
        Length of the first step, in lengths of the first projection; with
        ``rule="published"`` of a gradient of the clipping norm. Later steps are
        shorter, down to nothing along a line.

    Attributes
    ----------
    projection_ : ndarray of shape (n_components, dim), int16
        The released projection, on a grid whose unit is not kept, since only directions
        of projected rows are used.
    prototypes_ : ndarray of shape (n_classes, n_components), float64, or (n_classes, 1, n_components), int8
        What `MeanPrototypes` or `PublicPrototypes` released. Safe to publish.
    public_indices_, public_ids_
        As in `PublicPrototypes`, with ``head="public"`` only.

    Notes
    -----
    Unlike in DPPL-v1, all records take part in every step, prototypes are directions of class sums, clipping is of the
    gradient with respect to the logits' weights, to residuals of length 1, and steps have a fixed length. Pooling before
    the layer (the paper's p_before) is ``lattice=LatticeOptions(pool=...)``.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: the
    class sums and all sums of record gradients with respect to the logits' weights and
    offsets, and then what the head releases. Sensitivity: s of the class sums, where s
    = 127·√dim/4 lattice steps; 2²⁰·√(s² + b²) of a step's sum of record gradients, b
    being the constant coordinate; for the head, in the projected space. The projection,
    and the steps, follow from earlier releases, so squares of mu add. With
    ``rule="published"`` nothing is released first, and a step's gradient is an integer
    vector of norm 2²⁰ at most, so its sensitivity is 2²¹; on samples the cost is
    accounted by privacy loss distributions, in (epsilon, delta) only. Public inputs:
    `classes`, all parameters, `public`, `n_features`. Not covered: choice of parameters
    by private data, timing, a changed label (two steps).

    References
    ----------
    .. [1] DPPL-v1 (arXiv:2406.08039), appendix C.5, equations (8) to (12).
    .. [2] Snell, Swersky, Zemel (2017), Prototypical networks for few-shot learning,
    arXiv:1703.05175.
    .. [3] Dong, Roth, Su (2022), arXiv:1905.02383v3, Corollary 3.3 (composition).
    """

    projection_: NDArray[np.int16] = field(init=False)
    prototypes_: Array = field(init=False)
    public_indices_: NDArray[np.int64] = field(init=False)
    public_ids_: NDArray[np.object_] | None = field(init=False)

    head: ProjectedHead = "mean"
    share: Share = 0.5
    n_components: Count | None = None
    rule: Rule = "released"
    towards: Prototypes = "sums"
    episodes: Count = 1
    sampling_rate: Probability = 1.0
    clip: Positive = 1.0
    steps: Count = 20
    learning_rate: Positive = 0.2

    _RELEASED = "prototypes_"
    has_similarity = False  # prototypes are projected

    @property
    def public_rows(self) -> Literal["unused", "required"]:  # type: ignore[override]
        """Those that its head selects among."""
        return "required" if self._selects else "unused"

    @property
    def _selects(self) -> bool:
        return "public" in (self.head, self.towards)

    def check_parameters(self) -> None:
        """Check parameters against each other."""
        super().check_parameters()
        if self.sampling_rate < 1 and self.rule != "published":
            raise ParameterError(
                "below 1 is for ",
                Argument("rule", "published"),
                f"; got {self.sampling_rate}.",
                parameter="sampling_rate",
            )
        if self.towards == "public" and self.rule == "published":
            raise ParameterError(
                "must be 'sums' with ",
                Argument("rule", "published"),
                ", which releases no prototypes before the training; got 'public'.",
                parameter="towards",
            )

    def _width(self, lattice: Lattice) -> int:
        if self.n_components is None:
            width = lattice.dim
        else:
            width = self.n_components
        if width > lattice.dim:
            raise ParameterError(
                f"must be at most {lattice.dim}, the dimensions of embeddings, or None for all of them; got {width}.",
                parameter="n_components",
            )
        return width

    def _start(self, lattice: Lattice) -> Float:
        """Return the first projection: coordinates of a public rotation, at the temperature of the loss."""
        if self.n_components is None:
            axes = np.eye(lattice.dim)
        else:
            axes = rotate(np.eye(lattice.dim), 0)
        return np.asarray(math.sqrt(_TEMPERATURE) * axes[: self._width(lattice)])

    def prepare(
        self, setting: Setting
    ) -> tuple[
        MeanPrototypes | PublicPrototypes,
        Setting,
        tuple[PublicPrototypes, Setting] | None,
    ]:
        """Set up the prototypes before the projection and after it; bounds are from public rows at the start."""
        if self._selects and setting.public.rows is None:
            raise InputError(
                "head='public' and towards='public' select among public rows; give public=PublicData(rows)."
            )
        check_size(setting.lattice.dim, self._width(setting.lattice), setting.n_classes)
        head = _HEADS[self.head](self.budget, self.classes)
        inner = self._inner(setting, IntegerProjection.of(self._start(setting.lattice)))
        first = None
        if self.towards == "public":
            picker = PublicPrototypes(self.budget, self.classes)
            first = picker, replace(setting, prepared=picker.prepare(setting))
        return head, replace(inner, prepared=head.prepare(inner)), first

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare prototypes to train with, gradients and, on projected rows, what the head declares."""
        lattice = setting.lattice
        n_classes = setting.n_classes
        rest = 100 * (1 - self.share)
        head, inner, first = setting.prepared
        # The head's queries read projected rows and share what the training leaves of
        # the budget.
        projected = {
            name: replace(one, query=Projected(one.query, lattice), percent=rest)
            for name, one in head.measurements(inner).items()
        }
        if self.rule == "published":
            episodes = EpisodeGradients(
                lattice,
                n_classes,
                self._width(lattice),
                self.episodes,
                checked_budget(self.budget),
                self.sampling_rate,
            )
            return {
                "episodes": Measurement(episodes, 100 * self.share, self.steps),
                **projected,
            }
        gradients = SoftmaxGradients(lattice, n_classes, softmax_gradient(lattice).bias)
        prototypes: Query = ClassSums(lattice, n_classes)
        if first is not None:  # the head asks for its own kind of prototypes
            prototypes = first[0].measurements(first[1])["rows"].query
        return {
            "first": Measurement(prototypes, _FIRST_PERCENT * self.share),
            "gradients": Measurement(
                gradients, (100 - _FIRST_PERCENT) * self.share, self.steps
            ),
            **projected,
        }

    def learn(self, measure: Measure, setting: Setting) -> None:
        """Train the projection, and then learn prototypes of projected rows."""
        # Prototypes are of rows that are projected as the training left it.
        train = self._trained_on_episodes if self.rule == "published" else self._trained
        projection = IntegerProjection.of(train(measure, setting))
        self.projection_ = projection.steps.astype(np.int16)
        head, inner, _ = setting.prepared
        inner = replace(self._inner(setting, projection), prepared=inner.prepared)
        head.learn(measure.at(projection=projection), inner)
        self.prototypes_ = head.prototypes_
        if isinstance(head, PublicPrototypes):
            self.public_indices_ = head.public_indices_
            self.public_ids_ = head.public_ids_

    def _inner(self, setting: Setting, projection: IntegerProjection) -> Setting:
        """Return the setting of the head: rows that are projected, and public ones where it selects some."""
        public = PublicValues()
        if self.head == "public" and setting.public.rows is not None:
            public = PublicValues(
                ProjectedRows(setting.public.rows, setting.lattice, projection.steps)
            )
        width = len(projection.steps)
        return replace(setting, n_features=width, lattice=Lattice(width), public=public)

    def _trained(self, measure: Measure, setting: Setting) -> Float:
        """Train the projection with prototypes that were released, record by record."""
        lattice = setting.lattice
        # Directions of noisy class sums, or public rows: released once, and fixed for all
        # steps.
        public = setting.public.rows
        if self.towards == "public" and public is not None:
            chosen = measure("first", public=public).ravel()
            prototypes = lattice.transform(take_rows(public, chosen))
        else:
            prototypes = Lattice(lattice.dim).transform(measure("first"))
        weights = start = self._start(lattice)
        for step in steps(self.steps):
            loss = PrototypicalLoss(lattice, IntegerProjection.of(weights), prototypes)
            noisy = measure("gradients", weights=loss.weights, offsets=loss.offsets)
            direction, _ = loss.chained(noisy)
            # Only the direction counts: noise makes the length of a gradient say
            # little.
            norm = float(np.linalg.norm(direction))
            if norm > 0:
                length = (
                    self.learning_rate
                    * (1 - step / self.steps)
                    * float(np.linalg.norm(start))
                )
                weights = np.asarray(weights + length / norm * direction)
        return weights

    def _trained_on_episodes(self, measure: Measure, setting: Setting) -> Float:
        """Train the projection as published, on support and query records of each batch."""
        weights = start = self._start(setting.lattice)
        length = self.learning_rate * float(np.linalg.norm(start)) / RADIUS
        for step in steps(self.steps):
            projection = IntegerProjection.of(weights)
            noisy = measure(
                "episodes", projection=projection, clip=self.clip, seed=step
            )
            weights = weights - length * (1 - step / self.steps) * noisy
        return weights

    def _shapes(self) -> dict[str, tuple[type, tuple[int, ...]]]:
        width = self._width(self.lattice_)
        n_classes = len(self.classes_)
        projection: dict[str, tuple[type, tuple[int, ...]]] = {
            "projection": (np.int16, (width, self.lattice_.dim))
        }
        if self.head == "mean":
            return {**projection, "prototypes": (np.float64, (n_classes, width))}
        chosen = {
            "prototypes": (np.int8, (n_classes, 1, width)),
            "public_indices": (np.int64, (n_classes, 1)),
        }
        return {**projection, **chosen}

    def _restore(self, tensors: dict[str, Array], parameters: dict[str, Any]) -> None:
        super()._restore(tensors, parameters)
        if self.head == "public":
            if (self.public_indices_ < 0).any():
                raise Misfit("its positions of public rows do not fit its classes")
            self.public_ids_ = None

    def _class_scores(self, features: Float32) -> Float:
        projected = features.astype(np.float64) @ self.projection_.T.astype(np.float64)
        directions = unit_directions(self.prototypes_.reshape(len(self.classes_), -1))
        return (
            Lattice(len(self.projection_)).features(projected).astype(np.float64)
            @ directions.T
        )

    def _sharpness(self) -> float:
        scale = float(Lattice(len(self.projection_)).scale)
        variance = 0.0
        if self.head == "mean":
            variance = noise_variance(self.guarantee_, scale)
        return cosine_sharpness(
            self.prototypes_.reshape(len(self.classes_), -1), variance
        )
