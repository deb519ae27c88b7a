"""What is written: columns, metadata and forms of rows, for every reader, and the same bytes however it is done."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import dppl
from dppl.errors import InputError, ParameterError
from dppl.io import convert_table, open_source, read_table
from dppl.io.tables import writing
from dppl.io.tables.shards import HEADER
from dppl.io.tables.writing import to_storage
from dppl.kernel.lattice import Lattice
from dppl.training import embed

from .conftest import TinyFingerprint, TinyTexts

N = 50


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"text {number},{'abc'[number % 3]}" for number in range(N)]
    path.write_text("text,label\n" + "\n".join(rows))
    return path


def expected():
    encoder = TinyTexts()
    return encoder.encode_prepared(
        [encoder.prepare(f"text {number}") for number in range(N)]
    )


@pytest.mark.parametrize("rows", ["float16", "int8", "float32"])
def test_the_rows_are_those_of_the_encoder_in_the_wanted_form(rows, lines, run, texts):
    found = run(lines, texts, rows=rows, shard_rows=20)
    wanted = (
        Lattice(8).transform(expected()) if rows == "int8" else expected().astype(rows)
    )
    np.testing.assert_array_equal(found.table.to_array(), wanted)
    assert found.table.dtype == rows
    assert [file.name for file in found.files] == [
        f"part-00000{number}.parquet" for number in range(3)
    ]
    assert found.table.metadata["encoder"] == texts.fingerprint.text()
    assert found.table.metadata["decoder"] == "UTF-8"


def test_a_fit_takes_int8_rows_for_what_they_are(lines, run, texts):
    fitted = []
    for rows in ("float32", "int8"):
        table = run(lines, texts, rows=rows, out=rows).table
        model = dppl.MeanPrototypes(
            dppl.ZCDP(1.0), classes=list("abc"), random_state=0
        ).fit(table, table.y)
        assert model.encoder_ == texts.fingerprint.text()
        fitted.append(model.prototypes_)
    np.testing.assert_array_equal(*fitted)


@pytest.mark.slow
def test_int8_rows_take_a_quarter_of_the_disk_space(tmp_path, run):
    rows = np.random.default_rng(0).normal(size=(4000, 384)).astype(np.float32)
    (tmp_path / "t.txt").write_text("\n".join(map(str, range(len(rows)))))
    encoder = SimpleNamespace(
        modality="text", dimension=384, window=1000, fingerprint=TinyFingerprint("rows")
    )
    encoder.prepare = lambda text: rows[int(text)]
    encoder.encode_prepared = lambda batch, progress: np.stack(batch)
    sizes = {
        form: sum(
            len(content)
            for content in run(
                tmp_path / "t.txt", encoder, rows=form, out=form
            ).bytes.values()
        )
        for form in ("int8", "float16", "float32")
    }
    assert 0.24 < sizes["int8"] / sizes["float32"] < 0.27
    assert 0.49 < sizes["float16"] / sizes["float32"] < 0.52


def test_arrow_reads_it(lines, run, texts):
    done = run(lines, texts, shard_rows=20).done
    table = pyarrow.dataset.dataset(done.table).to_table()
    assert table.column_names == ["id", "reference", "y", "x"]
    assert table.num_rows == N


@pytest.mark.parametrize("rows", ["float16", "int8"])
def test_duckdb_reads_it(rows, lines, run, texts):
    duckdb = pytest.importorskip("duckdb")
    done = run(lines, texts, rows=rows, shard_rows=20).done
    query = (
        f"SELECT id, y, x FROM '{done.table}/*.parquet' ORDER BY CAST(id AS INTEGER)"
    )
    found = duckdb.sql(query).fetchall()
    assert [row[1] for row in found] == [("abc"[number % 3]) for number in range(N)]
    np.testing.assert_array_equal(
        np.array([row[2] for row in found]), np.asarray(read_table(done.table))
    )


@pytest.mark.parametrize("workers", [1, 5])
def test_the_number_of_workers_changes_no_byte(workers, lines, run):
    once = run(lines, TinyTexts(), out="once", shard_rows=7, workers=2)
    again = run(lines, TinyTexts(), out="again", shard_rows=7, workers=workers)
    assert again.bytes == once.bytes


def test_a_record_is_left_out_or_embedded_for_itself_alone(lines, run):
    """With any one record gone, all others keep every bit, whatever shard they come into."""
    whole = run(lines, TinyTexts(), out="whole", shard_rows=8)
    content = lines.read_text().split("\n")
    del content[5]
    lines.write_text("\n".join(content))
    fewer = run(lines, TinyTexts(), out="fewer", shard_rows=8)
    np.testing.assert_array_equal(
        np.asarray(fewer.table), np.delete(np.asarray(whole.table), 4, axis=0)
    )


def test_an_encoder_that_promises_no_independent_rows_is_told_in_the_table(lines, run):
    encoder = TinyTexts(fingerprint=TinyFingerprint("gpu", row_independent=False))
    assert run(lines, encoder).table.metadata["not_covered"] == "rows_mix"


def test_a_finished_table_is_nothing_to_do(lines, run, texts, tmp_path):
    first = run(lines, texts)
    before = {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "table").iterdir()
    }
    again = run(lines, texts)
    assert (first.done.is_new, again.done.is_new) == (True, False)
    assert texts.encoded == N
    assert {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "table").iterdir()
    } == before


@pytest.mark.parametrize(
    ("options", "encoder", "differs"),
    [
        ({"rows": "int8"}, TinyTexts(), "another rows"),
        ({"shard_rows": 9}, TinyTexts(), "another shard_rows"),
        ({}, TinyTexts(fingerprint=TinyFingerprint("other")), "another encoder"),
    ],
)
def test_a_table_of_other_parameters_is_an_error(
    options, encoder, differs, lines, run, texts
):
    run(lines, texts)
    with pytest.raises(ParameterError, match=f"begun with {differs};"):
        run(lines, encoder, **options)


@pytest.mark.parametrize("change", ["one\n", None])
def test_a_source_that_has_changed_is_an_error(change, lines, run, texts):
    run(lines, texts, shard_rows=20)
    if change is None:
        lines.write_text(lines.read_text().replace("text 3,a", "text 3,b"))
    else:
        lines.write_text(lines.read_text() + f"\n{change},a")
    with pytest.raises(InputError, match="the source has changed"):
        run(lines, texts, shard_rows=20)


def test_a_folder_with_something_else_is_left_alone(lines, run, texts, tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "thesis.txt").write_text("")
    with pytest.raises(ParameterError, match="must be a new folder"):
        run(lines, texts)
    assert not (tmp_path / "table.report.jsonl").exists()


def test_a_shard_that_is_gone_is_made_again(lines, run, texts):
    first = run(lines, texts, shard_rows=20)
    first.files[1].unlink()
    again = run(lines, texts, shard_rows=20)
    assert again.bytes == first.bytes
    assert again.left_out == first.left_out
    assert texts.encoded == N + 30


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"parameters": {}}', b"\xff"])
def test_a_damaged_manifest_is_an_error(content, lines, run, texts, tmp_path):
    run(lines, texts)
    (tmp_path / "table" / "_manifest.json").write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        run(lines, texts)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_two_processes_do_not_write_one_table(lines, texts, tmp_path):
    source = open_source(lines)

    class Nosy(TinyTexts):
        def encode_prepared(self, batch, progress):
            with pytest.raises(InputError, match="another process is writing"):
                embed(source, texts, tmp_path / "table")
            return super().encode_prepared(batch, progress)

    encoder = Nosy()
    embed(source, encoder, tmp_path / "table")
    assert encoder.encoded == N


def test_an_empty_source_gives_a_table_without_rows(tmp_path, run, texts):
    (tmp_path / "t.csv").write_text("text,label\n")
    found = run(tmp_path / "t.csv", texts)
    assert found.table.shape == (0, 8)
    assert found.totals == {"records": 0, "embedded": 0, "skipped": []}


def test_the_report_says_whose_it_is_and_only_they_can_read_it(lines, run, texts):
    found = run(lines, texts)
    assert found.notice == HEADER
    assert "For the owner of the records only" in HEADER["notice"]
    if sys.platform != "win32":
        assert found.done.report.stat().st_mode & 0o077 == 0


def test_progress_counts_every_record_once(lines, run, texts):
    counts = []
    run(lines, texts, shard_rows=20, progress=counts.append)
    assert sum(counts) == N
    counts.clear()
    run(lines, texts, shard_rows=20, progress=counts.append)
    assert sum(counts) == N


def test_an_encoder_of_another_kind_is_refused(texts, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one.png").touch()
    with pytest.raises(ParameterError, match="must be one for images"):
        embed(open_source(tmp_path / "pictures"), texts, tmp_path / "table")
    assert not (tmp_path / "table").exists()


# Converting


@pytest.mark.parametrize("rows", [None, "int8", "float32"])
def test_parquet_keeps_everything_when_it_is_converted(
    rows, lines, run, texts, tmp_path
):
    found = run(lines, texts, shard_rows=20)
    convert_table(found.done.table, tmp_path / "one.parquet", rows=rows)
    one = read_table(tmp_path / "one.parquet")
    table = pq.read_table(tmp_path / "one.parquet")
    assert table.column("id").to_pylist() == found.ids
    assert table.column("reference").to_pylist() == found.columns["reference"]
    assert one.y.tolist() == found.labels
    assert one.metadata["encoder"] == texts.fingerprint.text()
    whole = np.asarray(found.table)
    wanted = (
        Lattice(8).transform(whole)
        if rows == "int8"
        else whole.astype(rows or "float16")
    )
    np.testing.assert_array_equal(np.asarray(one), wanted)
    assert one.dtype == wanted.dtype


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()]
)
def test_a_conversion_that_fails_leaves_the_old_file_and_no_part(
    error, lines, run, texts, tmp_path, monkeypatch
):
    found = run(lines, texts, shard_rows=20)
    out = tmp_path / "converted" / "one.parquet"
    out.parent.mkdir()
    convert_table(found.done.table, out)
    assert (
        sys.platform == "win32" or out.stat().st_mode & 0o777 == 0o600
    )  # as private as the table
    old = out.read_bytes()
    blocks = []

    def failing(x, rows):
        blocks.append(x)
        if len(blocks) == 2:
            raise error
        return to_storage(x, rows)

    monkeypatch.setattr(writing, "_BLOCK_ROWS", 20)
    monkeypatch.setattr(writing, "to_storage", failing)
    with pytest.raises(type(error)):
        convert_table(found.done.table, out, rows="float32")
    assert [(file.name, file.read_bytes()) for file in out.parent.iterdir()] == [
        (out.name, old)
    ]
    convert_table(found.done.table, out, rows="float32")
    assert read_table(out).dtype == np.float32


def test_a_conversion_to_another_suffix_is_refused(lines, tmp_path):
    with pytest.raises(ParameterError, match=r"out must end in \.parquet"):
        convert_table(lines, tmp_path / "one.txt")


def test_the_manifest_tells_what_made_the_table(lines, run, texts, tmp_path):
    run(lines, texts, shard_rows=20)
    manifest = json.loads((tmp_path / "table" / "_manifest.json").read_text())
    assert manifest["finished"]
    assert manifest["parameters"]["source"] == {
        "kind": "csv",
        "x": "text",
        "y": "label",
        "id": None,
        "person": None,
    }
    assert [shard["rows"] for shard in manifest["shards"]] == [20, 20, 10]
