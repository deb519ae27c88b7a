"""The prototypes that a row is close to, of models that have some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.continual import ContinualPrototypes
from dppl.estimators import EmbeddingClassifier
from dppl.kernel.lattice import Lattice
from dppl.prototypes import MeanPrototypes, PublicPrototypes, SoftmaxPrototypes
from dppl.serve.answers import Nearest

__all__ = ["Prototypes", "prototypes_of"]

_Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Prototypes:
    """Directions of released prototypes, and the map that takes a row to where they lie."""

    directions: NDArray[np.float64]  # shape (n_prototypes, dim); unit vectors
    names: list[tuple[Any, int | None, str | None]]  # class, and position and id of the public row that it is
    place: Callable[[_Rows], _Rows]  # from a row of shape (1, n_features) to one of shape (1, dim)

    def nearest(self, row: NDArray[Any], count: int) -> list[Nearest]:
        """Return the prototypes of the largest cosines with a row of shape (n_features,), the closest first."""
        with np.errstate(all="ignore"):
            (direction,) = _unit(self.place(row[None]))
        cosines = self.directions @ direction
        nearest = []
        for place in np.argsort(-cosines, kind="stable")[:count].tolist():
            label, public_row, public_id = self.names[place]
            nearest.append(Nearest(label, float(cosines[place]), public_row, public_id))
        return nearest


def prototypes_of(model: EmbeddingClassifier) -> Prototypes | None:
    """Return the prototypes of a model; None where it has none."""
    place = _map_of(model)
    if place is None:
        return None
    released = np.asarray(model.prototypes_, np.float64)
    wide = released.reshape(len(model.classes_), -1, released.shape[-1])  # of each class one or several
    rows, ids = getattr(model, "public_indices_", None), getattr(model, "public_ids_", None)
    # A class of a task that has not come yet has only zeros.
    kept = [(code, number) for code, number in np.ndindex(wide.shape[:2]) if wide[code, number].any()]
    names = [
        (
            model.classes_[code].item(),
            None if rows is None else int(rows[code, number]),
            None if ids is None else str(ids[code, number]),
        )
        for code, number in kept
    ]
    return Prototypes(_unit(np.array([wide[one] for one in kept])), names, place) if kept else None


def _map_of(model: EmbeddingClassifier) -> Callable[[_Rows], _Rows] | None:
    if isinstance(model, SoftmaxPrototypes):
        return _unit  # its prototypes lie among unit rows as they come
    released: NDArray[Any] | None = getattr(model, "projection_", None)
    if released is not None:
        projection, within = released.T.astype(np.float64), Lattice(len(released))
        return lambda row: within.features(model.lattice_.features(row).astype(np.float64) @ projection)
    if isinstance(model, MeanPrototypes | PublicPrototypes | ContinualPrototypes):
        return model.lattice_.features
    return None


def _unit(rows: _Rows) -> NDArray[np.float64]:
    wide = np.asarray(rows, np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True)  # whose square may leave the range
    wide = wide / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(norms > 0, norms, 1.0))
