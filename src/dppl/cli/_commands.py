"""The commands by name. Each is imported when it runs: together they take seconds, and `dppl --help` needs none."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from dppl.cli._request import command

__all__ = ["COMMANDS", "SETTINGS", "Commands"]

# Module (of `dppl.cli` if it names no package) and first sentence of the help, by name, in the order of `dppl --help`.
# A test holds these to the commands.
COMMANDS = {
    "demo": ("dppl.lab.commands.demo", "Train every method on built-in digits, compare them, and release one model."),
    "plan": ("plan", "Say what accuracy a budget buys, by class size, before any private record is read."),
    "encoders": ("encoders", "List the encoders: what they embed, their licence, and how to install them."),
    "train": ("train", "Embed images or texts, train a private classifier, and save it."),
    "finetune": ("finetune", "Train weights of a public network privately on images, and save them."),
    "embed": ("embed", "Embed raw images or texts with a frozen public encoder."),
    "fit": ("fit", "Train a private classifier and save it as one file that may be published."),
    "predict": ("predict", "Label every row of a table, or every image or text of a source."),
    "evaluate": ("evaluate", "Compare a model's predictions with the labels of a table or source."),
    "serve": ("serve", "Answer predictions over HTTP, and show a page to try them on."),
    "show": ("show", "Show a model: its classes, its guarantee in words and numbers, and every release behind it."),
    "export": ("export", "Write a model for ONNX, PyTorch or scikit-learn, or as a folder for a model hub."),
    "report": ("report", "Write a page about a model for people: what it does and promises, and how to check it."),
    "check": ("check", "Report on private records, before a fit: bad ones, unknown labels, class sizes."),
    "audit": ("audit", "Measure what a method leaks, and compare with its promise."),
    "ledger": ("ledger", "Keep an account of everything released from a private data set."),
    "table": ("table", "Look at a table of embeddings, or write it in another form or order."),
    "bench": (
        "dppl.lab.commands.bench",
        "Compare methods over budgets, data sets and class sizes; for research, on data that needs no protection.",
    ),
    "continual": (
        "dppl.lab.commands.continual",
        "Compare classifiers of streams of tasks; for research, on data that needs no protection.",
    ),
}
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,  # they show local variables
    "rich_markup_mode": "rich",
}


class _BareFlags:
    """Options without a value show none in the help, where typer writes a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, that of ``--help`` among them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in parameters:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return parameters


class _Command(_BareFlags, TyperCommand):
    """A command; it leaves behind what is typed for each of its parameters, for messages of the library."""

    typed: ClassVar[Mapping[str, str]] = {}

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        options = {one.name: one.opts[0] for one in self.params if one.opts[0].startswith("-")}
        ctx.obj.update({one.name: one.metavar for one in self.params if one.name not in options} | options)
        ctx.obj.update(self.typed)
        return super().invoke(ctx)


class _Group(_BareFlags, TyperGroup):
    """A group of commands, such as `dppl ledger`."""


@cache
def _command(name: str) -> Any:
    """Import a command, and return what typer makes of it."""
    module, _ = COMMANDS[name]
    found = getattr(importlib.import_module(module if "." in module else f"dppl.cli.{module}"), name)
    around = typer.Typer(**SETTINGS)
    around.callback()(lambda: None)  # makes a group even of one command
    if isinstance(found, typer.Typer):
        for info in found.registered_commands:
            info.cls = _Command
        around.add_typer(found, cls=_Group)
    else:
        found = command(found) if "request" in inspect.signature(found).parameters else found
        around.command(cls=_Command)(found)
    group: Any = typer.main.get_command(around)
    made = group.commands[name]
    made.typed = getattr(found, "typed", made.typed) if hasattr(made, "typed") else {}
    return made


class _Imported(Mapping[str, Any]):
    """Commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(_BareFlags, TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Imported()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what the list of commands shows of one; `resolve_command` returns the command."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command to run, the command, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, self.commands[name], rest
