"""The same records in a CSV file, a workbook, a database or folders of keys: every command reads them as the same."""

import csv
import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipped import said

CLASSES = ["cat", "dog", "gnu"]
ROWS = [
    ("".join(np.random.default_rng(place).choice(list(alphabet), 12)), name, place // 2)
    for place, (name, alphabet) in enumerate(
        zip(CLASSES * 10, ["abcde", "fghij", "klmno"] * 10, strict=True)
    )
]
SECRET = "s3same-open"
SQL = f"select text, label, who, '{SECRET}' as other from mails order by place"
TRAIN = (
    "--encoder",
    "letters",
    "--classes",
    "classes.txt",
    "--mu",
    "1e4",
    "--weak",
    "--options",
    "random_state=3",
)


@pytest.fixture
def folder(tmp_path, monkeypatch, letters):
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    monkeypatch.chdir(tmp_path)
    rows = [("", "cat", 99), *ROWS]
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    with (tmp_path / "mails.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label", "who"), *rows])
    with xlsxwriter.Workbook("mails.xlsx") as book:
        book.add_worksheet("Notes").write_row(0, 0, ["text"])
        sheet = book.add_worksheet("Mails")
        for number, row in enumerate([("text", "label", "who"), *rows]):
            sheet.write_row(number, 0, row)
        sheet.write_formula(1, 0, "=NA()", None, "#N/A")
    with sqlite3.connect("mails.db") as connection:
        connection.execute(
            "create table mails(text, label, who, place integer primary key)"
        )
        connection.executemany(
            "insert into mails(text, label, who) values (?, ?, ?)",
            [(None, "cat", 99), *rows[1:]],
        )
    connection.close()
    for name in CLASSES:
        (tmp_path / "mails" / f"label={name}").mkdir(parents=True)
        some = [row for row in rows if row[1] == name]
        columns = {"text": [row[0] for row in some], "who": [row[2] for row in some]}
        pq.write_table(
            pa.table(columns), tmp_path / "mails" / f"label={name}" / "0.parquet"
        )
    return tmp_path


SOURCES = {
    "csv": ("mails.csv",),
    "workbook": ("mails.xlsx", "--read", "sheet=Mails"),
    "query": ("mails.db", "--read", f"sql={SQL}"),
    "folders": ("mails",),
}


def test_every_command_reads_them_as_the_same(folder, cli):
    models = {}
    shown = {}
    for name, source in SOURCES.items():
        assert (
            cli(
                "train",
                *source,
                *TRAIN,
                "--groups",
                "who",
                "--out",
                f"{name}.safetensors",
            ).exit_code
            == 0
        )
        models[name] = (folder / f"{name}.safetensors").read_bytes()
        left_out = (folder / f"{name}.safetensors.private.jsonl").read_text()
        assert '"reference": "row 1", "reason": {"code": "empty"}' in left_out
        report = cli(
            "check", *source, "--groups", "who", "--classes", "classes.txt"
        ).stdout.rpartition("\nNext: ")[0]  # which names the source
        exact = cli(
            "evaluate", f"{name}.safetensors", *source, "--groups", "who"
        ).stdout
        found = cli("predict", f"{name}.safetensors", *source)
        assert "their labels are empty: row 1." in found.stderr
        shown[name] = (
            report,
            exact,
            sorted(line.split(",")[-1] for line in found.stdout.splitlines()),
        )
        assert (
            cli("embed", *source, "--encoder", "letters", "--out", name).exit_code == 0
        )
        assert (
            "finished before"
            in cli("embed", *source, "--encoder", "letters", "--out", name).stdout
        )
    for name in SOURCES:
        assert models[name] == models["csv"]
        assert shown[name] == shown["csv"]
    written = [
        file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "mails.db"
    ]
    assert not any(
        SECRET.encode() in content or b"mails.db" in content for content in written
    )


def test_data_may_be_a_database(folder, cli, error_line, monkeypatch):
    check = ("check", "--classes", "classes.txt")
    for options, message in (
        (("mails.db",), "a database needs a query (sql)"),
        (
            ("mails.csv", "--read", f"sql={SQL}"),
            "a database must be a URL of SQLAlchemy, or a file that ends in .duckdb",
        ),
        (
            ("env:NOT_THERE", "--read", f"sql={SQL}"),
            "DATA names an environment variable that is not set.",
        ),
        (
            ("mails.db", "--read", f"sql={SQL}", "--read", "sheet=A"),
            "--read sheet goes with files; a query says all.",
        ),
        (
            ("mails.db", "--read", "sql=select text from mails"),
            "--read sql must say in which order the rows come",
        ),
    ):
        result = cli(*check, *options)
        assert (result.exit_code != 0, message in error_line(result)) == (True, True)
    url = f"sqlite:///{folder / 'mails.db'}"
    monkeypatch.setenv("MAILS", url)
    for database in (url, "env:MAILS"):
        assert (
            "a fit uses 30 of 31 records"
            in cli(*check, database, "--read", f"sql={SQL}").stdout
        )
    url = f"postgresql://me:{SECRET}@localhost:1/mails"
    monkeypatch.setenv("MAILS", url)
    for database in (url, "env:MAILS"):
        assert (
            SECRET
            not in cli(*check, database, "--read", "sql=select 1 order by 1").stderr
        )
    unlabelled = (
        "train",
        f"sqlite:///{folder / 'mails.db'}",
        "--read",
        "sql=select text from mails order by 1",
        *TRAIN,
    )
    assert error_line(cli(*unlabelled, "--out", "m.safetensors")).startswith(
        "the query has no labels"
    )
    assert cli(*check, "mails.csv").exit_code == 0


def test_a_split_of_any_is_a_split_of_csv(folder, cli):
    (folder / "key").write_text("a secret")
    parts = {}
    for name, source in SOURCES.items():
        suffix = ".parquet" if name == "folders" else ".csv"
        outs = [f"{name}-{part}{suffix}" for part in ("train", "test")]
        split = (
            "split",
            *source,
            "--test",
            "0.5",
            "--groups",
            "who",
            "--key",
            "key",
            "--out",
            *outs,
        )
        assert cli(*split).exit_code == 0
        report = ("--groups", "who", "--classes", "classes.txt")
        parts[name] = [
            cli("check", out, *report).stdout.rpartition("\nNext: ")[0] for out in outs
        ]
        assert "30 of" not in parts[name][0]
    for name in SOURCES:
        assert parts[name] == parts["csv"]


def test_no_row_of_a_csv_file_is_lost_without_a_word_to_its_owner(
    folder, cli, error_line
):
    """Of another encoding, ragged, or taken in by a quote that never closes."""
    lines = [
        "text,label",
        *(f"{text},{name}" for text, name, _ in ROWS[:6]),
        "a,b,cat",
        "klm",
        '"abc,cat',
        "fgh,dog",
    ]
    (folder / "ragged.csv").write_text("\n".join([*lines, ""]))
    reasons = {
        "row 7": "its row and the header have different numbers of cells: 3 and 2",
        "row 8": "its row and the header have different numbers of cells: 1 and 2",
        "row 9": "its row opens a quote that never closes (lines lost after it: 1)",
    }
    shown = cli("check", "ragged.csv", "--classes", "classes.txt").stdout
    assert "unusable        3 " in shown
    assert all(f"{reason}: {row}\n" in shown for row, reason in reasons.items())
    assert "a fit uses 6 of 9 records" in shown
    assert (
        cli(
            "train",
            "ragged.csv",
            *TRAIN,
            "--out",
            "m.safetensors",
            "--unusable",
            "stop",
        ).exit_code
        == 4
    )
    assert cli("train", "ragged.csv", *TRAIN, "--out", "m.safetensors").exit_code == 0
    entries = [
        json.loads(line)
        for line in (folder / "m.safetensors.private.jsonl").read_text().splitlines()
    ]
    assert {
        entry["reference"]: said(entry["reason"])
        for entry in entries
        if "reference" in entry
    } == reasons
    (folder / "latin.csv").write_bytes(
        "text,label\nnaïve,cat\nabc,dog\n".encode("latin-1")
    )
    result = cli("check", "latin.csv", "--classes", "classes.txt")
    assert (
        result.exit_code,
        "--read encoding must name the encoding" in error_line(result),
    ) == (4, True)
    named = cli(
        "check", "latin.csv", "--classes", "classes.txt", "--read", "encoding=latin-1"
    ).stdout
    assert "a fit uses 2 of 2 records." in named
