"""Texts in files of lines: CSV, JSON lines, and a text a line.

How a file falls into records is its own format: in CSV a quote that is never closed takes all that follows into one
record, which is then left out. In the other two a byte order mark may begin any line, as where files were joined.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa

from dppl.embedding.decoding import MOST_TEXT_BYTES
from dppl.embedding.records import (
    PATHS,
    TEXTS,
    Columns,
    Payload,
    Record,
    Source,
    Unusable,
    Version,
    record_of,
    unusable,
)
from dppl.errors import InputError

__all__ = ["CsvRows", "CsvTexts", "JsonTexts", "TextLines"]

_DELIMITERS = {".tsv": "\t"}
_LARGEST_LONG = (1 << 8 * struct.calcsize("l") - 1) - 1  # of the platform's C


class CsvRows:
    """Rows of a CSV file with a header.

    Parameters
    ----------
    path : Path
    columns : Columns
        What is None there is found in the header.
    are_paths : bool
        Whether the column `x` holds paths, which then serve as reference, and as id where there is no column of ids.

    Raises
    ------
    InputError
        If the header cannot be read, or has not all columns.
    """

    def __init__(self, path: Path, columns: Columns, *, are_paths: bool = False) -> None:
        self._path = path
        self._are_paths = are_paths
        header = next(self._rows(), None)
        if header is None:
            raise InputError(f"{path} is empty; its first line must name the columns.")
        self._names = header if isinstance(header, list) else []
        self.columns = columns.found_in(self._names, path, PATHS if are_paths else TEXTS, secret=True)
        self.label_type = None if self.columns.y is None else pa.string()
        self.person_type = None if self.columns.person is None else pa.string()

    def records(self, content: Callable[[str], tuple[Callable[[], Payload], Version]]) -> Iterator[Record]:
        """Yield the records; `content` makes the way to load one, and its version, of what the column `x` holds."""
        x, y, identity, person = (
            None if name is None else self._names.index(name)
            for name in (self.columns.x, self.columns.y, self.columns.id, self.columns.person)
        )
        assert x is not None
        for number, row in enumerate(islice(self._rows(), 1, None)):
            if isinstance(row, str):
                yield unusable(f"row {number}", row)
                continue
            if len(row) != len(self._names):
                yield unusable(f"row {number}", "its row has more or fewer columns than the header")
                continue
            # Surrogates stand for bytes that are not UTF-8.
            reference = row[x].encode("utf-8", "backslashreplace").decode() if self._are_paths else f"row {number}"
            default = row[x] if self._are_paths else number
            label, whose = (None if place is None else row[place] for place in (y, person))
            yield record_of(reference, default if identity is None else row[identity], label, *content(row[x]), whose)

    def _rows(self) -> Iterator[list[str] | str]:
        """Yield the rows that are not blank, and for one that is damaged the reason why it is left out.

        What belongs to a row is as the lenient reader says. A strict one, or one with a limit, stops within a damaged
        row and takes the lines that remain of it for other rows.
        """
        delimiter = _DELIMITERS.get(self._path.suffix.lower(), ",")
        with self._path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            lines = _CsvLines(file, delimiter)
            for row in _without_limit(csv.reader(lines, delimiter=delimiter)):
                damage = lines.end_row()
                if row:
                    yield damage or row


def _without_limit(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows of a CSV reader, however long their fields are.

    The limit is one of the whole process. It is as it was whenever other code runs.
    """
    while True:
        before = csv.field_size_limit(_LARGEST_LONG)
        try:
            row = next(rows)
        except StopIteration:
            return
        finally:
            csv.field_size_limit(before)
        yield row


class _CsvLines:
    """The lines of a CSV file for its reader, with a memory for those of one row.

    The reader asks for another line of a row only where a quote is open. So if a row is too long already, the lines
    that are left of it need not be read: one that closes the quote stands for them.
    """

    def __init__(self, file: Iterable[str], delimiter: str) -> None:
        self._file = file
        self._delimiter = delimiter
        self._row = io.StringIO(newline="")
        self._length = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            if self._length <= MOST_TEXT_BYTES:
                self._row.write(line)
                self._length += len(line.rstrip("\r\n")) + 1  # the same where the file ends without a line break
                yield line
            elif '"' in line and self._closes_row(line):
                yield '"'

    def end_row(self) -> str | None:
        """Forget the row that was read; return what is wrong with it."""
        row, length = self._row, self._length
        self._row, self._length = io.StringIO(newline=""), 0
        if length > MOST_TEXT_BYTES:
            return "its row is too long"
        try:
            if '"' in row.getvalue():
                row.seek(0)
                next(csv.reader(row, delimiter=self._delimiter, strict=True))
        except csv.Error:
            return "its row has a misplaced or open quote"
        return None

    def _closes_row(self, line: str) -> bool:
        """Tell whether a quote that is open before a line is open no more after it: else the reader wants another."""
        reader = csv.reader([f'"{line}', '"'], delimiter=self._delimiter)
        next(reader)
        return reader.line_num == 1


@dataclass
class CsvTexts(Source):
    """Texts in a column of a CSV file with a header; a ``.tsv`` file has tabs for commas."""

    path: Path
    columns: Columns

    modality = "text"

    def __post_init__(self) -> None:
        self._rows = CsvRows(self.path, self.columns)
        self.label_type, self.person_type = self._rows.label_type, self._rows.person_type
        self.unique_ids = self._rows.columns.id is None
        self.parameters: dict[str, Any] = {"kind": "csv", **self._rows.columns.parameters}

    def __iter__(self) -> Iterator[Record]:
        return self._rows.records(lambda text: (lambda: text, text))


@dataclass
class JsonTexts(Source):
    """Texts in a file with one JSON object a line.

    Names of columns are fixed or given, never looked for in the lines: one record could else rename them for all.
    """

    path: Path
    columns: Columns

    modality = "text"
    label_type = pa.string()

    def __post_init__(self) -> None:
        named = replace(self.columns, x=self.columns.x or "text", y=self.columns.y or "label")
        self.columns = named.with_ids_apart(self.path)
        self.person_type = None if self.columns.person is None else pa.string()
        self.unique_ids = self.columns.id is None
        self.parameters: dict[str, Any] = {"kind": "jsonl", **self.columns.parameters}

    def __iter__(self) -> Iterator[Record]:
        x, y, key = self.columns.x, self.columns.y, self.columns.id
        for number, entry in enumerate(self._objects()):
            reference = f"row {number}"
            if entry is None:
                yield unusable(reference, "its line is not a JSON object in UTF-8")
                continue
            label = entry.get(str(y))
            label = str(label) if type(label) is int else label
            try:
                person = self._person(entry)
            except Unusable as reason:
                yield unusable(reference, str(reason))
                continue
            identity = number if key is None else entry.get(key)
            yield record_of(reference, identity, label, *_text_in(entry.get(str(x))), person)

    def _person(self, entry: dict[str, Any]) -> str | None:
        if self.columns.person is None:
            return None
        # With a name that no line has, each record would else be a person of its own.
        if self.columns.person not in entry:
            raise Unusable("it has no field for the id of its person")
        return _person_id(entry[self.columns.person])

    def _objects(self) -> Iterator[dict[str, Any] | None]:
        for line in _lines(self.path):
            if line.strip():
                yield _object(line)


@dataclass
class TextLines(Source):
    """A text a line, blank ones too; their labels, if any, are the lines of a second file."""

    path: Path
    labels: Path | None

    modality = "text"
    unique_ids = True

    def __post_init__(self) -> None:
        self.label_type = None if self.labels is None else pa.string()
        self.parameters: dict[str, Any] = {"kind": "text", "labels": self.labels is not None}
        if self.labels is not None and _length(self.path) != _length(self.labels):
            raise InputError(f"{self.labels} must have one line for each line of {self.path}; the numbers differ.")

    def __iter__(self) -> Iterator[Record]:
        labels: Iterable[bytes | None] = repeat(None) if self.labels is None else _lines(self.labels)
        for number, (line, label) in enumerate(zip(_lines(self.path), labels, strict=False)):
            yield record_of(f"line {number}", number, label, *_text_in(line))


def _length(path: Path) -> int:
    return sum(1 for _ in _lines(path))


def _text_in(value: Any) -> tuple[Callable[[], Payload], Version]:
    def load() -> Payload:
        if not isinstance(value, str | bytes):
            raise Unusable("it has no text")
        return value

    return load, value if isinstance(value, str | bytes) else None


def _person_id(value: Any) -> str | None:
    if value is None or value != value:
        return None
    if type(value) is float and value.is_integer():  # as tables hold whole numbers beside a missing one
        value = int(value)
    if type(value) in (str, int):
        return str(value)
    raise Unusable("its person id is neither a text nor a whole number")


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, those that are too long cut, but too long still."""
    most = len(codecs.BOM_UTF8) + MOST_TEXT_BYTES + len(b"\r\n")
    with path.open("rb") as file:
        while line := file.readline(most):
            yield line.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
            while line and not line.endswith(b"\n"):
                line = file.readline(most)
