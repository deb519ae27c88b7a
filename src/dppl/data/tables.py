"""Embedding tables: rows `x` (n x d) and, optionally, labels `y` (n), read from npy, npz or Parquet.

Rows are streamed in blocks, so a table may be larger than memory. A bad record (a null, a label that is not
an integer, bytes that are no UTF-8) never stops a run, never changes how another is read, and is never named:
whether one record is well formed is private. What breaks a whole file raises `InputError`, with names of files
and columns, and types, only. The original exception is not chained, because the texts of NumPy, Arrow and the
codecs may quote bytes that they could not read.
"""

import json
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dppl._fingerprint import same_encoder
from dppl.data._reading import Array, by_suffix, check_not_empty, check_rows, converting, load_npy, type_name
from dppl.data.labels import LABEL_READERS, AnyPath, as_labels
from dppl.errors import InputError, ParameterError
from dppl.estimators.persons import texts_apart

__all__ = ["EmbeddingTable", "read_ids", "read_table"]

_FALLBACKS = {"x": ("X", "embedding", "embeddings"), "y": ("label", "labels")}
_MISSING_INTEGER = int(np.iinfo(np.int64).min)  # stands for a null or too large a number among integer labels
_LARGEST_INTEGER = int(np.iinfo(np.int64).max)
_ID, _REFERENCE = "id", "reference"  # of records, in tables that dppl embed writes
MANIFEST = "_manifest.json"  # of a table that dppl embed writes; readers of Parquet pass over such names
_ENCODER, _NOT_COVERED = "encoder", "not_covered"
_ID_KINDS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_BATCH_ROWS = 4096  # rows decoded at a time from Parquet
_READ_BUFFER = 1 << 20  # bytes; makes Arrow read page after page instead of a whole row group at once


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmbeddingTable:
    """Rows on disk or in memory, with labels where there are any. Made by `read_table`, or `of` an array.

    NumPy functions accept a table; `np.asarray(table)` holds all rows at once.

    Attributes
    ----------
    y : ndarray of shape (n,) or None
        Labels: int64 or strings. Those of a text file are always strings; estimators match "1" with the class 1.
    metadata : dict of str to str
        What the writer stored in the Parquet schema; of several shards, the entries that all of them share.
    texts : tuple of str, or None
        Public texts that the rows are embeddings of, where they are kept. No file holds them.
    """

    _rows: "_ArrayRows | _ParquetRows"
    y: Array | None
    metadata: dict[str, str]
    texts: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        rows: Array,
        y: Array | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        texts: Iterable[str] | None = None,
    ) -> "EmbeddingTable":
        """Return an array of shape (n, d) as a table.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Floats of at most 64 bits, or integers; kept and not copied.
        y : ndarray of shape (n,), default=None
            Labels, if there are any.
        metadata : mapping of str to str, default=None
            What the table says of itself.
        texts : iterable of n str, default=None
            Public texts that the rows are embeddings of. A model keeps those of examples of its classes.

        Raises
        ------
        InputError
            If it is no matrix of numbers.
        """
        check_rows(rows, "rows")
        return cls(_ArrayRows(rows), y, dict(metadata or {}), None if texts is None else tuple(texts))

    @property
    def ids(self) -> list[str] | None:
        """Ids of the rows, read from the column ``id`` that `dppl embed` writes; None if a row has none."""
        return self._rows.ids

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows n and of dimensions d."""
        return self._rows.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of every block, in native byte order."""
        return self._rows.dtype

    def blocks(self, size: int) -> Iterator[Array]:
        """Yield the rows in order, `size` at a time.

        Parameters
        ----------
        size : int
            Rows in a block, at least 1. The last block may have fewer.

        Yields
        ------
        ndarray of shape (size, d)
            C-contiguous and of type `dtype`; to be read, not written. A Parquet row that is null or holds a
            null is NaN throughout, or 0 throughout in an integer table.

        Raises
        ------
        ParameterError
            If `size` is not a positive integer.
        InputError
            If a file is damaged or has changed, or if lists differ in length.
        """
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ParameterError(f"size must be an integer of at least 1; got {size!r}")
        return self._rows.blocks(int(size))

    def to_array(self) -> Array:
        """Return all rows: the memory map for npy, an ndarray otherwise."""
        return self._rows.to_array()

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        array = np.asarray(self.to_array(), dtype=dtype)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        # Neither labels nor the number of rows: a repr ends up in logs.
        labels = "without" if self.y is None else "with"
        return f"<EmbeddingTable: rows of {self.shape[1]} {self.dtype.name}, {labels} labels>"


@dataclass(frozen=True, slots=True)
class _ArrayRows:
    """Rows of a NumPy array or memory map."""

    array: Array
    ids: ClassVar[None] = None

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.array.shape[0]), int(self.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype.newbyteorder("=")

    def blocks(self, size: int) -> Iterator[Array]:
        for start in range(0, len(self.array), size):
            yield np.ascontiguousarray(self.array[start : start + size], dtype=self.dtype)

    def to_array(self) -> Array:
        return self.array


@dataclass(frozen=True, slots=True)
class _ParquetRows:
    """Rows of one list column in Parquet files. Holds paths, no open files."""

    source: Path
    files: tuple[Path, ...]
    column: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def ids(self) -> list[str] | None:
        found: list[str] = []
        for file in self.files:
            with _open_parquet(file) as parquet:
                schema = parquet.schema_arrow
                if schema.names.count(_ID) != 1 or not pa.types.is_string(schema.field(_ID).type):
                    return None
                with converting(f"{file}: column {_ID!r} must be readable", "write the file again"):
                    column = parquet.read(columns=[_ID]).column(_ID)
                    if column.null_count:
                        return None
                    found += column.to_pylist()
        return found

    def blocks(self, size: int) -> Iterator[Array]:
        return _rechunk(self._pieces(), size)

    def to_array(self) -> Array:
        rows = np.empty(self.shape, dtype=self.dtype)
        start = 0
        for piece in self._pieces():
            rows[start : start + len(piece)] = piece
            start += len(piece)
        return rows

    def _pieces(self) -> Iterator[Array]:
        """Yield rows as they are decoded, never more than the files announced."""
        left = self.shape[0]
        for file in self.files:
            for lists in _stream(file, self.column):
                left -= len(lists)
                if left >= 0:
                    yield _list_rows(lists, self.shape[1], self.dtype, file, self.column)
        if left:
            raise InputError(f"{self.source} must not change while it is read; it did; read the table again")


def read_table(path: AnyPath, *, x: str = "x", y: str | None = "y", labels: AnyPath | None = None) -> EmbeddingTable:
    """Read an embedding table.

    Parameters
    ----------
    path : path-like
        ``.npy`` (rows only; memory-mapped), ``.npz``, ``.parquet``, or a folder of ``*.parquet`` shards, in
        the order of their names; names that start with a dot or an underscore are skipped.
    x : str, default="x"
        Name of the rows in npz and Parquet (there a column of lists of numbers). Where the default is
        missing, "X", "embedding" or "embeddings" is used.
    y : str or None, default="y"
        Name of the labels in npz and Parquet. Where the default is missing, "label" or "labels" is used, and
        else the table has no labels. None reads none.
    labels : path-like or None, default=None
        File with the labels, instead of `y`: ``.npy``, or ``.txt`` or ``.csv`` with one label a line and no
        header. The labels of a text file are strings. Quotes around a line of a ``.csv`` file are taken away.

    Returns
    -------
    EmbeddingTable
        n rows of d dimensions. A missing label becomes "" or the smallest int64, and so does an integer above the
        largest int64; bytes that are no UTF-8 become U+FFFD.

    Raises
    ------
    InputError
        If a file is missing, damaged or of another format, an array is missing or has the wrong type or
        number of dimensions, or rows and labels differ in number.
    """
    source = Path(path)
    folder = _is_folder(source)
    reader = _read_parquet if folder else by_suffix(source, _READERS, "path")
    if not folder:
        check_not_empty(source)
    table = reader(source, x, y if labels is None else None)
    if labels is not None:
        own = by_suffix(Path(labels), LABEL_READERS, "labels")(Path(labels))
        table = EmbeddingTable(table._rows, own, table.metadata)
    if table.y is not None and len(table.y) != len(table):
        raise InputError(
            f"{labels or source}: every row must have one label; the numbers of rows and labels differ; "
            "check that both come from the same records, and that a label file has no header"
        )
    return table


def read_ids(path: AnyPath, column: str) -> Array:
    """Read whose each record of a table is.

    Parameters
    ----------
    path : path-like
        The table: ``.npy``, ``.npz``, ``.parquet``, or a folder of ``*.parquet`` shards.
    column : str
        Name of the array or column: integers, texts, bytes, or floats that hold integers. A ``.npy`` table has none;
        there it is the path of a second ``.npy`` file, with one id a row.

    Returns
    -------
    ndarray of shape (n,), object
        Ids as they are; None for a null. For `groups` of `fit`.

    Raises
    ------
    InputError
        If there is no such array or column, it is of another type, or of bytes in some shards only. The message shows
        no id.
    """
    source = Path(path)
    if _is_folder(source):
        ids = [one for file in _shards(source) for one in _column_ids(file, column)]
        if len({isinstance(one, bytes) for one in ids if one is not None}) > 1:
            raise InputError(f"must be texts or bytes in all shards of {path}; write one schema.", parameter="groups")
    else:
        check_not_empty(source)
        ids = by_suffix(source, _ID_READERS, "a table with ids of persons")(source, column)
    found = np.empty(len(ids), object)
    found[:] = ids
    return found


def _array_ids(path: Path, name: str) -> list[Any]:
    """Return the items of an array of an npz file."""
    promise = f"{path} must be a npz file that NumPy can read"
    hint = "write it again with numpy.savez, as numbers and strings and not as Python objects"
    with converting(promise, hint), path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        names = list(archive.files)
        ids = np.asarray(archive[name]) if name in names else None
    if ids is None:
        raise _no_ids(path, name, names)
    return _items(ids, f"an array of {path}", repr(name))


def _file_ids(path: Path, name: str) -> list[Any]:
    """Return the items of a npy file beside a table that is one."""
    own = Path(name)
    if own.suffix.lower() != ".npy" or not own.is_file():
        raise InputError(
            f"must name a .npy file with one id a row of {path}, which has no columns; got {name!r}.",
            parameter="groups",
        )
    ids = _items(load_npy(own), "a file", str(own))
    if load_npy(path).shape[:1] != (len(ids),):
        raise InputError(
            f"must name a file with one id a row of {path}; {own} has another number of ids.", parameter="groups"
        )
    return ids


def _items(ids: Array, what: str, name: str) -> list[Any]:
    if ids.ndim != 1 or ids.dtype.kind not in "iubfUS":
        raise InputError(
            f"must name {what} with one id a record, whole numbers or texts; {name} holds {ids.ndim} dimensions of "
            f"{type_name(ids)}; name another.",
            parameter="groups",
        )
    return list(texts_apart(np.asarray(ids)))


def _column_ids(path: Path, name: str) -> list[Any]:
    """Return the items of a Parquet column."""
    with _open_parquet(path) as file:
        names = file.schema_arrow.names
        if names.count(name) != 1:
            raise _no_ids(path, name, names)
        if name in (_ID, _REFERENCE) and {_ID, _REFERENCE} <= set(names):
            raise InputError(
                f"must name a column with ids of persons; {name!r} of {path} tells records apart, not persons; embed "
                "the records again, with ids of persons.",
                parameter="groups",
            )
        kind = file.schema_arrow.field(name).type
        if id_type(kind) is None:
            raise InputError(
                f"must name a column of {path} with whole numbers or texts; {name!r} holds {kind}; name another.",
                parameter="groups",
            )
        with converting(f"{path}: column {name!r} must hold integers or strings", "write it again"):
            return ids_of(file.read(columns=[name]).column(name))


def id_type(kind: Any) -> Any:
    """Return the type of the ids in an Arrow column, without its dictionary; None if it is not one of ids.

    Parameters
    ----------
    kind : pyarrow.DataType
    """
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind if any(of_kind(kind) for of_kind in _ID_KINDS) or _is_text(kind) else None


def ids_of(column: Any) -> list[Any]:
    """Return the ids in an Arrow column; texts that are no UTF-8 stay apart from each other.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not _is_text(column.type):
        return list(column.to_pylist())
    # Arrow's own decoding stops at the first that is no UTF-8.
    ids = column.cast(pa.large_binary()).to_pylist()
    return [None if one is None else one.decode("utf-8", "surrogateescape") for one in ids]


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _no_ids(path: Path, name: str, names: Iterable[str]) -> InputError:
    there = ", ".join(map(repr, names))
    return InputError(
        f"must name one array or column of {path}; {name!r} does not; there are {there}.", parameter="groups"
    )


def _read_npy(path: Path, _x: str, _y: str | None) -> EmbeddingTable:
    """Map the rows of an npy file."""
    rows = load_npy(path)
    check_rows(rows, str(path))
    return EmbeddingTable(_ArrayRows(rows), None, {})


def _read_npz(path: Path, x: str, y: str | None) -> EmbeddingTable:
    """Read two arrays of an npz file."""
    hint = "write it again with numpy.savez, as numbers and strings and not as Python objects"
    promise = f"{path} must be a npz file that NumPy can read"
    with converting(promise, hint), path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        x_name, y_name = _pick(list(archive.files), x, y, path)
        rows = np.asarray(archive[x_name])
        labels = None if y_name is None else np.asarray(archive[y_name])
    check_rows(rows, f"{path}: array {x_name!r}")
    y_array = None if labels is None else as_labels(labels, name=f"{path}: array {y_name!r}")
    return EmbeddingTable(_ArrayRows(rows), y_array, {})


def _read_parquet(path: Path, x: str, y: str | None) -> EmbeddingTable:
    """Read the labels and the outline of a Parquet file or of a folder of shards."""
    files = _shards(path) if _is_folder(path) else (path,)
    _check_finished(path)
    rows, labels, metadata = zip(*(_read_shard(file, x, y) for file in files), strict=True)
    kinds = [None if array is None else array.dtype.kind for array in labels]
    outlines = {(part.column, part.shape[1], part.dtype, kind) for part, kind in zip(rows, kinds, strict=True)}
    if len(outlines) > 1:
        raise InputError(f"{path}: all shards must have the same columns and types; they differ; write one schema")
    column, dtype = rows[0].column, rows[0].dtype
    shape = (sum(part.shape[0] for part in rows), rows[0].shape[1] or _first_width(path, files, column))
    encoders = [entries.get(_ENCODER) for entries in metadata]
    if any(not _same(encoder, encoders[0]) for encoder in encoders):
        raise InputError(f"{path}: all shards must name the same encoder; they differ; embed the records with one.")
    shared = dict(set.intersection(*(set(entries.items()) for entries in metadata)))
    shared |= {} if encoders[0] is None else {_ENCODER: encoders[0]}
    for entries in metadata:  # what one shard does not promise, the table does not
        shared |= {key: text for key, text in entries.items() if key == _NOT_COVERED}
    return EmbeddingTable(
        _ParquetRows(path, files, column, shape, dtype),
        None if labels[0] is None else np.concatenate(labels),
        dict(sorted(shared.items())),
    )


def _same(first: str | None, second: str | None) -> bool:
    return first == second or (first is not None and second is not None and same_encoder(first, second))


def _read_shard(path: Path, x: str, y: str | None) -> tuple[_ParquetRows, Array | None, dict[str, str]]:
    """Read the outline, the labels and the metadata of one file; 0 stands for an unknown width."""
    with _open_parquet(path) as file:
        schema = file.schema_arrow
        x_name, y_name = _pick(schema.names, x, y, path)
        dtype, width = _list_type(schema.field(x_name).type, path, x_name)
        rows = _ParquetRows(path, (path,), x_name, (int(file.metadata.num_rows), width), dtype)
        labels = None if y_name is None else _column_labels(file, path, y_name)
        return rows, labels, _text_metadata(schema.metadata or {})


def _shards(folder: Path) -> tuple[Path, ...]:
    """Sorted Parquet files of a folder, without the hidden ones that tools leave there."""
    with converting(f"{folder} must be a readable folder", "check its permissions"):
        files = sorted(file for file in folder.glob("*.parquet") if file.name[0] not in "._")
    if not files:
        raise InputError(
            f"{folder} must hold .parquet files; found none; name the right folder, or embed raw records first"
        )
    return tuple(files)


def _check_finished(folder: Path) -> None:
    """Refuse a folder that `dppl embed` has begun and not finished: it holds some of the records only."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return
    with converting(f"{manifest} must be JSON", "run the same dppl embed again"):
        finished = json.loads(manifest.read_text("utf-8"))["finished"]
    if finished is not True:
        raise InputError(f"{folder} is unfinished; run the same dppl embed again, which goes on where it stopped.")


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    with converting(f"{path} must be a Parquet file that Arrow can read", "write it again"):
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BUFFER)
    with file:
        yield file


def _list_type(kind: Any, path: Path, column: str) -> tuple[np.dtype[Any], int]:
    """Type of the lists of a column, and their length, 0 if the type leaves it open."""
    fixed = pa.types.is_fixed_size_list(kind)
    if fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = kind.value_type
        if pa.types.is_floating(value) or pa.types.is_integer(value):
            return np.dtype(value.to_pandas_dtype()), int(kind.list_size) if fixed else 0
    raise InputError(
        f"must name a column of {path} with lists of floats or integers; {column!r} holds {kind}; name another.",
        parameter="x",
    )


def _first_width(path: Path, files: Iterable[Path], column: str) -> int:
    """Length of the first lists that are neither null nor empty."""
    for file in files:
        for lists in _stream(file, column):
            longest = pc.max(pc.list_value_length(lists)).as_py()
            if longest:
                return int(longest)
    raise InputError(f"{path}: column {column!r} must hold lists of numbers; got none; fix the list size")


def _stream(path: Path, column: str) -> Iterator[Any]:
    """Yield the Arrow list arrays of a column, at most `_BATCH_ROWS` rows at a time."""
    with _open_parquet(path) as file:
        promise, hint = f"{path}: column {column!r} must be readable", "write the file again"
        with converting(promise, hint):
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=[column])
        while True:
            with converting(promise, hint):
                batch = next(batches, None)
                lists = None if batch is None else batch.column(column)
            if lists is None:
                return
            yield lists


def _list_rows(lists: Any, width: int, dtype: np.dtype[Any], path: Path, column: str) -> Array:
    """Turn Arrow lists into rows; a null makes its whole row NaN (0 for integers)."""
    lengths = pc.list_value_length(lists).drop_null().to_numpy(zero_copy_only=False)
    if np.any(lengths != width):
        raise InputError(
            f"{path}: all lists in column {column!r} must have the same length; they differ; "
            "embed all records with one encoder, and write a fixed-size list"
        )
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


def _rechunk(pieces: Iterable[Array], size: int) -> Iterator[Array]:
    """Cut pieces of any length into blocks of exactly `size` rows, and a last one with the rest."""
    held: list[Array] = []
    count = 0
    for piece in pieces:
        rest = piece
        while len(rest):
            part, rest = rest[: size - count], rest[size - count :]
            held.append(part)
            count += len(part)
            if count == size:
                yield held[0] if len(held) == 1 else np.concatenate(held)
                held, count = [], 0
    if held:
        yield np.concatenate(held)


def _column_labels(file: Any, path: Path, name: str) -> Array:
    """Read a Parquet column of labels; a null becomes a label that is no class."""
    promise = f"{path}: column {name!r} must hold integers or strings"
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
            return np.array(column.cast(pa.int64()).fill_null(_MISSING_INTEGER).to_numpy())
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            # Arrow's own decoding stops at the first label that is no UTF-8.
            labels = column.cast(pa.large_binary()).fill_null(b"").to_pylist()
            return np.array([label.decode("utf-8", "replace") for label in labels], dtype=object)
    raise InputError(
        f"must name a column of {path} with integers or strings; {name!r} holds {kind}; name another.", parameter="y"
    )


def _pick(names: list[str], x: str, y: str | None, path: Path) -> tuple[str, str | None]:
    """Choose the columns or arrays of rows and labels; only the default names have others in their place."""
    chosen: dict[str, str] = {}
    for parameter, wanted in (("x", x), ("y", y)):
        spare = _FALLBACKS[parameter] if wanted == parameter else ()
        found = next((name for name in (wanted, *spare) if name in names), None)
        if found is not None:
            chosen[parameter] = found
        elif wanted is not None and (parameter, wanted) != ("y", "y"):
            others = [name for name in names if name not in (x, y, "x", "y", *_FALLBACKS["x"], *_FALLBACKS["y"], _ID)]
            raise InputError(
                f"must name an array or column of {path}; it has no {wanted!r}; there are "
                f"{', '.join(map(repr, names))}.",
                parameter=parameter,
                suggestion=others[0] if len(others) == 1 else None,
            )
    if any(names.count(name) > 1 for name in chosen.values()):
        raise InputError(f"{path} must hold each column once; a name occurs again; rename the other columns")
    return chosen["x"], chosen.get("y")


def _text_metadata(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    return {key.decode("utf-8", "replace"): text.decode("utf-8", "replace") for key, text in metadata.items()}


def _is_folder(path: Path) -> bool:
    """Tell whether an existing path is a folder."""
    with converting(f"{path} must be an existing file or folder", "check the path and its permissions"):
        return stat.S_ISDIR(path.stat().st_mode)


_Reader = Callable[[Path, str, str | None], EmbeddingTable]
_ID_READERS = {".npy": _file_ids, ".npz": _array_ids, ".parquet": _column_ids}
_READERS: dict[str, _Reader] = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}
