"""From what a caller hands in to rows and class codes, saying nothing about single records on the way.

scikit-learn's own checks print offending values in their messages ("could not convert string to float: 'Jane Doe'"), so
arrays are checked here. Messages name shapes and dtypes only.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import type_of_target

from dppl import _validate
from dppl.errors import InputError, LabelSetWarning, ParameterError, UnknownLabelError
from dppl.lattice import RowSource, RowTable

UNKNOWN_LABELS = ("error", "ignore")

Codes = NDArray[np.intp]


def as_rows(X: Any, name: str = "X") -> RowSource:
    """Return `X` as a two-dimensional numeric array, or as it is if it is a table that streams.

    Raises
    ------
    TypeError, InputError
        If it is sparse, not numeric, complex, not two-dimensional or without columns.
    """
    if isinstance(X, RowTable) and not isinstance(X, np.ndarray):
        return X
    if sparse.issparse(X):
        raise TypeError(f"{name} is a sparse matrix, but dense data is required; use its toarray().")
    rows = _as_numbers(X, name)
    if rows.ndim != 2:
        raise InputError(
            f"Expected 2D array for {name}, shape (n_records, n_features); got {rows.ndim}D. Reshape your data, for "
            "instance with reshape(1, -1) for a single record."
        )
    if rows.shape[1] == 0:
        raise InputError(f"0 feature(s) (shape=({rows.shape[0]}, 0)) while a minimum of 1 is required for {name}.")
    return rows


def encoder_of(X: Any) -> str | None:
    """Return the encoder that a table names in its metadata, if it does."""
    metadata = getattr(X, "metadata", None)
    return metadata.get("encoder") if isinstance(metadata, dict) else None


def _as_numbers(X: Any, name: str) -> NDArray[Any]:
    try:
        rows = np.asarray(X)
        if rows.dtype == object:
            rows = rows.astype(np.float64)
    except (TypeError, ValueError):
        # "from None": the cause quotes the value it failed on.
        raise TypeError(
            f"{name} must be a rectangle of numbers; argument must be no string or other object but a number."
        ) from None
    if rows.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} has dtype {rows.dtype}.")
    if rows.dtype.kind not in "fiub":
        raise InputError(f"{name} must be real numbers; got dtype {rows.dtype}.")
    return rows


def as_labels(y: Any, rows: RowSource) -> NDArray[Any]:
    """Return `y` as a vector with one label per row.

    Raises
    ------
    InputError
        If it is missing, not a vector, or of another length than the rows.
    """
    if y is None:
        raise InputError("requires y to be passed, but the target y is None.")
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; its only column is used.",
            DataConversionWarning,
            stacklevel=4,
        )
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"y must be one label per row, shape (n_records,); got {labels.ndim} dimensions.")
    if len(labels) != rows.shape[0]:
        raise InputError("X and y must have the same number of rows; their numbers differ.")
    return labels


def public_classes(classes: ArrayLike | None, y: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted class list: the public one, or with a `LabelSetWarning` the labels that occur in `y`.

    Raises
    ------
    ParameterError
        If `classes` is empty or names a class twice.
    InputError
        If `y` has to serve and holds continuous values.
    """
    if classes is None:
        warnings.warn(
            "classes=None reads the class list from the private labels: which classes occur is then released without "
            "protection. Pass the public list of classes.",
            LabelSetWarning,
            stacklevel=4,
        )
        return _classes_of(y)
    given = np.asarray(classes)
    if given.ndim != 1 or not len(given):
        raise ParameterError(f"classes must be a non-empty list of labels; got shape {given.shape}.")
    unique = np.unique(given)
    if len(unique) != len(given):
        raise ParameterError("classes must name every class once.")
    return unique


def _classes_of(y: NDArray[Any]) -> NDArray[Any]:
    if not len(y):
        raise InputError("y holds no labels to read the class list from; pass classes.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else f"infinity or a value too large for {y.dtype!r}"
        raise InputError(f"Input y contains {what}. It cannot serve as the class list; pass classes.")
    try:
        kind = type_of_target(y, input_name="y")
        if kind not in ("binary", "multiclass"):
            raise InputError(f"Unknown label type: {kind}. Labels must be classes, not measurements.")
        return np.asarray(np.unique(y))
    except TypeError:
        raise InputError("y mixes kinds of labels that cannot be sorted; pass classes.") from None


def class_codes(y: NDArray[Any], classes: NDArray[Any], unknown_labels: str) -> Codes:
    """Return the position of each label in the sorted `classes`, -1 for a label outside (with ``"ignore"``).

    Raises
    ------
    UnknownLabelError
        With ``unknown_labels="error"``, if any label lies outside. The message does not show it.
    """
    _validate.one_of(UNKNOWN_LABELS, unknown_labels=unknown_labels)
    position = {label: code for code, label in enumerate(classes.tolist())}
    codes = np.fromiter((_lookup(position, label) for label in y.tolist()), np.intp, len(y))
    if unknown_labels == "error" and (codes < 0).any():
        raise UnknownLabelError(
            f"every label must be one of the {len(classes)} classes, but at least one is not. `dppl check` shows its "
            "owner which; unknown_labels='ignore' leaves such records out."
        )
    return codes


def _lookup(position: dict[Any, int], label: Any) -> int:
    try:
        return position.get(label, -1)
    except TypeError:  # an unhashable label equals no class
        return -1
