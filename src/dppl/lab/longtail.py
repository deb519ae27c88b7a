"""Long-tailed subsets of labelled evaluation data, as DPPL-v1 (arXiv:2406.08039) draws them."""

import math

import numpy as np
import numpy.typing as npt

from dppl import _validate
from dppl.errors import InputError, ParameterError, UnknownLabelError
from dppl.io.labels import as_labels
from dppl.kernel import classes_of_persons
from dppl.kernel.reading import class_codes
from dppl.metrics import person_numbers

__all__ = ["long_tailed", "long_tailed_sizes"]


def long_tailed_sizes(n_max: int, n_classes: int, imbalance_ratio: float) -> npt.NDArray[np.int64]:
    """Class sizes that fall exponentially from the largest class to the smallest.

    Parameters
    ----------
    n_max : int
        Rows of the largest class, at least 1.
    n_classes : int
        Number of classes C, at least 1.
    imbalance_ratio : float
        Largest size divided by the smallest, IR; finite and at least 1. 1 gives equal sizes.

    Returns
    -------
    ndarray of int64 of shape (n_classes,)
        n_max·exp(-c·ln(IR)/C) at C evenly spaced points c from 0 to C, rounded to the nearest integer;
        decreasing, and never below 1.

    Raises
    ------
    ParameterError
        If a parameter breaks its rule.

    References
    ----------
    .. [1] DPPL-v1, arXiv:2406.08039, section 5, appendix B.2 and table 1. Two means in that table do not
       follow from the formula (CIFAR10 at IR 50: 1400; FOOD101 at IR 10: 294); all other cells do.

    Examples
    --------
    >>> long_tailed_sizes(500, 5, 10).tolist()
    [500, 281, 158, 89, 50]
    """
    _validate.positive_integer(n_max=n_max, n_classes=n_classes)
    _check_ratio(imbalance_ratio)
    points = np.linspace(0.0, n_classes, n_classes)
    exact = n_max * np.exp(-points * math.log(imbalance_ratio) / n_classes)
    return np.array(np.maximum(np.rint(exact), 1), dtype=np.int64)


def long_tailed(
    y: npt.ArrayLike,
    imbalance_ratio: float,
    random_state: int | np.random.Generator,
    *,
    classes: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
) -> npt.NDArray[np.int64]:
    """Choose rows so that the class sizes have a long tail.

    The largest class keeps as many rows as the smallest class of `y` has. Which class is large and which
    small, and which rows stay, is drawn with `random_state`; rows are drawn without replacement.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels: integers or strings.
    imbalance_ratio : float
        Largest size divided by the smallest; finite and at least 1.
    random_state : int or numpy.random.Generator
        The same integer gives the same rows. A generator moves on.
    classes : array-like of shape (n_classes,), default=None
        The classes. None takes those that occur in `y`.
    groups : array-like of shape (n,), default=None
        Ids of the persons whose records these are. Then persons are chosen, each with all of their records, and sizes
        are numbers of persons, who count in the class of most of their records, as in `fit` with `groups`. Each
        missing id is one person.

    Returns
    -------
    ndarray of int64
        Row numbers, ascending.

    Raises
    ------
    InputError
        If `y` is not one-dimensional, holds something else than integers or strings, or lacks a class; or if `groups`
        are not one id a label.
    UnknownLabelError
        If `y` has a label that is not in `classes`.
    ParameterError
        If `imbalance_ratio` or `random_state` breaks its rule, or `classes` names one twice.

    Notes
    -----
    **Privacy.** None: the choice of rows depends on the true class counts. This is for experiments on
    evaluation data that need no protection.

    References
    ----------
    .. [1] DPPL-v1, arXiv:2406.08039, section 5 and appendix B.2.
    """
    _check_ratio(imbalance_ratio)
    generator = generator_of(random_state)
    labels = as_labels(y)
    public = np.unique(labels) if classes is None else as_labels(classes, name="classes")
    if len(set(map(str, public.tolist()))) != len(public):
        raise ParameterError("classes must name each class once; one occurs again; remove the repetition")
    units = class_codes(labels, public, "ignore")
    if (units < 0).any():
        raise UnknownLabelError("every label in y must be in classes; another one occurs; complete classes")
    if groups is not None:
        # Persons take the place of rows: each counts in the class of most of their records.
        persons = person_numbers(groups, len(labels))
        order = np.argsort(public)  # of as many records in two classes the one that sorts first counts
        units = order[classes_of_persons(np.argsort(order)[units], persons, len(public))[0]]
    members = [np.flatnonzero(units == code).astype(np.int64) for code in range(len(public))]
    if not members or min(map(len, members)) == 0:
        raise InputError("y must have a row of every class; at least one class has none; leave it out of classes")
    sizes = long_tailed_sizes(min(map(len, members)), len(members), imbalance_ratio)
    # First which class has which size, then which of its rows stay.
    drawn = zip(generator.permutation(len(members)), sizes, strict=True)
    chosen = np.concatenate([generator.choice(members[place], size=size, replace=False) for place, size in drawn])
    return np.sort(chosen) if groups is None else np.flatnonzero(np.isin(persons, chosen)).astype(np.int64)


def generator_of(random_state: object) -> np.random.Generator:
    """Return a generator as it is, and a new one of an integer of at least 0."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ParameterError(
            f"random_state must be an integer of at least 0 or a numpy.random.Generator; got {random_state!r}"
        )
    return np.random.default_rng(int(random_state))


def _check_ratio(value: object) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not 1 <= value < math.inf
    ):
        raise ParameterError(f"imbalance_ratio must be a finite number of at least 1; got {value!r}")
