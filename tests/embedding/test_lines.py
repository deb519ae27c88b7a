"""Whatever one record of a file of lines holds, all others are read as without it."""

import csv
import io
import tracemalloc

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dppl.embedding import open_source
from dppl.embedding.records import Unusable

LIMIT = 40
HEADER = "text,label\r\n"
TOO_LONG = "its row is too long"
DAMAGED = "its row has a misplaced or open quote"
MARK = "\ufeff"
LONG = '"' + "x" * LIMIT + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lines")


@pytest.fixture(scope="module", autouse=True)
def limit():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dppl.embedding.lines.MOST_TEXT_BYTES", LIMIT)
        yield


def outcome(record):
    """Return all that becomes of a record but its place and its number."""
    try:
        return record.label, record.load(), record.version
    except Unusable as reason:
        return record.label, str(reason), record.version


def read(path, content, **options):
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return [outcome(record) for record in open_source(path, **options)]


def written(row):
    file = io.StringIO(newline="")
    csv.writer(file).writerow(row)
    return file.getvalue()


def is_one_record(text):
    """Tell whether the lenient reader takes a text for one record, and what follows for others."""
    rows = list(csv.reader(io.StringIO(text + "a,b\r\n", newline="")))
    return len(rows) == 2 and rows[1] == ["a", "b"] and bool(rows[0])


odd = st.text('a",\n\r ' + MARK, max_size=12)
rows = st.tuples(odd, odd).map(written)
long = st.tuples(st.text('a",\n\r', max_size=2 * LIMIT), odd).map(written)


@st.composite
def damaged(draw):
    """A row with a quote too many, or a character too few."""
    row = draw(rows | long)
    place = draw(st.integers(0, len(row) - 1))
    return row[:place] + draw(st.sampled_from(['"' + row[place], row[place] + '"x', ""])) + row[place + 1 :]


USUAL = ["a,b\r\n", '"c, d",e\r\n']


@given(st.lists(rows, max_size=5), st.integers(0, 5), rows | long | damaged())
@example(USUAL, 1, '"' + "x" * LIMIT + "\ninjected,b" * 9 + '",c\r\n')
@example(USUAL, 0, '"' + "x" * LIMIT + '\n""\n"z\r\n')
@example(USUAL, 2, '"a"\ninjected,b\n",c\n')
@example(USUAL, 1, '"a"b,"\ninjected,b\n",c\n')
def test_a_record_of_csv_is_one_record_and_costs_no_other(folder, others, place, record):
    assume(is_one_record(record))
    place = min(place, len(others))
    without = read(folder / "t.csv", HEADER + "".join(others))
    within = read(folder / "t.csv", HEADER + "".join([*others[:place], record, *others[place:]]))
    assert len(without) == len(others)
    assert within[:place] + within[place + 1 :] == without
    assert within[place] == read(folder / "t.csv", HEADER + record)[0]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (LONG + "1,b\n2,b\n" * 9 + '",a\n', TOO_LONG),
        (LONG + '1,b\n""2"",b\n",a\n', TOO_LONG),
        (LONG + '1,b\n2,b""', TOO_LONG),
        ("x" * LIMIT + ",a\n", TOO_LONG),
        ('"' + "\n" * LIMIT + '",a\n', TOO_LONG),
        ('"x"y,a\n', DAMAGED),
        ('"x"y,"\n1,b\n2,b\n",a\n', DAMAGED),
        ('"x\n1,b\n2,b', DAMAGED),
    ],
)
def test_a_bad_record_of_csv_is_left_out_once(folder, record, reason):
    first = ("a", "first", "first")
    assert read(folder / "t.csv", f"{HEADER}first,a\n{record}") == [first, (None, reason, reason)]


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
        for record in open_source(path):  # two readers of the same kind, one within the other
            assert csv.field_size_limit() == 17
            found += [record.label, *(other.label for other in open_source(path))]
        assert found == ["b", "b", "d", "f", "d", "b", "d", "f", "f", "b", "d", "f"]
        assert csv.field_size_limit() == 17
    finally:
        csv.field_size_limit(before)


JSON = '{"text": "x", "label": "a"}\n'


@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_a_byte_order_mark_is_taken_away_wherever_files_were_joined(folder, suffix, monkeypatch):
    monkeypatch.setattr("dppl.embedding.lines.MOST_TEXT_BYTES", 100)
    lines = [MARK + (JSON.replace("x", text) if suffix == ".jsonl" else f"{text}\n") for text in "xyz"]
    path = folder / f"t{suffix}"
    bare = [line.removeprefix(MARK) for line in lines]
    assert read(path, "".join(lines)) == read(path, "".join(bare))
    assert read(path, "".join(lines[1:])) == read(path, "".join(lines))[1:]


def test_a_byte_order_mark_before_a_label_is_taken_away(folder):
    (folder / "labels.txt").write_text(f"{MARK}a\n{MARK}b\n{MARK} c \n{MARK}{MARK}d", encoding="utf-8")
    found = read(folder / "t.txt", "x\nx\nx\nx", labels=folder / "labels.txt")
    assert [label for label, *_ in found] == ["a", "b", "c", f"{MARK}d"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("mark", ["", MARK])
def test_the_longest_line_is_whole_and_a_longer_one_stays_too_long(folder, mark, end):
    longest = "x" * LIMIT
    assert read(folder / "t.txt", mark + longest + end)[0][1] == longest.encode()
    for text in (longest + "x", longest + "\rx", longest * 3):
        assert len(read(folder / "t.txt", mark + text + end)[0][1]) > LIMIT
