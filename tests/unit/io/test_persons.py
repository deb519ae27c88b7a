"""Ids of persons travel with their records: in every kind of source, whatever is left out, resumed or converted."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dppl.errors import InputError, ParameterError
from dppl.io import PERSON, Columns, convert_table, open_source, read_ids

from .conftest import TinyImages, TinyTexts, image_bytes

N = 11
EMPTY = 4  # the record that is left out
TEXTS = ["" if number == EMPTY else f"text {number}" for number in range(N)]
PERSONS = [f"Jane-Doe-{number % 3}" for number in range(N)]
KEPT = [person for number, person in enumerate(PERSONS) if number != EMPTY]


def write_csv(folder, persons=PERSONS):
    lines = [f"{text},a,{person}" for text, person in zip(TEXTS, persons, strict=True)]
    (folder / "t.csv").write_text("\n".join(["text,label,who", *lines]))
    return folder / "t.csv", {}


def write_jsonl(folder, persons=PERSONS):
    lines = [
        {"text": text, "label": "a", "who": person}
        for text, person in zip(TEXTS, persons, strict=True)
    ]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "t.jsonl", {}


def write_parquet(folder, persons=PERSONS):
    (folder / "shards").mkdir(exist_ok=True)
    for place, part in enumerate((slice(0, 5), slice(5, N))):
        columns = {
            "text": TEXTS[part],
            "label": ["a"] * len(TEXTS[part]),
            "who": persons[part],
        }
        pq.write_table(pa.table(columns), folder / "shards" / f"{place}.parquet")
        os.utime(folder / "shards" / f"{place}.parquet", (0, 0))
    return folder / "shards", {}


def write_listed_images(folder, persons=PERSONS):
    (folder / "photos").mkdir(exist_ok=True)
    for number in range(N):
        path = folder / "photos" / f"{number}.ppm"
        path.write_bytes(b"" if number == EMPTY else image_bytes(number, kind="PPM"))
        os.utime(path, (0, 0))
    rows = [f"{number}.ppm,a,{person}" for number, person in enumerate(persons)]
    (folder / "list.csv").write_text("\n".join(["file,label,who", *rows]))
    return folder / "photos", {"labels": folder / "list.csv"}


WRITERS = {
    "csv": (write_csv, TinyTexts),
    "jsonl": (write_jsonl, TinyTexts),
    "parquet": (write_parquet, TinyTexts),
    "listed images": (write_listed_images, TinyImages),
}


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.mark.parametrize("kind", WRITERS)
def test_persons_stay_with_their_records(kind, source, run, tmp_path):
    write, encoder = WRITERS[kind]
    path, options = write(source)
    options |= {"columns": Columns(person="who"), "shard_rows": 4}
    found = run(path, encoder(), **options)
    assert len(found.files) > 2
    assert found.columns[PERSON] == KEPT == read_ids(found.done.table, PERSON).tolist()
    assert b"Jane" not in found.done.report.read_bytes()
    # Without ids, all else is the same.
    without = run(path, encoder(), **options | {"columns": None}, out="without")
    assert without.columns == {
        name: column for name, column in found.columns.items() if name != PERSON
    }
    np.testing.assert_array_equal(np.asarray(without.table), np.asarray(found.table))
    # A torn run goes on to the same bytes.
    found.files[-1].unlink()
    again = run(path, encoder(), **options)
    assert again.done.is_new
    assert again.bytes == found.bytes


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("finished", [True, False])
def test_a_changed_person_is_noticed(kind, finished, source, run):
    """Else a table would hold the ids of that time, and a guarantee would protect other people."""
    write, encoder = WRITERS[kind]
    for persons in (PERSONS, [*PERSONS[:2], PERSONS[0], *PERSONS[3:]]):
        path, options = write(source, persons)
        options |= {"columns": Columns(person="who"), "shard_rows": 4}
        if persons == PERSONS:
            found = run(path, encoder(), **options)
            if not finished:
                found.files[-1].unlink()
        else:
            with pytest.raises(InputError, match="the source has changed since"):
                run(path, encoder(), **options)


def test_another_column_of_persons_is_another_source(source, run, texts):
    path, _ = write_csv(source)
    run(path, texts)
    with pytest.raises(ParameterError, match="begun with another source"):
        run(path, texts, columns=Columns(person="who"))


def test_json_lines_say_whose_they_are(source, run, texts):
    """The same person is a text or a whole number; null is missing, and no field at all is a mistake."""
    values = [
        "7",
        7,
        7.0,
        None,
        float("nan"),
        "",
        "\ud800",
        7.5,
        True,
        ["Jane"],
        {"Jane": 1},
    ]
    lines = [
        json.dumps({"text": f"text {place}", "label": "a", "who": one})
        for place, one in enumerate(values)
    ]
    (source / "t.jsonl").write_text("\n".join([*lines, '{"text": "no field"}']))
    found = run(source / "t.jsonl", texts, columns=Columns(person="who"))
    assert found.columns[PERSON] == ["7", "7", "7", None, None, ""]
    wrong = "its person id is neither a text nor a whole number"
    assert found.reasons == {
        "line 7": "its person id is not UTF-8",
        **{f"line {place}": wrong for place in range(8, 12)},
        "line 12": "it has no field for the id of its person",
    }
    assert b"Jane" not in found.done.report.read_bytes()


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (pa.array([2**64 - 1, None, 3], pa.uint64()), [2**64 - 1, None, 3]),
        (pa.array([1.0, None, float("inf")]), [1.0, None, float("inf")]),
        (pa.array([b"\xff", None, b"a"], pa.binary()), [b"\xff", None, b"a"]),
        (pa.array([b"\xff", None, b"a"], pa.binary(1)), [b"\xff", None, b"a"]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array(["a", None, "b"]).dictionary_encode(), ["a", None, "b"]),
        (pa.array(["a", None, "b"], pa.large_string()), ["a", None, "b"]),
    ],
    ids=lambda ids: str(ids.type) if isinstance(ids, pa.Array) else "",
)
def test_ids_in_parquet_keep_their_type(ids, kept, source, run, texts):
    pq.write_table(
        pa.table({"text": ["one", "two", "three"], "who": ids}), source / "t.parquet"
    )
    found = run(source / "t.parquet", texts, columns=Columns(person="who"))
    assert (
        read_ids(found.done.table, PERSON).tolist()
        == kept
        == read_ids(source / "t.parquet", "who").tolist()
    )


@pytest.mark.parametrize("kind", [pa.date32(), pa.list_(pa.int64()), pa.decimal128(3)])
def test_a_column_of_another_type_is_refused_before_a_record_is_read(kind, source):
    pq.write_table(
        pa.table({"text": ["one"], "who": pa.array([None], kind)}), source / "t.parquet"
    )
    with pytest.raises(
        InputError,
        match=r"^person must name one column of .* with integers, texts, bytes or floats",
    ) as refused:
        open_source(source / "t.parquet", columns=Columns(person="who"))
    assert refused.value.parameter == "person"


@pytest.mark.parametrize(
    ("name", "y"),
    [("t.csv", None), ("t.csv", "label"), ("t.jsonl", None), ("t.jsonl", "label")],
)
def test_labels_are_not_ids_of_persons(name, y, source):
    lines = {
        "t.csv": "text,label\none,a\n",
        "t.jsonl": '{"text": "one", "label": "a"}\n',
    }
    (source / name).write_text(lines[name])
    with pytest.raises(InputError, match="holds the labels; name another") as refused:
        open_source(source / name, columns=Columns(y=y, person="label"))
    assert refused.value.parameter == "person"


@pytest.mark.parametrize("name", ["t.txt", "photos"])
def test_a_source_without_columns_has_no_persons(name, source):
    (source / "t.txt").write_text("one\n")
    write_listed_images(source)
    with pytest.raises(
        ParameterError, match=r"^columns go with files that have columns"
    ):
        open_source(source / name, columns=Columns(person="who"))


@pytest.mark.parametrize("ids", [PERSONS, list(range(N))], ids=["texts", "numbers"])
def test_persons_are_kept_when_a_table_is_converted(ids, source, run, texts, tmp_path):
    path, _ = write_parquet(source, ids)
    found = run(path, texts, columns=Columns(person="who"), shard_rows=4)
    convert_table(found.done.table, tmp_path / "one.parquet", rows="int8")
    assert read_ids(tmp_path / "one.parquet", PERSON).tolist() == found.columns[PERSON]
    table = pq.read_table(tmp_path / "one.parquet")
    assert table.column_names == ["id", "reference", "y", PERSON, "x"]
    assert table.column("y").to_pylist() == found.labels
