"""`dppl continual`: what it prints, where results go, and what it says about bad input."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from dppl.experiments.config import built_in_names

CONFIG = """
data: DATA
datasets: [{name: blobs, encoder: none}]
streams:
  - {of: blobs, kind: class-incremental, tasks: 3}
  - {of: blobs, kind: shuffled, tasks: 2}
methods: [{method: METHOD}]
budgets: [{epsilon: 8, delta: 1.0e-5}, non-private]
seeds: 1
"""


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "blobs"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        labels = np.repeat([0, 1, 2], 20)
        np.save(folder / f"{part}_y.npy", labels)
        np.save(folder / f"{part}_x.npy", 5 * np.eye(3, 8)[labels] + rng.standard_normal((60, 8)))

    def write(method="ContinualPrototypes"):
        path = tmp_path / "mine.yaml"
        path.write_text(CONFIG.replace("DATA", str(tmp_path)).replace("METHOD", method))
        return path

    return write


@pytest.mark.slow
def test_run_and_report(cli, config, tmp_path):
    out, folder = tmp_path / "r.jsonl", tmp_path / "report"
    assert cli("continual", "run", config(), "--out", out, "--dry-run").stdout == "4 cells, 0 done, 4 left.\n"
    result = cli("continual", "run", config(), "--out", out, "--jobs", 1)
    assert result.exit_code == 0
    assert "4 cells: 0 done before, 4 now, 0 failed" in result.stdout
    assert f"dppl continual report {out}" in result.stdout
    assert (
        "1/4  ContinualPrototypes  blobs  3 tasks, class-incremental  epsilon 8, delta 1e-05  seed 0" in result.stderr
    )
    assert "4/4  ContinualPrototypes  blobs  2 tasks, shuffled  non-private  seed 0  balanced accuracy" in result.stderr
    assert "4 done before, 0 now" in cli("continual", "run", config(), "--out", out).stdout
    assert cli("continual", "report", out, "--out", folder).exit_code == 0
    page = (folder / "report.html").read_text("utf-8")
    assert page.count("<img ") == 6
    assert "Time and storage" in page


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/continual.md"])
def test_commands_of_the_pages_work_as_they_are_pasted(cli, tmp_path, monkeypatch, page):
    text = (Path(__file__).parents[2] / page).read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^dppl (continual [^#\n]*)", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert cli(*shlex.split(command)).exit_code == 0
    assert (tmp_path / "continual-report" / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("run", "none.yaml"), 2, "must be a YAML file or one of continual, paper, quick; got 'none.yaml'"),
        (("run", "text"), 2, "got 'text', and there is no such file"),
        (("run", "quick", "--out", "no/such/folder.jsonl"), 2, "--out must name a file in an existing folder"),
        (("run", "continual", "--data", "nowhere"), 4, "there is no file nowhere"),
        (("run", "paper", "--data", "nowhere"), 4, "there is no file nowhere/cifar100/train_x.npy"),
        (("report", "none.jsonl", "--out", "folder"), 4, "there is no results file none.jsonl; `dppl bench run` and"),
    ],
)
def test_wrong_usage_is_one_line(cli, error_line, arguments, code, told):
    result = cli("continual", *arguments)
    assert result.exit_code == code
    assert told in error_line(result)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("ContinualPrototypes", "MeanPrototypes", "got 'MeanPrototypes'"),
        ("{of: blobs, kind: shuffled, tasks: 2}", "split-cifar", "recipe must be one of cifar100-10x10"),
        ("ContinualPrototypes", "ContinualPrototypes, pool: -2", "pool must be an integer of at least 1; got -2"),
    ],
)
def test_a_dry_run_finds_unknown_methods_recipes_and_bad_parameters(cli, config, error_line, before, after, told):
    path = config()
    path.write_text(path.read_text().replace(before, after))
    result = cli("continual", "run", path, "--dry-run")
    assert result.exit_code == 2
    assert told in error_line(result)


@pytest.mark.parametrize("command", [(), ("run",), ("report",)])
def test_every_command_has_help_with_examples(cli, command):
    result = cli("continual", *command, "--help")
    assert result.exit_code == 0
    assert not command or "For example:" in result.stdout
    assert command != ("run",) or all(name in result.stdout for name in built_in_names(streams=True))
