"""Exact sums over records, one pass each: what queries are made of.

Each takes `HeldRecords`, then public parameters or released values, and returns arrays of int64 that add over parts.
Weights of classifiers have shape (n_classes, dim), their offsets (n_classes,).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice import (
    Lattice,
    SoftmaxCurvature,
    SoftmaxGradient,
    class_sums,
    gram_matrices,
    sum_blocks,
    weighted_sum,
)
from dppl.kernel.records import HeldRecords

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]


def class_sizes(records: HeldRecords, n_classes: int) -> tuple[Int64]:
    """Return the number of records of each class, shape (n_classes,)."""
    codes = records.codes
    return (np.bincount(codes[codes >= 0], minlength=n_classes).astype(np.int64),)


def number_of_records(records: HeldRecords) -> tuple[Int64]:
    """Return the number of records, or of persons, shape (1,)."""
    counted = np.count_nonzero(records.codes >= 0) if records.persons is None else records.persons.number()
    return (np.array([counted], np.int64),)


def class_masses(records: HeldRecords, n_classes: int, steps: int) -> tuple[Int64]:
    """Return how much of the records each class has, shape (n_classes,), if a record counts `steps`.

    A person counts as one record, of which each class has what it has of theirs: a whole person adds a vector that is
    not longer than `steps`.
    """
    if records.persons is None:
        return (steps * class_sizes(records, n_classes)[0],)
    counted = records.codes >= 0
    each = records.persons.shares(np.full(n_classes, steps))[counted].astype(np.float64)
    # Integers below 2⁵³: exact in any order.
    return (np.bincount(records.codes[counted], each, n_classes).astype(np.int64),)


def class_totals(records: HeldRecords, lattice: Lattice, n_classes: int) -> tuple[Int64]:
    """Return the sum of lattice rows of each class, shape (n_classes, dim)."""
    return (class_sums(sum_blocks(lattice, records.rows), records.codes, n_classes, lattice.dim),)


def weighted_total(records: HeldRecords, lattice: Lattice, weights: Int64) -> tuple[Int64]:
    """Return the sum of lattice rows times the weight of their class, shape (dim,); a person weighs what one row does.

    Weights are from 0 to 2²⁰: the sums of 2³⁵ records are below 2⁶².
    """
    if records.persons is None:
        return (weights @ class_totals(records, lattice, len(weights))[0],)
    return (weighted_sum(sum_blocks(lattice, records.rows), records.persons.shares(weights), lattice.dim),)


def gram(records: HeldRecords, lattice: Lattice) -> tuple[Int64]:
    """Return the Gram matrix of all lattice rows, shape (dim, dim)."""
    all_alike = np.minimum(records.codes, 0)
    return (gram_matrices(sum_blocks(lattice, records.rows), all_alike, 1, lattice.dim)[0],)


def class_grams(records: HeldRecords, lattice: Lattice, n_classes: int) -> tuple[Int64]:
    """Return the Gram matrix of each class, shape (n_classes, dim, dim)."""
    return (gram_matrices(sum_blocks(lattice, records.rows), records.codes, n_classes, lattice.dim),)


def gradients(
    records: HeldRecords, gradient: SoftmaxGradient, weights: Float, offsets: Float | None = None, clip: float = 1.0
) -> tuple[Int64]:
    """Return the sum of clipped gradients at released weights, as `SoftmaxGradient.sum` does."""
    blocks, of_records = records.again(gradient.lattice), records.weights(gradient.lattice)
    return (gradient.sum(blocks, records.codes, weights, offsets, clip=clip, of_records=of_records),)


def long_residuals(
    records: HeldRecords, gradient: SoftmaxGradient, weights: Float, offsets: Float, threshold: float
) -> tuple[Int64]:
    """Return the number of residuals longer than the threshold, shape (1,)."""
    longer = gradient.count_long(records.again(gradient.lattice), records.codes, weights, offsets, threshold)
    return (np.array([longer], np.int64),)


def curvatures(records: HeldRecords, curvature: SoftmaxCurvature, weights: Float) -> tuple[Int64]:
    """Return the Hessians of the classes at released weights, as `SoftmaxCurvature.sum` does."""
    return (curvature.sum(records.again(curvature.lattice), records.codes, weights),)


def shortfalls(records: HeldRecords, gradient: SoftmaxGradient, weights: Float, class_weights: Int64) -> tuple[Int64]:
    """Return how much less often than others each class is predicted, as `SoftmaxGradient.shortfalls` does.

    A record of each class weighs from 0 to `WEIGHT_STEPS`; the records of a person share that.
    """
    of_records = class_weights[records.codes] if records.persons is None else records.persons.shares(class_weights)
    return (gradient.shortfalls(records.again(gradient.lattice), records.codes, weights, of_records),)


def first_ranks(records: HeldRecords, gradient: SoftmaxGradient, weights: Float, offsets: Float) -> tuple[Int64]:
    """Return the number of records, or persons, whose own class has the largest logit, shape (1,)."""
    right = gradient.hits(records.again(gradient.lattice), records.codes, weights, offsets)
    return (np.array([right.sum() if records.persons is None else records.persons.right(right)], np.int64),)
