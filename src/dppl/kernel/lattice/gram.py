"""Exact integer Gram matrices of lattice rows, plain and weighted by the curvature of the softmax loss.

A product of two entries is at most 127² in magnitude, so the sums of products of 1040 rows stay below 2²⁴, where
float32 holds every integer: a plain BLAS product then *is* integer arithmetic, whatever the order of summation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice import device
from dppl.kernel.lattice.kernels import Codes, class_sums
from dppl.kernel.lattice.lattice import LARGEST, Int8, Lattice
from dppl.kernel.lattice.residuals import _CAUTION, RESOLUTION, Float, Float32, _cut, _IntegerLayer, _residuals
from dppl.kernel.lattice.stream import iter_blocks
from dppl.kernel.lattice.tensors import as_numpy, beside
from dppl.kernel.lattice.threads import for_each_block

Int64 = NDArray[np.int64]

_EXACT_ROWS = 2**24 // LARGEST**2
# Rows whose products are computed at once. No result depends on it.
_CURVATURE_ROWS = 1024


def sums_and_grams(
    blocks: Iterable[Any], codes: Codes, n_classes: int, dim: int, *, per_class: bool = False
) -> tuple[Int64, Int64]:
    """Return the class sums Σ q and the Gram matrices Σ q qᵀ in one pass, exactly.

    One row moves the Gram matrices by q qᵀ in one of them, whose Frobenius norm is Σq²: at most s².

    Parameters
    ----------
    blocks : iterable of ndarray or torch.Tensor of shape (at most 4096, dim), int8
        Lattice rows in the order of `codes`. Tensors are multiplied on their device.
    codes : ndarray of shape (n,), intp
        Class of each row, from 0 to ``n_classes - 1``; -1 leaves the row out.
    n_classes, dim : int
    per_class : bool, default=False
        One Gram matrix for each class, which takes ``8 * n_classes * dim**2`` bytes, instead of one for all rows.

    Returns
    -------
    sums : ndarray of shape (n_classes, dim), int64
    grams : ndarray of shape (n_classes, dim, dim) or (1, dim, dim), int64
        Symmetric matrices.
    """
    groups = codes if per_class else np.minimum(codes, 0)
    sums = np.zeros((n_classes, dim), np.int64)
    grams = np.zeros((n_classes if per_class else 1, dim, dim), np.int64)
    lock = Lock()

    def add(start: int, block: Any) -> None:
        part = slice(start, start + len(block))
        few = class_sums([block], codes[part], n_classes, dim)
        with lock:
            np.add(sums, few, out=sums)
        for group in np.unique(groups[part]):
            if group >= 0:
                products = _gram(block[beside(np.flatnonzero(groups[part] == group), block)])
                with lock:
                    grams[group] += products

    for_each_block(add, blocks)
    return sums, grams


def _gram(rows: Any) -> Int64:
    if not isinstance(rows, np.ndarray):
        return device.gram(rows)
    total = np.zeros((rows.shape[1],) * 2, np.int64)
    for few in iter_blocks(rows, _EXACT_ROWS):
        wide = few.astype(np.float32)
        # NumPy takes xᵀx for what it is and computes one triangle only.
        total += (wide.T @ wide).astype(np.int64)
    return total


@dataclass(frozen=True, slots=True)
class SoftmaxCurvature:
    r"""Sum the blocks on the diagonal of the softmax loss's Hessian over lattice rows, as exact integers.

    With probabilities p as in `SoftmaxGradient`, a record adds the integer matrix w_c·q·qᵀ to that of class c, where
    w_c = trunc(`RESOLUTION`·p_c·(1 - p_c)). Divide by `unit` to get Hessians in units of φ.

    Parameters
    ----------
    lattice : Lattice
        The lattice of all rows.

    Notes
    -----
    The matrices that a record adds have the joint Frobenius norm ‖w‖·‖q‖². As p(1 - p)² ≤ 4/27 for p in [0, 1] and
    probabilities add up to 1, Σ (p_c(1 - p_c))² ≤ 4/27. 27·‖w‖² ≤ 4·RESOLUTION² is checked in integers for every
    record, with those that failed set to zero, and ‖q‖² ≤ s² is what a lattice row is.
    """

    lattice: Lattice

    @property
    def squared_sensitivity(self) -> Fraction:
        """Square of the joint Frobenius norm that one record's matrices can have, in units of the sum."""
        return Fraction(4, 27) * RESOLUTION**2 * self.lattice.squared_norm**2

    @property
    def unit(self) -> float:
        """Units of the sum for a curvature of 1 and a unit row."""
        return RESOLUTION * float(self.lattice.squared_norm)

    def sum(self, blocks: Iterable[Any], codes: Codes, weights: Float) -> Int64:
        """Return the sum of all records' matrices.

        Parameters
        ----------
        blocks : iterable of ndarray of shape (any, dim), int8
            Lattice rows in the order of `codes`.
        codes : ndarray of shape (n,), intp
            Class of each row; -1 leaves the row out.
        weights : ndarray of shape (n_classes, dim), float64
            In units of φ.

        Returns
        -------
        ndarray of shape (n_classes, dim, dim), int64
            Symmetric matrices.

        Raises
        ------
        ParameterError
            If weights are not finite, or beyond 2⁹⁰.
        """
        layer = _IntegerLayer(weights, None, self.lattice)
        n_classes, dim = weights.shape
        total = np.zeros((n_classes, dim, dim), np.int64)
        lock = Lock()

        def add(start: int, block: Int8) -> None:
            # Sums of 2²⁰/4·127² stay below 2⁵³ for two million rows, so float64 holds them exactly.
            wide = block.astype(np.float64)
            residuals, _ = _residuals(layer.logits(block), codes[start : start + len(block)])
            for code, steps in enumerate(_curvatures_on_grid(residuals)):
                products = ((steps[:, None] * wide).T @ wide).astype(np.int64)
                with lock:
                    total[code] += products

        for_each_block(add, _cut(map(as_numpy, blocks), _CURVATURE_ROWS))
        return total


def _curvatures_on_grid(residuals: Float32) -> Float:
    """Return integers w of 27·‖w‖² ≤ 4·RESOLUTION², one column a record; a residual is p or 1 - p, up to its sign."""
    p = np.abs(residuals)
    steps: Float = np.trunc(p * (1 - p) * np.float32(RESOLUTION * (1 - _CAUTION))).astype(np.float64)
    squared = np.einsum("ij,ij->j", steps, steps)  # integers below 2⁵³: exact in any order
    steps[:, ~(27 * squared <= 4 * RESOLUTION**2)] = 0
    return steps
