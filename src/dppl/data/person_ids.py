"""Whose each record of a table is: ids of persons, which are private."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dppl.data._layouts import files_beside, npy_shards, parquet_shards, shards_folder
from dppl.data._parquet import is_text, open_parquet
from dppl.data._places import Place
from dppl.data._reading import Array, by_suffix, converting, type_name
from dppl.data.labels import AnyPath
from dppl.errors import InputError
from dppl.estimators.persons import texts_apart

__all__ = ["read_ids"]

_ID_KINDS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def read_ids(path: AnyPath, column: str) -> Array:
    """Read whose each record of a table is.

    Parameters
    ----------
    path : path-like
        The table: ``.npz``, ``.parquet``, or a folder of shards, as of `read_table`.
    column : str
        Name of the array or column: integers, texts, bytes, or floats that hold integers.

    Returns
    -------
    ndarray of shape (n,), object
        Ids as they are; None for a null. For `groups` of `fit`.

    Raises
    ------
    InputError
        If there is no such array or column, it is of another type, or of bytes in some shards only. The message shows
        no id.
    """
    place = Place.of(path)
    if place.is_folder():
        ids = [one for file in _files(place) for one in _column_ids(file, column)]
        if len({isinstance(one, bytes) for one in ids if one is not None}) > 1:
            raise InputError(f"must be texts or bytes in all shards of {place}; write one schema.", parameter="groups")
    else:
        place.check_not_empty()
        readers = {".npz": _array_ids, ".parquet": _column_ids}
        ids = by_suffix(Path(place.name), readers, "a table with ids of persons")(place, column)
    found = np.empty(len(ids), object)
    found[:] = ids
    return found


def _files(folder: Place) -> list[Place]:
    """Return the Parquet files with what is known of the rows of a folder, in their order."""
    inner = shards_folder(folder)
    if npy_shards(inner):
        beside = files_beside(inner)
        return [beside[number] for number in sorted(beside)]
    return parquet_shards(inner)


def _array_ids(place: Place, name: str) -> list[Any]:
    """Return the items of an array of an npz file."""
    promise = f"{place} must be a npz file that NumPy can read"
    hint = "write it again with numpy.savez, as numbers and strings and not as Python objects"
    with converting(promise, hint), place.opened() as file, np.load(file, allow_pickle=False) as archive:
        names = list(archive.files)
        ids = np.asarray(archive[name]) if name in names else None
    if ids is None:
        raise _no_ids(place, name, names)
    if ids.ndim != 1 or ids.dtype.kind not in "iubfUS":
        raise InputError(
            f"must name an array of {place} with one id a record, whole numbers or texts; {name!r} holds "
            f"{ids.ndim} dimensions of {type_name(ids)}; name another.",
            parameter="groups",
        )
    return list(texts_apart(ids))


def _column_ids(place: Place, name: str) -> list[Any]:
    """Return the items of a Parquet column."""
    with open_parquet(place) as file:
        names = file.schema_arrow.names
        if names.count(name) != 1:
            raise _no_ids(place, name, names)
        with converting(f"{place}: column {name!r} must hold integers or strings", "write it again"):
            column = file.read(columns=[name]).column(name)
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            kind = column.type
            if any(of_kind(kind) for of_kind in _ID_KINDS):
                return list(column.to_pylist())
            if is_text(kind):
                # Bytes that are no UTF-8 stay apart from each other; Arrow's own decoding stops at the first.
                ids = column.cast(pa.large_binary()).to_pylist()
                return [None if one is None else one.decode("utf-8", "surrogateescape") for one in ids]
    raise InputError(
        f"must name a column of {place} with whole numbers or texts; {name!r} holds {kind}; name another.",
        parameter="groups",
    )


def _no_ids(place: Place, name: str, names: Iterable[str]) -> InputError:
    there = ", ".join(map(repr, names))
    return InputError(
        f"must name one array or column of {place}; {name!r} does not; there are {there}.", parameter="groups"
    )
