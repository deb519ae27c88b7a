import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from dppl.lab.experiments import results as results_module
from dppl.lab.experiments.config import built_in_names
from dppl.lab.experiments.names import pays_again
from dppl.lab.experiments.runner import Summary

CONFIG = """
data: DATA
datasets: [{name: blobs, encoder: none}]
methods: [mean, {method: mean, lattice__pool: POOL}]
budgets: {e: [1, 4]}
ir: [1]
seeds: 1
"""


@pytest.fixture
def config(tmp_path):
    """A configuration of four cells."""
    folder = tmp_path / "blobs"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        labels = np.repeat([0, 1, 2], 20)
        np.save(folder / f"{part}_y.npy", labels)
        np.save(
            folder / f"{part}_x.npy",
            5 * np.eye(3, 8)[labels] + rng.standard_normal((60, 8)),
        )

    def write(pool=2):
        path = tmp_path / "mine.yaml"
        path.write_text(
            CONFIG.replace("DATA", str(tmp_path)).replace("POOL", str(pool))
        )
        return path

    return write


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_run_and_report(cli, config, tmp_path):
    out = tmp_path / "r.jsonl"
    folder = tmp_path / "report"
    assert (
        cli("bench", config(), "--out", out, "--dry-run").stdout
        == "4 cells, 0 done, 4 left.\n"
    )
    result = cli("bench", config(), "--out", out, "--jobs", 1)
    assert result.exit_code == 0
    assert "4 cells: 0 done before, 4 now, 0 failed" in result.stdout
    assert result.stderr.count("/4  ") == 4
    assert (
        "4/4  DPPL-Mean (pool 2)  blobs, none, IR = 1  rho 8  seed 0  balanced accuracy"
        in result.stderr
    )
    assert (
        cli("bench", config(), "--out", out, "--dry-run").stdout
        == "4 cells, 4 done, 0 left.\n"
    )
    assert "4 done before, 0 now" in cli("bench", config(), "--out", out).stdout
    packed = tmp_path / "r.jsonl.xz"
    assert cli("bench", out, "--out", packed).stdout == f"4 cells in {packed}\n"
    assert cli("bench", config(), "--out", packed, "--dry-run").exit_code == 2
    result = cli("bench", packed, "--out", folder)
    assert result.exit_code == 0
    assert f"--out {out}`" in (folder / "report.md").read_text("utf-8")
    assert (folder / "report.md").exists()
    assert (folder / "accuracy-blobs-none.png").exists()


@pytest.mark.usefixtures("drawn", "forked")
def test_budgets_of_mu_run_and_are_reported(cli, config, tmp_path):
    out = tmp_path / "r.jsonl"
    folder = tmp_path / "report"
    path = config()
    path.write_text(
        path.read_text().replace("budgets: {e: [1, 4]}", "budgets: {mu: [1, 4]}")
    )
    result = cli("bench", path, "--out", out, "--jobs", 1)
    assert result.exit_code == 0
    assert (
        "4/4  DPPL-Mean (pool 2)  blobs, none, IR = 1  mu 4  seed 0  balanced accuracy"
        in result.stderr
    )
    assert cli("bench", out, "--out", folder).exit_code == 0
    text = (folder / "report.md").read_text("utf-8")
    assert (
        "| method | guarantee | public rows | mu 1 (epsilon 4.887) | mu 4 (epsilon 26.36) |"
        in text
    )
    assert "| DPPL-Mean | Gaussian DP, add-remove, exact | none |" in text


@pytest.mark.parametrize("options", [("--dry-run",), ()])
def test_a_run_and_a_dry_run_find_bad_parameters_before_the_first_cell(
    cli, config, tmp_path, error_line, options
):
    result = cli("bench", config(pool=-2), "--out", tmp_path / "r.jsonl", *options)
    assert result.exit_code == 2
    assert not (tmp_path / "r.jsonl").exists()
    assert (
        "mean with lattice__pool: -2, on data set 'blobs': pool must be an integer of at least 1; got -2"
        in error_line(result)
    )


@pytest.mark.usefixtures("forked")
def test_failed_cells_have_an_exit_code_of_their_own(cli, config, tmp_path):
    path = config()
    texts = tmp_path / "texts"
    shutil.copytree(tmp_path / "blobs", texts)
    np.save(texts / "train_x.npy", np.full((60, 8), "word"))
    path.write_text(path.read_text().replace("datasets: [", "datasets: [texts, "))
    result = cli("bench", path, "--out", tmp_path / "r.jsonl", "--jobs", 1)
    assert result.exit_code == 6
    assert "4 now, 4 failed" in result.stdout
    assert result.stderr.count("FAILED ") == 4
    assert (
        "DPPL-Mean (pool 2)  texts, encoder not named, IR = 1  rho 8  seed 0  FAILED "
        in result.stderr
    )


def test_the_results_lie_in_the_current_folder_unless_told_otherwise(
    cli, config, tmp_path, monkeypatch
):
    paths = []

    def run(experiment, path, **_):
        paths.append(path)
        return Summary(cells=4, before=4, done=0, failed=0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dppl.lab.commands.bench.run_experiment", run)
    assert cli("bench", config()).exit_code == 0
    assert paths == [Path("mine.jsonl")]


def test_an_interrupt_says_that_results_are_safe(cli, config, tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("dppl.lab.commands.bench.run_experiment", interrupted)
    result = cli("bench", config(), "--out", tmp_path / "r.jsonl")
    assert result.exit_code == 128 + signal.SIGINT
    assert "Finished cells are safe in" in result.stderr
    assert "run the same command again" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("none.yaml",), 2, "got 'none.yaml', and there is no such file"),
        (
            ("quick", "--out", "no/such/folder.jsonl"),
            2,
            "a file of JSON lines in an existing folder",
        ),
        (("quick", "--jobs", 0), 2, "--jobs"),
        (("text", "--data", "nowhere"), 4, "there is no file nowhere"),
        (("none.jsonl", "--out", "folder"), 4, "there is no results file none.jsonl"),
        (("none.jsonl",), 2, "--out"),
    ],
)
def test_wrong_usage_is_one_line(cli, error_line, arguments, code, told):
    result = cli("bench", *arguments)
    assert result.exit_code == code
    assert told in error_line(result)


def test_a_locked_results_file_is_an_error_of_input(cli, config, tmp_path, error_line):
    with results_module.ResultsFile(tmp_path / "r.jsonl"):
        result = cli("bench", config(), "--out", tmp_path / "r.jsonl")
    assert result.exit_code == 4
    assert "in use by another run" in error_line(result)


def test_a_missing_extra_names_its_command(cli, error_line, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    result = cli("bench", "quick", "--dry-run")
    assert result.exit_code == 4
    assert "pip install -e '.[lab]'" in error_line(result)


def test_the_help_names_every_configuration(cli):
    shown = " ".join(cli("bench", "--help").stdout.replace("│", " ").split())
    assert "For example:" in shown
    assert all(name in shown for name in built_in_names())


OWN = """
import numpy as np
from dppl import Classifier
from dppl.kernel import Measurement
from dppl.kernel.queries import ClassSums

class Sums(Classifier):
    def __init__(self, budget=None, classes=None, *, sign=1, unknown_labels="error", random_state=None):
        super().__init__(budget, classes, unknown_labels=unknown_labels, random_state=random_state)
        self.sign = sign

    def measurements(self, setting):
        return {"sums": Measurement(ClassSums(setting.lattice, setting.n_classes))}

    def learn(self, measure, setting):
        self.coef_ = self.sign * measure("sums").astype(float)
"""


@pytest.mark.usefixtures("forked")
def test_a_method_of_ones_own_is_compared_and_known_by_its_code(
    cli, config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code = tmp_path / "own.py"
    code.write_text(OWN)
    path = config()
    own = '{method: "python:own.py:Sums", sign: [1, -1]}'
    text = path.read_text().replace("{method: mean, lattice__pool: 2}", own)
    path.write_text(text.replace("[1, 4]", "[8]"))
    result = cli("bench", path, "--out", "r.jsonl", "--jobs", 1)
    assert result.exit_code == 0, result.stderr
    assert "3 cells: 0 done before, 3 now, 0 failed" in result.stdout
    of = {
        one["cell"]["parameters"].get("sign"): one
        for one in results_module.read_results(tmp_path / "r.jsonl")
    }
    right, wrong = (of[sign]["metrics"]["balanced_accuracy"] for sign in (1, -1))
    assert right > 0.9 > 0.4 > wrong
    assert cli("bench", "r.jsonl", "--out", "report").exit_code == 0
    assert "| Sums " in (tmp_path / "report" / "report.md").read_text("utf-8")
    # Results of others name their files, which a report does not run.
    results = (tmp_path / "r.jsonl").read_text("utf-8")
    (tmp_path / "others.jsonl").write_text(results.replace("own.py", "./own.py"))
    code.write_text("raise SystemExit")
    assert cli("bench", "others.jsonl", "--out", "theirs").exit_code == 0
    stream = {"method": "python:./own.py:Sums@0", "stream": {"n_tasks": 2}}
    assert not pays_again(stream | {"parameters": {}})
    code.write_text(OWN)
    # Results of other code are not taken for its own.
    dry = ("bench", path, "--out", "r.jsonl", "--dry-run")
    assert cli(*dry).stdout == "3 cells, 3 done, 0 left.\n"
    code.write_text(OWN + "\n")
    assert cli(*dry).stdout == "3 cells, 1 done, 2 left.\n"
    code.write_text("Sums = dict")
    refused = cli(*dry)
    assert refused.exit_code != 0
    assert "Sums of own.py must be a subclass of dppl.Classifier" in refused.stderr
