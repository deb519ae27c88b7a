"""Texts in files of lines: CSV, JSON lines, and a text a line.

How a file falls into records is its own format: in CSV a quote that is never closed takes all that follows into one
record, which is then left out.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa

from dppl.embedding.decoding import MOST_TEXT_BYTES
from dppl.embedding.records import PATHS, TEXTS, Columns, Payload, Record, Source, Unusable, left_out, record_of
from dppl.errors import InputError

__all__ = ["CsvRows", "CsvTexts", "JsonTexts", "TextLines"]

_DELIMITERS = {".tsv": "\t"}


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
        # The module's own limit is 128 KiB, and a row beyond it would be read as several.
        csv.field_size_limit(max(csv.field_size_limit(), MOST_TEXT_BYTES))
        header = next(self._rows(), None)
        self._names = header or []
        self.columns = columns.found_in(self._names, path, PATHS if are_paths else TEXTS, secret=True)
        self.label_type = None if self.columns.y is None else pa.string()

    def records(self, loader: Callable[[str], Callable[[], Payload]]) -> Iterator[Record]:
        """Yield the records; `loader` makes the way to load one from what stands in the column `x`."""
        x, y, identity = (
            None if name is None else self._names.index(name)
            for name in (self.columns.x, self.columns.y, self.columns.id)
        )
        assert x is not None
        for number, row in enumerate(islice(self._rows(), 1, None)):
            if row is None or len(row) != len(self._names):
                reason = (
                    "its row has a misplaced or open quote" if row is None else "its row has not the header's length"
                )
                yield left_out(Record(None, f"row {number}", None, bytes), reason)
                continue
            # Surrogates stand for bytes that are no UTF-8.
            reference = row[x].encode("utf-8", "backslashreplace").decode() if self._are_paths else f"row {number}"
            default = row[x] if self._are_paths else number
            label = None if y is None else row[y]
            yield record_of(reference, default if identity is None else row[identity], label, loader(row[x]))

    def _rows(self) -> Iterator[list[str] | None]:
        """Yield the rows that are not blank, and None for one that is damaged."""
        delimiter = _DELIMITERS.get(self._path.suffix.lower(), ",")
        with self._path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            rows = csv.reader(file, delimiter=delimiter, strict=True)
            while True:
                try:
                    row = next(rows, None)
                except csv.Error:
                    yield None
                    continue
                if row is None:
                    return
                if row:
                    yield row


@dataclass
class CsvTexts(Source):
    """Texts in a column of a CSV file with a header; a ``.tsv`` file has tabs for commas."""

    path: Path
    columns: Columns

    modality = "text"

    def __post_init__(self) -> None:
        self._rows = CsvRows(self.path, self.columns)
        self.label_type = self._rows.label_type
        self.unique_ids = self._rows.columns.id is None
        self.parameters: dict[str, Any] = {"kind": "csv", **asdict(self._rows.columns)}

    def __iter__(self) -> Iterator[Record]:
        return self._rows.records(lambda text: lambda: text)


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
        self.columns = Columns(self.columns.x or "text", self.columns.y or "label", self.columns.id)
        self.unique_ids = self.columns.id is None
        self.parameters: dict[str, Any] = {"kind": "jsonl", **asdict(self.columns)}

    def __iter__(self) -> Iterator[Record]:
        x, y, key = self.columns.x, self.columns.y, self.columns.id
        for number, entry in enumerate(self._objects()):
            reference = f"row {number}"
            if entry is None:
                yield left_out(Record(None, reference, None, bytes), "its line is no JSON object in UTF-8")
                continue
            label = entry.get(str(y))
            label = str(label) if type(label) is int else label
            yield record_of(reference, number if key is None else entry.get(key), label, _text_in(entry.get(str(x))))

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
            yield record_of(f"line {number}", number, label, _text_in(line))


def _length(path: Path) -> int:
    return sum(1 for _ in _lines(path))


def _text_in(value: Any) -> Callable[[], Payload]:
    def load() -> Payload:
        if not isinstance(value, str | bytes):
            raise Unusable("it has no text")
        return value

    return load


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, those that are too long cut to one byte more than is allowed."""
    with path.open("rb") as file:
        start = codecs.BOM_UTF8
        while line := file.readline(MOST_TEXT_BYTES + 1):
            yield line.removeprefix(start).rstrip(b"\r\n")
            start = b""
            while line and not line.endswith(b"\n"):
                line = file.readline(MOST_TEXT_BYTES + 1)
