"""Open a source of records of any kind, and recognise which kind it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from dppl import _validate
from dppl._metadata import LATTICE
from dppl.data._columns import is_list, open_parquet
from dppl.data._layouts import is_npy_pool
from dppl.data._places import Place, is_url
from dppl.embedding.arrow import Arrays, ParquetRecords, SavedDataset
from dppl.embedding.images import SUFFIXES, open_images
from dppl.embedding.lines import CsvTexts, Form, JsonTexts, TextLines
from dppl.embedding.records import Columns, Source
from dppl.errors import InputError, ParameterError

__all__ = ["KINDS", "has_columns", "holds_embeddings", "open_source"]


def open_source(
    path: str | Path,
    *,
    kind: str = "auto",
    columns: Columns | None = None,
    labels: str | Path | None = None,
    split: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> Source:
    """Open a source of records.

    Parameters
    ----------
    path : path-like
        A folder of images or one image, a ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet`` or ``.txt`` file, a folder of
        Parquet files, a data set saved by ``datasets``, or a folder with embeddings in ``SPLIT_x.npy`` and labels in
        ``SPLIT_y.npy``.
    kind : str, default="auto"
        One of images, csv, jsonl, parquet, text, datasets and arrays; auto recognises it by names of files.
    columns : Columns, default=None
        Names of columns other than the usual ones.
    labels : path-like, default=None
        For images, a CSV file whose rows name a file and its label, and which then decides what is read; for a text
        file, a file with one label a line.
    split : str, default=None
        Which split of a data set or of arrays.
    encoding : str, default=None
        Of a file of lines, and of `labels`: any that Python knows, such as ``"cp1252"``. None is UTF-8, or UTF-16 where
        the file begins with its byte order mark.
    delimiter : str, default=None
        What stands between the columns of a CSV file: one character, or ``"tab"``. None is a comma (in ``.tsv`` a tab),
        or what the header has in its place: ``;``, tab or ``|``.

    Returns
    -------
    Source

    Raises
    ------
    InputError
        If the source cannot be read, or a file of lines is in another encoding.
    ParameterError
        If a parameter does not go with this kind of source.
    MissingExtra
        If it needs a package that is not installed.

    Notes
    -----
    **Privacy.** Nothing is released here. Whether a record is read or left out depends on that record alone, with one
    exception: the form of the source (columns of a table, encoding of a file of lines, class folders or a flat folder,
    the kind of a folder that `kind="auto"` recognises) is taken as given. A file of another kind among the images would
    change it, and bytes of another encoding in a file of lines are an error. Name `kind` where others can add files.
    """
    source = Path(path)
    _validate.one_of(KINDS, kind=kind)
    if not source.exists():
        raise FileNotFoundError(f"there is no file or folder {source}.")
    found = _recognised(source) if kind == "auto" else kind
    if labels is not None and found not in ("images", "text"):
        raise ParameterError(
            f"goes with images and text files; {source} is read as {found}; name a column.", parameter="labels"
        )
    if split is not None and found not in ("datasets", "arrays"):
        raise ParameterError(f"goes with datasets and arrays; {source} is read as {found}.", parameter="split")
    names = columns or Columns()
    if names != Columns() and (found in ("text", "arrays") or (found == "images" and labels is None)):
        raise ParameterError(f"must be left out; {source} is read as {found}, which has none.", parameter="columns")
    form = Form(encoding, delimiter)
    if delimiter is not None and found != "csv" and (found, labels is None) != ("images", False):
        raise ParameterError(f"goes with CSV files; {source} is read as {found}.", parameter="delimiter")
    if encoding is not None and found not in ("csv", "jsonl", "text") and (found, labels is None) != ("images", False):
        raise ParameterError(f"goes with files of lines; {source} is read as {found}.", parameter="encoding")
    opened = _OPENERS[found](source, names, None if labels is None else Path(labels), split, form)
    if labels is not None and opened.label_type is None:
        raise InputError(f"must name the column of labels in {labels}, which has no label, labels or y.", parameter="y")
    listed = None if labels is None else Path(labels).absolute()
    opened.again = partial(
        open_source,
        source.absolute(),
        kind=kind,
        columns=columns,
        labels=listed,
        split=split,
        encoding=encoding,
        delimiter=delimiter,
    )
    return opened


def has_columns(path: str | Path, kind: str = "auto") -> bool:
    """Tell whether the records of a source lie in columns that have names.

    Parameters
    ----------
    path : path-like
    kind : str, default="auto"
        As in `open_source`.
    """
    _validate.one_of(KINDS, kind=kind)
    return (_recognised(Path(path)) if kind == "auto" else kind) in ("csv", "jsonl", "parquet", "datasets")


def holds_embeddings(path: Path, *, x: str = "x") -> bool:
    """Tell whether a file or folder is a table of embeddings, as every URL is; else it may hold raw records.

    Parameters
    ----------
    path : Path
    x : str, default="x"
        Name of the column of embeddings.

    Raises
    ------
    InputError
        If a Parquet file cannot be read.
    """
    if is_url(path) or path.suffix.lower() in (".npy", ".npz") or (path.is_dir() and is_npy_pool(Place.of(path))):
        return True
    place = Place.of(path)
    files = place.files(".parquet") if path.is_dir() else []
    if path.suffix.lower() == ".parquet" and not files:
        files = [place]
    if not files:
        return False
    with open_parquet(files[0]) as file:
        schema = file.schema_arrow
    kinds = [schema.field(name).type for name in (x, *_EMBEDDINGS) if name in schema.names]
    as_bytes = LATTICE.encode() in (schema.metadata or {})  # and not images
    return any(is_list(kind) or (as_bytes and pa.types.is_fixed_size_binary(kind)) for kind in kinds)


_Opener = Callable[[Path, Columns, Path | None, str | None, Form], Source]
_OPENERS: dict[str, _Opener] = {
    "images": lambda path, columns, labels, _, form: open_images(path, columns, labels, form),
    "csv": lambda path, columns, _, __, form: CsvTexts(path, columns, form),
    "jsonl": lambda path, columns, _, __, form: JsonTexts(path, columns, form),
    "parquet": lambda path, columns, *_: ParquetRecords(path, columns),
    "text": lambda path, _, labels, __, form: TextLines(path, labels, form),
    "datasets": lambda path, columns, _, split, __: SavedDataset(path, columns, split),
    "arrays": lambda path, _, __, split, ___: Arrays(path, split),
}
KINDS = ("auto", *_OPENERS)
_EMBEDDINGS = ("X", "embedding", "embeddings")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
}
# The first pattern that a folder holds decides.
_CONTENTS = {
    "dataset_dict.json": "datasets",
    "dataset_info.json": "datasets",
    "*_x.npy": "arrays",
    "*.parquet": "parquet",
}


def _recognised(path: Path) -> str:
    if path.is_dir():
        kind = next((kind for pattern, kind in _CONTENTS.items() if any(path.glob(pattern))), "images")
        if kind != "images" and any(map(_holds_images, path.iterdir())):
            raise InputError(
                f"must say what {path} is; it holds images beside other data, so one file would decide.",
                parameter="kind",
            )
        return kind
    suffix = path.suffix.lower()
    found = "images" if suffix in SUFFIXES else _SUFFIXES.get(suffix)
    if found is None:
        raise InputError(
            f"must say what {path} is, unless it ends in {', '.join(_SUFFIXES)}, or is an image or a folder.",
            parameter="kind",
        )
    return found


def _holds_images(entry: Path) -> bool:
    if entry.name[0] in "._":
        return False
    files = entry.iterdir() if entry.is_dir() else [entry]
    return any(file.suffix.lower() in SUFFIXES for file in files)
