"""Embedding tables: rows `x` (n x d) and, optionally, labels `y` (n), read from npy, npz or Parquet.

Rows are streamed in blocks, so a table may be larger than memory. A bad record (a null, a label that is not
an integer, bytes that are no UTF-8) never stops a run, never changes how another is read, and is never named:
whether one record is well formed is private. What breaks a whole file raises `InputError`, with names of files
and columns, and types, only. The original exception is not chained, because the texts of NumPy, Arrow and the
codecs may quote bytes that they could not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dppl import _validate
from dppl.engines import Engine, InProcess
from dppl.errors import InputError
from dppl.io._layouts import read_layout
from dppl.io._places import open_place
from dppl.io._reading import Array, check_rows
from dppl.io.fragments import Fragment, rechunk
from dppl.io.labels import AnyPath, read_label_file

_ID = "id"
# Rows of a part of a npy file: 200 MB of 768 float32, and enough work to be worth a task.
_PART_ROWS = 1 << 16


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
            Public texts that the rows are embeddings of. A model keeps those of examples of its classes.
        """
        check_rows(rows, "rows")
        return cls((Fragment.of(rows),), y, dict(metadata or {}), None if texts is None else tuple(texts))

    @property
    def ids(self) -> list[str] | None:
        """Ids of the rows, from the column that `read_table` was given, or ``id``; None if a row has none."""
        of_files = [fragment.ids for fragment in self._fragments]
        return None if None in of_files else [one for ids in of_files for one in ids or ()]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows n and of dimensions d."""
        return sum(one.rows for one in self._fragments), self._fragments[0].width

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of every block, in native byte order."""
        return self._fragments[0].dtype

    def fragments(self, rows: int | None = None) -> tuple[Fragment, ...]:
        """Return the files of the table in the order of their rows, those of npy in pieces of at most so many rows.

        Each can be sent to another process and read there. Rows in memory are one fragment without a path.
        """
        if rows is None:
            return self._fragments
        return tuple(piece for fragment in self._fragments for piece in fragment.cut(rows))

    def blocks(self, size: int) -> Iterator[Array]:
        """Yield the rows in order, `size` at a time, the last block with what is left.

        Blocks are C-contiguous and of type `dtype`, to be read and not written. A Parquet row that is null or holds a
        null is NaN throughout, or 0 throughout in an integer table. A file that is damaged or has changed, or lists of
        different lengths, raise `InputError`.
        """
        return rechunk((piece for fragment in self._fragments for piece in fragment.pieces()), size)

    def to_array(self) -> Array:
        """Return all rows: the memory map for a local npy file, an ndarray otherwise."""
        only = self._fragments[0]
        if len(self._fragments) == 1 and only.is_held:
            return only.held()
        rows = np.empty(self.shape, self.dtype)
        start = 0
        for piece in (piece for fragment in self._fragments for piece in fragment.pieces()):
            rows[start : start + len(piece)] = piece
            start += len(piece)
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
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
        ``.npy`` (rows only; memory-mapped), ``.npz``, ``.parquet``, or a folder: of ``*.parquet`` shards, or of npy
        shards ``NAME_0.npy``, ``NAME_1.npy`` with ``metadata_0.parquet`` and so on beside them (docs/tables.md). Files
        come in the order of their names, in which numbers count as such; names that start with a dot or an underscore
        are skipped. Also a URL of a file or folder, such as ``s3://bucket/pool``.
    x : str, default="x"
        Name of the rows in npz and Parquet (there a column of lists of numbers). Where the default is
        missing, "X", "embedding" or "embeddings" is used.
    y : str or None, default="y"
        Name of the labels in npz, Parquet and metadata. Where the default is missing, "label" or "labels" is used, and
        else the table has no labels. None reads none.
    labels : path-like or None, default=None
        File with the labels, instead of `y`: ``.npy``, or ``.txt`` or ``.csv`` with one label a line and no
        header. The labels of a text file are strings. Quotes around a line of a ``.csv`` file are taken away.
    ids : str, default="id"
        Name of the column that names the rows, of texts; another one than the default may also hold integers, and must
        be there.

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
    MissingExtra
        If a URL needs a package that is not installed.
    """
    place = open_place(path)
    fragments, own_labels, metadata = read_layout(place, x, y if labels is None else None)
    firsts = accumulate((one.rows for one in fragments), initial=0)
    fragments = tuple(replace(one, first=first, id=ids) for one, first in zip(fragments, firsts, strict=False))
    # The usual column need not be there; one that was named must name all records.
    for fragment in fragments if ids != _ID else ():
        fragment.check_ids(place)
    # A file of labels replaces those of the table.
    table = EmbeddingTable(fragments, own_labels if labels is None else read_label_file(labels), metadata)
    if table.y is not None and len(table.y) != len(table):
        raise InputError(
            f"{labels or place}: every row must have one label; the numbers of rows and labels differ; "
            "check that both come from the same records, and that a label file has no header"
        )
    return table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TablePart:
    """Where a part of a table and its labels lie: this travels, and whoever calls `read` reads them."""

    fragment: Fragment
    y: str | None  # name of the labels that lie with the rows
    labels: str | None = None  # or a file with the labels of the whole table
    metadata: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> tuple[EmbeddingTable, Array | None]:
        """Read its labels, and return them behind the rows, which stream."""
        labels = None if self.y is None else self.fragment.labels(self.y)
        if self.labels is not None:
            labels = read_label_file(self.labels)[self.fragment.first :][: self.fragment.rows]
        if labels is not None and len(labels) != self.fragment.rows:
            raise InputError(f"{self.fragment.path} must not change while it is read; it did; read the table again")
        return EmbeddingTable((replace(self.fragment, first=0),), labels, dict(self.metadata)), labels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False, weakref_slot=True)
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
        As that of `EmbeddingTable`.
    engine : Engine
        Where the parts are read and summed.
    """

    parts: tuple[TablePart, ...]
    n_features: int
    labelled: bool
    metadata: Mapping[str, str] = field(default_factory=dict)
    engine: Engine = field(default_factory=InProcess)

    def __repr__(self) -> str:
        # Not the number of rows: a repr ends up in logs.
        return f"<PartedTable: rows of {self.n_features}>"


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
        As in `read_table`; every machine must be able to read the files. Each task maps a label file if it is
        ``.npy``, and else reads all of it.
    rows : int, default=65536
        Rows of a part of a ``.npy`` file. A ``.parquet`` or ``.npz`` file is one part.
    engine : Engine, default=None
        Where the parts are read and summed: `dppl.engines.RayEngine` does it on several machines, with equal bits. None
        is this process.

    Returns
    -------
    PartedTable

    Raises
    ------
    InputError
        If a file is missing or of another format, or shards differ in columns, types or encoder.
    ParameterError
        If `rows` is not a positive integer.

    Notes
    -----
    **Privacy.** Unit: one row of the table. Nothing is released here. Which part a record is in is decided by its
    place, and no sum depends on it.
    """
    _validate.positive_integer(rows=rows)
    place = open_place(path)
    outline = read_table(path, x=x, y=None, labels=labels)
    fragments = outline.fragments(rows)
    if place.suffix == ".npz":  # whose rows are in memory now, and must not travel
        fragments = (replace(fragments[0], array=None, place=place, column=x),)
    label_file = None if labels is None else str(Path(labels).absolute())
    parts = tuple(
        TablePart(fragment=one, y=None if labels else y, labels=label_file, metadata=outline.metadata)
        for one in fragments
    )
    # Of all shards, so that a column that holds no labels is an error; pieces of one file are looked at once.
    files = {one.path: one for one in fragments}.values()
    labelled = labels is not None or (y is not None and all([file.labelled(y) for file in files]))
    return PartedTable(
        parts=parts,
        n_features=outline.shape[1],
        labelled=labelled,
        metadata=outline.metadata,
        engine=engine or InProcess(),
    )
