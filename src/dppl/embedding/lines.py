"""Texts in files of lines: CSV, JSON lines, and a text a line.

How a file falls into records is its own format: in CSV a quote that is never closed takes all that follows into one
record, which is then left out. In the other two a byte order mark may begin any line, as where files were joined.
Its encoding is the file's too, and not a record's: bytes that are none of it stop whoever opens the file.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any, TextIO

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
from dppl.errors import InputError, ParameterError

__all__ = ["CsvRows", "CsvTexts", "Form", "JsonTexts", "TextLines"]

_UTF_8 = "utf-8"
_MARK = "\ufeff"
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_DELIMITERS = (",", ";", "\t", "|")
_CHARACTERS = 1 << 20  # that are read at once
_LARGEST_LONG = (1 << 8 * struct.calcsize("l") - 1) - 1  # of the platform's C


@dataclass(frozen=True, slots=True)
class Form:
    """How files of lines are written, as far as it is named."""

    # That of all files that are read. None is UTF-8, or UTF-16 where a file begins with its byte order mark.
    encoding: str | None = None
    # One character, or ``"tab"``. None is a comma, or in ``.tsv`` a tab; where the header has none, that of comma,
    # semicolon, tab and bar which cuts it into most columns.
    delimiter: str | None = None

    def __post_init__(self) -> None:
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=self.encoding or _UTF_8)
        except (LookupError, ValueError):
            raise ParameterError(
                f"must be an encoding of texts that Python knows, such as utf-8, cp1252 or utf-16; got "
                f"{self.encoding!r}.",
                parameter="encoding",
            ) from None
        if self.delimiter not in (None, "tab") and (len(self.delimiter) != 1 or self.delimiter in '"\r\n\0'):
            raise ParameterError(
                f"must be one character, such as ; or |, or tab; got {self.delimiter!r}.", parameter="delimiter"
            )

    @property
    def parameters(self) -> dict[str, str]:
        """What is named, as a table keeps it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def encoding_of(self, path: Path) -> str:
        """Return the encoding that is named, or that a byte order mark shows."""
        if self.encoding is not None:
            return codecs.lookup(self.encoding).name
        with path.open("rb") as file:
            return _MARKS.get(file.read(2), _UTF_8)

    def check(self, path: Path) -> None:
        """Read a file to its end, to see that it is in this encoding."""
        with self.opened(path) as file:
            while file.read(_CHARACTERS):
                pass

    @contextmanager
    def opened(self, path: Path, newline: str = "") -> Iterator[TextIO]:
        """Open a file; a byte order mark of UTF-8 is left to whoever reads."""
        encoding = self.encoding_of(path)
        try:
            with path.open(encoding=encoding, newline=newline) as file:
                yield file
        except UnicodeError:
            raise InputError(
                f"must name the encoding of {path}, which is not {encoding}. Spreadsheets in Western Europe write "
                "cp1252; if texts show odd characters under that, mend the file, or save it again as UTF-8.",
                parameter="encoding",
            ) from None

    def found(self, path: Path, delimiter: str | None = None) -> str | None:
        """Say what was found out and is not what everybody expects."""
        said = []
        if self.encoding is None and self.encoding_of(path) != _UTF_8:
            said.append(f"as {self.encoding_of(path)}, by its byte order mark")
        if self.delimiter is None and delimiter not in (None, _usual_delimiter(path)):
            said.append(f"with {delimiter!r} between its columns, by its header")
        return f"{path} is read {' and '.join(said)}" if said else None


def _usual_delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


class CsvRows:
    """Rows of a CSV file with a header, in which columns that are not named are found.

    Where the column `x` holds paths, they serve as references, and as ids where there is no column of ids.
    """

    def __init__(self, path: Path, columns: Columns, form: Form, *, are_paths: bool = False) -> None:
        self._path = path
        self._are_paths = are_paths
        self._form = form
        form.check(path)
        self._delimiter = "\t" if form.delimiter == "tab" else form.delimiter or self._found_delimiter()
        self.found = form.found(path, self._delimiter)
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
            reference = row[x] if self._are_paths else f"row {number}"
            default = row[x] if self._are_paths else number
            label, whose = (None if place is None else row[place] for place in (y, person))
            yield record_of(reference, default if identity is None else row[identity], label, *content(row[x]), whose)

    def _rows(self) -> Iterator[list[str] | str]:
        """Yield the rows that are not blank, and for one that is damaged the reason why it is left out.

        What belongs to a row is as the lenient reader says. A strict one, or one with a limit, stops within a damaged
        row and takes the lines that remain of it for other rows.
        """
        with self._form.opened(self._path) as file:
            lines = _CsvLines(_without_mark(file), self._delimiter)
            for row in _without_limit(csv.reader(lines, delimiter=self._delimiter)):
                damage = lines.end_row()
                if row:
                    yield damage or row

    def _found_delimiter(self) -> str:
        """Return the delimiter that the header shows, which is public: no record decides it."""
        usual, widths = _usual_delimiter(self._path), {}
        for self._delimiter in (usual, *_DELIMITERS):  # of equal ones the first is taken
            header = next(self._rows(), "")
            widths[self._delimiter] = len(header) if isinstance(header, list) else 0
        return usual if widths[usual] > 1 else max(widths, key=widths.__getitem__)


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a file, without the byte order mark that it may begin with."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix(_MARK)


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
                next(_without_limit(csv.reader(row, delimiter=self._delimiter, strict=True)))
        except csv.Error:
            return "its row has a misplaced or open quote"
        return None

    def _closes_row(self, line: str) -> bool:
        """Tell whether a quote that is open before a line is open no more after it: else the reader wants another."""
        reader = csv.reader([f'"{line}', '"'], delimiter=self._delimiter)
        next(_without_limit(reader))
        return reader.line_num == 1


@dataclass
class CsvTexts(Source):
    """Texts in a column of a CSV file with a header; a ``.tsv`` file has tabs for commas."""

    path: Path
    columns: Columns
    form: Form

    modality = "text"

    def __post_init__(self) -> None:
        self._rows = CsvRows(self.path, self.columns, self.form)
        self.label_type, self.person_type = self._rows.label_type, self._rows.person_type
        self.parameters: dict[str, Any] = {"kind": "csv", **self._rows.columns.parameters, **self.form.parameters}
        self.found = self._rows.found

    def __iter__(self) -> Iterator[Record]:
        return self._rows.records(lambda text: (lambda: text, text))


@dataclass
class JsonTexts(Source):
    """Texts in a file with one JSON object a line.

    Names of columns are fixed or given, never looked for in the lines: one record could else rename them for all.
    """

    path: Path
    columns: Columns
    form: Form

    modality = "text"
    label_type = pa.string()

    def __post_init__(self) -> None:
        named = replace(self.columns, x=self.columns.x or "text", y=self.columns.y or "label")
        self.columns = named.with_ids_apart(self.path)
        self.person_type = None if self.columns.person is None else pa.string()
        self.parameters: dict[str, Any] = {"kind": "jsonl", **self.columns.parameters, **self.form.parameters}
        self.form.check(self.path)
        self.found = self.form.found(self.path)

    def __iter__(self) -> Iterator[Record]:
        x, y, key = self.columns.x, self.columns.y, self.columns.id
        for number, entry in enumerate(self._objects()):
            reference = f"row {number}"
            if entry is None:
                yield unusable(reference, "its line is not a JSON object")
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
        for line in _lines(self.path, self.form):
            if line.strip():
                yield _object(line)


@dataclass
class TextLines(Source):
    """A text a line, blank ones too; their labels, if any, are the lines of a second file."""

    path: Path
    labels: Path | None
    form: Form

    modality = "text"

    def __post_init__(self) -> None:
        self.label_type = None if self.labels is None else pa.string()
        has_labels = self.labels is not None
        self.parameters: dict[str, Any] = {"kind": "text", "labels": has_labels, **self.form.parameters}
        for path in filter(None, (self.path, self.labels)):
            self.form.check(path)
        self.found = self.form.found(self.path)
        if self.labels is not None and self._length(self.path) != self._length(self.labels):
            raise InputError(f"{self.labels} must have one line for each line of {self.path}; the numbers differ.")

    def __iter__(self) -> Iterator[Record]:
        labels: Iterable[str | None] = repeat(None) if self.labels is None else _lines(self.labels, self.form)
        for number, (line, label) in enumerate(zip(_lines(self.path, self.form), labels, strict=False)):
            # In bytes, as tables of before know them.
            yield record_of(f"line {number}", number, label, *_text_in(line.encode("utf-8", "surrogatepass")))

    def _length(self, path: Path) -> int:
        return sum(1 for _ in _lines(path, self.form))


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


def _object(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _lines(path: Path, form: Form) -> Iterator[str]:
    """Yield the lines of a file, those that are too long cut, but too long still."""
    most = len(_MARK) + MOST_TEXT_BYTES + len("\r\n")
    with form.opened(path, "\n") as file:
        while line := file.readline(most):
            yield line.removeprefix(_MARK).removesuffix("\n").removesuffix("\r")
            while line and not line.endswith("\n"):
                line = file.readline(most)
