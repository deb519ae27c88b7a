"""Records in the columns of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dppl.errors import InputError
from dppl.io._columns import (
    ID_KINDS,
    check_column,
    decode_ids,
    id_type,
    is_label,
    is_text,
    open_parquet,
    plain,
    stream_batches,
    value_type,
)
from dppl.io._places import open_place
from dppl.io.records import (
    IMAGES,
    TEXTS,
    BadRecord,
    Columns,
    Payload,
    Record,
    Source,
    file_version,
    make_record,
    resolve_columns,
)

_BATCH_ROWS = {"image": 16, "text": 1024}


class ParquetRecords(Source):
    """Texts or encoded images in a Parquet file, or in a folder of them in the order of a table's."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._files = open_place(path).files(".parquet") if path.is_dir() else [open_place(path)]
        if not self._files:
            raise InputError(f"{path} must hold .parquet files; got none.")
        schemas = []
        for place in self._files:
            with open_parquet(place) as file:
                schemas.append(file.schema_arrow.remove_metadata())
        schema = schemas[0]
        self.columns = resolve_columns(columns, schema.names, path, (*TEXTS, *IMAGES))
        # The schema decides what the records are, and no record.
        x = check_column(schema, path, str(self.columns.x), "texts, or bytes of images", _is_content, "x")
        self.modality = "text" if is_text(value_type(x)) else "image"
        self.label_type = self.person_type = None
        if self.columns.y is not None:
            y = check_column(schema, path, self.columns.y, "integers or texts", is_label, "y")
            self.label_type = pa.string() if is_text(value_type(y)) else pa.int64()
        if self.columns.person is not None:
            person = check_column(schema, path, self.columns.person, ID_KINDS, id_type, "person")
            self.person_type = id_type(person)
        if any(other != schema for other in schemas):
            raise InputError(f"{path}: all files must have the same columns and types; they differ.")
        self.parameters = {"kind": "parquet", **asdict(self.columns)}

    def __iter__(self) -> Iterator[Record]:
        names = [name for name in dict.fromkeys(asdict(self.columns).values()) if name is not None]
        first = 0
        for file in self._files:
            # Of the file: to hash contents would mean to read them twice.
            version = file_version(file.path)
            for batch in stream_batches(file, _BATCH_ROWS[self.modality], names):
                # Columns of a batch are small; images and texts are taken out one by one when they are loaded.
                labels, ids = _values(batch, self.columns.y), _values(batch, self.columns.id)
                persons = None if self.columns.person is None else decode_ids(batch.column(self.columns.person))
                payloads = batch.column(self.columns.x)
                for place in range(len(batch)):
                    label, person = (values[place] if values else None for values in (labels, persons))
                    identity = ids[place] if ids else first + place
                    load = partial(_payload, payloads, place)
                    yield make_record(f"row {first + place}", identity, label, load, version, person)
                first += len(batch)

    def count(self) -> int:
        """Return the number of records, which is private."""
        total = 0
        for place in self._files:
            with open_parquet(place) as file:
                total += file.metadata.num_rows
        return total


def _values(batch: pa.RecordBatch, name: str | None) -> list[Any] | None:
    if name is None:
        return None
    column = plain(batch.column(name))
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column).to_pylist()
    return values


def _is_content(kind: Any) -> bool:
    """Return whether a type is of texts, or of images: bytes, or structs of them."""
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(is_text(value_type(kind)) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _payload(column: pa.Array, place: int) -> Payload:
    """Return the bytes of one text or image, whose neighbours stay undecoded."""
    # A slice shares the batch's memory.
    one = column[place : place + 1]
    value = plain(pc.struct_field(one, "bytes") if pa.types.is_struct(one.type) else one)[0].as_py()
    if value is None:
        raise BadRecord("it is missing")
    return value if isinstance(value, bytes) else bytes(value)
