"""Labels and class lists; errors about files never quote their content.

A label outside the class list neither stops reading nor is named: whether a record is
well formed is private.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dppl.errors import InputError
from dppl.io.records.urls import shown_as
from dppl.kernel.reading import characters_only

AnyPath = str | os.PathLike[str]
Array = npt.NDArray[Any]

PLAIN = "write it again with NumPy, as numbers or strings and not as Python objects"
_INT64 = np.iinfo(np.int64)
_SUFFIXES = (".npy", ".txt")
SEPARATOR = ";"  # of several labels in a text, where nobody names one
X_NAMES = ("X", "embedding", "embeddings")  # where there is no x
_FALLBACKS = {"x": X_NAMES, "y": ("label", "labels")}
_BYTE_ORDER_MARK = "\ufeff"
# An integer as `str` writes it, so that text -> integer -> text changes nothing ("01"
# stays text).
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


@contextmanager
def converting(promise: str, hint: str = "write it again") -> Iterator[None]:
    """Turn any error of another library about a file into one line that quotes nothing."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(
            f"{promise}; there is no such file or folder; check the path"
        ) from None
    except PermissionError:
        raise InputError(
            f"{promise}; there is no permission to read it; {hint}"
        ) from None
    except Exception as error:  # a damaged file may raise anything, and its text may quote what could not be read
        if isinstance(error, UnicodeDecodeError):
            what = "bytes that are not UTF-8"
        elif isinstance(error, IsADirectoryError):
            what = "a folder"
        else:
            what = type(error).__name__
        raise InputError(f"{promise}; got {what}; {hint}") from None


def listed(names: Iterable[str]) -> str:
    """Return names of columns as messages list them."""
    return ", ".join(map(repr, names)) or "none"


def choose_column(
    names: Sequence[str], parameter: str, name: str | None, place: object
) -> str | None:
    """Choose the column of rows ("x") or labels ("y", None without any); only default names have fallbacks."""
    spare = _FALLBACKS[parameter] if name == parameter else ()
    chosen = next((one for one in (name, *spare) if one in names), None)
    if chosen is None and name not in (None, "y"):
        text = f"must name an array or column of {place}; it has no {name!r}; there are {listed(names)}."
        raise InputError(text, parameter=parameter)
    if chosen is not None and names.count(chosen) > 1:
        raise InputError(
            f"{place} must hold each column once; a name is repeated; rename the other columns"
        )
    return chosen


def read_classes(path: AnyPath, *, several: bool = False) -> Array:
    """Read a public class list: a UTF-8 text file with one class on each line.

    Parameters
    ----------
    path : path-like
        Blank lines and white space around a class are ignored.
    several : bool, default=False
        Whether the task is multi-label; a single class is allowed then.

    Returns
    -------
    ndarray of shape (n_classes,)
        In the order of the file; int64 if every class is an integer as Python writes it
        (so not "01"), else strings.

    Raises
    ------
    InputError
        If the file is missing, not UTF-8 or empty, names a class twice, or names a
        single one.
    """
    source = Path(path)
    lines: dict[str, int] = {}
    for number, name in enumerate(_lines(source), 1):
        # Errors name lines, not texts: a file that is named by mistake may be private.
        if name in lines:
            once = f"must name each class once, on a line; line {number} repeats line {lines[name]}"
            raise InputError(
                f"{source} {once}; remove the repetition, or name another file"
            )
        if name:
            lines[name] = number
    names = list(lines)
    if not names:
        raise InputError(
            f"{source} must name at least one class; it is empty; write one class on each line"
        )
    if len(names) == 1 and ("," in names[0] or not several):
        if "," in names[0]:
            got = "one line with commas"
        else:
            got = "a single class"
        raise InputError(
            f"{source} must name two classes or more, each on its own line; got {got}; write one class on each line"
        )
    whole = all(
        _INTEGER.fullmatch(name) and _INT64.min <= int(name) <= _INT64.max
        for name in names
    )
    return np.array([int(name) for name in names] if whole else names)


def type_name(array: Array) -> str:
    """Return the name of an array's type, without the width of texts: that is the length of the longest value."""
    return {"S": "bytes", "U": "text", "V": "records"}.get(
        array.dtype.kind, array.dtype.name
    )


def load_npy(path: Path) -> Array:
    """Map an npy file read-only; never runs the code of pickled objects."""
    with converting(f"{shown_as(path)} must be an npy file that NumPy can map", PLAIN):
        # Not np.load: that reads a zip or a pickle too, whatever the suffix says.
        return np.lib.format.open_memmap(path, mode="r")


def stored_labels(y: npt.ArrayLike, *, name: str = "y") -> Array:
    """Return labels as int64, unicode strings or, where one long text would widen all others, str objects."""
    with converting(
        f"{name} must be an array", "pass an ndarray, or lists of equal length"
    ):
        array = np.asarray(y)
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.ndim != 1:
        raise InputError(
            f"{name} must have one dimension; got {array.ndim}; pass one label for each row"
        )
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array):
        return array
    if array.dtype.kind == "U":
        return characters_only(array)
    if array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64):
        raise InputError(
            f"{name} must hold integers (at most 64 bits, signed) or strings; got {type_name(array)}; "
            "convert the labels with astype(int) or astype(str)"
        )
    return array.astype(np.int64, copy=False)


def labels_of_file(stored: Array, name: str) -> Array:
    """Return the labels of a file; texts as objects, so that "3" names the class 3 (`kernel.reading`)."""
    labels = np.array(stored_labels(stored, name=name))
    if labels.dtype.kind == "U":
        return labels.astype(object)
    return labels


def read_label_file(path: AnyPath) -> Array:
    """Read one label for each row, from an npy file or from the lines of a text file, which are always strings."""
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(
            f"labels must end in {', '.join(_SUFFIXES)}; got {Path(shown_as(file)).name!r}; convert the file"
        )
    if suffix == ".npy":
        return labels_of_file(load_npy(file), shown_as(file))
    return np.array(_lines(file), dtype=object)


def _lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 text, without the white space around them."""
    # The encoding belongs to the file, and not to a label.
    with converting(
        f"{shown_as(path)} must be a UTF-8 text file",
        "name another file, or save it as UTF-8",
    ):
        text = path.read_bytes().decode()
    if text in ("", _BYTE_ORDER_MARK):
        return []
    # Not splitlines: that also cuts at form feeds and other characters which may be
    # part of a name. Each line may begin with a byte order mark, as where two files
    # were joined.
    return [
        line.removeprefix(_BYTE_ORDER_MARK).strip()
        for line in text.removesuffix("\n").split("\n")
    ]
