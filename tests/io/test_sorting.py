"""Sorting a table: every row once, all columns kept, little memory, and nothing left behind."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dppl.errors import InputError, ParameterError
from dppl.io import read_ids, read_table, sort_table, sorting
from dppl.kernel.persons import person_codes

N = 500
LEAK = "Jane Doe"


def ids_of(kind, rng, n):
    """Return ids of some persons; where the type can, some are missing."""
    numbers = rng.integers(0, 40, n)
    texts = [f"{LEAK} {number}" for number in numbers]
    some = [None if number % 7 == 0 else number for number in numbers.tolist()]
    made = {
        "integers": lambda: pa.array(some, pa.int64()),
        "long integers": lambda: pa.array([None if one is None else 2**64 - 1 - one for one in some], pa.uint64()),
        "floats": lambda: pa.array([float("nan") if one == 1 else one for one in some], pa.float64()),
        "short floats": lambda: pa.array(numbers.astype(np.float16)),
        "flags": lambda: pa.array((numbers % 2).astype(bool)),
        "texts": lambda: pa.array([text if one else None for text, one in zip(texts, some, strict=True)], pa.string()),
        "long texts": lambda: pa.array(texts, pa.large_string()),
        "torn texts": lambda: torn([b"\xff%d" % number for number in numbers]),
        "bytes": lambda: pa.array([text.encode() for text in texts]),
        "bytes of one length": lambda: pa.array([b"%02d" % number for number in numbers], pa.binary(2)),
        "categories": lambda: pa.array(texts).dictionary_encode(),
    }
    return made[kind]()


def torn(contents):
    """Return texts that are no UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(contents), pa.array(contents).buffers())


KINDS = ["integers", "long integers", "floats", "short floats", "flags", "texts", "long texts", "torn texts", "bytes"]
KINDS += ["bytes of one length", "categories"]


def written(path, kind="texts", n=N, seed=0, **options):
    """Write a table whose column `place` is the number of each row."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-100, 100, n * 8).astype(options.pop("dtype", np.float32))
    columns = {"place": range(n), "patient": ids_of(kind, rng, n), "notes": [[{"a": i % 3}] for i in range(n)]}
    labels = pa.array(["b", "a", "c", "a", "b"] * (n // 5), pa.string())
    columns |= {"x": pa.FixedSizeListArray.from_arrays(pa.array(x), 8), "y": labels}
    table = pa.table(columns).replace_schema_metadata({"encoder": "letters", "of": str(seed)})
    pq.write_table(table, path, **{"row_group_size": 70} | options)
    return table


@pytest.mark.slow
@pytest.mark.parametrize("part_bytes", [1 << 10, 1 << 13, 1 << 28])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_sorted_and_equal_ones_stay_in_their_order(kind, part_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "_PART_BYTES", part_bytes)
    table = written(tmp_path / "t.parquet", kind)
    sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by="patient")
    found = pq.read_table(tmp_path / "out.parquet")
    places = found["place"].to_pylist()
    assert sorted(places) == list(range(N))
    assert found.drop_columns("patient").to_pylist() == table.drop_columns("patient").take(places).to_pylist()
    ids = read_ids(tmp_path / "t.parquet", "patient")
    assert [str(one) for one in read_ids(tmp_path / "out.parquet", "patient")] == [str(ids[place]) for place in places]
    plain = table.schema.set(1, pa.field("patient", pa.string())) if kind == "categories" else table.schema
    assert found.schema.equals(plain)
    # Persons are adjacent, as a fit tells them apart, and their rows are in their order.
    numbers = person_codes(ids)[places]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    assert len(starts) == len(set(numbers.tolist()))
    assert all((np.diff(run) > 0).all() for run in np.split(np.array(places), starts[1:]))
    present = [one for one in ids[places] if one is not None and one == one]
    assert present == sorted(present)
    assert all(one is None or one != one for one in ids[places][len(present) :])


def test_shards_are_one_table(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "_PART_BYTES", 1 << 12)
    folder = tmp_path / "t"
    folder.mkdir()
    tables = [written(folder / f"{seed}.parquet", "categories", seed=seed, dtype=np.int8) for seed in range(3)]
    told = []
    sort_table(folder, tmp_path / "out.parquet", by="patient", progress=told.append)
    assert sum(told) == 2 * 3 * N
    whole = pa.concat_tables(tables)
    order = np.argsort(np.array(whole["patient"].to_pylist()), kind="stable")
    rows = whole.to_pylist()
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [rows[place] for place in order]
    # As the table has it: what its shards do not share is not of all.
    assert read_table(tmp_path / "out.parquet").metadata == read_table(folder).metadata == {"encoder": "letters"}
    written(folder / "3.parquet", "texts")
    with pytest.raises(InputError, match="same columns and types"):
        sort_table(folder, tmp_path / "out.parquet", by="patient")


def test_a_table_without_rows_is_sorted(tmp_path):
    written(tmp_path / "t.parquet", n=0)
    sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by="patient")
    assert read_table(tmp_path / "out.parquet").shape == (0, 8)


def test_memory_holds_a_part_of_the_rows(tmp_path, monkeypatch):
    """Arrow's own count of what it held: a few parts, and the column of ids."""
    monkeypatch.setattr(sorting, "_PART_BYTES", 1 << 20)
    rows = np.random.default_rng(0).normal(size=(1 << 15, 256)).astype(np.float32)
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 256)}
    columns["patient"] = np.random.default_rng(1).integers(0, 1000, len(rows))
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=1 << 11, use_dictionary=False)
    del rows, columns
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by="patient")
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 12 << 20  # of 32 MB
    found = read_ids(tmp_path / "out.parquet", "patient")
    assert (np.diff(found.astype(int)) >= 0).all()


def test_only_the_owner_may_read_it(tmp_path):
    written(tmp_path / "t.parquet")
    sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by="patient")
    assert (tmp_path / "out.parquet").stat().st_mode & 0o777 == 0o600


def test_what_fails_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "_PART_BYTES", 1 << 12)
    written(tmp_path / "t.parquet")
    (tmp_path / "out.parquet").write_bytes(b"old")
    calls, whole = [], sorting._take

    def failing(*given):
        calls.append(given)
        if len(calls) == last:
            raise OSError(28, "No space left on device")
        return whole(*given)

    monkeypatch.setattr(sorting, "_take", failing)
    for last in (1, 9, 14):  # while rows are read, and while they are written
        calls.clear()
        with pytest.raises(OSError, match="No space"):
            sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by="patient")
        assert len(calls) == last
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "t.parquet"]
        assert (tmp_path / "out.parquet").read_bytes() == b"old"


@pytest.mark.skipif(sys.platform != "linux", reason="files without a name")
def test_a_killed_process_leaves_nothing_that_others_can_read(tmp_path):
    written(tmp_path / "t.parquet")
    program = (
        "import os, sys; from dppl.io import sorting; sorting._PART_BYTES = 1 << 12\n"
        "sorting._sorted = lambda *given: os._exit(9)\n"  # after all rows were written to the disk
        "sorting.sort_table(sys.argv[1], sys.argv[2], by='patient')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "t.parquet", tmp_path / "out.parquet"], check=False
    )
    assert done.returncode == 9
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_table_that_changes_meanwhile_is_refused(tmp_path, monkeypatch):
    written(tmp_path / "t.parquet")
    for n in (N - 5, N + 5):
        monkeypatch.setattr(sorting.pc, "sort_indices", lambda column, n=n: np.arange(n))
        with pytest.raises(InputError, match="must not change"):
            sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by="patient")
        assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize(("by", "words"), [("nobody", "there are 'place', 'patient', 'notes'"), ("x", "holds fixed")])
def test_a_wrong_column_is_named_and_its_content_is_not(by, words, tmp_path):
    written(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=words) as caught:
        sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by=by)
    assert caught.value.parameter == "by"
    assert LEAK not in str(caught.value)


@pytest.mark.parametrize("by", ["patient", "y"])
def test_a_damaged_file_shows_no_id(by, tmp_path):
    written(tmp_path / "t.parquet", "categories", compression="none")
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    at = content.index(LEAK.encode()) - 40
    content[at : at + 40] = b"\xff" * 40
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(InputError) as caught:
        sort_table(tmp_path / "t.parquet", tmp_path / "out.parquet", by=by)
    assert (LEAK in str(caught.value), caught.value.__cause__) == (False, None)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.eye(3))
    with pytest.raises(InputError, match=r"\.parquet file or a folder"):
        sort_table(tmp_path / "t.npz", tmp_path / "out.parquet", by="patient")
    with pytest.raises(ParameterError, match=r"must end in \.parquet"):
        sort_table(tmp_path / "t.npz", tmp_path / "out.npz", by="patient")
