"""Write a table in another form or as another file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dppl import _validate
from dppl._files import atomic_file
from dppl.data import EmbeddingTable, read_table
from dppl.data._reading import converting
from dppl.data.writing import write_npz
from dppl.embedding.records import PERSON
from dppl.embedding.rows import ROWS, Rows, lattice_metadata, to_storage
from dppl.embedding.shards import dictionary_columns, schema_of
from dppl.errors import ParameterError

__all__ = ["SUFFIXES", "convert_table", "holds_embeddings", "parquet_files"]

_BLOCK_ROWS = 4096
_TEXTS = ("id", "reference")
_EMBEDDINGS = ("X", "embedding", "embeddings")


def convert_table(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rows: Rows | None = None,
    x: str = "x",
    y: str = "y",
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
    x, y : str
        Names of the columns of embeddings and labels; in the new file they are x and y.

    Raises
    ------
    ParameterError
        If `rows` or the suffix is another one.
    InputError
        If the table cannot be read.
    """
    target = Path(out)
    _validate.one_of(SUFFIXES, suffix=target.suffix.lower())
    if rows is not None:
        _validate.one_of(ROWS, rows=rows)
    read = partial(read_table, x=x, y=y)
    table = read(source)
    if "not_covered" in table.metadata and target.suffix.lower() != ".parquet":
        raise ParameterError(
            f"{source} says what its embeddings do not cover, which only .parquet can keep; name such a file."
        )
    kind = table.dtype.name if rows is None else rows
    with atomic_file(target, overwrite=True, private=True) as file:
        if target.suffix.lower() == ".parquet":
            _write_parquet(table, parquet_files(Path(source)) or [Path(source)], read, file, kind)
        else:
            _WRITERS[target.suffix.lower()](table, file, kind)


def parquet_files(source: Path) -> list[Path]:
    """Return the Parquet files that a table consists of; none if it is of another kind."""
    if source.is_dir():
        return sorted(file for file in source.glob("*.parquet") if file.name[0] not in "._")
    return [source] if source.suffix.lower() == ".parquet" else []


def holds_embeddings(path: Path, *, x: str = "x") -> bool:
    """Tell whether a file or folder is a table of embeddings; else it may be a source of raw records.

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
    if path.suffix.lower() in (".npy", ".npz"):
        return True
    files = parquet_files(path)
    if not files:
        return False
    with converting(f"{files[0]} must be a Parquet file that Arrow can read", "write it again"):
        schema = pq.read_schema(files[0])
    names = [name for name in (x, *_EMBEDDINGS) if name in schema.names]
    return any(_is_list(schema.field(name).type) for name in names)


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _converted(table: EmbeddingTable, rows: str) -> Iterator[NDArray[Any]]:
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


def _write_parquet(
    table: EmbeddingTable, parts: list[Path], read: Callable[[Path], EmbeddingTable], file: IO[bytes], rows: str
) -> None:
    present = pq.read_schema(parts[0]).names if parts[0].suffix.lower() == ".parquet" else []
    kept = [name for name in (*_TEXTS, PERSON) if name in present]
    labels = None if table.y is None else pa.int64() if table.y.dtype.kind == "i" else pa.string()
    metadata = {key: text for key, text in table.metadata.items() if key != "lattice"}
    metadata |= lattice_metadata(table.shape[1], rows)
    texts = [name for name in _TEXTS if name in kept]
    persons = pq.read_schema(parts[0]).field(PERSON).type if PERSON in kept else None
    schema = schema_of(labels, table.shape[1], rows, metadata, texts, persons)
    with pq.ParquetWriter(file, schema, use_dictionary=dictionary_columns(schema)) as writer:
        for part in parts:
            _write_part(writer, read(part), pq.read_table(part, columns=kept) if kept else None, rows, schema)


def _write_part(writer: Any, table: EmbeddingTable, kept: Any, rows: str, schema: pa.Schema) -> None:
    """Write one file of the table; of its other columns the memory holds no more than that."""
    start = 0
    for block in _converted(table, rows):
        stop = start + len(block)
        here = None if kept is None else kept.slice(start, len(block))
        columns = {} if here is None else dict(zip(here.column_names, here.columns, strict=True))
        if table.y is not None:
            columns["y"] = pa.array(table.y[start:stop].tolist(), schema.field("y").type)
        columns["x"] = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=schema.field("x").type)
        writer.write_table(pa.table([columns[name] for name in schema.names], schema=schema))
        start = stop


_WRITERS: dict[str, Callable[[EmbeddingTable, IO[bytes], str], None]] = {".npz": _write_npz, ".npy": _write_npy}
SUFFIXES = (".parquet", *_WRITERS)
