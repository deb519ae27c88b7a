"""The files of a table, each read by itself: rows in npy, npz or Parquet, and the other columns of the same records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dppl import _validate
from dppl._metadata import LATTICE
from dppl.errors import InputError
from dppl.io._columns import (
    choose_columns,
    is_list,
    is_text,
    label_column,
    listed,
    open_parquet,
    plain,
    read_columns,
    read_labels,
    stream_batches,
    text_metadata,
    value_type,
)
from dppl.io._places import Place
from dppl.io._reading import PLAIN, Array, check_rows, converting, load_npy
from dppl.io.labels import as_labels

_BATCH_ROWS = 4096  # Parquet rows decoded at a time
_FETCHED = 1 << 24  # bytes of an npy file that come over a network at a time
_CONVERTED = 1 << 22  # bytes of a map in another order that are converted at a time
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_ID = "id"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Fragment:
    """One file of a table, or some rows of one: it holds a path and travels, unless its rows are in memory.

    The labels of its rows are ``table.y[first : first + rows]``.
    """

    rows: int
    width: int
    dtype: np.dtype[Any]  # of every block, in native byte order
    first: int = 0  # the position of its first row in the table
    start: int = 0  # and in the file
    place: Place | None = None
    sidecar: Place | None = None  # the Parquet file with the other columns of the same records
    array: Array | None = None
    column: str = ""  # of the rows in Parquet or npz
    id: str = _ID
    # Of lists whose type leaves their length open: what the footer counts in all of them, and how many are nulls.
    counted: tuple[int, int] | None = None

    @classmethod
    def of(cls, array: Array, place: Place | None = None, sidecar: Place | None = None) -> Fragment:
        """Describe an array of shape (n, d): in memory, or the rows of an npy file."""
        rows, width = map(int, array.shape)
        held = array if place is None else None
        dtype = array.dtype.newbyteorder("=")
        return cls(rows=rows, width=width, dtype=dtype, place=place, sidecar=sidecar, array=held)

    @property
    def path(self) -> str | None:
        """The file as messages call it; None for rows in memory, which are sent themselves."""
        return None if self.place is None else str(self.place)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of dimensions."""
        return self.rows, self.width

    @property
    def ids(self) -> list[str] | None:
        """Ids of its rows; None if a row has none."""
        table = self.columns([self.id])
        if table is None:
            return None
        column = table.column(0)
        kind = value_type(column.type)
        whole_numbers = pa.types.is_integer(kind) and self.id != _ID  # the usual column may hold row numbers
        if column.null_count or not (is_text(kind) or whole_numbers):
            return None
        with converting(f"{self.path}: column {self.id!r} must be readable"):
            return [one.decode() if isinstance(one, bytes) else str(one) for one in plain(column).to_pylist()]

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Return other columns of the same records, of the names that are there; None if none is."""
        table = None if self.sidecar is None else read_columns(self.sidecar, names)
        return None if table is None else table.slice(self.start, self.rows)

    def labels(self, y: str) -> Array | None:
        """Return the labels of its rows that are stored with them under a name; None if there are none."""
        if self.place is not None and self.place.suffix == ".npz":
            return read_npz(self.place, self.column, y)[1]
        if self.sidecar is None:
            return None
        with open_parquet(self.sidecar) as file:
            labels = read_labels(file, self.sidecar, y)
        return None if labels is None else labels[self.start : self.start + self.rows]

    def labelled(self, y: str) -> bool:
        """Return whether labels are stored with its rows; those of Parquet are not read for that."""
        if self.sidecar is None:
            return self.labels(y) is not None
        with open_parquet(self.sidecar) as file:
            return label_column(file.schema_arrow, self.sidecar, y) is not None

    def check_ids(self, table: Place) -> None:
        """Raise unless the column of ids can name all records."""
        if self.sidecar is None:
            raise InputError(
                f"{table} must have a column {self.id!r} of ids; nothing is beside its rows; write .parquet"
            )
        with open_parquet(self.sidecar) as file:
            schema = file.schema_arrow
        kind = value_type(schema.field(self.id).type) if schema.names.count(self.id) == 1 else None
        if kind is None or not (is_text(kind) or pa.types.is_integer(kind)):
            got = f"there are {listed(schema.names)}; name one" if kind is None else f"it holds {kind}; name another"
            raise InputError(f"{self.sidecar} must have one column {self.id!r} of texts or integers; {got}")

    def cut(self, rows: int) -> list[Fragment]:
        """Return fragments of at most so many rows, where a file can be read from the middle: npy can."""
        if self.place is None or self.place.suffix != ".npy":
            return [self]
        return [
            replace(self, rows=min(rows, self.rows - at), first=self.first + at, start=self.start + at)
            for at in range(0, max(self.rows, 1), rows)
        ]

    def blocks(self, size: int) -> Iterator[Array]:
        """Yield its rows as `EmbeddingTable.blocks` yields those of the table."""
        return rechunk(self.pieces(), size)

    def pieces(self) -> Iterator[Array]:
        """Yield rows as they are read, never more nor fewer than the file announced."""
        left = self.rows
        for piece in self._read():
            # Shapes were announced, and memory and sums rest on them.
            left -= len(piece)
            if left < 0:
                break
            yield piece
        if left:
            raise self._changed()

    def _read(self) -> Iterator[Array]:
        """Yield the rows of the file in pieces of any size."""
        place = self.place
        if place is not None and place.suffix == ".parquet":
            for batch in stream_batches(place, _BATCH_ROWS, [self.column]):
                yield _parquet_rows(batch.column(0), self.width, self.dtype, place, self.column)
            return
        rows = self.held()
        if (rows.shape, rows.dtype.newbyteorder("=")) != (self.shape, self.dtype):
            raise self._changed()
        if place is not None and place.suffix == ".npy" and place.local is None:
            yield from self._fetched(place)
        else:
            yield from _in_order(rows, self.dtype)

    @property
    def is_held(self) -> bool:
        """Whether its rows are in memory, or those of a file of this machine that is mapped there."""
        return self.place is None or (self.place.suffix == ".npy" and self.place.local is not None)

    def held(self) -> Array:
        """Return an array in memory, the map of an npy file or, of one at a URL, what stands for it; or read npz."""
        if self.place is None:
            assert self.array is not None
            return self.array
        if self.place.suffix == ".npz":
            return read_npz(self.place, self.column, None)[0]
        return read_npy(self.place)[self.start : self.start + self.rows]

    def _fetched(self, place: Place) -> Iterator[Array]:
        row_bytes = self.width * self.dtype.itemsize
        step = max(1, _FETCHED // row_bytes)
        with converting(f"{place} must be readable", place.hint), place.open() as file:
            _, stored = _npy_header(file)
            file.seek(file.tell() + self.start * row_bytes)
            for start in range(0, self.rows, step):
                count = min(step, self.rows - start)
                content = np.frombuffer(file.read(count * row_bytes), stored)
                yield content.astype(self.dtype, copy=False).reshape(count, self.width)

    def longest_list(self) -> int:
        """Return the length of the first lists that are neither null nor empty; 0 if there are none."""
        assert self.place is not None
        batches = stream_batches(self.place, _BATCH_ROWS, [self.column])
        lengths = (pc.max(pc.list_value_length(batch.column(0))).as_py() for batch in batches)
        return next((int(length) for length in lengths if length), 0)

    def with_width(self, width: int) -> Fragment:
        """Return it with the length of its lists, which the footer must allow.

        A null list counts as one null. So some lists of other lengths pass here, and show when they are read.
        """
        entries, nulls = self.counted or (self.rows * width, 0)
        missing, rest = divmod(self.rows * width - entries, max(1, width - 1))
        if rest or not 0 <= missing <= (nulls if width > 1 else 0):
            raise _ragged(self.place, self.column)
        return replace(self, width=width)

    def _changed(self) -> InputError:
        return InputError(f"{self.path} must not change while it is read; it did; read the table again")


class Outline(NamedTuple):
    """What is known of a file without its rows."""

    fragment: Fragment
    labels: Array | None
    metadata: dict[str, str]


def read_outline(place: Place, sidecar: Place | None, x: str, y: str | None) -> Outline:
    """Read what is known of a file without its rows; but those of npz, which cannot be read one by one, are read."""
    if place.suffix == ".npz":
        rows, labels = read_npz(place, x, y)
        return Outline(Fragment.of(rows), labels, {})
    if place.suffix == ".parquet":
        with open_parquet(place) as file:
            metadata = text_metadata(file.schema_arrow)
            return Outline(_parquet_fragment(file, place, x, y, metadata), read_labels(file, place, y), metadata)
    fragment = Fragment.of(read_npy(place), place, sidecar)
    if sidecar is None:
        return Outline(fragment, None, {})
    with open_parquet(sidecar) as file:
        if file.metadata.num_rows != fragment.rows:
            raise InputError(
                f"{place} and {sidecar} must have one row a record, in one order; the numbers of rows differ; fetch or "
                "write both again"
            )
        return Outline(fragment, read_labels(file, sidecar, y), text_metadata(file.schema_arrow))


def read_npy(place: Place) -> Array:
    """Map the rows of an npy file, which must have as many bytes as it says; at a URL, return a stand-in of zeros."""
    if place.local is not None:
        rows = load_npy(place.local)
    else:
        with converting(f"{place} must be an npy file that NumPy can read", PLAIN), place.open() as file:
            shape, dtype = _npy_header(file)
            length = file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.hasobject or length > file.size():
                raise ValueError
            # Of that shape, but of one number.
            rows = np.broadcast_to(np.zeros((), dtype), shape)
    check_rows(rows, str(place))
    return rows


def _npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read shape and type, and stop where the rows begin."""
    shape, fortran, dtype = _NPY_HEADERS[np.lib.format.read_magic(file)](file)
    if fortran and len(shape) > 1:
        raise ValueError("columns first: rows cannot be fetched one after another")
    return shape, dtype


@contextmanager
def open_npz(place: Place) -> Iterator[Any]:
    """Open an npz file, whose arrays are read in the block."""
    promise = f"{place} must be an npz file that NumPy can read"
    with converting(promise, PLAIN), place.open() as file, np.load(file, allow_pickle=False) as archive:
        yield archive


def read_npz(place: Place, x: str, y: str | None) -> tuple[Array, Array | None]:
    """Read two arrays of an npz file: rows and labels."""
    with open_npz(place) as archive:
        x_name, y_name = choose_columns(list(archive.files), x, y, place)
        rows = np.asarray(archive[x_name])
        labels = None if y_name is None else np.asarray(archive[y_name])
    check_rows(rows, f"{place}: array {x_name!r}")
    return rows, None if labels is None else as_labels(labels, name=f"{place}: array {y_name!r}")


def _parquet_fragment(file: Any, place: Place, x: str, y: str | None, metadata: Mapping[str, str]) -> Fragment:
    """Describe the rows of an open Parquet file; width 0 stands for one that the schema leaves open."""
    name, _ = choose_columns(file.schema_arrow.names, x, y, place)
    kind = file.schema_arrow.field(name).type
    if is_list(kind) and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        width = int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 0
        dtype = np.dtype(kind.value_type.to_pandas_dtype())
    elif pa.types.is_fixed_size_binary(kind) and kind.byte_width and LATTICE in metadata:
        width, dtype = int(kind.byte_width), np.dtype(np.int8)
    else:
        raise InputError(
            f"must name a column of {place} with lists of floats or integers; {name!r} holds {kind}; name another.",
            parameter="x",
        )
    counted = None if width else _counted(file.metadata, name)
    rows = int(file.metadata.num_rows)
    return Fragment(place=place, sidecar=place, column=name, rows=rows, width=width, dtype=dtype, counted=counted)


def _counted(footer: Any, column: str) -> tuple[int, int] | None:
    """Return how many entries the lists of a column have, and how many may be nulls; None if the footer is silent."""
    entries = nulls = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = [group.column(place) for place in range(group.num_columns)]
        of_column = [chunk for chunk in chunks if chunk.path_in_schema.startswith(f"{column}.")]
        if len(of_column) != 1:  # another column may have a dot in its name
            return None
        (chunk,) = of_column
        known = chunk.statistics is not None and chunk.statistics.has_null_count
        entries += chunk.num_values
        nulls += chunk.statistics.null_count if known else chunk.num_values
    return entries, nulls


def _ragged(place: Place | None, column: str) -> InputError:
    return InputError(
        f"{place}: all lists in column {column!r} must have the same length; they differ; "
        "embed all records with one encoder, and write a fixed-size list"
    )


def _parquet_rows(values: Any, width: int, dtype: np.dtype[Any], place: Place, column: str) -> Array:
    """Turn Arrow lists, or lattice rows as bytes, into rows; a null makes its whole row NaN (0 for integers)."""
    whole = np.ones(len(values) - values.null_count, bool)
    if is_list(values.type):
        lengths = pc.list_value_length(values).drop_null().to_numpy(zero_copy_only=False)
        if np.any(lengths != width):
            raise _ragged(place, column)
        flat, unit = values.flatten(), dtype.itemsize  # without the slots of null lists
        if flat.null_count:
            whole = ~flat.is_null().to_numpy(zero_copy_only=False).reshape(-1, width).any(axis=1)
    else:
        flat, unit = values.drop_null(), width
    # The buffer itself: Arrow's own conversion turns integers with a null into floats.
    count = len(whole) * width
    stored = np.frombuffer(flat.buffers()[1], dtype, count, flat.offset * unit) if count else np.zeros(0, dtype)
    rows: Array = stored.reshape(-1, width)
    if values.null_count == 0 and whole.all():
        return rows
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    filled = np.full((len(values), width), np.nan if dtype.kind == "f" else 0, dtype=dtype)
    filled[present[whole]] = rows[whole]
    return filled


def _in_order(rows: Array, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield rows in C order and native bytes: at once and as they lie there, or piece by piece where they do not."""
    rows = np.asarray(rows)
    ready = rows.flags.c_contiguous and rows.dtype == dtype
    step = max(1, len(rows) if ready else _CONVERTED // (rows.shape[1] * dtype.itemsize))
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step], dtype)


def rechunk(pieces: Iterable[Array], size: int) -> Iterator[Array]:
    """Cut pieces of any length into blocks of exactly `size` rows, and a last one with the rest."""
    _validate.positive_integer(size=size)
    held: list[Array] = []
    count = 0
    for piece in pieces:
        rest = piece
        while len(rest):
            part, rest = rest[: size - count], rest[size - count :]
            held.append(part)
            count += len(part)
            if count == size:
                # A block that lies in one piece is not copied.
                yield held[0] if len(held) == 1 else np.concatenate(held)
                held, count = [], 0
    if held:
        yield np.concatenate(held)
