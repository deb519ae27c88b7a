"""A model as plain arithmetic, which NumPy, torch and a graph of ONNX run alike; and what an export says of it.

A row becomes φ, a unit vector: x/‖x‖, perhaps minus a public centre, added up over
neighbouring coordinates, and rescaled to length 1. A head scores φ by weights and
offsets; some heads move φ by a centre or a projection first, and rescale it to length
1. Several heads are combined, and a factor turns scores into logits, whose softmax are
probabilities.

The public rotation of a lattice is no separate step: the heads are turned back instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

import numpy as np

from dppl._utils.types import Array, Float
from dppl._version import __version__
from dppl.continual import ContinualEnsemble
from dppl.continual._stream import NEVER
from dppl.errors import InputError
from dppl.kernel.lattice.lattice import rotate
from dppl.methods import EmbeddingClassifier, PrivateSearch
from dppl.methods.as_scikit import check_fitted
from dppl.methods.shared import unit_directions
from dppl.training import PrivateClassifier

Combine: TypeAlias = Literal["logaddexp", "maximum"]

# Divided by where a vector may be zero, which then stays zero.
_TINY = 1e-300
# Rows on which an export is compared with its model, and how much its scores may
# differ, in lengths of weights.
_TRIED_ROWS = 16
_AGREEMENT = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Scores of unit rows."""

    weights: Float  # shape (n_classes, width)
    offsets: Float  # shape (n_classes,)
    center: Float | None = None  # shape (dim,); subtracted from φ
    # Shape (width, dim); what is left is multiplied by it. After one of both a row is
    # scaled to length 1, unless zero.
    projection: Float | None = None

    def turned_back(self, turn: Float) -> Head:
        """Return the head for rows before a rotation, which multiplies them by `turn` of shape (dim, dim)."""
        center = None
        if self.center is not None:
            center = turn @ self.center
        if self.projection is not None:
            return replace(self, center=center, projection=self.projection @ turn.T)
        return replace(self, center=center, weights=self.weights @ turn.T)

    def scores(self, rows: Any, do: Any, name: str) -> Any:
        """Return the scores of rows φ; see `Scorer.scores`."""
        if self.center is not None:
            rows = rows - do.constant(f"{name}_center", self.center)
        if self.projection is not None:
            rows = rows @ do.constant(f"{name}_projection", self.projection.T)
        if self.center is not None or self.projection is not None:
            rows = rows / do.maximum(
                do.length(rows), do.constant("tiny", np.array(_TINY))
            )
        return rows @ do.constant(f"{name}_weights", self.weights.T) + do.constant(
            f"{name}_offsets", self.offsets
        )


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """A model as arithmetic on one row at a time."""

    n_features: int
    center: Float | None  # shape (n_features,); subtracted from x/‖x‖
    pool: int  # how many neighbouring coordinates are added up; a remainder is dropped
    heads: tuple[Head, ...]
    combine: Combine  # how the scores of several heads become one
    sharpness: float  # what turns scores into logits
    classes: Array  # shape (n_classes,)

    def scores(self, rows: Any, do: Any) -> Any:
        """Return the scores of rows of float64, NaN for rows without a direction.

        Rows of any library follow the same operators; `do` has its other operations, as
        `NUMPY` for arrays.
        """
        features = _unit(rows, do)
        if self.center is not None:
            features = features - do.constant("center", self.center)
        if self.pool > 1:
            features = do.pooled(features, self.n_features // self.pool, self.pool)
        # Rows that are units still are left as they are.
        if self.center is not None or self.pool > 1:
            features = _unit(features, do)
        heads = (
            head.scores(features, do, f"head{number}")
            for number, head in enumerate(self.heads)
        )
        return reduce(getattr(do, self.combine), heads)


# What the arithmetic asks of NumPy but operators.
NUMPY = SimpleNamespace(
    constant=lambda name, value: value,
    largest=lambda rows: np.abs(rows).max(axis=1, keepdims=True),
    length=lambda rows: np.sqrt(np.square(rows).sum(axis=1, keepdims=True)),
    pooled=lambda rows, dim, pool: (
        rows[:, : dim * pool].reshape(-1, dim, pool).sum(axis=2)
    ),
    maximum=np.maximum,
    logaddexp=np.logaddexp,
)


def _unit(rows: Any, do: Any) -> Any:
    """Scale rows to length 1; a zero row, or one that is not finite, becomes NaN."""
    rows = rows / do.largest(
        rows
    )  # first, since squares of huge and tiny rows leave the range
    return rows / do.length(rows)


def fitted(model: Any) -> EmbeddingClassifier:
    """Return the estimator of embeddings that a model is, or holds."""
    for kind, attribute in (
        (PrivateClassifier, "model_"),
        (PrivateSearch, "best_estimator_"),
    ):
        if isinstance(model, kind):
            check_fitted(model, attribute)
            model = getattr(model, attribute)
    if not isinstance(model, EmbeddingClassifier):
        raise InputError(
            f"only classifiers of embeddings can be exported; a {type(model).__name__} is not one. A network is "
            "exported with the library that it is written in."
        )
    check_fitted(model, model._RELEASED)
    return model


def scorer_of(model: Any) -> Scorer:
    """Return a fitted model as arithmetic, compared with the model on fixed rows."""
    model = fitted(model)
    if model.multilabel:
        raise InputError(
            "a model of several labels a record is not exported, since formats hold one label; serve it."
        )
    lattice = model.lattice_
    n_classes = len(model.classes_)
    heads = list[Head]()
    # Scores of projected rows and of ensembles are not linear in φ; most are, and then
    # weights and offsets are read off the scores of the zero row and of unit vectors.
    if isinstance(model, ContinualEnsemble):
        for number, allowed in enumerate(model.allowed_.T):
            weights, offsets = model._layer(number)
            weights = np.where(allowed[:, None], weights, 0.0)
            offsets = np.where(allowed, offsets, NEVER)
            heads.append(
                Head(
                    weights,
                    offsets,
                    None if model.centers_ is None else model.centers_[:, number],
                )
            )
    elif isinstance(projection := getattr(model, "projection_", None), np.ndarray):
        weights = unit_directions(model.prototypes_.reshape(n_classes, -1)).astype(
            np.float64
        )
        heads.append(
            Head(weights, np.zeros(n_classes), projection=projection.astype(np.float64))
        )
    else:
        offsets = model._class_scores(np.zeros((1, lattice.dim), np.float32))[0]
        weights = model._class_scores(np.eye(lattice.dim, dtype=np.float32)) - offsets
        heads.append(Head(np.ascontiguousarray(weights.T), offsets))
    combine: Combine = (
        "maximum" if getattr(model, "scores", None) == "largest" else "logaddexp"
    )
    if lattice.rotation is not None:
        turn = rotate(np.eye(lattice.dim), lattice.rotation)
        heads = [head.turned_back(turn) for head in heads]
    # As a file would hold them: integers or texts, and no objects.
    classes = np.array(model.classes_.tolist())
    scorer = Scorer(
        lattice.n_features,
        lattice.center,
        lattice.pool,
        tuple(heads),
        combine,
        float(model._sharpness()),
        classes,
    )
    _compare(scorer, model)
    return scorer


def _compare(scorer: Scorer, model: EmbeddingClassifier) -> None:
    """Refuse a model whose scores follow another arithmetic, on rows that are the same for all models."""
    rows = np.cos(
        np.arange(_TRIED_ROWS * scorer.n_features, dtype=np.float64) ** 2
    ).reshape(_TRIED_ROWS, -1)
    ours = scorer.scores(rows, NUMPY)
    theirs = model._scores(rows, "empty")
    longest = max(
        float(np.sqrt(np.square(head.weights).sum(axis=1)).max())
        for head in scorer.heads
    )
    if not np.allclose(
        ours, theirs, rtol=_AGREEMENT, atol=_AGREEMENT * longest, equal_nan=True
    ):
        raise InputError(
            f"{type(model).__name__} scores rows in a way that no export can write; use dppl.load."
        )


def statement(model: EmbeddingClassifier) -> dict[str, Any]:
    """Return what an export says of a fitted model, JSON-ready. All of it is in the model file, too."""
    guarantee = model.guarantee_
    return {
        "written_by": f"dppl {__version__}",
        "estimator": type(model).__name__,
        "encoder": model.encoder_,
        "classes": model.classes_.tolist(),
        "sharpness": float(model._sharpness()),
        "guarantee": guarantee.summary(),
        "secure_noise": guarantee.secure_noise,
        "statement": guarantee.to_dict(),
        "model_sha256": sha256(model.to_bytes()).hexdigest(),
    }
