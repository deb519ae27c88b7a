"""A labelled table in parts, each of which a task reads by itself.

What travels is where a part lies: paths, names of columns and positions. Its rows and labels are read by whoever calls
`TablePart.read`, and nobody holds the labels of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dppl import _validate
from dppl.data._reading import Array, converting
from dppl.data.labels import AnyPath
from dppl.data.tables import EmbeddingTable, read_table
from dppl.errors import InputError

__all__ = ["PartedTable", "TablePart", "read_parts"]

# Rows of a part of a npy file: 200 MB of 768 float32, and enough work to be worth a task.
_ROWS = 1 << 16
# Columns that `read_table` takes where none is named.
_USUAL = {"x": ("x", "X", "embedding", "embeddings"), "y": ("y", "label", "labels")}
_LABEL_KINDS = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """Where a part of a table lies.

    Attributes
    ----------
    path : str
        The file, absolute.
    x, y : str or None
        Names of the columns of rows and labels.
    labels : str or None
        A file with the labels, for rows that are a npy file.
    start, stop : int or None
        Positions of the first row and behind the last; None is the whole file.
    """

    path: str
    x: str
    y: str | None
    labels: str | None = None
    start: int | None = None
    stop: int | None = None

    def table(self) -> EmbeddingTable:
        """Read its rows, as a table that streams, and its labels.

        Raises
        ------
        InputError
            If the file is damaged or has changed.
        """
        table = read_table(self.path, x=self.x, y=self.y, labels=self.labels)
        if self.stop is None:
            return table
        part = slice(self.start, self.stop)
        rows = table.to_array()  # a memory map
        if len(rows) < self.stop:
            raise InputError(f"{self.path} must not change while it is read; it did; read the table again")
        return EmbeddingTable.of(rows[part], None if table.y is None else table.y[part], metadata=table.metadata)

    def read(self) -> tuple[EmbeddingTable, Array | None]:
        """Read its rows and labels.

        Raises
        ------
        InputError
            As `table`.
        """
        table = self.table()
        return table, table.y


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False, weakref_slot=True)
class PartedTable:
    """A labelled table in parts. Made by `read_parts`; `fit` takes it, alone or with an engine.

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
    """

    parts: tuple[TablePart, ...]
    n_features: int
    labelled: bool
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Not the number of rows: a repr ends up in logs.
        return f"<PartedTable: rows of {self.n_features}>"


def read_parts(
    path: AnyPath, *, x: str = "x", y: str | None = "y", labels: AnyPath | None = None, rows: int = _ROWS
) -> PartedTable:
    """Describe a table in parts; of its rows and labels none is read.

    Parameters
    ----------
    path : path-like
        A folder of ``*.parquet`` shards, each of which is a part; a ``.npy`` file, of which `rows` rows are a part; or
        a ``.parquet`` or ``.npz`` file, which is one part. In Parquet the rows are lists of one fixed size, so that
        each part tells its width.
    x : str, default="x"
        Name of the rows, as in `read_table`.
    y : str or None, default="y"
        Name of the labels, as in `read_table`.
    labels : path-like or None, default=None
        File with the labels of rows in one file, as in `read_table`. Each task maps it if it is ``.npy``, and else
        reads all of it.
    rows : int, default=65536
        Rows of a part of a ``.npy`` file.

    Returns
    -------
    PartedTable

    Raises
    ------
    InputError
        If a file is missing or of another format, shards differ in columns, types or encoder, or lists have no fixed
        size.
    ParameterError
        If `rows` is not a positive integer.

    Notes
    -----
    **Privacy.** Unit: one row of the table. Nothing is released here. Which part a record is in is decided by its
    place, and no sum depends on it.
    """
    _validate.positive_integer(rows=rows)
    if "://" in str(path):
        raise InputError(f"{path} must lie in a file system that all machines share, to be read in parts; copy it.")
    source = Path(path).absolute()
    folder, suffix = source.is_dir(), source.suffix.lower()
    if folder and labels is not None:
        raise InputError("must be left out: each shard of a folder holds its own.", parameter="labels")
    in_parquet = folder or suffix == ".parquet"
    outline = read_table(source, x=x, y=None if in_parquet else y, labels=labels)
    part = partial(TablePart, path=str(source), x=x, y=y)
    if labels is not None:
        part = partial(TablePart, path=str(source), x=x, y=None, labels=str(Path(labels).absolute()))
    parts = [part()]
    if folder:
        parts = [part(path=str(file.path)) for file in outline.fragments()]
        if any(not one.path.endswith(".parquet") for one in parts):
            raise InputError(f"{source} must hold .parquet shards, to be read in parts; convert it.")
    elif suffix == ".npy":
        starts = range(0, max(len(outline), 1), rows)
        parts = [part(start=start, stop=min(start + rows, len(outline))) for start in starts]
    labelled = outline.y is not None
    if in_parquet:
        labelled = all([_has_labels(one.path, x, y) for one in parts]) or labels is not None
    return PartedTable(parts=tuple(parts), n_features=outline.shape[1], labelled=labelled, metadata=outline.metadata)


def _has_labels(path: str, x: str, y: str | None) -> bool:
    """Tell whether a Parquet file has a column of labels, by its outline alone.

    Raises
    ------
    InputError
        If rows are lists of any length: a part whose rows are all missing would have no width, and stop a fit by that.
    """
    with converting(f"{path} must be a Parquet file that Arrow can read", "write it again"):
        schema = pq.read_schema(path)
    kind = schema.field(_picked(x, "x", schema.names) or x).type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        raise InputError(
            f"must name a column of {path} with lists of one fixed size, to be read in parts; it holds {kind}; write "
            "the table with dppl embed, or as fixed-size lists.",
            parameter="x",
        )
    label = None if y is None else _picked(y, "y", schema.names)
    if label is None:
        return False
    kind = schema.field(label).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(is_kind(kind) for is_kind in _LABEL_KINDS):
        raise InputError(
            f"must name a column of {path} with integers or strings; {label!r} holds {kind}; name another.",
            parameter="y",
        )
    return True


def _picked(name: str, parameter: str, names: Sequence[str]) -> str | None:
    """Return the column that `read_table` takes; only where none is named others have the place of the default."""
    return next((one for one in (_USUAL[parameter] if name == parameter else (name,)) if one in names), None)
