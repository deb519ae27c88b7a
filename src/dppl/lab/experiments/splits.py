"""Random parts of evaluation data, repeatable by a seed. No noise is drawn here."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["merged_classes", "moved_classes", "random_rows", "rows_of_classes", "validation_split"]

Rows = NDArray[np.int64]


def random_rows(n: int, size: int, seed: int) -> Rows:
    """Choose `size` of `n` rows without replacement.

    >>> random_rows(4, 4, seed=0).tolist()
    [0, 1, 2, 3]
    """
    return np.sort(np.random.default_rng(seed).choice(n, size=size, replace=False)).astype(np.int64)


def rows_of_classes(codes: NDArray[np.intp], size: ArrayLike, seed: int) -> Rows:
    """Choose `size` rows of each class, or one size a class, without replacement; those of smaller ones are among them.

    >>> rows = rows_of_classes(np.array([0, 1, 0, 1, 0]), 2, seed=0)
    >>> len(rows), 1 in rows, 3 in rows
    (4, True, True)
    """
    # Not the stream that a long-tailed subset is drawn from.
    order = np.random.default_rng((seed, 1)).permutation(len(codes))
    classes = np.unique(codes)
    sizes = np.broadcast_to(size, len(classes))
    chosen = [order[codes[order] == code][:most] for code, most in zip(classes, sizes, strict=True)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def moved_classes(n_classes: int, n_moved: int, seed: int) -> NDArray[np.intp]:
    """Give `n_moved` of the classes, at least two, the name of another of them each; the rest keep theirs.

    >>> moved = moved_classes(5, 4, seed=0)
    >>> int((moved != np.arange(5)).sum()), sorted(moved.tolist())
    (4, [0, 1, 2, 3, 4])
    """
    names = np.arange(n_classes)
    cycle = np.random.default_rng((seed, 2)).permutation(n_classes)[:n_moved]
    names[cycle] = np.roll(cycle, 1)
    return names


def merged_classes(n_classes: int, alone: int, groups: int, seed: int) -> NDArray[np.intp]:
    """Give each class the number of its new one: `alone` of them keep to themselves, or all are dealt into `groups`.

    >>> np.bincount(merged_classes(9, 2, 0, seed=0)).tolist(), np.bincount(merged_classes(9, 0, 2, seed=0)).tolist()
    ([1, 1, 7], [5, 4])
    """
    places = np.random.default_rng((seed, 4)).permutation(n_classes)
    return np.minimum(places, alone) if alone else places % groups


def validation_split(n: int, share: float, seed: int) -> tuple[Rows, Rows]:
    """Split `n` rows at random into a part to fit on and a part of about `share` to measure on, at least a row each.

    >>> fit, validation = validation_split(10, 0.2, seed=0)
    >>> len(fit), len(validation), sorted([*fit, *validation]) == list(range(10))
    (8, 2, True)
    """
    order = np.random.default_rng(seed).permutation(n).astype(np.int64)
    size = min(max(1, round(share * n)), n - 1)
    return np.sort(order[size:]), np.sort(order[:size])
