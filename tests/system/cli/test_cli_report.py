"""`dppl show --out`: a page about a model, for people."""

import json
import re

import numpy as np
import pytest

import dppl
from dppl import PublicData
from dppl.statement import Report


@pytest.fixture
def evaluation(task, model, cli):
    """Write what `dppl evaluate --json` prints into a file."""
    path = task.folder / "test.json"
    path.write_text(cli("evaluate", model, task.table, "--json").stdout)
    return path


def test_a_page_is_written_once_and_replaced_on_request(
    task, model, cli, error_line, monkeypatch
):
    monkeypatch.chdir(task.folder)
    command = ("show", model, "--out", "report.html")
    result = cli(*command)
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "Page: report.html\n",
        "",
    )
    page = (task.folder / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "gnu" in page
    again = cli(*command)
    assert again.exit_code == 2
    assert (
        error_line(again)
        == "--out must name a new file; report.html exists; choose another name, or add --force."
    )
    assert cli(*command, "--force", "--by", "Ward 7").exit_code == 0
    assert "Made by Ward 7." in (task.folder / "report.html").read_text(
        encoding="utf-8"
    )


def test_the_form_is_as_the_file_ends(task, model, cli, monkeypatch):
    monkeypatch.chdir(task.folder)
    for name, beginning in (
        ("r.html", "<!DOCTYPE html>"),
        ("r.md", "# A private classifier"),
        ("r.json", '{\n  "format": 3'),
    ):
        assert cli("show", model, "--out", name).exit_code == 0
        assert (task.folder / name).read_text(encoding="utf-8").startswith(beginning)


def test_the_json_makes_the_page_again(task, model, evaluation, cli):
    for name in ("r.html", "r.json"):
        assert (
            cli(
                "show", model, "--results", evaluation, "--out", task.folder / name
            ).exit_code
            == 0
        )
    again = Report(json.loads((task.folder / "r.json").read_text()))
    assert again.html() == (task.folder / "r.html").read_text(encoding="utf-8")


def test_results_are_marked_and_noted(task, model, evaluation, cli):
    result = cli(
        "show", model, "--results", evaluation, "--out", task.folder / "r.html"
    )
    assert (
        result.stderr
        == "dppl: note: figures computed on private records are not covered by the model's guarantee.\n"
    )
    page = (task.folder / "r.html").read_text(encoding="utf-8")
    assert "measured on 37 labelled records" in page
    assert "Accuracy by class" in page


def test_confusions_are_those_of_the_predictions(task, model, cli):
    wrong = np.where(np.arange(37) % 5 == 0, "gnu", task.y)
    (task.folder / "y.txt").write_text("".join(f"{name}\n" for name in wrong))
    found = json.loads(
        cli(
            "evaluate",
            model,
            task.table,
            "--read",
            f"labels={task.folder / 'y.txt'}",
            "--json",
        ).stdout
    )
    predicted = dppl.load(model).predict(task.X)
    pairs = {(one["class"], one["predicted"]): one["n"] for one in found["confusions"]}
    assert pairs
    assert pairs == {
        (one, other): n
        for one in ["cat", "dog", "gnu"]
        for other in ["cat", "dog", "gnu"]
        if one != other and (n := int(((wrong == one) & (predicted == other)).sum()))
    }
    counts = [one["n"] for one in found["confusions"]]
    assert counts == sorted(counts, reverse=True)
    assert found["accuracy"] == pytest.approx(1 - sum(counts) / 37)


def test_the_ledger_that_paid_is_shown(task, cli, error_line):
    folder = task.folder
    cli("ledger", "create", folder / "ledger.db", "wards", "--mu", 2)
    common = ("--classes", task.classes, "--mu", 1, "--method", "mean")
    account = ("--ledger", folder / "ledger.db", "wards")
    assert (
        cli(
            "fit", task.table, *common, "--out", folder / "paid.safetensors", *account
        ).exit_code
        == 0
    )
    result = cli(
        "show", folder / "paid.safetensors", *account, "--out", folder / "r.md"
    )
    assert result.exit_code == 0
    text = (folder / "r.md").read_text(encoding="utf-8")
    assert "The account of wards" in text
    assert "mu 1.73205 is left" in text
    assert (
        cli("fit", task.table, *common, "--out", folder / "free.safetensors").exit_code
        == 0
    )
    refused = cli(
        "show", folder / "free.safetensors", *account, "--out", folder / "f.md"
    )
    assert refused.exit_code == 4
    assert "no account of the ledger paid for this model" in error_line(refused)
    assert not (folder / "f.md").exists()


def test_selected_texts_are_shown(tmp_path, letters, cli, error_line, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.txt").write_text("aaa first\nbbb second\nccc <third>\n")
    assert (
        cli("embed", "pool.txt", "--encoder", "letters", "--out", "pool").exit_code == 0
    )
    public = dppl.io.read_table(tmp_path / "pool")
    X = np.asarray(public)[[0, 0, 1, 1]]
    model = dppl.PublicPrototypes(dppl.PureDP(20.0), ["a", "b"], random_state=0)
    model.set_params(public=PublicData(public)).fit(X, ["a", "a", "b", "b"]).save(
        "m.safetensors"
    )
    assert (
        cli(
            "show", "m.safetensors", "--public", "pool.txt", "--out", "r.json"
        ).exit_code
        == 0
    )
    shown = json.loads((tmp_path / "r.json").read_text())["gallery"]
    lines = (tmp_path / "pool.txt").read_text().splitlines()
    assert shown["kind"] == "text"
    assert [[item["text"] for item in one["items"]] for one in shown["classes"]] == [
        [lines[row] for row in rows] for rows in model.public_indices_
    ]
    refused = cli("show", "m.safetensors", "--public", "pool", "--out", "again.html")
    assert refused.exit_code == 2
    assert "not their embeddings" in error_line(refused)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--out", "r.pdf"], 2, "--out must end in .html"),
        (["--out", "report.html", "--for", "hub"], 2, "--out must end in .md"),
        (["--by", "Ward 7"], 2, "--by says what is on a page; add --out FILE.html"),
        (["--out", "report.html", "--public", "nowhere"], 4, "nowhere"),
        (["--out", "report.html", "--results", "nowhere.json"], 4, "nowhere.json"),
        (["--out", "report.html", "--ledger", "nowhere.db", "wards"], 4, "nowhere.db"),
        (
            ["--out", "report.html", "--results", "{table}"],
            4,
            "does not hold an evaluation",
        ),
        (
            ["--out", "page.html", "--results", "page.html", "--force"],
            2,
            "--out must not be a file that is read",
        ),
        (["--out", "nowhere/r.html"], 2, "existing folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    options, code, message, task, model, cli, error_line, monkeypatch
):
    monkeypatch.chdir(task.folder)
    (task.folder / "page.html").touch()
    result = cli(
        "show", model, *(option.format(table=task.table) for option in options)
    )
    assert result.exit_code == code
    assert message in error_line(result)
    assert not (task.folder / "report.html").exists()


def test_a_page_says_nothing_of_where_it_was_made(task, model, cli):
    cli("show", model, "--out", task.folder / "r.html")
    assert not re.search(
        re.escape(str(task.folder)),
        (task.folder / "r.html").read_text(encoding="utf-8"),
    )
