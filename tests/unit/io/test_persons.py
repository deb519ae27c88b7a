"""Ids of persons travel with their records: in every kind of source, whatever is left out, resumed or converted."""

import datetime
import json
import os
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dppl.errors import InputError, ParameterError
from dppl.io import PERSON, Columns, convert_table, open_source, read_ids
from dppl.kernel.persons import id_text

from .conftest import TinyImages, TinyTexts, image_bytes

N = 11
EMPTY = 4  # the record that is left out
TEXTS = ["" if number == EMPTY else f"text {number}" for number in range(N)]
PERSONS = [f"Jane-Doe-{number % 3}" for number in range(N)]
WHO = uuid.UUID(int=5)
DAY = datetime.date(2024, 2, 29)
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
        -0.0,
        1e3,
        None,
        float("nan"),
        "",
        "\ud800",
        7.5,
        True,
        ["Jane"],
        {"Jane": 1},
        2.0**53,
    ]
    lines = [
        json.dumps({"text": f"text {place}", "label": "a", "who": one})
        for place, one in enumerate(values)
    ]
    # 2**53 and 2**53 + 1 are one float.
    (source / "t.jsonl").write_text("\n".join([*lines, '{"text": "no field"}']))
    found = run(source / "t.jsonl", texts, columns=Columns(person="who"))
    assert found.columns[PERSON] == ["7", "7", "7", "0", "1000", None, None, ""]
    wrong = "its person id is neither a text nor a whole number"
    assert found.reasons == {
        "line 9": "its person id is not UTF-8",
        **{f"line {place}": wrong for place in range(10, 14)},
        "line 14": "its person id is a float, which is not exact from 2**53 on",
        "line 15": "it has no field for the id of its person",
    }
    assert b"Jane" not in found.done.report.read_bytes()


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (pa.array([2**64 - 1, None, 3], pa.uint64()), [2**64 - 1, None, 3]),
        (pa.array([b"\xff", None, b"a"], pa.binary()), [b"\xff", None, b"a"]),
        (pa.array([b"\xff", None, b"a"], pa.binary(1)), [b"\xff", None, b"a"]),
        (pa.array(["a", None, "b"]).dictionary_encode(), ["a", None, "b"]),
        (pa.array(["a", None, "b"], pa.large_string()), ["a", None, "b"]),
        (pa.array(["a", None, "b"], pa.string_view()), ["a", None, "b"]),
        (pa.array(["a", None, "b"]).cast(pa.json_()), ["a", None, "b"]),
        (pa.array([b"\xff", None, b"a"], pa.binary_view()), [b"\xff", None, b"a"]),
        (pa.array([DAY, None, DAY]), ["2024-02-29", None, "2024-02-29"]),
        (pa.array([Decimal(2**70), None, Decimal(7)]), [str(2**70), None, "7"]),
        (pa.array([WHO.bytes, None, WHO.bytes], pa.uuid()), [str(WHO), None, str(WHO)]),
    ],
    ids=lambda ids: str(ids.type) if isinstance(ids, pa.Array) else "",
)
def test_ids_in_parquet_keep_their_value(ids, kept, source, run, texts):
    pq.write_table(
        pa.table({"text": ["one", "two", "three"], "who": ids}), source / "t.parquet"
    )
    found = run(source / "t.parquet", texts, columns=Columns(person="who"))
    assert (
        read_ids(found.done.table, PERSON).tolist()
        == kept
        == read_ids(source / "t.parquet", "who").tolist()
    )


NO_IDS = [
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.bool8(), pa.null()),
    *(pa.time32("s"), pa.duration("s"), pa.timestamp("s"), pa.timestamp("us", "UTC")),
    *(pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.decimal128(5, 2)),
    pa.dictionary(pa.int8(), pa.float64()),
]


@pytest.mark.parametrize("kind", NO_IDS, ids=str)
@pytest.mark.parametrize("role", ["person", "id"])
def test_a_column_of_another_type_is_refused_before_a_record_is_read(
    role, kind, source
):
    column = pa.array([None], kind.value_type if hasattr(kind, "index_type") else kind)
    column = column.dictionary_encode() if hasattr(kind, "index_type") else column
    pq.write_table(pa.table({"text": ["one"], "who": column}), source / "t.parquet")
    promise = rf"^{role} must name one column of .* with texts, integers, decimals"
    with pytest.raises(InputError, match=promise) as refused:
        open_source(source / "t.parquet", columns=Columns(**{role: "who"}))
    assert refused.value.parameter == role
    assert "cast it to text, or whole numbers to int64" in str(refused.value)
    with pytest.raises(InputError, match="cast it to text"):
        read_ids(source / "t.parquet", "who")


def test_ids_of_records_of_every_type_that_has_some_name_all_records(source):
    """Of bytes some would be no texts, and their records be skipped."""
    columns = {
        "day": pa.array([DAY, DAY]),
        "decimal": pa.array([Decimal(12), Decimal(13)]),
        "uuid": pa.array([WHO.bytes, WHO.bytes], pa.uuid()),
        "view": pa.array(["a", "b"], pa.string_view()),
        "number": pa.array([1, 2]),
    }
    path = source / "t.parquet"
    raw = pa.array([b"a", b"\xff"])
    pq.write_table(pa.table({"text": ["one", "two"], "raw": raw, **columns}), path)
    found = {
        name: [record.id for record in open_source(path, columns=Columns(id=name))]
        for name in columns
    }
    assert found == {
        "day": ["2024-02-29"] * 2,
        "decimal": ["12", "13"],
        "uuid": [str(WHO)] * 2,
        "view": ["a", "b"],
        "number": ["1", "2"],
    }
    with pytest.raises(
        InputError, match=r"id must name one column .* 'raw' holds binary"
    ):
        open_source(path, columns=Columns(id="raw"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([7]), pa.array(["007"])),
        (pa.array([7]), pa.array([7.0])),
        (pa.array(["a"]), pa.array([b"a"])),
        (pa.array([DAY]), pa.array(["2024-02-29"])),
    ],
    ids=lambda column: str(column.type),
)
def test_shards_hold_one_kind_of_ids(first, second, source, tmp_path):
    """Else somebody has an id in each: digits that one shard lost name another person."""
    x = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0]), 2)
    for name, column in (("a", first), ("b", second)):
        pq.write_table(pa.table({"x": x, PERSON: column}), source / f"{name}.parquet")
    with pytest.raises(InputError, match=r"one kind of ids|'person' holds double"):
        read_ids(source, PERSON)
    with pytest.raises(InputError, match="one kind of ids"):
        convert_table(source, tmp_path / "one.parquet")


def test_shards_may_hold_ids_of_one_kind_in_several_types(source):
    same = (
        pa.array(["a"]),
        pa.array(["a"]).dictionary_encode(),
        pa.array(["a"], "large_string"),
    )
    for place, column in enumerate(same):
        pq.write_table(pa.table({"who": column}), source / f"{place}.parquet")
    assert read_ids(source, "who").tolist() == ["a", "a", "a"]


def test_a_far_day_and_bytes_of_one_width_are_one_person_in_all_tables(source):
    days = np.array(["10183-09-21", "-2465-11-19"], "M8[D]")
    far = pa.array(days.astype(int).tolist(), pa.int32()).cast(pa.date32())
    short = [b"1", b"1\0a"]
    for name, columns in {
        "a": {"day": far, "short": pa.array(short)},
        "b": {"day": far, "short": pa.array([b"1\0\0", b"1\0a"], pa.binary(3))},
    }.items():
        pq.write_table(pa.table(columns), source / f"{name}.parquet")
    np.savez(source.parent / "t.npz", day=days, short=np.array(short))
    for name in ("day", "short"):
        once = [id_text(one) for one in read_ids(source.parent / "t.npz", name)]
        assert [id_text(one) for one in read_ids(source, name)] == 2 * once
        assert len(set(once)) == 2


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
