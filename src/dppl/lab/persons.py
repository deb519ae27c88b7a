"""Persons of evaluation data: whose records are whose, and made-up ones where nobody stands behind the records."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl import _validate
from dppl.errors import InputError
from dppl.lab.longtail import generator_of

__all__ = ["simulated_persons"]


def simulated_persons(
    X: ArrayLike,
    y: ArrayLike,
    n_persons: int,
    random_state: int | np.random.Generator,
    *,
    largest: int = 50,
    share: float = 1.0,
    offset: float = 0.3,
) -> tuple[NDArray[np.float32], NDArray[np.generic], NDArray[np.int64]]:
    """Draw records of made-up persons from those of a data set, with a long-tailed number of records a person.

    A person has m records, from 1 to `largest`, with a probability in proportion to 1/m. Each record is of the person's
    home class with probability `share`, and of the class of any row else. It is a row of its class, drawn with
    replacement and brought to length 1, plus the offset of the person: normal, and about `offset` long.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
        Labels. Home classes are as frequent as they are here.
    n_persons : int
    random_state : int or numpy.random.Generator
        The same integer gives the same persons. A generator moves on.
    largest : int, default=50
        Most records that a person can have.
    share : float, default=1.0
        Above 0 and at most 1. 1 keeps each person in one class.
    offset : float, default=0.3
        At least 0; 0 leaves rows as they are.

    Returns
    -------
    X : ndarray of shape (n_records, d), float32
    y : ndarray of shape (n_records,)
    groups : ndarray of shape (n_records,), int64
        Ids from 0 to `n_persons` - 1, ascending. The records of a person are in random order.

    Raises
    ------
    ParameterError
        If a parameter breaks its rule.
    InputError
        If there are no rows, or not one label a row.

    Notes
    -----
    **Privacy.** None: records are copied. This is for experiments on evaluation data that need no protection.

    Examples
    --------
    >>> X, y, groups = simulated_persons(np.eye(4), ["a", "a", "b", "b"], 100, 0, largest=5)
    >>> X.shape[1], len(np.unique(groups)), int(np.bincount(groups).max())
    (4, 100, 5)
    """
    _validate.positive_integer(n_persons=n_persons, largest=largest)
    _validate.probability(share=share)
    _validate.not_negative(offset=offset)
    rng = generator_of(random_state)
    X, y = np.asarray(X, np.float32), np.asarray(y)
    if X.ndim != 2 or y.shape != X.shape[:1] or not len(y):
        raise InputError("X must be a matrix with at least one row, and y a vector with one label a row.")
    # Rows of length 1, so that an offset means the same for each.
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    X = X / np.where(lengths > 0, lengths, 1)
    sizes = np.arange(1, largest + 1)
    # Zipf: m records with a probability in proportion to 1/m.
    groups = np.repeat(np.arange(n_persons), rng.choice(sizes, n_persons, p=(1 / sizes) / (1 / sizes).sum()))
    home = y[rng.integers(len(y), size=n_persons)]
    # Each record is at home, or else of the class of any row.
    anywhere = y[rng.integers(len(y), size=len(groups))]
    labels = np.where(rng.random(len(groups)) < share, home[groups], anywhere)
    rows = np.empty((len(groups), X.shape[1]), np.float32)
    for name in np.unique(y):
        chosen = labels == name
        rows[chosen] = X[rng.choice(np.flatnonzero(y == name), chosen.sum())]
    # A normal vector of d coordinates is about √d long.
    offsets = rng.standard_normal((n_persons, X.shape[1])).astype(np.float32) / np.sqrt(X.shape[1])
    return (rows + offset * offsets[groups]).astype(np.float32), labels, groups
