"""Embedding tables: rows `x` (n x d) and, optionally, labels `y` (n), read from npy, npz or Parquet.

Rows are streamed in blocks, so a table may be larger than memory. A bad record (a null,
a label that is not an integer, bytes that are no UTF-8) never stops a run, never
changes how another is read, and is never named: whether one record is well formed is
private. What breaks a whole file raises `InputError`, with names of files and columns,
and types, only. The original exception is not chained, because the texts of NumPy,
Arrow and the codecs may quote bytes that they could not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dppl._utils import validate
from dppl._utils.fingerprint import same_encoder
from dppl._utils.metadata import LATTICE
from dppl._utils.outside import parse_json
from dppl.engines import Engine, LocalEngine
from dppl.errors import InputError
from dppl.io.records.labels import AnyPath, Array, converting, listed, read_label_file
from dppl.io.tables.fragments import (
    Fragment,
    check_rows,
    metadata_of,
    open_npz,
    read_outline,
    rechunk,
)
from dppl.io.tables.parquet import (
    KeyedFile,
    check_column,
    decode_ids,
    is_partitioned,
    keyed_files,
    open_parquet,
    refuse_several_kinds,
    schemas_of,
)
from dppl.io.tables.places import REACHABLE, READABLE, Place, open_place
from dppl.kernel.persons import (
    CAST,
    ID_KINDS,
    holds_ids,
    id_kind,
    texts_apart,
    type_of_ids,
)

MANIFEST = "_manifest.json"  # of a table that dppl embed writes; readers of Parquet pass over such names
_SUFFIXES = (".npy", ".npz", ".parquet")
_AT_ONCE = 16  # files that are asked for over a network
_ID = "id"
# Rows of a part of a npy file: 200 MB of 768 float32, and enough work to be worth a
# task.
_PART_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmbeddingTable:
    """Rows on disk or in memory, with labels where there are any. Made by `read_table`, or `of` an array.

    NumPy functions accept a table; `np.asarray(table)` holds all rows at once.

    Attributes
    ----------
    y : ndarray of shape (n,) or None
        Labels: int64 or strings. Labels of a text file are always strings; estimators
        match "1" with the class 1.
    metadata : dict of str to str
        What the writer stored in the Parquet schema; of several shards, the entries
        that all of them share.
    texts : tuple of str, or None
        Public texts that the rows are embeddings of, where they are kept. No file holds
        them.
    """

    _fragments: tuple[Fragment, ...]
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
    ) -> EmbeddingTable:
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
            Public texts that the rows are embeddings of. A model keeps the examples of
            its classes.
        """
        check_rows(rows, "rows")
        return cls(
            (Fragment.of(rows),),
            y,
            dict(metadata or {}),
            None if texts is None else tuple(texts),
        )

    @property
    def ids(self) -> list[str] | None:
        """Ids of the rows, from the column that `read_table` was given, or ``id``; None if a row has none."""
        ids = [fragment.ids for fragment in self._fragments]
        if None in ids:
            return None
        return [one for some in ids for one in some or ()]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows n and of dimensions d."""
        return sum(one.rows for one in self._fragments), self._fragments[0].width

    @property
    def held(self) -> Array | None:
        """The rows as one array, if they are in memory."""
        if len(self._fragments) == 1:
            return self._fragments[0].array
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of every block, in native byte order."""
        return self._fragments[0].dtype

    def fragments(self, rows: int | None = None) -> tuple[Fragment, ...]:
        """Return the files of the table in the order of their rows, npy in pieces of at most so many rows.

        Each can be sent to another process and read there. Rows in memory are one
        fragment without a path.
        """
        if rows is None:
            return self._fragments
        return tuple(
            piece for fragment in self._fragments for piece in fragment.cut(rows)
        )

    def blocks(self, size: int) -> Iterator[Array]:
        """Yield the rows in order, `size` at a time, the last block with what is left.

        Blocks are C-contiguous and of type `dtype`, to be read and not written. A
        Parquet row that is null or holds a null is NaN throughout, or 0 throughout in
        an integer table. A file that is damaged or has changed, or lists of different
        lengths, raise `InputError`.
        """
        return rechunk(self._fragments, size)

    def to_array(self) -> Array:
        """Return all rows: the memory map for a local npy file, an ndarray otherwise."""
        only = self._fragments[0]
        if len(self._fragments) == 1 and only.is_held:
            return only.held()
        rows = np.empty(self.shape, self.dtype)
        start = 0
        for piece in (
            piece for fragment in self._fragments for piece in fragment.pieces()
        ):
            rows[start : start + len(piece)] = piece
            start += len(piece)
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        array = np.asarray(self.to_array(), dtype=dtype)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        # Neither labels nor the number of rows: a repr ends up in logs.
        labels = "without" if self.y is None else "with"
        return f"<EmbeddingTable: rows of {self.shape[1]} {self.dtype.name}, {labels} labels>"


def read_table(
    path: AnyPath,
    *,
    x: str = "x",
    y: str | None = "y",
    labels: AnyPath | None = None,
    ids: str = _ID,
) -> EmbeddingTable:
    """Read an embedding table.

    Parameters
    ----------
    path : path-like
        ``.npy`` (rows only; memory-mapped), ``.npz``, ``.parquet``, or a folder of
        ``*.parquet`` shards. Files come in the order of their names, in which numbers
        count as such; names that start with a dot or an underscore are skipped. Also a
        URL of a file or folder, such as ``s3://bucket/pool``.
    x : str, default="x"
        Name of the rows in npz and Parquet (there a column of lists of numbers). Where
        the default is missing, "X", "embedding" or "embeddings" is used.
    y : str or None, default="y"
        Name of the labels in npz and Parquet. Where the default is missing, "label" or
        "labels" is used, and else the table has no labels. None reads none.
    labels : path-like or None, default=None
        File with the labels, instead of `y`: ``.npy``, or ``.txt`` with one label a
        line and no header. The labels of a text file are strings.
    ids : str, default="id"
        Name of the column that names the rows, of texts; another one than the default
        may also hold integers, and must be there.

    Returns
    -------
    EmbeddingTable
        n rows of d dimensions. A missing label becomes "" or the smallest int64, and so
        does an integer above the largest int64; bytes that are no UTF-8 become U+FFFD.

    Raises
    ------
    InputError
        If a file is missing, damaged or of another format, an array is missing or has
        the wrong type or number of dimensions, or rows and labels differ in number.
    MissingExtra
        If a URL needs a package that is not installed.
    """
    place = open_place(path)
    files = table_files(place)
    # Headers, labels and metadata, but no rows. Over a network several at a time, since
    # each waits for answers.
    with ThreadPoolExecutor(1 if place.local is not None else _AT_ONCE) as threads:
        outlines = list(
            threads.map(
                lambda file: read_outline(file, x, y if labels is None else None), files
            )
        )
    fragments = _of_one_width(place, [one.fragment for one in outlines])
    y_each = [one.labels for one in outlines if one.labels is not None]
    metadata = [one.metadata for one in outlines]
    forms = [
        (
            one.column,
            one.width,
            one.dtype,
            own is not None and own.dtype.kind,
            entries.get(LATTICE),
        )
        for one, (_, own, entries) in zip(fragments, outlines, strict=True)
    ]
    other = next(
        (file for file, form in zip(files, forms, strict=True) if form != forms[0]),
        None,
    )
    if other is not None:
        raise InputError(
            f"{place}: all shards must have the same columns and types; {other.name} differs from {files[0].name}; "
            "write both in one form"
        )
    firsts = accumulate((one.rows for one in fragments), initial=0)
    fragments = [
        replace(one, first=first, id=ids)
        for one, first in zip(fragments, firsts, strict=False)
    ]
    # The usual column need not be there; one that was named must name all records.
    for fragment in fragments if ids != _ID else ():
        fragment.check_ids(place)
    # A file of labels replaces the labels of the table.
    own_labels = np.concatenate(y_each) if y_each else None
    if labels is None:
        all_labels = own_labels
    else:
        all_labels = read_label_file(labels)
    table = EmbeddingTable(tuple(fragments), all_labels, _shared(place, metadata))
    if all_labels is not None and len(all_labels) != table.shape[0]:
        raise InputError(
            f"{labels or place}: every row must have one label; the numbers of rows and labels differ; "
            "check that both come from the same records, and that a label file has no header"
        )
    return table


def table_files(place: Place) -> list[Place]:
    """Return the files of a table in the order of its rows."""
    with converting(
        f"{place} must be an existing file or folder",
        REACHABLE if place.local is None else READABLE,
    ):
        size = place.size()
    if size is not None:
        if place.suffix not in _SUFFIXES:
            raise InputError(
                f"path must end in {', '.join(_SUFFIXES)}; got {place.name!r}; convert the file"
            )
        # An empty file is no table of any size: what was to write it has failed.
        if size == 0:
            raise InputError(f"{place} must hold a table; it is empty; write it again.")
        return [place]
    files = place.files(".parquet")
    if not files:
        raise InputError(
            f"{place} must hold .parquet files; got none, and folders within are not looked through; name the right "
            "folder, or embed raw records first"
        )
    # A table of which dppl embed has not finished every shard, or one is gone, holds
    # only some of the records.
    manifest = place / MANIFEST
    if manifest.system.get_file_info(manifest.path).is_file:
        with (
            converting(f"{manifest} must be JSON", "run the same dppl embed again"),
            manifest.open() as file,
        ):
            content = parse_json(file.read())
            finished = content["finished"]
            names = {shard["file"] for shard in content.get("shards", ())}
        if finished is not True:
            raise InputError(
                f"{place} is unfinished; run the same dppl embed again, which goes on where it stopped."
            )
        if not names <= {file.name for file in files}:
            raise InputError(
                f"{place} must hold every shard of its manifest; one is missing; fetch or embed it again"
            )
    return files


def files_of_one_form(path: Path) -> tuple[list[KeyedFile], pa.Schema]:
    """Return the Parquet files of a table or of raw records, and their schema with the metadata that they share."""
    place = open_place(path)
    files: list[KeyedFile]
    if is_partitioned(path):
        files = keyed_files(path)
    else:
        files = [(one, {}) for one in table_files(place)]
    schemas = schemas_of(files, place)
    shared = _shared(place, [metadata_of(one) for one in schemas])
    shared.pop("pandas", None)  # it says how many rows there are
    return files, schemas[0].with_metadata(shared)


def _of_one_width(place: Place, fragments: list[Fragment]) -> list[Fragment]:
    """Return files with the width of their lists, where the schema leaves it open."""
    if fragments[0].width:
        return fragments
    # All of them, and not the first alone: one odd list must neither decide for the
    # others nor stop a fit that has charged its ledger.
    lengths = set().union(
        *({one.width} if one.width else one.list_lengths() for one in fragments)
    )
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            f"{place}: all lists in column {fragments[0].column!r} must have the same length; they differ, or there is "
            "none; embed all records with one encoder, and write a fixed-size list"
        )
    return [replace(one, width=min(lengths)) for one in fragments]


def _shared(place: Place, metadata: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the entries that all files share."""
    # Names of one encoder may differ in parts that change no embedding.
    first, *others = [entries.get("encoder") for entries in metadata]
    if any(
        one != first and (one is None or first is None or not same_encoder(one, first))
        for one in others
    ):
        raise InputError(
            f"{place}: all shards must name the same encoder; they differ; embed the records with one."
        )
    shared = dict(set.intersection(*(set(entries.items()) for entries in metadata)))
    shared |= {} if first is None else {"encoder": first}
    for entries in metadata:  # what one file does not promise, the table does not
        shared |= {key: text for key, text in entries.items() if key == "not_covered"}
    return dict(sorted(shared.items()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TablePart:
    """Where a part of a table and its labels lie: this travels, and whoever calls `read` reads them."""

    fragment: Fragment
    y: str | None = None  # the name of labels that are stored with the rows
    labels: str | None = None  # or a file with the labels of the whole table
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return self.fragment.rows

    def read(self) -> tuple[EmbeddingTable, Array | None]:
        """Read its labels, and return them behind the rows, which stream."""
        labels = None
        if self.y is not None:
            labels = self.fragment.labels(self.y)
        if self.labels is not None:
            labels = read_label_file(self.labels)[self.fragment.first :][
                : self.fragment.rows
            ]
        if labels is not None and len(labels) != self.fragment.rows:
            raise InputError(
                f"{self.fragment.path} must not change while it is read; it did; read the table again"
            )
        return EmbeddingTable(
            (replace(self.fragment, first=0),), labels, dict(self.metadata)
        ), labels


@dataclass(
    frozen=True, slots=True, kw_only=True, eq=False, repr=False, weakref_slot=True
)
class PartedTable:
    """A labelled table in parts. Made by `read_parts`; `fit` and `predict` take it.

    Attributes
    ----------
    parts : tuple of TablePart
        At least one. Each row is in one of them.
    n_features : int
        Width of the rows.
    labelled : bool
        Whether the parts hold labels.
    metadata : mapping of str to str
        As in `EmbeddingTable`.
    engine : Engine
        Where the parts are read and summed.
    """

    parts: tuple[TablePart, ...]
    n_features: int
    labelled: bool
    metadata: Mapping[str, str] = field(default_factory=dict)
    engine: Engine = field(default_factory=LocalEngine)

    def __repr__(self) -> str:
        # Not the number of rows: a repr ends up in logs.
        return f"<PartedTable: rows of {self.n_features}>"

    def private_data(self, y: Any, groups: Any, **how: Any) -> Any:
        """Return the parts as a fit takes them; no value is looked at.

        Parameters
        ----------
        y : None
            The parts hold their own labels.
        groups : array-like or None
            Ids of persons.
        **how
            As for `dppl.kernel.parts.private_parts`.

        Returns
        -------
        PrivateParts
        """
        # Here, because a table is described without any.
        from dppl.kernel.parts import private_parts

        return private_parts(self, y, groups, **how)


def read_parts(
    path: AnyPath,
    *,
    x: str = "x",
    y: str | None = "y",
    labels: AnyPath | None = None,
    rows: int = _PART_ROWS,
    engine: Engine | None = None,
) -> PartedTable:
    """Describe a table in parts, of whose rows and labels none is read; nobody holds the labels of all parts.

    Parameters
    ----------
    path, x, y, labels
        As in `read_table`; every machine must be able to read the files. Each task maps
        a label file if it is ``.npy``, and else reads all of it.
    rows : int, default=65536
        Rows of a part of a ``.npy`` file. A ``.parquet`` or ``.npz`` file is one part.
    engine : Engine, default=None
        Where the parts are read and summed: `dppl.engines.RayEngine` does it on several
        machines, with equal bits. None is this process.

    Returns
    -------
    PartedTable

    Raises
    ------
    InputError
        If a file is missing or of another format, or shards differ in columns, types or
        encoder.
    ParameterError
        If `rows` is not a positive integer.

    Notes
    -----
    **Privacy.** Unit: one row of the table. Nothing is released here. Which part a
    record is in is decided by its place, and no sum depends on it.
    """
    validate.positive_integer(rows=rows)
    outline = read_table(path, x=x, y=None, labels=labels)
    fragments = outline.fragments(rows)
    if fragments[0].path is None:  # its rows are in memory now, and must not travel
        fragments = (
            replace(fragments[0], array=None, place=open_place(path), column=x),
        )
    label_file = None
    if labels is not None:
        label_file = str(Path(labels).absolute())
    parts = tuple(
        TablePart(
            fragment=one,
            y=None if labels else y,
            labels=label_file,
            metadata=outline.metadata,
        )
        for one in fragments
    )
    # Of all shards, so that a column that holds no labels is an error; pieces of one
    # file are looked at once.
    files = {one.path: one for one in fragments}.values()
    labelled = labels is not None or (
        y is not None and all([file.labelled(y) for file in files])
    )
    return PartedTable(
        parts=parts,
        n_features=outline.shape[1],
        labelled=labelled,
        metadata=outline.metadata,
        engine=engine or LocalEngine(),
    )


def read_ids(path: AnyPath, column: str) -> Array:
    """Read the person ID of each record of a table.

    Parameters
    ----------
    path : path-like
        The table: ``.npy``, ``.npz``, ``.parquet``, or a folder of shards, as of
        `read_table`.
    column : str
        Name of the array or column: texts, integers, decimals without a fraction,
        dates, UUIDs or bytes. A ``.npy`` table has none.

    Returns
    -------
    ndarray of shape (n,), object
        Ids as texts, integers or bytes; None for a null. For `groups` of `fit`.

    Raises
    ------
    InputError
        If there is no such array or column, it is of another type, or of several kinds
        of ids. The message shows no id.
    """
    place = open_place(path)
    files = table_files(place)
    if files[0].suffix == ".npy":
        raise InputError(
            f"must name a column of persons; {place} has none; write .parquet or .npz.",
            parameter="groups",
        )
    if files[0].suffix == ".npz":
        with open_npz(place) as archive:
            names = listed(archive.files)
            if column in archive.files:
                array = np.asarray(archive[column])
            else:
                array = np.empty(())
        if array.ndim != 1 or not holds_ids(array.dtype):
            there = f"is none of {names}; name another"
            if array.ndim:
                there = f"holds {type_of_ids(array.dtype)}; {CAST}"
            raise InputError(
                f"must name one array of {place} with an id a record: {ID_KINDS}; {column!r} {there}.",
                parameter="groups",
            )
        ids = texts_apart(array).tolist()
    else:
        check_ids(files, place, column)
        ids = [one for file in files for one in _column_ids(file, column)]
    # NumPy would make one type of mixed ids.
    whole = np.empty(len(ids), object)
    whole[:] = ids
    return whole


def check_ids(files: Sequence[Place], table: Place, name: str) -> None:
    """Refuse a column of ids of persons that holds others, or not one kind in all files, by their schemas."""
    kinds = set()
    for place in files:
        with open_parquet(place) as file:
            schema = file.schema_arrow
        # IDs of records, as dppl embed writes them: each record would be a separate
        # person, and the guarantee about less than it says.
        if name in ("id", "reference") and {"id", "reference"} <= set(schema.names):
            raise InputError(
                f"must name a column with ids of persons; {name!r} of {table} tells records apart, not persons; embed "
                "the records again, with ids of persons.",
                parameter="groups",
            )
        kind = check_column(schema, table, name, ID_KINDS, id_kind, "groups")
        kinds.add(id_kind(kind))
    refuse_several_kinds(kinds, table, name)


def _column_ids(place: Place, name: str) -> list[Any]:
    """Return the items of a Parquet column."""
    with (
        open_parquet(place) as file,
        converting(f"{place}: column {name!r} must hold {ID_KINDS}"),
    ):
        return decode_ids(file.read(columns=[name]).column(name))
