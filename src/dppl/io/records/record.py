"""Sources of records: one after the other, each with a way to load it, or with a reason why it is skipped."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from decimal import Context, Decimal
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import pyarrow as pa

from dppl._utils.validate import closest
from dppl.errors import Argument, InputError
from dppl.io.records.labels import listed
from dppl.kernel.persons import id_text
from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason

Payload: TypeAlias = bytes | str | Mapping[str, str]
Version: TypeAlias = Payload | None
Label: TypeAlias = str | int | None
Content: TypeAlias = tuple[
    Callable[[], Payload], Version
]  # a way to load it, and what differs where it does
PersonId: TypeAlias = str | bytes | int | None

_LARGEST_INTEGER = 2**63 - 1
_FIRST_INEXACT = 2**53  # its float is also the next integer's
_ALL_DIGITS = Context(prec=80, traps=[])  # of a decimal in any column of Arrow
# Usual names of columns.
TEXTS = ("text", "sentence")
CONTENTS = (*TEXTS, "image", "bytes")
PATHS = ("file", "file_name", "filename", "path", "image")
LABELS = ("label", "labels", "y")
_NO_VALUES = LABELS[:2]  # that name a column wherever they stand; "y" may mean yes
_SEARCHED = 50  # rows, of which one may be the header


class BadRecord(Exception):
    """A record that is skipped, with the reason for its owner."""

    def __init__(self, code: SkipReason, **values: Any) -> None:
        super().__init__(code)
        self.reason = Term(code, **values)


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """One record, not loaded yet."""

    id: str | None  # None where it cannot be read; such a record is skipped
    reference: (
        str  # where it lies in the source: a path, or a row or line counted from 1
    )
    label: Label  # None where it is missing
    load: Callable[
        [], Payload
    ]  # returns the bytes of an image, a text as str or bytes, or the cells of a row as texts; raises `BadRecord`
    version: Version  # differs where contents do, without loading them: a text, a `file_version`, why it is skipped
    person: PersonId = None  # whose record it is, which is another thing than `id`; None where it is missing


def make_record(
    reference: str,
    identity: Any,
    label: Any,
    load: Callable[[], Payload],
    version: Version,
    person: PersonId = None,
) -> Record:
    """Return the record with these ids and this label, or one that is skipped where they are none."""
    try:
        # Bytes and integers are ids of persons as they are; texts must be such.
        if isinstance(person, str):
            _text(person, SkipReason.PERSON_NO_TEXT, SkipReason.PERSON_NOT_UTF8)
        is_number = isinstance(identity, int) and not isinstance(identity, bool)
        if is_number:
            name = str(identity)
        else:
            name = _text(identity, SkipReason.ID_NO_TEXT, SkipReason.ID_NOT_UTF8)
        if not name:
            raise BadRecord(SkipReason.ID_EMPTY)
        if isinstance(label, int) and not isinstance(label, bool):
            # The table holds int64; a larger label is as good as missing.
            if abs(label) > _LARGEST_INTEGER:
                label = None
        elif label is not None:
            text = _text(label, SkipReason.LABEL_NO_TEXT, SkipReason.LABEL_NOT_UTF8)
            label = text.strip() or None
        return Record(name, reference, label, load, version, person)
    except BadRecord as skipped:
        return bad_record(reference, skipped.reason)


def rejected(record: Record, reason: Term[SkipReason]) -> Record:
    """Return a record that gives `reason` when it is loaded."""
    without = bad_record(record.reference, reason)
    return replace(record, load=without.load, version=without.version)


def bad_record(reference: str, reason: Term[SkipReason]) -> Record:
    """Return a record of which nothing but its place is known, and that gives `reason` when it is loaded."""

    def load() -> NoReturn:
        raise BadRecord(reason.code, **dict(reason.values))

    return Record(None, reference, None, load, str(reason.to_dict()))


def file_version(file: str | os.PathLike[str]) -> str:
    """Return what changes when a file is rewritten: size and time, which file systems keep."""
    state = os.stat(file)
    return f"{state.st_size} {state.st_mtime_ns}"


def exact(value: Any) -> Any:
    """Return a float that is certainly an integer as that, as files hold integers where one is missing."""
    is_whole = type(value) is float and value.is_integer()
    if is_whole and abs(value) < _FIRST_INEXACT:
        return int(value)
    return value


def person_of(value: Any) -> str | None:
    """Return the id of a person in a cell or field that has a type, as text; None for a missing one."""
    value = exact(value)
    if type(value) is float and value.is_integer():
        raise BadRecord(SkipReason.PERSON_INEXACT)
    with suppress(Exception):
        if isinstance(value, str):
            return value
        return id_text(value)
    raise BadRecord(SkipReason.PERSON_NO_TEXT)


def as_text(cell: Any) -> str:
    """Return the text that a cell shows."""
    if type(cell) is str:  # as nearly all are
        return cell
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, float | Decimal):
        if math.isfinite(cell) and cell == int(cell):
            return str(int(cell))
        return str(cell)
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    if isinstance(cell, timedelta):
        # As Python writes it: a column of pandas has other ones if all cells are such.
        return str(timedelta(cell.days, cell.seconds, cell.microseconds))
    if isinstance(cell, bytes | bytearray | memoryview):
        # What is no UTF-8 stays known as such, and the record is skipped.
        return bytes(cell).decode("utf-8", "surrogateescape")
    return str(cell)


def taken(row: Sequence[Any], place: int | Mapping[str, int]) -> Any:
    """Return the cell at a place of a row, or the cells at several by name."""
    if isinstance(place, int):
        return row[place]
    return {name: row[one] for name, one in place.items()}


def as_row(cells: Mapping[str, Any]) -> dict[str, str]:
    """Return what a record of several columns holds: the text of each cell."""
    return dict(zip(cells, as_cells(cells.values()), strict=True))


def as_cells(cells: Iterable[Any]) -> list[str]:
    """Return the texts of cells."""
    return [cell if type(cell) is str else _shown(cell) for cell in cells]


def _shown(cell: Any) -> str:
    """Return the text of a cell of any type: an odd one must not stop what is made of the others."""
    # A frame makes floats of integers where another record has none, and complex numbers
    # where it has one, so what these cannot tell apart must not differ here either.
    if isinstance(cell, complex) and not cell.imag:
        cell = cell.real
    # Decimals of a column have as many digits as the longest.
    if isinstance(cell, Decimal):
        cell = _ALL_DIGITS.normalize(cell)
    # Intervals of pandas end in floats where any of the column does.
    if hasattr(cell, "closed_left"):
        text = str(cell)
        return f"{text[0]}{_shown(cell.left)}, {_shown(cell.right)}{text[-1]}"
    if type(cell) is int and abs(cell) > _FIRST_INEXACT:
        try:
            cell = float(cell)
        except OverflowError:
            return "inf" if cell > 0 else "-inf"
    try:
        return as_text(cell)
    except (TypeError, ValueError):  # pandas' NA, and arrays, are not equal or unequal
        return str(cell)


def _text(value: Any, no_text: SkipReason, not_utf8: SkipReason) -> str:
    if not isinstance(value, str | bytes):
        raise BadRecord(no_text)
    try:
        # Surrogates stand for bytes that were no UTF-8; encoding refuses them.
        return (value if isinstance(value, bytes) else value.encode()).decode()
    except UnicodeError:
        raise BadRecord(not_utf8) from None


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns with the text or image, the label, the id, and the id of the person whose record it is.

    None takes a usual name, or no ids. Several columns in the place of a text are those
    of a schema (`dppl.encoders.columns`). No fit uses ids of records, so that they may
    repeat.
    """

    x: str | tuple[str, ...] | None = None
    y: str | None = None
    id: str | None = None
    person: str | None = None

    def __post_init__(self) -> None:
        # Labels taken for ids would make all records of a class one person's.
        if self.person is not None and self.person == self.y:
            raise InputError(
                f"must name ids of persons; {self.person!r} holds the labels; name another.",
                parameter="person",
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the names by what they are for, JSON-ready."""
        names = asdict(self)
        return names | {"x": list(self.x)} if isinstance(self.x, tuple) else names

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield each column that is named with what it is for."""
        for role, name in asdict(self).items():
            for one in name if isinstance(name, tuple) else (name,):
                if one is not None:
                    yield role, one


class Header(NamedTuple):
    """The row that names the columns of a file."""

    place: int  # from 0, blank rows included
    names: list[str]
    match: int  # 2 where the owner names the row, or it has all columns; 1 where it has some; else 0
    others: tuple[str, ...] = ()  # sheets that might have been meant

    @classmethod
    def found(
        cls,
        rows: Iterable[tuple[int, Any]],
        number: int | None,
        columns: Columns,
        usual: Sequence[str] = (),
    ) -> Header | None:
        """Find row `number`, or the first row that holds the columns, else some of them, else anything.

        Titles may stand above the header. They are narrower, so below a header that lacks
        the columns no record, which is as wide, is taken for it.
        """
        needed = {name for _, name in columns.roles()}
        best = None
        widest = 0
        for place, cells in rows:
            if place >= (number or _SEARCHED):
                break
            names = cells if isinstance(cells, list) else []
            if number is not None:
                if place == number - 1:
                    return cls(place, names, 2)
                continue
            filled = sum(map(bool, names))
            if best is not None and filled <= widest:
                continue
            widest = filled
            has_content = columns.x or not usual or not {*usual}.isdisjoint(names)
            if needed <= {*names} and has_content:
                return cls(place, names, 2)
            # Further down, a usual name may be what a record says.
            known = needed | {*TEXTS, *_NO_VALUES} if best is None else needed
            match = int(not known.isdisjoint(names))
            if best is None or match > best.match:
                best = cls(place, names, match)
        return best

    @property
    def shown(self) -> tuple[str | Argument, ...]:
        """What messages say of it: a row that may be a record of a file without a header is not quoted."""
        row = self.place + 1
        elsewhere: tuple[str | Argument, ...] = ()
        if self.others:
            elsewhere = (
                f"; other sheets are {listed(self.others)}: add ",
                Argument("sheet", self.others[0]),
            )
        if self.match:
            return (
                f"row {row}, taken as the header, has {listed(self.names)}; if row {row + 1} is, add ",
                Argument("header", row + 1),
                *elsewhere,
            )
        return (
            f"row {row}, taken as the header, has none of the names that are asked for, and is not shown, as it may be "
            f"a record; if it is the header, see its names with ",
            Argument("header", row),
            *elsewhere,
        )


def no_header(path: Path) -> InputError:
    """Return the error about a row that is named as the header, and is blank or not there."""
    return InputError(
        f"must be the number of the row that names the columns, as a spreadsheet counts; {path} has nothing there.",
        parameter="header",
    )


def resolve_columns(
    columns: Columns,
    names: Sequence[str],
    where: Path,
    usual: Sequence[str],
    header: Header | None = None,
) -> Columns:
    """Return columns that are among `names`, usual ones for None; messages show the row of a `header` if they may."""
    # Given names are taken literally.
    x = columns.x or next((name for name in usual if name in names), None)
    taken = x if isinstance(x, tuple) else (x,)
    y = columns.y or next(
        (name for name in LABELS if name in names and name not in taken), None
    )
    has = (f"it has {listed(names)}",) if header is None else header.shown
    if x is None:
        raise InputError(
            f"must name the column of {where} with the text or image; ",
            *has,
            ".",
            parameter="x",
        )
    resolved = replace(columns, x=x, y=y)
    # A label among the columns would be learned by itself.
    if isinstance(x, tuple) and y in x:
        raise InputError(
            f"must hold labels and nothing that predicts them; {y!r} is a column of the schema; name another.",
            parameter="y",
        )
    for parameter, name in resolved.roles():
        if names.count(name) == 1:
            continue
        near = None
        # It is there, more than once, so what else is there does not matter.
        if name in names:
            has = (f"{names.count(name)} columns have this name; rename the others",)
        elif header is None or header.match:
            near = closest(name, names)
        if parameter == "x" and isinstance(x, tuple):
            raise InputError(
                f"{where} must have one column {name!r}, as the schema says; ",
                *has,
                ".",
            )
        if near is not None:
            has = (f"it has {listed(names)}",)
        raise InputError(
            f"must be one column of {where}; got {name!r}; ",
            *has,
            ".",
            parameter=parameter,
            suggestion=near,
        )
    return resolved


class Source(ABC):
    """Records in a fixed order. Iterating loads none of them, so it is fast and takes no memory.

    Attributes
    ----------
    modality : str
        "image" or "text".
    label_type, person_type : pyarrow.DataType or None
        Types of the labels and of the ids of persons, or None if there are none.
    parameters : dict
        What decides which records there are, except for the files themselves;
        JSON-ready.
    again : callable or None
        Opens the same files in another process; None where the records lie in none.
    seeks : bool
        Whether `since` costs less than to read what comes before.
    """

    modality: str
    label_type: pa.DataType | None
    person_type: pa.DataType | None = None
    parameters: dict[str, Any]
    again: Callable[[], Source] | None = None
    seeks: bool = False

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """Yield the records."""

    def since(self, place: int) -> Iterator[Record]:
        """Yield the records from a place on, which counts from 0."""
        return islice(self, place, None)

    def count(self) -> int:
        """Return the number of records, which is private."""
        return sum(1 for _ in self._unread())

    def _unread(self) -> Iterator[Any]:
        """Yield something for each record, without reading it where that takes time."""
        return iter(self)


class EmptySource(InputError):
    """A file or folder that holds nothing, so that it does not say which records it is for."""


class NoRecords(Source):
    """The records of an empty source, of any modality."""

    modality = ""
    label_type = None

    def __init__(self) -> None:
        self.parameters = {}

    def __iter__(self) -> Iterator[Record]:
        return iter(())


class TextRows(Source):
    """Texts, or several cells, in rows of a file or query whose columns have names; labels and ids are texts, too."""

    modality = "text"

    def __init__(self, columns: Columns, **parameters: str | int) -> None:
        self.columns = columns
        if isinstance(columns.x, tuple):
            self.modality = "row"
        self.label_type = None if columns.y is None else pa.string()
        self.person_type = None if columns.person is None else pa.string()
        self.parameters = {**parameters, **columns.as_dict()}

    def _places(self, names: list[str]) -> dict[str, Any]:
        """Return where each column is, by what it is for: x, y, id and person."""
        places: dict[str, Any] = {
            role: names.index(name) for role, name in self.columns.roles()
        }
        if isinstance(self.columns.x, tuple):
            places["x"] = {name: names.index(name) for name in self.columns.x}
        return places

    def _record(self, number: int, fields: dict[str, Any]) -> Record:
        """Return the record in a row, by what its fields are for."""
        text = fields["x"]
        identity = fields.get("id", number)
        person = None
        if self.person_type is not None:
            try:
                person = person_of(fields["person"])
            except BadRecord as skipped:
                return bad_record(f"row {number}", skipped.reason)
        return make_record(
            f"row {number}", identity, fields.get("y"), lambda: text, text, person
        )
