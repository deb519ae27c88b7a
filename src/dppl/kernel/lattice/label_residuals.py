"""Residuals of the logistic losses of all labels together, where a record may have several.

The loss is the sum of the logistic losses of all classes, and a residual is the label
set minus the probability of each class, up to √n_classes long before it is clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl.kernel.lattice.lattice import Int8, Lattice
from dppl.kernel.lattice.residuals import (
    Float,
    Float32,
    Int64,
    IntegerLayer,
    check_clip,
    exp_of,
    on_grid,
    sum_of_rows,
)
from dppl.kernel.lattice.stream import cut, in_order


def label_hits(
    lattice: Lattice,
    blocks: Iterable[Int8],
    label_sets: NDArray[np.bool_],
    weights: Float,
    offsets: Float | None,
) -> NDArray[np.bool_]:
    """Mark the records one of whose labels has the largest logit, or shares it; each by its own row alone."""
    layer = IntegerLayer(weights, offsets, lattice)

    def right(item: tuple[int, Int8]) -> NDArray[np.bool_]:
        start, block = item
        logits = layer.logits(block)
        first = logits >= logits.max(axis=0)
        return np.asarray(
            (first.T & label_sets[start : start + len(block)]).any(axis=1)
        )

    return np.concatenate(
        [np.zeros(0, bool), *in_order(right, cut(blocks, layer.block_rows))]
    )


def label_shortfalls(
    lattice: Lattice,
    blocks: Iterable[Int8],
    label_sets: NDArray[np.bool_],
    weights: Float,
    offsets: Float | None,
    clip: float,
    of_records: Callable[[slice], Int64],
) -> Int64:
    """Sum each record's label set minus the probabilities of its classes, shape (n_classes,), clipped and weighted.

    Divide by `RESOLUTION` and multiply by clip. A record adds at most `RESOLUTION`, as
    a residual of `SoftmaxGradient`.
    """
    check_clip(clip)
    layer = IntegerLayer(weights, offsets, lattice)
    total = np.zeros(len(weights), np.int64)

    def exact_sum(item: tuple[int, Int8]) -> Int64:
        start, block = item
        part = slice(start, start + len(block))
        residuals = label_residuals(label_sets, part, layer.logits(block))
        return np.asarray(
            on_grid(*residuals, clip, of_records(part)).sum(axis=1), np.int64
        )

    for exact in in_order(exact_sum, cut(blocks, layer.block_rows)):
        total += exact
    return total


def label_residuals(
    label_sets: NDArray[np.bool_], part: Any, logits: Float32
) -> tuple[Float32, Float32]:
    """Return the label sets of a part minus the logistic function of logits, of shape (n_classes, n), and their norms."""
    positive = logits > 0
    r = exp_of(-np.abs(logits))
    r /= 1 + r  # the smaller of p and 1 - p
    # Of a label that a record has, 1 - p, and of another -p.
    present = label_sets[part].T
    r = np.where(positive == present, r, 1 - r)
    np.negative(r, out=r, where=~present)
    return r, np.sqrt(sum_of_rows(np.square(r)))
