"""Rows in npy and npz files: mapped where they lie on this machine, fetched piece by piece where a URL names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dppl.data._parquet import has_labels, pick, read_columns, read_labels
from dppl.data._places import Place
from dppl.data._reading import Array, check_rows, converting, load_npy
from dppl.data.labels import as_labels
from dppl.errors import InputError

_FETCHED = 1 << 24  # bytes that come over a network at a time
_CONVERTED = 1 << 22  # bytes of a map in another order that are turned at a time
_HINT = "write it again with numpy.save, as numbers and not as Python objects"
_VERSIONS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True, slots=True)
class NpyShard:
    """Rows of one npy file, and the Parquet file with what else is known of them. Holds paths, no open file."""

    place: Place
    rows: int
    width: int
    dtype: np.dtype[Any]
    beside: Place | None = None
    start: int = 0
    of_rows: int | None = None  # that the file holds, where these are some of them

    def cut(self, rows: int) -> list[NpyShard]:
        """Return shards of at most so many rows."""
        whole = self.of_rows or self.rows
        return [
            replace(self, rows=min(rows, self.rows - start), start=self.start + start, of_rows=whole)
            for start in range(0, max(self.rows, 1), rows)
        ]

    def pieces(self) -> Iterator[Array]:
        """Yield rows in order: the map itself, or as they are converted or fetched."""
        found = outline_of(self.place)
        if (found.rows, found.width, found.dtype) != (self.of_rows or self.rows, self.width, self.dtype):
            raise InputError(f"{self.place} must not change while it is read; it did; read the table again")
        if self.place.local is None:
            yield from self._fetched()
            return
        yield from _in_order(self.mapped(), self.dtype)

    def mapped(self) -> Array:
        """Map the rows of a file of this machine."""
        assert self.place.local is not None
        return load_npy(self.place.local)[self.start : self.start + self.rows]

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Return columns of the file beside the rows."""
        found = None if self.beside is None else read_columns(self.beside, names)
        return None if found is None else found.slice(self.start, self.rows)

    def labels(self, y: str) -> Array | None:
        """Return labels of the file beside the rows."""
        found = None if self.beside is None else read_labels(self.beside, y)
        return None if found is None else found[self.start : self.start + self.rows]

    def labelled(self, y: str) -> bool:
        """Tell whether there are labels beside the rows."""
        return self.beside is not None and has_labels(self.beside, y)

    def _fetched(self) -> Iterator[Array]:
        step = max(1, _FETCHED // (self.width * self.dtype.itemsize))
        with converting(f"{self.place} must be readable", self.place.hint), self.place.opened() as file:
            _, stored = _header(file)
            file.seek(file.tell() + self.start * self.width * self.dtype.itemsize)
            for start in range(0, self.rows, step):
                count = min(step, self.rows - start)
                content = file.read(count * self.width * self.dtype.itemsize)
                yield np.frombuffer(content, stored).astype(self.dtype, copy=False).reshape(count, self.width)


@dataclass(frozen=True, slots=True)
class NpzShard:
    """The rows of one npz file, read whenever they are asked for. Holds a path and no array."""

    place: Place
    name: str
    rows: int
    width: int
    dtype: np.dtype[Any]

    def pieces(self) -> Iterator[Array]:
        """Yield the rows."""
        shard, _ = read_npz(self.place, self.name, None)
        if (shard.rows, shard.width, shard.dtype) != (self.rows, self.width, self.dtype):
            raise InputError(f"{self.place} must not change while it is read; it did; read the table again")
        yield from shard.pieces()

    def columns(self, names: Sequence[str]) -> None:
        """Return nothing: the file has no columns."""

    def labels(self, y: str) -> Array | None:
        """Return the labels of the file."""
        return read_npz(self.place, self.name, y)[1]

    def labelled(self, y: str) -> bool:
        """Tell whether the file has labels."""
        return self.labels(y) is not None


@dataclass(frozen=True, slots=True)
class ArrayShard:
    """Rows of an array in memory."""

    array: Array
    place: None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.array.shape[0])

    @property
    def width(self) -> int:
        """Length of the rows."""
        return int(self.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type in native byte order."""
        return self.array.dtype.newbyteorder("=")

    def pieces(self) -> Iterator[Array]:
        """Yield the array."""
        yield from _in_order(self.array, self.dtype)

    def columns(self, names: Sequence[str]) -> None:
        """Return nothing: an array has no other columns."""

    def labels(self, y: str) -> None:
        """Return nothing: an array has no labels."""

    def labelled(self, y: str) -> bool:
        """Tell that there are no labels."""
        return False


def outline_of(place: Place, beside: Place | None = None) -> NpyShard:
    """Read the header of an npy file, and see that it is followed by as many bytes as it says."""
    if place.local is not None:
        rows = load_npy(place.local)
    else:
        with converting(f"{place} must be an npy file that NumPy can read", _HINT), place.opened() as file:
            shape, dtype = _header(file)
            length = file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.hasobject or length > file.size():
                raise ValueError
            # A stand-in of that shape, of one number.
            rows = np.broadcast_to(np.zeros((), dtype), shape)
    check_rows(rows, str(place))
    return NpyShard(place, int(rows.shape[0]), int(rows.shape[1]), rows.dtype.newbyteorder("="), beside)


def read_npz(place: Place, x: str, y: str | None) -> tuple[ArrayShard, Array | None]:
    """Read two arrays of an npz file: rows and labels."""
    hint = "write it again with numpy.savez, as numbers and strings and not as Python objects"
    promise = f"{place} must be an npz file that NumPy can read"
    with converting(promise, hint), place.opened() as file, np.load(file, allow_pickle=False) as archive:
        x_name, y_name = pick(list(archive.files), x, y, place)
        rows = np.asarray(archive[x_name])
        labels = None if y_name is None else np.asarray(archive[y_name])
    check_rows(rows, f"{place}: array {x_name!r}")
    return ArrayShard(rows), None if labels is None else as_labels(labels, name=f"{place}: array {y_name!r}")


def _in_order(rows: Array, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield rows in C order and native bytes: at once and as they lie there, or piece by piece where they do not."""
    rows = np.asarray(rows)
    ready = rows.flags.c_contiguous and rows.dtype == dtype
    step = max(1, len(rows) if ready else _CONVERTED // (rows.shape[1] * dtype.itemsize))
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step], dtype)


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read shape and type, and stop where the rows begin."""
    shape, fortran, dtype = _VERSIONS[np.lib.format.read_magic(file)](file)
    if fortran and len(shape) > 1:
        raise ValueError("columns first: rows cannot be fetched one after another")
    return shape, dtype
