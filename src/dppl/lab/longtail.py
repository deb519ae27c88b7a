"""Long-tailed subsets of labelled evaluation data, as DPPL-v1 (arXiv:2406.08039) draws them."""

import math

import numpy as np
import numpy.typing as npt

from dppl._utils import validate
from dppl.errors import InputError, ParameterError
from dppl.io.records.labels import stored_labels


def long_tailed_sizes(
    n_max: int, n_classes: int, imbalance_ratio: float
) -> npt.NDArray[np.int64]:
    """Return class sizes that fall exponentially from the largest class to the smallest.

    They are n_max·exp(-c·ln(IR)/C) at C evenly spaced points c from 0 to C, rounded to
    the nearest integer; each is at least one row. Two means in table 1 of DPPL-v1 do
    not follow from this formula (CIFAR10 at IR 50: 1400; FOOD101 at IR 10: 294).

    Parameters
    ----------
    n_max : int
        Rows of the largest class, at least 1.
    n_classes : int
        Number of classes C, at least 1.
    imbalance_ratio : float
        Largest size divided by the smallest, IR; finite and at least 1. 1 gives equal
        sizes.

    Examples
    --------
    >>> long_tailed_sizes(500, 5, 10).tolist()
    [500, 281, 158, 89, 50]
    """
    validate.positive_integer(n_max=n_max, n_classes=n_classes)
    validate.positive(imbalance_ratio=imbalance_ratio)
    if imbalance_ratio < 1:
        raise ParameterError(
            f"must be at least 1; got {imbalance_ratio!r}.", parameter="imbalance_ratio"
        )
    points = np.linspace(0.0, n_classes, n_classes)
    exact = n_max * np.exp(-points * math.log(imbalance_ratio) / n_classes)
    return np.array(np.maximum(np.rint(exact), 1), dtype=np.int64)


def long_tailed(
    y: npt.ArrayLike, imbalance_ratio: float, random_state: int
) -> npt.NDArray[np.int64]:
    """Choose rows so that the class sizes have a long tail, as DPPL-v1 does (section 5 and appendix B.2).

    The largest class keeps as many rows as the smallest class of `y` has. Which class
    is large and which small, and which rows stay, is drawn with `random_state`; rows
    are drawn without replacement. The choice depends on the true class counts, so it is
    for evaluation data that need no protection.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels: integers or strings.
    imbalance_ratio : float
        Largest size divided by the smallest; finite and at least 1.
    random_state : int
        The same integer gives the same rows.
    """
    labels = stored_labels(y)
    members = [np.flatnonzero(labels == name) for name in np.unique(labels)]
    if not members:
        raise InputError("y must have a label; it is empty.")
    sizes = long_tailed_sizes(min(map(len, members)), len(members), imbalance_ratio)
    generator = np.random.default_rng(random_state)
    # First which class has which size, then which of its rows stay.
    drawn = zip(generator.permutation(len(members)), sizes, strict=True)
    chosen = [
        generator.choice(members[place], size=size, replace=False)
        for place, size in drawn
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)
