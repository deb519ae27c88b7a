"""`dppl check`."""

import json
import shlex

import numpy as np
import pytest

from dppl.cli._owner import WARNING
from dppl.io import open_source, skip_report, write_table


@pytest.fixture
def flawed(task):
    """A table with every flaw; the class "emu" has no records."""
    X = np.random.default_rng(0).standard_normal((40, 4))
    X[[2, 5]] = np.nan
    X[3, 1] = np.inf
    X[4] = [np.nan, np.inf, 0, 0]
    X[7:21] = 0.0
    X[30] = X[31] = X[0]
    X[32], X[33] = [0.0, 1, 2, 3], [-0.0, 1, 2, 3]
    y = np.repeat(["cat", "dog", "okapi", "yak", ""], (20, 9, 6, 4, 1))
    write_table(task.table, X, y)
    task.classes.write_text("dog\ncat\nemu\n")
    return task


EXPECTED = {
    "n": 40,
    "dimension": 4,
    "dtype": "float64",
    "bad_rows": {
        "nan": {"n": 3, "first": [3, 5, 6]},
        "infinite": {"n": 1, "first": [4]},
        "all_zero": {"n": 14, "first": list(range(8, 18))},
    },
    "duplicates": 3,
    "labels": {
        "type": "text",
        "unknown": [
            {"label": "okapi", "n": 6, "first": [30, 31, 32, 33, 34, 35]},
            {"label": "yak", "n": 4, "first": [36, 37, 38, 39]},
            {"label": None, "n": 1, "first": [40]},
        ],
        "unknown_records": 11,
        "class_sizes": [
            {"class": "dog", "n": 8},
            {"class": "cat", "n": 3},
            {"class": "emu", "n": 0},
        ],
        "classes_without_records": ["emu"],
    },
    "used": 11,
}


@pytest.mark.parametrize("block_rows", [1, 6, 4096])
def test_every_flaw_is_found_whatever_the_blocks(block_rows, flawed, cli, monkeypatch):
    monkeypatch.setattr(skip_report, "_BLOCK_ROWS", block_rows)
    result = cli("check", flawed.table, "--classes", flawed.classes, "--json")
    assert (result.exit_code, result.stderr) == (4, f"{WARNING}\n")
    assert json.loads(result.stdout) == {
        "for_the_owner_only": WARNING,
        "verdict": "stop",
        **EXPECTED,
    }


def test_the_report_for_people_says_first_whom_it_is_for_and_what_to_do(flawed, cli):
    result = cli("check", flawed.table, "--classes", flawed.classes)
    assert (result.exit_code, result.stderr) == (4, "")
    lines = result.stdout.splitlines()
    assert lines[0] == WARNING
    assert lines[1].startswith(
        "STOP: a fit would stop at the labels outside the class list, which are named below. "
    )
    assert "then it uses 11 of 40 records" in lines[1]
    assert lines[-1] == (
        f"Then: dppl fit {flawed.table} --classes {flawed.classes} --epsilon 1 --delta 1e-6 --out model.safetensors"
    )
    for line in (
        "rows            40",
        "dimension       4",
        "dtype           float64",
        "nan rows        3: 3, 5, 6",
        "infinite rows   1: 4",
        "all-zero rows   14: 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, ...",
        "duplicates      3 (usable, and equal to an earlier one)",
        "labels          text",
        "unknown labels  11 records, 3 labels",
        "                'okapi': 6 (30, 31, 32, 33, 34, 35)",
        "                'yak': 4 (36, 37, 38, 39)",
        "                (missing): 1 (40)",
        "empty classes   1",
        "│ cat   │       3 │",
    ):
        assert line in lines


def test_the_exit_code_says_whether_a_fit_would_stop(task, cli):
    check = ("check", task.table, "--classes", task.classes)
    assert cli(*check).stdout.splitlines()[1] == "GO: a fit uses 37 of 37 records."
    empty = task.folder / "empty.csv"
    empty.write_text("text,label\n")
    nothing = cli("check", empty, "--classes", task.classes)
    assert nothing.exit_code == 4
    assert nothing.stdout.splitlines()[1] == "STOP: a fit would use 0 of 0 records."
    for data in (empty, task.public):
        arguments = ("check", data, "--classes", task.classes)
        assert cli(*arguments, "--exit-zero").exit_code == 0
        assert json.loads(cli(*arguments, "--json").stdout)["verdict"] == "stop"


def test_the_last_line_is_the_command_that_trains(letters, task, cli):
    mails = task.folder / "mails of May.csv"
    rows = [f"{'abc' * (1 + number)},cat;dog,p{number}\n" for number in range(9)]
    mails.write_text("Export\n\nbody,folders,who\n" + "".join(rows))
    columns = ("--x", "body", "--y", "folders", "--groups", "who")
    how = ("--read", "labels_separator=;", "--read", "header=3", "--encoder", "letters")
    result = cli("check", mails, *columns, *how, "--classes", task.classes)
    *_, last = result.stdout.splitlines()
    said = shlex.split(last.removeprefix("Next: dppl "))
    assert said[:2] == ["train", str(mails)]
    assert cli(*said[:-1], task.out).exit_code == 0
    assert task.out.exists()


def test_the_owner_sees_scripts_beside_the_languages_of_the_encoder(letters, task, cli):
    texts = ["plain words", "Schmerzen im Rücken", "боль в спине", "120/80", "naïve"]
    data = task.folder / "texts.csv"
    data.write_text("text,label\n" + "".join(f"{text},cat\n" for text in texts))
    check = ("check", data, "--classes", task.classes)
    scripts = "scripts         Latin 3, Cyrillic 1, none 1; 2 texts have Latin letters"
    assert scripts in cli(*check, "--encoder", "letters").stdout
    assert "\nThe encoder minilm reads English; e5-small and" in cli(*check).stdout


def test_labels_that_people_take_for_a_class_are_named(tmp_path, cli):
    (tmp_path / "classes.txt").write_text("Straße\ncafé au lait\n7\n")
    alike = {
        "STRASSE": "Straße",
        "Cafe\u0301  Au Lait": "café au lait",
        "cafeaulait": None,
        "７": None,
        "Straße": None,
    }
    (tmp_path / "mails.csv").write_text(
        "text,label\n" + "".join(f"abc,{label}\n" for label in alike)
    )
    arguments = "check", tmp_path / "mails.csv", "--classes", tmp_path / "classes.txt"
    report = json.loads(cli(*arguments, "--json").stdout)
    found = {entry["label"]: entry.get("like") for entry in report["labels"]["unknown"]}
    assert found == {name: like for name, like in alike.items() if name != "Straße"}
    assert (
        "'STRASSE': 1, like the class 'Straße' but for case, spaces or accents"
        in cli(*arguments).stdout
    )


def test_a_good_table_has_nothing_to_report(task, cli):
    report = json.loads(
        cli("check", task.table, "--classes", task.classes, "--json").stdout
    )
    assert report["bad_rows"] == {
        kind: {"n": 0, "first": []} for kind in ("nan", "infinite", "all_zero")
    }
    assert report["duplicates"] == 0
    assert (
        report["labels"]["unknown"] == report["labels"]["classes_without_records"] == []
    )
    sizes = {entry["class"]: entry["n"] for entry in report["labels"]["class_sizes"]}
    assert sizes == {"cat": 20, "dog": 12, "gnu": 5}


def test_text_labels_meet_an_integer_class_list(task, cli):
    write_table(task.table, task.X[:5], ["1", "2", "2", "02", "two"])
    task.classes.write_text("1\n2\n3\n")
    report = json.loads(
        cli("check", task.table, "--classes", task.classes, "--json").stdout
    )["labels"]
    assert report["unknown"] == [
        {"label": "02", "n": 1, "first": [4]},
        {"label": "two", "n": 1, "first": [5]},
    ]
    assert report["class_sizes"] == [
        {"class": 1, "n": 1},
        {"class": 2, "n": 2},
        {"class": 3, "n": 0},
    ]


def test_many_unknown_labels_are_cut_for_people_only(task, cli):
    labels = [f"u{i:02}" for i in range(25)]
    write_table(task.table, task.X[:25], labels)
    shown = cli("check", task.table, "--classes", task.classes).stdout
    assert "'u19': 1" in shown
    assert "'u20': 1" not in shown
    assert "and 5 more labels" in shown
    report = json.loads(
        cli("check", task.table, "--classes", task.classes, "--json").stdout
    )
    assert len(report["labels"]["unknown"]) == 25


def test_a_table_without_labels_is_still_checked(task, cli):
    result = cli("check", task.public, "--classes", task.classes)
    assert result.exit_code == 4
    assert "\nSTOP: there are no labels. Name their array" in result.stdout
    assert (
        json.loads(
            cli("check", task.public, "--classes", task.classes, "--json").stdout
        )["labels"]
        is None
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.int32])
def test_every_type_of_rows_is_read(dtype, task, cli):
    np.save(task.folder / "rows.npy", np.array([[1, 2], [0, 0], [1, 2], [2, 1]], dtype))
    report = json.loads(
        cli(
            "check", task.folder / "rows.npy", "--classes", task.classes, "--json"
        ).stdout
    )
    assert report["dtype"] == np.dtype(dtype).name
    assert report["bad_rows"]["all_zero"] == {"n": 1, "first": [2]}
    assert report["duplicates"] == 1


def test_labels_cannot_steer_the_terminal(task, cli):
    write_table(task.table, task.X[:2], ["[red]", "\x1b[2J"])
    shown = cli("check", task.table, "--classes", task.classes).stdout
    assert "'[red]': 1" in shown
    assert "\x1b" not in shown


def test_texts_longer_than_an_encoder_reads_are_counted(letters, task, cli):
    texts = ["a", "b" * 120, "c" * 121, "", "d" * 5000]
    data = task.folder / "long.csv"
    data.write_text("text,label\n" + "".join(f"{text},cat\n" for text in texts))
    check = ("check", data, "--classes", task.classes)
    report = json.loads(cli(*check, "--encoder", "letters", "--json").stdout)
    places = [record.reference for record in open_source(data)]
    assert report["cut"] == {
        "max_windows": 2,
        "max_tokens": 64,
        "n": 2,
        "first": [places[2], places[4]],
    }
    assert report["used"] == 4
    shown = cli(*check, "--encoder", "letters").stdout
    assert (
        f"longer texts    2 than the encoder reads, 2 windows of 64 tokens: {places[2]}, {places[4]}\n"
        in shown
    )
    assert "cut" not in json.loads(cli(*check, "--json").stdout)
    whole = cli(*check, "--encoder", "letters?max_windows=100", "--json").stdout
    assert json.loads(whole)["cut"] == {
        "max_windows": 100,
        "max_tokens": 64,
        "n": 0,
        "first": [],
    }
    assert (
        "longer texts    0 than the encoder reads, 100 windows"
        in cli(*check, "--encoder", "letters?max_windows=100").stdout
    )


def test_no_model_is_loaded_to_count_texts(letters, task, cli, monkeypatch):
    monkeypatch.setattr("encoder_of_the_tests.load", None)
    data = task.folder / "long.csv"
    data.write_text("text,label\nshort,cat\n")
    assert (
        cli("check", data, "--classes", task.classes, "--encoder", "letters").exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["{table}", "--classes", "{classes}", "--encoder", "minilm"],
            2,
            "--encoder is for texts, which an encoder",
        ),
        (
            ["{texts}", "--classes", "{classes}", "--encoder", "pixels"],
            2,
            "--encoder must be an encoder of texts",
        ),
        (
            ["{texts}", "--classes", "{classes}", "--encoder", "letters?size=3"],
            2,
            "--encoder must be",
        ),
        (["{table}"], 2, "--classes"),
        (["{table}", "--classes", "no.txt"], 4, "no.txt"),
        (["no.npz", "--classes", "{classes}"], 4, "no.npz"),
        (["{table}", "--classes", "{classes}", "--y", "species"], 4, "species"),
    ],
)
def test_a_mistake_gets_one_line_and_a_code(
    arguments, code, words, task, cli, error_line
):
    texts = task.folder / "texts.txt"
    texts.write_text("a text\n")
    result = cli(
        "check",
        *(
            a.format(table=task.table, classes=task.classes, texts=texts)
            for a in arguments
        ),
    )
    assert result.exit_code == code
    assert words in error_line(result)
