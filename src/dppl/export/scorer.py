"""A model as plain arithmetic, the same for NumPy, torch and ONNX, and the statement of an export.

A row becomes φ, a unit vector: x/‖x‖, perhaps minus a public centre, added up over
neighbouring coordinates, and rescaled to length 1. A head scores φ by weights and
offsets; some heads move φ by a centre or a projection first, and rescale it to length
1. Several heads are combined, and a factor turns scores into logits, whose softmax are
probabilities.

The lattice's public rotation is folded into the heads.
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

# The least divisor, so that a zero vector stays zero.
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
    # Shape (width, dim); applied after the centre. After either, a row that is not zero
    # is scaled to length 1.
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
    sharpness: float  # factor from scores to logits
    classes: Array  # shape (n_classes,)

    def scores(self, rows: Any, do: Any) -> Any:
        """Return the scores of rows of float64, NaN for rows without a direction.

        Arrays of all libraries share the operators; `do` supplies the other operations,
        as `NUMPY` does for NumPy.
        """
        features = _unit(rows, do)
        if self.center is not None:
            features = features - do.constant("center", self.center)
        if self.pool > 1:
            features = do.pooled(features, self.n_features // self.pool, self.pool)
        # Otherwise the rows are still unit vectors.
        if self.center is not None or self.pool > 1:
            features = _unit(features, do)
        heads = (
            head.scores(features, do, f"head{number}")
            for number, head in enumerate(self.heads)
        )
        return reduce(getattr(do, self.combine), heads)


# Operations besides operators, for NumPy.
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
    """Return the classifier of embeddings inside a model, which may be the model itself."""
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
    # Scores of projected rows and of ensembles are not linear in φ. All others are, so
    # the scores of the zero row and of unit vectors give offsets and weights.
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
    # Integers or texts, as a file holds them.
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
    """Refuse a model whose scores differ from the exported arithmetic on fixed rows."""
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
    """Return the statement of an export, JSON-ready; the model file holds all of it, too."""
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
