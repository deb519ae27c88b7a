import io
import os
import re
import stat
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dppl.errors import InputError, ParameterError
from dppl.io import EmbeddingTable, read_classes, read_table, write_table
from dppl.io.records.labels import stored_labels
from dppl.io.tables.fragments import _parquet_rows
from dppl.kernel.reading import class_codes
from dppl.lab import long_tailed

SECRET = "topsecret"  # stands for private data: no message may show it
N = 1237  # so does the number of rows
FLOATS = ["float16", "float32", "float64"]
TYPES = [*FLOATS, "int8"]
# One folder serves all examples of a property; each example writes its files anew.
SAME_FOLDER = settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def rows_of(n, d, dtype="float32", seed=0):
    return (np.random.default_rng(seed).normal(size=(n, d)) * 20).astype(dtype)


def arrow_rows(rows, kind="fixed"):
    """`rows` as an Arrow array; rows or entries that are None become nulls."""
    value = (
        pa.from_numpy_dtype(rows.dtype)
        if isinstance(rows, np.ndarray)
        else pa.float32()
    )
    lists = {
        "fixed": pa.list_(value, len(rows[0])),
        "list": pa.list_(value),
        "large": pa.large_list(value),
    }
    return pa.array(list(rows), type=lists[kind])


def save_parquet(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return path


def refused(call, *texts, error=InputError):
    """Assert that `call` is refused in one line that shows the texts and no private data; return the line."""
    with pytest.raises(error) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert line.count(";") >= 2, line  # what must hold; what was got; what to do
    assert SECRET not in line
    assert str(N) not in line
    assert caught.value.__cause__ is None  # its text might show data
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for text in texts:
        assert text in line
    return line


# --- reading rows in blocks
# ------------------------------------------------------------------------------------------


def store(folder, form, rows):
    """Write rows in one of the forms that `read_table` reads."""
    path = folder / f"rows.{form.split('-')[0]}"
    if form == "npy":
        np.save(path, rows)
    elif form == "npy-fortran":
        np.save(path, np.asfortranarray(rows))
    elif form == "npy-swapped":
        np.save(path, rows.astype(rows.dtype.newbyteorder(">")))
    elif form == "npz":
        np.savez_compressed(path, x=rows)
    else:
        save_parquet(
            path, {"x": arrow_rows(rows, form.split("-")[1])}, row_group_size=7
        )
    return path


FORMS = [
    "npy",
    "npy-fortran",
    "npy-swapped",
    "npz",
    "parquet-fixed",
    "parquet-list",
    "parquet-large",
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_and_type_reads_back(tmp_path, form, dtype):
    rows = rows_of(23, 5, dtype)
    table = read_table(store(tmp_path, form, rows))
    assert table.shape == (23, 5)
    assert len(table) == 23
    assert table.dtype == np.dtype(dtype)
    assert table.y is None
    assert table.metadata == {}
    assert np.array_equal(table, rows)
    for size in (1, 4, 7, 23, 1000):
        blocks = list(table.blocks(size))
        assert [len(block) for block in blocks] == [size] * (23 // size) + [
            23 % size
        ] * (23 % size > 0)
        assert all(
            block.flags.c_contiguous and block.dtype == np.dtype(dtype)
            for block in blocks
        )
        assert np.array_equal(np.concatenate(blocks), rows)


@pytest.mark.slow
@SAME_FOLDER
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    group=st.integers(1, 50),
    size=st.integers(1, 90),
    batch=st.integers(1, 60),
)
def test_blocks_of_shards_equal_the_array(
    tmp_path, monkeypatch, counts, group, size, batch
):
    monkeypatch.setattr("dppl.io.tables.fragments._BATCH_ROWS", batch)
    folder = tmp_path / "shards"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    rows = rows_of(sum(counts), 3)
    labels = np.arange(len(rows))
    for place, (part, names) in enumerate(
        zip(
            np.split(rows, np.cumsum(counts)[:-1]),
            np.split(labels, np.cumsum(counts)[:-1]),
            strict=True,
        )
    ):
        values = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), 3)
        save_parquet(
            folder / f"{place}.parquet", {"x": values, "y": names}, row_group_size=group
        )
    table = read_table(folder)
    assert table.shape == rows.shape
    assert np.array_equal(table.y, labels)
    assert np.array_equal(table.to_array(), rows)
    blocks = list(table.blocks(size))
    full, rest = divmod(len(rows), size)
    assert [len(block) for block in blocks] == [size] * full + [rest] * (rest > 0)
    assert np.array_equal(np.concatenate([*blocks, rows[:0]]), rows)


def test_a_table_without_rows_has_no_blocks(tmp_path):
    for name in ("a.npz", "a.parquet"):
        write_table(
            tmp_path / name, np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
        )
    np.save(tmp_path / "a.npy", np.zeros((0, 4), np.float32))
    for name in ("a.npz", "a.parquet", "a.npy"):
        table = read_table(tmp_path / name)
        assert table.shape == (0, 4)
        assert list(table.blocks(3)) == []
        assert np.asarray(table).shape == (0, 4)


def test_npy_rows_are_mapped_and_read_only(tmp_path):
    table = read_table(store(tmp_path, "npy", rows_of(5, 2)))
    rows = table.to_array()
    assert isinstance(rows, np.memmap)
    assert not rows.flags.writeable


def test_one_large_row_group_is_streamed(tmp_path):
    """The pool holds a few batches, never the row group of 16 MB."""
    rows = rows_of(65536, 64)
    save_parquet(tmp_path / "a.parquet", {"x": arrow_rows(rows)}, use_dictionary=False)
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 1
    table = read_table(tmp_path / "a.parquet")
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in table.blocks(512))
    assert most < rows.nbytes / 2


def test_blocks_can_be_left_early_and_started_again(tmp_path):
    rows = rows_of(23, 5)
    table = read_table(store(tmp_path, "parquet-fixed", rows))
    first = next(table.blocks(4))
    assert np.array_equal(first, rows[:4])
    assert np.array_equal(np.concatenate(list(table.blocks(4))), rows)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "5"])
@pytest.mark.parametrize("form", ["npy", "parquet-fixed"])
def test_block_size_is_a_positive_integer(tmp_path, form, size):
    table = read_table(store(tmp_path, form, rows_of(3, 2)))
    with pytest.raises(
        ParameterError,
        match=re.escape(f"size must be an integer of at least 1; got {size!r}"),
    ):
        next(table.blocks(size))
    assert len(next(table.blocks(np.int64(2)))) == 2


def test_numpy_functions_accept_a_table(tmp_path):
    rows = rows_of(9, 4)
    table = read_table(store(tmp_path, "parquet-fixed", rows))
    assert np.array_equal(np.asarray(table, dtype=np.float64), rows.astype(np.float64))
    assert np.allclose(np.linalg.norm(table, axis=1), np.linalg.norm(rows, axis=1))
    copy = np.array(read_table(store(tmp_path, "npy", rows)))
    assert copy.flags.writeable


def test_repr_shows_neither_labels_nor_row_count(tmp_path):
    write_table(tmp_path / "a.npz", rows_of(N, 3), [SECRET] * N)
    write_table(tmp_path / "i.npz", rows_of(N, 3), [7] * N)
    # One for both types: which one it is may depend on one record.
    assert repr(read_table(tmp_path / "i.npz")) == repr(read_table(tmp_path / "a.npz"))
    assert (
        repr(read_table(tmp_path / "a.npz"))
        == "<EmbeddingTable: rows of 3 float32, with labels>"
    )
    assert (
        repr(read_table(tmp_path / "a.npz", y=None))
        == "<EmbeddingTable: rows of 3 float32, without labels>"
    )


# --- bad records stay silent
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
@pytest.mark.parametrize("dtype", TYPES)
def test_nulls_make_their_row_nan_and_leave_the_others(tmp_path, dtype, kind):
    good = rows_of(40, 3, dtype)
    value = pa.from_numpy_dtype(good.dtype)
    type_ = {
        "fixed": pa.list_(value, 3),
        "list": pa.list_(value),
        "large": pa.large_list(value),
    }[kind]
    records = [list(row) for row in good]
    null_lists = [0, 5, 6, 39]
    null_entries = [1, 17]
    for place in null_lists:
        records[place] = None
    for place in null_entries:
        records[place][place % 3] = None
    save_parquet(
        tmp_path / "a.parquet", {"x": pa.array(records, type=type_)}, row_group_size=9
    )
    table = read_table(tmp_path / "a.parquet")
    expected = good.copy()
    expected[null_lists + null_entries] = 0 if dtype == "int8" else np.nan
    assert table.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(table.to_array(), expected)
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(4))), expected)


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_slice_of_arrow_lists_gives_its_own_rows(dtype, kind):
    """Parquet gives whole arrays, but nothing in Arrow promises that."""
    rows = rows_of(9, 3, dtype)
    part = arrow_rows(rows, kind).slice(4, 3)
    assert np.array_equal(_parquet_rows(part, 3, rows.dtype), rows[4:7])


@pytest.mark.parametrize("kind", ["list", "large"])
def test_width_is_found_behind_nulls(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("dppl.io.tables.fragments._BATCH_ROWS", 2)
    records = [None] * 5 + [[1.0, 2.0]]
    type_ = pa.list_(pa.float32()) if kind == "list" else pa.large_list(pa.float32())
    save_parquet(tmp_path / "a.parquet", {"x": pa.array(records, type=type_)})
    table = read_table(tmp_path / "a.parquet")
    assert table.shape == (6, 2)
    assert np.isnan(table.to_array()[:5]).all()
    assert table.to_array()[5].tolist() == [1, 2]


def test_missing_labels_become_labels_of_no_class(tmp_path):
    x = arrow_rows(rows_of(3, 2))
    save_parquet(
        tmp_path / "i.parquet", {"x": x, "y": pa.array([4, None, 2], pa.int16())}
    )
    save_parquet(tmp_path / "s.parquet", {"x": x, "y": pa.array(["a", None, "b"])})
    integers = read_table(tmp_path / "i.parquet").y
    strings = read_table(tmp_path / "s.parquet").y
    assert integers.dtype == np.int64
    assert integers.tolist() == [4, np.iinfo(np.int64).min, 2]
    assert strings.tolist() == ["a", "", "b"]


def assert_texts(labels, expected):
    """Assert that labels are str objects: of another type, one long label would widen all others."""
    assert isinstance(labels, np.ndarray)
    assert labels.dtype == object
    assert labels.tolist() == expected
    assert {type(label) for label in labels} == {str} or not expected


# --- names, labels, metadata
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ("x", "y"),
        ("X", "label"),
        ("embedding", "label"),
        ("embeddings", "labels"),
        ("x", "labels"),
    ],
)
@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_default_names_have_others_in_their_place(tmp_path, suffix, x, y):
    rows = rows_of(4, 2)
    labels = np.arange(4)
    path = tmp_path / f"a.{suffix}"
    if suffix == "npz":
        np.savez(path, **{x: rows, y: labels, "other": rows})
    else:
        save_parquet(path, {x: arrow_rows(rows), y: labels, "other": arrow_rows(-rows)})
    table = read_table(path)
    assert np.array_equal(table, rows)
    assert np.array_equal(table.y, labels)


def test_given_names_are_taken_literally(tmp_path):
    rows = rows_of(4, 2)
    np.savez(
        tmp_path / "a.npz",
        x=rows,
        mine=-rows,
        y=np.zeros(4, int),
        coarse=np.ones(4, int),
    )
    table = read_table(tmp_path / "a.npz", x="mine", y="coarse")
    assert np.array_equal(table, -rows)
    assert table.y.tolist() == [1] * 4
    np.savez(tmp_path / "b.npz", embedding=rows, label=np.zeros(4, int))
    refused(
        lambda: read_table(tmp_path / "b.npz", x="mine"),
        "'mine'",
        "'embedding', 'label'",
        "x must name",
    )
    refused(lambda: read_table(tmp_path / "b.npz", y="fine"), "'fine'", "y must name")
    assert read_table(tmp_path / "b.npz", y=None).y is None


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"], pa.large_string()),
        pa.array(["b", "a", "b"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_parquet_string_labels(tmp_path, column):
    save_parquet(tmp_path / "a.parquet", {"x": arrow_rows(rows_of(3, 2)), "y": column})
    assert_texts(read_table(tmp_path / "a.parquet").y, ["b", "a", "b"])


@pytest.mark.parametrize(
    "type_", [pa.int8(), pa.uint16(), pa.int64(), pa.uint64()], ids=str
)
def test_parquet_integer_labels(tmp_path, type_):
    save_parquet(
        tmp_path / "a.parquet",
        {"x": arrow_rows(rows_of(3, 2)), "y": pa.array([1, 0, 1]).cast(type_)},
    )
    labels = read_table(tmp_path / "a.parquet").y
    assert labels.dtype == np.int64
    assert labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("l.txt", b"3\n1\n-2\n", ["3", "1", "-2"]),
        ("l.txt", b"3\r\n1\r\n-2", ["3", "1", "-2"]),
        ("l.TXT", b"cat\n  dog \nboth, really", ["cat", "dog", "both, really"]),
        ("l.txt", b"\xef\xbb\xbf3\n1\n2\n", ["3", "1", "2"]),
        ("l.txt", b"3\n\n2\n", ["3", "", "2"]),
        ("l.txt", b"3\n2\n\n", ["3", "2", ""]),
        ("l.txt", b"01\n02\n03\n", ["01", "02", "03"]),
        ("l.txt", b"1\n2\n99999999999999999999\n", ["1", "2", "99999999999999999999"]),
        ("l.txt", "é\n\u2028\u2028x\nb\x0cc\n".encode(), ["é", "x", "b\x0cc"]),
        ("l.txt", b"1\na\rb\n2\n", ["1", "a\rb", "2"]),
        (
            "l.txt",
            b'"a"\n"b\nc"\n',
            ['"a"', '"b', 'c"'],
        ),  # as `read_classes` reads them
    ],
)
@pytest.mark.parametrize("form", ["npy", "npz", "parquet-fixed"])
def test_text_labels_go_with_every_form(tmp_path, form, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert_texts(
        read_table(store(tmp_path, form, rows_of(3, 2)), labels=tmp_path / name).y,
        expected,
    )


@pytest.mark.parametrize("name", ["l.txt"])
def test_an_empty_label_file_goes_with_no_rows(tmp_path, name):
    np.save(tmp_path / "a.npy", rows_of(0, 2))
    (tmp_path / name).touch()
    assert_texts(read_table(tmp_path / "a.npy", labels=tmp_path / name).y, [])


def test_a_label_file_overrides_the_labels_of_the_table(tmp_path):
    write_table(tmp_path / "a.parquet", rows_of(3, 2), [0, 0, 0])
    np.save(tmp_path / "l.npy", np.array([1, 2, 3], dtype=">i2"))
    labels = read_table(tmp_path / "a.parquet", labels=tmp_path / "l.npy").y
    assert labels.dtype == np.dtype(np.int64)
    assert labels.tolist() == [1, 2, 3]


def test_shards_come_in_the_order_of_their_names(tmp_path):
    rows = rows_of(6, 2)
    for name, part in (("b", rows[2:4]), ("a", rows[:2]), ("c", rows[4:])):
        write_table(
            tmp_path / f"{name}.parquet", part, metadata={"encoder": "e", "shard": name}
        )
    (tmp_path / "_metadata.parquet").write_bytes(b"junk")
    (tmp_path / ".hidden.parquet").write_bytes(b"junk")
    (tmp_path / "readme.txt").write_text("junk")
    table = read_table(tmp_path)
    assert np.array_equal(table, rows)
    assert table.metadata == {"encoder": "e"}


def test_what_one_shard_does_not_cover_the_table_does_not(tmp_path):
    for name, metadata in (
        ("a", {"encoder": "e"}),
        ("b", {"encoder": "e", "not_covered": "rounding"}),
    ):
        write_table(tmp_path / f"{name}.parquet", rows_of(3, 2), metadata=metadata)
    assert read_table(tmp_path).metadata == {"encoder": "e", "not_covered": "rounding"}


def test_ids_are_those_of_the_rows_in_order(tmp_path):
    for name, ids in (("b", ["x", "y"]), ("a", ["4711"])):
        save_parquet(
            tmp_path / f"{name}.parquet",
            {"x": arrow_rows(rows_of(len(ids), 2)), "id": ids},
        )
    assert read_table(tmp_path).ids == ["4711", "x", "y"]
    assert read_table(tmp_path / "a.parquet").ids == ["4711"]


@pytest.mark.parametrize(
    "column",
    [None, [1, 2, 3], ["a", None, "c"], [b"a", b"b", b"c"]],
    ids=["none", "integers", "null", "bytes"],
)
def test_rows_without_a_text_each_have_no_ids(column, tmp_path):
    columns = {"x": arrow_rows(rows_of(3, 2))} | (
        {} if column is None else {"id": column}
    )
    assert read_table(save_parquet(tmp_path / "a.parquet", columns)).ids is None


def test_ids_that_cannot_be_read_are_an_error_without_them(tmp_path):
    columns = {
        "x": arrow_rows(rows_of(N, 2)),
        "id": [SECRET + str(number) for number in range(N)],
    }
    path = save_parquet(
        tmp_path / "a.parquet", columns, compression="none", use_dictionary=False
    )
    table = read_table(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(SECRET.encode(), b"\xff" * len(SECRET)))
    refused(lambda: table.ids, "column 'id' must be readable")


@pytest.mark.parametrize("name", ["l.txt"])
def test_labels_in_another_encoding_are_refused_and_not_replaced(tmp_path, name):
    (tmp_path / name).write_bytes("cat\ngröße\n".encode("latin-1"))
    path = store(tmp_path, "npy", rows_of(2, 2))
    refused(
        lambda: read_table(path, labels=tmp_path / name),
        f"{name} must be a UTF-8 text file",
        "save it as UTF-8",
    )


def test_a_table_of_an_array():
    rows = rows_of(3, 2)
    table = EmbeddingTable.of(rows, metadata={"encoder": "e"})
    assert (table.shape, table.dtype, table.y, table.ids) == (
        (3, 2),
        np.float32,
        None,
        None,
    )
    np.testing.assert_array_equal(np.asarray(table), rows)
    np.testing.assert_array_equal(np.concatenate(list(table.blocks(2))), rows)
    assert table.metadata == {"encoder": "e"}
    assert EmbeddingTable.of(rows, np.arange(3)).y.tolist() == [0, 1, 2]
    assert EmbeddingTable.of(rows).metadata == {}
    for other in (rows[0], rows.astype(str), rows[None]):
        with pytest.raises(InputError):
            EmbeddingTable.of(other)


# --- one odd label changes nothing about the others
# -----------------------------------------------------------------


LONG = 2_000_000
ODD = {
    "word": SECRET.encode(),
    "comma": b"1,2",
    "semicolon": b"1;2",
    "open quote": b'"1',
    "close quote": b'1"',
    "lone quote": b'"',
    "quoted": b'"1"',
    "empty": b"",
    "blank": b" \t",
    "NUL": b"\0",
    "carriage return": b"1\r2",
    "form feed": b"1\x0c2",
    "line separator": "1\u20282\x852".encode(),
    "byte order mark": b"\xef\xbb\xbf1",
    "10**30": str(10**30).encode(),
    "2**63": str(2**63).encode(),
    "2**64 - 1": str(2**64 - 1).encode(),
    "many digits": b"1" * 10_000,
    "float": b"1.5",
    "NaN": b"nan",
    "padded": b"007",
    "long": b"x" * 1_000_000,
}
USUAL = {
    "integers": ["3", "-1", "0", "3", "12"],
    "words": ["cat", "dog", "both, really", "größe", "cat"],
}


def codes_of(labels, classes):
    return class_codes(labels, np.array(classes), "ignore")


def labels_of_text(folder, suffix, contents):
    """The labels that `read_table` reads from lines of bytes, or from the column or array that holds them."""
    path = folder / f"l{suffix}"
    rows = rows_of(len(contents), 2)
    if suffix == ".parquet":
        offsets = np.cumsum([0, *map(len, contents)]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(contents))]
        column = pa.Array.from_buffers(pa.string(), len(contents), buffers)
        save_parquet(path, {"x": arrow_rows(rows), "y": column})
        return read_table(path).y
    np.save(folder / "a.npy", rows)
    path.write_bytes(b"".join(content + b"\n" for content in contents))
    return read_table(folder / "a.npy", labels=path).y


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 5])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("usual", USUAL)
@pytest.mark.parametrize("suffix", [".txt", ".parquet"])
def test_an_odd_text_changes_no_other_label(tmp_path, suffix, usual, odd, place):
    contents = [text.encode() for text in USUAL[usual]]
    before = labels_of_text(tmp_path, suffix, contents)
    contents.insert(place, ODD[odd])
    after = labels_of_text(tmp_path, suffix, contents)
    assert_texts(before, USUAL[usual])
    assert after.dtype == before.dtype
    assert type(after[place]) is str
    assert np.delete(after, place).tolist() == before.tolist()
    # Only what a file may hold around a text is taken away.
    bare = odd == "byte order mark" and suffix != ".parquet"
    for classes in ([3, 0, -1, 1], ["3", "0", "cat", "1"]):
        codes = codes_of(after, classes)
        alone = codes_of(before, classes)
        assert np.delete(codes, place).tolist() == alone.tolist()
        assert (alone == 0).any() == (usual == "integers")
        assert codes[place] == (3 if bare else -1)
    assert (after[place] == "1") == bare


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 5])
@pytest.mark.parametrize(
    "odd",
    ["\0", "", "1,2", "\U0010ffff", str(10**30), SECRET, "x" * 1_000_000, "\ufffd"],
)
@pytest.mark.parametrize("usual", USUAL)
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_an_odd_string_of_numpy_changes_no_other_label(
    tmp_path, suffix, usual, odd, place
):
    def read(labels):
        if suffix == "npz":
            np.savez(tmp_path / "a.npz", x=rows_of(len(labels), 2), y=labels)
            return read_table(tmp_path / "a.npz").y
        np.save(tmp_path / "a.npy", rows_of(len(labels), 2))
        np.save(tmp_path / "l.npy", labels)
        return read_table(tmp_path / "a.npy", labels=tmp_path / "l.npy").y

    before = read(np.array(USUAL[usual]))
    labels = np.array([*USUAL[usual][:place], odd, *USUAL[usual][place:]])
    if odd == "\ufffd":
        labels.view(np.uint32).reshape(6, -1)[place, 0] = 0x110000  # no character
    after = read(labels)
    assert before.tolist() == USUAL[usual]
    assert np.delete(after, place).tolist() == before.tolist()
    assert after[place] == odd.rstrip("\0")
    codes = codes_of(after, [3, 0, -1])
    assert np.delete(codes, place).tolist() == codes_of(before, [3, 0, -1]).tolist()
    assert codes[place] == -1


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(
    ("type_", "odd"),
    [
        (pa.int8(), None),
        (pa.int64(), None),
        (pa.uint64(), None),
        (pa.uint64(), 2**63),
        (pa.uint64(), 2**64 - 1),  # -1 where it wraps around
        (pa.uint64(), 2**64 - 2**63 + 1),
        (pa.string(), None),
        (pa.large_string(), None),
    ],
    ids=str,
)
def test_an_odd_value_of_a_column_changes_no_other_label(
    tmp_path, type_, odd, encoded, place
):
    def read(values):
        column = pa.array(values, type_)
        column = column.dictionary_encode() if encoded else column
        save_parquet(
            tmp_path / "a.parquet",
            {"x": arrow_rows(rows_of(len(values), 2)), "y": column},
        )
        return read_table(tmp_path / "a.parquet").y

    text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    usual = ["1", "cat", "0", "1"] if text else [1, 0, 0, 1]
    before = read(usual)
    after = read([*usual[:place], odd, *usual[place:]])
    assert before.tolist() == usual
    assert before.dtype == after.dtype == (object if text else np.int64)
    assert np.delete(after, place).tolist() == usual
    assert after[place] == ("" if text else -(2**63))
    assert codes_of(after, [1, 0, -1, 2**63 - 1, -(2**63) + 1])[place] == -1
    if text:
        assert codes_of(after, ["1", "cat", "-1"])[place] == -1
    else:  # the type of the column is public
        with pytest.raises(InputError, match="y must hold texts"):
            codes_of(after, ["1", "cat", "-1"])


def test_the_largest_integers_of_a_column_are_read_as_they_are(tmp_path):
    values = [2**63 - 1, 0, 2**63 - 2]
    save_parquet(
        tmp_path / "a.parquet",
        {"x": arrow_rows(rows_of(3, 2)), "y": pa.array(values, pa.uint64())},
    )
    assert read_table(tmp_path / "a.parquet").y.tolist() == values


def test_a_shard_with_an_odd_label_goes_with_the_others(tmp_path):
    """The type of labels does not depend on them, so that shards agree whatever they hold."""
    for name, labels in (
        ("a", ["1", "2"]),
        ("b", ["x" * LONG, "3"]),
        ("c", [None, "4"]),
    ):
        column = pa.array(labels, pa.string())
        save_parquet(
            tmp_path / f"{name}.parquet", {"x": arrow_rows(rows_of(2, 2)), "y": column}
        )
    assert_texts(read_table(tmp_path).y, ["1", "2", "x" * LONG, "3", "", "4"])


@pytest.mark.parametrize("suffix", [".txt", ".parquet"])
def test_a_long_label_is_held_once(tmp_path, suffix):
    """One array of fixed width would hold 1000 times 8 MB."""
    contents = [*[b"1"] * 1000, b"x" * LONG]
    labels_of_text(
        tmp_path, suffix, contents
    )  # imports and caches are none of the matter
    tracemalloc.start()
    try:
        labels = labels_of_text(tmp_path, suffix, contents)
        codes_of(labels, [1, 2])
        codes_of(labels, ["1", "2"])
        long_tailed(labels, 1, 0)
        write_table(tmp_path / "b.parquet", rows_of(1001, 2), labels)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert labels[-1] == "x" * LONG
    assert most < 20 * LONG
    assert read_table(tmp_path / "b.parquet").y.tolist() == labels.tolist()


# --- errors
# ----------------------------------------------------------------------------------------------------------


def object_npy():
    """An npy file of Python objects, as far as its header says. Nothing unpickles it."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "|O", "fortran_order": False, "shape": (2, 2)}
    )
    return file.getvalue() + b"cposix\nsystem\n(S'true'\ntR."


def test_objects_are_never_unpickled(tmp_path):
    (tmp_path / "a.npy").write_bytes(object_npy())
    refused(lambda: read_table(tmp_path / "a.npy"), "a.npy", "not as Python objects")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", object_npy())
    refused(lambda: read_table(tmp_path / "a.npz"), "a.npz", "not as Python objects")
    write_table(tmp_path / "b.npz", rows_of(2, 2))
    refused(
        lambda: read_table(tmp_path / "b.npz", labels=tmp_path / "a.npy"),
        "a.npy",
        "not as Python objects",
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.npy", "existing file"),
        ("none.parquet", "existing file"),
        ("none", "existing file"),
        ("empty", "must hold .parquet files"),
        ("a.csv", "path must end in .npy, .npz, .parquet; got 'a.csv'"),
        ("a", "path must end in .npy, .npz, .parquet; got 'a'"),
        ("a.npy/b.npy", "existing file"),
        ("x" * 300 + ".npy", "existing file"),
    ],
)
def test_path_must_be_a_table(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    for made in ("a.csv", "a", "a.npy"):
        (tmp_path / made).write_text(SECRET)
    refused(lambda: read_table(tmp_path / name), message)


@pytest.mark.parametrize(
    "content", [b"", SECRET.encode() * 50, b"PK\x03\x04" + SECRET.encode()]
)
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "l.npy"])
def test_damaged_files_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    if name == "l.npy":
        np.save(tmp_path / "rows.npy", rows_of(2, 2))
        refused(lambda: read_table(tmp_path / "rows.npy", labels=tmp_path / name), name)
    else:
        refused(lambda: read_table(tmp_path / name), name)


@pytest.mark.parametrize("other", ["npy", "npz", "parquet"])
@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_the_suffix_must_tell_the_format(tmp_path, suffix, other):
    write_table(tmp_path / "a.npz", rows_of(3, 2))
    write_table(tmp_path / "a.parquet", rows_of(3, 2))
    np.save(tmp_path / "a.npy", rows_of(3, 2))
    path = tmp_path / f"b.{suffix}"
    path.write_bytes((tmp_path / f"a.{other}").read_bytes())
    if suffix == other:
        assert read_table(path).shape == (3, 2)
    else:
        refused(lambda: read_table(path), path.name)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
@SAME_FOLDER
@given(data=st.data())
def test_damaged_bytes_raise_input_error_or_nothing(tmp_path, suffix, data):
    """Cut a file and change some of its bytes: the one error is InputError, without data in it."""
    rows = rows_of(30, 4)
    labels = np.array([SECRET] * 30)
    path = tmp_path / f"a.{suffix}"
    if suffix == "npy":
        np.save(path, rows)
    else:
        write_table(path, rows, labels)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        # Half of the changes near the ends, where the headers are.
        near = data.draw(st.booleans())
        place = data.draw(
            st.integers(-160, 160) if near else st.integers(0, len(content) - 1)
        )
        content[place % len(content)] = data.draw(st.integers(0, 255))
    path.write_bytes(
        content[: data.draw(st.sampled_from([len(content), len(content) // 2, 9, 130]))]
    )
    line = outcome(path)
    assert SECRET not in line
    assert "\n" not in line


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_each_of_the_damaged_bytes_raises_input_error_or_nothing(tmp_path, suffix):
    """Every fifth byte is inverted by itself; some of them lie where batches are read, which drawn ones may miss."""
    path = tmp_path / f"a.{suffix}"
    if suffix == "npy":
        np.save(path, rows_of(30, 4))
    else:
        write_table(path, rows_of(30, 4), np.array([SECRET] * 30))
    content = path.read_bytes()
    lines = []
    for place in range(0, len(content), 5):
        path.write_bytes(
            content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
        )
        lines.append(outcome(path))
    assert any(lines)
    assert not any(SECRET in line or "\n" in line for line in lines)


def outcome(path):
    """Read a whole table; return the message of an InputError, if there is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # NumPy warns about headers that look like those of Python 2
            for _ in read_table(path).blocks(7):
                pass
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros(N), "must have two dimensions, rows and features; got 1 dimensions"),
        (np.zeros((N, 2, 2)), "got 3 dimensions"),
        (np.zeros((N, 0)), "got no columns"),
        (
            np.full((N, 2), SECRET),
            "must hold floats (16, 32 or 64 bits) or integers; got text",
        ),
        (np.zeros((N, 2), complex), "got complex128"),
        (np.zeros((N, 2), bool), "got bool"),
        (np.zeros((N, 2), "M8[s]"), "got datetime64"),
    ],
)
def test_rows_must_be_a_matrix_of_numbers(tmp_path, rows, message):
    np.save(tmp_path / "a.npy", rows)
    refused(lambda: read_table(tmp_path / "a.npy"), "a.npy", message)
    np.savez(tmp_path / "a.npz", x=rows)
    refused(lambda: read_table(tmp_path / "a.npz"), "a.npz: array 'x'", message)
    for name in ("b.npz", "b.parquet"):
        refused(lambda name=name: write_table(tmp_path / name, rows), "X", message)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    "labels",
    [
        np.zeros((N, 1), int),
        np.full(N, 0.5),
        np.full(N, SECRET.encode()),
        np.zeros(N, np.uint64),
        np.zeros(N, "M8[s]"),
    ],
)
def test_labels_must_be_integers_or_strings(tmp_path, labels):
    rows = rows_of(N, 2)
    np.savez(tmp_path / "a.npz", x=rows, y=labels)
    refused(lambda: read_table(tmp_path / "a.npz"), "a.npz: array 'y' must")
    np.save(tmp_path / "l.npy", labels)
    refused(
        lambda: read_table(tmp_path / "a.npz", labels=tmp_path / "l.npy"), "l.npy must"
    )
    refused(lambda: write_table(tmp_path / "b.npz", rows, labels), "y must")
    assert read_table(tmp_path / "a.npz", y=None).y is None


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0.5, 1.5]),
        pa.array([None, None]),
        pa.array([[1], [2]]),
        pa.array([True, False]),
        pa.array([True, False]).dictionary_encode(),
        pa.array([0, 1], pa.int8()).cast(pa.bool8()),
        pa.array([0, 1], pa.date32()),
        pa.array([0, 1], pa.timestamp("ms")),
        pa.array([0, 1]).cast(pa.decimal128(20, 0)),
        pa.array([SECRET.encode(), b"\xff"]),
    ],
    ids=lambda column: str(column.type),
)
def test_parquet_labels_must_be_integers_or_strings(tmp_path, column):
    save_parquet(tmp_path / "a.parquet", {"x": arrow_rows(rows_of(2, 2)), "y": column})
    refused(
        lambda: read_table(tmp_path / "a.parquet"),
        "a.parquet with integers or strings; 'y' holds",
        "; name another, or cast it to text, or whole numbers to int64",
    )


@pytest.mark.parametrize("suffix", ["npz", "npy"])
@pytest.mark.parametrize("kind", [bool, float, "M8[D]", "S1"])
def test_labels_of_numpy_must_be_integers_or_strings(tmp_path, kind, suffix):
    def read(y):
        np.savez(tmp_path / "a.npz", x=rows_of(2, 2), **({"y": y} if suffix == "npz" else {}))  # fmt: skip
        np.save(tmp_path / "l.npy", y)
        labels = None if suffix == "npz" else tmp_path / "l.npy"
        return read_table(tmp_path / "a.npz", labels=labels).y.tolist()

    codes = np.array([1, 0])
    assert read(codes) == [1, 0]  # the control
    y = codes.astype(kind)
    name = {"S1": "bytes"}.get(kind, y.dtype.name)
    refused(lambda: read(y), f"or strings; got {name}; convert the labels with astype")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, 2.0]),
        pa.array([SECRET, "b"]),
        pa.array([[SECRET], ["b"]]),
        pa.array([[True], [False]]),
        pa.array([[[1.0]], [[2.0]]]),
        pa.array([{"a": 1.0}, {"a": 2.0}]),
    ],
    ids=lambda column: str(column.type),
)
def test_parquet_rows_must_be_lists_of_numbers(tmp_path, column):
    save_parquet(tmp_path / "a.parquet", {"x": column})
    refused(
        lambda: read_table(tmp_path / "a.parquet"),
        "a.parquet with lists of floats or integers; 'x' holds",
    )


@pytest.mark.parametrize(
    "records",
    [[[1.0, 2.0], [1.0]], [[1.0], None, [1.0, 2.0]], [[], [1.0]], [[1.0], []]],
)
def test_lists_of_varying_length_are_refused(tmp_path, records):
    save_parquet(tmp_path / "a.parquet", {"x": pa.array(records)})
    wanted = "a.parquet: all lists in column 'x' must have the same length"
    for read in (lambda table: list(table.blocks(2)), EmbeddingTable.to_array):
        line = refused(
            lambda read=read: read(read_table(tmp_path / "a.parquet")), wanted
        )
        assert not re.search(r"\d", line.replace(str(tmp_path), ""))


@pytest.mark.parametrize(
    "odd", [[[1.0], [1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0], []]]
)  # as many numbers as one length has
def test_a_later_list_of_another_length_is_refused(tmp_path, monkeypatch, odd):
    monkeypatch.setattr("dppl.io.tables.fragments._BATCH_ROWS", 2)
    save_parquet(tmp_path / "a.parquet", {"x": pa.array([[1.0, 2.0]] * 4 + odd)})
    refused(
        lambda: read_table(tmp_path / "a.parquet"),
        "all lists in column 'x' must have the same length",
    )


def test_a_list_that_another_took_the_place_of_is_noticed(tmp_path):
    save_parquet(tmp_path / "a.parquet", {"x": pa.array([[1.0, 2.0]] * 4)})
    table = read_table(tmp_path / "a.parquet")
    save_parquet(tmp_path / "a.parquet", {"x": pa.array([[1.0, 2.0]] * 3 + [[1.0]])})
    refused(lambda: list(table.blocks(2)), "must not change while it is read")


@pytest.mark.parametrize("records", [[], [None, None], [[], []], [[], None]])
def test_lists_of_no_known_length_are_refused(tmp_path, records):
    save_parquet(
        tmp_path / "a.parquet", {"x": pa.array(records, pa.list_(pa.float32()))}
    )
    refused(
        lambda: read_table(tmp_path / "a.parquet"),
        "column 'x' must have the same length",
    )


@pytest.mark.parametrize(
    "second",
    [
        {"x": arrow_rows(rows_of(2, 3)), "y": pa.array([1, 2])},
        {"x": arrow_rows(rows_of(2, 2, "float64")), "y": pa.array([1, 2])},
        {"x": arrow_rows(rows_of(2, 2), "list"), "y": pa.array([1, 2])},
        {"x": arrow_rows(rows_of(2, 2)), "y": pa.array([SECRET, "b"])},
        {"x": arrow_rows(rows_of(2, 2))},
        {"embedding": arrow_rows(rows_of(2, 2)), "y": pa.array([1, 2])},
    ],
)
def test_shards_must_have_one_schema(tmp_path, second):
    save_parquet(
        tmp_path / "a.parquet", {"x": arrow_rows(rows_of(2, 2)), "y": pa.array([1, 2])}
    )
    save_parquet(tmp_path / "b.parquet", second)
    refused(
        lambda: read_table(tmp_path), "all shards must have the same columns and types"
    )


def test_a_column_name_must_be_unique(tmp_path):
    table = pa.Table.from_arrays([arrow_rows(rows_of(2, 2))] * 2, names=["x", "x"])
    pq.write_table(table, tmp_path / "a.parquet")
    refused(lambda: read_table(tmp_path / "a.parquet"), "each column once")


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_rows_and_labels_must_be_equally_many(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    if suffix == "npy":
        np.save(path, rows_of(N, 2))
    else:
        write_table(path, rows_of(N, 2))
    (tmp_path / "l.txt").write_text(f"{SECRET}\n" * (N + 1))
    line = refused(
        lambda: read_table(path, labels=tmp_path / "l.txt"), "l.txt", "differ", "header"
    )
    assert str(N + 1) not in line
    refused(lambda: write_table(tmp_path / "b.npz", rows_of(N, 2), [SECRET]), "X and y")
    np.savez(tmp_path / "c.npz", x=rows_of(N, 2), y=np.zeros(3, int))
    refused(lambda: read_table(tmp_path / "c.npz"), "c.npz", "differ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.json", SECRET.encode(), "labels must end in .npy, .txt; got 'l.json'"),
        ("l", SECRET.encode(), "labels must end in"),
    ],
)
def test_label_files_must_have_a_known_suffix(tmp_path, name, content, message):
    np.save(tmp_path / "a.npy", rows_of(2, 2))
    (tmp_path / name).write_bytes(content)
    refused(lambda: read_table(tmp_path / "a.npy", labels=tmp_path / name), message)


@pytest.mark.parametrize("name", ["none.txt", "none.npy", "folder.txt", "folder.npy"])
def test_label_files_must_exist(tmp_path, name):
    np.save(tmp_path / "a.npy", rows_of(2, 2))
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    refused(lambda: read_table(tmp_path / "a.npy", labels=tmp_path / name), name)


@pytest.mark.parametrize("count", [0, 2, 9])
def test_a_file_that_changes_is_noticed(tmp_path, count):
    write_table(tmp_path / "a.parquet", rows_of(5, 2))
    table = read_table(tmp_path / "a.parquet")
    write_table(tmp_path / "a.parquet", rows_of(count, 2))
    refused(lambda: list(table.blocks(3)), "a.parquet must not change while it is read")
    refused(table.to_array, "must not change")
    (tmp_path / "a.parquet").unlink()
    refused(lambda: list(table.blocks(3)), "a.parquet", "no such file")


# --- writing
# ---------------------------------------------------------------------------------------------------------


LABELS = st.one_of(st.none(), st.just("int"), st.just("str"))
TEXT = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8
)


@pytest.mark.slow
@SAME_FOLDER
@given(
    suffix=st.sampled_from(["npz", "parquet"]),
    rows=hnp.arrays(
        st.sampled_from([np.dtype(name) for name in [*TYPES, "int64", ">f4"]]),
        st.tuples(st.integers(0, 20), st.integers(1, 6)),
    ),
    labels=LABELS,
    data=st.data(),
)
def test_what_was_written_reads_back(tmp_path, suffix, rows, labels, data):
    y = None
    if labels == "int":
        y = data.draw(hnp.arrays(np.int64, len(rows)))
    elif labels == "str":
        y = np.array(
            data.draw(st.lists(TEXT, min_size=len(rows), max_size=len(rows))),
            dtype=np.str_,
        )
    metadata = (
        data.draw(st.dictionaries(TEXT.filter(bool), TEXT, max_size=3))
        if suffix == "parquet"
        else {}
    )
    path = tmp_path / f"a.{suffix}"
    write_table(path, rows, y, metadata=metadata)
    table = read_table(path)
    np.testing.assert_array_equal(table.to_array(), rows)  # NaN equals NaN here
    assert table.dtype == rows.dtype.newbyteorder("=")
    assert table.metadata == metadata
    assert (table.y is None) == (y is None)
    if y is not None:
        kinds = {"i": "i", "U": "O"}
        assert table.y.dtype.kind == kinds[y.dtype.kind]
        assert table.y.tolist() == y.tolist()
    assert {file.suffix for file in tmp_path.iterdir()} <= {
        ".npz",
        ".parquet",
    }  # nothing temporary is left


def test_a_table_can_be_written_again(tmp_path):
    rows = rows_of(9, 3)
    write_table(tmp_path / "a.parquet", rows, ["b"] * 9)
    table = read_table(tmp_path / "a.parquet")
    write_table(tmp_path / "a.parquet", table, table.y)
    write_table(tmp_path / "a.npz", table, table.y)
    assert np.array_equal(read_table(tmp_path / "a.parquet"), rows)
    assert np.array_equal(read_table(tmp_path / "a.npz"), rows)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_object_labels_that_are_text_are_written(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    for labels in (["a", "bc"], ["1", ""], []):
        write_table(path, rows_of(len(labels), 2), np.array(labels, dtype=object))
        read = read_table(path).y
        assert read.dtype.kind == "O"
        assert read.tolist() == labels
    for bad in (1, None, SECRET.encode()):
        y = np.array([SECRET, bad], object)
        refused(
            lambda y=y: write_table(tmp_path / f"b.{suffix}", rows_of(2, 2), y),
            "y must hold",
        )


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch, suffix, step
):
    path = tmp_path / f"a.{suffix}"
    write_table(path, rows_of(3, 2))
    old = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError(28, SECRET)

    if step == "replace":
        monkeypatch.setattr(os, "replace", fail)
    else:
        owner, name = {
            "npz": (np, "savez"),
            "parquet": (pq.ParquetWriter, "write_table"),
        }[suffix]
        real = getattr(owner, name)

        def write_then_fail(*args, **kwargs):
            real(*args, **kwargs)
            fail()

        monkeypatch.setattr(owner, name, write_then_fail)
    refused(
        lambda: write_table(path, rows_of(9, 2)),
        f"a.{suffix} must be writable; got OSError",
    )
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch, suffix):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_table(tmp_path / f"a.{suffix}", rows_of(3, 2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_written_files_have_ordinary_permissions(tmp_path, suffix):
    (tmp_path / "reference").touch()
    write_table(tmp_path / f"a.{suffix}", rows_of(3, 2))
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_places_that_cannot_be_written(tmp_path, suffix):
    (tmp_path / "file").touch()
    (tmp_path / f"folder.{suffix}").mkdir()
    for name in (
        f"none/a.{suffix}",
        f"file/a.{suffix}",
        f"folder.{suffix}",
        "x" * 300 + f".{suffix}",
    ):
        refused(
            lambda name=name: write_table(tmp_path / name, rows_of(3, 2)),
            "must be writable",
        )
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "file",
        f"folder.{suffix}",
    ]


def test_write_table_refuses_other_suffixes_and_ragged_rows(tmp_path):
    refused(
        lambda: write_table(tmp_path / "a.npy", rows_of(3, 2)),
        "path must end in .npz, .parquet; got 'a.npy'",
    )
    refused(
        lambda: write_table(tmp_path / "a.npz", [[1.0], [1.0, 2.0]]),
        "X must be an array",
    )
    assert list(tmp_path.iterdir()) == []


def test_metadata_is_text_and_for_parquet(tmp_path):
    with pytest.raises(ParameterError, match="metadata must be empty for"):
        write_table(tmp_path / "a.npz", rows_of(3, 2), metadata={"a": "b"})
    for bad in ({"a": 1}, {1: "a"}, {"a": None}):
        with pytest.raises(ParameterError, match="metadata must map str to str"):
            write_table(tmp_path / "a.parquet", rows_of(3, 2), metadata=bad)
    assert list(tmp_path.iterdir()) == []


# --- classes and labels
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"cat\ndog\n", ["cat", "dog"]),
        (b"\n  cat \r\n\r\n\tdog\n\n", ["cat", "dog"]),
        (b"\xef\xbb\xbfcat\ndog", ["cat", "dog"]),
        (b"2\n0\n-1\n", [2, 0, -1]),
        (b"\xef\xbb\xbf2\n1", [2, 1]),
        (b"2\n0\nx\n", ["2", "0", "x"]),
        (b"01\n1\n", ["01", "1"]),
        (b"9223372036854775807\n-9223372036854775808", [2**63 - 1, -(2**63)]),
        (b"9223372036854775808\n1", ["9223372036854775808", "1"]),
        ("größe\n大\n".encode(), ["größe", "大"]),
    ],
)
def test_class_lists(tmp_path, content, expected):
    (tmp_path / "classes.txt").write_bytes(content)
    classes = read_classes(tmp_path / "classes.txt")
    assert classes.tolist() == expected
    assert (
        classes.dtype == np.int64
        if isinstance(expected[0], int)
        else classes.dtype.kind == "U"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "at least one class"),
        (b"cat\n", "two classes or more, each on its own line; got a single class"),
        (b"cat, dog\n", "got one line with commas; write one class on each line"),
        (b"0,1,2", "got one line with commas"),
        (b" \n\n", "at least one class"),
        (b"cat\n\ndog\n cat\n", "line 4 repeats line 1"),
        (b"1\n2\n1\n", "line 3 repeats line 1"),
        ("größe".encode("latin-1"), "UTF-8"),
        ("größe".encode("utf-16"), "UTF-8"),
    ],
)
def test_class_lists_that_are_refused(tmp_path, content, message):
    (tmp_path / "classes.txt").write_bytes(content)
    refused(lambda: read_classes(tmp_path / "classes.txt"), "classes.txt", message)


def test_of_multilabel_there_may_be_one_in_all(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("urgent\n")
    assert read_classes(path, several=True).tolist() == ["urgent"]
    path.write_text("urgent,late\n")
    refused(lambda: read_classes(path, several=True), "one line with commas")
    path.write_text("urgent,late\nother\n")  # names with commas, as they may be
    assert read_classes(path).tolist() == ["urgent,late", "other"]


def test_class_lists_must_exist(tmp_path):
    refused(lambda: read_classes(tmp_path / "none.txt"), "none.txt", "no such file")
    refused(lambda: read_classes(tmp_path), str(tmp_path))


def test_text_files_of_labels_and_classes_fit_together(tmp_path):
    """Labels are text, whatever they hold; the class list decides."""
    np.save(tmp_path / "a.npy", rows_of(3, 2))
    (tmp_path / "l.txt").write_text(f"2\n{SECRET}\n1\n")
    (tmp_path / "classes.txt").write_text("1\n2\n")
    table = read_table(tmp_path / "a.npy", labels=tmp_path / "l.txt")
    assert_texts(table.y, ["2", SECRET, "1"])
    assert codes_of(table.y, read_classes(tmp_path / "classes.txt")).tolist() == [
        1,
        -1,
        0,
    ]


@pytest.mark.parametrize(
    "bad",
    [[0.5], [[1]], 3, [SECRET.encode()], [[1], [1, 2]], np.array([SECRET, 2], object)],
)
def test_labels_of_other_types_are_refused(bad):
    refused(lambda: stored_labels(bad), "y must")


def test_as_labels_copies_nothing_that_fits():
    for y in (
        np.arange(3),
        np.array(["a", "bc"]),
        np.array(["a", "bc"], object),
        np.array([], object),
    ):
        assert stored_labels(y) is y


def test_as_labels_replaces_what_is_no_character():
    """A damaged npy file of text holds any numbers; Python makes no str of them, or cannot write it."""
    codes = np.array(
        [ord("a"), 0x110000, 0xD800, 2**32 - 1, 0xD7FF, 0xDFFF, 0xE000, 0x10FFFF],
        np.uint32,
    )
    for order in "<>":
        labels = stored_labels(codes.astype(f"{order}u4").view(f"{order}U2"))
        assert labels.tolist() == [
            "a\ufffd",
            "\ufffd\ufffd",
            "\ud7ff\ufffd",
            "\ue000\U0010ffff",
        ]
    assert stored_labels(codes.view("U1")[::2]).tolist() == [
        "a",
        "\ufffd",
        "\ud7ff",
        "\ue000",
    ]
    for wide in ("U0", "U3"):
        assert stored_labels(np.zeros(2, wide)).tolist() == ["", ""]
        assert stored_labels(np.zeros(0, wide)).tolist() == []


def test_tables_are_made_by_read_table(tmp_path):
    write_table(tmp_path / "a.npz", rows_of(2, 2))
    assert isinstance(read_table(str(tmp_path / "a.npz")), EmbeddingTable)


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux alone")
@pytest.mark.parametrize("suffix", [".npz", ".npy", ".parquet"])
def test_a_file_may_have_a_name_that_is_no_utf_8(tmp_path, suffix):
    plain = tmp_path / f"plain{suffix}"
    if suffix == ".npy":
        np.save(plain, rows_of(3, 2))
    else:
        write_table(plain, rows_of(3, 2))
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff" + suffix.encode()))
    plain.rename(odd)
    assert np.asarray(read_table(odd)).tolist() == rows_of(3, 2).tolist()


def test_an_npz_with_a_member_whose_name_is_no_utf_8_is_said_to_be_damaged(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in (("x", rows_of(3, 2)), ("\u00e9", np.zeros(3))):
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    assert read_table(path).shape == (3, 2)
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xfe"))
    with pytest.raises(InputError, match=r"must be an npz file .* not UTF-8"):
        read_table(path)
