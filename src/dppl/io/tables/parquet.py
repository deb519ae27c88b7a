"""Parquet files: labels and ids in their columns, and records. An odd value never stops or changes the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes
from uuid import UUID

import numpy as np
import pyarrow as pa

from dppl.errors import InputError
from dppl.io.records.labels import Array, choose_column, converting, listed
from dppl.io.records.record import (
    CONTENTS,
    BadRecord,
    Columns,
    Payload,
    Record,
    Source,
    as_row,
    file_version,
    make_record,
    resolve_columns,
)
from dppl.io.tables.places import Place, open_place
from dppl.kernel.persons import CAST, ID_KINDS, days_of, id_kind, texts_apart
from dppl.kernel.reading import value_type
from dppl.reasons import SkipReason

KeyedFile: TypeAlias = tuple[Place, dict[str, bytes]]

RECORD_IDS = "texts, integers, decimals without a fraction, dates or UUIDs"
_MISSING = int(
    np.iinfo(np.int64).min
)  # stands for a null or too large a number among integer labels
_LARGEST_INTEGER = int(np.iinfo(np.int64).max)
# Bytes; makes Arrow read page after page instead of a whole row group at once. What
# comes over a network comes in larger pieces, since each takes a round trip.
_READ_BUFFER = 1 << 20
_FETCHED = 1 << 24
_NO_VALUE = b"__HIVE_DEFAULT_PARTITION__"
_BATCH_ROWS = {"image": 16, "text": 1024, "row": 4096}  # records at a time


def is_text(kind: Any) -> bool:
    """Return whether a type is of texts, or a dictionary of them."""
    return id_kind(kind) == "texts"


def is_bytes(kind: Any) -> bool:
    """Return whether a type is of bytes of any length."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def is_list(kind: Any) -> bool:
    """Return whether a type is of lists."""
    kind = value_type(kind)
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def is_label(kind: Any) -> bool:
    """Return whether a type is of labels: integers or texts, or a dictionary of them."""
    return bool(pa.types.is_integer(value_type(kind)) or is_text(kind))


def names_records(kind: Any) -> bool:
    """Return whether a type is of ids that can be written: bytes may be no texts."""
    return id_kind(kind) not in (None, "bytes")


def id_type(kind: Any) -> Any:
    """Return the type in which a table keeps the ids of persons that `decode_ids` returns of a column."""
    kind = value_type(kind)
    if pa.types.is_integer(kind):
        return kind
    if id_kind(kind) == "bytes":
        return pa.binary()
    return pa.string()


def plain(column: Any) -> Any:
    """Return a column without a dictionary, and texts as bytes: Arrow stops at the first that is no UTF-8."""
    kind = value_type(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if is_text(kind):
        return column.cast(pa.large_binary())
    return column


def decode_labels(column: Any) -> Array:
    """Return the labels in a column; a null becomes a label that is no class."""
    kind = value_type(column.type)
    if is_text(kind):
        return _objects(column, "replace", "")
    # Larger numbers than int64 holds are no class either, and must not stop the others
    # or wrap around to one.
    if pa.types.is_uint64(kind):
        column = plain(column)
    else:
        column = plain(column).cast(pa.int64())
    labels = [np.empty(0, np.int64)]
    # The buffers themselves: Arrow's own conversions import pandas, which takes longer
    # than a small fit.
    for chunk in filter(len, _chunks(column)):
        present, numbers = chunk.buffers()
        values = np.frombuffer(numbers, "<u8", len(chunk), 8 * chunk.offset)
        if pa.types.is_uint64(kind):
            usable = values <= _LARGEST_INTEGER
        else:
            usable = np.ones(len(values), bool)
        if present is not None:
            bits = np.unpackbits(
                np.frombuffer(present, np.uint8),
                count=chunk.offset + len(chunk),
                bitorder="little",
            )
            usable = usable & (bits[chunk.offset :] == 1)
        labels.append(np.where(usable, values.view(np.int64), _MISSING))
    return np.concatenate(labels)


def decode_ids(column: Any) -> list[Any]:
    """Return the ids in a column, of a type that holds some, as texts, integers or bytes; None for a null.

    Texts that are not UTF-8 stay different from each other.
    """
    kind = id_kind(column.type)
    values = value_type(column.type)
    if kind == "UUIDs":
        stored = plain(column).cast(values.storage_type)
        return [
            None if one is None else str(UUID(bytes=one)) for one in stored.to_pylist()
        ]
    if kind == "bytes":
        column = plain(column).cast(pa.large_binary())
    elif kind == "dates":
        return list(texts_apart(days_of(column)))
    elif pa.types.is_decimal(values):
        column = plain(column).cast(pa.string())
    return list(_objects(column, "surrogateescape", None))


def _objects(column: Any, errors: str, missing: Any) -> Array:
    """Return the items of a column, of which equal ones are one object; texts are decoded."""
    texts = is_text(value_type(column.type))
    column = plain(column)
    encoded = (
        pa.chunked_array(_chunks(column), column.type)
        .dictionary_encode("encode")
        .unify_dictionaries()
    )
    values = [
        one for chunk in encoded.chunks[:1] for one in chunk.dictionary.to_pylist()
    ]
    items = np.empty(len(values), object)
    for place, one in enumerate(values):
        if one is None:
            items[place] = missing
        else:
            items[place] = one.decode("utf-8", errors) if texts else one
    whole = np.empty(len(column), object)
    end = 0
    for chunk in filter(len, encoded.chunks):
        start = end
        end = end + len(chunk)
        whole[start:end] = items[
            np.frombuffer(
                chunk.indices.buffers()[1], "<i4", len(chunk), 4 * chunk.offset
            )
        ]
    return whole


def _chunks(column: Any) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        return list(column.chunks)
    return [column]


@contextmanager
def open_parquet(place: Place) -> Iterator[Any]:
    """Open a Parquet file."""
    import pyarrow.parquet as pq

    with converting(f"{place} must be a Parquet file that Arrow can read"):
        size = _FETCHED if place.local is None else _READ_BUFFER
        file = pq.ParquetFile(place.open(), pre_buffer=False, buffer_size=size)
    try:
        yield file
    finally:
        file.close(force=True)


def stream(
    place: Place, rows: int, columns: Sequence[str] | None = None, start: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a file, or of some of its columns, at most so many rows at a time.

    The rows before `start` are left out; row groups of nothing else are not read.
    """
    promise = f"{place} must be readable"
    with open_parquet(place) as file:
        with converting(promise):
            groups = list(range(file.num_row_groups))
            while groups and file.metadata.row_group(groups[0]).num_rows <= start:
                start -= file.metadata.row_group(groups.pop(0)).num_rows
            batches = file.iter_batches(
                batch_size=rows, row_groups=groups, columns=columns
            )
        while True:
            # Around the reading alone: what happens while the caller has the rows is
            # none of the file's.
            with converting(promise):
                batch = next(batches, None)
            if batch is None:
                return
            left = batch.slice(min(start, len(batch)))
            start -= len(batch) - len(left)
            yield left


def read_label_column(file: Any, place: Place, y: str | None) -> Array | None:
    """Read the labels of an open Parquet file; None if it has none."""
    name = label_column(file.schema_arrow, place, y)
    if name is None:
        return None
    with converting(f"{place}: column {name!r} must hold integers or strings"):
        return decode_labels(file.read(columns=[name]).column(name))


def label_column(schema: pa.Schema, place: Place, y: str | None) -> str | None:
    """Return the name of the column of labels, which must be of their type; None if there is none."""
    name = choose_column(schema.names, "y", y, place)
    if name is not None:
        check_column(schema, place, name, "integers or strings", is_label, "y")
    return name


def check_column(
    schema: pa.Schema,
    place: Place | Path,
    name: str,
    values: str,
    fits: Callable[[Any], object],
    parameter: str,
) -> Any:
    """Return the type of a column that a file must have once, with values that fit."""
    kind = None
    if schema.names.count(name) == 1:
        kind = schema.field(name).type
    if kind is None or not fits(kind):
        if kind is None:
            there = f"{name!r} is none; there are {listed(schema.names)}"
        else:
            there = f"{name!r} holds {kind}"
        can_be_cast = kind is not None and parameter != "x"
        hint = f", or {CAST}" if can_be_cast else ""
        raise InputError(
            f"must name one column of {place} with {values}; {there}; name another{hint}.",
            parameter=parameter,
        )
    return kind


def refuse_several_kinds(kinds: Set[str | None], table: object, name: str) -> None:
    """Refuse ids of persons of several kinds: where one file lost leading zeros, a person has an id in each."""
    if len(kinds) > 1:
        there = ", ".join(sorted(map(str, kinds)))
        raise InputError(
            f"must hold one kind of ids in all files of {table}; {name!r} holds {there}; cast them to text, and see "
            "that equal ids are equal texts.",
            parameter="groups",
        )


def is_partitioned(path: Path) -> bool:
    """Return whether Parquet files lie in folders that are called ``key=value``."""
    return path.is_dir() and any(path.glob("[!._]*=*/**/*.parquet"))


def keyed_files(path: Path) -> list[KeyedFile]:
    """Return a Parquet file, or the files of a folder, each with the keys of the folders that it lies in."""
    root = open_place(path)
    if not is_partitioned(path):
        return [
            (file, {}) for file in (root.files(".parquet") if path.is_dir() else [root])
        ]
    files: list[KeyedFile] = []
    for file in root.files(".parquet", below=True):
        parts = PurePosixPath(file.path).relative_to(root.path).parts[:-1]
        keys = {
            key: unquote_to_bytes(value)
            for key, _, value in (part.partition("=") for part in parts)
        }
        # Named as the whole is: a path that holds a label or the id of a person must be
        # in no message.
        files.append((Place(file.system, file.path, root.shown), dict(keys)))
        if any("=" not in part for part in parts) or keys.keys() != files[0][1].keys():
            raise InputError(
                f"{path}: every file must lie in folders of the same keys, each called key=value."
            )
    return files


def schemas_of(files: Sequence[KeyedFile], where: object) -> list[pa.Schema]:
    """Return the schemas of files, equal except for metadata, with the keys of their folders as columns."""
    schemas = []
    for place, keys in files:
        with open_parquet(place) as file:
            # All keys are texts: the name of one folder must not decide what another
            # is.
            texts = [pa.field(key, pa.string()) for key in keys]
            schemas.append(
                pa.schema([*file.schema_arrow, *texts], file.schema_arrow.metadata)
            )
    if any(not other.equals(schemas[0]) for other in schemas):
        raise InputError(
            f"{where}: all files must have the same columns and types; they differ."
        )
    return schemas


def with_keys(batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
    """Return a batch with the keys of its file as columns of texts, null where Hive writes that a key has no value."""
    for key, value in keys.items():
        # As bytes, like other texts: those that are no UTF-8 stay different from each
        # other.
        text = pa.scalar(None if value == _NO_VALUE else value, pa.binary())
        batch = batch.append_column(
            pa.field(key, pa.string()), pa.repeat(text, len(batch)).view(pa.string())
        )
    return batch


class ParquetRecords(Source):
    """Texts or encoded images in a Parquet file, or in a folder of them in the order of a table's."""

    seeks = True

    def __init__(self, path: Path, columns: Columns) -> None:
        self._files = keyed_files(path)
        if not self._files:
            raise InputError(f"{path} must hold .parquet files; got none.")
        schema, *_ = schemas_of(self._files, path)
        self.columns = resolve_columns(columns, schema.names, path, CONTENTS)
        # The schema decides what the records are, and no record.
        if isinstance(self.columns.x, tuple):
            self.modality = "row"
        else:
            x = check_column(
                schema,
                path,
                str(self.columns.x),
                "texts, or bytes of images",
                _is_content,
                "x",
            )
            self.modality = "text" if is_text(x) else "image"
        self.label_type = self.person_type = None
        if self.columns.y is not None:
            # Several labels of a record are one text; a list is none.
            labels = "integers or texts, or several labels in a text, as 'flu; asthma'"
            y = check_column(schema, path, self.columns.y, labels, is_label, "y")
            self.label_type = pa.string() if is_text(y) else pa.int64()
        if self.columns.person is not None:
            person = check_column(
                schema, path, self.columns.person, ID_KINDS, id_kind, "person"
            )
            self.person_type = id_type(person)
        if self.columns.id is not None:
            check_column(schema, path, self.columns.id, RECORD_IDS, names_records, "id")
        self.parameters = {"kind": "parquet", **self.columns.as_dict()}

    def __iter__(self) -> Iterator[Record]:
        return self.since(0)

    def since(self, place: int) -> Iterator[Record]:
        """Yield the records from a place on; of files and row groups before it no row is read."""
        names = list(dict.fromkeys(name for _, name in self.columns.roles()))
        first = 1
        start = place
        for file, keys in self._files:
            skipped = 0
            if start >= first:
                with open_parquet(file) as opened:
                    skipped = min(start + 1 - first, opened.metadata.num_rows)
            first += skipped
            # Of the file: to hash contents would mean to read them twice.
            version = file_version(file.path)
            own = [name for name in names if name not in keys]
            for part in stream(file, _BATCH_ROWS[self.modality], own, skipped):
                batch = with_keys(
                    part, {key: value for key, value in keys.items() if key in names}
                )
                # Columns of a batch are small; images and texts are taken out one by
                # one when they are loaded.
                labels = _values(batch, self.columns.y)
                ids, persons = (
                    None if name is None else decode_ids(batch.column(name))
                    for name in (self.columns.id, self.columns.person)
                )
                if isinstance(self.columns.x, tuple):
                    rows = _rows(batch, self.columns.x)
                    payload: Callable[[int], Payload] = partial(_as_row, rows)
                else:
                    payload = partial(_payload, batch.column(self.columns.x))
                for place in range(len(batch)):
                    label, person = (
                        values[place] if values else None
                        for values in (labels, persons)
                    )
                    identity = ids[place] if ids else first + place
                    load = partial(payload, place)
                    yield make_record(
                        f"row {first + place}", identity, label, load, version, person
                    )
                first += len(batch)

    def count(self) -> int:
        """Return the number of records, which is private."""
        total = 0
        for place, _ in self._files:
            with open_parquet(place) as file:
                total += file.metadata.num_rows
        return total


def _values(batch: pa.RecordBatch, name: str | None) -> list[Any] | None:
    if name is None:
        return None
    values: list[Any] = plain(batch.column(name)).to_pylist()
    return values


def _rows(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the cells of a batch, a dictionary a row."""
    columns = [plain(batch.column(name)).to_pylist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _as_row(rows: list[dict[str, Any]], place: int) -> dict[str, str]:
    return as_row(rows[place])


def _is_content(kind: Any) -> bool:
    """Return whether a type is of texts, or of images: bytes, or structs of them."""
    kind = value_type(kind)
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = value_type(kind.field("bytes").type)
    return is_text(kind) or is_bytes(kind)


def _payload(column: pa.Array, place: int) -> bytes:
    """Return the bytes of one text or image, whose neighbours stay undecoded."""
    import pyarrow.compute as pc

    # A slice shares the batch's memory.
    one = plain(column[place : place + 1])
    if pa.types.is_struct(one.type):
        one = plain(pc.struct_field(one, "bytes"))
    value = one[0].as_py()
    if value is None:
        raise BadRecord(SkipReason.MISSING)
    if isinstance(value, bytes):
        return value
    return bytes(value)
