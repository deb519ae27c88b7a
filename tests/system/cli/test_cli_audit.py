import json

import pytest

from dppl.kernel.mechanisms.randomness import SystemRandomness
from dppl.kernel.privacy import GaussianDP


@pytest.mark.slow
def test_an_audit_prints_the_claim_and_what_was_measured(cli):
    result = cli("audit", "mean", "--mu", 2, "--runs", 60, "--json")
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert content["claimed"] == 2.0
    assert 0 <= content["lower_bound"] <= 2.0
    assert content["violation"] is False
    table = cli("audit", "public", "--epsilon", 1, "--runs", 60).stdout
    assert "epsilon" in table
    assert "can only refute a claim, never prove it" in table
    assert (
        "so few runs can show at most"
        in cli("audit", "public", "--epsilon", 1, "--runs", 5).stdout
    )


@pytest.mark.slow
def test_a_claim_in_gaussian_dp_is_audited_as_such_or_as_the_epsilon_that_it_implies(
    cli,
):
    # A true claim is refuted with probability 1e-9 at most; the bound lies 8 standard
    # deviations above 0.
    result = cli(
        "audit", "mean", "--mu", 2, "--runs", 600, "--confidence", 1 - 1e-9, "--json"
    )
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert (content["notion"], content["parameter"], content["claimed"]) == (
        "Gaussian DP",
        "mu",
        2.0,
    )
    assert (content["bound"], content["delta"]) == ("gaussian", 0.0)
    assert 0 < content["lower_bound"] <= 2.0
    assert (
        "mu = 2, Gaussian DP"
        in cli(
            "audit", "mean", "--mu", 2, "--runs", 60, "--confidence", 1 - 1e-9
        ).stdout
    )
    options = ["--delta", 1e-5, "--runs", 60, "--confidence", 1 - 1e-9]
    content = json.loads(cli("audit", "mean", "--mu", 2, *options, "--json").stdout)
    assert (content["parameter"], content["delta"]) == ("epsilon", 1e-5)
    assert content["claimed"] == GaussianDP(2.0).to_approx(1e-5).epsilon


@pytest.mark.slow
def test_half_of_the_noise_is_found_and_has_its_own_exit_code(cli, monkeypatch):
    original = SystemRandomness.rounded_gaussian
    monkeypatch.setattr(
        SystemRandomness,
        "rounded_gaussian",
        lambda self, std, shape: original(self, std / 4, shape),
    )
    # A quarter of the noise makes rho = 2 into 32; 150 runs on each side show more than
    # 2 practically always.
    result = cli("audit", "mean", "--mu", 2, "--runs", 150, "--json")
    assert result.exit_code == 5
    assert json.loads(result.stdout)["lower_bound"] > 2.0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("median", "--mu", 1), 2),
        (("softmax", "--epsilon", 1), 3),
        (("softmax", "--mu", 1, "--options", "adjacency=replace-one"), 2),
        (("softmax", "--mu", 1, "--runs", 1), 2),
        (("mean",), 2),
        (("mean", "--mu", 1, "--epsilon", 1), 2),
        (("mean", "--mu", 1, "--epsilon", 1, "--delta", 1e-6), 2),
        (("mean", "--mu", 0), 3),
        (("mean", "--epsilon", 1), 3),
        (("mean", "--mu", 1, "--options", "coinpress=dppl"), 2),
    ],
)
def test_wrong_usage_is_one_line(cli, arguments, code):
    result = cli("audit", *arguments)
    assert result.exit_code == code
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("mean", "--mu", 1, "--options", "coinpress=dppl"),
            "only --options adjacency=replace-one treats as public",
        ),
        (
            ("median", "--mu", 1),
            "METHOD must be one of 'auto', 'softmax', 'mean', 'public', 'multilabel'; got",
        ),
    ],
)
def test_messages_name_what_was_typed(cli, error_line, arguments, words):
    assert words in error_line(cli("audit", *arguments))


@pytest.mark.slow
def test_the_promise_to_a_person_is_audited_and_named(cli, error_line):
    options = ["--mu", 2, "--runs", 40, "--confidence", 1 - 1e-9]
    content = json.loads(
        cli(
            "audit", "mean", *options, "--person-records", 50, "--spread", "--json"
        ).stdout
    )
    assert (content["unit"], content["violation"]) == (
        "person",
        False,
    )
    assert (
        json.loads(cli("audit", "mean", *options, "--json").stdout)["unit"] == "record"
    )
    shown = cli("audit", "mean", *options, "--person-records", 3).stdout
    assert "one person with all of their records" in shown
    for more, told in (
        (("--spread",), "--spread and max_classes_per_person go with --person-records"),
        (
            ("--options", "max_classes_per_person=2"),
            "--spread and max_classes_per_person go with --person-records",
        ),
        (
            ("--person-records", 2, "--spread"),
            "--spread needs a person of at least 3 records",
        ),
        (
            ("--person-records", 5, "--options", "adjacency=replace-one"),
            "--person-records is for the adjacency add-remove",
        ),
    ):
        assert error_line(cli("audit", "mean", "--mu", 0.5, *more)).startswith(told)
