"""Embedding tables: rows `x` (n x d) and, optionally, labels `y` (n), read from npy, npz or Parquet.

Rows are streamed in blocks, so a table may be larger than memory. A bad record (a null, a label that is not
an integer, bytes that are no UTF-8) never stops a run, never changes how another is read, and is never named:
whether one record is well formed is private. What breaks a whole file raises `InputError`, with names of files
and columns, and types, only. The original exception is not chained, because the texts of NumPy, Arrow and the
codecs may quote bytes that they could not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dppl.errors import InputError
from dppl.io._layouts import read_layout
from dppl.io._places import Place
from dppl.io._reading import Array, check_rows
from dppl.io.fragments import ArrayFragment, Fragment, NpyFragment, rechunk
from dppl.io.labels import AnyPath, read_label_file

__all__ = ["EmbeddingTable", "Fragment", "read_table"]

_ID = "id"


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

        Raises
        ------
        InputError
            If it is no matrix of numbers.
        """
        check_rows(rows, "rows")
        return cls((ArrayFragment.of(rows),), y, dict(metadata or {}), None if texts is None else tuple(texts))

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
        """Return the files of the table in the order of their rows, each to be read by itself.

        Rows in memory are one fragment without a path.

        Parameters
        ----------
        rows : int, default=None
            Cut npy files into fragments of at most so many rows.
        """
        if rows is None:
            return self._fragments
        return tuple(piece for fragment in self._fragments for piece in fragment.cut(rows))

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
        return rechunk((piece for fragment in self._fragments for piece in fragment._pieces()), size)

    def to_array(self) -> Array:
        """Return all rows: the memory map for a local npy file, an ndarray otherwise."""
        only = self._fragments[0] if len(self._fragments) == 1 else None
        if isinstance(only, ArrayFragment):
            return only.array
        if isinstance(only, NpyFragment) and only._place.local is not None:
            return only.mapped()
        rows = np.empty(self.shape, self.dtype)
        for fragment in self._fragments:
            start = fragment.first
            for piece in fragment._pieces():
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
        shards ``NAME_0.npy``, ``NAME_1.npy`` with ``metadata_0.parquet`` and so on beside them (docs/pools.md). Files
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
    place = Place.of(path)
    fragments, own_labels, metadata = read_layout(place, x, y if labels is None else None)
    firsts = accumulate((one.rows for one in fragments), initial=0)
    fragments = tuple(replace(one, first=first, _id=ids) for one, first in zip(fragments, firsts, strict=False))
    # The usual column need not be there; one that was named must name all records.
    if ids != _ID:
        for fragment in fragments:
            fragment._check_ids(place)
    # A file of labels replaces those of the table.
    y_values = own_labels if labels is None else read_label_file(labels)
    table = EmbeddingTable(fragments, y_values, metadata)
    if y_values is not None and len(y_values) != len(table):
        raise InputError(
            f"{labels or place}: every row must have one label; the numbers of rows and labels differ; "
            "check that both come from the same records, and that a label file has no header"
        )
    return table
