"""A table goes on with the source that it was begun with, and with no other; its report overwrites nothing else."""

import csv
import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dppl.errors import InputError, ParameterError
from dppl.io import open_source
from dppl.io.records.record import BadRecord
from dppl.io.tables.shards import HEADER
from dppl.training import embed

from .conftest import TinyImages, TinyTexts, image_bytes

N = 10
LABELS = ["ab"[number % 2] for number in range(N)]


def texts_of(seed):
    return [f"text {number} of {seed}" for number in range(N)]


def write_csv(folder, seed):
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["text", "label"], *zip(texts_of(seed), LABELS, strict=True)]
        )
    return folder / "t.csv", {}


def write_jsonl(folder, seed):
    lines = [
        json.dumps({"text": text, "label": label})
        for text, label in zip(texts_of(seed), LABELS, strict=True)
    ]
    (folder / "t.jsonl").write_text("\n".join(lines))
    return folder / "t.jsonl", {}


def write_txt(folder, seed):
    (folder / "t.txt").write_text("\n".join(texts_of(seed)))
    return folder / "t.txt", {}


def write_images(folder, seed):
    for number, label in enumerate(LABELS):
        path = folder / "photos" / label / f"{number}.ppm"  # always of the same size
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_bytes(number if number != 3 else (3, seed), kind="PPM"))
        os.utime(path, (0, seed if number == 3 else 0))
    return folder / "photos", {}


def write_listed_images(folder, seed):
    photos, _ = write_images(folder, seed)
    rows = [f"{label}/{number}.ppm,{label}" for number, label in enumerate(LABELS)]
    (folder / "list.csv").write_text("\n".join(["file,label", *rows]))
    return photos, {"labels": folder / "list.csv"}


def write_parquet(folder, seed):
    (folder / "shards").mkdir(exist_ok=True)
    for place in range(2):
        path = folder / "shards" / f"{place}.parquet"
        half = slice(place * N // 2, (place + 1) * N // 2)
        pq.write_table(
            pa.table({"text": texts_of(seed * place)[half], "label": LABELS[half]}),
            path,
        )
        os.utime(path, (0, seed * place))
    return folder / "shards", {}


WRITERS = {
    "csv": (write_csv, TinyTexts),
    "jsonl": (write_jsonl, TinyTexts),
    "text": (write_txt, TinyTexts),
    "images": (write_images, TinyImages),
    "listed images": (write_listed_images, TinyImages),
    "parquet": (write_parquet, TinyTexts),
}


@pytest.mark.slow
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("kind", WRITERS)
def test_other_content_of_the_same_ids_and_labels_is_noticed(
    kind, finished, run, tmp_path
):
    write, encoder = WRITERS[kind]
    (tmp_path / "source").mkdir()
    path, options = write(tmp_path / "source", 1)
    first = run(path, encoder(), shard_rows=4, **options)
    if not finished:
        first.files[-1].unlink()
    # Written again as it was: finished, or begun and done to the end.
    path, options = write(tmp_path / "source", 1)
    again = run(path, encoder(), shard_rows=4, **options)
    assert again.done.is_new is not finished
    assert again.bytes == first.bytes
    if not finished:
        first.files[-1].unlink()
    path, options = write(tmp_path / "source", 2)
    with pytest.raises(InputError, match="the source has changed since"):
        run(path, encoder(), shard_rows=4, **options)
    other = run(path, encoder(), out="other", shard_rows=4, **options)
    assert (other.ids, other.labels) == (first.ids, first.labels)
    assert other.bytes != first.bytes


def test_an_image_that_is_gone_before_it_is_its_turn_is_left_out(tmp_path):
    photos, _ = write_images(tmp_path, 0)
    records = iter(open_source(photos))
    next(records)
    (photos / "a" / "2.ppm").unlink()
    record = next(records)
    assert record.id == "a/2.ppm"
    with pytest.raises(BadRecord, match="no_file"):
        record.load()
    assert len(list(records)) == N - 2


# The place of the report

FOREIGN = b'{"notice": "mine"}\n' * 100


@pytest.fixture
def lines(tmp_path):
    return write_csv(tmp_path, 0)[0]


@pytest.fixture
def report(tmp_path):
    return tmp_path / "table.report.jsonl"


@pytest.mark.parametrize("rest", ["whole", "torn", "empty"])
def test_a_report_of_a_table_that_is_gone_is_replaced_by_a_new_file(
    rest, lines, run, texts, report
):
    notice = json.dumps(HEADER).encode() + b"\n"
    report.write_bytes(
        {"whole": notice + FOREIGN, "torn": notice[:20], "empty": b""}[rest]
    )
    report.chmod(0o644)
    with report.open("rb") as old:
        found = run(lines, texts)
        assert found.left_out == []
        assert found.totals["embedded"] == N
        assert os.fstat(old.fileno()).st_nlink == 0 or sys.platform == "win32"
    assert report.stat().st_mode & 0o077 == 0 or sys.platform == "win32"


def put_foreign(report):
    report.write_bytes(FOREIGN)
    return report


def put_link(report):
    target = report.with_name("elsewhere")
    target.write_bytes(json.dumps(HEADER).encode() + b"\n" + FOREIGN)
    report.symlink_to(target)
    return target


def put_dangling_link(report):
    report.symlink_to(report.with_name("nowhere"))


def put_folder(report):
    report.mkdir()


@pytest.mark.parametrize("put", [put_foreign, put_link, put_dangling_link, put_folder])
@pytest.mark.parametrize("begun", [False, True])
def test_nothing_else_is_written_over(put, begun, lines, run, texts, report, tmp_path):
    if begun:
        found = run(lines, texts, shard_rows=4)
        found.files[-1].unlink()
        report.unlink()
    target = put(report)
    content = target and target.read_bytes()
    names = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        ParameterError,
        match=r"table\.report\.jsonl is in the way .*; move it away, or choose another folder",
    ):
        run(lines, texts, shard_rows=4)
    assert sorted(tmp_path.rglob("*")) == names
    assert (target and target.read_bytes()) == content


def test_a_finished_table_needs_no_report(lines, texts, report, tmp_path):
    assert embed(open_source(lines), texts, tmp_path / "table").is_new
    report.unlink()
    put_foreign(report)
    assert not embed(open_source(lines), texts, tmp_path / "table").is_new
    assert report.read_bytes() == FOREIGN
