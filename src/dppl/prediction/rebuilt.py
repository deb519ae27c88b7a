"""Records rebuilt from their own values, for a classifier that is not dppl's.

The type of an array or column, and of what stands in it, follows from all of its
records: one missing number makes floats of integers, one text makes objects of numbers,
and categories list what others hold. So a record is made again from its values alone.
Every number becomes a float, and a cell or row of numbers an array of floats, of a
precision that the classifier decides; anything else becomes Python objects. The names
and number of columns and the shape of a row are taken as public.

An object may refer to other records. Only plain values, which cannot, are handed over;
a record with another one raises.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

from dppl._utils.types import Array
from dppl.errors import InputError

NUMBERS = "fiub"  # kinds of types
_NOT_PLAIN = "X must hold plain values."


def rebuilt(rows: Any, precision: Any = np.float64) -> Any:
    """Return records of an array, a frame, a column, a sparse matrix or a list as new ones of the same values.

    A frame counts its rows from 0, and a missing value is NaN in arrays and columns.
    Numbers of an array get the given precision.
    """
    if hasattr(rows, "iloc"):
        return _frame(rows) if rows.ndim == 2 else _series(rows, rows.name)
    if hasattr(rows, "tocoo"):
        return _sparse(rows)
    if isinstance(rows, list):
        return [_item(one) for one in rows]
    if rows.dtype.kind in NUMBERS:
        return _numbers(rows, precision)
    new = _objects(rows)
    return new.astype(precision) if _are_floats(new) else new


def _numbers(values: Any, precision: Any) -> Array:
    """Return numbers with one zero and one NaN: reading and arithmetic choose signs of these."""
    new = np.array(values, precision, order="C")
    new[new == 0] = 0
    new[np.isnan(new)] = np.nan
    return new


def _objects(rows: Array) -> Array:
    new = np.empty(rows.size, object)
    for place, one in enumerate(rows.ravel().tolist()):
        new[place] = _cell(one)
    return new.reshape(rows.shape)


def _are_floats(values: Array) -> bool:
    return all(type(one) is float for one in values.flat)


def _frame(rows: Any) -> Any:
    import pandas as pd  # whoever hands a frame in has it

    columns = [_series(rows.iloc[:, place], None) for place in range(rows.shape[1])]
    frame = pd.DataFrame(dict(enumerate(columns)), index=range(len(rows)))
    frame.columns = list(rows.columns)
    return frame


def _series(column: Any, name: Any) -> Any:
    import pandas as pd

    values = _objects(np.asarray(column, object))
    # A missing value stays an object: in a column of texts others would be objects, too.
    numbers = _are_floats(values) and not np.isnan(values.astype(np.float64)).any()
    return pd.Series(values, dtype=np.float64 if numbers else object, name=name)


def _sparse(rows: Any) -> Any:
    """Return rows in the order of their columns and without zeros, which blocks of rows share."""
    some = rows.tocoo()
    values = _numbers(some.data, np.float64)
    kept = values != 0
    places = (some.row[kept], some.col[kept])
    return type(rows)((values[kept], places), shape=rows.shape)


def _item(one: Any) -> Any:
    """Return a record of a list: a plain value, or plain values in a list or dictionary."""
    if isinstance(one, dict):
        # The order, and keys without a value, may be those of other records.
        plain = {str(_plain(key)): _plain(value) for key, value in one.items()}
        return {key: plain[key] for key in sorted(plain) if plain[key] is not None}
    if isinstance(one, list | tuple):
        return [_cell(each) for each in one]
    return _plain(one)


def _cell(one: Any) -> Any:
    value = _plain(one)
    return np.nan if value is None else value


def _plain(one: Any) -> Any:
    """Return a value as Python has it: a number as a float, None for a missing one, times in UTC if in a zone.

    They are new objects: which cells share one may follow from other records.
    """
    if isinstance(one, np.datetime64):
        # In a year that Python has not, a number; of pandas an error.
        if type(one.astype("M8[D]").item()) is int:
            raise InputError(_NOT_PLAIN)
        one = one.astype("M8[us]")
    # A time difference gets the unit of others, and is not plain.
    if isinstance(one, np.generic) and not isinstance(one, np.timedelta64):
        one = one.item()
    pandas: Any = sys.modules.get("pandas")
    if one is np.ma.masked or (pandas and (one is pandas.NA or one is pandas.NaT)):
        return None
    if isinstance(one, complex | np.complexfloating) and not one.imag:
        one = one.real
    if isinstance(one, bool | int | float | Decimal | Fraction | np.floating):
        return None if one != one else float(one) + 0.0  # of zeros, the positive one
    # Arrays of texts or bytes drop NULs at the end.
    if isinstance(one, str):
        return ("x" + str.rstrip(one, "\0"))[1:]
    if isinstance(one, bytes):
        return (b"x" + bytes.rstrip(one, b"\0"))[1:]
    if hasattr(one, "to_pydatetime"):
        one = one.to_pydatetime(warn=False)
    if type(one) is date:
        one = datetime(one.year, one.month, one.day)
    if type(one) is datetime:
        # pandas forgets which of two hours it is when clocks go back.
        one = one.astimezone(UTC) if one.tzinfo else one
    if type(one) is UUID:
        return UUID(int=one.int)
    if type(one) is datetime or (type(one) is time and one.tzinfo is None):
        return one.replace(fold=0)
    if one is not None:
        raise InputError(_NOT_PLAIN)
    return one
