"""Embedding tables as files that `read_table` reads, written whole or not at all."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dppl._files import atomic_file
from dppl.data._reading import Array, as_array, by_suffix, check_rows, converting
from dppl.data.labels import AnyPath, as_labels
from dppl.errors import InputError, ParameterError

__all__ = ["write_npz", "write_table"]

_GROUP_ROWS = 65536  # rows in a row group


def write_table(
    path: AnyPath,
    X: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a table that `read_table` reads, whole or not at all.

    Parameters
    ----------
    path : path-like
        ``.npz`` or ``.parquet``. An existing file is replaced.
    X : array-like of shape (n, d)
        Rows: floats of at most 64 bits, or integers.
    y : array-like of shape (n,), default=None
        Labels: integers or strings. In npz every string takes the room of the longest.
    metadata : mapping of str to str, default=None
        Stored in the Parquet schema. Not for npz.

    Raises
    ------
    InputError
        If the arrays break these rules, the suffix is another one, or the file cannot be written.
    ParameterError
        If `metadata` is given for npz, or is no mapping of str to str.
    """
    target = Path(path)
    is_parquet = by_suffix(target, {".npz": False, ".parquet": True}, "path")
    rows = as_array(X, "X")
    check_rows(rows, "X")
    classes = None if y is None else as_labels(y)
    if classes is not None and len(classes) != len(rows):
        raise InputError("X and y must have equally many rows; the numbers differ; pass one label for each row")
    texts = dict(metadata or {})
    if not all(isinstance(text, str) for text in itertools.chain(texts, texts.values())):
        raise ParameterError("metadata must map str to str; got another type; convert it with str()")
    if texts and not is_parquet:
        raise ParameterError("metadata must be empty for .npz; got some; write .parquet to keep metadata")
    promise, hint = f"{target} must be writable", "check the folder, its permissions and free space"
    with converting(promise, hint), atomic_file(target, overwrite=True) as file:
        if is_parquet:
            _write_parquet(file, rows, classes, texts)
        else:
            write_npz(file, rows, classes)


def write_npz(file: IO[bytes], rows: Array, labels: Array | None) -> None:
    """Write rows and labels into an open file: given a path, NumPy would append a suffix to it."""
    arrays = {"x": rows}
    if labels is not None:
        arrays["y"] = labels.astype(np.str_) if labels.dtype.kind == "O" else labels
    np.savez(file, allow_pickle=False, **arrays)


def _write_parquet(file: IO[bytes], rows: Array, labels: Array | None, metadata: dict[str, str]) -> None:
    native = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(native.reshape(-1)), rows.shape[1])}
    if labels is not None:
        columns["y"] = pa.array(labels.tolist(), type=pa.int64() if labels.dtype.kind == "i" else pa.string())
    table = pa.table(columns).replace_schema_metadata(metadata or None)
    # Embeddings hardly repeat, so a dictionary of them only costs time and memory.
    pq.write_table(table, file, row_group_size=_GROUP_ROWS, use_dictionary=["y"])
