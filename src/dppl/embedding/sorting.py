"""Sort a table that may be larger than memory, so that the rows of a person are adjacent."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dppl._files import atomic_file
from dppl.data import read_table
from dppl.data._layouts import is_npy_pool, parquet_shards
from dppl.data._parquet import open_parquet
from dppl.data._places import Place
from dppl.data._reading import converting
from dppl.data.person_ids import ID_KINDS, id_type
from dppl.embedding.convert import is_list
from dppl.errors import InputError, ParameterError

__all__ = ["sort_table"]

_SUFFIX = ".parquet"
_PART_BYTES = 1 << 26  # of rows that are sorted at once
_BATCH_ROWS = 4096
_GROUP_ROWS = 65536
_HINT = "write the table again"
Int64 = NDArray[np.int64]


def sort_table(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: str,
    x: str = "x",
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write the rows of a Parquet table in the order of a column, whole or not at all.

    Rows that are equal there stay in their order, and those without a value come last. All columns are kept, categories
    as what they stand for, and the metadata that `read_table` has. Memory holds the column, 16 bytes a row and about
    half a gigabyte; beside the new file the disk holds the rows once more, in a file without a name that is gone at the
    end of the process.

    Parameters
    ----------
    source : path-like
        ``.parquet``, or a folder of ``*.parquet`` shards, all with the same columns.
    out : path-like
        ``.parquet``. An existing file is replaced. Only its owner may read it.
    by : str
        Column of integers, texts, bytes or floats, such as person ids.
    x : str, default="x"
        Column of embeddings.
    progress : callable, default=None
        Told of numbers of rows: of each row once when it is read and once when it is written.

    Raises
    ------
    ParameterError
        If `out` ends otherwise.
    InputError
        If the table cannot be read or changes meanwhile, or there is no such column, or it is of another type. The
        message shows no value.
    """
    table, target = Path(source), Path(out)
    if target.suffix.lower() != _SUFFIX:
        raise ParameterError(f"a sorted table must end in {_SUFFIX}; got {target}.")
    if (table.is_dir() and is_npy_pool(Place.of(table))) or (not table.is_dir() and table.suffix.lower() != _SUFFIX):
        raise InputError(f"{table} must be a {_SUFFIX} file or a folder of them; only these are sorted.")
    outline = read_table(table, x=x, y=None)
    files = parquet_shards(Place.of(table)) if table.is_dir() else [Place.of(table)]
    schema = _schema(table, files)
    order = _order(files, by)
    size = _part_rows(files, schema)
    told = progress or (lambda rows: None)
    with (
        atomic_file(target, overwrite=True, private=True) as file,
        tempfile.TemporaryFile(dir=target.parent) as parts,  # on the disk that has room for the table
        pq.ParquetWriter(file, schema.with_metadata(outline.metadata), use_dictionary=_repeating(schema)) as writer,
    ):
        stored = _distributed(_pieces(table, files, schema, size, len(order)), order, size, parts, told)
        for start, places in zip(range(0, len(order), size), stored, strict=True):
            rows = pa.concat_tables(_read(parts, *place) for place in places)
            # They stand in their old order.
            rows = _taken(rows, np.argsort(np.argsort(order[start : start + size])))
            writer.write_table(rows, row_group_size=_GROUP_ROWS)
            told(len(rows))


def _schema(table: Path, files: list[Place]) -> pa.Schema:
    """Return the columns that all files have, without metadata, and with the values of categories in their place."""
    with converting(f"{table} must be Parquet that Arrow can read", _HINT):
        schemas = [pq.read_schema(file.path) for file in files]
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise InputError(f"{table}: all shards must have the same columns and types; they differ; write one schema.")
    # Every part would hold all names of its categories.
    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schemas[0]
    ]
    return pa.schema(plain)


def _order(files: list[Place], by: str) -> Int64:
    """Return the rows in the order of a column; equal ones stay in theirs."""
    chunks = [chunk for file in files for chunk in _column(file, by).chunks]
    with converting(f"column {by!r} must be such as Arrow can sort", _HINT):
        column = pa.chunked_array(chunks) if chunks else pa.chunked_array([], pa.int64())
        return np.asarray(pc.sort_indices(column)).astype(np.int64)


def _column(path: Place, by: str) -> Any:
    """Return a column that fits take for ids, as a type that Arrow sorts."""
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if names.count(by) != 1:
            there = ", ".join(map(repr, names))
            raise InputError(f"must name one column of {path}; {by!r} does not; there are {there}.", parameter="by")
        with converting(f"{path}: column {by!r} must hold {ID_KINDS}", _HINT):
            column = file.read(columns=[by]).column(by)
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            kind = column.type
            if pa.types.is_float16(kind):
                return column.cast(pa.float32())
            if id_type(kind) is not None:
                return column
    raise InputError(
        f"must name a column of {path} with {ID_KINDS}; {by!r} holds {kind}; name another.", parameter="by"
    )


def _part_rows(files: list[Place], schema: pa.Schema) -> int:
    """Return how many rows are sorted at once."""
    with converting(f"{files[0].parent} must hold Parquet files that Arrow can read", _HINT):
        known = [pq.read_metadata(file.path) for file in files]
        groups = [one.row_group(number) for one in known for number in range(one.num_row_groups)]
        stored = max((group.total_byte_size / group.num_rows for group in groups if group.num_rows), default=1)
    with open_parquet(files[0]) as file:  # values that repeat are smaller in the file
        decoded = [rows.nbytes / len(rows) for rows in itertools.islice(_tables(files[0], file, schema, 16), 1)]
    return max(1, int(_PART_BYTES / max(stored, 1, *decoded)))


def _pieces(table: Path, files: list[Place], schema: pa.Schema, size: int, n: int) -> Iterator[pa.Table]:
    """Yield the rows as they are read, so many at a time."""
    left = n
    for path in files:
        with open_parquet(path) as file:
            parts = _tables(path, file, schema, min(size, _BATCH_ROWS))
            while held := list(itertools.islice(parts, max(1, size // _BATCH_ROWS))):
                left -= sum(map(len, held))
                if left >= 0:
                    yield pa.concat_tables(held)
    if left:
        raise InputError(f"{table} must not change while it is sorted; it did; sort it again.")


def _tables(path: Place, file: Any, schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    promise = f"{path} must be readable"
    with converting(promise, _HINT):
        batches = file.iter_batches(batch_size=size)
    while True:
        with converting(promise, _HINT):
            batch = next(batches, None)
            rows = None if batch is None else pa.Table.from_batches([batch]).cast(schema)
        if rows is None:
            return
        yield rows


def _distributed(
    pieces: Iterator[pa.Table], order: Int64, size: int, parts: IO[bytes], told: Callable[[int], None]
) -> list[list[tuple[int, int]]]:
    """Write the rows of each stretch of the new order next to each other; return the places of each in `parts`."""
    stretch = np.empty(len(order), np.int64)
    stretch[order] = np.arange(len(order)) // size
    places: list[list[tuple[int, int]]] = [[] for _ in range(0, len(order), size)]
    start = 0
    for rows in pieces:
        here = stretch[start : start + len(rows)]
        moved = _taken(rows, np.argsort(here, kind="stable"))
        numbers, counts = np.unique(here, return_counts=True)
        for number, first, count in zip(numbers.tolist(), np.cumsum(counts) - counts, counts, strict=True):
            places[number].append(_written(parts, moved.slice(first, count)))
        start += len(rows)
        told(len(rows))
    return places


def _written(parts: IO[bytes], rows: pa.Table) -> tuple[int, int]:
    """Append rows; return where they begin and how many bytes they take."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows)
    return parts.tell(), parts.write(buffer.getvalue())


def _read(parts: IO[bytes], start: int, n_bytes: int) -> pa.Table:
    parts.seek(start)
    return pa.ipc.open_stream(parts.read(n_bytes)).read_all()


def _taken(rows: pa.Table, order: Int64) -> pa.Table:
    with converting("the rows of a table must be such as Arrow can sort", _HINT):  # its own words may quote values
        return rows.take(pa.array(order))


def _repeating(schema: pa.Schema) -> list[str]:
    """Return the columns that repeat: all but lists, and lists of int8, which would else take four bytes a number."""
    plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
    lists = [field for field in schema if is_list(field.type)]
    return plain + [f"{field.name}.list.element" for field in lists if pa.types.is_int8(field.type.value_type)]
