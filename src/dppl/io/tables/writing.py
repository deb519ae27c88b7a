"""Tables as files that `read_table` reads, written whole or not at all: from arrays, or from other tables."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dppl._utils import validate
from dppl._utils.files import atomic_file
from dppl._utils.metadata import LATTICE, stated
from dppl.errors import InputError, ParameterError
from dppl.io.records.labels import AnyPath, Array, converting, stored_labels
from dppl.io.tables.fragments import check_rows
from dppl.io.tables.parquet import (
    decode_ids,
    is_list,
    is_text,
    names_records,
    refuse_several_kinds,
)
from dppl.io.tables.read import EmbeddingTable, read_table
from dppl.kernel.lattice import Lattice
from dppl.kernel.persons import id_kind

# The forms of embeddings on disk, and of a table that is converted: lattice rows are
# int8 rows as bytes.
Rows: TypeAlias = Literal["float16", "int8", "float32"]
ROWS: tuple[Rows, ...] = get_args(Rows)
LATTICE_ROWS = "lattice"
PERSON = "person"  # the column of person IDs in a table that dppl writes, whatever the source calls it
_BLOCK_ROWS = 4096
_ID = "id"
_UNIQUE = ("id", "reference", "x")  # columns whose values seldom repeat


def write_table(
    path: AnyPath,
    X: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a table that `read_table` reads, whole or not at all.

    Parameters
    ----------
    path : path-like
        ``.npz`` or ``.parquet``. An existing file is replaced.
    X : array-like of shape (n, d)
        Rows: floats of at most 64 bits, or integers.
    y : array-like of shape (n,), default=None
        Labels: integers or strings. In npz every string takes the room of the longest.
    metadata : mapping of str to str, default=None
        Stored in the Parquet schema. Not for npz.

    Raises
    ------
    InputError
        If the arrays break these rules, the suffix is another one, or the file cannot
        be written.
    ParameterError
        If `metadata` is given for npz, or is no mapping of str to str.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".npz", ".parquet"):
        raise InputError(
            f"path must end in .npz, .parquet; got {target.name!r}; convert the file"
        )
    with converting("X must be an array", "pass an ndarray, or lists of equal length"):
        rows = np.asarray(X)
    check_rows(rows, "X")
    labels = None if y is None else stored_labels(y)
    if labels is not None and len(labels) != len(rows):
        raise InputError(
            "X and y must have equally many rows; the numbers differ; pass one label for each row"
        )
    texts = dict(metadata or {})
    if not all(
        isinstance(text, str) for text in itertools.chain(texts, texts.values())
    ):
        raise ParameterError(
            "metadata must map str to str; got another type; convert it with str()"
        )
    if texts and suffix != ".parquet":
        raise ParameterError(
            "metadata must be empty for .npz; got some; write .parquet to keep metadata"
        )
    with (
        converting(f"{target} must be writable", "check the folder"),
        atomic_file(target, overwrite=True) as file,
    ):
        if suffix == ".parquet":
            _write(
                EmbeddingTable.of(rows, labels, metadata=texts), file, rows.dtype.name
            )
        else:
            if labels is None:
                arrays = {}
            else:
                arrays = {
                    "y": labels.astype(np.str_) if labels.dtype.kind == "O" else labels
                }
            np.savez(file, allow_pickle=False, x=rows, **arrays)


def convert_table(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rows: Rows | Literal["lattice"] | None = None,
    x: str = "x",
    y: str = "y",
    ids: str = _ID,
) -> None:
    """Write a table as a Parquet file, whole or not at all, with ids, also of persons, references, labels and metadata.

    Parameters
    ----------
    source : path-like
        Whatever `dppl.io.read_table` reads.
    out : path-like
        A ``.parquet`` file. An existing file is replaced.
    rows : {"float16", "int8", "float32", "lattice"}, default=None
        None keeps the form. Of int8 and lattice rows only the directions can be
        recovered. ``"lattice"`` writes the rows that a fit without centre, pool or
        rotation maps embeddings to, byte by byte and uncompressed, with the name of
        that lattice. Such a fit on the new file releases the same bits; others take
        directions.
    x, y, ids : str
        Names of the columns of embeddings, labels and ids; in the new file they are x,
        y and id.

    Raises
    ------
    ParameterError
        If `rows` or the suffix is another one.
    InputError
        If the table cannot be read.
    """
    target = Path(out)
    if target.suffix.lower() != ".parquet":
        raise ParameterError(
            f"must end in .parquet; got {target.name}.", parameter="out"
        )
    if rows is not None:
        validate.one_of((*ROWS, LATTICE_ROWS), rows=rows)
    table = read_table(source, x=x, y=y, ids=ids)
    # Lattice rows stay what they are, unless another form is asked for.
    stay = rows is None and stated(table, LATTICE) is not None
    form: str = LATTICE_ROWS if stay else rows or table.dtype.name
    # The lattice of the new rows takes the place of the old one's in the metadata.
    metadata = {key: text for key, text in table.metadata.items() if key != LATTICE}
    if form == LATTICE_ROWS:
        metadata[LATTICE] = Lattice(table.shape[1]).name
    table = replace(table, metadata=metadata)
    with atomic_file(target, overwrite=True, private=True) as file:
        _write(table, file, form, ids)


def to_storage(x: npt.NDArray[Any], rows: str) -> npt.NDArray[Any]:
    """Return embeddings in one of the forms `ROWS`, or as lattice rows (as int8 is), each row by itself."""
    if rows in ("int8", LATTICE_ROWS):
        return Lattice(x.shape[1]).transform(x)
    with np.errstate(over="ignore"):
        return x.astype(rows)


def table_schema(
    label_type: pa.DataType | None,
    dimension: int,
    rows: str,
    metadata: Mapping[str, str],
    texts: Sequence[str] = ("id", "reference"),
    person_type: pa.DataType | None = None,
) -> pa.Schema:
    """Return the columns of a table: `texts`, the label `y` and the id `PERSON` if there are any, the embedding `x`."""
    if rows == LATTICE_ROWS:
        kind = pa.binary(dimension)
    else:
        kind = pa.list_(
            pa.field("element", pa.from_numpy_dtype(np.dtype(rows)), nullable=False),
            dimension,
        )
    fields = [pa.field(name, pa.string()) for name in texts]
    fields += [
        pa.field(name, kind)
        for name, kind in (("y", label_type), (PERSON, person_type))
        if kind is not None
    ]
    return pa.schema([*fields, pa.field("x", kind)], metadata=dict(metadata))


def repeating(schema: pa.Schema) -> list[str]:
    """Return the columns that may repeat, and int8 rows, which Parquet would else give four bytes a number."""
    plain = [
        field.name
        for field in schema
        if not pa.types.is_nested(field.type) and field.name not in _UNIQUE
    ]
    lists = [field for field in schema if is_list(field.type)]
    return plain + [
        f"{field.name}.list.element"
        for field in lists
        if pa.types.is_int8(field.type.value_type)
    ]


def rows_column(block: Array, kind: pa.DataType) -> pa.Array:
    """Return rows as a column of the type that `table_schema` gives them."""
    if pa.types.is_fixed_size_binary(kind):
        return pa.FixedSizeBinaryArray.from_buffers(
            kind, len(block), [None, pa.py_buffer(np.ascontiguousarray(block))]
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=kind)


def _texts(ids: Any) -> Any:
    """Return a column of ids as texts; of another type, which names no records, as it is."""
    if is_text(ids.type) or not names_records(ids.type):
        return ids
    each = (None if one is None else str(one) for one in decode_ids(ids))
    return pa.array(each, pa.string())


def _write(table: EmbeddingTable, file: IO[bytes], form: str, ids: str = _ID) -> None:
    names = {ids: "id", "reference": "reference", PERSON: PERSON}
    first = table.fragments()[0].columns(list(names))
    if first is None:
        present = {}
    else:
        present = {name: names[name] for name in names if name in first.column_names}
    label_type = person_type = None
    if table.y is not None:
        label_type = pa.int64() if table.y.dtype.kind == "i" else pa.string()
    if first is not None and PERSON in present:
        person_type = first.schema.field(PERSON).type
    schema = table_schema(
        label_type,
        table.shape[1],
        form,
        table.metadata,
        [name for name in present.values() if name != PERSON],
        person_type,
    )
    kinds = {
        id_kind(kind)
        for fragment in table.fragments()
        if (kind := fragment.type_of(PERSON)) is not None
    }
    refuse_several_kinds(kinds, "the table", PERSON)
    # Lattice rows look random: neither compression nor statistics of them are worth
    # their time.
    if form == LATTICE_ROWS:
        raw = {"compression": "none", "write_statistics": ["id"]}
    else:
        raw = {}
    with pq.ParquetWriter(
        file, schema, use_dictionary=repeating(schema), **raw
    ) as writer:
        for fragment in table.fragments():
            # Memory holds the other columns of one file at a time.
            others = fragment.columns(list(present))
            start = 0
            for block in fragment.blocks(_BLOCK_ROWS):
                if form == table.dtype.name:
                    stored = block
                else:
                    stored = to_storage(block, form)
                columns = {"x": rows_column(stored, schema.field("x").type)}
                if others is not None:
                    some = others.slice(start, len(block))
                    columns |= {new: some.column(name) for name, new in present.items()}
                    if "id" in columns:
                        columns["id"] = _texts(columns["id"])
                if table.y is not None:
                    labels = table.y[fragment.first + start :][: len(block)].tolist()
                    columns["y"] = pa.array(labels, schema.field("y").type)
                writer.write_table(
                    pa.table(
                        [columns[one.name].cast(one.type) for one in schema],
                        schema=schema,
                    )
                )
                start += len(block)
