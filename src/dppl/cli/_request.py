"""Commands as dataclasses: the fields say what a command is asked, the docstring is its help, and `run` does it.

A field is an option that is called as the field is (``n_records`` is ``--n-records``,
``for_`` is ``--for``), and a parameter of the library that is called so, too. Options
that commands share are fields of classes from which they inherit. A command is imported
when it runs: together they take seconds, and `dppl --help` needs none.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from dppl.errors import DpplError, ParameterError

__all__ = [
    "COMMANDS",
    "SETTINGS",
    "Commands",
    "argument",
    "flag",
    "imported",
    "option",
    "request",
]

# Module (of `dppl.cli` if it names no package) and first sentence of the help, by name,
# in the order of `dppl --help`. A test holds these to the commands.
COMMANDS = {
    "demo": (
        "dppl.lab.commands.demo",
        "Train every method on built-in digits, compare them, and release one model.",
    ),
    "plan": (
        "plan",
        "Say what accuracy a budget buys, by class size, before any private record is read.",
    ),
    "split": (
        "split",
        "Hold records out for an evaluation: each falls into one of two files by a coin.",
    ),
    "train": (
        "train",
        "Embed images or texts, train a private classifier, and save it.",
    ),
    "finetune": (
        "finetune",
        "Train weights of a public network privately on images, and save them.",
    ),
    "embed": ("embed", "Embed raw images or texts with a frozen public encoder."),
    "fit": (
        "fit",
        "Train a private classifier and save it as one file that may be published.",
    ),
    "party": (
        "party",
        "Answer for an institution of a federation, with its own noise and from its own ledger.",
    ),
    "merge": (
        "merge",
        "Merge models that institutions released, each by itself, into one.",
    ),
    "predict": (
        "predict",
        "Label every row of a table, or every image or text of a source.",
    ),
    "evaluate": ("evaluate", "Measure how good a model is on labelled records."),
    "serve": ("serve", "Answer predictions over HTTP, and show a page to try them on."),
    "show": (
        "show",
        "Show a model: its classes, its guarantee in words and numbers, and every release behind it.",
    ),
    "verify": (
        "verify",
        "Compute sensitivities, noise and cost of a model again, and compare them with what its file states.",
    ),
    "export": (
        "export",
        "Write a model for ONNX or PyTorch, or as a folder for a model hub; or an encoder of texts for ONNX.",
    ),
    "check": (
        "check",
        "Report on private records, before a fit: bad ones, unknown labels, class sizes.",
    ),
    "audit": (
        "audit",
        "Measure a lower bound on the privacy loss of a method and compare it with the promise.",
    ),
    "ledger": (
        "ledger",
        "Keep an account of everything released from a private data set.",
    ),
    "table": ("table", "Look at a table of embeddings, or write it in another form."),
    "bench": (
        "dppl.lab.commands.bench",
        "Compare methods, or classifiers of streams of tasks; for research, on data that needs no protection.",
    ),
}
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,  # they show local variables
    "rich_markup_mode": "rich",
}
_Type = TypeVar("_Type")


def option(
    metavar: str,
    text: str,
    default: Any = MISSING,
    *,
    typed: dict[str, str] | None = None,
    **limits: Any,
) -> Any:
    """Return the field of an option; without a default it is required.

    `typed` says what is typed for parameters of the library that it stands for besides
    the one of its name.
    """
    return field(
        default=default,
        metadata={"metavar": metavar, "help": text, "typed": typed or {}, **limits},
    )


def flag(text: str, typed: dict[str, str] | None = None) -> Any:
    """Return the field of an option without a value; `typed` as of `option`."""
    metadata = {"metavar": "", "help": text, "typed": typed or {}}
    return field(default=False, metadata=metadata)


def argument(metavar: str, text: str, default: Any = MISSING) -> Any:
    """Return the field of an argument, which has no dashes."""
    return field(
        default=default, metadata={"metavar": metavar, "help": text, "argument": True}
    )


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(option, flag, argument)
)
def request(
    *first: str, panel: str | None = None
) -> Callable[[type[_Type]], type[_Type]]:
    """Return a decorator for a command, or for options that commands inherit.

    The options that `first` names stand first in the help of a command, and all others
    under "Advanced", inherited ones in the panel of their class.
    """

    def made(kind: type[_Type]) -> type[_Type]:
        # Frozen: what was typed is what the library gets.
        whole: Any = dataclass(frozen=True, kw_only=True)(kind)
        whole._first = first
        whole._panel = f"Advanced: {panel}" if panel else "Advanced"
        return whole  # type: ignore[no-any-return]

    return made


def _command(kind: Any) -> Callable[..., None]:
    """Return the function that typer makes a command of: its parameters are the fields of `kind`, which it runs."""
    # A command's own fields come before inherited ones; each is in the panel of the
    # class that it comes from.
    panels: dict[str, str] = {}
    for owner in kind.__mro__[:-1]:
        for name in inspect.get_annotations(owner):
            panels[name] = owner._panel
    by_name = {one.name: one for one in fields(kind)}
    hints = get_type_hints(kind)
    parameters: list[inspect.Parameter] = []
    typed: dict[str, str] = {}
    for name in dict.fromkeys([*kind._first, *panels]):
        one = by_name[name]
        settings: dict[str, Any] = {
            "show_default": False,
            **one.metadata,
        }  # the help says the default itself
        typed |= {name: f"--{name.rstrip('_').replace('_', '-')}"} | settings.pop(
            "typed", {}
        )
        if settings.pop("argument", False):
            typed[name], info = settings["metavar"], typer.Argument(**settings)
        else:
            # Commands with few options have no panels.
            advanced = panels[name] if kind._first and name not in kind._first else None
            info = typer.Option(typed[name], rich_help_panel=advanced, **settings)
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        annotation = Annotated[hints[name], info]  # type: ignore[valid-type]
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=annotation,
            )
        )

    def called(**given: Any) -> None:
        try:
            kind(**given).run()
        except DpplError as error:
            error.typed = typed  # type: ignore[attr-defined]  # what its parameters are called here
            raise

    # typer reads a name, a docstring and a signature.
    called.__name__ = kind.__name__.lower()
    called.__doc__ = kind.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


class _BareHelp:
    """Shows no type of ``--help``, where typer writes one."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option."""
        option: Any = super().get_help_option(ctx)  # type: ignore[misc]
        option.metavar = ""
        return option


class _Command(_BareHelp, TyperCommand):
    """A command that takes an option once, unless its values make a list."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse what was typed."""
        # The parser would take the last in silence, and a budget typed twice is no slip
        # to guess at.
        given = [one.partition("=")[0] for one in args if one.startswith("--")]
        for one in self.params:
            if not one.multiple and given.count(one.opts[0]) > 1:
                raise ParameterError(
                    f"{one.opts[0]} is typed more than once; leave all but one out."
                )
            # The parser would take the next option for a value.
            for place in [
                place
                for place, text in enumerate(args)
                if one.nargs == 2 and text == one.opts[0]
            ]:
                if (
                    any(value.startswith("--") for value in args[place + 1 : place + 3])
                    or len(args) < place + 3
                ):
                    raise ParameterError(
                        f"{one.opts[0]} takes two values: {one.metavar}."
                    )
        return super().parse_args(ctx, args)


class _Group(_BareHelp, TyperGroup):
    """A group of commands, such as `dppl ledger`."""


@cache
def imported(name: str) -> Any:
    """Import a command, or a group of several, and return what typer makes of it."""
    module, text = COMMANDS[name]
    defined = importlib.import_module(module if "." in module else f"dppl.cli.{module}")
    several = getattr(defined, "COMMANDS", None)
    around = within = typer.Typer(**SETTINGS)
    around.callback()(lambda: None)  # makes a group even of one command
    if several:
        within = typer.Typer(**SETTINGS)
        around.add_typer(within, cls=_Group, name=name, help=text, no_args_is_help=True)
    # A module that lists several commands is a group, such as `dppl ledger`.
    for kind in several or [getattr(defined, name.capitalize())]:
        within.command(cls=_Command)(_command(kind))
    return typer.main.get_command(around).commands[name]  # type: ignore[attr-defined]


class Commands(_BareHelp, TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what the list of commands shows of one; `resolve_command` returns the command."""
        return (
            TyperCommand(cmd_name, help=COMMANDS[cmd_name][1])
            if cmd_name in COMMANDS
            else None
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command to run, the command, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, imported(name), rest
