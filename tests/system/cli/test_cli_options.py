"""The library speaks of parameters; the command line says what is typed for them."""

import ast
import dataclasses
import pickle
import re
from pathlib import Path

import pytest

import dppl
from dppl import errors
from dppl.cli._request import COMMANDS, imported
from dppl.export import TARGETS
from dppl.io import KINDS, ROWS
from dppl.kernel.privacy.ledger import Ledger
from dppl.serve import Limits

SOURCE = Path(dppl.__file__).parent


def commands():
    """Yield the name of every command, and the command."""
    for name in COMMANDS:
        command = imported(name)
        for part, one in getattr(command, "commands", {"": command}).items():
            yield f"{name} {part}".rstrip(), one


def test_options_are_called_as_the_fields_of_requests():
    """One name for everything: what Python calls `n_records` is ``--n-records``."""
    checked = 0
    for _, command in commands():
        for one in command.params:
            if one.opts[0].startswith("-") and one.name != "help":
                assert one.opts == [f"--{one.name.rstrip('_').replace('_', '-')}"]
                checked += 1
    assert checked > 100


def test_there_are_no_more_commands_and_options_than_a_user_can_know():
    found = dict(commands())
    options = [
        one
        for command in found.values()
        for one in command.params
        if one.opts[0].startswith("--")
    ]
    assert len(found) <= 22
    assert len([one for one in options if one.name != "help"]) <= 171


def test_what_helps_spell_out_is_what_the_library_takes():
    helps = {
        name: " ".join(one.help or one.metavar for one in command.params)
        for name, command in commands()
    }
    metavars = {
        name: {one.name: one.metavar for one in command.params}
        for name, command in commands()
    }
    assert f"kind: {', '.join(KINDS)}. " in helps["check"]
    assert f"rows: {', '.join(ROWS[:-1])} or {ROWS[-1]}, " in helps["embed"]
    assert metavars["table"]["rows"] == "|".join([*ROWS, "lattice"])
    assert metavars["export"]["to"] == "|".join(TARGETS)
    assert all(one.name in helps["serve"] for one in dataclasses.fields(Limits))


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
        f"{again} is typed more than once; leave all but one out.",
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
        "--ledger takes two values: FILE DATASET[/PART].",
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


@pytest.mark.parametrize("command", ["", *(name for name, _ in commands())])
def test_help_shows_no_type_of_a_flag_and_few_options_before_the_advanced_ones(
    command, cli
):
    shown = cli(*command.split(), "--help").stdout
    assert "--help" in shown
    assert "<bool>" not in shown
    _, _, options = shown.partition("─ Options ─")
    main, *_ = options.partition("╭─ ")
    assert len(re.findall(r"^│[ *]{1,5}--[a-z-]+", main, re.MULTILINE)) <= 8


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("fit", ["--out", "--classes", "--epsilon", "--delta", "--public"]),
        ("train", ["--encoder", "--out", "--classes", "--epsilon", "--delta"]),
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
        ("embed", ["--out", "--encoder", "--x", "--y", "--encoders"]),
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
    assert shown == [*first, "--help"]
    everything = {name for one in dict(commands())[command].params for name in one.opts}
    assert all(name in options for name in everything if name.startswith("--"))
    assert panels
    assert options.count("╭─ ") == len(panels)
