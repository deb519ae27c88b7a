"""How things are printed: texts of others without markup or control characters, JSON, notes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

if TYPE_CHECKING:
    from dppl.kernel.privacy import Guarantee

STDOUT = "standard output"  # as messages call it


class _Plain(Console):
    """Prints texts as they are, since class names may look like markup, and leaves a broken pipe to `dppl.cli.main`."""

    def __init__(self, *, markup: bool = False, file: IO[str] | None = None) -> None:
        super().__init__(markup=markup, emoji=False, highlight=False, file=file)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, markup: bool = False, file: IO[str] | None = None) -> Console:
    """Return a console on stdout or another file, for texts of others unless `markup` is asked for."""
    return _Plain(markup=markup, file=file)


def printable(text: object) -> str:
    """Replace control characters by their escapes, so that no text can steer a terminal or fake a line."""
    return "".join(repr(char)[1:-1] if _is_control(char) else char for char in str(text))


def _is_control(char: str) -> bool:
    return ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029"


def is_one_line(text: str) -> bool:
    """Tell whether `text` stays one line when it is printed."""
    return not any(map(_is_control, text))


def note(text: str) -> None:
    """Say something beside the result, on stderr."""
    typer.echo(f"dppl: note: {text}", err=True)


def print_json(content: dict[str, Any] | list[Any]) -> None:
    """Print JSON; ASCII, so that it survives every terminal and pipe."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


def print_lines(lines: Iterable[object]) -> None:
    """Print lines as UTF-8, which is what files of labels are on every system."""
    content = memoryview("".join(f"{line}\n" for line in lines).encode("utf-8"))
    stream = sys.stdout.buffer
    try:
        sys.stdout.flush()
        # With PYTHONUNBUFFERED a write may stop half-way and say so in its result only.
        while content:
            content = content[stream.write(content) or 0 :]
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = STDOUT
        raise


def print_promise(guarantee: Guarantee, model: Path) -> None:
    """Say in five lines what a model promises, and where all of it stands."""
    from dppl.statement import words  # here, because it takes long to import, and few commands print it

    for heading, text in words.in_short(guarantee):
        typer.echo(f"{heading}: {printable(text)}")
    typer.echo(f"All of it: dppl show {printable(model)} (--json for machines)")


def in_columns(rows: Iterable[Sequence[str]]) -> Padding:
    """Return a small table without lines."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(printable, row))
    return Padding.indent(table, 2)
