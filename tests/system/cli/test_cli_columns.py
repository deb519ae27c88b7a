"""`dppl columns`, and commands on rows of a table: one schema from the check to the predictions."""

import csv
import os
import shlex

import numpy as np
import pytest

import dppl
from dppl.cli._records import Engine
from dppl.engines import LocalEngine
from dppl.errors import BudgetExceeded
from dppl.training import PrivateClassifier

SCHEMA = 'age = [18, 90]\nward = ["north", "south"]\nsmoker = "yes/no"\n'
N = 400


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Write records of which two columns tell the class, with odd cells, beside their schema."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ill = rng.random(2 * N) < 0.5
    age = np.where(ill, rng.normal(70, 8, 2 * N), rng.normal(40, 8, 2 * N)).round(1)
    ward = np.where(rng.random(2 * N) < 0.5, "north", "south")
    smoker = np.where(ill ^ (rng.random(2 * N) < 0.1), "yes", "no")
    rows = [
        list(row)
        for row in zip(age, ward, smoker, np.where(ill, "ill", "well"), strict=True)
    ]
    rows[0][0], rows[1][1], rows[2][2], rows[3][0] = "", "attic", "perhaps", "140"
    for name, part in (("train.csv", rows[:N]), ("test.csv", rows[N:])):
        with open(name, "w", newline="") as file:
            csv.writer(file).writerows([["age", "ward", "smoker", "outcome"], *part])
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "classes.txt").write_text("ill\nwell\n")
    return tmp_path


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trained(work, cli):
    done = cli(
        *shlex.split(
            "train train.csv --y outcome --encoder columns:schema.toml --classes classes.txt"
        ),
        *shlex.split("--epsilon 1 --delta 1e-6 --out m.safetensors"),
    )
    assert done.exit_code == 0, done.stderr
    return dppl.load(work / "m.safetensors")


def test_a_table_is_trained_on_and_predicted_with_the_model_alone(trained, work, cli):
    os.remove(work / "schema.toml")  # the model holds it
    done = cli("predict", "m.safetensors", "test.csv", "--out", "labels.csv")
    assert done.exit_code == 0, done.stderr
    predicted = [row["label"] for row in read(work / "labels.csv")]
    records = read(work / "test.csv")
    right = np.mean(
        [one == row["outcome"] for one, row in zip(predicted, records, strict=True)]
    )
    assert right > 0.9
    model = PrivateClassifier.load(work / "m.safetensors")
    assert model.predict(records).tolist() == predicted
    said = cli("evaluate", "m.safetensors", "test.csv", "--y", "outcome")
    assert f"accuracy           {right:.4f}" in said.stdout


@pytest.mark.parametrize(
    ("error", "stays"), [(BudgetExceeded("it is spent."), False), (OSError(), True)]
)
def test_embeddings_by_tasks_stay_after_a_failure_and_go_after_a_refusal(
    trained, work, cli, monkeypatch, error, stays
):
    """And while one evaluation reads them, no other one may remove them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(work / "state"))
    monkeypatch.setattr(Engine, "tasks", lambda _: LocalEngine())
    command = "evaluate", "m.safetensors", "test.csv", "--y", "outcome", "--mu", "1"
    others = []

    def ended(*_, **__):
        if not others:
            others.append(None)
            others.append(cli(*command))
        raise error

    monkeypatch.setattr(dppl, "evaluate", ended)
    assert cli(*command).exit_code != 0
    assert "another process works on these records" in others[1].stderr
    left = [*(work / "state" / "dppl").iterdir()]
    assert bool(left) is stays
    assert all(one.stat().st_mode & 0o077 == 0 for one in left)


def test_public_rows_are_read_by_the_schema(work, cli):
    (work / "public.csv").write_bytes((work / "test.csv").read_bytes())
    done = cli(
        *shlex.split("train train.csv --y outcome --encoder columns:schema.toml"),
        *shlex.split("--public public.csv --classes classes.txt --out p.safetensors"),
        *shlex.split("--epsilon 1 --delta 1e-6"),
    )
    assert done.exit_code == 0, done.stderr
    assert "public rows" in str(dppl.load(work / "p.safetensors").guarantee_)


def test_fewer_columns_are_refused(trained, work, cli):
    (work / "few.csv").write_text("age,ward\n30,north\n")
    done = cli("predict", "m.safetensors", "few.csv")
    assert done.exit_code == 4
    assert "few.csv must have one column 'smoker', as the schema says" in done.stderr


def test_a_check_counts_what_is_odd_for_the_owner_and_a_run_says_nothing(work, cli):
    said = cli(
        *shlex.split(
            "check train.csv --y outcome --encoder columns:schema.toml --classes classes.txt"
        )
    ).stdout
    counts = {
        line.split()[0]: line.partition("  ")[2].strip()
        for line in said.splitlines()
        if "  " in line
    }
    assert counts["age"] == "1 missing, 1 beyond the bounds"
    assert counts["ward"] == counts["smoker"] == "1 unknown"
    assert counts["unusable"] == "0 (a fit skips them)"
    assert 'decimal = ","' in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--y", "smoker"), "'smoker' is a column of the schema"),
        (("--y", "outcome", "--x", "age"), "the schema names the columns"),
        (("--y", "outcome", "--encoder", "columns:none.toml"), "no schema none.toml"),
        (("--y", "outcome", "--encoder", "columns:"), "columns:SCHEMA"),
        (("--y", "outcome", "--encoder", "schema.toml"), "columns:schema.toml"),
    ],
)
def test_a_slip_is_refused_before_the_charge(work, cli, options, message):
    ledger = dppl.Ledger(work / "l.db", "visits", budget=dppl.ApproxDP(1, 1e-6))
    done = cli(
        *shlex.split(
            "train train.csv --encoder columns:schema.toml --classes classes.txt"
        ),
        *shlex.split(
            "--epsilon 1 --delta 1e-6 --out m.safetensors --ledger l.db visits"
        ),
        *options,
    )
    assert done.exit_code in (2, 4)
    assert message in done.stderr
    assert ledger.releases() == []


def test_a_proposal_says_what_to_fill_in_and_a_run_stops_until_it_is(work, cli):
    done = cli("columns", "train.csv", "--out", "whole.toml")
    assert "Remove the column of the labels" in done.stdout
    done = cli("columns", "train.csv", "--y", "outcome", "--out", "first.toml")
    assert done.exit_code == 0
    assert "train.csv --y outcome --encoder columns:first.toml" in done.stdout
    lines = (work / "first.toml").read_text().splitlines()
    assert lines[-3:] == ["age = [0, 120]", 'ward = "?"', 'smoker = "yes/no"']
    refused = cli(
        *shlex.split(
            "check train.csv --y outcome --encoder columns:first.toml --classes classes.txt"
        )
    )
    assert refused.exit_code == 4
    assert "'ward'" in refused.stderr
    again = cli("columns", "train.csv", "--out", "first.toml")
    assert again.exit_code == 2
