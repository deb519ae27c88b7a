"""Parquet files: rows in a column of lists, or of lattice rows as bytes; labels, ids and metadata beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dppl._metadata import LATTICE
from dppl.data._places import Place
from dppl.data._reading import Array, converting
from dppl.errors import InputError

MISSING_INTEGER = int(np.iinfo(np.int64).min)  # stands for a null or too large a number among integer labels
_LARGEST_INTEGER = int(np.iinfo(np.int64).max)
_FALLBACKS = {"x": ("X", "embedding", "embeddings"), "y": ("label", "labels")}
_USUAL_ID = "id"
_BATCH_ROWS = 4096  # rows decoded at a time
# Bytes; makes Arrow read page after page instead of a whole row group at once. What comes over a network comes in
# larger pieces, since each takes a round trip.
_READ_BUFFER, _FETCHED = 1 << 20, 1 << 24


@dataclass(frozen=True, slots=True)
class ParquetShard:
    """The rows of one column of a Parquet file. Holds a path, no open file."""

    place: Place
    column: str
    rows: int
    width: int
    dtype: np.dtype[Any]
    # Of lists whose type leaves their length open: what the footer counts in all of them, and how many are nulls.
    counted: tuple[int, int] | None = None

    def check_width(self) -> None:
        """Refuse lists that cannot all have the length `width`, by the footer alone.

        A null list counts as one null. So some lists of other lengths pass, and show when they are read.
        """
        if self.counted is None:
            return
        entries, nulls = self.counted
        if self.width == 1:
            fits = entries == self.rows
        else:
            missing, rest = divmod(self.rows * self.width - entries, self.width - 1)
            fits = rest == 0 and 0 <= missing <= nulls
        if not fits:
            raise _ragged(self.place, self.column)

    def pieces(self) -> Iterator[Array]:
        """Yield rows as they are decoded."""
        for column in stream(self.place, self.column):
            if pa.types.is_fixed_size_binary(column.type):
                yield _lattice_rows(column, self.width)
            else:
                yield _list_rows(column, self.width, self.dtype, self.place, self.column)

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Return other columns of the file."""
        return read_columns(self.place, names)

    def labels(self, y: str) -> Array | None:
        """Return the labels of the file."""
        return read_labels(self.place, y)

    def labelled(self, y: str) -> bool:
        """Tell whether the file has labels."""
        return has_labels(self.place, y)


@contextmanager
def open_parquet(place: Place) -> Iterator[Any]:
    """Open a Parquet file."""
    with converting(f"{place} must be a Parquet file that Arrow can read", "write it again"):
        if place.system is None:
            file = pq.ParquetFile(place.path, pre_buffer=False, buffer_size=_READ_BUFFER)
        else:
            source = place.system.open_input_file(place.path)
            file = pq.ParquetFile(source, pre_buffer=False, buffer_size=_FETCHED)
    with file:
        try:
            yield file
        finally:
            file.close(force=True)


def read_columns(place: Place, names: Sequence[str]) -> pa.Table | None:
    """Read those of the columns that are there; None if none is."""
    with open_parquet(place) as file:
        there = [name for name in names if file.schema_arrow.names.count(name) == 1]
        with converting(f"{place}: columns {', '.join(map(repr, there))} must be readable", "write the file again"):
            return file.read(columns=there) if there else None


def read_labels(place: Place, y: str) -> Array | None:
    """Read the labels of one file; None if it has none."""
    with open_parquet(place) as file:
        name = pick_labels(file.schema_arrow.names, y, place)
        return None if name is None else column_labels(file, place, name)


def has_labels(place: Place, y: str) -> bool:
    """Tell whether a file has labels, by its outline alone."""
    with open_parquet(place) as file:
        schema = file.schema_arrow
    name = pick_labels(schema.names, y, place)
    if name is None:
        return False
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)):
        raise _no_labels(place, name, kind)
    return True


def shard_of(place: Place, x: str, y: str | None) -> tuple[ParquetShard, Array | None, dict[str, str]]:
    """Read the outline, the labels and the metadata of one file; 0 stands for an unknown width."""
    with open_parquet(place) as file:
        schema = file.schema_arrow
        metadata = text_metadata(schema)
        x_name, y_name = pick(schema.names, x, y, place)
        dtype, width = _row_type(schema.field(x_name).type, place, x_name, metadata)
        counted = None if width else _counted(file.metadata, x_name)
        shard = ParquetShard(place, x_name, int(file.metadata.num_rows), width, dtype, counted)
        return shard, None if y_name is None else column_labels(file, place, y_name), metadata


def _counted(footer: Any, column: str) -> tuple[int, int] | None:
    """Return how many entries the lists of a column have, and how many of them may be nulls; None if it is not told."""
    entries = nulls = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = [group.column(place) for place in range(group.num_columns)]
        found = [chunk for chunk in chunks if chunk.path_in_schema.startswith(f"{column}.")]
        if len(found) != 1:  # another column may have a dot in its name
            return None
        told = found[0].statistics
        entries += found[0].num_values
        nulls += told.null_count if told is not None and told.has_null_count else found[0].num_values
    return entries, nulls


def text_metadata(schema: pa.Schema) -> dict[str, str]:
    """Return the metadata of a file as texts."""
    metadata = schema.metadata or {}
    return {key.decode("utf-8", "replace"): text.decode("utf-8", "replace") for key, text in metadata.items()}


def _row_type(kind: Any, place: Place, column: str, metadata: Mapping[str, str]) -> tuple[np.dtype[Any], int]:
    """Type of the numbers of a column, and the length of its rows, 0 if the type leaves it open."""
    fixed = pa.types.is_fixed_size_list(kind)
    if fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = kind.value_type
        if pa.types.is_floating(value) or pa.types.is_integer(value):
            return np.dtype(value.to_pandas_dtype()), int(kind.list_size) if fixed else 0
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width and LATTICE in metadata:
        return np.dtype(np.int8), int(kind.byte_width)
    raise InputError(
        f"must name a column of {place} with lists of floats or integers; {column!r} holds {kind}; name another.",
        parameter="x",
    )


def first_width(shards: Sequence[ParquetShard], source: Place) -> int:
    """Length of the first lists that are neither null nor empty."""
    for shard in shards:
        for lists in stream(shard.place, shard.column):
            longest = pc.max(pc.list_value_length(lists)).as_py()
            if longest:
                return int(longest)
    column = shards[0].column
    raise InputError(f"{source}: column {column!r} must hold lists of numbers; got none; fix the list size")


def stream(place: Place, column: str) -> Iterator[Any]:
    """Yield the Arrow arrays of a column, at most `_BATCH_ROWS` rows at a time."""
    with open_parquet(place) as file:
        promise, hint = f"{place}: column {column!r} must be readable", "write the file again"
        with converting(promise, hint):
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=[column])
        while True:
            with converting(promise, hint):
                batch = next(batches, None)
                found = None if batch is None else batch.column(column)
            if found is None:
                return
            yield found


def _ragged(place: Place, column: str) -> InputError:
    return InputError(
        f"{place}: all lists in column {column!r} must have the same length; they differ; "
        "embed all records with one encoder, and write a fixed-size list"
    )


def _list_rows(lists: Any, width: int, dtype: np.dtype[Any], place: Place, column: str) -> Array:
    """Turn Arrow lists into rows; a null makes its whole row NaN (0 for integers)."""
    lengths = pc.list_value_length(lists).drop_null().to_numpy(zero_copy_only=False)
    if np.any(lengths != width):
        raise _ragged(place, column)
    values = lists.flatten()  # leaves out the slots of null lists
    # The buffer itself: Arrow's own conversion turns integers with a null into floats.
    count, start = len(values), values.offset * dtype.itemsize
    flat = np.frombuffer(values.buffers()[1], dtype, count, start) if count else np.zeros(0, dtype)
    rows = flat.reshape(-1, width)
    if lists.null_count == 0 and values.null_count == 0:
        return rows
    whole = ~values.is_null().to_numpy(zero_copy_only=False).reshape(-1, width).any(axis=1)
    present = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
    filled = np.full((len(lists), width), np.nan if dtype.kind == "f" else 0, dtype=dtype)
    filled[present[whole]] = rows[whole]
    return filled


def _lattice_rows(values: Any, width: int) -> Array:
    """Turn rows stored as bytes into int8 rows, without a copy; a null is a row of zeros."""
    if not len(values):
        return np.empty((0, width), np.int8)
    rows = np.frombuffer(values.buffers()[1], np.int8, len(values) * width, values.offset * width).reshape(-1, width)
    if values.null_count:
        rows = np.where(values.is_valid().to_numpy(zero_copy_only=False)[:, None], rows, np.int8(0))
    return rows


def column_labels(file: Any, place: Place, name: str) -> Array:
    """Read a Parquet column of labels; a null becomes a label that is no class."""
    promise = f"{place}: column {name!r} must hold integers or strings"
    with converting(promise, "write it again"):
        column = file.read(columns=[name]).column(name)
        kind = column.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
            column = column.cast(kind)
        if pa.types.is_uint64(kind):
            # Larger numbers are no class either, and must not stop the others or wrap around to one.
            fits = pc.less_equal(column, pa.scalar(_LARGEST_INTEGER, kind))
            column = pc.if_else(fits, column, pa.scalar(None, kind))
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return np.array(column.cast(pa.int64()).fill_null(MISSING_INTEGER).to_numpy())
        if is_text(kind):
            # Arrow's own decoding stops at the first label that is no UTF-8.
            labels = column.cast(pa.large_binary()).fill_null(b"").to_pylist()
            return np.array([label.decode("utf-8", "replace") for label in labels], dtype=object)
    raise _no_labels(place, name, kind)


def _no_labels(place: Place, name: str, kind: Any) -> InputError:
    return InputError(
        f"must name a column of {place} with integers or strings; {name!r} holds {kind}; name another.", parameter="y"
    )


def is_text(kind: Any) -> bool:
    """Tell whether a column holds texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def pick(names: list[str], x: str, y: str | None, place: Place) -> tuple[str, str | None]:
    """Choose the columns or arrays of rows and labels; only the default names have others in their place."""
    chosen: dict[str, str] = {}
    for parameter, wanted in (("x", x), ("y", y)):
        spare = _FALLBACKS[parameter] if wanted == parameter else ()
        found = next((name for name in (wanted, *spare) if name in names), None)
        if found is not None:
            chosen[parameter] = found
        elif wanted is not None and (parameter, wanted) != ("y", "y"):
            usual = (x, y, "x", "y", *_FALLBACKS["x"], *_FALLBACKS["y"], _USUAL_ID)
            others = [name for name in names if name not in usual]
            raise InputError(
                f"must name an array or column of {place}; it has no {wanted!r}; there are "
                f"{', '.join(map(repr, names))}.",
                parameter=parameter,
                suggestion=others[0] if len(others) == 1 else None,
            )
    if any(names.count(name) > 1 for name in chosen.values()):
        raise InputError(f"{place} must hold each column once; a name occurs again; rename the other columns")
    return chosen["x"], chosen.get("y")


def pick_labels(names: list[str], y: str | None, place: Place) -> str | None:
    """Choose the column of labels where the rows are no column."""
    return pick([*names, "x"] if "x" not in names else names, "x", y, place)[1]
