"""Open a source of records of any kind, and recognise which kind it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from dppl._utils import validate
from dppl._utils.metadata import LATTICE
from dppl.errors import Argument, InputError, ParameterError
from dppl.io.records.images import SUFFIXES, ImageFolder, ListedImages
from dppl.io.records.labels import X_NAMES
from dppl.io.records.lines import (
    CsvTexts,
    Form,
    JsonTexts,
    TextLines,
    read_header,
    suffix_of,
)
from dppl.io.records.record import Columns, EmptySource, Source
from dppl.io.records.sheets import (
    WORKBOOKS,
    QueryTexts,
    SheetTexts,
    read_sheet,
    select,
)
from dppl.io.records.urls import is_url, shown_as
from dppl.io.tables.parquet import (
    ParquetRecords,
    is_list,
    is_partitioned,
    keyed_files,
    open_parquet,
    schemas_of,
)
from dppl.io.tables.places import open_place

KINDS = ("auto", "images", "csv", "jsonl", "parquet", "text", "excel")
_LINES = ("csv", "jsonl", "text")
_WITH_COLUMNS = ("csv", "jsonl", "parquet", "excel")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    **dict.fromkeys(WORKBOOKS, "excel"),
}


def open_source(
    path: str | Path,
    *,
    kind: str = "auto",
    columns: Columns | None = None,
    labels: str | Path | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    header: int | None = None,
    sql: str | None = None,
) -> Source:
    """Open a source of records.

    Parameters
    ----------
    path : path-like
        A folder of images or one image, a ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``
        or ``.txt`` file, a workbook (``.xlsx``, ``.xlsm``, ``.xlsb``, ``.xls`` or
        ``.ods``), or a folder of Parquet files, perhaps within folders that are called
        ``key=value``: each key is a column of texts. A file of lines may be packed by
        gzip (``.csv.gz``). Commas separate the columns of a CSV file (in ``.tsv``
        tabs), or what the header has in their place: ``;``, tab or ``|``; or what a
        first line ``sep=;`` names. With `sql` a database: a file that ends in ``.duckdb``, ``.sqlite``,
        ``.sqlite3`` or ``.db``, or a URL of SQLAlchemy as a text, such as
        ``"postgresql://user:password@host/name"``. It is in no message, and in no file
        that is written.
    kind : str, default="auto"
        One of images, csv, jsonl, parquet, text and excel; auto recognises it by names
        of files.
    columns : Columns, default=None
        Names of columns other than the usual ones.
    labels : path-like, default=None
        For images, a CSV file whose rows name a file and its label, and which then
        decides what is read.
    encoding : str, default=None
        Of a file of lines, and of `labels`: any that Python knows, such as
        ``"cp1252"``. None is UTF-8, or UTF-16 where the file begins with its byte order
        mark.
    sheet : str, default=None
        Name of a sheet of a workbook. None is the first that is not hidden.
    header : int, default=None
        Number of the row that names the columns of a workbook or CSV file, as a
        spreadsheet counts rows. None is the first of 50 rows that has the columns that
        are named or usual.
    sql : str, default=None
        A query that selects texts, such as ``"select text, label from notes order by
        id"``. It must name an order, or `columns` an id. Whatever it would change is
        rolled back. Labels and ids are texts, as of a workbook.

    Returns
    -------
    Source

    Raises
    ------
    InputError
        If the source cannot be read, a file of lines is in another encoding, or a
        database does not answer the query. The message quotes neither query nor
        database.
    ParameterError
        If a parameter does not go with this kind of source, or a query names no order
        and `columns` no id.
    MissingExtra
        If a workbook or database needs a package that is not installed.

    Notes
    -----
    **Privacy.** Nothing is released here. Whether a record is read or skipped depends
    on that record alone, with one exception: the form of the source (columns of a
    table, encoding of a file of lines, class folders or a flat folder, keys of folders,
    the kind of a folder that `kind="auto"` recognises) is taken as given. A file of
    another kind among the images would change it, and bytes of another encoding in a
    file of lines are an error. Name `kind` where others can add files. A query is asked
    once, and its rows stay in a temporary file without a name as long as the source is
    used; one with LIMIT, DISTINCT or a window chooses a record by looking at others.
    """
    if sql is not None:
        for name, given in (
            ("kind", kind),
            ("labels", labels),
            ("encoding", encoding),
            ("sheet", sheet),
            ("header", header),
        ):
            if given not in (None, "auto"):
                raise ParameterError(
                    "goes with files; a query says all.", parameter=name
                )
        return QueryTexts(sql, str(path), columns or Columns())
    source = Path(path)
    validate.one_of(KINDS, kind=kind)
    if header is not None:
        validate.positive_integer(header=header)
    if not source.exists():
        raise FileNotFoundError(f"there is no file or folder {shown_as(source)}.")
    real = recognised(source) if kind == "auto" else kind
    # Images that a CSV file lists are read as its rows are.
    if real == "images" and labels is not None:
        lines = "csv"
    else:
        lines = real
    for parameter, value, rule, fits in (
        ("labels", labels, ("goes with images",), real == "images"),
        (
            "columns",
            columns,
            (
                "go with files that have columns, such as the CSV file of ",
                Argument("labels", "FILE"),
                " for images",
            ),
            lines in _WITH_COLUMNS,
        ),
        (
            "encoding",
            encoding,
            ("goes with files of lines",),
            lines in _LINES,
        ),
        ("sheet", sheet, ("goes with workbooks",), real == "excel"),
        (
            "header",
            header,
            ("goes with workbooks and CSV files",),
            lines in ("csv", "excel"),
        ),
    ):
        if value not in (None, Columns()) and not fits:
            raise ParameterError(
                *rule, f"; {source} is read as {real}.", parameter=parameter
            )
    label_file = None if labels is None else Path(labels)
    named = columns or Columns()
    form = Form(encoding, header)
    opened: Source
    match real:
        case "images" if label_file is None and (
            source.is_dir() or source.suffix.lower() in SUFFIXES
        ):
            opened = ImageFolder(source)
        case "images" if label_file is not None and source.is_dir():
            opened = ListedImages(source, label_file, named, form)
        case "images":
            raise InputError(
                f"must be another for {source}, which is a file and not a folder of images.",
                parameter="kind",
            )
        case "csv":
            opened = CsvTexts(source, named, form)
        case "jsonl":
            opened = JsonTexts(source, named, form)
        case "parquet":
            opened = ParquetRecords(source, named)
        case "excel":
            opened = SheetTexts(source, named, sheet, header)
        case _:
            opened = TextLines(source, form)
    if labels is not None and opened.label_type is None:
        raise InputError(
            f"must name the column of labels in {labels}, which has no label, labels or y.",
            parameter="y",
        )
    opened.again = partial(
        open_source,
        source.absolute(),
        kind=real,
        columns=columns,
        labels=None if label_file is None else label_file.absolute(),
        encoding=encoding,
        sheet=sheet,
        header=header,
    )
    return opened


def has_columns(path: str | Path, kind: str = "auto") -> bool:
    """Return whether the records of a source lie in columns that have names.

    Parameters
    ----------
    path, kind
        As in `open_source`.
    """
    validate.one_of(KINDS, kind=kind)
    return (recognised(Path(path)) if kind == "auto" else kind) in _WITH_COLUMNS


def column_types(
    path: str | Path,
    *,
    kind: str = "auto",
    encoding: str | None = None,
    sheet: str | None = None,
    header: int | None = None,
    sql: str | None = None,
) -> dict[str, str]:
    """Return the columns of a source by name, with the types that its form states or "", and read no value."""
    if sql is not None:
        # The query is answered, but of its rows none is read.
        return dict.fromkeys(next(select(sql, str(path))), "")
    source = Path(path)
    validate.one_of(KINDS, kind=kind)
    if not source.exists():
        raise FileNotFoundError(f"there is no file or folder {shown_as(source)}.")
    match recognised(source) if kind == "auto" else kind:
        case "csv":
            form = Form(encoding, header)
            return dict.fromkeys(read_header(source, form, Columns())[1].names, "")
        case "excel":
            row, _ = read_sheet(source, sheet, header, Columns())
            return dict.fromkeys(row.names, "")
        case "parquet":
            schema, *_ = schemas_of(keyed_files(source), source)
            return {one.name: str(one.type) for one in schema}
    raise InputError(
        f"{source} must have a header or a schema that names its columns; write .csv or .parquet."
    )


def holds_embeddings(path: Path, *, x: str = "x") -> bool:
    """Return whether a file or folder is a table of embeddings, as every URL is; else it may hold raw records.

    Parameters
    ----------
    path : Path
    x : str, default="x"
        Name of the column of embeddings.
    """
    suffix = path.suffix.lower()
    if is_url(path) or suffix in (".npy", ".npz"):
        return True
    place = open_place(path)
    if path.is_dir():
        files = place.files(".parquet")
    elif suffix == ".parquet":
        files = [place]
    else:
        files = []
    if not files:
        return False
    # The first file stands for all; readers compare them later.
    with open_parquet(files[0]) as file:
        schema = file.schema_arrow
    kinds = [schema.field(name).type for name in (x, *X_NAMES) if name in schema.names]
    as_bytes = LATTICE.encode() in (schema.metadata or {})  # and not images
    return any(
        is_list(kind) or (as_bytes and pa.types.is_fixed_size_binary(kind))
        for kind in kinds
    )


def recognised(path: Path) -> str:
    """Return the kind of a source: the names of files decide, not their contents."""
    if not path.is_dir():
        if path.suffix.lower() in SUFFIXES:
            kind = "images"
        else:
            kind = _SUFFIXES.get(suffix_of(path), "")
        if not kind or (suffix_of(path) != path.suffix.lower() and kind not in _LINES):
            raise InputError(
                f"must say what {path} is, unless it ends in {', '.join(_SUFFIXES)}, or is an image or a folder; "
                "a database needs a query (sql).",
                parameter="kind",
            )
        return kind
    if not any(path.glob("[!.]*")):
        raise EmptySource(
            f"{path} must hold records; the folder is empty; name another."
        )
    if not is_partitioned(path) and not any(path.glob("*.parquet")):
        return "images"
    files = (
        file
        for entry in path.iterdir()
        for file in (entry.iterdir() if entry.is_dir() else [entry])
    )
    if any(file.suffix.lower() in SUFFIXES for file in files):
        raise InputError(
            f"must say what {path} is; it holds images and other data, so one file would decide.",
            parameter="kind",
        )
    return "parquet"
