"""One file of a table: its rows in npy, npz or Parquet, and the other columns of the same records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dppl._utils import validate
from dppl._utils.metadata import LATTICE
from dppl.errors import InputError
from dppl.io.records.labels import (
    PLAIN,
    Array,
    choose_column,
    converting,
    labels_of_file,
    load_npy,
    type_name,
)
from dppl.io.tables import parquet
from dppl.io.tables.places import Place
from dppl.kernel.reading import value_type

_BATCH_ROWS = 4096  # Parquet rows decoded at a time
_CONVERTED = 1 << 22  # bytes of a map in another order that are converted at a time
_ID = "id"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Fragment:
    """One file of a table, or some rows of one: it holds a path and travels, unless its rows are in memory."""

    rows: int
    width: int
    dtype: np.dtype[Any]  # of every block, in native byte order
    first: int = 0  # the position of its first row in the table
    start: int = 0  # and in the file
    place: Place | None = None
    array: Array | None = None  # rows in memory, which need no place
    column: str = ""  # of the rows in Parquet or npz
    id: str = _ID

    @classmethod
    def of(cls, array: Array, place: Place | None = None) -> Fragment:
        """Describe an array of shape (n, d): in memory, or the rows of an npy file."""
        rows, width = map(int, array.shape)
        dtype = array.dtype.newbyteorder("=")
        return cls(
            rows=rows,
            width=width,
            dtype=dtype,
            place=place,
            array=array if place is None else None,
        )

    @property
    def path(self) -> str | None:
        """The file as messages call it; None for rows in memory, which are sent themselves."""
        return None if self.place is None else str(self.place)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of dimensions."""
        return self.rows, self.width

    @property
    def _suffix(self) -> str:
        return "" if self.place is None else self.place.suffix

    @property
    def ids(self) -> list[str] | None:
        """Ids of its rows; None if a row has none."""
        table = self.columns([self.id])
        if table is None:
            return None
        column = table.column(0)
        # The usual column may hold row numbers.
        names_rows = parquet.is_text if self.id == _ID else parquet.names_records
        if column.null_count or not names_rows(column.type):
            return None
        with converting(f"{self.path}: column {self.id!r} must be readable"):
            return [
                str(one).encode("utf-8", "surrogateescape").decode()
                for one in parquet.decode_ids(column)
            ]

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Return other columns of the same records, of the names that are there; None if none is."""
        if self.place is None or self._suffix != ".parquet":
            return None
        with parquet.open_parquet(self.place) as file:
            present = [
                name for name in names if file.schema_arrow.names.count(name) == 1
            ]
            with converting(
                f"{self.place}: columns {', '.join(map(repr, present))} must be readable"
            ):
                return file.read(columns=present) if present else None

    def type_of(self, name: str) -> Any:
        """Return the type of another column of the same records; None if there is none."""
        if self.place is None or self._suffix != ".parquet":
            return None
        with parquet.open_parquet(self.place) as file:
            schema = file.schema_arrow
        if schema.names.count(name) == 1:
            return schema.field(name).type
        return None

    def labels(self, y: str) -> Array | None:
        """Return the labels of its rows that are stored with them under a name; None if there are none."""
        if self.place is None or self._suffix == ".npy":
            return None
        if self._suffix == ".npz":
            return read_npz(self.place, self.column, y)[1]
        with parquet.open_parquet(self.place) as file:
            return parquet.read_label_column(file, self.place, y)

    def labelled(self, y: str) -> bool:
        """Return whether labels are stored with its rows; a column of Parquet is not read for that."""
        if self.place is None or self._suffix != ".parquet":
            return self.labels(y) is not None
        with parquet.open_parquet(self.place) as file:
            return parquet.label_column(file.schema_arrow, self.place, y) is not None

    def check_ids(self, table: Place) -> None:
        """Raise unless the column of ids can name all records."""
        if self.place is None or self._suffix != ".parquet":
            raise InputError(
                f"{table} must have a column {self.id!r} of ids; it holds rows only; write .parquet"
            )
        with parquet.open_parquet(self.place) as file:
            parquet.check_column(
                file.schema_arrow,
                self.place,
                self.id,
                parquet.RECORD_IDS,
                parquet.names_records,
                "ids",
            )

    def cut(self, rows: int) -> list[Fragment]:
        """Return fragments of at most so many rows, where a file can be read from the middle: npy can."""
        if self._suffix != ".npy":
            return [self]
        return [
            replace(
                self,
                rows=min(rows, self.rows - at),
                first=self.first + at,
                start=self.start + at,
            )
            for at in range(0, max(self.rows, 1), rows)
        ]

    def blocks(self, size: int) -> Iterator[Array]:
        """Yield its rows in blocks, as `EmbeddingTable.blocks` does."""
        return rechunk([self], size)

    def pieces(self) -> Iterator[Array]:
        """Yield its rows in C order and native bytes, never more nor fewer than the file announced."""
        if self.place is None or self._suffix != ".parquet":
            rows = np.asarray(self.held())
            if (rows.shape, rows.dtype.newbyteorder("=")) != (self.shape, self.dtype):
                raise self._changed()
            # At once and as they lie there, or piece by piece where they do not lie so.
            ready = rows.flags.c_contiguous and rows.dtype == self.dtype
            step = max(1, len(rows))
            if not ready:
                step = max(1, _CONVERTED // (self.width * self.dtype.itemsize))
            for start in range(0, len(rows), step):
                yield np.ascontiguousarray(rows[start : start + step], self.dtype)
            return
        left = self.rows
        for batch in parquet.stream(self.place, _BATCH_ROWS, [self.column]):
            # Shapes were announced, and memory and sums rest on them.
            values = parquet.plain(batch.column(0))
            left -= len(values)
            if left < 0 or _lengths(values) - {self.width}:
                raise self._changed()
            yield _parquet_rows(values, self.width, self.dtype)
        if left:
            raise self._changed()

    @property
    def is_held(self) -> bool:
        """Whether its rows are in memory, or in a file of this machine that is mapped there."""
        return self.place is None or (
            self._suffix == ".npy" and self.place.local is not None
        )

    def held(self) -> Array:
        """Return an array in memory or the map of an npy file; or read npz, and npy at a URL."""
        if self.place is None:
            assert self.array is not None
            return self.array
        if self._suffix == ".npz":
            return read_npz(self.place, self.column, None)[0]
        return read_npy(self.place)[self.start : self.start + self.rows]

    def list_lengths(self) -> set[int]:
        """Return the lengths of all lists in a Parquet file: its schema may leave them open, and nulls have none."""
        assert self.place is not None
        return set().union(
            *(
                _lengths(parquet.plain(batch.column(0)))
                for batch in parquet.stream(self.place, _BATCH_ROWS, [self.column])
            )
        )

    def _changed(self) -> InputError:
        return InputError(
            f"{self.path} must not change while it is read; it did; read the table again"
        )


class Outline(NamedTuple):
    """What is known of a file without its rows."""

    fragment: Fragment
    labels: Array | None
    metadata: dict[str, str]


def read_outline(place: Place, x: str, y: str | None) -> Outline:
    """Read what is known of a file without its rows; but npz, and npy at a URL, come whole and stay in memory."""
    if place.suffix == ".npz":
        rows, labels = read_npz(place, x, y)
        return Outline(Fragment.of(rows), labels, {})
    if place.suffix == ".npy":
        return Outline(
            Fragment.of(read_npy(place), place if place.local is not None else None),
            None,
            {},
        )
    with parquet.open_parquet(place) as file:
        metadata = metadata_of(file.schema_arrow)
        return Outline(
            _parquet_fragment(file, place, x, metadata),
            parquet.read_label_column(file, place, y),
            metadata,
        )


def metadata_of(schema: pa.Schema) -> dict[str, str]:
    """Return what a Parquet file says of itself."""
    entries = (schema.metadata or {}).items()
    return {
        key.decode("utf-8", "replace"): text.decode("utf-8", "replace")
        for key, text in entries
    }


def read_npy(place: Place) -> Array:
    """Map the rows of an npy file of this machine, or fetch those at a URL."""
    if place.local is not None:
        rows = load_npy(place.local)
    else:
        with (
            converting(f"{place} must be an npy file that NumPy can read", PLAIN),
            place.open() as file,
        ):
            rows = np.lib.format.read_array(file, allow_pickle=False)
    check_rows(rows, str(place))
    return rows


@contextmanager
def open_npz(place: Place) -> Iterator[Any]:
    """Open an npz file, whose arrays are read in the block."""
    promise = f"{place} must be an npz file that NumPy can read"
    with (
        converting(promise, PLAIN),
        place.open() as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        yield archive


def read_npz(place: Place, x: str, y: str | None) -> tuple[Array, Array | None]:
    """Read two arrays of an npz file: rows and labels."""
    with open_npz(place) as archive:
        x_name, y_name = (
            choose_column(archive.files, role, name, place)
            for role, name in (("x", x), ("y", y))
        )
        rows = np.asarray(archive[x_name])
        labels = None
        if y_name is not None:
            labels = np.asarray(archive[y_name])
    check_rows(rows, f"{place}: array {x_name!r}")
    if labels is not None:
        labels = labels_of_file(labels, f"{place}: array {y_name!r}")
    return rows, labels


def check_rows(rows: Array, name: str) -> None:
    """Refuse anything but a matrix of numbers."""
    if rows.ndim != 2 or rows.shape[1] < 1:
        if rows.ndim != 2:
            got = f"{rows.ndim} dimensions"
        else:
            got = "no columns"
        raise InputError(
            f"{name} must have two dimensions, rows and features; got {got}; pass a row a record"
        )
    if rows.dtype.kind not in "iuf" or rows.dtype.itemsize > 8:
        raise InputError(
            f"{name} must hold floats (16, 32 or 64 bits) or integers; got {type_name(rows)}; "
            "convert the rows with astype(numpy.float32)"
        )


def _parquet_fragment(
    file: Any, place: Place, x: str, metadata: Mapping[str, str]
) -> Fragment:
    """Describe the rows of an open Parquet file; width 0 stands for one that the schema leaves open."""
    name = str(choose_column(file.schema_arrow.names, "x", x, place))
    kind = value_type(file.schema_arrow.field(name).type)
    if parquet.is_list(kind) and (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    ):
        width = 0
        if pa.types.is_fixed_size_list(kind):
            width = int(kind.list_size)
        dtype = np.dtype(kind.value_type.to_pandas_dtype())
    elif (
        pa.types.is_fixed_size_binary(kind) and kind.byte_width and LATTICE in metadata
    ):
        width = int(kind.byte_width)
        dtype = np.dtype(np.int8)
    else:
        raise InputError(
            f"must name a column of {place} with lists of floats or integers; {name!r} holds {kind}; name another.",
            parameter="x",
        )
    return Fragment(
        place=place,
        column=name,
        rows=int(file.metadata.num_rows),
        width=width,
        dtype=dtype,
    )


def _lengths(values: Any) -> set[int]:
    import pyarrow.compute as pc  # here, as in `parquet`: arrays of NumPy need none of it, and it is slow to import

    if parquet.is_list(values.type):
        return set(pc.unique(pc.list_value_length(values)).drop_null().to_pylist())
    return set()


def _parquet_rows(values: Any, width: int, dtype: np.dtype[Any]) -> Array:
    """Turn Arrow lists, or lattice rows as bytes, into rows; a null makes its whole row NaN (0 for integers)."""
    whole = np.ones(len(values) - values.null_count, bool)
    if parquet.is_list(values.type):
        flat, unit = values.flatten(), dtype.itemsize  # without the slots of null lists
        if flat.null_count:
            whole = ~flat.is_null().to_numpy(zero_copy_only=False).reshape(
                -1, width
            ).any(axis=1)
    else:
        flat = values.drop_null()
        unit = width
    # The buffer itself: Arrow's own conversion turns integers with a null into floats.
    count = len(whole) * width
    if count:
        stored = np.frombuffer(flat.buffers()[1], dtype, count, flat.offset * unit)
    else:
        stored = np.zeros(0, dtype)
    rows: Array = stored.reshape(-1, width)
    if values.null_count == 0 and whole.all():
        return rows
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    filled = np.full(
        (len(values), width), np.nan if dtype.kind == "f" else 0, dtype=dtype
    )
    filled[present[whole]] = rows[whole]
    return filled


def rechunk(fragments: Iterable[Fragment], size: int) -> Iterator[Array]:
    """Cut the rows of fragments into blocks of exactly `size` rows, and a last one with the rest."""
    validate.positive_integer(size=size)
    held: list[Array] = []
    count = 0
    for fragment in fragments:
        for rest in fragment.pieces():
            while len(rest):
                part = rest[: size - count]
                rest = rest[size - count :]
                held.append(part)
                count += len(part)
                if count == size:
                    # A block that lies in one piece is not copied.
                    yield held[0] if len(held) == 1 else np.concatenate(held)
                    held = []
                    count = 0
    if held:
        yield np.concatenate(held)
