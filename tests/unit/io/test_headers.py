"""The row that names the columns of a sheet or a CSV file, with titles above it and blank rows among the records."""

import csv

import pytest

from dppl.errors import InputError, ParameterError
from dppl.io import Columns, open_source, split_file

TITLES = [["Clinic, export", "", "", ""], [], ["", "findings", "", ""]]
HEADER = ["patient", "note", "codes", "ward"]
RECORDS = [[f"p{number // 2}", f"note {number}", "a", "w"] for number in range(6)]
BLANK = ["", "", "", ""]
TABLE = [*TITLES, HEADER, *RECORDS[:3], BLANK, *RECORDS[3:], BLANK]
NAMED = Columns(x="note", y="codes", person="patient")


def put(folder, kind, rows):
    path = folder / f"table.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=";").writerows(rows)
        return path
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    with xlsxwriter.Workbook(path) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return path


@pytest.fixture(params=["csv", "xlsx"])
def write(request, tmp_path):
    return lambda rows: put(tmp_path, request.param, rows)


def read(path, columns=NAMED, **options):
    source = open_source(path, columns=columns, **options)
    return [(one.reference, one.load(), one.label, one.person) for one in source]


def test_titles_above_the_header_and_blank_rows_are_no_records(write):
    found = read(write(TABLE))
    # Rows count from the header, and blank ones count.
    numbers = (1, 2, 3, 5, 6, 7)
    assert found == [
        (f"row {number}", note, "a", patient)
        for number, (patient, note, *_) in zip(numbers, RECORDS, strict=True)
    ]
    assert read(write(TABLE), header=4) == found


def test_the_first_row_that_has_the_names_is_the_header(write):
    # A record may repeat the names, as where two exports were joined.
    again = [*TABLE, HEADER]
    assert read(write(again))[-1][:3] == ("row 9", "note", "codes")
    assert len(read(write(again), header=4)) == 7
    # The owner may name another row.
    assert read(write(again), header=13) == []
    below = [["x"]] * 50 + TABLE
    with pytest.raises(InputError, match=r"^x must be one column of .*; row 1, taken"):
        read(write(below))
    assert len(read(write(below), header=54)) == 6


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            Columns(x="remark", y="codes"),
            {},
            "^x must be one column of .*; got 'remark'; row 4, taken as the header, has 'patient', 'note', 'codes', "
            r"'ward'; if row 5 is, add header=5\.$",
        ),
        (
            Columns(x="nota", y="codes"),
            {},
            r"it has 'patient', 'note', 'codes', 'ward'\. Try x='note'$",
        ),
        # What is not shown is not suggested.
        (
            Columns(x="nota"),
            {},
            "row 1, .*, has none of the names .* with header=1\\.$",
        ),
        (NAMED, {"header": 3}, "row 3, taken as the header, has '', 'findings', "),
        (NAMED, {"header": 2}, "^header must be the number of the row"),
        (NAMED, {"header": 99}, "^header must be the number of the row"),
    ],
)
def test_a_missing_column_is_said_with_those_that_are_there(
    write, columns, options, message
):
    with pytest.raises(InputError, match=message) as caught:
        open_source(write(TABLE), columns=columns, **options)
    assert "note 1" not in str(caught.value)


def test_no_record_below_a_header_of_other_names_is_taken_for_it(write):
    """Whether a run stops, and what the error says, must not depend on a record that holds these names."""
    others = ["patient", "text", "code", "ward"]
    stops = []
    for record in (RECORDS[1], HEADER):
        with pytest.raises(InputError, match="must be one column") as stop:
            read(write([*TITLES, others, RECORDS[0], record, *RECORDS[2:]]))
        stops.append(str(stop.value))
    assert stops[0] == stops[1]
    assert "codes" not in stops[0].partition("taken as the header")[2]


def test_a_repeated_column_is_said_to_be_one(write):
    twice = [["note", "codes", "codes"], ["one", "a", "b"]]
    with pytest.raises(InputError, match=r"got 'codes'; 2 columns have this name; ren"):
        open_source(write(twice), columns=Columns(x="note", y="codes"))


def test_a_header_is_a_number_of_a_row_of_a_table(write, tmp_path):
    with pytest.raises(ParameterError, match=r"^header must be an integer of at least"):
        open_source(write(TABLE), header=0)
    (tmp_path / "t.jsonl").write_text("{}\n")
    for call in (
        lambda path: open_source(path, header=3),
        lambda path: split_file(
            path, tmp_path / "a.jsonl", tmp_path / "b.jsonl", 0.5, header=3
        ),
    ):
        with pytest.raises(
            ParameterError, match=r"^header goes with workbooks and CSV"
        ):
            call(tmp_path / "t.jsonl")


def test_both_parts_of_a_table_with_titles_have_its_header(write, tmp_path):
    outs = (tmp_path / "a.csv", tmp_path / "b.csv")
    for options in ({"groups": "patient"}, {"header": 4}):
        split_file(write(TABLE), *outs, 0.5, **options)
        assert all(out.read_text().startswith("patient") for out in outs)
        found = [row[1:] for out in outs for row in read(out)]
        assert sorted(found) == [row[1:] for row in read(write(TABLE))]
        for out in outs:
            out.unlink()
    for names in (["note", "", "codes"], ["note", "codes", "codes"]):
        with pytest.raises(InputError, match="cells that are empty or repeat another"):
            split_file(write([names, ["one", "a", "b"]]), *outs, 0.5)
        assert not any(out.exists() for out in outs)


def test_other_sheets_are_named_where_the_first_lacks_the_columns(tmp_path):
    """An export may begin with a cover; a sheet that is hidden or that was named itself is not proposed."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    path = tmp_path / "t.xlsx"
    with xlsxwriter.Workbook(path) as book:
        for name in ("cover", "old", "notes"):
            sheet = book.add_worksheet(name)
            sheet.write_row(0, 0, HEADER if name == "notes" else ["of", "ward 7"])
            if name == "old":
                sheet.hide()
    with pytest.raises(InputError, match=r"; other sheets are 'notes': add sheet='no"):
        open_source(path, columns=NAMED)
    with pytest.raises(InputError, match=r"header=1\.$"):
        open_source(path, columns=NAMED, sheet="cover")
    assert read(path, sheet="notes") == []
