"""Rows whose cells have types: sheets of workbooks, and what a query selects. A cell becomes the text that it shows.

A whole number has no fraction (1.0 is "1"), a truth value is TRUE or FALSE, and a date
is as ISO 8601 writes it. An empty cell is an empty text; so is one with an error such
as #N/A, and a formula that no program has computed yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from hashlib import sha256
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple
from urllib.parse import quote
from weakref import finalize

from dppl._utils.optional import how_to_install, optional
from dppl._utils.outside import parse_any
from dppl.errors import InputError, MissingExtra, ParameterError
from dppl.io.records.labels import converting, listed
from dppl.io.records.record import (
    TEXTS,
    Columns,
    Header,
    Record,
    TextRows,
    as_text,
    bad_record,
    no_header,
    resolve_columns,
    taken,
)
from dppl.io.records.urls import is_url
from dppl.kernel.privacy.terms import Term
from dppl.reasons import SkipReason

WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
DATABASES = {
    ".duckdb": "duckdb",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
}
_AT_ONCE = 1024  # rows that are fetched
# Types of databases. Others are texts as they show them.
_NO_TEXT = r"^(blob|bytea|.*binary|bit\b|struct|map|union|list)|\]$"
_NO_ID = r"^(float|double|real|bool|time|interval|(decimal|numeric)\(\d+, ?[1-9])"
_NO_TEXTS = re.compile(_NO_TEXT, re.IGNORECASE)
_NO_IDS = re.compile(f"{_NO_ID}|{_NO_TEXT}", re.IGNORECASE)
# Not within a text, a quoted name or a comment.
_ORDERED = re.compile(
    r"""(?:[^'"-]|'[^']*'|"[^"]*"|-(?!-)|--.*+)*?\border\s+by\b""", re.IGNORECASE
)


def as_id(cell: Any) -> str | float:
    """Return the text that a cell with the id of a person shows; what is no id stays what it is, for `person_of`."""
    if isinstance(cell, Decimal) and cell != cell.to_integral_value():
        return float(cell)
    if isinstance(cell, float | bool):
        return cell
    return as_text(cell)


def _as_texts(cells: Any) -> Any:
    if isinstance(cells, dict):
        return {name: as_text(cell) for name, cell in cells.items()}
    return as_text(cells)


def _fields(row: list[Any], places: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of a row by what they are for."""
    fields: dict[str, Any] = {}
    for role, place in places.items():
        read = as_id if role == "person" else _as_texts
        fields[role] = read(taken(row, place))
    return fields


class SheetTexts(TextRows):
    """Texts in a column of a sheet, below the row that names the columns; hidden rows count, too."""

    def __init__(
        self, path: Path, columns: Columns, sheet: str | None, header: int | None
    ) -> None:
        self._sheet, self._header = _open_sheet(path, sheet, header, columns, TEXTS)
        resolved = resolve_columns(
            columns, self._header.names, path, TEXTS, self._header
        )
        form = {"sheet": sheet, "header": header}
        named = {name: value for name, value in form.items() if value is not None}
        super().__init__(resolved, kind="excel", **named)

    def __iter__(self) -> Iterator[Record]:
        places = self._places(self._header.names)
        header = self._header.place
        for place, row in _filled(self._sheet):
            if place <= header:
                continue
            if row is None:
                reason = Term(SkipReason.UNREADABLE_CELL)
                yield bad_record(f"row {place - header}", reason)
            else:
                yield self._record(place - header, _fields(row, places))


def read_sheet(
    path: Path, sheet: str | None, number: int | None, columns: Columns
) -> tuple[Header, Iterator[list[str]]]:
    """Return the header of a sheet, as `Header.found` has it, and the rows below that are not blank, as texts."""
    opened, header = _open_sheet(path, sheet, number, columns)

    def below() -> Iterator[list[str]]:
        # A space, because a record that cannot be used is not a blank row, which is none.
        unreadable = [" ", *[""] * (len(header.names) - 1)]
        for place, row in _filled(opened):
            # What stands above the header is titles.
            if place > header.place:
                yield unreadable if row is None else _texts(row)

    return header, below()


def _texts(row: list[Any] | None) -> list[str]:
    return [as_text(cell) for cell in row or ()]


def _open_sheet(
    path: Path,
    sheet: str | None,
    number: int | None,
    columns: Columns,
    usual: Sequence[str] = (),
) -> tuple[Any, Header]:
    """Open a sheet of cells, by default the first that is not hidden, and find its header; charts have no cells."""
    calamine = optional("python_calamine", "python-calamine", "excel")
    with converting(
        f"{path} must be a workbook that can be read",
        "save it again, without a password",
    ):
        book = calamine.load_workbook(path)
        with_cells = [
            one
            for one in book.sheets_metadata
            if one.typ == calamine.SheetTypeEnum.WorkSheet
        ]
        names = [one.name for one in with_cells]
        shown = [
            one.name
            for one in with_cells
            if one.visible == calamine.SheetVisibleEnum.Visible
        ]
        if sheet is None:
            name = next(iter(shown), None)
        else:
            name = sheet
        opened = None
        if name in names:
            opened = book.get_sheet_by_name(name)
    if opened is None:
        there = f"got {sheet!r}; there are {listed(names)}"
        if sheet is None:
            there = f"all that have cells are hidden; there are {listed(names)}"
        raise InputError(f"must be a sheet of {path}; {there}.", parameter="sheet")
    _, first = next(_filled(opened), (0, None))
    if first is None:
        raise InputError(
            f"sheet {name!r} of {path} is empty; a row of it must name the columns. "
            f"Or name another of {listed(names)}."
        )
    rows = ((place, _texts(row)) for place, row in _filled(opened))
    header = Header.found(rows, number, columns, usual)
    if header is None:
        raise no_header(path)
    # Whoever named no sheet may have meant another.
    others = tuple(one for one in shown if sheet is None and one != name)
    return opened, header._replace(others=others)


def _filled(sheet: Any) -> Iterator[tuple[int, list[Any] | None]]:
    """Yield place and cells of the rows that are not blank, as a blank line of a CSV file is none either.

    None stands for the cells of a row with a cell that cannot be read, such as a time
    of a billion days.
    """
    rows = sheet.iter_rows()
    for place in range(sheet.total_height + 1):
        try:
            row = next(rows, None)
        except BaseException as error:
            # What the reader's own language raises is no Exception.
            if (
                not isinstance(error, Exception)
                and type(error).__name__ != "PanicException"
            ):
                raise
            yield place, None
            continue
        if row is None:
            return
        if any(as_text(cell) for cell in row):
            yield place, row


class QueryTexts(TextRows):
    """Texts in a column of what a query selects. It is asked once: the rows are kept in a file without a name.

    Whoever reads them twice gets the same ones in the same order, whatever happens in
    the database meanwhile.
    """

    def __init__(self, sql: str, database: str, columns: Columns) -> None:
        if columns.id is None and not _ORDERED.match(sql):
            raise ParameterError(
                "must say in which order the rows come, so that an interrupted run can continue: add ORDER BY, or name "
                "a column of ids.",
                parameter="sql",
            )
        rows = _asked(sql, database)
        header = next(rows)
        names = [one.name for one in header]
        resolved = resolve_columns(columns, names, Path("the query"), TEXTS)
        _check_types(resolved, header)
        # Neither the database, whose URL may hold a password, nor the query, which may
        # hold a value, is kept.
        super().__init__(resolved, kind="sql", query=sha256(sql.encode()).hexdigest())
        places = self._places(names)
        self._file = TemporaryFile()  # noqa: SIM115, because it is open as long as the source is
        finalize(self, self._file.close)
        # To write and read rows one by one takes longer than to fetch them.
        while some := [_fields(row, places) for row in islice(rows, _AT_ONCE)]:
            self._file.write(json.dumps(some).encode() + b"\n")

    def __iter__(self) -> Iterator[Record]:
        number = place = 0
        while True:
            self._file.seek(place)  # two may read at the same time
            if not (line := self._file.readline()):
                return
            place = place + len(line)
            for fields in parse_any(line):
                number = number + 1
                yield self._record(number, fields)


def place_of(database: str) -> Path:
    """Return the file of a database, or a name for it that messages may show."""
    kind, path = _parsed(database)
    return Path("the database" if kind is None else path)


class _Column(NamedTuple):
    """A column that a query selects."""

    name: str
    kind: str | None  # its type as the database calls it, where the database has types


def _check_types(columns: Columns, header: list[_Column]) -> None:
    """Refuse columns of types that no text, label or id has; the types are the query's, and no record's."""
    for role, name in columns.roles():
        kind = next((one.kind for one in header if one.name == name), None)
        is_id = role in ("id", "person")
        if kind and (_NO_IDS if is_id else _NO_TEXTS).search(kind):
            shown = kind.partition("'")[0]
            raise InputError(
                f"must name a column of the query with {'ids' if is_id else 'texts'}; {name!r} holds {shown}; cast it "
                "in the query to text, or whole numbers to an integer.",
                parameter=role,
            )


def select(sql: str, database: str) -> Iterator[list[str]]:
    """Yield the names of the columns that a query selects, then its rows as texts."""
    rows = _asked(sql, database)
    yield [one.name for one in next(rows)]
    for row in rows:
        yield [as_text(cell) for cell in row]


def _asked(sql: str, database: str) -> Iterator[Any]:
    """Yield the columns that a query selects, then its rows of cells; no error quotes the database's."""
    shown = place_of(database)
    rows = _answers(sql, database)
    while True:
        failure = ""
        try:
            row = next(rows, None)
        except (InputError, MissingExtra, FileNotFoundError):
            raise
        except (
            Exception
        ) as error:  # its text may quote the password, the query or a value
            failure = type(error).__name__
        # Raised out of the handler, so that nothing of the error stays attached.
        if failure:
            raise InputError(
                f"must be a query that {shown} answers with rows; got {failure}. Try both in a client of the database.",
                parameter="sql",
            )
        if row is None:
            return
        yield row


def _answers(sql: str, database: str) -> Iterator[Any]:
    """Yield what a database answers: its columns, then rows. Nothing is committed."""
    kind, path = _parsed(database)
    if kind is not None and path != ":memory:" and not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}.")  # both would make one
    if kind == "duckdb":
        duckdb = optional("duckdb", "duckdb", "duckdb")
        with duckdb.connect(path, read_only=path != ":memory:") as connection:
            cursor = connection.execute(sql)
            yield [_Column(name, str(kind)) for name, kind, *_ in cursor.description]
            while rows := cursor.fetchmany(_AT_ONCE):
                yield from rows
        return
    import sqlalchemy as sa  # here, because it takes long to import

    if kind is not None:
        database = f"sqlite:///file:{quote(path)}?mode=ro&uri=true"
    url = sa.make_url(database)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    try:
        engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True)
    except ModuleNotFoundError:
        engine = None
    if engine is None:
        package = "a driver; install the package that SQLAlchemy names for it"
        if url.drivername.startswith("postgresql"):
            package = f"psycopg; install it {how_to_install('postgresql')}"
        raise MissingExtra(f"{url.drivername}:// needs {package}")
    with engine.connect() as connection:
        _show_odd_cells(connection.connection.driver_connection, url.drivername)
        # Without parameters "%" and ":" mean what they mean to the database.
        answer = connection.execution_options(
            stream_results=True, no_parameters=True
        ).exec_driver_sql(sql)
        described = answer.cursor.description
        kinds = [getattr(one, "type_display", None) for one in described]
        yield [*map(_Column, answer.keys(), kinds)]
        for rows in answer.partitions(_AT_ONCE):
            yield from rows


def _show_odd_cells(connection: Any, driver: str) -> None:
    """Let a driver return as text what it would stop at, such as bytes that are no UTF-8, or an infinite date."""
    if driver.startswith("sqlite"):
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    if driver == "postgresql+psycopg":
        psycopg: Any = import_module("psycopg")

        def loader_of(kind: str) -> type[Any]:
            own = connection.adapters.get_loader(
                connection.adapters.types[kind].oid, psycopg.pq.Format.TEXT
            )

            class Shown(psycopg.adapt.Loader):  # type: ignore[misc]
                def load(self, data: Any) -> Any:
                    try:
                        return own(self.oid, self.connection).load(data)
                    except psycopg.DataError:
                        return bytes(data).decode()

            return Shown

        for kind in ("date", "time", "timetz", "timestamp", "timestamptz", "interval"):
            connection.adapters.register_loader(kind, loader_of(kind))


def _parsed(database: str) -> tuple[str | None, str]:
    """Return the kind and path of a database that is a file, or None and its URL."""
    scheme, _, rest = database.partition(":///")
    if scheme in ("duckdb", "sqlite"):
        return scheme, rest.partition("?")[0]
    if is_url(database):
        return None, database
    if kind := DATABASES.get(Path(database).suffix.lower()):
        return kind, database
    raise ParameterError(
        f"a database must be a URL of SQLAlchemy, or a file that ends in {', '.join(DATABASES)}."
    )
