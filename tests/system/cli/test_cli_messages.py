"""What the command line says of files that cannot be used: which one, which option, and what to do."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import dppl
from dppl.cli import main
from dppl.cli.train import Train
from dppl.errors import Argument, InputError
from dppl.io import write_table
from dppl.io.tables.shards import OtherOptions

FIT = ["--mu", "1", "--out", "m.safetensors"]


@pytest.fixture
def here(task, monkeypatch):
    monkeypatch.chdir(task.folder)
    np.savez("other.npz", emb=task.X, y=task.y)
    (task.folder / "texts.csv").write_text("text,label\nhello,a\n")
    write_table("narrow.npz", task.X_public[:, :5])
    for name in ("empty.npz", "empty.csv", "empty.safetensors"):
        (task.folder / name).touch()
    return task


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["fit", "other.npz"],
            "--x must name an array or column of other.npz; it has no 'x'; there are 'emb', 'y'.",
        ),
        (
            ["fit", "train.npz", "--public", "narrow.npz"],
            "--public must have the 8 features of X; got 5 features.",
        ),
        (
            ["fit", "empty.npz"],
            "empty.npz must hold a table; it is empty; write it again.",
        ),
        (
            ["train", "empty.csv", "--encoder", "pixels"],
            "empty.csv is empty; its first line must name the columns.",
        ),
        (
            ["fit", "texts.csv"],
            "texts.csv is not a table of embeddings; if it holds raw records, train on them with dppl train texts.csv "
            "--encoder URI, or embed them first: dppl embed texts.csv --encoder URI --out FOLDER.",
        ),
    ],
)
def test_the_file_and_the_option_are_named(arguments, said, here, cli, error_line):
    result = cli(*arguments, "--classes", "classes.txt", *FIT)
    assert (result.exit_code, error_line(result)) == (4, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [
                "train",
                "train.npz",
                "--encoder",
                "pixels",
                "--classes",
                "classes.txt",
                *FIT,
            ],
            "train.npz is a table of embeddings, not of raw records; train on it with dppl fit train.npz.",
        ),
        (
            [
                "train",
                "texts.csv",
                "--encoder",
                "pixls",
                "--classes",
                "classes.txt",
                *FIT,
            ],
            "or vit-b-16, vit-h-14, vit-l-16, resnet-50, e5-small, e5-base; got 'pixls'. Try --encoder pixels",
        ),
        (
            ["predict", "m", "train.npz", "--top", "x"],
            "--top must be a number of classes, or all; got 'x'.",
        ),
    ],
)
def test_what_was_meant_is_named(arguments, said, here, cli, error_line):
    result = cli(*arguments)
    assert result.exit_code == 2
    assert error_line(result).endswith(said)


def test_standard_input_is_called_so(here, cli, error_line):
    assert cli("fit", "train.npz", "--classes", "classes.txt", *FIT).exit_code == 0
    result = cli(
        "predict", "m.safetensors", "-", "--read", "kind=images", input="hello\n"
    )
    line = re.sub(r"\S*/stdin", "stdin", error_line(result))
    assert (
        line
        == "--read kind must be another for stdin.txt, which is a file and not a folder of images. "
        "stdin.txt is a copy of standard input."
    )


def test_a_class_list_that_is_no_text_is_refused_in_words(here, cli, error_line):
    line = error_line(cli("fit", "train.npz", "--classes", "train.npz", *FIT))
    assert (
        line
        == "train.npz must be a UTF-8 text file; got bytes that are not UTF-8; name another file, or save it as UTF-8"
    )


def test_nothing_is_printed_before_a_wrong_delta(here, cli, error_line):
    assert cli("fit", "train.npz", "--classes", "classes.txt", *FIT).exit_code == 0
    result = cli("show", "m.safetensors", "--delta", "3")
    assert (result.exit_code, result.stdout) == (2, "")
    assert error_line(result) == "--delta must lie strictly between 0 and 1; got 3.0."


def test_the_library_suggests_the_parameter_and_the_command_line_the_option():
    error = InputError("must be another.", parameter="x", suggestion="a b")
    assert str(error) == "x must be another. Try x='a b'"
    assert main._message(error, {"x": "--x"}) == "--x must be another. Try --x 'a b'"


def test_the_command_that_removes_what_a_run_left_is_named(tmp_path):
    folder = tmp_path / "my model.work"
    command = Train(data=tmp_path, encoder="pixels", out=tmp_path / "my model")
    with pytest.raises(OtherOptions) as caught, command.stoppable():
        raise OtherOptions(folder, "another seed")
    assert not hasattr(caught.value, "__notes__")  # nothing lies there
    (folder / "private").mkdir(parents=True)
    with pytest.raises(OtherOptions) as caught, command.stoppable():
        raise OtherOptions(folder, "another seed")
    assert main._message(caught.value, {}).endswith(
        f"To start over, type: rm -r '{folder}'"
    )


def test_values_of_parameters_are_options_on_the_command_line():
    error = InputError(
        "is refused; ",
        Argument("method", "mean"),
        " takes it, and ",
        Argument("name", "x"),
        " is no option.",
        parameter="y",
    )
    assert (
        str(error) == "y is refused; method='mean' takes it, and name='x' is no option."
    )
    options = {"y": "--y", "method": "--method"}
    assert (
        main._message(error, options)
        == "--y is refused; --method mean takes it, and name='x' is no option."
    )
    options["options"] = "--options"
    assert main._message(error, options).endswith("and --options name=x is no option.")
    error = InputError("set ", Argument("y", True), ". ApproxDP(y=2) stays.")
    assert main._message(error, options) == "set --y. ApproxDP(y=2) stays."


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is always full"
)
@pytest.mark.parametrize(
    "arguments", [["--version"], ["fit", "--help"], ["embed", "--encoders"]]
)
def test_a_full_disk_behind_standard_output_is_named(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dppl", *arguments]
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        4,
        "dppl: error: standard output: No space left on device.\n",
    )


def test_an_error_of_another_file_is_not_that_of_standard_output():
    assert main._message(OSError(5, "Input/output error"), {}) == "Input/output error."


def test_a_model_file_without_a_byte_is_called_truncated(here, cli, error_line):
    line = error_line(cli("show", "empty.safetensors"))
    assert line.startswith(
        "empty.safetensors is not a whole safetensors file: it is truncated, or not a model."
    )


def test_a_public_table_of_another_encoder_is_refused(here, cli, error_line):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, rows in (("a", here.X), ("b", here.X_public)):
        table = pa.table(
            {"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 8)}
        )
        if name == "a":
            table = table.append_column("y", pa.array(here.y.tolist()))
        pq.write_table(
            table.replace_schema_metadata({"encoder": f"encoder {name}"}),
            f"{name}.parquet",
        )
    result = cli(
        "fit", "a.parquet", "--public", "b.parquet", "--classes", "classes.txt", *FIT
    )
    assert error_line(result) == (
        "public.rows must be embedded by the encoder that the fit names; its table names another encoder, or other "
        "weights or preprocessing. Embed these records with the same encoder."
    )


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is always full"
)
def test_no_device_is_replaced_by_a_file(here, cli, error_line):
    result = cli(
        "fit",
        "train.npz",
        "--classes",
        "classes.txt",
        "--mu",
        "1",
        "--out",
        os.devnull,
        "--force",
    )
    assert (result.exit_code, error_line(result)) == (
        2,
        f"--out must name a file; {os.devnull} is a device or a pipe.",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of a file's size")
def test_a_file_that_does_not_fit_is_named(here, cli, error_line):
    """A limit stands for the full disk; the system's own words differ."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        result = cli(
            "fit", "train.npz", "--classes", "classes.txt", "--mu", "0.2", *FIT[2:]
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (result.exit_code, error_line(result)) == (
        4,
        "m.safetensors: File too large. Make room there, or choose a place on another disk. Nothing was charged.",
    )


class TestRawSources:
    """`dppl check` of texts and images."""

    def test_texts_are_checked_without_an_encoder(self, here, cli):
        (here.folder / "notes.csv").write_text(
            "note,kind\nhello,cat\n,dog\nhello,cat\nbye,yak\nrow,\n"
        )
        arguments = [
            "check",
            "notes.csv",
            "--x",
            "note",
            "--y",
            "kind",
            "--classes",
            "classes.txt",
        ]
        report = json.loads(cli(*arguments, "--json").stdout)
        assert {
            key: report[key] for key in ("n", "modality", "unusable", "duplicates")
        } == {
            "n": 5,
            "modality": "text",
            "unusable": [{"reason": {"code": "empty"}, "n": 1, "first": ["row 2"]}],
            "duplicates": 1,
        }
        assert report["labels"]["unknown"] == [
            {"label": None, "n": 1, "first": ["row 5"]},
            {"label": "yak", "n": 1, "first": ["row 4"]},
        ]
        assert [entry["n"] for entry in report["labels"]["class_sizes"]] == [2, 0, 0]
        shown = cli(*arguments).stdout
        assert (
            "unusable        1 (a fit skips them)\n                it is empty: row 2"
            in shown
        )
        assert "texts; row 1 is the first below any header\n" in shown

    def test_repeated_ids_are_found(self, here, cli):
        (here.folder / "notes.csv").write_text("text,label,id\na,cat,1\nb,dog,1\n")
        arguments = (
            "check",
            "notes.csv",
            "--read",
            "id=id",
            "--classes",
            "classes.txt",
        )
        report = json.loads(cli(*arguments, "--json").stdout)
        assert report["repeated_ids"] == {"n": 1, "first": ["row 2"]}
        assert report["unusable"] == []
        assert (
            "repeated ids    1 (a fit takes them all): row 2" in cli(*arguments).stdout
        )

    def test_images_are_decoded(self, here, cli):
        from PIL import Image

        (here.folder / "scans" / "cat").mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(here.folder / "scans" / "cat" / "a.png")
        (here.folder / "scans" / "cat" / "b.png").write_bytes(b"no image")
        report = json.loads(
            cli("check", "scans", "--classes", "classes.txt", "--json").stdout
        )
        assert (report["n"], report["modality"]) == (2, "image")
        assert [(entry["reason"], entry["n"]) for entry in report["unusable"]] == [
            ({"code": "unknown_format"}, 1)
        ]

    def test_a_source_without_labels_is_told_so(self, here, cli):
        (here.folder / "notes.txt").write_text("a\nb\n")
        assert (
            "STOP: there are no labels. Name their"
            in cli("check", "notes.txt", "--classes", "classes.txt").stdout
        )


def test_frames_name_the_columns_that_are_no_numbers():
    import dppl

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1.0, 2.0], "name": ["Jane Doe", "x"]})
    with pytest.raises(TypeError, match=r"Columns of other types: 'name'\.") as caught:
        dppl.MeanPrototypes(dppl.GaussianDP(1.0), classes=["a", "b"]).fit(
            frame, ["a", "b"]
        )
    assert "Jane" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "data"),
    [
        (["train", "--encoder", "pixels"], "postgresql://bob:s3cret@host/x"),
        (
            ["embed", "--encoder", "pixels", "--out", "table"],
            "postgresql://bob:s3cret@host/x",
        ),
        (["check", "--read", "kind=csv"], "postgresql://bob:s3cret@host/x"),
        (["train", "--encoder", "pixels"], "s3://bob:s3cret@bucket/x.npy"),
        (["fit"], "rows.npz"),
    ],
)
def test_no_message_shows_the_password_of_a_url(command, data, here, cli, error_line):
    np.savez("rows.npz", x=np.ones((3, 2)))
    data = data if ":" in data else f"file://{here}/{data}?password=s3cret"
    fit = [] if command[0] in ("embed", "check") else FIT
    result = cli(
        command[0],
        data,
        *command[1:],
        *([] if command[0] == "embed" else ["--classes", "classes.txt"]),
        *fit,
    )
    assert result.exit_code in (2, 4)
    assert "s3cret" not in error_line(result)


@pytest.mark.parametrize("value", ["labels_separator=", "labels="])
def test_an_empty_value_charges_nothing(value, here, cli, error_line):
    result = cli("evaluate", "classes.txt", "texts.csv", "--read", value, "--mu", "1")
    assert result.exit_code == 2
    assert error_line(result).endswith(f"--read must be NAME=VALUE; got '{value}'.")


@pytest.mark.parametrize("name", ["", "/y.npy", "/y.txt"])
def test_no_message_shows_the_password_of_a_file_of_labels(name, here, cli, error_line):
    np.savez("rows.npz", x=np.ones((3, 2)))
    labels = f"labels=postgresql://bob:s3cret@host{name}"
    line = error_line(
        cli("fit", "rows.npz", "--classes", "classes.txt", *FIT, "--read", labels)
    )
    assert "host" in line
    assert "s3cret" not in line


PLAN = "plan --n-classes 3 --n-records 500 --n-features 32 --epsilon 1 --delta 1e-6"
FITTED = "fit train.npz --classes classes.txt --mu 1 --method mean --out"


@pytest.mark.skipif(sys.platform == "win32", reason="its shell closes no streams")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_without_streams(here, closed):
    """And its files are whole: none takes the number of a stream that others write to."""
    for code in (0, 2):  # the second finds the file of the first
        command = f'"{sys.executable}" -m dppl {FITTED} m.safetensors {closed}'
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
        # The control: what is open is written to.
        assert (done.stdout == b"") == (">&-" in closed.split() or code != 0)
    assert dppl.load("m.safetensors").predict(here.X[:1]).shape == (1,)


@pytest.mark.skipif(sys.platform == "win32", reason="its shell closes no streams")
@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        ("predict m.safetensors train.npz", "l.csv"),
        ("evaluate m.safetensors train.npz --mu 1", "e.json"),
    ],
)
def test_what_only_standard_output_would_get_is_not_lost(
    here, model, arguments, out, cli
):
    model.rename("m.safetensors")
    command = f'"{sys.executable}" -m dppl {arguments} >&-'
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "error: --out must name a file: standard output is closed" in done.stderr
    # The controls.
    assert cli(*arguments.split()).exit_code == 0
    assert cli(*arguments.split(), "--out", out).exit_code == 0


def test_a_python_without_a_console_runs_commands(here):
    script = f"""
import sys
from dppl.cli.main import run

sys.stdin = sys.stdout = sys.stderr = None
sys.argv[1:] = "{FITTED} m.safetensors".split()
run()
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    dppl.load("m.safetensors")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pipe of a shell")
def test_an_error_that_nobody_reads_keeps_its_code(here):
    """The pipe is closed before anything is written to it."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "dppl", *PLAN.split(), "--epsilon", "x"]
    done = subprocess.run(
        command, stdout=writing, stderr=writing, timeout=60, check=False
    )
    os.close(writing)
    assert done.returncode == 2
