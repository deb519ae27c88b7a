"""Records rebuilt from their own values, for a classifier that is not dppl's.

The type of an array or column, and of what stands in it, follows from all of its
records: one long text widens an array, one missing number makes floats of integers, one
text makes objects of numbers, and categories list what others hold. So a record is made
again from its values alone. Every number becomes a float, and a cell or row of numbers
an array of float64; anything else becomes Python objects. The names and number of
columns and the shape of a row are taken as public, and so is that an array is of
float16 or float32, which it stays.

An object may refer to other records. Only plain values, which cannot, are handed over;
a record with another one raises.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

from dppl._utils.types import Array
from dppl.errors import InputError

_PLAIN = (type(None), complex, date, datetime, time, timedelta, UUID)
_NUMBERS = "fiub"


def rebuilt(rows: Any) -> Any:
    """Return records of an array, a frame, a column, a sparse matrix or a list as new ones of the same values.

    A frame counts its rows from 0, and a missing value is NaN in arrays and columns.
    """
    if hasattr(rows, "iloc"):
        if rows.ndim == 2:
            return _frame(rows)
        return _series(rows, rows.name)
    if hasattr(rows, "tocsr"):
        return _sparse(rows)
    if isinstance(rows, list | tuple):
        return [_item(one) for one in rows]
    return _array(rows)


def _array(rows: Any) -> Array:
    masked = None
    if isinstance(rows, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(rows)
    rows = np.asarray(rows)
    numbers = rows.dtype.kind in _NUMBERS
    if numbers:
        new = np.array(rows, _float(rows.dtype), order="C")
    else:
        new = _objects(rows)
    if masked is not None:
        new[masked] = np.nan
    if new.dtype == object and all(type(one) is float for one in new.flat):
        return new.astype(np.float64)
    return new


def _float(kind: Any) -> Any:
    """Return the type that numbers of another type become."""
    kept = kind.kind == "f" and kind.itemsize < 8
    if kept:
        return np.dtype(f"f{kind.itemsize}")
    return np.dtype(np.float64)


def _objects(rows: Array) -> Array:
    if rows.dtype.kind == "M":
        rows = rows.astype("M8[us]")
    new = np.empty(rows.size, object)
    for place, one in enumerate(rows.ravel().tolist()):
        value = _plain(one)
        new[place] = np.nan if value is None else value
    return new.reshape(rows.shape)


def _frame(rows: Any) -> Any:
    import pandas as pd  # whoever hands a frame in has it

    columns = [_series(rows.iloc[:, place], None) for place in range(rows.shape[1])]
    frame = pd.DataFrame(dict(enumerate(columns)), index=range(len(rows)))
    frame.columns = list(rows.columns)
    return frame


def _series(column: Any, name: Any) -> Any:
    import pandas as pd

    # A missing value stays an object: in a column of texts others would be objects, too.
    values = _objects(np.asarray(column, object))
    numbers = all(type(one) is float and one == one for one in values)
    return pd.Series(values, dtype=np.float64 if numbers else object, name=name)


def _sparse(rows: Any) -> Any:
    # The constructor chooses types of indices by what they are.
    places = (np.array(part, np.int64) for part in (rows.indices, rows.indptr))
    return type(rows)(
        (np.array(rows.data, _float(rows.dtype)), *places), shape=rows.shape
    )


def _item(one: Any) -> Any:
    """Return a record of a list: a plain value, an array, or plain values in a list or dictionary."""
    if isinstance(one, dict):
        # The order, and keys without a value, may be those of other records.
        plain = {str(_plain(key)): _plain(value) for key, value in one.items()}
        return {key: plain[key] for key in sorted(plain) if plain[key] is not None}
    if isinstance(one, list | tuple):
        return [np.nan if (value := _plain(each)) is None else value for each in one]
    if isinstance(one, np.ndarray):
        return _array(one)
    return _plain(one)


def _plain(one: Any) -> Any:
    """Return a value as Python has it: a number as a float, None for a missing one, times in UTC if in a zone."""
    if isinstance(one, np.datetime64):
        one = one.astype("M8[us]")
    # A time difference without a unit of its own gets the unit of others.
    if isinstance(one, np.generic) and not isinstance(one, np.timedelta64):
        one = one.item()
    pandas: Any = sys.modules.get("pandas")
    if pandas is not None and (one is pandas.NA or one is pandas.NaT):
        return None
    if isinstance(one, bool | int | float | Decimal | Fraction):
        return None if one != one else float(one)
    if isinstance(one, complex) and not one.imag:
        return one.real
    # Arrays of texts or bytes drop NULs at the end.
    if isinstance(one, str):
        return one.rstrip("\0")
    if isinstance(one, bytes):
        return one.rstrip(b"\0")
    if hasattr(one, "to_pydatetime"):
        one = one.to_pydatetime(warn=False)
    if hasattr(one, "to_pytimedelta"):
        one = one.to_pytimedelta()
    if type(one) is datetime and one.tzinfo is not None:
        one = one.astimezone(UTC)
    if type(one) not in _PLAIN or (type(one) is time and one.tzinfo is not None):
        raise InputError("X must hold plain values.")
    return one
