"""The forms in which a table holds embeddings."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from dppl._metadata import LATTICE
from dppl.kernel.lattice import Lattice

__all__ = ["LATTICE_ROWS", "ROWS", "lattice_metadata", "to_storage"]

Rows: TypeAlias = Literal["float16", "int8", "float32"]
ROWS: tuple[Rows, ...] = get_args(Rows)
LATTICE_ROWS = "lattice"  # those of int8, as bytes


def to_storage(x: NDArray[Any], rows: str) -> NDArray[Any]:
    """Return embeddings of shape (n, d) in one of the forms `ROWS`, or as lattice rows, each row by itself.

    Rows in int8 are those of the plain lattice, which `fit` takes as they are; a map that does more than normalise
    takes their directions.
    """
    if rows in ("int8", LATTICE_ROWS):
        return Lattice(x.shape[1]).transform(x)
    with np.errstate(over="ignore"):
        return x.astype(rows)


def lattice_metadata(dimension: int, rows: str) -> dict[str, str]:
    """Return what a table says of its lattice, if it has rows of one."""
    if rows == LATTICE_ROWS:
        return {LATTICE: Lattice(dimension).name()}
    return {"lattice": json.dumps(Lattice(dimension).to_dict())} if rows == "int8" else {}
