"""`dppl verify`: a table of checks, and an exit code for scripts."""

import dppl
from checksums import forged
from dppl.methods.model_file import describe


def test_a_model_verifies_and_the_table_says_what_was_compared(model, cli):
    result = cli("verify", model)
    assert result.exit_code == 0
    assert result.stderr == ""
    for text in (
        "class sums of lattice rows",
        "one record (add-remove)",
        "Not checked, since only the file says so",
        "Verified.",
    ):
        assert text in result.stdout


def test_less_noise_than_its_cost_needs_ends_with_1(model, cli):
    description = describe(model)
    (release,) = description["guarantee"]["releases"]
    release["parameters"]["noise_std"] *= 0.99
    forged(model, description)
    result = cli("verify", model)
    assert result.exit_code == 1
    assert "NOT verified" in result.stdout
    assert "noise_std" in result.stdout


def test_a_method_of_ones_own_ends_with_2_and_a_damaged_file_with_4(
    model, cli, error_line
):
    content = model.read_bytes()
    forged(model, describe(model) | {"estimator": "MyPrototypes"})
    result = cli("verify", model)
    assert result.exit_code == 2
    assert "MyPrototypes is no method of dppl" in result.stdout
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    result = cli("verify", model)
    assert result.exit_code == 4
    assert "is damaged" in error_line(result)


def test_the_charge_in_a_ledger(task, cli):
    budget = dppl.GaussianDP(2.0)
    for name in ("wards", "others"):
        dppl.Ledger(task.folder / "ledger.db", name, budget)
    fit = ["fit", task.table, "--classes", task.classes, "--mu", "1", "--out", task.out]
    assert cli(*fit, "--ledger", task.folder / "ledger.db", "wards").exit_code == 0
    for dataset, code in (("wards", 0), ("others", 1)):
        result = cli("verify", task.out, "--ledger", task.folder / "ledger.db", dataset)
        assert result.exit_code == code, result.stdout
    assert cli("verify", task.out, "wards").exit_code == 2
