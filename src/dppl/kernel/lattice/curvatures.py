"""Exact sums of the Hessians of the softmax loss."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

import numpy as np

from dppl.kernel.lattice.kernels import Codes
from dppl.kernel.lattice.lattice import Int8, Lattice
from dppl.kernel.lattice.residuals import (
    LENGTH,
    Float,
    Float32,
    Int64,
    IntegerLayer,
    softmax_residuals,
)
from dppl.kernel.lattice.stream import cut, in_order
from dppl.kernel.privacy.sensitivity import RESOLUTION


def curvature_sums(
    lattice: Lattice, blocks: Iterable[Int8], codes: Codes, weights: Float
) -> Int64:
    """Sum the blocks on the diagonal of the softmax loss's Hessian, shape (n_classes, dim, dim), as exact integers.

    A record adds w_c·q·qᵀ to the matrix of class c, as `SoftmaxCurvatures` of
    `dppl.kernel.queries` says. Divide by `RESOLUTION` s² to get Hessians in units of φ.
    """
    layer = IntegerLayer(weights, None, lattice)
    n_classes, dim = weights.shape
    total = np.zeros((n_classes, dim, dim), np.int64)
    lock = Lock()

    def add(item: tuple[int, Int8]) -> None:
        start, block = item
        # Sums of 2²⁰/4·127² stay below 2⁵³ for two million rows, so float64 holds them
        # exactly.
        wide = block.astype(np.float64)
        residuals, _ = softmax_residuals(
            layer.logits(block), codes[start : start + len(block)]
        )
        for code, steps in enumerate(_curvatures_on_grid(residuals)):
            products = ((steps[:, None] * wide).T @ wide).astype(np.int64)
            with lock:
                total[code] += products

    for _ in in_order(add, cut(blocks, layer.block_rows)):
        pass
    return total


def _curvatures_on_grid(residuals: Float32) -> Float:
    """Return integers w of 27·‖w‖² ≤ 4·RESOLUTION², one column a record; a residual is p or 1 - p, up to its sign."""
    p = np.abs(residuals)
    steps: Float = np.trunc(p * (1 - p) * LENGTH).astype(np.float64)
    steps[:, ~(27 * np.einsum("ij,ij->j", steps, steps) <= 4 * RESOLUTION**2)] = (
        0  # as in `on_grid`
    )
    return steps
