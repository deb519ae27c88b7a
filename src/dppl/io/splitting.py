"""Hold records out for an evaluation: each falls by a coin, so that the parts are disjoint whatever the others are."""

from __future__ import annotations

import csv
import io
import secrets
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from itertools import count
from numbers import Integral
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dppl._utils import validate
from dppl._utils.files import new_files
from dppl._utils.outside import parse_any
from dppl.errors import Argument, InputError, ParameterError
from dppl.io.records.labels import listed
from dppl.io.records.lines import (
    Form,
    person_in,
    read_header,
    suffix_of,
    written_lines,
    written_rows,
)
from dppl.io.records.record import BadRecord, Columns, Header
from dppl.io.records.sheets import place_of, read_sheet, select
from dppl.io.records.sources import KINDS, recognised
from dppl.io.tables.fragments import open_npz
from dppl.io.tables.parquet import check_column, decode_ids, stream, with_keys
from dppl.io.tables.places import open_place
from dppl.io.tables.read import files_of_one_form
from dppl.kernel.persons import (
    CAST,
    ID_KINDS,
    checked_ids,
    holds_ids,
    id_bytes,
    id_kind,
    texts_apart,
)

Coin: TypeAlias = Callable[[Any], bool]
Outputs: TypeAlias = tuple[IO[bytes], IO[bytes]]

_BITS = 64
_BATCH_ROWS = 1024
_GROUP_BYTES = 1 << 26  # of a row group of Parquet


def held_out(
    ids: npt.ArrayLike | int, share: float, key: str | bytes | None = None
) -> npt.NDArray[np.bool_]:
    """Choose records to hold out for an evaluation, each by itself.

    Parameters
    ----------
    ids : array-like of shape (n,), or int
        Ids of the persons whose records they are, or of the records, as `fit` takes
        them. Records with one id fall on one side; an integer and its text are one id,
        as in fits. Each record without an id (None, NaN, an empty text)
        falls by itself. A number n instead of ids is for n records that each fall by
        themselves.
    share : float
        Chance of each id to be held out, between 0 and 1. The share of the records is
        as it falls.
    key : str or bytes, default=None
        Puts an id on the same side whenever it is asked with the same key: next
        quarter, in another file, in another format. None draws a fresh key from the
        operating system and forgets it.

    Returns
    -------
    ndarray of shape (n,), bool
        True for records that are held out.

    Raises
    ------
    ParameterError
        If `share` is not between 0 and 1, or `key` is empty, or is given for records
        without ids.
    InputError
        If ids are of another type.

    Notes
    -----
    **Privacy.** Unit: an id with all of its records. Relation: add-remove. Released:
    nothing; which records are held out is as private as they are. Sensitivity: the side
    of an id is a keyed hash of that id, so adding or removing a person changes one part
    and leaves all others where they are. The parts are therefore disjoint data sets,
    and a person pays for what is released from their own part: the larger of the two
    costs, and not their sum (parallel composition [1]_). Exactly one fifth of the
    records, or of each class, would not do: one more record moves others. Public
    inputs: `share`, and `key` if it is published. Not covered: a key that was chosen by
    looking.

    What the key is for: the proof needs none, since any function of the id alone makes
    disjoint parts. Whoever knows an id and the key knows the side where its records
    would be, and not whether there are any. But the interval of an evaluation takes the
    held-out records for a random sample. So draw the key once, before you look, and
    keep it secret: who knows it could choose an id to be on a side, and who tries
    several keys and keeps the best result reports luck.

    References
    ----------
    .. [1] McSherry (2009), Privacy integrated queries, theorem 4.

    Examples
    --------
    >>> held_out(["ann", "bo", "ann", "cy"], 0.5, key="a secret").tolist()
    [True, True, True, False]
    """
    coin = _coin(share, key)
    if isinstance(ids, Integral):
        if key is not None:
            raise ParameterError(
                "needs ids to go with: without them nothing names a record again.",
                parameter="key",
            )
        return np.fromiter((coin(None) for _ in range(int(ids))), bool)
    each = checked_ids(ids, np.empty((len(ids), 0)))  # type: ignore[arg-type]
    return np.fromiter(map(coin, each.tolist()), bool, len(each))


def _coin(share: float, key: str | bytes | None) -> Coin:
    """Return the function that says of an id whether it is held out; without an id, of the next record."""
    validate.share(share=share)
    if key is not None and not (isinstance(key, str | bytes) and key.strip()):
        raise ParameterError(
            "must be a text or bytes that are not empty.", parameter="key"
        )
    # Hashed, so that a key may be longer than BLAKE2 takes.
    secret = blake2b(
        key.encode() if isinstance(key, str) else key or secrets.token_bytes(32)
    ).digest()
    fresh = secrets.token_bytes(32)
    numbers = count()
    bound = int(share * 2**_BITS)

    def coin(one: Any) -> bool:
        name = id_bytes(one)
        if name is None:  # nothing that another record could have
            secret_of = fresh
            name = str(next(numbers)).encode()
        else:
            secret_of = secret
        return (
            int.from_bytes(
                blake2b(name, key=secret_of, digest_size=_BITS // 8).digest()
            )
            < bound
        )

    return coin


def split_file(
    path: str | Path,
    out_train: str | Path,
    out_test: str | Path,
    share: float,
    *,
    groups: str | None = None,
    key: str | bytes | None = None,
    kind: str = "auto",
    encoding: str | None = None,
    sheet: str | None = None,
    header: int | None = None,
    sql: str | None = None,
) -> None:
    """Write the records of a file into two others, by `held_out`: both whole, or none.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``, a folder of Parquet files,
        ``.npz``, or a workbook. A folder of images is split as the CSV file that lists
        its images. With `sql` a database, as in `open_source`.
    out_train, out_test : path-like
        New files of the same kind, which only their owner may read. Rows of CSV and
        lines of JSON are copied as they are, except for blank ones and those above the
        header. Rows of a workbook or
        a query become rows of ``.csv``, of the texts that cells show.
    share : float
        Chance of each record, or of each id in `groups`, to be held out: to be written
        to `out_test`.
    groups : str, default=None
        Column with the id of each record's person, or of each record. A record that is
        too damaged to show it falls by itself, as one without an id does; no fit uses
        it.
    key : str or bytes, default=None
        As in `held_out`; needs `groups`.
    kind, encoding, sheet, header : str or int
        As in `open_source`.
    sql : str, default=None
        A query whose rows are split. It needs no order.

    Raises
    ------
    InputError
        If the file cannot be read, is of a kind that cannot be split, or has no such
        column. No message shows a value.
    ParameterError
        If a parameter is another, or the suffixes of the files differ.
    FileExistsError
        If an output exists.
    """
    source = Path(path) if sql is None else place_of(str(path))
    outs = (Path(out_train), Path(out_test))
    if key is not None and groups is None:
        raise ParameterError(
            "needs a column of ids: without one nothing names a record again.",
            parameter="key",
        )
    coin = _coin(share, key)
    validate.one_of(KINDS, kind=kind)
    if sql is None and not source.exists():
        raise FileNotFoundError(f"there is no file or folder {source}.")
    suffix = suffix_of(source)
    # Tables of NumPy are no kind of raw records.
    by_name = {".npz": "npz", ".npy": "npy"}.get(suffix)
    if sql is not None:
        real = "sql"
    elif kind != "auto":
        real = kind
    else:
        real = by_name or recognised(source)
    expected = {"parquet": ".parquet", "excel": ".csv", "sql": ".csv"}.get(real, suffix)
    for name, out in zip(("out_train", "out_test"), outs, strict=True):
        if out.suffix.lower() != expected:
            raise ParameterError(
                f"must end in {expected}, for what is split; got {out.name}.",
                parameter=name,
            )
    if encoding is not None and real not in ("csv", "jsonl"):
        raise ParameterError(
            f"goes with files of lines; {source} is read as {real}.",
            parameter="encoding",
        )
    if header is not None and real not in ("csv", "excel"):
        raise ParameterError(
            f"goes with workbooks and CSV files; {source} is read as {real}.",
            parameter="header",
        )
    if sheet is not None and real != "excel":
        raise ParameterError(
            f"goes with workbooks; {source} is read as {real}.", parameter="sheet"
        )
    match real:
        case "csv":
            write = partial(_split_rows, source, Form(encoding, header))
        case "jsonl":
            write = partial(_split_lines, source, Form(encoding))
        case "parquet":
            write = partial(_split_parquet, source)
        case "npz":
            write = partial(_split_npz, source)
        case "excel":
            found, rows = read_sheet(source, sheet, header, Columns(person=groups))
            write = partial(_split_texts, source, found, rows)
        case "sql":
            rows = select(str(sql), str(path))
            write = partial(_split_texts, source, Header(0, next(rows), 2), rows)
        case "images":
            raise InputError(
                f"{source} holds images, which are not copied; write a CSV file with the columns file and label, split "
                "that, and name each part as the file of labels of the folder."
            )
        case _:
            raise InputError(
                f"{source} has no labels in it, so two files would have to be split alike; write .csv or .npz."
            )
    with new_files(outs, private=True) as (train, test):
        write((train, test), coin, groups)


def _split_rows(
    path: Path, form: Form, outs: Outputs, coin: Coin, groups: str | None
) -> None:
    """Copy the rows of a CSV file."""
    form.check(path)
    delimiter, header = read_header(path, form, Columns(person=groups))
    names = header.names
    place = _place_of(groups, header, path)
    with form.opened(path) as file, _texts(file.encoding, outs) as texts:
        for number, text, row in written_rows(file, delimiter):
            if number == header.place:
                for one in texts:
                    one.write(text if text.endswith(("\n", "\r")) else f"{text}\n")
            if number <= header.place:
                continue
            if place is None or len(row) != len(names):
                whose = None
            else:
                whose = row[place]
            texts[coin(whose)].write(text)


def _place_of(groups: str | None, header: Header, path: Path) -> int | None:
    """Return where the column of ids is; each column must have a name of its own, or it is no header that was found."""
    names = header.names
    if groups is not None and groups not in names:
        raise InputError(
            f"must be one column of {path}; got {groups!r}; ",
            *header.shown,
            ".",
            parameter="groups",
        )
    if "" in names or len({*names}) < len(names):
        raise InputError(
            f"{path} must have a name for each column, and each once; row {header.place + 1}, taken as the header, has "
            "cells that are empty or repeat another; if another row is the header, add ",
            Argument("header", header.place + 2),
            ".",
        )
    return None if groups is None else names.index(groups)


def _split_texts(
    path: Path,
    header: Header,
    rows: Iterator[list[str]],
    outs: Outputs,
    coin: Coin,
    groups: str | None,
) -> None:
    """Write rows of texts below a header as rows of CSV."""
    place = _place_of(groups, header, path)
    # Ids that are bytes and no UTF-8 stay different from each other.
    with _texts("utf-8", outs, "backslashreplace") as texts:
        writers = [csv.writer(one) for one in texts]
        for writer in writers:
            writer.writerow(header.names)
        for row in rows:
            writers[coin(None if place is None else row[place])].writerow(row)


def _split_lines(
    path: Path, form: Form, outs: Outputs, coin: Coin, groups: str | None
) -> None:
    """Copy the lines of a file of JSON objects."""
    form.check(path)
    with form.opened(path, "\n") as file, _texts(file.encoding, outs) as texts:
        for written, line in written_lines(file):
            whose = None
            if groups is not None:
                with suppress(ValueError, BadRecord):
                    entry = parse_any(line)
                    whose = None
                    if isinstance(entry, dict):
                        whose = person_in(entry, groups)
            texts[coin(whose)].write(written)


@contextmanager
def _texts(encoding: str, outs: Outputs, errors: str = "strict") -> Iterator[list[Any]]:
    """Write texts into files as bytes: what was decoded strictly becomes the bytes that it was."""
    texts = [
        io.TextIOWrapper(out, encoding=encoding, newline="", errors=errors)
        for out in outs
    ]
    try:
        yield texts
    finally:
        for one in texts:
            one.detach()  # writes what is held back, and leaves the file open


def _split_parquet(path: Path, outs: Outputs, coin: Coin, groups: str | None) -> None:
    """Copy the rows of Parquet files with all of their columns, batch by batch."""
    files, schema = files_of_one_form(path)
    if groups is not None:
        check_column(schema, path, groups, ID_KINDS, id_kind, "groups")
    # The dictionary of a column would bring the values of one part into the file of the
    # other.
    for place, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            schema = schema.set(place, field.with_type(field.type.value_type))
    with ExitStack() as stack:
        writers = [stack.enter_context(pq.ParquetWriter(out, schema)) for out in outs]
        held: list[list[pa.RecordBatch]] = [[], []]
        for batch in (
            with_keys(part, keys)
            for file, keys in files
            for part in stream(file, _BATCH_ROWS)
        ):
            if groups is None:
                whose = [None] * len(batch)
            else:
                whose = decode_ids(batch.column(groups))
            is_test = np.fromiter(map(coin, whose), bool, len(batch))
            for side, mask in enumerate((~is_test, is_test)):
                held[side].append(batch.filter(pa.array(mask)))
                if sum(one.nbytes for one in held[side]) > _GROUP_BYTES:
                    writers[side].write_table(
                        pa.Table.from_batches(held[side]).cast(schema)
                    )
                    held[side].clear()
        for side, writer in enumerate(writers):
            writer.write_table(
                pa.Table.from_batches(held[side], None if held[side] else schema).cast(
                    schema
                )
            )


def _split_npz(path: Path, outs: Outputs, coin: Coin, groups: str | None) -> None:
    """Copy arrays with an entry a record."""
    with open_npz(open_place(path)) as archive:
        arrays = {name: np.asarray(archive[name]) for name in archive.files}
    lengths = {len(one) if one.ndim else None for one in arrays.values()}
    n = lengths.pop() if len(lengths) == 1 else None
    if n is None:
        raise InputError(
            f"{path} must hold arrays with one entry a record, and no others; it has {listed(arrays)}."
        )
    whose: Any = np.full(n, None)
    if groups is not None:
        if (
            groups not in arrays
            or arrays[groups].ndim != 1
            or not holds_ids(arrays[groups].dtype)
        ):
            raise InputError(
                f"must name one array of {path} with an id a record: {ID_KINDS}; there are {listed(arrays)}; {CAST}.",
                parameter="groups",
            )
        whose = texts_apart(arrays[groups])
    is_test = np.fromiter(map(coin, whose.tolist()), bool, n)
    for out, mask in zip(outs, (~is_test, is_test), strict=True):
        # Not np.savez, to which some names of arrays would be parameters.
        with zipfile.ZipFile(out, "w") as archive:
            for name, array in arrays.items():
                with archive.open(
                    zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True
                ) as file:
                    np.lib.format.write_array(file, array[mask], allow_pickle=False)
