"""From what a caller hands in to rows and class codes, each record by itself and without a word about any of them.

Two dangers are met here. scikit-learn's own checks print offending values ("could not
convert string to float: 'Jane Doe'"), so arrays are checked here and messages name
dtypes and parameters only. And NumPy finds one type for a whole list, so that a single
odd label or row would change how all others are read; labels in lists are therefore
matched one by one, and only real arrays keep their dtype.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping, Set
from contextlib import suppress
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dppl._utils import validate
from dppl.errors import Argument, InputError, ParameterError, UnknownLabelError
from dppl.kernel.lattice import RowSource, TensorRows, usable_rows
from dppl.kernel.lattice.stream import RowTable, as_numpy, is_tensor

UnknownLabels: TypeAlias = Literal["error", "ignore"]
UNKNOWN_LABELS: tuple[UnknownLabels, ...] = get_args(UnknownLabels)
Unusable: TypeAlias = Literal["error", "empty"]
UNUSABLE: tuple[Unusable, ...] = get_args(Unusable)

Codes = NDArray[np.intp]

_COLUMNS_SHOWN = 5
_WHOLE_TYPES = (None, "arrow.uuid", "arrow.bool8")
_LARGEST_EXACT_FLOAT = 2**53
_LONGEST_INTEGER = 2**128  # Python refuses to write very long ones; no class is one
_PLAIN = (str, bool, float, int)
UNMATCHED = object()
_KINDS = {"U": "texts", "T": "texts", "S": "bytes", "b": "booleans"} | dict.fromkeys(
    "iuf", "numbers"
)
_CASTS = {
    "texts": "to text (in Python {}.astype(str))",
    "numbers": "to integers (in Python {}.astype(int))",
    "booleans": "to booleans (in Python {}.astype(bool))",
}


def checked_inputs(
    X: Any, y: Any, several: Any = None
) -> tuple[RowSource, NDArray[Any]]:
    """Return rows and labels, whose shapes and kinds are checked; these are public except for the length.

    `several` is a `MultiLabel`, where a record may have several labels.
    """
    rows = as_rows(X)
    if several is None:
        return rows, as_labels(y, rows)
    return rows, several.checked(y, rows)


def as_rows(X: Any, name: str = "X") -> RowSource:
    """Return `X` as a two-dimensional array of real numbers, or as it is if it is a table that is not in memory.

    Only an array, tensor or table of dtype int8 keeps it (and counts as lattice rows);
    lists and frames become float64. Torch tensors share memory with the array where
    NumPy can read it, and stream otherwise.
    """
    if not isinstance(X, np.ndarray) and isinstance(X, RowTable):
        held = getattr(X, "held", None)
        if held is None:
            return X
        X = held
    sparse = sys.modules.get("scipy.sparse")  # whoever hands one in has imported it
    if sparse is not None and sparse.issparse(X):
        raise TypeError(
            f"{name} is a sparse matrix, but dense data is required; use its toarray()."
        )
    if is_tensor(X):
        table = TensorRows(X)
        like = as_numpy(X.new_empty((0, *X.shape[1:])))
        rows: RowSource = table if table.streams else as_numpy(X)
    else:
        ready = isinstance(X, np.ndarray) and X.dtype != object
        rows = like = X if ready else _as_floats(X, name)
    if like.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} must be real numbers.")
    if like.dtype.kind not in "fiub":
        raise InputError(
            f"{name} must be real numbers; got an array of another kind ({like.dtype.kind!r})."
        )
    if like.ndim != 2:
        hint = (
            "Reshape your data, for instance with reshape(1, -1) for a single record."
        )
        raise InputError(
            f"Expected 2D array for {name}, shape (n_records, n_features); got {like.ndim}D. {hint}"
        )
    if like.shape[1] == 0:  # the number of rows stays out of the message
        raise InputError(
            f"{name} must have at least one feature; got shape (n_records, 0)."
        )
    return rows


def _as_floats(X: Any, name: str) -> NDArray[Any]:
    with suppress(Exception):  # raised below, without one that could quote a value
        rows = np.asarray(X)
        if rows.dtype.kind in "fiubO":
            return rows.astype(np.float64)
        if rows.dtype.kind == "c":
            return rows
    # The columns of a frame whose types say that they are no numbers; the values are
    # not looked at.
    types: Any = getattr(X, "dtypes", None)
    columns = types.items() if hasattr(types, "items") else ()
    others = [
        repr(name) for name, kind in columns if getattr(kind, "kind", "O") not in "fiub"
    ]
    shown = ", ".join(others[:_COLUMNS_SHOWN]) + (
        ", ..." if len(others) > _COLUMNS_SHOWN else ""
    )
    raise TypeError(
        f"{name} must be rows of numbers, all of one length; an entry of the argument must be neither a string nor "
        f"another object, but a number.{f' Columns of other types: {shown}.' if others else ''} dppl.io.read_table "
        "reads a path, and PrivateClassifier takes images, texts and tables."
    )


def as_labels(
    y: Any, rows: RowSource, names: tuple[str, str] = ("X", "y")
) -> NDArray[Any]:
    """Return `y` as a vector with one label per row: an array in its own dtype, anything else as objects."""
    if y is None:
        raise InputError(
            f"requires {names[1]} to be passed, but the target {names[1]} is None."
        )
    if is_tensor(y):
        y = as_numpy(y)
    is_column = any(
        hasattr(y, name) for name in ("to_list", "to_pylist")
    ) and not hasattr(y, "columns")
    if is_column and not isinstance(getattr(y, "dtype", None), np.dtype):
        y = _items(y, names[1])
    one_each = f"{names[1]} must be {'one id' if names[1] == 'groups' else 'one label'} per row"
    if hasattr(y, "dtype") or hasattr(y, "__array__"):
        labels = np.asarray(y)
    elif not hasattr(y, "__iter__") or isinstance(y, str | bytes | Set | Mapping):
        raise InputError(
            f"{one_each}, in the order of the rows; got a {type(y).__name__}."
        )
    else:
        labels = _as_objects(y)
    if labels.dtype.kind == "T":
        labels = labels.astype(object)
    if labels.dtype.kind == "U":
        labels = characters_only(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            f"A column-vector {names[1]} was passed when a 1d array was expected; its only column is used.",
            DataConversionWarning,
            stacklevel=5,
        )
        labels = labels[:, 0]
    if labels.ndim != 1:
        several = ""
        if names[1] != "groups":
            several = " Several labels a record are for the method 'multilabel'."
        raise InputError(
            f"{one_each}, shape (n_records,); got {labels.ndim} dimensions.{several}"
        )
    if len(labels) != rows.shape[0]:
        raise InputError(
            f"{names[0]} and {names[1]} must have the same number of rows; their numbers differ."
        )
    return labels


def _items(column: Any, name: str) -> Any:
    """Return a column of Arrow or of a frame as a list: where one is null NumPy would make floats of long integers."""
    with suppress(Exception):  # raised below, without one that could quote a value
        if hasattr(column, "to_pylist"):
            # Python has no nanoseconds, and NumPy no nulls except of times.
            if "[ns" in str(column.type):
                return np.asarray(column)
            return column.to_pylist()
        # Categories would be floats, and so would integers in Arrow's lists as objects.
        apart = hasattr(column, "astype") and not str(column.dtype).endswith(
            "[pyarrow]"
        )
        return (column.astype(object) if apart else column).to_list()
    raise InputError(
        f"{name} must be values that can be compared, such as texts or integers; write them as one of these."
    )


def value_type(kind: Any) -> Any:
    """Return the type of the values of an Arrow column: of a dictionary, of runs, or what an extension stores.

    UUIDs and truth values of a byte stay what they are: as bytes and integers they
    would be others.
    """
    while True:
        if hasattr(kind, "index_type") or hasattr(kind, "run_end_type"):
            kind = kind.value_type
        elif getattr(kind, "extension_name", None) not in _WHOLE_TYPES:
            kind = kind.storage_type
        else:
            return kind


def _as_objects(labels: Any) -> NDArray[Any]:
    """Return an array of items as they are: NumPy would choose one type for all, and look into sequences."""
    return np.fromiter(labels, object)


def characters_only(labels: NDArray[Any]) -> NDArray[Any]:
    """Put U+FFFD in the place of numbers that are not characters: making a str of one raises, or writing it does."""
    labels = labels.astype(labels.dtype.newbyteorder("="), copy=False)
    if not labels.dtype.itemsize:
        return labels
    codes = np.ascontiguousarray(labels).view(np.uint32)
    wrong = (codes > sys.maxunicode) | ((codes >= 0xD800) & (codes <= 0xDFFF))
    if wrong.any():
        return np.where(wrong, np.uint32(0xFFFD), codes).view(labels.dtype)
    return labels


def public_classes(
    classes: ArrayLike | None, *, in_order: bool = False
) -> NDArray[Any]:
    """Return the class list, sorted or in its order, after checking that it is one and names no class twice."""
    if classes is None:
        # Which classes occur among the private labels is private, and the model would
        # show it.
        raise ParameterError(
            "must be the public list of classes, never of labels; got None.",
            parameter="classes",
        )
    given = np.asarray(classes)
    if given.dtype.kind == "T":
        given = np.array(given.tolist())
    if given.ndim != 1 or not len(given):
        raise ParameterError(
            f"classes must be a non-empty list of labels; got shape {given.shape}."
        )
    # As they were given: NumPy drops a NUL at the end.
    texts = [
        label for label in np.array(classes, object).tolist() if isinstance(label, str)
    ]
    fits = given.dtype.kind in "Uib" or (
        given.dtype == object and len(texts) == len(given)
    )
    if given.dtype.kind in "fu":  # no file distinguishes larger integers
        fits = np.isfinite(given).all() and not (
            given.dtype.kind == "u" and given.max() > np.iinfo(np.int64).max
        )
    if not fits:
        raise ParameterError(
            f"classes must be texts or finite numbers, integers of 64 bits with a sign; got {given.dtype}."
        )
    if any(re.search("[\0\ud800-\udfff]", text) for text in texts):
        raise ParameterError(
            "classes must be texts without NUL and lone surrogates, which no file can hold."
        )
    first: dict[Any, int] = {}
    for place, key in enumerate(map(key_of_number, given.tolist())):
        # By its place, and not by its text: a list that is given by mistake may be
        # private.
        if first.setdefault(key, place) != place:
            repeated = f"number {place} repeats number {first[key]}, counted from 0"
            raise ParameterError(f"classes must name every class once; {repeated}.")
    return given.copy() if in_order else np.sort(given)


def class_codes(y: NDArray[Any], classes: NDArray[Any], unknown_labels: str) -> Codes:
    """Return the position of each label in the sorted `classes`, -1 for a label outside (with ``"ignore"``).

    With ``"error"`` the message shows neither it nor how many there are. Each label is
    matched by itself, whatever the others are, and numbers by value (1, 1.0). A number
    names no text. Among Python objects a text names the integer that it writes, since
    files of texts have no integers.
    """
    validate.one_of(UNKNOWN_LABELS, unknown_labels=unknown_labels)
    check_kind(y, classes)
    position = positions_of(classes)
    key = key_of(classes)
    codes = np.fromiter(
        (position.get(key(label), -1) for label in y.tolist()), np.intp, len(y)
    )
    if unknown_labels == "error":
        _refuse_form(y, codes, classes)
        refuse_unknown_labels(codes >= 0, classes, None)
    return codes


def check_kind(y: NDArray[Any], classes: NDArray[Any], name: str = "y") -> None:
    """Refuse an array of another kind than the class list. Its dtype is public; the kinds of objects are values.

    Without this, codes 0, 1, ... of labels would pass for classes named "0", "1", ...
    """
    expected = kind_of(classes)
    if y.dtype.kind != "O" and _KINDS.get(y.dtype.kind) != expected:
        got = _KINDS.get(y.dtype.kind, "another kind")
        cast = f"Cast it {_CASTS[expected].format(name)}"
        if y.dtype.kind == "S":
            cast = f"Decode it to text (in Python np.char.decode({name}))"
        elif y.dtype.kind == "U":
            cast += ", or list the classes as texts"
        elif (got, expected) == ("numbers", "texts"):
            cast += (
                " if they are names of classes. Codes, as scikit-learn's ensembles make "
                "of labels, need integer classes"
            )
        raise InputError(
            f"must hold {expected}, as the class list does; got {got}. {cast}.",
            parameter=name,
        )
    if (
        y.dtype.kind == "f"
        and classes.dtype.kind in "iu"
        and np.abs(classes).max() > _LARGEST_EXACT_FLOAT
    ):
        raise InputError(
            "classes above 2**53 cannot be distinguished as floats; pass y as an array of integers."
        )


def _refuse_form(y: NDArray[Any], codes: Codes, classes: NDArray[Any]) -> None:
    """Refuse objects that are rows of a matrix, or both texts and numbers that name classes.

    Objects say so only one by one, and only a fit that stops at an unknown label may
    stop here.
    """
    labels = y.tolist() if y.dtype.kind == "O" else []
    if labels and all(isinstance(one, list | tuple | np.ndarray) for one in labels):
        raise UnknownLabelError(
            "y must be one label per row, shape (n_records,); got 2 dimensions. Several labels a record are for the "
            "method 'multilabel'."
        )
    named = np.flatnonzero(codes >= 0) if labels else ()
    if len({isinstance(labels[place], str) for place in named}) > 1:
        expected = kind_of(classes)
        raise UnknownLabelError(
            f"must hold {expected}, as the class list does; got both texts and {expected}. Cast it "
            f"{_CASTS[expected].format('y')}.",
            parameter="y",
        )


def kind_of(classes: NDArray[Any]) -> str:
    """Return what classes are, in messages."""
    if classes.dtype == object:
        return "texts"
    return _KINDS[classes.dtype.kind]


def key_of(classes: NDArray[Any]) -> Callable[[Any], Hashable]:
    """Return the function of a label by which it is matched with these classes."""
    if kind_of(classes) == "texts":
        return _text
    return key_of_number


def positions_of(classes: NDArray[Any]) -> dict[Hashable, int]:
    """Return the position of each class, by what labels are matched by."""
    key = key_of(classes)
    return {key(label): code for code, label in enumerate(classes.tolist())}


def refuse_unknown_labels(
    known: NDArray[np.bool_], classes: NDArray[Any], several: Any
) -> None:
    """Stop at a label outside the list of classes."""
    if not known.all():
        if several is None:
            instead = "skip such records"
        else:
            instead = "drop such labels"
        raise UnknownLabelError(
            f"every label must be one of the {len(classes)} classes, which are {kind_of(classes)}; at least one is not. "
            f"`dppl check` shows its owner which. Add it to the list, or {instead} with ",
            Argument("unknown_labels", "ignore"),
            ". Several labels of one record need the method 'multilabel', and in texts a separator.",
        )


def codes_of_records(
    rows: RowSource,
    y: NDArray[Any],
    classes: NDArray[Any],
    unknown_labels: str,
    adjacency: str,
    allowed: Codes | None = None,
) -> Codes:
    """Return `class_codes` of private records, with -1 for those whose row cannot be used, whatever their label is.

    A row of NaN, infinity or only zeros has no direction. It does not count: that
    depends on the record alone, and so the records that are left are neighbours where
    all were. Under replace-one their number is public and must stay, so there such a
    row counts as a record, and is a row of zeros. Classes that are not among `allowed`
    positions are treated as labels outside the list.
    """
    if adjacency == "replace-one":
        codes = class_codes(y, classes, unknown_labels)
    else:
        codes = np.full(len(y), -1, np.intp)
        usable = usable_rows(rows)
        codes[usable] = class_codes(y[usable], classes, unknown_labels)
    if allowed is None:
        return codes
    return within_task(codes, allowed, unknown_labels)


def read_labels(
    rows: RowSource,
    y: NDArray[Any],
    classes: NDArray[Any],
    unknown_labels: str,
    adjacency: str,
    allowed: Codes | None,
    several: Any,
) -> tuple[Codes, NDArray[np.bool_] | None]:
    """Return `codes_of_records`; where a record may have several labels, codes of 0 or -1, and the label sets.

    A record without any label counts. With ``"ignore"`` a label outside the list is
    dropped, and its record stays.
    """
    if several is None:
        return codes_of_records(
            rows, y, classes, unknown_labels, adjacency, allowed
        ), None
    read: tuple[Codes, NDArray[np.bool_]]
    read = several.of_records(rows, y, classes, unknown_labels)
    return read


def within_task(codes: Codes, allowed: Codes, unknown_labels: str) -> Codes:
    """Return private codes with -1 for classes that the task may not hold, which are ignored or an error."""
    known = np.isin(codes, allowed)
    # Rows without a direction are -1 by now, and no error.
    if unknown_labels == "error" and (~known & (codes >= 0)).any():
        raise UnknownLabelError(
            "every label must be one of task_classes, but at least one is not."
        )
    return np.where(known, codes, -1)


def _text(label: Any) -> Hashable:
    """Return what a label is matched by among texts: a text itself, or nothing."""
    if isinstance(label, np.str_):
        label = label.item()
    return label if type(label) is str else UNMATCHED


def key_of_number(label: Any) -> Hashable:
    """Return what a label is matched by among numbers: the text of a whole number, a plain value itself, or nothing."""
    if isinstance(label, np.generic):
        label = label.item()
    if (
        type(label) in (int, float)
        and label == label // 1
        and abs(label) < _LONGEST_INTEGER
    ):
        return str(int(label))
    return label if type(label) in _PLAIN else UNMATCHED
