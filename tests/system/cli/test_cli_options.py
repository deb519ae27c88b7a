"""The library speaks of parameters; the command line says what is typed for them."""

import ast
import dataclasses
import pickle
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest

import dppl
from command_line import arguments, commands, invoke
from dppl import errors
from dppl.cli._commands import app_with
from dppl.export import TARGETS
from dppl.io import KINDS, ROWS
from dppl.kernel.privacy.ledger import Ledger
from dppl.serve import Limits

SOURCE = Path(dppl.__file__).parent


def options():
    """Return every option by its command and its field."""
    return {
        (name, field): one
        for name in commands()
        for field, one in arguments(name).items()
        if one.name.startswith("-")
    }


def test_options_are_called_as_the_fields_of_requests():
    """One name for everything: what Python calls `n_records` is ``--n-records``."""
    checked = 0
    for (_, field), one in options().items():
        assert one.names == (f"--{field.rstrip('_').replace('_', '-')}",)
        checked += 1
    assert checked > 100


def test_there_are_no_more_commands_and_options_than_a_user_can_know():
    assert len(commands()) <= 23
    assert len(options()) <= 193


def test_what_helps_spell_out_is_what_the_library_takes():
    def words(name, field):
        one = arguments(name)[field].parameter
        return f"{one.metavar} {one.help}"

    assert f"kind: {', '.join(KINDS)}. " in words("check", "read")
    rows = f"rows: {', '.join(ROWS[:-1])} or {ROWS[-1]}, "
    assert rows in words("embed", "options")
    assert words("table", "rows").startswith("|".join([*ROWS, "lattice"]))
    assert words("export", "to").startswith("|".join(TARGETS))
    limits = words("serve", "limits")
    assert all(one.name in limits for one in dataclasses.fields(Limits))


@pytest.mark.parametrize("again", ["--out", "--epsilon"])
def test_an_option_that_is_typed_twice_is_refused(again, cli, error_line):
    typed = [
        "fit",
        "t.npz",
        "--epsilon",
        "1",
        "--options",
        "a=1",
        "--options",
        "b=2",
        "--out",
        "m",
        again,
        "2",
    ]
    result = cli(*typed, as_typed=True)
    assert (result.exit_code, error_line(result)) == (
        2,
        f"{again} is typed more than once; leave all but one out. Try: dppl fit --help",
    )


@pytest.mark.parametrize("after", [["--mu", "1"], []])
def test_an_option_of_two_values_does_not_take_the_next_option_for_one(
    after, cli, error_line
):
    result = cli(
        "fit",
        "t.npz",
        "--out",
        "m.safetensors",
        "--ledger",
        "ledger.db",
        *after,
        as_typed=True,
    )
    assert (result.exit_code, error_line(result)) == (
        2,
        "A value is missing: --ledger FILE DATASET[/PART]. Try: dppl fit --help",
    )


@pytest.mark.parametrize(
    ("arguments", "suggested"),
    [
        (
            [
                "fit",
                "t.npz",
                "--method",
                "sofmax",
                "--mu",
                "1",
                "--classes",
                "classes.txt",
                "--out",
                "m.safetensors",
            ],
            "--method softmax",
        ),
        (["predict", "m", "t.npz", "--shares", "equals"], "--shares equal"),
    ],
)
def test_a_mistyped_value_gets_a_suggestion(
    arguments, suggested, task, cli, error_line, monkeypatch
):
    monkeypatch.chdir(task.folder)
    (task.folder / "t.npz").touch()
    assert error_line(cli(*arguments)).endswith(f" Try {suggested}")


@pytest.mark.parametrize(
    ("arguments", "call", "rule"),
    [
        (
            ["fit", "t.npz", "--mu", "-1", "--out", "m.safetensors"],
            lambda: dppl.GaussianDP(-1.0),
            "mu must be a finite number of at least 0; got -1.0.",
        ),
        (
            ["ledger", "create", "l.db", "a\u00a0b", "--mu", "1"],
            lambda: Ledger("l.db", "a\u00a0b", dppl.GaussianDP(1.0)),
            "dataset must be a name of 1 to 255 ASCII letters",
        ),
        (
            [
                "embed",
                "photos",
                "--encoder",
                "pixels",
                "--read",
                "kind=zip",
                "--out",
                "t",
            ],
            lambda: dppl.io.open_source("photos", kind="zip"),
            "kind must be one of 'auto', 'images'",
        ),
    ],
)
def test_a_rule_names_the_parameter_in_python_and_the_flag_on_the_command_line(
    arguments, call, rule, cli, error_line, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(errors.ParameterError) as raised:
        call()
    assert str(raised.value).startswith(rule)
    result = cli(*arguments)
    assert result.exit_code == 2
    name, rest = rule.split(" ", 1)
    typed = {"kind": "--read kind", "dataset": "DATASET"}
    assert error_line(result).startswith(f"{typed.get(name, f'--{name}')} {rest}")


def test_only_the_subject_of_a_message_is_translated(
    cli, error_line, tmp_path, monkeypatch
):
    """A value that reads like a parameter stays as it was typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    line = error_line(
        cli(
            "embed",
            "photos",
            "--encoder",
            "pixels",
            "--read",
            "kind=kind",
            "--out",
            "t",
        )
    )
    assert line.startswith("--read kind must be one of")
    assert line.endswith("got 'kind'.")


def test_an_error_keeps_its_parameter_where_processes_hand_it_on():
    error = pickle.loads(
        pickle.dumps(errors.BudgetError("must be small.", parameter="delta"))
    )
    assert (str(error), error.parameter) == ("delta must be small.", "delta")
    assert str(errors.MissingExtra("this needs a package")) == "this needs a package"
    assert errors.MissingExtra("this needs a package").parameter is None


@pytest.mark.slow
def test_messages_of_the_library_name_no_flag():
    """Docstrings are not read, nor `cards`, `lab`, `report` and `statement`, which print lines to be typed."""
    found = []
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] not in (
            "cards",
            "cli",
            "lab",
            "report",
            "statement",
        ):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docs = {
                id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
            }
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and id(node) not in docs
                ):
                    found += re.findall(r"(?<![-\w])--[a-z][a-z-]+", node.value)
    # Of other programs, to download a model and to install torch with.
    assert sorted(found) == ["--force-reinstall", "--index-url", "--revision"]


@pytest.mark.parametrize("command", commands())
def test_help_shows_no_type_of_a_flag_and_few_options_before_the_advanced_ones(
    command, cli
):
    shown = cli(*command.split(), "--help").stdout
    assert "BOOL" not in shown
    _, _, options = shown.partition("─ Options ─")
    main, *_ = options.partition("╭─ ")
    assert len(re.findall(r"^│[ *]{1,5}--[a-z-]+", main, re.MULTILINE)) <= 8


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("fit", ["--out", "--classes", "--epsilon", "--delta", "--public", "--start"]),
        (
            "train",
            ["--encoder", "--out", "--classes", "--epsilon", "--delta", "--start"],
        ),
        (
            "finetune",
            ["--network", "--out", "--classes", "--epsilon", "--delta", "--n-records"],
        ),
        ("predict", ["--out", "--x", "--encoder", "--force"]),
        ("evaluate", ["--epsilon", "--delta", "--out", "--groups", "--json"]),
        (
            "plan",
            [
                "--n-classes",
                "--n-records",
                "--smallest",
                "--encoder",
                "--epsilon",
                "--delta",
            ],
        ),
        ("embed", ["--out", "--encoder", "--x", "--y"]),
        ("split", ["--test", "--groups", "--out", "--key"]),
        ("check", ["--classes", "--x", "--y", "--groups", "--read", "--json"]),
        ("audit", ["--mu", "--epsilon", "--delta", "--runs", "--json"]),
        ("ledger create", ["--epsilon", "--delta", "--mu", "--adjacency"]),
    ],
)
def test_what_matters_first_stands_first_and_all_else_under_advanced(
    command, first, cli
):
    _, _, options = cli(*command.split(), "--help").stdout.partition("─ Options ─")
    main, *panels = re.split(r"╭─ (?=Advanced)", options)
    shown = re.findall(r"^│[ *]{1,5}(--[a-z-]+)", main, re.MULTILINE)
    assert shown == first
    everything = [one.name for one in arguments(command).values()]
    assert all(name in options for name in everything if name.startswith("--"))
    assert panels
    assert options.count("╭─ ") == len(panels)


@pytest.mark.slow
def test_a_shell_completes_commands_and_options(tmp_path):
    script = tmp_path / "dppl"
    command = ["--install-completion", "--shell", "bash", "--output", str(script)]
    assert invoke(command, env={"HOME": str(tmp_path)}).exit_code == 0
    ask = f"source {script}; COMP_WORDS=(dppl fit --eps); COMP_CWORD=2; _dppl; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(
        ["bash", "-c", ask], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "--epsilon\n"


def test_a_whole_number_is_not_rounded(cli, error_line):
    result = cli("plan", "--n-classes", "3.7", "--n-records", "500", "--mu", "1")
    assert result.exit_code == 2
    assert error_line(result).startswith(
        "--n-classes must be a whole number; got '3.7'."
    )
    checked = 0
    for one in options().values():
        if int in (one.hint, *get_args(one.hint)):
            assert one.parameter.converter is not None, one.name
            checked += 1
    assert checked > 8


def test_a_dash_is_standard_output_and_names_of_values_stay_texts():
    typed = ["predict", "m", "-", "--out", "-", "--encoder", "none"]
    _, bound, _ = app_with(["predict"]).parse_args(typed, exit_on_error=False)
    given = bound.arguments
    assert (str(given["out"]), given["data"], given["encoder"]) == ("-", "-", "none")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ledger create", "Missing: FILE."),
        (
            "plan --n-clases 3",
            "Missing: --n-classes N, not --n-clases.",
        ),
        ("show m --jsn", "Unknown option: --jsn. Did you mean --json?"),
        ("show a b", "Too many arguments: b."),
        ("show m --delta x", "--delta must be a number; got 'x'."),
        (
            "plan --n-classes 0 --n-records 1",
            'Invalid value "0" for --n-classes. Must be >= 1.',
        ),
    ],
)
def test_a_slip_is_named_and_the_help_that_shows_it(words, said, cli, error_line):
    result = cli(*words.split(), as_typed=True)
    assert result.exit_code == 2
    line = error_line(result)
    assert line.startswith(f"{said} Try: dppl ")
    assert line.endswith(" --help")
