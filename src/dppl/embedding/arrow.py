"""Records in Arrow columns: Parquet files and data sets saved by `datasets`; and published arrays of embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dppl._optional import optional
from dppl.data import EmbeddingTable, read_table
from dppl.data._columns import ID_KINDS, id_type, ids_in
from dppl.data._reading import converting
from dppl.embedding.records import (
    IMAGES,
    TEXTS,
    Columns,
    Payload,
    Record,
    Source,
    Unusable,
    record_of,
    version_of,
)
from dppl.errors import InputError, ParameterError

__all__ = ["Arrays", "ParquetRecords", "SavedDataset"]

_BATCH_ROWS = {"image": 16, "text": 1024}
_BLOCK_ROWS = 1024
_READ_BUFFER = 1 << 20


class _ArrowRecords(Source):
    """Texts or encoded images in a column of Arrow batches."""

    path: Path
    columns: Columns

    def _find(self, schema: pa.Schema, kind: str, split: str | None = None) -> None:
        self.columns = self.columns.found_in(schema.names, self.path, (*TEXTS, *IMAGES))
        self.modality = self._modality(schema.field(self.columns.x).type)
        self.label_type = None if self.columns.y is None else self._label_type(schema.field(self.columns.y).type)
        person = self.columns.person
        self.person_type = None if person is None else self._person_type(schema.field(person).type)
        self.parameters = {"kind": kind, "split": split, **self.columns.parameters}

    def _modality(self, kind: pa.DataType) -> str:
        if _is_text(kind):
            return "text"
        images = kind.field("bytes").type if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
        if pa.types.is_binary(images) or pa.types.is_large_binary(images):
            return "image"
        raise InputError(
            f"must name a column of texts or of the bytes of images; {self.columns.x!r} of {self.path} holds {kind}.",
            parameter="x",
        )

    def _label_type(self, kind: pa.DataType) -> pa.DataType:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return pa.int64()
        if _is_text(kind):
            return pa.string()
        raise InputError(
            f"must name a column of integers or texts; {self.columns.y!r} of {self.path} holds {kind}.", parameter="y"
        )

    def _person_type(self, kind: pa.DataType) -> pa.DataType:
        found = id_type(kind)
        if found is None:
            raise InputError(
                f"must name a column of {ID_KINDS}; {self.columns.person!r} of {self.path} holds {kind}; name another.",
                parameter="person",
            )
        return found

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, str]]:
        """Yield batches, each with the version of the file that it comes from."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Record]:
        number = 0
        for batch, version in self._batches():
            labels = self._values(batch, self.columns.y)
            ids = self._values(batch, self.columns.id) or range(number, number + len(batch))
            persons = None if self.columns.person is None else ids_in(batch.column(self.columns.person))
            payloads = batch.column(self.columns.x)
            for place, identity in enumerate(ids):
                label, person = (values[place] if values else None for values in (labels, persons))
                load = partial(_payload, payloads, place)
                yield record_of(f"row {number + place}", identity, label, load, version, person)
            number += len(batch)

    def _values(self, batch: pa.RecordBatch, name: str | None) -> list[Any] | None:
        return None if name is None else _plain(batch.column(name)).to_pylist()


@dataclass
class ParquetRecords(_ArrowRecords):
    """Records in a Parquet file, or in a folder of them in the order of their names."""

    path: Path
    columns: Columns

    def __post_init__(self) -> None:
        folder = self.path.is_dir()
        self._files = sorted(f for f in self.path.glob("*.parquet") if f.name[0] not in "._") if folder else [self.path]
        if not self._files:
            raise InputError(f"{self.path} must hold .parquet files; found none.")
        schemas = [self._schema(file) for file in self._files]
        self._find(schemas[0], "parquet")
        for schema in schemas[1:]:
            if schema.remove_metadata() != schemas[0].remove_metadata():
                raise InputError(f"{self.path}: all files must have the same columns and types; they differ.")

    def _schema(self, file: Path) -> pa.Schema:
        with converting(f"{file} must be a Parquet file that Arrow can read", "write it again"):
            return pq.read_schema(file)

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, str]]:
        names = [name for name in dict.fromkeys(asdict(self.columns).values()) if name is not None]
        for path in self._files:
            with (
                converting(f"{path} must be a Parquet file that Arrow can read", "write it again"),
                pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BUFFER) as file,
            ):
                version = version_of(path)
                for batch in file.iter_batches(batch_size=_BATCH_ROWS[self.modality], columns=names):
                    yield batch, version

    def count(self) -> int:
        """Return the number of records, which is private."""
        return sum(pq.read_metadata(file).num_rows for file in self._files)


@dataclass
class SavedDataset(_ArrowRecords):
    """A split of a data set that `datasets` saved with ``save_to_disk``."""

    path: Path
    columns: Columns
    split: str | None

    def __post_init__(self) -> None:
        datasets = optional("datasets", "datasets", "datasets")
        with converting(f"{self.path} must be a data set that `datasets` can load", "save it again with save_to_disk"):
            loaded = datasets.load_from_disk(str(self.path), keep_in_memory=False)
        if isinstance(loaded, dict):
            if self.split not in loaded:
                raise ParameterError(
                    f"must be one of {', '.join(map(repr, loaded))}; got {self.split!r}.", parameter="split"
                )
            loaded = loaded[self.split]
        elif self.split is not None:
            raise ParameterError(f"must be left out; {self.path} holds one split only.", parameter="split")
        self._data = loaded.with_format("arrow")
        self._version = version_of(*(file["filename"] for file in loaded.cache_files))
        self._find(loaded.features.arrow_schema, "datasets", self.split)
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


@dataclass
class Arrays(Source):
    """A split of published embeddings: ``SPLIT_x.npy`` and, if it is there, ``SPLIT_y.npy``, as DPPL-v1 lays them out.

    See the code of arXiv:2406.08039; no encoder is needed.
    """

    path: Path
    split: str | None

    modality = "embedding"

    def __post_init__(self) -> None:
        splits = sorted(file.name.removesuffix("_x.npy") for file in self.path.glob("*_x.npy"))
        if self.split not in splits:
            raise ParameterError(
                f"must be one of {', '.join(map(repr, splits))}; got {self.split!r}.", parameter="split"
            )
        rows, labels = (self.path / f"{self.split}_{name}.npy" for name in "xy")
        self._version = version_of(rows)
        self._table: EmbeddingTable = read_table(rows, labels=labels if labels.exists() else None)
        self.parameters: dict[str, Any] = {"kind": "arrays", "split": self.split}
        y = self._table.y
        self.label_type = None if y is None else pa.int64() if y.dtype.kind == "i" else pa.string()

    def __iter__(self) -> Iterator[Record]:
        number = 0
        for block in self._table.blocks(_BLOCK_ROWS):
            for row in block:
                label = None if self._table.y is None else self._table.y[number : number + 1].tolist()[0]
                yield record_of(f"row {number}", number, label, partial(np.asarray, row), self._version)
                number += 1

    @property
    def dimension(self) -> int:
        """Width of the embeddings."""
        return self._table.shape[1]

    def count(self) -> int:
        """Return the number of records, which is private."""
        return len(self._table)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain(column: pa.Array) -> pa.Array:
    """Return texts as bytes: Arrow's own decoding stops at the first that is not UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    if pa.types.is_boolean(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.large_binary()) if _is_text(column.type) else column


def _payload(column: pa.Array, place: int) -> Payload:
    value = _plain(column[place : place + 1])[0].as_py()
    if value is None:
        raise Unusable("it is missing")
    return value if isinstance(value, bytes) else bytes(value)
