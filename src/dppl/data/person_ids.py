"""Whose each record of a table is: ids of persons, which are private."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dppl.data._layouts import files_beside, npy_shards, parquet_shards, shards_folder
from dppl.data._npy import outline_of
from dppl.data._parquet import is_text, open_parquet
from dppl.data._places import Place
from dppl.data._reading import Array, by_suffix, converting, load_npy, type_name
from dppl.data.labels import AnyPath
from dppl.errors import InputError
from dppl.kernel.persons import texts_apart

__all__ = ["read_ids"]

_ID, _REFERENCE = "id", "reference"  # of records, in tables that dppl embed writes
ID_KINDS = "integers, texts, bytes or floats"  # in messages; truth values are integers
_ID_TYPES = (
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
        The table: ``.npy``, ``.npz``, ``.parquet``, or a folder of shards, as of `read_table`.
    column : str
        Name of the array or column: integers, texts, bytes, or floats that hold integers. A ``.npy`` table has none;
        there it is the path of a second ``.npy`` file, with one id a row.

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
        readers = {".npy": _file_ids, ".npz": _array_ids, ".parquet": _column_ids}
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
    promise = f"{place} must be an npz file that NumPy can read"
    hint = "write it again with numpy.savez, as numbers and strings and not as Python objects"
    with converting(promise, hint), place.opened() as file, np.load(file, allow_pickle=False) as archive:
        names = list(archive.files)
        ids = np.asarray(archive[name]) if name in names else None
    if ids is None:
        raise _no_ids(place, name, names)
    return _items(ids, f"an array of {place}", repr(name))


def _file_ids(place: Place, name: str) -> list[Any]:
    """Return the items of an npy file beside a table that is one."""
    own = Path(name)
    if own.suffix.lower() != ".npy" or not own.is_file():
        raise InputError(
            f"must name a .npy file with one id a row of {place}, which has no columns; got {name!r}.",
            parameter="groups",
        )
    ids = _items(load_npy(own), "a file", str(own))
    if outline_of(place).rows != len(ids):
        raise InputError(
            f"must name a file with one id a row of {place}; {own} has another number of ids.", parameter="groups"
        )
    return ids


def _items(ids: Array, what: str, name: str) -> list[Any]:
    if ids.ndim != 1 or ids.dtype.kind not in "iubfUS":
        raise InputError(
            f"must name {what} with one id a record ({ID_KINDS}); {name} holds {type_name(ids)}, ndim = {ids.ndim}; "
            "name another.",
            parameter="groups",
        )
    return list(texts_apart(np.asarray(ids)))


def _column_ids(place: Place, name: str) -> list[Any]:
    """Return the items of a Parquet column."""
    with open_parquet(place) as file:
        names = file.schema_arrow.names
        if names.count(name) != 1:
            raise _no_ids(place, name, names)
        if name in (_ID, _REFERENCE) and {_ID, _REFERENCE} <= set(names):
            raise InputError(
                f"must name a column with ids of persons; {name!r} of {place} tells records apart, not persons; embed "
                "the records again, with ids of persons.",
                parameter="groups",
            )
        kind = file.schema_arrow.field(name).type
        if id_type(kind) is None:
            raise InputError(
                f"must name a column of {place} with {ID_KINDS}; {name!r} holds {kind}; name another.",
                parameter="groups",
            )
        with converting(f"{place}: column {name!r} must hold {ID_KINDS}", "write it again"):
            return ids_of(file.read(columns=[name]).column(name))


def id_type(kind: Any) -> Any:
    """Return the type of the ids in an Arrow column, without its dictionary; None if it is not one of ids."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind if any(of_kind(kind) for of_kind in _ID_TYPES) or is_text(kind) else None


def ids_of(column: Any) -> list[Any]:
    """Return the ids in an Arrow column; texts that are not UTF-8 stay apart from each other."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    texts = is_text(column.type)
    # Arrow's own decoding stops at the first that is not UTF-8.
    column = column.cast(pa.large_binary()) if texts else column
    # Equal ids are one object, because a person may have many records.
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    encoded = pa.chunked_array(chunks, column.type).dictionary_encode().unify_dictionaries()
    values = [one for chunk in encoded.chunks[:1] for one in chunk.dictionary.to_pylist()]
    items = np.empty(len(values) + 1, object)  # the last one is None
    items[:-1] = [one.decode("utf-8", "surrogateescape") for one in values] if texts else values
    return [one for chunk in encoded.chunks for one in items[chunk.indices.fill_null(len(values)).to_numpy()]]


def _no_ids(place: Place, name: str, names: Iterable[str]) -> InputError:
    there = ", ".join(map(repr, names))
    return InputError(
        f"must name one array or column of {place}; {name!r} does not; there are {there}.", parameter="groups"
    )
