"""`dppl plan`."""

import json
import re
from pathlib import Path

import pytest

from dppl import ApproxDP, GaussianDP, plan_budget
from dppl.planning import plan_evaluation

USUAL = (
    "plan",
    "--n-classes",
    10,
    "--n-records",
    5000,
    "--smallest",
    20,
    "--encoder",
    "minilm",
)
EPSILON = ("--epsilon", 1, "--delta", "1e-6")


def test_one_page_says_it(cli):
    result = cli(*USUAL, *EPSILON)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = " ".join(result.stdout.split())
    assert (
        "A class of 20 records is not expected to be found at epsilon = 1 at delta = 1e-6"
        in shown
    )
    assert "it takes about" in shown
    assert len(result.stdout.splitlines()) < 40


def test_the_page_shows_what_its_command_prints(cli):
    page = (Path(__file__).parents[3] / "docs" / "planning.md").read_text(
        encoding="utf-8"
    )
    command, _ = re.findall(r"```console\n(dppl plan .*)\n```", page)
    (table,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    result = cli(*command.split()[1:], COLUMNS="100")
    assert table.startswith("┏")
    assert table in result.stdout


def test_json_is_what_python_returns(cli):
    plan = plan_budget(
        ApproxDP(1, 1e-6), n_classes=10, n_records=5000, smallest=20, encoder="minilm"
    )
    assert json.loads(cli(*USUAL, *EPSILON, "--json").stdout) == plan.to_dict()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((*USUAL,), 2, "specify exactly one budget"),
        ((*USUAL, "--epsilon", 1), 2, "add --delta 1e-6 to the budget"),
        (
            (*USUAL, "--epsilon", 1, "--method", "public"),
            2,
            "--n-public must be above 0",
        ),
        ((*USUAL, "--mu", 0), 3, "mu = 0"),
        ((*USUAL, "--mu", 1, "--ceiling", 0.05), 2, "--ceiling must be above chance"),
        (
            ("plan", "--n-classes", 10, "--n-records", 50, "--mu", 1),
            2,
            "--n-features must be given, or a",
        ),
        (
            ("plan", "--n-classes", 10, "--n-records", 5, "--n-features", 8, "--mu", 1),
            2,
            "--n-records must be at least 10",
        ),
        (
            ("plan", "--n-classes", 1, "--n-records", 5, "--n-features", 8, "--mu", 1),
            2,
            "--n-classes must be at least 2",
        ),
        ((*USUAL[:-1], "bert", "--mu", 1), 2, "--encoder must be one of"),
    ],
)
def test_wrong_inputs_end_in_one_line(cli, arguments, code, words):
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_command_plans_test_records_with_the_same_shares(cli):
    typed = (
        "plan",
        "--n-classes",
        10,
        "--n-records",
        5000,
        "--smallest",
        100,
        "--n-features",
        64,
        "--mu",
        0.3,
    )
    content = json.loads(cli(*typed, "--n-test", 2500, "--json").stdout)
    evaluation = content.pop("evaluation")
    assert content == json.loads(cli(*typed, "--json").stdout)
    rate = content["balanced_accuracy"]
    assert (
        evaluation
        == plan_evaluation(
            GaussianDP(0.3), n_classes=10, n_test=2500, smallest=50, rate=rate
        ).to_dict()
    )
    shown = " ".join(cli(*typed, "--n-test", 2500).stdout.split())
    assert f"±{evaluation['accuracy']:.3f}" in shown
    assert "budget for ±0.05" in shown
    refused = cli(*typed, "--n-test", 9)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--n-test must be at least 10" in refused.stderr


def test_persons_count_as_one_record_each(cli):
    size = ("--n-records", 9000, "--n-persons", 5000)
    typed = (*USUAL[:3], *size, *USUAL[5:], *EPSILON)
    shown = " ".join(cli(*typed, "--n-test", 1000).stdout.split())
    assert "persons of the class" in shown
    assert "Of 5000 persons with 1.8 records each" in shown
    assert "For 1000 test persons" in shown
    content = json.loads(cli(*typed, "--json").stdout)
    alike = json.loads(cli(*USUAL, *EPSILON, "--json").stdout)
    assert content["classes"] == alike["classes"]
    refused = cli(*typed, "--n-persons", 9001)
    assert refused.exit_code == 2


def test_of_several_labels_the_evaluation_is_planned(cli):
    typed = ("plan", "--n-classes", 8, "--n-records", 3000, *EPSILON)
    several = (*typed, "--method", "multilabel", "--n-test", 900)
    shown = " ".join(cli(*several, "--labels-each", 2).stdout.split())
    assert "The line for print will be like: micro F1 80 %" in shown
    assert "is not planned: it was not measured" in shown
    content = json.loads(cli(*several, "--labels-each", 2, "--json").stdout)
    assert content["evaluation"]["labels_each"] == 2
    assert "--labels-each is needed" in cli(*several).stderr
    other = cli(*typed, "--encoder", "minilm", "--labels-each", 2)
    assert "--labels-each is for --method multilabel" in other.stderr
