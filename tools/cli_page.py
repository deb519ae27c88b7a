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
from typing import Any

from dppl._utils.files import write_atomically
from dppl.cli._request import COMMANDS, imported
from dppl.cli.main import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """# Command line

This page lists every command with its arguments and options. `dppl COMMAND --help` shows the same.
"""


def page() -> str:
    """Return the page."""
    parts = [
        part for name in COMMANDS for part in sections(imported(name), f"dppl {name}")
    ]
    return "\n".join(
        [
            HEAD,
            *parts,
            "## Exit codes",
            "",
            as_text(app.info.epilog).removeprefix("Exit codes: "),
            "",
        ]
    )


def sections(command: Any, name: str, level: int = 2) -> Iterator[str]:
    """Yield the parts of one command, and then those of its subcommands."""
    yield from (f"{'#' * level} {name}", "", described(command.help), "")
    if subcommands := getattr(command, "commands", None):
        for subname, subcommand in subcommands.items():
            yield from sections(subcommand, f"{name} {subname}", level + 1)
        return
    yield from ("| argument or option | what it says |", "|---|---|")
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    yield from (row(one) for one in shown if one.name != "help")
    yield ""


def described(text: str | None) -> str:
    """Return a help text as Markdown: a paragraph whose lines are all indented holds examples."""
    paragraphs = (
        inspect.cleandoc(text or "")
        .replace("\b\n", "")
        .replace("\\[", "[")
        .split("\n\n")
    )
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


def row(parameter: Any) -> str:
    """Return the line of the table for an argument or an option."""
    required = " (required)" if parameter.required else ""
    return f"| {typed(parameter)}{required} | {as_text(parameter.help)} |"


def typed(parameter: Any) -> str:
    """Return how an argument or an option is typed, with the word that stands for its value."""
    value = (parameter.metavar or "").replace("|", "\\|")
    if not parameter.opts[0].startswith("-"):
        return f"`{value or parameter.name.upper()}`"
    flags = ", ".join(
        f"`{flag}`" for flag in [*parameter.opts, *parameter.secondary_opts]
    )
    return f"{flags} {value}".rstrip()


if __name__ == "__main__":
    write_atomically(PAGE, page().encode(), overwrite=True)
