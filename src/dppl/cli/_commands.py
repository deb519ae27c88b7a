"""The app of `dppl`: its commands by name, of which it imports the one that is typed."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from functools import cache
from typing import Any

from cyclopts import App, Group, Parameter

from dppl._version import __version__
from dppl.cli._output import console
from dppl.cli._request import command

__all__ = ["COMMANDS", "app_with"]

# The first sentence of the help of each, in the order of `dppl --help`; a test compares
# them with the commands.
COMMANDS = {
    "demo": "Train every method on built-in digits, compare them, and release one model.",
    "plan": "Say what accuracy a budget buys, by class size, before any private record is read.",
    "columns": "Propose a schema of columns, by which rows of an ordinary table are embedded.",
    "split": "Hold records out for an evaluation: each falls into one of two files by a coin.",
    "train": "Embed images or texts, train a private classifier, and save it.",
    "finetune": "Train weights of a public network privately on images, and save them.",
    "embed": "Embed raw images or texts with a frozen public encoder.",
    "fit": "Train a private classifier and save it as one file that may be published.",
    "party": "Answer for an institution of a federation, with its own noise and from its own ledger.",
    "merge": "Merge models that institutions released, each by itself, into one.",
    "predict": "Label every row of a table, or every image or text of a source.",
    "evaluate": "Measure how good a model is on labelled records.",
    "serve": "Answer predictions over HTTP, and show a page to try them on.",
    "show": "Show a model: its classes, its guarantee in words and numbers, and every release behind it.",
    "verify": "Compute sensitivities, noise and cost of a model again, and compare them with what its file states.",
    "export": "Write a model for ONNX or PyTorch, or as a folder for a model hub; or an encoder of texts for ONNX.",
    "check": "Report on private records, before a fit: bad ones, unknown labels, class sizes.",
    "audit": "Measure a lower bound on the privacy loss of a method and compare it with the promise.",
    "ledger": "Keep an account of everything released from a private data set.",
    "table": "Look at a table of embeddings, or write it in another form.",
    "bench": "Compare methods, or classifiers of streams of tasks; for research, on data that needs no protection.",
}
_OF_THE_LAB = ("bench", "demo")
_HELP = """Differentially private classifiers on embeddings of frozen, publicly pre-trained encoders.

A model is one small file with a guarantee, and may be published.

For example:

  dppl demo
  dppl fit train.npz --classes classes.txt --epsilon 1 --delta 1e-6 \\
    --out my.safetensors
  dppl show my.safetensors
  dppl predict my.safetensors new.npz > labels.txt

`dppl --install-completion` lets your shell complete commands and options.

Exit codes: 0 done; 1 a bug; 2 usage, or the output exists; 3 a budget that
cannot be spent; 4 a table, label, class list, model file or ledger that cannot
be used; 5 an audit found a violation; 6 cells of an experiment failed; 130
interrupted; 143 ended by SIGTERM. Those of verify are in its help.
"""
_SETTINGS: Any = {
    # Texts are shown as they are: no class name or path is markup.
    "help_format": "plaintext",
    "version_format": "plaintext",
    "default_parameter": Parameter(
        negative=(), show_default=False, json_list=False, json_dict=False
    ),
    # Above the advanced ones.
    "group_arguments": Group("Arguments", sort_key=0),
    "group_parameters": Group("Options", sort_key=1),
}


def app_with(names: Collection[str]) -> App:
    """Return the app, in which these commands are whole; of the others it only knows the first sentence."""
    app = App(
        name="dppl",
        help=_HELP,
        version=f"dppl {__version__}",
        console=console(markup=True),
        suppress_keyboard_interrupt=False,
        **_SETTINGS,
    )
    for place, (name, sentence) in enumerate(COMMANDS.items()):
        if name in names:
            one = _imported(name)
        else:
            one = App(name=name, help=sentence)
        one.sort_key = place
        app.command(one)
    return app


@cache
def _imported(name: str) -> App:
    """Import a command, or a group of several, which takes up to seconds."""
    if name in _OF_THE_LAB:
        package = "dppl.lab.commands"
    else:
        package = "dppl.cli"
    defined = importlib.import_module(f"{package}.{name}")
    if not hasattr(defined, "COMMANDS"):
        app = _app(name, getattr(defined, name.capitalize()))
        for flag, function in getattr(defined, "FLAGS", {}).items():
            app.command(function, name=flag)
        return app
    group = App(name=name, help=COMMANDS[name], **_SETTINGS)
    for kind in defined.COMMANDS:
        group.command(_app(kind.__name__.lower(), kind))
    return group


def _app(name: str, kind: type) -> App:
    app = App(name=name, **_SETTINGS)
    app.default(command(kind))
    return app
