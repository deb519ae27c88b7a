"""`dppl split`: two files that share nobody, and one account for both."""

import csv

import numpy as np
import pytest

from dppl.kernel.privacy import GaussianDP, Ledger


@pytest.fixture
def here(task, monkeypatch):
    monkeypatch.chdir(task.folder)
    np.savez("visits.npz", x=task.X, y=task.y, patient=np.arange(37) // 3)
    (task.folder / "split.key").write_text("a secret\n")
    return task


def parts(suffix="npz", name=""):
    return ["--out", f"{name}train-part.{suffix}", f"{name}test-part.{suffix}"]


def test_it_says_what_to_do_next(here, cli):
    result = cli(
        "split", "visits.npz", "--test", "0.3", *parts(), "--groups", "patient"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "Two files that share no record, and no id: train-part.npz, test-part.npz\n"
        "They are as private as the records.\n"
        "Next: train on train-part.npz with --ledger FILE NAME/train; then dppl evaluate MODEL test-part.npz "
        "with a budget and --ledger FILE NAME/test\n"
        "Before you trust a model of them, the owner of the records must read what dppl check FILE --classes FILE "
        "prints: it names the records that cannot be used. How many they are is private, so it is not printed here.\n"
    )


def test_a_key_file_repeats_a_split_and_white_space_around_it_does_not_matter(
    here, cli
):
    (here.folder / "again.key").write_bytes(b"a secret\r\n")
    for name, key in (("", "split.key"), ("again-", "again.key")):
        typed = [
            "split",
            "visits.npz",
            "--test",
            "0.5",
            "--groups",
            "patient",
            "--key",
            key,
            *parts(name=name),
        ]
        assert cli(*typed).exit_code == 0
    for one in ("train", "test"):
        assert (here.folder / f"{one}-part.npz").read_bytes() == (
            here.folder / f"again-{one}-part.npz"
        ).read_bytes()


def test_options_say_how_a_file_is_read(here, cli, error_line):
    (here.folder / "notes.txt").write_bytes(
        "text,label\nMünchen,cat\nBern,dog\n".encode("cp1252")
    )
    typed = ["split", "notes.txt", "--test", "0.5", "--read", "kind=csv", *parts("txt")]
    assert error_line(cli(*typed)).startswith(
        "--read encoding must name the encoding of notes.txt"
    )
    assert not list(here.folder.glob("*-part.txt"))
    assert cli(*typed, "--read", "encoding=cp1252").exit_code == 0
    rows = []
    for path in here.folder.glob("*-part.txt"):
        with path.open(encoding="cp1252", newline="") as file:
            rows += [row["text"] for row in csv.DictReader(file)]
    assert sorted(rows) == ["Bern", "München"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--test", "1"], 2, "--test must lie between 0 and 1, such as 0.2; got 1.0."),
        (
            ["--key", "split.key"],
            2,
            "--key needs a column of ids: without one nothing names a record again.",
        ),
        (
            ["--groups", "patient", "--key", "empty.key"],
            2,
            "--key must be a text or bytes that are not empty.",
        ),
        (
            ["--groups", "patient", "--key", "nowhere.key"],
            2,
            "--key must be a file with a secret; there is none. Draw one: openssl rand ",
        ),
        (
            ["--groups", "ward"],
            4,
            "--groups must name one array of visits.npz with an id a record",
        ),
        (
            ["--out", "a.npz", "train.npz"],
            2,
            "TEST of --out must name a new file; train.npz exists; choose another name.",
        ),
        (
            ["--out", "visits.npz", "b.npz"],
            2,
            "TRAIN of --out must not be a file that is read; visits.npz is",
        ),
        (
            ["--out", "a.npz", "a.npz"],
            2,
            "TEST of --out must be another file than TRAIN.",
        ),
        (
            ["--out", "a.npz", "part.csv"],
            2,
            "TEST of --out must end in .npz, for what is split; got part.csv.",
        ),
        (
            ["--out", "nowhere/part.npz", "b.npz"],
            2,
            "TRAIN of --out must lie in an existing folder",
        ),
        (
            ["--read", "encoding=cp1252"],
            2,
            "--read encoding goes with files of lines; visits.npz is read as npz.",
        ),
        (
            ["--read", "id=patient"],
            2,
            "--read takes NAME=VALUE with x, kind, encoding, sheet, header, sql; got 'id'.",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    options, code, said, here, cli, error_line
):
    (here.folder / "empty.key").write_text("\n")
    before = {path: path.read_bytes() for path in here.folder.iterdir()}
    result = cli("split", "visits.npz", "--test", "0.3", *parts(), *options)
    assert result.exit_code == code
    assert error_line(result).startswith(said)
    assert {path: path.read_bytes() for path in here.folder.iterdir()} == before


def test_a_fit_on_one_part_and_a_release_from_the_other_cost_the_larger(here, cli):
    """And on one and the same part both: squares of mu add up."""
    assert (
        cli(
            "split", "visits.npz", "--test", "0.3", *parts(), "--groups", "patient"
        ).exit_code
        == 0
    )
    cli("ledger", "create", "ledger.db", "wards", "--mu", "1", "--unit", "person")
    fit = [
        "fit",
        "{}-part.npz",
        "--groups",
        "patient",
        "--classes",
        "classes.txt",
        "--ledger",
        "ledger.db",
    ]
    for part, other, mu in (
        ("train", "train", 0.8),
        ("test", "test", 0.6),
        ("train", "again", 0.6),
    ):
        name = "train" if other == "again" else part
        typed = [word.format(part) for word in fit]
        result = cli(
            *typed, f"wards/{name}", "--mu", mu, "--out", f"{other}.safetensors"
        )
        assert result.exit_code == 0
    assert Ledger("ledger.db", "wards").spent()["mu"] == pytest.approx(1.0)
    assert (
        cli(*typed, "wards/train", "--mu", "0.1", "--out", "last.safetensors").exit_code
        == 3
    )
    assert Ledger("ledger.db", "wards", GaussianDP(1.0)).spent()["mu"] == pytest.approx(
        1.0
    )
