"""Write docs/cli.md, the page of the command line, from the commands themselves.

    python tools/cli_page.py

`tests/meta/test_site.py` is red while the page differs from the commands.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from cyclopts import App, Argument

from dppl._utils.files import write_atomically
from dppl.cli._commands import COMMANDS, app_with

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HELP = ("--help", "-h")
HEAD = """# Command line

This page lists every command with its arguments and options. `dppl COMMAND --help` shows the same.
`dppl --install-completion` lets your shell complete them.
"""


def page() -> str:
    """Return the page."""
    app = app_with(COMMANDS)
    parts = [part for name in COMMANDS for part in sections(app[name], f"dppl {name}")]
    exit_codes = app.help.rpartition("Exit codes: ")[2]
    return "\n".join([HEAD, *parts, "## Exit codes", "", as_text(exit_codes), ""])


def sections(command: App, name: str, level: int = 2) -> Iterator[str]:
    """Yield the parts of one command, and then those of its subcommands."""
    yield from (f"{'#' * level} {name}", "", described(command.help), "")
    subcommands = [one for one in command if one not in (*HELP, "--version")]
    if command.default_command is None:
        for one in subcommands:
            yield from sections(command[one], f"{name} {one}", level + 1)
        return
    yield from ("| argument or option | what it says |", "|---|---|")
    yield from map(row, command.assemble_argument_collection())
    yield from (f"| `{one}` | {as_text(command[one].help)} |" for one in subcommands)
    yield ""


def described(text: str | None) -> str:
    """Return a help text as Markdown: a paragraph whose lines are all indented holds examples."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    blocks = []
    for indented, group in groupby(
        paragraphs, lambda one: all(line.startswith(" ") for line in one.splitlines())
    ):
        if indented:
            blocks.append(
                "```text\n" + "\n".join(textwrap.dedent(one) for one in group) + "\n```"
            )
        else:
            blocks += map(as_text, group)
    return "\n\n".join(blocks)


def as_text(text: str | None) -> str:
    """Return a help text on one line, in which no character outside quoted code is markup."""
    pieces = " ".join((text or "").split()).split("`")
    plain = [
        re.sub(r"([<*_|])", r"\\\1", piece) if place % 2 == 0 else piece
        for place, piece in enumerate(pieces)
    ]
    return "`".join(plain)


def row(one: Argument) -> str:
    """Return the line of the table for an argument or an option."""
    required = " (required)" if one.required else ""
    value = (one.parameter.metavar or "").replace("\\", "").replace("|", "\\|")
    typed = f"`{one.name}` {value}".rstrip()
    return f"| {typed}{required} | {as_text(one.parameter.help)} |"


if __name__ == "__main__":
    write_atomically(PAGE, page().encode(), overwrite=True)
