"""Person IDs: whose each record of a table is. They are private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dppl.errors import InputError
from dppl.io._columns import ID_KINDS, check_column, decode_ids, id_type, listed, open_parquet
from dppl.io._places import Place, open_place
from dppl.io.fragments import open_npz, read_npy
from dppl.io.labels import AnyPath, Array, converting, load_npy, type_name
from dppl.io.tables import table_files
from dppl.kernel.persons import texts_apart


def read_ids(path: AnyPath, column: str) -> Array:
    """Read the person ID of each record of a table.

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
    place = open_place(path)
    files = table_files(place)
    if files[0].suffix == ".npz":
        with open_npz(place) as archive:
            if column not in archive.files:
                raise InputError(
                    f"must name one array of {place}; {column!r} is none; there are {listed(archive.files)}.",
                    parameter="groups",
                )
            ids = _items(np.asarray(archive[column]), place, column)
    elif files[0].suffix == ".npy":
        own = Path(column)
        if own.suffix.lower() != ".npy" or not own.is_file():
            raise InputError(
                f"must name a .npy file with one id a row of {place}, which has no columns; got {column!r}.",
                parameter="groups",
            )
        ids = _items(load_npy(own), place, str(own))
        if len(read_npy(place)) != len(ids):
            raise InputError(
                f"must name a file with one id a row of {place}; {own} has another number of ids.", parameter="groups"
            )
    else:
        ids = [one for file in files for one in _column_ids(file, column)]
        if len({isinstance(one, bytes) for one in ids if one is not None}) > 1:
            raise InputError(f"must be texts or bytes in all shards of {place}; write one schema.", parameter="groups")
    # NumPy would make one type of mixed ids, or an array of tuples.
    array = np.empty(len(ids), object)
    array[:] = ids
    return array


def _items(ids: Array, place: Place, name: str) -> list[Any]:
    """Return the items of an array, which must be ids."""
    if ids.ndim != 1 or ids.dtype.kind not in "iubfUS":
        raise InputError(
            f"must name an array for {place} with one id a record ({ID_KINDS}); {name!r} holds {type_name(ids)}, "
            f"ndim = {ids.ndim}; name another.",
            parameter="groups",
        )
    return list(texts_apart(np.asarray(ids)))


def _column_ids(place: Place, name: str) -> list[Any]:
    """Return the items of a Parquet column."""
    with open_parquet(place) as file:
        schema = file.schema_arrow
        # IDs of records, as dppl embed writes them: each record would be a person of its own, and the guarantee about
        # less than it says.
        if name in ("id", "reference") and {"id", "reference"} <= set(schema.names):
            raise InputError(
                f"must name a column with ids of persons; {name!r} of {place} tells records apart, not persons; embed "
                "the records again, with ids of persons.",
                parameter="groups",
            )
        check_column(schema, place, name, ID_KINDS, id_type, "groups")
        with converting(f"{place}: column {name!r} must hold {ID_KINDS}"):
            return decode_ids(file.read(columns=[name]).column(name))
