"""A seeded public rotation of rows, one row at a time.

It spreads a few huge coordinates over all of them, so that rounding to the lattice clips nothing. A matrix product
would do the same, but the bits of one row of a BLAS product depend on how many rows it came with; here every step is
an element-wise addition, so a row's result depends on that row alone.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
_ROUNDS = 3


def rotate(rows: Float, seed: int) -> Float:
    """Rotate each row by the orthogonal map that `seed` names; norms stay up to rounding.

    Three rounds of random signs and a Walsh-Hadamard transform, on the first, the last and again the first p
    coordinates, where p is the largest power of two that fits. The signs come from SHAKE-256, so the map is the same
    on every machine and with every version of NumPy.

    Ailon, Chazelle (2009), The fast Johnson-Lindenstrauss transform.
    """
    n, n_features = rows.shape
    width = 1 << (n_features.bit_length() - 1)
    # A row a column: what is added then lies together, also where coordinates are neighbours.
    columns, spare = np.array(rows.T, order="C"), np.empty((width, n))
    for turn, sign in enumerate(_signs(seed, n_features)):
        columns *= sign[:, None]
        _hadamard(columns[n_features - width :] if turn % 2 else columns[:width], spare)
    return np.array(columns.T, order="C")


def _signs(seed: int, n_features: int) -> Float:
    digest = hashlib.shake_256(f"dppl rotation {seed} {n_features}".encode()).digest(_ROUNDS * n_features)
    bits = np.frombuffer(digest, np.uint8).reshape(_ROUNDS, n_features) & 1
    return np.where(bits == 1, -1.0, 1.0)


def _hadamard(columns: Float, spare: Float) -> None:
    """Transform each column in place; `spare` is overwritten."""
    width, n = columns.shape
    source, target = columns, spare
    half = 1
    while half < width:
        # width and not -1: there may be no rows.
        (pairs, results) = (array.reshape(width // (2 * half), 2, half * n) for array in (source, target))
        np.add(pairs[:, 0], pairs[:, 1], out=results[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=results[:, 1])
        source, target = target, source
        half *= 2
    np.divide(source, math.sqrt(width), out=columns)
