"""Sort a table that may be larger than memory, so that the rows of a person are adjacent."""

from __future__ import annotations

import mmap
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
from dppl.errors import InputError, ParameterError
from dppl.io._columns import ID_KINDS, check_column, id_type, open_parquet, stream_batches, value_type
from dppl.io._layouts import table_files
from dppl.io._places import Place, open_place
from dppl.io._reading import converting
from dppl.io.tables import read_table
from dppl.io.writing import repeating

_SUFFIX = ".parquet"
_PART_BYTES = 1 << 26  # of rows that are put in order at once
_BATCH_ROWS = 2048
_GROUP_ROWS = 65536
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
    place, target = open_place(source), Path(out)
    if target.suffix.lower() != _SUFFIX:
        raise ParameterError(f"a sorted table must end in {_SUFFIX}; got {target}.")
    files = [file for file, _ in table_files(place)]
    if any(file.suffix != _SUFFIX for file in files):
        raise InputError(f"{place} must be a {_SUFFIX} file or a folder of them; only these are sorted.")
    metadata = read_table(source, x=x, y=None).metadata
    schemas, chunks = [], []
    for path in files:
        with open_parquet(path) as opened:
            schemas.append(opened.schema_arrow)
            kind = value_type(check_column(schemas[-1], path, by, ID_KINDS, id_type, "by"))
            with converting(f"{path}: column {by!r} must hold {ID_KINDS}"):
                # Arrow sorts neither dictionaries nor half precision.
                plain = pa.float32() if pa.types.is_float16(kind) else kind
                chunks += opened.read(columns=[by]).column(by).cast(plain).chunks
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise InputError(f"{place}: all shards must have the same columns and types; they differ; write one schema.")
    # Values in the place of categories: every batch would hold all names of them.
    schema = pa.schema([field.with_type(value_type(field.type)) for field in schemas[0]])
    with converting(f"column {by!r} must be such as Arrow can sort"):
        column = pa.chunked_array(chunks) if chunks else pa.chunked_array([], pa.int64())
        order = np.asarray(pc.sort_indices(column)).astype(np.int64)  # equal ones stay in their order
    report = progress or (lambda rows: None)
    with (
        atomic_file(target, overwrite=True, private=True) as file,
        tempfile.TemporaryFile(dir=target.parent) as copy,  # on the disk that has room for the table
        pq.ParquetWriter(file, schema.with_metadata(metadata), use_dictionary=repeating(schema)) as writer,
    ):
        _copy(place, files, schema, copy, len(order), report)
        for rows in _sorted(copy, order):
            writer.write_table(rows, row_group_size=_GROUP_ROWS)
            report(len(rows))


def _copy(
    table: Place, files: list[Place], schema: pa.Schema, copy: IO[bytes], n: int, report: Callable[[int], None]
) -> None:
    """Write the rows as they come into a file that can be mapped, in which each can be reached by its place."""
    left = n
    with pa.ipc.new_file(copy, schema) as stream:
        for place in files:
            for batch in stream_batches(place, _BATCH_ROWS):
                left -= len(batch)
                if left < 0:
                    break
                with converting(f"{place} must hold the types that its footer says"):
                    rows = batch.cast(schema)
                stream.write_batch(rows)
                report(len(batch))
    copy.flush()
    if left:
        raise InputError(f"{table} must not change while it is sorted; it did; sort it again.")


def _sorted(copy: IO[bytes], order: Int64) -> Iterator[pa.Table]:
    """Yield the rows of a copy in a new order, part by part."""
    # The system drops pages of the map when memory is short.
    mapped = mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)
    reader = pa.ipc.open_file(pa.py_buffer(mapped))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    firsts = np.cumsum([0, *map(len, batches)])
    size = max(1, _PART_BYTES * len(order) // len(mapped))
    for start in range(0, len(order), size):
        part = order[start : start + size]
        # Each batch gives its rows in their old order, which the disk likes; then they are put in the new one.
        ascending = np.sort(part)
        cuts = np.searchsorted(ascending, firsts)
        rows = [
            _take(batch, ascending[low:high] - first)
            for batch, first, low, high in zip(batches, firsts, cuts, cuts[1:], strict=False)
            if low < high
        ]
        yield _take(pa.Table.from_batches(rows), np.searchsorted(ascending, part))


def _take(rows: Any, places: Int64) -> Any:
    with converting("the rows of a table must be such as Arrow can sort"):  # its own words may quote values
        return rows.take(pa.array(places))
