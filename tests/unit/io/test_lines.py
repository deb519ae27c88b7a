"""Whatever one record of a file of lines holds, all others are read as without it."""

import csv
import gzip
import io
import tracemalloc

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dppl.errors import InputError, ParameterError
from dppl.io import open_source, split_file
from dppl.io.records import lines
from skipped import outcome

LIMIT = 40
HEADER = "text,label\r\n"
TOO_LONG = "its row is too long"
DAMAGED = "its row has a misplaced quote"
NEVER_CLOSED = "its row opens a quote that never closes"
MARK = "\ufeff"
LONG = '"' + "x" * LIMIT + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lines")


@pytest.fixture(scope="module", autouse=True)
def limit():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dppl.io.records.lines.MOST_TEXT_BYTES", LIMIT)
        yield


def read(path, content, **options):
    path.write_bytes(
        content.encode("utf-8", "surrogatepass")
        if isinstance(content, str)
        else content
    )
    return [outcome(record) for record in open_source(path, **options)]


def written(row):
    file = io.StringIO(newline="")
    csv.writer(file).writerow(row)
    return file.getvalue()


def is_one_record(text):
    """Tell whether the lenient reader takes a text for one record, and what follows for others."""
    rows = list(csv.reader(io.StringIO(text + "a,b\r\n", newline="")))
    return len(rows) == 2 and rows[1] == ["a", "b"] and any(rows[0])


odd = st.text('a",\n\r ' + MARK, max_size=12)
rows = st.tuples(odd, odd).filter(any).map(written)  # blank ones are no records
long = st.tuples(st.text('a",\n\r', max_size=2 * LIMIT), odd).map(written)


@st.composite
def damaged(draw):
    """A row with a quote too many, or a character too few."""
    row = draw(rows | long)
    place = draw(st.integers(0, len(row) - 1))
    return (
        row[:place]
        + draw(st.sampled_from(['"' + row[place], row[place] + '"x', ""]))
        + row[place + 1 :]
    )


USUAL = ["a,b\r\n", '"c, d",e\r\n']


@pytest.mark.slow
@given(st.lists(rows, max_size=5), st.integers(0, 5), rows | long | damaged())
@example(USUAL, 1, '"' + "x" * LIMIT + "\ninjected,b" * 9 + '",c\r\n')
@example(USUAL, 0, '"' + "x" * LIMIT + '\n""\n"z\r\n')
@example(USUAL, 2, '"a"\ninjected,b\n",c\n')
@example(USUAL, 1, '"a"b,"\ninjected,b\n",c\n')
def test_a_record_of_csv_is_one_record_and_costs_no_other(
    folder, others, place, record
):
    assume(is_one_record(record))
    place = min(place, len(others))
    without = read(folder / "t.csv", HEADER + "".join(others))
    within = read(
        folder / "t.csv", HEADER + "".join([*others[:place], record, *others[place:]])
    )
    assert len(without) == len(others)
    assert within[:place] + within[place + 1 :] == without
    assert within[place] == read(folder / "t.csv", HEADER + record)[0]


@given(st.text('aé,"\n\r\0 ' + MARK, max_size=3 * LIMIT))
@example('first,a\n"x\n1,b\n')
@example("x" * (LIMIT - 2) + ",a")
@example('"x"y,a\n\n"z""",b\r' + LONG + '",c')
def test_rows_of_one_line_are_as_the_careful_reader_has_them(folder, content):
    quick = read(folder / "t.csv", HEADER + content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dppl.io.records.lines._row_in", lambda *_: None)
        careful = read(folder / "t.csv", HEADER + content)
    assert quick == careful


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (LONG + "1,b\n2,b\n" * 9 + '",a\n', TOO_LONG),
        (LONG + '1,b\n""2"",b\n",a\n', TOO_LONG),
        (
            LONG + '1,b\n2,b""',
            f"{NEVER_CLOSED} (lines lost after it: 2)",
        ),
        ('"last,b\n', f"{NEVER_CLOSED} (lines lost after it: 0)"),
        ("x" * LIMIT + ",a\n", TOO_LONG),
        ('"' + "\n" * LIMIT + '",a\n', TOO_LONG),
        ('"x"y,a\n', f"{DAMAGED} (lines lost after it: 0)"),
        (
            '"x"y,"\n1,b\n2,b\n",a\n',
            f"{DAMAGED} (lines lost after it: 3)",
        ),
        ('"x\n1,b\n2,b', f"{NEVER_CLOSED} (lines lost after it: 2)"),
    ],
)
def test_a_bad_record_of_csv_is_left_out_once(folder, record, reason):
    first = ("a", "first", "first")
    assert read(folder / "t.csv", f"{HEADER}first,a\n{record}") == [
        first,
        (None, reason, reason),
    ]


@pytest.mark.parametrize("end", ["", "\n", "\r", "\r\n"])
def test_how_the_last_row_ends_decides_nothing(folder, end):
    for length, fits in ((LIMIT - 1, True), (LIMIT, False)):
        text = "x" * (length - 2)
        found = read(folder / "t.csv", f"{HEADER}{text},a{end}")
        assert found == [("a", text, text) if fits else (None, TOO_LONG, TOO_LONG)]


def test_a_long_record_of_csv_takes_no_memory(folder):
    path = folder / "long.csv"
    path.write_text(HEADER + '"' + "0123456789,b\n" * 100_000 + '",a\n')
    source = open_source(path)
    tracemalloc.start()
    try:
        assert [outcome(record)[1] for record in source] == [TOO_LONG]
        assert tracemalloc.get_traced_memory()[1] < 2**18  # of 1.2 MB
    finally:
        tracemalloc.stop()


def test_the_limit_of_other_readers_of_csv_stays(folder):
    path = folder / "others.csv"
    path.write_text(f"{HEADER}a,b\nc,d\ne,f\n")
    before = csv.field_size_limit(17)
    try:
        found = []
        for record in open_source(
            path
        ):  # two readers of the same kind, one within the other
            assert csv.field_size_limit() == 17
            found += [record.label, *(other.label for other in open_source(path))]
        assert found == ["b", "b", "d", "f", "d", "b", "d", "f", "f", "b", "d", "f"]
        assert csv.field_size_limit() == 17
    finally:
        csv.field_size_limit(before)


JSON = '{"text": "x", "label": "a"}\n'


@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_a_byte_order_mark_is_taken_away_wherever_files_were_joined(
    folder, suffix, monkeypatch
):
    monkeypatch.setattr("dppl.io.records.lines.MOST_TEXT_BYTES", 100)
    lines = [
        MARK + (JSON.replace("x", text) if suffix == ".jsonl" else f"{text}\n")
        for text in "xyz"
    ]
    path = folder / f"t{suffix}"
    bare = [line.removeprefix(MARK) for line in lines]
    assert read(path, "".join(lines)) == read(path, "".join(bare))
    assert read(path, "".join(lines[1:])) == read(path, "".join(lines))[1:]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("mark", ["", MARK])
def test_the_longest_line_is_whole_and_a_longer_one_stays_too_long(folder, mark, end):
    longest = "x" * LIMIT
    assert read(folder / "t.txt", mark + longest + end)[0][1] == longest.encode()
    for text in (longest + "x", longest + "\rx", longest * 3):
        assert len(read(folder / "t.txt", mark + text + end)[0][1]) > LIMIT


# How a file is written: its encoding and what stands between its columns

GERMAN = 'text;label\nMüller grüßt;a\n"zwei; mit\nUmbruch ß";b\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "text,label\ngood,a\nM\xfcller,a\n"),
        ("t.csv", "text,label\ngood,M\xfcller\n"),
        ("t.jsonl", '{"text": "good"}\n{"text": "M\xfcller"}\n'),
        ("t.txt", "good\nM\xfcller\n"),
    ],
)
def test_a_file_that_is_not_utf_8_is_refused_whole_and_its_encoding_is_asked_for(
    folder, name, content
):
    path = folder / name
    with pytest.raises(
        InputError, match=r"^encoding must name the encoding of .*, which is not utf-8"
    ) as caught:
        read(path, content.encode("latin-1"))
    assert "ller" not in str(caught.value)
    assert b"\xfc" not in bytes(str(caught.value.__cause__), "latin-1")
    assert read(path, content.encode("latin-1"), encoding="cp1252") == read(
        path, content
    )


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le with mark", "utf-16-be with mark"],
)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".txt"])
def test_byte_order_marks_say_the_encoding(folder, suffix, encoding, monkeypatch):
    monkeypatch.setattr("dppl.io.records.lines.MOST_TEXT_BYTES", 200)
    lines = {".csv": GERMAN, ".jsonl": '{"text": "Müller"}\n', ".txt": "Müller\n"}[
        suffix
    ]
    name, marked, _ = encoding.partition(" with")
    path = folder / f"marked{suffix}"
    wanted = read(path, lines)
    assert read(path, ((MARK if marked else "") + lines).encode(name)) == wanted
    assert read(path, lines, encoding="UTF8") == wanted


def test_a_reader_that_is_closed_at_the_exit_of_the_interpreter_says_nothing(
    folder, monkeypatch
):
    """Modules have lost their names by then."""
    (folder / "t.csv").write_text("text\none\ntwo\n")
    records = iter(open_source(folder / "t.csv"))
    next(records)
    monkeypatch.setattr(lines, "gzip", None)
    records.close()


def test_an_encoding_that_a_file_has_not_is_refused(folder):
    for encoding, content in (
        ("utf-16", b"text,label\nx,a\n"),
        ("cp1252", b"text,label\n\x81,a\n"),
    ):
        with pytest.raises(InputError, match=f"which is not {encoding}"):
            read(folder / "t.csv", content, encoding=encoding)


def test_a_file_that_changes_while_it_is_read_is_refused_without_a_word_of_it(folder):
    path = folder / "changing.csv"
    path.write_text(f"{HEADER}a,b\n")
    source = open_source(path)
    path.write_bytes(b"text,label\nJane \xfc,b\n")
    with pytest.raises(InputError, match="must name the encoding") as caught:
        list(source)
    assert "Jane" not in str(caught.value)


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
def test_the_header_shows_what_stands_between_columns(folder, delimiter, monkeypatch):
    monkeypatch.setattr("dppl.io.records.lines.MOST_TEXT_BYTES", 200)
    content = GERMAN.replace(";", delimiter)
    found = read(folder / "t.csv", content)
    assert [(label, text) for label, text, _ in found] == [
        ("a", "Müller grüßt"),
        ("b", f"zwei{delimiter} mit\nUmbruch ß"),
    ]


def test_records_do_not_decide_what_stands_between_columns(folder):
    assert read(folder / "t.csv", "text\n" + "a;b;c\n" * 9)[0][1] == "a;b;c"
    assert [
        label for label, *_ in read(folder / "t.csv", "a;b,text,label\n1;2,x,y\n")
    ] == ["y"]


@pytest.mark.parametrize("before", ["", "Export of the ward\n"])
def test_a_record_that_says_the_names_between_commas_changes_no_other(folder, before):
    """Its row has the columns under another delimiter, and more cells than the header."""
    lines = "text;label\nhello;a\n{};b\nx;a\n"
    usual, named = (
        read(folder / "t.csv", before + lines.format(text))
        for text in ("good, bad, ugly", "text,label,hi")
    )
    assert [one[0] for one in named] == ["a", "b", "a"]
    assert usual[::2] == named[::2]


def test_encodings_are_of_texts_and_go_with_files_of_lines(folder):
    for encoding in ("latin-99", "base64", "a\0"):
        with pytest.raises(ParameterError, match=r"^encoding must be"):
            read(folder / "t.csv", HEADER, encoding=encoding)
    with pytest.raises(ParameterError, match=r"^encoding goes with files of lines"):
        open_source(folder, kind="images", encoding="cp1252")


def test_a_line_that_decodes_to_half_a_character_is_left_out_alone(folder):
    """Some encodings, such as utf-7, can write what no UTF-8 holds; the run goes on."""
    (folder / "half.txt").write_bytes(b"one\n+2AA-\nthree\n")
    first, half, third = map(
        outcome, open_source(folder / "half.txt", encoding="utf-7")
    )
    assert (first[1], third[1]) == (b"one", b"three")
    with pytest.raises(
        UnicodeDecodeError
    ):  # as whoever decodes it, and leaves it out, will see
        half[1].decode()


def test_a_long_field_in_quotes_is_read(folder, monkeypatch):
    """Longer than what Python's reader of CSV takes unless it is told otherwise."""
    monkeypatch.setattr("dppl.io.records.lines.MOST_TEXT_BYTES", 2**20)
    long = "a" * 131_100
    (folder / "quoted.csv").write_text(f'text,label\n"{long}",x\n')
    (record,) = open_source(folder / "quoted.csv")
    assert record.load() == long


PLAIN = "text;label\r\none, two;a\r\nthree;b\r\n"
READ = [("a", "one, two"), ("b", "three")]


def texts_of(path, content, **options):
    """Return labels and texts, which lines without columns keep as bytes."""
    return [
        (label, text.decode() if isinstance(text, bytes) else text)
        for label, text, _ in read(path, content, **options)
    ]


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"', f"{MARK}sep=;"])
def test_a_line_that_names_the_separator_is_no_row(folder, first):
    """As Excel writes it. It also decides where the header alone would not: a header of one column."""
    path = folder / "sep.csv"
    assert texts_of(path, PLAIN) == READ
    assert texts_of(path, f"{first}\r\n{PLAIN}") == READ
    odd = PLAIN.replace(";", "^")
    assert texts_of(path, f"{first.replace(';', '^')}\r\n{odd}") == READ
    assert texts_of(path, f"{first}\r\ntext\r\none, two\r\n") == [(None, "one, two")]
    assert [one.reference for one in open_source(path)] == ["row 1"]
    # What only begins so is a row.
    assert texts_of(path, "text\nsep=;\n") == [(None, "sep=;")]
    with pytest.raises(InputError, match="is empty"):
        open_source_of(path, f"{first}\r\n")


def open_source_of(path, content):
    path.write_text(content, newline="")
    return open_source(path)


def test_a_split_file_keeps_the_line_that_names_the_separator(folder):
    path = folder / "split.csv"
    path.write_text(f"sep=;\r\n{PLAIN}", newline="")
    outs = [folder / f"{name}.csv" for name in ("train", "test")]
    for one in outs:
        one.unlink(missing_ok=True)
    split_file(path, *outs, share=0.5)
    assert all(out.read_bytes().startswith(b"sep=;\r\ntext;label\r\n") for out in outs)
    parts = [(one.label, one.load()) for out in outs for one in open_source(out)]
    assert sorted(parts) == READ


PACKED = {
    "a.csv.gz": (PLAIN, READ),
    "a.TSV.GZ": (PLAIN.replace(";", "\t"), READ),
    "sep.csv.gz": (f"{MARK}sep=;\r\n{PLAIN}", READ),
    "a.jsonl.gz": (
        '{"text": "one, two", "label": "a"}\n{"text": "three", "label": "b"}\n',
        READ,
    ),
    "a.ndjson.gz": ('{"text": "three", "label": "b"}\n', READ[1:]),
    "a.txt.gz": ("one, two\nthree\n", [(None, text) for _, text in READ]),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_file_is_read_as_it_was(folder, name):
    content, expected = PACKED[name]
    for encoding in ("utf-8", "utf-16"):
        whole = gzip.compress(content.removeprefix(MARK).encode(encoding))
        assert texts_of(folder / name, whole) == expected
    for damaged in (whole[:-9], b"", b"text,label\n", whole[:10] + b"x" * 30):
        if damaged:
            with pytest.raises(InputError, match="must be a whole file of gzip"):
                texts_of(folder / name, damaged)


def test_a_packed_file_of_another_kind_is_refused(folder):
    for name in ("a.gz", "a.xlsx.gz", "a.parquet.gz"):
        (folder / name).write_bytes(gzip.compress(PLAIN.encode()))
        with pytest.raises(InputError, match="must say what"):
            open_source(folder / name)
    assert [one.load() for one in open_source(folder / "a.gz", kind="csv")] == [
        text for _, text in READ
    ]


def test_a_packed_file_is_split_into_plain_ones(folder):
    path = folder / "packed.csv.gz"
    path.write_bytes(gzip.compress(PLAIN.encode()))
    outs = [folder / f"packed-{name}.csv" for name in ("train", "test")]
    for one in outs:
        one.unlink(missing_ok=True)
    split_file(path, *outs, share=0.5)
    parts = [(one.label, one.load()) for out in outs for one in open_source(out)]
    assert sorted(parts) == READ
