"""Write a table in another form or as another file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dppl import _validate
from dppl._files import atomic_file
from dppl._metadata import LATTICE, lattice_of
from dppl.data import EmbeddingTable, Fragment, read_table
from dppl.data._layouts import is_npy_pool
from dppl.data._places import Place, is_url
from dppl.data._reading import converting
from dppl.data.writing import write_npz
from dppl.embedding.records import PERSON
from dppl.embedding.rows import LATTICE_ROWS, ROWS, Rows, lattice_metadata, to_storage
from dppl.embedding.shards import dictionary_columns, schema_of
from dppl.errors import ParameterError

__all__ = ["SUFFIXES", "convert_table", "holds_embeddings", "is_list"]

_BLOCK_ROWS = 4096
_ID = "id"
_EMBEDDINGS = ("X", "embedding", "embeddings")


def convert_table(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rows: Rows | None = None,
    lattice: bool = False,
    x: str = "x",
    y: str = "y",
    ids: str = _ID,
) -> None:
    """Write a table as another file, whole or not at all.

    Parameters
    ----------
    source : path-like
        Whatever `dppl.data.read_table` reads.
    out : path-like
        ``.parquet`` keeps ids, also of persons, references, labels and metadata, ``.npz`` keeps labels, ``.npy`` holds
        rows only. An existing file is replaced.
    rows : {"float16", "int8", "float32"}, default=None
        None keeps the form. Of int8 rows only the directions can be recovered.
    lattice : bool, default=False
        Write the rows that a fit without centre, pool or rotation maps embeddings to, byte by byte and uncompressed,
        with the name of that lattice. Such a fit on the new file releases the same bits; others take directions. For
        ``.parquet``, without `rows`.
    x, y, ids : str
        Names of the columns of embeddings, labels and ids; in the new file they are x, y and id.

    Raises
    ------
    ParameterError
        If `rows` or the suffix is another one, or `lattice` goes with neither.
    InputError
        If the table cannot be read.
    """
    target = Path(out)
    _validate.one_of(SUFFIXES, suffix=target.suffix.lower())
    if rows is not None:
        _validate.one_of(ROWS, rows=rows)
    is_parquet = target.suffix.lower() == ".parquet"
    if lattice and (rows is not None or not is_parquet):
        raise ParameterError(
            "must stand without another form of rows, and OUT must end in .parquet.", parameter="lattice"
        )
    table = read_table(source, x=x, y=y, ids=ids)
    if "not_covered" in table.metadata and not is_parquet:
        raise ParameterError(
            f"{source} says what its embeddings do not cover, which only .parquet can keep; name such a file."
        )
    # Lattice rows stay what they are, unless another form is asked for.
    kept = rows is None and lattice_of(table) is not None
    kind = LATTICE_ROWS if lattice or (kept and is_parquet) else rows or table.dtype.name
    with atomic_file(target, overwrite=True, private=True) as file:
        if is_parquet:
            _write_parquet(table, file, kind, ids)
        else:
            _WRITERS[target.suffix.lower()](table, file, kind)


def holds_embeddings(path: Path, *, x: str = "x") -> bool:
    """Tell whether a file or folder is a table of embeddings, as every URL is; else it may hold raw records.

    Parameters
    ----------
    path : Path
    x : str, default="x"
        Name of the column of embeddings.

    Raises
    ------
    InputError
        If a Parquet file cannot be read.
    """
    if is_url(path) or path.suffix.lower() in (".npy", ".npz") or (path.is_dir() and is_npy_pool(Place.of(path))):
        return True
    place = Place.of(path)
    files = place.files(".parquet") if place.local is not None and path.is_dir() else []
    if path.suffix.lower() == ".parquet" and not files:
        files = [place]
    if not files:
        return False
    with converting(f"{files[0]} must be a Parquet file that Arrow can read", "write it again"):
        schema = pq.read_schema(files[0].path)
    names = [name for name in (x, *_EMBEDDINGS) if name in schema.names]
    as_bytes = LATTICE.encode() in (schema.metadata or {})  # and not images
    kinds = [schema.field(name).type for name in names]
    return any(is_list(kind) or (as_bytes and pa.types.is_fixed_size_binary(kind)) for kind in kinds)


def is_list(kind: Any) -> bool:
    """Tell whether a type of Arrow is one of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _converted(table: EmbeddingTable | Fragment, rows: str) -> Iterator[NDArray[Any]]:
    for block in table.blocks(_BLOCK_ROWS):
        yield block if rows == table.dtype.name else to_storage(block, rows)


def _write_npy(table: EmbeddingTable, file: IO[bytes], rows: str) -> None:
    description = np.lib.format.dtype_to_descr(np.dtype(rows))
    header = {"descr": description, "fortran_order": False, "shape": table.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for block in _converted(table, rows):
        file.write(block.tobytes())


def _write_npz(table: EmbeddingTable, file: IO[bytes], rows: str) -> None:
    write_npz(file, np.concatenate([np.empty((0, table.shape[1]), rows), *_converted(table, rows)]), table.y)


def _write_parquet(table: EmbeddingTable, file: IO[bytes], rows: str, ids: str) -> None:
    names = {ids: "id", "reference": "reference", PERSON: PERSON}
    first = table.fragments()[0].columns(list(names))
    present = {} if first is None else {name: names[name] for name in names if name in first.column_names}
    labels = None if table.y is None else pa.int64() if table.y.dtype.kind == "i" else pa.string()
    metadata = {key: text for key, text in table.metadata.items() if key not in ("lattice", LATTICE)}
    metadata |= lattice_metadata(table.shape[1], rows)
    texts = [name for name in present.values() if name != PERSON]
    persons = None if first is None or PERSON not in present else first.schema.field(PERSON).type
    schema = schema_of(labels, table.shape[1], rows, metadata, texts, persons)
    # Lattice rows look random: neither compression nor statistics of them are worth their time.
    plain = {"compression": "none", "write_statistics": ["id"]} if rows == LATTICE_ROWS else {}
    with pq.ParquetWriter(file, schema, use_dictionary=dictionary_columns(schema), **plain) as writer:
        for part in table.fragments():
            _write_part(writer, table.y, part, present, rows, schema)


def _write_part(
    writer: Any, labels: Any, part: Fragment, present: dict[str, str], rows: str, schema: pa.Schema
) -> None:
    """Write one file of the table; of its other columns the memory holds no more than that."""
    beside = part.columns(list(present))
    start = 0
    for block in _converted(part, rows):
        some = None if beside is None else beside.slice(start, len(block))
        columns = {} if some is None else {new: some.column(name) for name, new in present.items()}
        if labels is not None:
            columns["y"] = pa.array(labels[part.first + start :][: len(block)].tolist(), schema.field("y").type)
        columns["x"] = _column(block, schema.field("x").type)
        writer.write_table(pa.table([columns[one.name].cast(one.type) for one in schema], schema=schema))
        start += len(block)


def _column(block: NDArray[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(kind):
        return pa.FixedSizeBinaryArray.from_buffers(kind, len(block), [None, pa.py_buffer(np.ascontiguousarray(block))])
    return pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=kind)


_WRITERS: dict[str, Callable[[EmbeddingTable, IO[bytes], str], None]] = {".npz": _write_npz, ".npy": _write_npy}
SUFFIXES = (".parquet", *_WRITERS)
