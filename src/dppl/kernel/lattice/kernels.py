"""Exact integer sums of lattice rows: class sums, weighted sums and Gram matrices.

Lattice rows are small integers of norm at most s, so every dot product and every
partial sum of one is an integer of magnitude at most s² (Cauchy-Schwarz). Below 2²⁴
such integers are exact in float32, whatever the order of summation: a plain BLAS
product then *is* integer arithmetic.
"""

from collections.abc import Iterable, Iterator
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice.lattice import Int8
from dppl.kernel.lattice.stream import cut, in_order
from dppl.kernel.privacy.sensitivity import LARGEST

Int64 = NDArray[np.int64]
Codes = NDArray[np.intp]

_EXACT = 2**24
_GRAM_ROWS = _EXACT // LARGEST**2  # 1040 products of two entries add up below 2²⁴


def class_sums(blocks: Iterable[Int8], codes: Codes, n_classes: int, dim: int) -> Int64:
    """Sum rows by class exactly, shape (n_classes, dim), in blocks of at most 4096 lattice rows; code -1 skips one."""
    from scipy.sparse import (
        csr_matrix,
    )  # here, because reading a table needs none of it

    sums = np.zeros((n_classes, dim), np.int64)
    start = 0
    for block in blocks:
        part = codes[start : start + len(block)]
        members = np.flatnonzero(part >= 0)
        indicator = csr_matrix(
            (np.ones(len(members), np.float32), (part[members], members)),
            (n_classes, len(block)),
        )
        sums += np.asarray(indicator @ block.astype(np.float32)).astype(np.int64)
        start += len(block)
    return sums


def weighted_sum(blocks: Iterable[Int8], weights: Int64, dim: int) -> Int64:
    """Add rows times weights from 0 to 2³³, exactly; blocks as for `class_sums`, in the order of the weights."""
    total = np.zeros(dim, np.int64)
    start = 0
    for block in blocks:
        # Integers below 2⁵³: exact in any order.
        part = weights[start : start + len(block)].astype(np.float64)
        total += (part @ block.astype(np.float64)).astype(np.int64)
        start += len(block)
    return total


def gram_matrices(
    blocks: Iterable[Int8], codes: Codes, n_classes: int, dim: int
) -> Int64:
    """Return the Gram matrix Σ q·qᵀ of each class, exactly, shape (n_classes, dim, dim); blocks are of any length."""
    grams = np.zeros((n_classes, dim, dim), np.int64)
    lock = Lock()

    def add(item: tuple[int, Int8]) -> None:
        start, block = item
        part = codes[start : start + len(block)]
        for code in np.unique(part[part >= 0]):
            for wide in _exact_parts(block[part == code].astype(np.float32)):
                # NumPy takes xᵀx for what it is and computes one triangle only.
                products = (wide.T @ wide).astype(np.int64)
                with lock:
                    grams[code] += products

    for _ in in_order(add, cut(blocks)):
        pass
    return grams


def _exact_parts(wide: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Cut rows into parts whose Gram matrices are exact in float32, in any order of summation.

    No sum of some of the products q_i·q_j is longer than the larger sum of all q_i² or
    q_j². A sum of squares in float32 that passes 2²⁴ on its way does not fall below it.
    """
    if len(wide) <= _GRAM_ROWS or np.einsum("ij,ij->j", wide, wide).max() < _EXACT:
        yield wide
        return
    half = len(wide) // 2
    yield from _exact_parts(wide[:half])
    yield from _exact_parts(wide[half:])
