"""The files of a table, each read by itself: rows in npy, npz or Parquet, and the other columns of the same records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dppl._metadata import LATTICE
from dppl.errors import InputError, ParameterError
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
from dppl.io._reading import Array, check_rows, converting, load_npy
from dppl.io.labels import as_labels

__all__ = ["Fragment"]

_BATCH_ROWS = 4096  # Parquet rows decoded at a time
_FETCHED = 1 << 24  # bytes of an npy file that come over a network at a time
_CONVERTED = 1 << 22  # bytes of a map in another order that are converted at a time
_NPY_HINT = "write it again with numpy.save, as numbers and not as Python objects"
_NPZ_HINT = "write it again with numpy.savez, as numbers and strings and not as Python objects"
_NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_ID = "id"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Fragment(ABC):
    """One file of a table, which can be sent to another process and read there: it holds a path, no open file.

    Made by `EmbeddingTable.fragments`. The labels of its rows are ``table.y[first : first + rows]``.

    Attributes
    ----------
    rows : int
        Number of rows.
    width : int
        Number of dimensions.
    dtype : numpy.dtype
        Type of every block, in native byte order.
    first : int
        Position of its first row in the table.
    """

    rows: int
    width: int
    dtype: np.dtype[Any]
    first: int = 0
    _place: Place | None = None
    _start: int = 0  # its first row in the file
    _sidecar: Place | None = None  # the Parquet file with the other columns of the same records
    _id: str = _ID

    @property
    def path(self) -> str | None:
        """The file as messages call it; None for rows in memory, which are sent themselves."""
        return None if self._place is None else str(self._place)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of dimensions."""
        return self.rows, self.width

    @property
    def ids(self) -> list[str] | None:
        """Ids of its rows; None if a row has none."""
        table = self.columns([self._id])
        if table is None:
            return None
        column = table.column(0)
        kind = value_type(column.type)
        whole_numbers = pa.types.is_integer(kind) and self._id != _ID  # the usual column may hold row numbers
        if column.null_count or not (is_text(kind) or whole_numbers):
            return None
        with converting(f"{self.path}: column {self._id!r} must be readable", "write the file again"):
            return [one.decode() if isinstance(one, bytes) else str(one) for one in plain(column).to_pylist()]

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Return other columns of the same records, of the names that are there; None if none is.

        Parameters
        ----------
        names : sequence of str
        """
        table = None if self._sidecar is None else read_columns(self._sidecar, names)
        return None if table is None else table.slice(self._start, self.rows)

    def labels(self, y: str) -> Array | None:
        """Return the labels of its rows that are stored with them.

        Parameters
        ----------
        y : str
            Name of the labels.
        """
        if self._sidecar is None:
            return None
        with open_parquet(self._sidecar) as file:
            labels = read_labels(file, self._sidecar, y)
        return None if labels is None else labels[self._start : self._start + self.rows]

    def labelled(self, y: str) -> bool:
        """Return whether labels are stored with its rows, without reading them.

        Parameters
        ----------
        y : str
            Name of the labels.
        """
        if self._sidecar is None:
            return False
        with open_parquet(self._sidecar) as file:
            return label_column(file.schema_arrow, self._sidecar, y) is not None

    def blocks(self, size: int) -> Iterator[Array]:
        """Yield its rows as `EmbeddingTable.blocks` yields those of the table.

        Parameters
        ----------
        size : int
            Rows in a block, at least 1. The last block may have fewer.
        """
        return rechunk(self._pieces(), size)

    def _pieces(self) -> Iterator[Array]:
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

    @abstractmethod
    def _read(self) -> Iterator[Array]:
        """Yield the rows of the file in pieces of any size."""

    def cut(self, rows: int) -> list[Fragment]:
        """Return fragments of at most so many rows, where a file can be read from the middle.

        Parameters
        ----------
        rows : int
        """
        return [self]

    def _check_ids(self, table: Place) -> None:
        """Raise unless the column of ids can name all records."""
        if self._sidecar is None:
            raise InputError(
                f"{table} must have a column {self._id!r} of ids; nothing is beside its rows; write .parquet"
            )
        with open_parquet(self._sidecar) as file:
            schema = file.schema_arrow
        kind = value_type(schema.field(self._id).type) if schema.names.count(self._id) == 1 else None
        if kind is None or not (is_text(kind) or pa.types.is_integer(kind)):
            got = f"there are {listed(schema.names)}; name one" if kind is None else f"it holds {kind}; name another"
            raise InputError(f"{self._sidecar} must have one column {self._id!r} of texts or integers; {got}")

    def _changed(self) -> InputError:
        return InputError(f"{self.path} must not change while it is read; it did; read the table again")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ArrayFragment(Fragment):
    """Rows of an array in memory."""

    array: Array

    @classmethod
    def of(cls, array: Array) -> ArrayFragment:
        """Return an array of shape (n, d), which is kept and not copied."""
        rows, width = array.shape
        return cls(array=array, rows=rows, width=width, dtype=array.dtype.newbyteorder("="))

    def _read(self) -> Iterator[Array]:
        return _in_order(self.array, self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NpzFragment(Fragment):
    """The rows of an npz file, read whenever they are asked for."""

    _place: Place
    name: str

    def _read(self) -> Iterator[Array]:
        array, _ = _npz_arrays(self._place, self.name, None)
        if (*array.shape, array.dtype.newbyteorder("=")) != (self.rows, self.width, self.dtype):
            raise self._changed()
        return _in_order(array, self.dtype)

    def labels(self, y: str) -> Array | None:
        """Return the labels in the file."""
        return _npz_arrays(self._place, self.name, y)[1]

    def labelled(self, y: str) -> bool:
        """Return whether the file has labels."""
        return self.labels(y) is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NpyFragment(Fragment):
    """Rows of an npy file: mapped where it lies on this machine, else fetched piece by piece."""

    _place: Place
    file_rows: int  # of which these may be some

    def _read(self) -> Iterator[Array]:
        header = read_npy_header(self._place)
        if (header.rows, header.width, header.dtype) != (self.file_rows, self.width, self.dtype):
            raise self._changed()
        return self._fetched() if self._place.local is None else _in_order(self.mapped(), self.dtype)

    def mapped(self) -> Array:
        """Map the rows, which are in a file of this machine."""
        assert self._place.local is not None
        return load_npy(self._place.local)[self._start : self._start + self.rows]

    def cut(self, rows: int) -> list[Fragment]:
        """Return fragments of at most so many rows."""
        return [
            replace(self, rows=min(rows, self.rows - at), first=self.first + at, _start=self._start + at)
            for at in range(0, max(self.rows, 1), rows)
        ]

    def _fetched(self) -> Iterator[Array]:
        row_bytes = self.width * self.dtype.itemsize
        step = max(1, _FETCHED // row_bytes)
        with converting(f"{self._place} must be readable", self._place.hint), self._place.open() as file:
            _, stored = _npy_header(file)
            file.seek(file.tell() + self._start * row_bytes)
            for start in range(0, self.rows, step):
                count = min(step, self.rows - start)
                content = np.frombuffer(file.read(count * row_bytes), stored)
                yield content.astype(self.dtype, copy=False).reshape(count, self.width)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ParquetFragment(Fragment):
    """The rows in one column of a Parquet file: lists of numbers, or lattice rows as bytes."""

    _place: Place
    column: str
    # Of lists whose type leaves their length open: what the footer counts in all of them, and how many are nulls.
    counted: tuple[int, int] | None = None

    def _read(self) -> Iterator[Array]:
        for batch in stream_batches(self._place, _BATCH_ROWS, [self.column]):
            column = batch.column(self.column)
            if pa.types.is_fixed_size_binary(column.type):
                yield _lattice_rows(column, self.width)
            else:
                yield _list_rows(column, self.width, self.dtype, self._place, self.column)

    def longest_list(self) -> int:
        """Return the length of the first lists that are neither null nor empty; 0 if there are none."""
        batches = stream_batches(self._place, _BATCH_ROWS, [self.column])
        lengths = (pc.max(pc.list_value_length(batch.column(self.column))).as_py() for batch in batches)
        return next((int(length) for length in lengths if length), 0)

    def with_width(self, width: int) -> ParquetFragment:
        """Return it with the length of its lists, which the footer must allow.

        A null list counts as one null. So some lists of other lengths pass here, and show when they are read.
        """
        entries, nulls = self.counted or (self.rows * width, 0)
        if width == 1:
            fits = entries == self.rows
        else:
            missing, rest = divmod(self.rows * width - entries, width - 1)
            fits = rest == 0 and 0 <= missing <= nulls
        if not fits:
            raise _ragged(self._place, self.column)
        return replace(self, width=width)


class Outline(NamedTuple):
    """What is known of a file, or of a table of files: rows, labels and metadata."""

    fragment: Fragment
    labels: Array | None
    metadata: dict[str, str]


def read_npy_header(place: Place, sidecar: Place | None = None) -> NpyFragment:
    """Read the header of an npy file, which must be followed by as many bytes as it says."""
    # The map also shows whether the file is long enough.
    if place.local is not None:
        rows = load_npy(place.local)
    else:
        with converting(f"{place} must be an npy file that NumPy can read", _NPY_HINT), place.open() as file:
            shape, dtype = _npy_header(file)
            length = file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.hasobject or length > file.size():
                raise ValueError
            # A stand-in of that shape, of one number.
            rows = np.broadcast_to(np.zeros((), dtype), shape)
    check_rows(rows, str(place))
    count, width = map(int, rows.shape)
    dtype = rows.dtype.newbyteorder("=")
    return NpyFragment(_place=place, rows=count, file_rows=count, width=width, dtype=dtype, _sidecar=sidecar)


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
    with converting(promise, _NPZ_HINT), place.open() as file, np.load(file, allow_pickle=False) as archive:
        yield archive


def _npz_arrays(place: Place, x: str, y: str | None) -> tuple[Array, Array | None]:
    """Read two arrays of an npz file: rows and labels."""
    with open_npz(place) as archive:
        x_name, y_name = choose_columns(list(archive.files), x, y, place)
        rows = np.asarray(archive[x_name])
        labels = None if y_name is None else np.asarray(archive[y_name])
    check_rows(rows, f"{place}: array {x_name!r}")
    return rows, None if labels is None else as_labels(labels, name=f"{place}: array {y_name!r}")


def read_outline(place: Place, sidecar: Place | None, x: str, y: str | None) -> Outline:
    """Read what is known of a file without its rows; but those of npz, which cannot be read one by one, are read."""
    if place.suffix == ".npz":
        rows, labels = _npz_arrays(place, x, y)
        return Outline(ArrayFragment.of(rows), labels, {})
    if place.suffix == ".parquet":
        with open_parquet(place) as file:
            metadata = text_metadata(file.schema_arrow)
            fragment = _parquet_fragment(file, place, x, y, metadata)
            return Outline(fragment, read_labels(file, place, y), metadata)
    header = read_npy_header(place, sidecar)
    if sidecar is None:
        return Outline(header, None, {})
    with open_parquet(sidecar) as file:
        if file.metadata.num_rows != header.rows:
            raise InputError(
                f"{place} and {sidecar} must have one row a record, in one order; the numbers of rows differ; fetch or "
                "write both again"
            )
        return Outline(header, read_labels(file, sidecar, y), text_metadata(file.schema_arrow))


def _parquet_fragment(file: Any, place: Place, x: str, y: str | None, metadata: Mapping[str, str]) -> ParquetFragment:
    """Describe the rows of an open Parquet file; width 0 stands for one that the schema leaves open."""
    schema, footer = file.schema_arrow, file.metadata
    name, _ = choose_columns(schema.names, x, y, place)
    dtype, width = _row_type(schema.field(name).type, place, name, metadata)
    return ParquetFragment(
        _place=place,
        _sidecar=place,
        column=name,
        rows=int(footer.num_rows),
        width=width,
        dtype=dtype,
        counted=None if width else _counted(footer, name),
    )


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


def _row_type(kind: Any, place: Place, column: str, metadata: Mapping[str, str]) -> tuple[np.dtype[Any], int]:
    """Return the type of the numbers of a column and the length of its rows, 0 if the type leaves it open."""
    if is_list(kind) and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        width = int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 0
        return np.dtype(kind.value_type.to_pandas_dtype()), width
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width and LATTICE in metadata:
        return np.dtype(np.int8), int(kind.byte_width)
    raise InputError(
        f"must name a column of {place} with lists of floats or integers; {column!r} holds {kind}; name another.",
        parameter="x",
    )


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
    values = lists.flatten()  # without the slots of null lists
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


def _in_order(rows: Array, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield rows in C order and native bytes: at once and as they lie there, or piece by piece where they do not."""
    rows = np.asarray(rows)
    ready = rows.flags.c_contiguous and rows.dtype == dtype
    step = max(1, len(rows) if ready else _CONVERTED // (rows.shape[1] * dtype.itemsize))
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step], dtype)


def rechunk(pieces: Iterable[Array], size: int) -> Iterator[Array]:
    """Cut pieces of any length into blocks of exactly `size` rows, and a last one with the rest."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ParameterError(f"size must be an integer of at least 1; got {size!r}")
    return _rechunked(pieces, int(size))


def _rechunked(pieces: Iterable[Array], size: int) -> Iterator[Array]:
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
