"""A labelled table in parts, each of which a task reads by itself.

What travels is where a part lies: paths, names of columns and positions. Its rows and labels are read by whoever calls
`TablePart.read`, and nobody holds the labels of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dppl import _validate
from dppl.engines import Engine, InProcess
from dppl.errors import InputError
from dppl.io._places import Place
from dppl.io._reading import Array
from dppl.io.fragments import Fragment, NpzFragment
from dppl.io.labels import AnyPath, read_label_file
from dppl.io.tables import EmbeddingTable, read_table

__all__ = ["PartedTable", "TablePart", "read_parts"]

# Rows of a part of a npy file: 200 MB of 768 float32, and enough work to be worth a task.
_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TablePart:
    """Where a part of a table lies.

    Attributes
    ----------
    fragment : Fragment
        The file, or the rows of one.
    y : str or None
        Name of the labels in the file, or in the Parquet file of an npy shard.
    labels : str or None
        A file with the labels of the whole table.
    metadata : mapping of str to str
        What the table says of itself.
    """

    fragment: Fragment
    y: str | None
    labels: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def table(self) -> EmbeddingTable:
        """Read its labels, and return them with the rows, which stream.

        Raises
        ------
        InputError
            If a file is damaged or has changed.
        """
        labels = self._labels()
        if labels is not None and len(labels) != self.fragment.rows:
            raise InputError(f"{self.fragment.path} must not change while it is read; it did; read the table again")
        return EmbeddingTable((replace(self.fragment, first=0),), labels, dict(self.metadata))

    def read(self) -> tuple[EmbeddingTable, Array | None]:
        """Read its rows and labels.

        Raises
        ------
        InputError
            As `table`.
        """
        table = self.table()
        return table, table.y

    def _labels(self) -> Array | None:
        if self.labels is not None:
            return read_label_file(self.labels)[self.fragment.first :][: self.fragment.rows]
        return None if self.y is None else self.fragment.labels(self.y)


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
    rows: int = _ROWS,
    engine: Engine | None = None,
) -> PartedTable:
    """Describe a table in parts; of its rows and labels none is read.

    Parameters
    ----------
    path : path-like
        A file or folder as in `read_table`, or the URL of one, which every machine must be able to read. A ``.parquet``
        or ``.npz`` file is a part; of a ``.npy`` file `rows` rows are.
    x : str, default="x"
        Name of the rows, as in `read_table`.
    y : str or None, default="y"
        Name of the labels, as in `read_table`.
    labels : path-like or None, default=None
        File with the labels of all rows, as in `read_table`. Each task maps it if it is ``.npy``, and else reads all of
        it.
    rows : int, default=65536
        Rows of a part of a ``.npy`` file.
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
    place = Place.of(path)
    outline = read_table(path, x=x, y=None, labels=labels)
    fragments = outline.fragments(rows)
    if place.suffix == ".npz":  # whose rows are in memory now, and must not travel
        (held,) = fragments
        fragments = (NpzFragment(_place=place, name=x, rows=held.rows, width=held.width, dtype=held.dtype),)
    own = None if labels is not None else y
    label_file = None if labels is None else str(Path(labels).absolute())
    parts = tuple(TablePart(fragment=one, y=own, labels=label_file, metadata=outline.metadata) for one in fragments)
    # Of all shards, so that a column that holds no labels is an error; pieces of one file are looked at once.
    files = {part.fragment.path: part.fragment for part in parts}
    labelled = labels is not None or (y is not None and all([file.labelled(y) for file in files.values()]))
    return PartedTable(
        parts=parts,
        n_features=outline.shape[1],
        labelled=labelled,
        metadata=outline.metadata,
        engine=engine or InProcess(),
    )
