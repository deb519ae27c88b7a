"""Every kind of source yields its records in order, and a bad record costs no other."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from dppl.errors import InputError, ParameterError
from dppl.io import (
    Columns,
    convert_table,
    holds_embeddings,
    open_source,
    read_table,
)

from .conftest import image_bytes

SKIPPED = Draft202012Validator(
    json.loads(
        (Path(__file__).parents[3] / "docs" / "skipped.schema.json").read_text("utf-8")
    )
)
LONG = "long" * 100  # no file system takes it


def facts(source):
    return [(record.id, record.reference, record.label) for record in source]


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def folder(tmp_path):
    for place, name in enumerate(["cat/1.png", "cat/b/2.png", "dog/1.png"]):
        put(tmp_path / "photos" / name, image_bytes(place))
    return tmp_path / "photos"


def test_the_first_folder_of_an_image_is_its_class(folder, run, images):
    put(folder / ".hidden" / "x.png", b"")
    assert facts(open_source(folder)) == [
        ("cat/1.png", "cat/1.png", "cat"),
        ("cat/b/2.png", "cat/b/2.png", "cat"),
        ("dog/1.png", "dog/1.png", "dog"),
    ]
    found = run(folder, images)
    assert (found.ids, found.labels) == (
        ["cat/1.png", "cat/b/2.png", "dog/1.png"],
        ["cat", "cat", "dog"],
    )
    assert found.table.shape == (3, 12)


def test_a_file_beside_class_folders_is_left_out_and_a_flat_folder_has_no_labels(
    folder, run, images
):
    put(folder / "stray.png", image_bytes())
    assert run(folder, images).reasons == {"stray.png": "it lies in no class folder"}
    flat = run(folder / "dog", images, out="flat")
    assert (flat.ids, flat.labels) == (["1.png"], None)


def test_a_csv_file_of_labels_decides_which_images_are_read(
    folder, run, images, tmp_path
):
    rows = [
        "cat/1.png,3,ann",
        "dog/1.png,,bob",
        "../secret.png,1,c",
        "/etc/passwd,1,d",
        "no.png,1,e",
        "cat/1.png,4,f",
    ]
    rows += [f"{LONG},1,g", "nul\0.png,1,h"]
    labels = put(tmp_path / "labels.csv", "\n".join(["file,label,who", *rows]).encode())
    found = run(folder, images, labels=labels)
    assert (found.ids, found.labels) == (
        ["cat/1.png", "dog/1.png", "cat/1.png"],
        ["3", None, "4"],
    )
    assert found.reasons == {
        "../secret.png": "its path leads out of the folder",
        "/etc/passwd": "its path leads out of the folder",
        "no.png": "there is no such file, or its link leads nowhere",
        LONG: "it cannot be opened",
        "nul\0.png": "its path is none",
    }
    found = run(
        folder, images, out="with ids", labels=labels, columns=Columns(id="who")
    )
    assert found.ids == ["ann", "bob", "f"]
    assert found.columns["reference"] == ["cat/1.png", "dog/1.png", "cat/1.png"]


TEXTS = [
    "one",
    "two, with a comma",
    'three with a "quote"\nand a break',
    "vier mit Umlaut ü",
]


def test_csv(tmp_path, run, texts):
    lines = 'text,label\none,a\n"two, with a comma", b \n"three with a ""quote""\nand a break",\n\nvier mit Umlaut ü,a\n'
    found = run(put(tmp_path / "t.csv", b"\xef\xbb\xbf" + lines.encode()), texts)
    assert sorted(texts.prepared) == sorted(TEXTS)
    # A spreadsheet shows the blank line as an empty row.
    assert (found.ids, found.labels) == (["1", "2", "3", "5"], ["a", "b", None, "a"])


def test_a_bad_row_of_a_csv_file_costs_no_other(tmp_path, run, texts):
    rows = [
        b"id,body,label",
        b"1,good,a",
        b"3,too,many,fields",
        b"4,",
        b"5,  ,a",
        b'6,"odd" quote,a',
        b"1,same id,a",
        b",no id,a",
        b"8,nul \0,a",
        b"9,good three,b",
        b'10,"never closed,b',
        b"11,swallowed,b",
    ]
    found = run(
        put(tmp_path / "t.csv", b"\n".join(rows)),
        texts,
        columns=Columns("body", "label", "id"),
    )
    assert found.ids == ["1", "1", "9"]
    assert found.reasons == {
        "row 2": "its row and the header have different numbers of cells: 4 and 3",
        "row 3": "its row and the header have different numbers of cells: 2 and 3",
        "row 4": "it is empty",
        "row 5": "its row has a misplaced quote (lines lost after it: 0)",
        "row 7": "its id is empty",
        "row 8": "it is not a text: it holds NUL characters",
        "row 10": "its row opens a quote that never closes (lines lost after it: 1)",
    }
    lines = [found.notice, *found.left_out, found.totals]
    assert all(map(SKIPPED.is_valid, lines))
    # The control: a reason in words.
    assert not SKIPPED.is_valid({**found.left_out[0], "reason": "it is empty"})
    assert found.totals["embedded"] == 3


def test_tsv_and_long_fields(tmp_path, run, texts):
    long = "word " * 50_000
    found = run(
        put(tmp_path / "t.tsv", f"text\tlabel\na, b\tx\n{long}\ty\n".encode()), texts
    )
    assert found.labels == ["x", "y"]
    assert long in texts.prepared


def test_json_lines(tmp_path, run, texts):
    lines = [
        b'{"text": "one", "label": 7, "more": [1]}',
        b"",
        b'{"text": "two", "label": "dog"}',
        b'{"text": "three"}',
        b"{broken",
        b'["a list"]',
        b'{"text": 5, "label": "dog"}',
        b'{"label": "dog"}',
        b'{"text": "\\ud800", "label": "dog"}',
        b'{"text": "four", "label": [1]}',
        b'{"text": "five", "label": 7.0}',
        b'{"text": "six", "label": 1.5}',
        b'{"text": "seven", "label": true}',
        b'{"text": "eight", "label": {"a": 1}}',
        b'{"text": "nine", "label": ["dog", 7.0]}',
        b'{"text": "ten", "label": []}',
    ]
    found = run(put(tmp_path / "t.jsonl", b"\n".join(lines)), texts)
    assert found.ids == ["1", "3", "4", "10", "11", "12", "13", "15", "16"]
    # As a workbook shows them: a label of another type is unknown, and no fit is left
    # without records. Labels in a list are one text.
    assert found.labels == [*["7", "dog", None, "1", "7", "1.5", "TRUE", "dog;7", None]]
    assert list(found.reasons.values()) == [
        *["its line is not a JSON object"] * 2,
        *["it has no text"] * 2,
        "it is not UTF-8",
        "its label is neither a text nor an integer",
    ]


def test_a_text_a_line(tmp_path, run, texts):
    text = put(tmp_path / "t.txt", b"\xef\xbb\xbfone\r\n\ntwo\n\0\nthree")
    found = run(text, texts)
    assert (found.ids, found.labels) == (["1", "3", "5"], None)
    assert sorted(texts.prepared) == ["one", "three", "two"]
    assert found.reasons == {
        "line 2": "it is empty",
        "line 4": "it is not a text: it holds NUL characters",
    }


def test_a_line_that_is_too_long_costs_no_other(tmp_path, run, texts, monkeypatch):
    for module in ("lines", "decoding"):
        monkeypatch.setattr(f"dppl.io.records.{module}.MOST_TEXT_BYTES", 20)
    found = run(
        put(
            tmp_path / "t.txt",
            b"short\n" + b"x" * 90 + b"\nlast\n" + "ü".encode() * 10 + b"\n",
        ),
        texts,
    )
    assert found.ids == ["1", "3", "4"]
    assert found.reasons == {"line 2": "it is longer than 20 bytes"}


def test_parquet_texts_with_bytes_that_are_no_text(tmp_path, run, texts):
    column = pa.StringArray.from_buffers(
        3, *pa.array([b"one", b"\xff", b"four"]).buffers()[1:]
    )
    pq.write_table(
        pa.table({"sentence": column, "label": pa.array([3, None, 2**40])}),
        tmp_path / "t.parquet",
    )
    found = run(tmp_path / "t.parquet", texts)
    assert (found.ids, found.labels, found.table.y.dtype) == (
        ["1", "3"],
        [3, 2**40],
        np.int64,
    )
    assert found.reasons == {"row 2": "it is not UTF-8"}


@pytest.mark.parametrize("as_struct", [False, True])
def test_parquet_images_in_a_folder_of_files(as_struct, tmp_path, run, images):
    (tmp_path / "shards").mkdir()
    for number in range(2):
        content = [image_bytes(number), None, b"no image"]
        if as_struct:
            content = [{"bytes": each, "path": None} for each in content]
        labels = pa.array(["a", None, "b"]).dictionary_encode()
        pq.write_table(
            pa.table({"image": content, "label": labels}),
            tmp_path / "shards" / f"{number}.parquet",
        )
    found = run(tmp_path / "shards", images)
    assert (found.ids, found.labels) == (["1", "4"], ["a", "a"])
    assert sorted(found.reasons.values()) == [
        *["it is missing"] * 2,
        *["it is not an image of a known format"] * 2,
    ]


def test_parquet_columns_of_other_types_are_refused(tmp_path):
    pq.write_table(
        pa.table({"text": [1.5], "t": ["a"], "label": [0.5]}), tmp_path / "t.parquet"
    )
    with pytest.raises(
        InputError,
        match=r"^x must name one column of .* with texts, or bytes of images; 'text' holds double",
    ):
        open_source(tmp_path / "t.parquet")
    with pytest.raises(
        InputError,
        match=r"^y must name one column of .* with integers or texts, or several labels in a text, .*; 'label' holds double",
    ):
        open_source(tmp_path / "t.parquet", columns=Columns("t"))
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="must be a Parquet file"):
        open_source(tmp_path / "t.parquet")


def test_the_kind_is_recognised_or_forced(tmp_path):
    put(tmp_path / "log", b"a text\n")
    with pytest.raises(InputError, match=r"^kind must say what"):
        open_source(tmp_path / "log")
    assert facts(open_source(tmp_path / "log", kind="text")) == [("1", "line 1", None)]
    with pytest.raises(ParameterError, match="kind must be one of"):
        open_source(tmp_path / "log", kind="words")
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        open_source(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("t.csv", {"labels": "y.txt"}, "^labels goes with images"),
        (
            "t.txt",
            {"columns": Columns(x="text")},
            "^columns go with files that have columns",
        ),
        (
            "photos",
            {"columns": Columns(y="label")},
            "^columns go with files that have columns",
        ),
        ("t.csv", {"kind": "images"}, "^kind must be another .*, which is a file"),
        (
            "t.csv",
            {"columns": Columns(y="kind")},
            "^y must be one column of .*; got 'kind'; row 1, taken as the header, has 'text', 'label'; if row 2 is, "
            "add header=2",
        ),
        (
            "other.csv",
            {},
            "^x must name the column of .* with the text or image; row 1, taken as the header, has none",
        ),
        ("empty.csv", {}, "is empty; its first line must name the columns"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, message, tmp_path, folder):
    put(tmp_path / "t.csv", b"text,label\nx,y\n")
    put(tmp_path / "t.txt", b"x\n")
    put(tmp_path / "y.txt", b"x\n")
    put(tmp_path / "other.csv", b"a,b\n")
    put(tmp_path / "empty.csv", b"")
    put(tmp_path / "empty.jsonl", b"")
    with pytest.raises((InputError, ParameterError), match=message):
        open_source(tmp_path / name, **options)


def test_one_image_is_a_source(folder, run, images):
    found = run(folder / "cat" / "1.png", images)
    assert (found.ids, found.reasons) == (["1.png"], {})
    np.testing.assert_array_equal(
        np.asarray(found.table), np.asarray(run(folder, images, out="all").table)[:1]
    )


def test_a_linked_class_folder_is_followed_and_a_loop_is_not(folder, run, images):
    os.symlink(folder / "dog", folder / "wolf")
    os.symlink("..", folder / "cat" / "up")
    os.symlink("self", folder / "cat" / "self")
    os.symlink("nowhere", folder / "cat" / "dangling")
    found = run(folder, images)
    assert found.ids == ["cat/1.png", "cat/b/2.png", "dog/1.png", "wolf/1.png"]
    assert found.reasons == {
        "cat/dangling": "there is no such file, or its link leads nowhere",
        "cat/self": "it is a loop of symbolic links",
        "cat/up": "it is a loop of symbolic links",
    }


def test_a_file_name_that_is_no_utf_8_is_a_record_like_any_other(folder, run, images):
    (folder / "cat" / os.fsdecode(b"\xff.png")).write_bytes(image_bytes(5))
    (folder / os.fsdecode(b"\xfe")).mkdir()
    (folder / os.fsdecode(b"\xfe") / "x.png").write_bytes(image_bytes(6))
    found = run(folder, images)
    assert "cat/\\xff.png" in found.ids
    assert found.reasons == {"\\xfe/x.png": "its label is not UTF-8"}


def test_forged_ids_push_out_no_record_of_others(tmp_path, run, texts):
    """A person more, whose records come first, adds these and takes none of the others away."""
    others = [
        json.dumps({"id": number, "text": f"text {number}"}) for number in range(400)
    ]
    forged = [
        json.dumps({"id": number, "text": f"forged {number}"}) for number in range(40)
    ]
    found = [
        run(
            put(tmp_path / f"{out}.jsonl", "\n".join(lines).encode()),
            texts,
            columns=Columns(id="id"),
            out=out,
        )
        for out, lines in (("with", forged + others), ("without", others))
    ]
    assert found[0].ids[40:] == found[1].ids == [str(number) for number in range(400)]
    of_all, of_others = (np.concatenate(list(one.table.blocks(500))) for one in found)
    assert (of_all[40:] == of_others).all()
    assert found[0].totals == {"records": 440, "embedded": 440, "skipped": []}


def test_no_line_of_json_names_the_columns_of_others(tmp_path):
    lines = [
        {"sentence": f"t{i}", "labels": "a", "text": f"u{i}", "label": "b"}
        for i in range(3)
    ]
    names = [
        json.dumps({key: line[key] for key in ("text", "label")}) for line in lines
    ]
    without = facts(open_source(put(tmp_path / "a.jsonl", "\n".join(names).encode())))
    odd = json.dumps({"sentence": "x", "labels": "y"})
    added = open_source(put(tmp_path / "b.jsonl", "\n".join([*names, odd]).encode()))
    assert facts(added)[:3] == without
    assert added.parameters == open_source(tmp_path / "a.jsonl").parameters
    first = open_source(put(tmp_path / "c.jsonl", "\n".join([odd, *names]).encode()))
    assert [label for *_, label in facts(first)] == [None, "b", "b", "b"]


@pytest.mark.parametrize("name", ["upload.parquet"])
def test_one_file_does_not_turn_a_folder_of_images_into_something_else(
    folder, name, tmp_path
):
    flat = tmp_path / "flat"
    for place in range(3):
        put(flat / f"{place}.png", image_bytes(place))
    put(flat / name, b"")
    with pytest.raises(InputError, match=r"^kind must say what"):
        open_source(flat)
    assert [record.id for record in open_source(flat, kind="images")][:3] == [
        "0.png",
        "1.png",
        "2.png",
    ]
    put(folder / name, b"")
    with pytest.raises(InputError, match=r"^kind must say what"):
        open_source(folder)


def test_a_file_without_a_header_is_not_quoted(tmp_path):
    path = put(tmp_path / "mails.csv", b"Jane Doe is ill,spam\nhello,ham\n")
    with pytest.raises(InputError, match=r"see its names with header=1\.$") as caught:
        open_source(path)
    assert "Jane" not in str(caught.value)
    # Whoever names the row says that it is no record.
    with pytest.raises(InputError, match="has 'Jane Doe is ill', 'spam'"):
        open_source(path, header=1)


def test_extension_types_and_views_are_what_they_store(tmp_path):
    """JSON and views are texts, a UUID is none, and a tensor is a row of its numbers."""
    path = tmp_path / "t.parquet"
    texts = pa.array(["one", None, "three"])
    for kind in (pa.json_(), pa.string_view(), pa.large_string()):
        labels = pa.array(["a", "b", "a"]).cast(kind)
        pq.write_table(pa.table({"text": texts.cast(kind), "label": labels}), path)
        source = open_source(path)
        assert [one.label for one in source] == ["a", "b", "a"]
        assert source.modality == "text"
        assert [one.load() for one in source if one.reference != "row 2"] == [
            b"one",
            b"three",
        ]
    pq.write_table(pa.table({"image": pa.array([b"png"], pa.binary_view())}), path)
    assert [one.load() for one in open_source(path)] == [b"png"]
    uuids = pa.array([bytes(16)], pa.uuid())
    pq.write_table(pa.table({"text": ["a"], "label": uuids}), path)
    with pytest.raises(
        InputError, match=r"y must name one column .* holds extension<arrow.uuid>"
    ):
        open_source(path)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(rows)
    pq.write_table(pa.table({"x": tensor, "id": ["a", "b"]}), path)
    assert holds_embeddings(path)
    assert np.array_equal(read_table(path), rows)
    convert_table(path, tmp_path / "out.parquet")
    assert np.array_equal(read_table(tmp_path / "out.parquet"), rows)
    pq.write_table(
        pa.table({"x": tensor, "nr": pa.array([bytes(16)] * 2, pa.uuid())}), path
    )
    convert_table(path, tmp_path / "out.parquet", ids="nr")
    assert (
        read_table(tmp_path / "out.parquet").ids
        == ["00000000-0000-0000-0000-000000000000"] * 2
    )
