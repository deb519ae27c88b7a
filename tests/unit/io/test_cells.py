"""Workbooks, databases and folders of Parquet are sources as files of lines are: a bad record costs no other."""

import datetime
import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dppl.errors import InputError, MissingExtra, ParameterError
from dppl.io import Columns, open_source, split_file
from dppl.io.records.record import BadRecord
from dppl.io.records.sheets import as_text
from skipped import outcome, said

SECRET = "Jane-Doe-4711"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


def write_sheets(path, **sheets):
    """Write a workbook; a cell that begins with = is a formula, and a pair a formula with its value."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    with xlsxwriter.Workbook(
        path, {"default_date_format": "yyyy-mm-dd", "strings_to_numbers": False}
    ) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                for column, cell in enumerate(row):
                    if isinstance(cell, tuple):
                        sheet.write_formula(number, column, cell[0], None, cell[1])
                    elif isinstance(cell, str):
                        sheet.write_string(number, column, cell)
                    elif cell is not None:
                        sheet.write(number, column, cell)
    return path


def write_database(path, rows, columns="id, text, label, who"):
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(f"create table notes({columns})")
        connection.executemany(
            f"insert into notes values ({', '.join('?' * len(columns.split(',')))})",
            rows,
        )
    connection.close()
    return str(path)


def outcomes(source):
    """Return all that becomes of each record but its number."""
    found = []
    for record in source:
        found.append((*outcome(record), record.person))
    return found


def facts(source):
    return [
        (record.id, record.reference, record.label, record.person) for record in source
    ]


def test_a_cell_is_the_text_that_it_shows():
    day = datetime.datetime(2024, 1, 31)
    for cell, text in (
        *(
            (1.0, "1"),
            (-0.0, "0"),
            (1.5, "1.5"),
            (1e17, "1" + "0" * 17),
            (2**70, str(2**70)),
            (True, "TRUE"),
        ),
        *(
            (False, "FALSE"),
            (None, ""),
            (float("nan"), ""),
            (float("inf"), "inf"),
            (day.date(), "2024-01-31"),
        ),
        *(
            (day, "2024-01-31 00:00:00"),
            (b"\xc3\xbc", "ü"),
            (memoryview(b"\xff"), "\udcff"),
            ("#N/A", "#N/A"),
        ),
    ):
        assert as_text(cell) == text


def test_a_sheet_with_all_that_cells_hold(folder, run, texts):
    rows = [
        ["text", "label", "who"],
        ["one", 1, 17],
        [],
        ["two", 2.0, "ann"],
        [42, True, None],
        [("=NA()", "#N/A"), "x", 17],
        [("=1+1", 2), datetime.datetime(2024, 1, 31), 18],
        ["=not computed", 1.5, ("=1/0", "#DIV/0!")],
    ]
    path = write_sheets(folder / "t.xlsx", Notes=rows, Other=[["text"], ["other"]])
    source = open_source(path, columns=Columns(person="who"))
    # The number in the margin of a spreadsheet, less the header.
    assert facts(source) == [
        ("1", "row 1", "1", "17"),
        ("3", "row 3", "2", "ann"),
        ("4", "row 4", "TRUE", ""),
        ("5", "row 5", "x", "17"),
        ("6", "row 6", "2024-01-31", "18"),
        ("7", "row 7", "1.5", ""),
    ]
    found = run(path, texts)
    assert found.ids == ["1", "3", "4", "6", "7"]
    assert found.reasons == {"row 5": "it is empty"}
    assert sorted(texts.prepared) == ["2", "42", "=not computed", "one", "two"]
    assert [record.load() for record in open_source(path, sheet="Other")] == ["other"]


def test_a_table_may_begin_anywhere_and_merged_cells_hold_one_value(folder):
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    with xlsxwriter.Workbook(folder / "m.xlsx") as book:
        book.add_worksheet("hidden").hide()
        sheet = book.add_worksheet("seen")
        sheet.activate()
        sheet.set_first_sheet()
        sheet.write_row(3, 2, ["label", "text"])
        sheet.merge_range(4, 2, 5, 2, "a")
        sheet.write_column(4, 3, ["one", "two", "three"])
        sheet.set_row(6, options={"hidden": True})
    assert facts(open_source(folder / "m.xlsx")) == [
        ("1", "row 1", "a", None),
        ("2", "row 2", None, None),
        ("3", "row 3", None, None),
    ]


def test_the_first_sheet_of_cells_is_read(folder):
    """Charts have no cells, and hidden sheets are not meant; an empty one that is seen is said to be empty."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")

    def book_of(*names):
        path = folder / "charts.xlsx"
        with xlsxwriter.Workbook(path) as book:
            for name in names:
                if name == "chart":
                    chart = book.add_chart({"type": "line"})
                    book.add_chartsheet(name).set_chart(chart)
                    chart.add_series({"values": "=data!$A$1:$A$2"})
                    continue
                sheet = book.add_worksheet(name)
                if name == "data":
                    sheet.write_column(0, 0, ["text", "one", "two"])
                    sheet.activate()
                elif name == "hidden":
                    sheet.hide()
        return path

    for names in (["chart", "data"], ["chart", "hidden", "data"], ["data", "chart"]):
        texts = [one.load() for one in open_source(book_of(*names))]
        assert texts == ["one", "two"], names
    for sheet in (None, "empty"):
        with pytest.raises(InputError, match=r"'empty' .* is empty.*'empty', 'data'"):
            open_source(book_of("chart", "empty", "data"), sheet=sheet)
    path = book_of("chart", "data")
    with pytest.raises(InputError, match=r"got 'chart'; there are 'data'"):
        open_source(path, sheet="chart")


odd_cells = (
    st.none()
    | st.text('#N/A"\n\t;,x', max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False)
)
odd_cells |= st.booleans() | st.datetimes(
    datetime.datetime(1990, 1, 1), datetime.datetime(2090, 1, 1)
)
odd_rows = st.tuples(odd_cells, odd_cells, odd_cells).filter(
    lambda row: any(as_text(cell) for cell in row)
)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(odd_rows, max_size=4), st.integers(0, 4), odd_rows)
def test_a_row_costs_no_other(folder, others, place, row):
    place = min(place, len(others))
    columns = Columns(person="who")
    header = ("text", "label", "who")
    each = {
        "with": [*others[:place], row, *others[place:]],
        "without": others,
        "alone": [row],
    }
    found = {}
    for name, rows in each.items():
        path = write_sheets(folder / "odd.xlsx", Sheet=[header, *rows])
        found[name] = outcomes(open_source(path, columns=columns))
    assert (
        found["with"]
        == found["without"][:place] + found["alone"] + found["without"][place:]
    )
    for name, rows in each.items():
        as_they_are = [
            [one.isoformat() if hasattr(one, "year") else one for one in row]
            for row in rows
        ]
        path = write_database(folder / "odd.db", as_they_are, "text, label, who")
        found[name] = outcomes(
            open_source(path, sql="select * from notes order by rowid", columns=columns)
        )
    assert (
        found["with"]
        == found["without"][:place] + found["alone"] + found["without"][place:]
    )


def test_a_time_that_python_does_not_have_costs_no_other_row(folder, tmp_path):
    xlsxwriter = pytest.importorskip("xlsxwriter")
    rows = [
        ["text", "label"],
        ["one", "a"],
        [5e9, "a"],
        ["two", "b"],
        [-1e300, "a"],
        ["three", "a"],
    ]
    with xlsxwriter.Workbook(folder / "time.xlsx") as book:
        sheet = book.add_worksheet()
        formats = {5e9: "[h]:mm", -1e300: "yyyy-mm-dd"}
        for number, (cell, label) in enumerate(rows):
            kind = (
                book.add_format({"num_format": formats[cell]})
                if cell in formats
                else None
            )
            sheet.write(number, 0, cell, kind)
            sheet.write(number, 1, label)
    found = outcomes(open_source(folder / "time.xlsx"))
    assert [content for _, content, _, _ in found[::2]] == ["one", "two", "three"]
    assert {content for _, content, _, _ in found[1::2]} == {
        "one of its cells cannot be read"
    }
    split_file(folder / "time.xlsx", tmp_path / "a.csv", tmp_path / "b.csv", 0.5)
    assert (
        sum(len(outcomes(open_source(tmp_path / f"{name}.csv"))) for name in "ab") == 5
    )


def test_a_damaged_workbook_is_one_error_without_a_value(folder):
    content = write_sheets(folder / "w.xlsx", S=[["text"], [SECRET]]).read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 60):
        (folder / "d.xlsx").write_bytes(
            content[:place] + b"\xff" + content[place + 1 :]
        )
        try:
            list(open_source(folder / "d.xlsx"))
            message = ""
        except InputError as error:
            message = str(error)
        assert SECRET not in message
    for broken in (content[: len(content) // 2], b"", b"no workbook"):
        (folder / "d.xlsx").write_bytes(broken)
        with pytest.raises(InputError, match="must be a workbook that can be read"):
            open_source(folder / "d.xlsx")


def test_what_does_not_fit_a_workbook_is_refused(folder):
    path = write_sheets(folder / "r.xlsx", A=[[SECRET, "b"], ["x", "y"]], Empty=[])
    with pytest.raises(InputError, match="may be a record") as caught:
        open_source(path)
    assert SECRET not in str(caught.value)
    with pytest.raises(
        InputError,
        match=r"^sheet must be a sheet of .*; got 'B'; there are 'A', 'Empty'",
    ):
        open_source(path, sheet="B")
    with pytest.raises(InputError, match=r"sheet 'Empty' of .* is empty"):
        open_source(path, sheet="Empty")
    with pytest.raises(ParameterError, match=r"^encoding goes with files of lines"):
        open_source(path, encoding="cp1252")
    (folder / "t.csv").write_text("text\nx\n")
    with pytest.raises(ParameterError, match=r"^sheet goes with workbooks"):
        open_source(folder / "t.csv", sheet="A")


NOTES = [
    *(
        (1, "one", 1.0, "ann"),
        (2, "two %x :y", "b", 17),
        (3, None, "b", None),
        (4, b"\xff", "b", b"bo"),
    ),
    *((5, "five", None, b"\xff"),),
]


def test_a_query_is_a_source(folder, run, texts, tmp_path):
    path = write_database(folder / "n.sqlite", NOTES)
    source = open_source(
        path, sql="select * from notes where text <> '%:z' or text is null order by id"
    )
    assert outcomes(source)[:2] == [
        ("1", "one", "one", None),
        ("b", "two %x :y", "two %x :y", None),
    ]
    assert source.count() == 5
    persons = open_source(
        f"sqlite:///{path}",
        sql="select * from notes",
        columns=Columns(id="id", person="who"),
    )
    assert facts(persons) == [
        ("1", "row 1", "1", "ann"),
        ("2", "row 2", "b", "17"),
        ("3", "row 3", "b", ""),
        ("4", "row 4", "b", "bo"),
        (None, "row 5", None, None),
    ]
    # Rows that are read twice are the same, whatever the database holds by then.
    before = outcomes(persons)
    write_database(folder / "n.sqlite", [])
    assert outcomes(persons) == before
    assert open_source(path, sql="select * from notes order by id").count() == 0


@pytest.mark.parametrize("words", ["'order by'", '"order by"', "-- order by\n"])
def test_an_order_in_a_text_a_name_or_a_comment_is_none(words):
    from dppl.io.records.sheets import _ORDERED

    assert not _ORDERED.match(f"select {words} from notes")
    assert _ORDERED.match(f"select {words} - 1 from notes -- it's\norder\n  BY id")


def test_a_query_needs_an_order_and_changes_nothing(folder):
    path = write_database(folder / "o.db", NOTES)
    with pytest.raises(
        ParameterError, match=r"^sql must say in which order the rows come"
    ):
        open_source(path, sql="select text from notes")
    for sql in ("delete from notes", "delete from notes returning text, id"):
        with pytest.raises(InputError, match=r"^sql must be a query that"):
            open_source(path, sql=sql, columns=Columns(id="id"))
    assert open_source(path, sql="select * from notes order by id").count() == 5
    with pytest.raises(FileNotFoundError):
        open_source(str(folder / "none.db"), sql="select 1 order by 1")
    assert not (folder / "none.db").exists()


def test_no_message_shows_a_password_a_query_or_a_value(folder):
    path = write_database(folder / "s.db", [(1, SECRET, "a", "b")])
    for sql, database in (
        (f"select text, '{SECRET}' from nowhere order by 1", path),
        ("select text, abs(-9223372036854775807 - id) from notes order by 1", path),
        (f"select '{SECRET}' order by", f"nosuch://user:{SECRET}@host/name"),
        (
            f"select '{SECRET}' order by",
            f"postgresql://user:{SECRET}@localhost:1/name?password={SECRET}",
        ),
        ("select 1 order by 1", SECRET),
    ):
        with pytest.raises((InputError, ParameterError, MissingExtra)) as caught:
            open_source(database, sql=sql)
        assert SECRET not in str(caught.value)
        assert caught.value.__context__ is None
    source = open_source(
        path, sql=f"select text, '{SECRET}' as label from notes order by 1"
    )
    assert SECRET not in json.dumps(source.parameters)


def test_duckdb(folder):
    duckdb = pytest.importorskip("duckdb")
    path = folder / "n.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(
            "create table notes as select 1 as id, 'one' as text, true as label, date '2024-01-31' as who"
        )
    source = open_source(
        str(path), sql="select * from notes order by id", columns=Columns(person="who")
    )
    assert facts(source) == [("1", "row 1", "TRUE", "2024-01-31")]
    assert facts(open_source(f"duckdb:///{path}", sql="from notes order by id")) == [
        ("1", "row 1", "TRUE", None)
    ]
    with pytest.raises(InputError, match="got BinderException"):
        open_source(str(path), sql=f"select {SECRET[:4]} from notes order by 1")


def test_an_interrupted_embedding_of_a_query_continues_on_the_same_rows_only(
    folder, texts, tmp_path
):
    from dppl.training import embed

    rows = [(place, f"text {place}", "a", "b") for place in range(9)]
    path = write_database(folder / "i.db", rows)
    sql = "select * from notes order by id"
    embed(open_source(path, sql=sql), texts, tmp_path / "table", shard_rows=4)
    assert not embed(
        open_source(path, sql=sql), texts, tmp_path / "table", shard_rows=4
    ).is_new
    write_database(folder / "i.db", [*rows[:-1], (8, "another", "a", "b")])
    with pytest.raises(InputError, match="the source has changed"):
        embed(open_source(path, sql=sql), texts, tmp_path / "table", shard_rows=4)
    with pytest.raises(ParameterError, match="begun with another source"):
        embed(
            open_source(path, sql=f"{sql} desc"),
            texts,
            tmp_path / "table",
            shard_rows=4,
        )


def test_keys_of_folders_are_columns(tmp_path, run, texts):
    for ward, label, text in (
        ("a%2Fb", "1", "one"),
        ("10", "2", "two"),
        ("9", "__HIVE_DEFAULT_PARTITION__", "three"),
    ):
        part = tmp_path / "parts" / f"ward={ward}" / f"label={label}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"text": [text, None]}), part / "0.parquet")
    path = tmp_path / "parts"
    found = run(path, texts, columns=Columns(person="ward"))
    assert (found.ids, found.labels) == (["1", "3", "5"], [None, "2", "1"])
    assert found.columns["person"] == ["9", "10", "a/b"]
    assert found.reasons == {f"row {row}": "it is missing" for row in (2, 4, 6)}
    split_file(
        path,
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
        0.5,
        groups="ward",
        key="k",
    )
    parts = [pq.read_table(tmp_path / f"{name}.parquet").to_pylist() for name in "ab"]
    assert sorted(row["text"] or "" for part in parts for row in part) == [
        "",
        "",
        "",
        "one",
        "three",
        "two",
    ]
    assert not {row["ward"] for row in parts[0]} & {row["ward"] for row in parts[1]}
    # What is wrong with one file is said of the folder: its path holds a label and an
    # id.
    (path / "ward=a%2Fb" / "label=1" / "0.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match="must be a Parquet file") as caught:
        open_source(path)
    assert "ward" not in str(caught.value)
    (path / "ward=a%2Fb" / "label=1" / "0.parquet").rename(path / "0.parquet")
    with pytest.raises(InputError, match="folders of the same keys"):
        open_source(path)


def test_keys_that_are_no_utf_8_are_not_one_person(tmp_path):
    path = tmp_path / "parts"
    for who in ("%FE", "%FF", "b"):
        (path / f"who={who}").mkdir(parents=True)
        pq.write_table(pa.table({"text": ["one"]}), path / f"who={who}" / "0.parquet")
    found = outcomes(open_source(path, columns=Columns(person="who")))
    assert [(person, content) for _, content, _, person in found] == [
        (None, "its person id is not UTF-8"),
        (None, "its person id is not UTF-8"),
        ("b", b"one"),
    ]
    split_file(
        path, tmp_path / "a.parquet", tmp_path / "b.parquet", 0.5, groups="who", key="k"
    )
    parts = [
        pq.read_table(tmp_path / f"{name}.parquet")["who"]
        .cast(pa.large_binary())
        .to_pylist()
        for name in "ab"
    ]
    assert sorted(parts[0] + parts[1]) == [b"b", b"\xfe", b"\xff"]


def test_workbooks_and_queries_are_split_into_csv(folder, tmp_path):
    rows = [[f"te;xt\r\n{place}", place % 2, place // 4] for place in range(40)]
    path = write_sheets(folder / "split.xlsx", Sheet=[["text", "label", "who"], *rows])
    database = write_database(folder / "split.db", rows, "text, label, who")
    outs = [
        [tmp_path / f"{name}{part}.csv" for part in range(2)]
        for name in ("sheet", "sql")
    ]
    split_file(path, *outs[0], 0.5, groups="who", key="secret")
    split_file(
        database, *outs[1], 0.5, groups="who", key="secret", sql="select * from notes"
    )
    assert [out.read_bytes() for out in outs[0]] == [
        out.read_bytes() for out in outs[1]
    ]
    columns = Columns(person="who")
    train, test = (outcomes(open_source(out, columns=columns)) for out in outs[0])
    assert not {person for *_, person in train} & {person for *_, person in test}
    assert sorted(train + test) == sorted(outcomes(open_source(path, columns=columns)))
    with pytest.raises(ParameterError, match=r"^out_train must end in \.csv"):
        split_file(path, tmp_path / "c.xlsx", tmp_path / "d.xlsx", 0.5)
    with pytest.raises(InputError, match=r"^groups must be one column"):
        split_file(path, tmp_path / "c.csv", tmp_path / "d.csv", 0.5, groups="nobody")
    assert not (tmp_path / "c.csv").exists()


def test_without_the_reader_the_extra_is_named(folder, monkeypatch):
    (folder / "x.ods").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    with pytest.raises(
        MissingExtra, match=r"this needs python-calamine; install it .*\[excel\]"
    ):
        open_source(folder / "x.ods")


def test_a_cell_that_a_driver_cannot_read_stops_no_other(folder):
    path = write_database(
        folder / "odd.db", [(1, "one", "a", "b"), (2, "two", "a", "b")]
    )
    with sqlite3.connect(path) as connection:
        connection.execute(
            "update notes set text = cast(x'6162ff' as text) where id = 2"
        )
    connection.close()
    first, odd = outcomes(open_source(path, sql="select * from notes order by id"))
    assert (
        first
        == outcomes(
            open_source(path, sql="select * from notes where id = 1 order by id")
        )[0]
    )
    assert odd != first


def test_a_date_that_python_does_not_have_is_the_text_that_it_shows():
    psycopg = pytest.importorskip("psycopg")
    from types import SimpleNamespace

    from dppl.io.records.sheets import _show_odd_cells

    connection = SimpleNamespace(adapters=psycopg.adapt.AdaptersMap(psycopg.adapters))
    _show_odd_cells(connection, "postgresql+psycopg")
    oid = psycopg.adapters.types["date"].oid
    loader = connection.adapters.get_loader(oid, psycopg.pq.Format.TEXT)(oid)
    assert [as_text(loader.load(cell)) for cell in (b"2024-01-31", b"infinity")] == [
        "2024-01-31",
        "infinity",
    ]


TYPED = "select 'one' as text, 'a' as label, {} as who"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1.5::double", "DOUBLE"),
        ("1::float", "FLOAT"),
        ("true", "BOOLEAN"),
        ("1.5::decimal(9, 2)", r"DECIMAL\(9,2\)"),
        ("timestamp '2024-02-29'", "TIMESTAMP"),
        ("time '12:00'", "TIME"),
        ("'a'::blob", "BLOB"),
        ("[1]", r"INTEGER\[\]"),
    ],
)
@pytest.mark.parametrize("role", ["person", "id"])
def test_types_of_a_query_that_hold_no_ids_are_refused(role, value, kind):
    pytest.importorskip("duckdb")
    columns = Columns(**{role: "who"})
    query = f"{TYPED.format(value)} where {{}} order by text"
    # Also where no row is selected: the type decides.
    for rows in ("true", "false"):
        with pytest.raises(
            InputError, match=f"with ids; 'who' holds {kind}"
        ) as refused:
            open_source("duckdb:///:memory:", sql=query.format(rows), columns=columns)
        assert refused.value.parameter == role


def test_ids_of_a_query_are_texts_of_one_value():
    pytest.importorskip("duckdb")
    values = {
        "9007199254740993::hugeint": "9007199254740993",
        "7::decimal(18, 0)": "7",
        "'7'": "7",
        "date '2024-02-29'": "2024-02-29",
        "'00000000-0000-0000-0000-000000000005'::uuid": "00000000-0000-0000-0000-000000000005",
        "null::integer": None,
    }
    for value, person in values.items():
        query = f"{TYPED.format(value)} order by text"
        source = open_source(
            "duckdb:///:memory:", sql=query, columns=Columns(person="who")
        )
        assert [one.person or None for one in source] == [person], value
    with pytest.raises(InputError, match="with texts; 'text' holds BLOB"):
        open_source("duckdb:///:memory:", sql="select 'a'::blob as text order by text")


def test_a_cell_that_is_not_exact_is_no_id(folder):
    """2**53 + 1 and 2**53 are one float; SQLite has a type for each cell, and workbooks have floats alone."""
    rows = [["one", "a", cell] for cell in (7, 7.0, "7", 2**53 + 1, 2.0**53, 7.5, None)]
    database = write_database(folder / "ids.db", rows, "text, label, who")
    query = {"sql": "select * from notes order by rowid"}
    sheet = [
        ["text", "label", "who"],
        *[[*row[:2], row[2]] for row in rows if row[2] != 2**53 + 1],
    ]
    path = write_sheets(folder / "ids.xlsx", Sheet=sheet)
    exact = "its person id is a float, which is not exact from 2**53 on"
    whole = "its person id is neither a text nor a whole number"
    expected = ["7", "7", "7", "9007199254740993", exact, whole, None]
    for source in (
        open_source(database, **query, columns=Columns(person="who")),
        open_source(path, columns=Columns(person="who")),
    ):
        found = []
        for one in source:
            try:
                one.load()
                found.append(one.person or None)
            except BadRecord as skipped:
                found.append(said(skipped.reason))
        assert found == (
            expected
            if source.parameters["kind"] == "sql"
            else expected[:3] + expected[4:]
        )
