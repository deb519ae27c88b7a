"""Texts in files of lines: CSV, JSON lines, and a text a line.

How a file falls into records is its own format: in CSV a quote that is never closed
takes all that follows into one record, which is then skipped. In the other two a byte
order mark may begin any line, as where files were joined. Rows count from 1 without the
header, and lines from 1, blank ones included, as spreadsheets and editors show them.
Its encoding is the file's too, and not a record's: bytes that are none of it stop
whoever opens the file.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from dppl._utils.outside import parse_any
from dppl.errors import InputError, ParameterError
from dppl.io.records.decoding import MOST_TEXT_BYTES
from dppl.io.records.labels import SEPARATOR
from dppl.io.records.record import (
    TEXTS,
    BadRecord,
    Columns,
    Content,
    EmptySource,
    Header,
    Payload,
    Record,
    Source,
    TextRows,
    as_row,
    as_text,
    bad_record,
    exact,
    make_record,
    no_header,
    person_of,
    resolve_columns,
    taken,
)
from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason

_UTF_8 = "utf-8"
_MARK = "\ufeff"
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_DELIMITERS = (",", ";", "\t", "|")
_DECLARATION = re.compile(r'"?sep=([^\w\s"]|\t)"?', re.IGNORECASE)
_LONGEST_DECLARATION = 16
_CHARACTERS = 1 << 20  # that are read at once
_LARGEST_LONG = (1 << 8 * struct.calcsize("l") - 1) - 1  # of the platform's C


def suffix_of(path: Path) -> str:
    """Return the suffix that says what a file holds: of one that gzip packed, what comes before ``.gz``."""
    return (path.with_suffix("") if _is_packed(path) else path).suffix.lower()


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


@dataclass(frozen=True, slots=True)
class Form:
    """How a file of lines is written: None is UTF-8, or UTF-16 where it begins with its byte order mark.

    `header` is the number of the row that names the columns; None finds it.
    """

    encoding: str | None = None
    header: int | None = None

    def __post_init__(self) -> None:
        try:
            # Python's own test, which also refuses codecs that are none of texts.
            io.TextIOWrapper(io.BytesIO(), encoding=self.encoding or _UTF_8)
        except (LookupError, ValueError):
            raise ParameterError(
                f"must be an encoding of texts that Python knows, such as utf-8, cp1252 or utf-16; got "
                f"{self.encoding!r}.",
                parameter="encoding",
            ) from None

    @property
    def parameters(self) -> dict[str, Any]:
        """What is named, as a table keeps it."""
        return {name: value for name, value in asdict(self).items() if value}

    @contextmanager
    def opened(self, path: Path, newline: str = "") -> Iterator[TextIO]:
        """Open a file; a byte order mark of UTF-8 is left to whoever reads."""
        encoding = codecs.lookup(self.encoding or _UTF_8).name
        unpacked: Any = gzip.open if _is_packed(path) else open
        try:
            if self.encoding is None:
                with unpacked(path, "rb") as marked:
                    encoding = _MARKS.get(marked.read(2), _UTF_8)
            with unpacked(path, "rt", encoding=encoding, newline=newline) as file:
                yield file
        except (
            GeneratorExit
        ):  # whose reader was left open may come so late that the names below are gone
            raise
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise InputError(
                f"{path} must be a whole file of gzip; it is damaged or none; unpack or copy it again."
            ) from None
        except UnicodeError:
            raise InputError(
                f"must name the encoding of {path}, which is not {encoding}. Spreadsheets in Western Europe write "
                "cp1252; if texts show odd characters under that, mend the file, or save it again as UTF-8.",
                parameter="encoding",
            ) from None

    def check(self, path: Path) -> None:
        """Read a file to its end, to see that it is in this encoding."""
        with self.opened(path) as file:
            while file.read(_CHARACTERS):
                pass


class CsvTexts(TextRows):
    """Texts in a column of a CSV file with a header, whose usual names need not be given; ``.tsv`` has tabs."""

    _kind = "csv"
    _usual: Sequence[str] = TEXTS

    def __init__(self, path: Path, columns: Columns, form: Form) -> None:
        self._path = path
        self._form = form
        form.check(path)
        self._delimiter, self._header = read_header(path, form, columns, self._usual)
        self._names = self._header.names
        resolved = resolve_columns(
            columns, self._names, path, self._usual, self._header
        )
        super().__init__(resolved, kind=self._kind, **form.parameters)

    def __iter__(self) -> Iterator[Record]:
        places = self._places(self._names)
        for number, row in self._unread():
            if isinstance(row, Term):
                yield bad_record(f"row {number}", row)
            elif len(row) != len(self._names):
                reason = Term(
                    SkipReason.OTHER_WIDTH,
                    n_cells=len(row),
                    n_columns=len(self._names),
                )
                yield bad_record(f"row {number}", reason)
            else:
                fields = {role: taken(row, place) for role, place in places.items()}
                yield self._record(number, fields)

    def _unread(self) -> Iterator[tuple[int, list[str] | Term[SkipReason]]]:
        """Yield the rows below the header by their numbers."""
        header = self._header.place
        for place, row in _rows(self._path, self._form, self._delimiter):
            if place > header:
                yield place - header, row


def read_header(
    path: Path, form: Form, columns: Columns, usual: Sequence[str] = ()
) -> tuple[str, Header]:
    """Return the delimiter of a CSV file and its header, which is public and shows both."""
    headers: dict[str, Header] = {}
    first = "\t" if suffix_of(path) == ".tsv" else ","
    with form.opened(path) as file:
        declared = _declared(file.readline(_LONGEST_DECLARATION))
    for delimiter in (first, *_DELIMITERS) if declared is None else (declared,):
        rows = _rows(path, form, delimiter)
        header = Header.found(rows, form.header, columns, usual)
        if header is not None:
            headers[delimiter] = header
    if not headers:
        if form.header is not None:
            raise no_header(path)
        raise EmptySource(f"{path} is empty; its first line must name the columns.")

    # A row that has the columns says more than the number of its cells. Of such rows the
    # first is the header: a record whose text has commas and these names comes later.
    def likely(delimiter: str) -> tuple[int, int, bool, int]:
        header = headers[delimiter]
        width = len(header.names)
        above = header.place if header.match == 2 else 0
        return (header.match, -above, delimiter == first and width > 1, width)

    chosen = max(headers, key=likely)  # of equal ones the first
    return chosen, headers[chosen]


def _declared(line: str) -> str | None:
    """Return the delimiter that the first line of a file names, as Excel writes it; it is no row."""
    match = _DECLARATION.fullmatch(line.removeprefix(_MARK).rstrip("\r\n"))
    return None if match is None else match[1]


def _rows(
    path: Path, form: Form, delimiter: str
) -> Iterator[tuple[int, list[str] | Term[SkipReason]]]:
    """Yield place and cells of the rows that are not blank; of one that is damaged the reason why it is skipped."""
    with form.opened(path) as file:
        lines = _after_declaration(file)
        for place, line in enumerate(lines):
            row: list[str] | Term[SkipReason] | None = _row_in(line, delimiter)
            if row is None:
                # What belongs to a row is as the lenient reader says: a strict one stops
                # within a damaged row, and would take the lines that remain of it for
                # other rows.
                several = _LinesOfRow(chain([line], lines), delimiter)
                reader = csv.reader(several, delimiter=delimiter)
                cells = next(_without_limit(reader))
                row = several.damage() or cells
            if isinstance(row, Term) or not _is_blank(row):
                yield place, row


def _is_blank(row: list[str]) -> bool:
    """Return whether a row is no record: without a cell, or with several that are all empty; "" alone is a text."""
    return len(row) != 1 and not any(row)


def _after_declaration(file: Iterable[str]) -> Iterator[str]:
    """Return the lines of a CSV file from its header on."""
    lines = iter(file)
    for line in lines:
        if _declared(line) is None:
            return chain([line.removeprefix(_MARK)], lines)
        break
    return lines


def _row_in(line: str, delimiter: str) -> list[str] | None:
    """Return the cells of a row that is one line without damage, as most are; None leaves the line to a closer look."""
    if len(line) >= MOST_TEXT_BYTES:
        return None
    if '"' not in line:
        text = line.rstrip("\r\n")
        return text.split(delimiter) if text else []
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:  # a long cell is one, too
        return None


def written_rows(
    file: Iterable[str], delimiter: str
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield place, lines and cells of the rows of an open CSV file that are not blank."""
    lines: list[str] = []

    def kept() -> Iterator[str]:
        for number, line in enumerate(file):
            lines.append(line)
            if number or _declared(line) is None:
                yield line if number else line.removeprefix(_MARK)

    # The reader asks for a line only where a row needs it, so `lines` holds this row
    # and no other.
    for place, row in enumerate(
        _without_limit(csv.reader(kept(), delimiter=delimiter))
    ):
        text = "".join(lines)
        lines.clear()
        if not _is_blank(row):
            yield place, text, row


def _without_limit(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows of a CSV reader, however long; the limit, one of the whole process, is as it was in between."""
    while True:
        before = csv.field_size_limit(_LARGEST_LONG)
        try:
            row = next(rows)
        except StopIteration:
            return
        finally:
            csv.field_size_limit(before)
        yield row


class _LinesOfRow:
    """The lines of one row of a CSV file for its reader, with a memory for them.

    The reader asks for another line only where a quote is open. So if a row is too long
    already, the lines that are left of it need not be read: one that closes the quote
    stands for them.
    """

    def __init__(self, lines: Iterable[str], delimiter: str) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._row = io.StringIO(newline="")
        self._length = 0
        self._n_lines = 0
        self._open = False  # whether the file ends within a quote

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._n_lines += 1
            if self._length <= MOST_TEXT_BYTES:
                self._row.write(line)
                self._length += (
                    len(line.rstrip("\r\n")) + 1
                )  # the same where the file ends without a line break
                yield line
            elif '"' in line:
                # Does the line close the open quote? If not, the reader asks for the
                # next one.
                reader = csv.reader([f'"{line}', '"'], delimiter=self._delimiter)
                next(_without_limit(reader))
                if reader.line_num == 1:
                    yield '"'
        self._open = True

    def damage(self) -> Term[SkipReason] | None:
        """Return what is wrong with the row that was read."""
        # For the owner: these lines may be records, which are lost with this one.
        after = self._n_lines - 1
        if self._open:
            return Term(SkipReason.OPEN_QUOTE, n_lines_after=after)
        if self._length > MOST_TEXT_BYTES:
            return Term(SkipReason.LONG_ROW)
        self._row.seek(0)
        strict = csv.reader(self._row, delimiter=self._delimiter, strict=True)
        try:
            next(_without_limit(strict))
        except csv.Error:
            return Term(SkipReason.MISPLACED_QUOTE, n_lines_after=after)
        return None


class JsonTexts(Source):
    """Texts in a file with one JSON object a line; no line decides the names of columns, which would rename all."""

    label_type = pa.string()

    def __init__(self, path: Path, columns: Columns, form: Form) -> None:
        self._path = path
        self._form = form
        self.modality = "row" if isinstance(columns.x, tuple) else "text"
        # Fixed, where the owner names no others.
        self.columns = replace(columns, x=columns.x or "text", y=columns.y or "label")
        self.person_type = None if columns.person is None else pa.string()
        self.parameters = {
            "kind": "jsonl",
            **self.columns.as_dict(),
            **form.parameters,
        }
        form.check(path)

    def __iter__(self) -> Iterator[Record]:
        x = self.columns.x
        y = str(self.columns.y)
        key = self.columns.id
        for number, line in self._unread():
            entry = None
            try:
                with suppress(ValueError):
                    entry = parse_any(line)
                if not isinstance(entry, dict):
                    raise BadRecord(SkipReason.NO_JSON_OBJECT)
                person = None
                if self.columns.person is not None:
                    person = person_in(entry, self.columns.person)
            except BadRecord as skipped:
                yield bad_record(f"line {number}", skipped.reason)
                continue
            label = entry.get(y)
            # Labels of lines are texts, since one record must not decide their type.
            if isinstance(label, list):
                label = SEPARATOR.join(map(as_text, label))
            elif isinstance(label, int | float):
                label = as_text(label)
            identity = number if key is None else exact(entry.get(key))
            if isinstance(x, tuple):
                content = _held(as_row({name: entry.get(name) for name in x}))
            else:
                content = _text_in(entry.get(str(x)))
            yield make_record(f"line {number}", identity, label, *content, person)

    def _unread(self) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not blank by their numbers."""
        for number, line in enumerate(_lines(self._path, self._form), 1):
            if line.strip():
                yield number, line


def person_in(entry: dict[str, Any], name: str) -> str | None:
    """Return whose record a line is; None where the id is missing."""
    # With a name that no line has, each record would else be a separate person.
    if name not in entry:
        raise BadRecord(SkipReason.PERSON_MISSING)
    return person_of(entry[name])


def written_lines(file: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of an open file of JSON objects that are not blank, as they are written and as they are read."""
    for written in file:
        line = written.removeprefix(_MARK)
        if line.strip():
            yield written, line


class TextLines(Source):
    """A text a line, blank ones too, without labels."""

    modality = "text"
    label_type = None

    def __init__(self, path: Path, form: Form) -> None:
        self._path = path
        self._form = form
        self.parameters = {"kind": "text", **form.parameters}
        form.check(path)

    def __iter__(self) -> Iterator[Record]:
        for number, line in enumerate(_lines(self._path, self._form), 1):
            # As bytes: some encodings can write what no UTF-8 holds.
            yield make_record(
                f"line {number}",
                number,
                None,
                *_text_in(line.encode("utf-8", "surrogatepass")),
            )


def _held(payload: Payload) -> Content:
    return (lambda: payload), payload


def _text_in(value: Any) -> Content:
    """Return how to load a text, and its version; what is none of these says so when it is loaded."""
    if isinstance(value, str | bytes):
        return _held(value)
    return bad_record("", Term(SkipReason.NO_TEXT)).load, None


def _lines(path: Path, form: Form) -> Iterator[str]:
    """Yield the lines of a file, those that are too long cut, but too long still."""
    # A line without an end takes no more memory than the longest that is allowed.
    most = len(_MARK) + MOST_TEXT_BYTES + len("\r\n")
    with form.opened(path, "\n") as file:
        while line := file.readline(most):
            yield line.removeprefix(_MARK).removesuffix("\n").removesuffix("\r")
            while line and not line.endswith("\n"):
                line = file.readline(most)
