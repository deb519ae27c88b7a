"""Turning whatever a file or array raises into one line that quotes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dppl.errors import InputError

Array = npt.NDArray[Any]
PLAIN = "write it again with NumPy, as numbers or strings and not as Python objects"


def as_array(values: npt.ArrayLike, name: str) -> Array:
    with converting(f"{name} must be an array", "pass an ndarray, or lists of equal length"):
        return np.asarray(values)


def type_name(array: Array) -> str:
    """Return the name of an array's type, without the width of texts: that is the length of the longest value."""
    return {"S": "bytes", "U": "text", "V": "records"}.get(array.dtype.kind, array.dtype.name)


@contextmanager
def converting(promise: str, hint: str = "write it again") -> Iterator[None]:
    """Turn whatever another library raises about a file into one line; see the module docstring."""
    try:
        yield
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"{promise}; there is no permission to read it; {hint}") from None
    except Exception as error:  # a damaged file may raise anything, and its text may quote what could not be read
        raise InputError(f"{promise}; got {type(error).__name__}; {hint}") from None


def load_npy(path: Path) -> Array:
    """Map an npy file read-only; never runs the code of pickled objects."""
    with converting(f"{path} must be an npy file that NumPy can map", PLAIN):
        # Not np.load: that reads a zip or a pickle too, whatever the suffix says.
        return np.lib.format.open_memmap(path, mode="r")


def check_rows(rows: Array, name: str) -> None:
    """Refuse what is not a matrix of numbers."""
    if rows.ndim != 2 or rows.shape[1] < 1:
        got = f"{rows.ndim} dimensions" if rows.ndim != 2 else "no columns"
        raise InputError(f"{name} must have two dimensions, rows and features; got {got}; pass a row a record")
    if rows.dtype.kind not in "iuf" or rows.dtype.itemsize > 8:
        raise InputError(
            f"{name} must hold floats (16, 32 or 64 bits) or integers; got {type_name(rows)}; "
            "convert the rows with astype(numpy.float32)"
        )
