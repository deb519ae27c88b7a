"""`dppl embed` and `dppl table`: what they write, print and refuse, and that `embed` is silent about records."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import dppl
from dppl.cli import table as table_module
from dppl.cli.embed import Embed
from dppl.io import read_table
from dppl.kernel.checking import NOT_ALL_USABLE


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat/1", "cat/2", "dog/1", "dog/2", "dog/3"):
        path = tmp_path / "photos" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def table(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(6, 4) - 9
    labels = np.array([3, 1, 2, 3, 1, 2])
    ids = pa.array([str(number) for number in range(6)])
    (tmp_path / "t").mkdir()
    for number, part in enumerate((slice(4), slice(4, 6))):
        columns = {
            "id": ids[part],
            "y": labels[part],
            "x": pa.array(list(rows[part].astype(np.float16))),
        }
        pq.write_table(pa.table(columns), tmp_path / "t" / f"part-{number}.parquet")
    return rows


def test_images_become_a_table_for_a_fit(photos, cli, tmp_path):
    out = tmp_path / "train"
    result = cli(
        "embed",
        photos,
        "--encoder",
        "pixels",
        "--out",
        out,
        "--options",
        "rows=int8",
        "--options",
        "workers=2",
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"Table: {out}",
        f"Next: dppl fit {out} --classes FILE ...",
        f"Before you trust the table, the owner of the records must read {out}.report.jsonl: it names the records that "
        "cannot be used. How many they are is private, so it is not printed here.",
    ]
    table = read_table(out)
    assert (table.y.tolist(), table.dtype) == (
        ["cat", "cat", "dog", "dog", "dog"],
        np.int8,
    )
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    model = tmp_path / "model.safetensors"
    assert (
        cli(
            "fit", out, "--classes", tmp_path / "classes.txt", "--mu", 1, "--out", model
        ).exit_code
        == 0
    )
    assert dppl.load(model).encoder_ == table.metadata["encoder"]
    again = cli(
        "embed", photos, "--encoder", "pixels", "--out", out, "--options", "rows=int8"
    )
    assert again.exit_code == 0
    assert again.stdout.startswith(f"Table: {out}, finished before; nothing to do\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "t"], 2, "--encoder"),
        (
            ["--out", "no/t", "--encoder", "pixels"],
            2,
            "--out must name a folder in an existing one",
        ),
        (
            ["--out", "photos/t", "--encoder", "pixels"],
            2,
            "--out must be outside SOURCE",
        ),
        (["--out", ".", "--encoder", "pixels"], 2, "--out must name a folder"),
        (["--out", "other.csv", "--encoder", "pixels"], 2, "--out must name a folder"),
        (["--out", "other", "--encoder", "pixels"], 2, "must be a new folder"),
        (
            ["--out", "t", "--encoder", "pixels", "--options", "rows=bits"],
            2,
            "rows must be one of",
        ),
        (
            ["--out", "t", "--encoder", "pixels", "--read", "kind=zip"],
            2,
            "--read kind must be one of",
        ),
        (
            ["--out", "t", "--encoder", "pixels", "--read", "labels=none.csv"],
            4,
            "none.csv",
        ),
        (
            ["--out", "t", "--encoder", "pixels", "--read", "labels=other.csv"],
            4,
            "name the column",
        ),
        (["--out", "t", "--encoder", "nothing"], 2, "nothing"),
        (["--encoder", "pixels"], 2, "--out"),
    ],
)
def test_usage_errors(
    arguments, code, message, photos, cli, error_line, tmp_path, monkeypatch
):
    (tmp_path / "other.csv").write_text("a,b\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    monkeypatch.chdir(tmp_path)
    result = cli("embed", "photos", *arguments)
    assert result.exit_code == code
    assert message in error_line(result)
    assert not (tmp_path / "t").exists()


def test_strict_stops_before_the_encoder_is_loaded_or_by_its_report(
    photos, cli, error_line, tmp_path, monkeypatch
):
    (photos / "cat" / "private name.png").write_bytes(b"no image")
    result = cli(
        "embed",
        photos,
        "--encoder",
        "pixels",
        "--out",
        tmp_path / "t",
        "--unusable",
        "stop",
    )
    assert (result.exit_code, error_line(result)) == (
        4,
        f"--unusable stop {NOT_ALL_USABLE}",
    )
    assert not (tmp_path / "t").exists()
    # What only the encoder cannot take shows late.
    monkeypatch.setattr(Embed, "check_first", lambda *_: None)
    result = cli(
        "embed",
        photos,
        "--encoder",
        "pixels",
        "--out",
        tmp_path / "t",
        "--unusable",
        "stop",
    )
    assert result.exit_code == 4
    assert error_line(result) == (
        f"--unusable is stop, but a record of the source cannot be used; see {tmp_path / 't.report.jsonl'}."
    )


# Every record of these is left out, or all but some; nothing that is printed tells.
RECORDS = {
    "a good one": lambda path: Image.new("RGB", (9, 9)).save(path),
    "a damaged one": lambda path: path.write_bytes(b"no image"),
    "an empty one": lambda path: path.write_bytes(b""),
    "none": lambda path: None,
}


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_printed_tells_nothing_of_the_records(
    strict, photos, cli, tmp_path, monkeypatch
):
    shown = set()
    for number, make in enumerate(RECORDS.values()):
        if strict and number in (0, 3):
            continue  # that all records are good is what --unusable stop tells, and what it is there for
        path = photos / "dog" / f"{number} Jane Doe.png"
        make(path)
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        result = cli(
            "embed",
            photos,
            "--encoder",
            "pixels",
            "--out",
            "t",
            *(["--unusable", "stop"] if strict else []),
        )
        shown.add((result.exit_code, result.stdout, result.stderr))
        path.unlink(missing_ok=True)
    ((code, _, _),) = shown
    assert code == (4 if strict else 0)
    assert "Jane" not in str(shown)


def test_info(table, cli, tmp_path):
    lines = cli("table", tmp_path / "t").stdout.splitlines()
    assert lines[0] == table_module._OWNER
    assert [line.split(maxsplit=1) for line in lines[1:]] == [
        ["rows", "6"],
        ["dimension", "4"],
        ["dtype", "float16"],
        ["classes", "3"],
        ["files", "2"],
    ]
    np.save(tmp_path / "x.npy", np.eye(3))
    assert "classes    no labels" in cli("table", tmp_path / "x.npy").stdout


def test_labels_that_are_asked_for_and_not_there_are_an_error(photos, cli, error_line):
    (photos / "found.csv").write_text("filename,diagnosis\n")
    options = [
        "embed",
        photos,
        "--encoder",
        "pixels",
        "--read",
        f"labels={photos / 'found.csv'}",
        "--out",
    ]
    result = cli(*options, photos.parent / "t")
    assert (
        result.exit_code,
        "--y must name the column of labels" in error_line(result),
    ) == (4, True)
    assert not (photos.parent / "t").exists()
    assert cli(*options, photos.parent / "t", "--y", "diagnosis").exit_code == 0


def test_a_table_without_labels_says_so(cli, letters, tmp_path):
    (tmp_path / "new.txt").write_text("a text\n")
    lines = cli(
        "embed", tmp_path / "new.txt", "--encoder", "letters", "--out", tmp_path / "t"
    ).stdout.splitlines()
    assert "for a fit write the texts with their labels as a CSV file" in lines[1]


def test_convert(table, cli, error_line, tmp_path):
    out = tmp_path / "t.parquet"
    assert (
        cli("table", tmp_path / "t", "--out", out, "--rows", "float32").exit_code == 0
    )
    np.testing.assert_array_equal(np.asarray(read_table(out)), table)
    again = cli("table", tmp_path / "t", "--out", out)
    assert (again.exit_code, "add --force" in again.stderr) == (2, True)
    assert read_table(out).dtype == np.float32
    assert cli("table", tmp_path / "t", "--out", out, "--force").exit_code == 0
    assert read_table(out).dtype == np.float16
    for name in ("t.npz", "t.txt"):
        assert "must end in .parquet" in error_line(
            cli("table", tmp_path / "t", "--out", tmp_path / name)
        )


def test_columns_of_other_names(cli, error_line, tmp_path):
    rows = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))
    pq.write_table(
        pa.table({"v": rows, "ward": ["a", "b"], "id": ["p", "q"]}),
        tmp_path / "t.parquet",
    )
    assert "there are 'v', 'ward', 'id'" in error_line(
        cli("table", tmp_path / "t.parquet")
    )
    columns = ["--read", "x=v", "--read", "y=ward"]
    assert "classes    2" in cli("table", tmp_path / "t.parquet", *columns).stdout
    assert (
        cli(
            "table", tmp_path / "t.parquet", "--out", tmp_path / "u.parquet", *columns
        ).exit_code
        == 0
    )
    table = read_table(tmp_path / "u.parquet")
    assert (np.asarray(table).tolist(), table.y.tolist()) == (
        [[1, 2], [3, 4]],
        ["a", "b"],
    )
    assert table.ids == ["p", "q"]


def test_the_table_command_says_whom_it_is_for(cli):
    assert "For the owner of the records only" in " ".join(
        cli("table", "--help").stdout.split()
    )


def test_the_form_of_rows_is_for_a_file(cli, error_line, tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    result = cli("table", tmp_path / "x.npy", "--rows", "int8")
    assert (result.exit_code, error_line(result)) == (
        2,
        "--rows says how --out FILE is written; name it too.",
    )
