"""A model as plain arithmetic, which every format writes in its own words.

A row becomes φ, a unit vector: x/‖x‖, perhaps minus a public centre, added up over neighbouring coordinates, and
brought to length 1 again. A head scores φ by weights and offsets; some heads move φ by a centre or a projection first,
and bring it to length 1 once more. Several heads are put together, and a factor turns scores into logits, whose softmax
are probabilities.

The public rotation of a lattice is no step of its own: the heads are turned back instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dppl.continual import ContinualEnsemble
from dppl.continual._stream import NEVER
from dppl.errors import InputError
from dppl.estimators import EmbeddingClassifier, PrivateSearch
from dppl.kernel.lattice.lattice import rotate
from dppl.prototypes._shared import unit_directions
from dppl.training import PrivateClassifier

Float: TypeAlias = NDArray[np.float64]
Together: TypeAlias = Literal["logaddexp", "maximum"]

# Divided by where a vector may be zero, which then stays zero.
TINY = 1e-300
# Rows on which an export is compared with its model, and how far its scores may lie apart, in lengths of weights.
_TRIED_ROWS = 16
_AGREEMENT = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Scores of unit rows."""

    weights: Float  # shape (n_classes, width)
    offsets: Float  # shape (n_classes,)
    center: Float | None = None  # shape (dim,); subtracted from φ
    # Shape (width, dim); what is left is multiplied by it. After one of both a row is scaled to length 1, unless zero.
    projection: Float | None = None

    @property
    def moves(self) -> bool:
        """Whether the head makes another row of φ."""
        return self.center is not None or self.projection is not None

    def turned_back(self, turn: Float) -> Head:
        """Return the head for rows before a rotation, which multiplies them by `turn` of shape (dim, dim)."""
        center = None if self.center is None else turn @ self.center
        if self.projection is not None:
            return replace(self, center=center, projection=self.projection @ turn.T)
        return replace(self, center=center, weights=self.weights @ turn.T)

    def scores(self, features: Float) -> Float:
        """Return the scores of rows φ."""
        rows = features if self.center is None else features - self.center
        rows = rows if self.projection is None else rows @ self.projection.T
        if self.moves:
            rows = rows / np.maximum(np.sqrt(np.square(rows).sum(axis=1, keepdims=True)), TINY)
        return np.asarray(rows @ self.weights.T + self.offsets)


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """A model as arithmetic on one row at a time."""

    n_features: int
    center: Float | None  # shape (n_features,); subtracted from x/‖x‖
    pool: int  # how many neighbouring coordinates are added up; a remainder is dropped
    heads: tuple[Head, ...]
    together: Together  # how the scores of several heads become one
    sharpness: float  # what turns scores into logits
    classes: NDArray[Any]  # shape (n_classes,)

    @property
    def dim(self) -> int:
        """Width of φ."""
        return self.n_features // self.pool

    @property
    def moves(self) -> bool:
        """Whether φ is more than x/‖x‖."""
        return self.center is not None or self.pool > 1

    def scores(self, rows: NDArray[Any]) -> Float:
        """Return scores of shape (n, n_classes); NaN for rows without a direction. Squares must stay in float64."""
        with np.errstate(all="ignore"):
            features = _unit(rows.astype(np.float64))
            if self.moves:
                moved = features if self.center is None else features - self.center
                pooled = moved[:, : self.dim * self.pool].reshape(len(moved), self.dim, self.pool)
                features = _unit(pooled.sum(axis=2))
            return np.asarray(reduce(getattr(np, self.together), (head.scores(features) for head in self.heads)))


def fitted(model: Any) -> EmbeddingClassifier:
    """Return the estimator of embeddings that a model is, or holds."""
    for kind, attribute in ((PrivateClassifier, "model_"), (PrivateSearch, "best_estimator_")):
        if isinstance(model, kind):
            check_is_fitted(model, attribute)
            model = getattr(model, attribute)
    if not isinstance(model, EmbeddingClassifier):
        raise InputError(
            f"only classifiers of embeddings can be exported; a {type(model).__name__} is not one. A network is "
            "exported with the library that it is written in."
        )
    check_is_fitted(model, model._RELEASED)
    return model


def scorer_of(model: Any) -> Scorer:
    """Return a fitted model as arithmetic, compared with the model on fixed rows."""
    model = fitted(model)
    heads, together = _heads_of(model)
    lattice = model.lattice_
    if lattice.rotation is not None:
        turn = rotate(np.eye(lattice.dim), lattice.rotation)
        heads = tuple(head.turned_back(turn) for head in heads)
    # As a file would hold them: integers or texts, and no objects.
    classes = np.array(model.classes_.tolist())
    scorer = Scorer(
        lattice.n_features, lattice.center, lattice.pool, heads, together, float(model._sharpness()), classes
    )
    _compare(scorer, model)
    return scorer


def _linear(model: EmbeddingClassifier) -> tuple[tuple[Head, ...], Together]:
    """Read weights and offsets off the scores of the zero row and of unit vectors."""
    dim = model.lattice_.dim
    offsets = model._class_scores(np.zeros((1, dim), np.float32))[0]
    weights = model._class_scores(np.eye(dim, dtype=np.float32)) - offsets
    return (Head(np.ascontiguousarray(weights.T), offsets),), "logaddexp"


def _projected(model: Any) -> tuple[tuple[Head, ...], Together]:
    n_classes = len(model.classes_)
    weights = unit_directions(model.prototypes_.reshape(n_classes, -1)).astype(np.float64)
    return (Head(weights, np.zeros(n_classes), projection=model.projection_.astype(np.float64)),), "logaddexp"


def _of_tasks(model: Any) -> tuple[tuple[Head, ...], Together]:
    heads = []
    for number, allowed in enumerate(model.allowed_.T):
        weights, offsets = model._layer(number)
        center = None if model.centers_ is None else model.centers_[:, number]
        heads.append(Head(np.where(allowed[:, None], weights, 0.0), np.where(allowed, offsets, NEVER), center=center))
    return tuple(heads), "logaddexp" if model.scores == "normalised" else "maximum"


def _heads_of(model: EmbeddingClassifier) -> tuple[tuple[Head, ...], Together]:
    """Return a model's layers: most scores are linear in φ, those of projected rows and of ensembles are not."""
    if isinstance(model, ContinualEnsemble):
        return _of_tasks(model)
    return _projected(model) if hasattr(model, "projection_") else _linear(model)


def _compare(scorer: Scorer, model: EmbeddingClassifier) -> None:
    """Refuse a model whose scores follow another arithmetic, on rows that are the same for all models."""
    rows = np.cos(np.arange(_TRIED_ROWS * scorer.n_features, dtype=np.float64) ** 2).reshape(_TRIED_ROWS, -1)
    ours, theirs = scorer.scores(rows), model._scores(rows, "empty")
    longest = max(float(np.sqrt(np.square(head.weights).sum(axis=1)).max()) for head in scorer.heads)
    if not np.allclose(ours, theirs, rtol=_AGREEMENT, atol=_AGREEMENT * longest, equal_nan=True):
        raise InputError(f"{type(model).__name__} scores rows in a way that no export can write; use dppl.load.")


def _unit(rows: Float) -> Float:
    """Scale rows to length 1; a zero row, or one that is not finite, becomes NaN."""
    return np.asarray(rows / np.sqrt(np.square(rows).sum(axis=1, keepdims=True)))
