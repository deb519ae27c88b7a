"""Records in Arrow columns: Parquet files, and data sets saved by `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dppl._optional import optional
from dppl.errors import InputError, ParameterError
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
from dppl.io._reading import converting
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


class _ArrowRecords(Source):
    """Texts or encoded images in a column of Arrow batches."""

    columns: Columns

    def _describe(self, path: Path, schema: pa.Schema, columns: Columns, kind: str, split: str | None = None) -> None:
        """Choose the columns, whose types decide what the records are."""
        self.columns = resolve_columns(columns, schema.names, path, (*TEXTS, *IMAGES))
        of = {role: name for role, name in asdict(self.columns).items() if name is not None}
        x = check_column(schema, path, of["x"], "texts, or bytes of images", _is_content, "x")
        # The schema decides, and no record.
        self.modality = "text" if is_text(value_type(x)) else "image"
        self.label_type = self.person_type = None
        if "y" in of:
            y = check_column(schema, path, of["y"], "integers or texts", is_label, "y")
            self.label_type = pa.string() if is_text(value_type(y)) else pa.int64()
        if "person" in of:
            self.person_type = id_type(check_column(schema, path, of["person"], ID_KINDS, id_type, "person"))
        self.parameters = {"kind": kind, "split": split, **asdict(self.columns)}

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, str]]:
        """Yield batches, each with the version of the file that it comes from."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Record]:
        first = 0
        for batch, version in self._batches():
            # Columns of a batch are small; images and texts are taken out one by one when they are loaded.
            labels, ids = (self._values(batch, name) for name in (self.columns.y, self.columns.id))
            persons = None if self.columns.person is None else decode_ids(batch.column(self.columns.person))
            payloads = batch.column(self.columns.x)
            for place in range(len(batch)):
                label, person = (values[place] if values else None for values in (labels, persons))
                identity = ids[place] if ids else first + place
                load = partial(_payload, payloads, place)
                yield make_record(f"row {first + place}", identity, label, load, version, person)
            first += len(batch)

    def _values(self, batch: pa.RecordBatch, name: str | None) -> list[Any] | None:
        if name is None:
            return None
        column = plain(batch.column(name))
        values: list[Any] = (column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column).to_pylist()
        return values


class ParquetRecords(_ArrowRecords):
    """Records in a Parquet file, or in a folder of them in the order of a table's."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._files = open_place(path).files(".parquet") if path.is_dir() else [open_place(path)]
        if not self._files:
            raise InputError(f"{path} must hold .parquet files; found none.")
        schemas = []
        for place in self._files:
            with open_parquet(place) as file:
                schemas.append(file.schema_arrow.remove_metadata())
        self._describe(path, schemas[0], columns, "parquet")
        if any(schema != schemas[0] for schema in schemas):
            raise InputError(f"{path}: all files must have the same columns and types; they differ.")

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, str]]:
        names = [name for name in dict.fromkeys(asdict(self.columns).values()) if name is not None]
        for place in self._files:
            # Of the file: to hash contents would mean to read them twice.
            version = file_version(place.path)
            for batch in stream_batches(place, _BATCH_ROWS[self.modality], names):
                yield batch, version

    def count(self) -> int:
        """Return the number of records, which is private."""
        total = 0
        for place in self._files:
            with open_parquet(place) as file:
                total += file.metadata.num_rows
        return total


class SavedDataset(_ArrowRecords):
    """A split of a data set that `datasets` saved with ``save_to_disk``."""

    def __init__(self, path: Path, columns: Columns, split: str | None) -> None:
        datasets = optional("datasets", "datasets", "datasets")
        with converting(f"{path} must be a data set that `datasets` can load", "save it again with save_to_disk"):
            loaded = datasets.load_from_disk(str(path), keep_in_memory=False)
        if isinstance(loaded, dict):
            if split not in loaded:
                raise ParameterError(
                    f"must be one of {', '.join(map(repr, loaded))}; got {split!r}.", parameter="split"
                )
            loaded = loaded[split]
        elif split is not None:
            raise ParameterError(f"must be left out; {path} holds one split only.", parameter="split")
        self._data = loaded.with_format("arrow")
        self._version = file_version(*(file["filename"] for file in loaded.cache_files))
        self._describe(path, loaded.features.arrow_schema, columns, "datasets", split)
        # Labels may be stored as codes of names.
        self._names = getattr(loaded.features[self.columns.y], "names", None) if self.columns.y else None
        if self._names is not None:
            self.label_type = pa.string()

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, str]]:
        for table in self._data.iter(batch_size=_BATCH_ROWS[self.modality]):
            for batch in table.combine_chunks().to_batches():
                yield batch, self._version

    def _values(self, batch: pa.RecordBatch, name: str | None) -> list[Any] | None:
        values = super()._values(batch, name)
        if values is None or self._names is None or name != self.columns.y:
            return values
        return [None if code is None or not 0 <= code < len(self._names) else self._names[code] for code in values]

    def count(self) -> int:
        """Return the number of records, which is private."""
        return len(self._data)


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
