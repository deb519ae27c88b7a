"""How things are printed: texts of others without markup or control characters, JSON, notes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from dppl.errors import ParameterError

if TYPE_CHECKING:
    from dppl.kernel.privacy import Guarantee, Ledger

_SQUARES = " (squares of mu add, not epsilons)"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class _Plain(Console):
    """Leaves a broken pipe to `dppl.cli.main`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, markup: bool = False, file: IO[str] | None = None) -> Console:
    """Return a console on stdout or another file; class names may look like markup, so there is none by default."""
    return _Plain(markup=markup, emoji=False, highlight=False, file=file)


def printable(text: object) -> str:
    """Replace control characters by their escapes, so that no text can steer a terminal or fake a line."""
    return _CONTROL.sub(lambda control: repr(control[0])[1:-1], str(text))


def echo(text: object, *, err: bool = False, end: str = "\n") -> None:
    """Print a text on stdout or stderr, now: a pipe may close before the command ends."""
    print(text, file=sys.stderr if err else sys.stdout, end=end, flush=True)


def require_stdout(what: str) -> None:
    """Refuse to print what is asked for where standard output is closed: `dppl.cli.main` put a sink there."""
    if getattr(sys.stdout, "name", "") == os.devnull:
        raise ParameterError(
            f"must name a file: standard output is closed, and {what} would be lost.",
            parameter="out",
        )


def note(text: str) -> None:
    """Print a remark, if there is one, on stderr: it is no part of the result."""
    if text:
        echo(f"dppl: note: {text}", err=True)


def print_json(content: dict[str, Any] | list[Any]) -> None:
    """Print JSON; ASCII, so that it survives every terminal and pipe."""
    # NaN is no JSON, and a reader in another language would stop at it.
    echo(json.dumps(content, indent=2, allow_nan=False))


def print_facts(
    facts: Iterable[tuple[str, object]],
    width: int,
    screen: Console | None = None,
    *,
    soft_wrap: bool = True,
) -> None:
    """Print names and what is known of them, each on a line that only a terminal may break, or is broken here."""
    for name, text in facts:
        (screen or console()).print(
            f"{name:<{width}} {printable(text)}", soft_wrap=soft_wrap
        )


def table_of(
    headings: Iterable[str],
    rows: Iterable[Iterable[Any]],
    numbers: Collection[str] = (),
    **style: Any,
) -> Table:
    """Return a table of texts, or lists of lines; columns of `numbers` are aligned right."""
    table = Table(**style)
    for name in headings:
        # A long name is folded, for an ellipsis would hide which one it is.
        table.add_column(
            name, justify="right" if name in numbers else "left", overflow="fold"
        )
    for row in rows:
        lines = (cell if isinstance(cell, list) else [cell] for cell in row)
        table.add_row(*("\n".join(map(printable, several)) for several in lines))
    return table


def print_model(
    guarantee: Guarantee, model: Path, what: str = "", code: str = ""
) -> None:
    """Say where a model lies and, in five lines, what it promises. All of it is in the file, or was public before."""
    from dppl.statement import (
        words,
    )  # here, because it takes long to import, and few commands print it

    path = printable(model)
    if what:
        echo(f"{what} Saved to {path}. Next: dppl predict {path} DATA{code}")
    for heading, text in words.in_short(guarantee):
        echo(f"{heading}: {printable(text)}")
    echo(f"All of it: dppl show {path} (--json for machines)")


def print_charge(file: str, account: Ledger, guarantee: Guarantee) -> None:
    """Say what paid for a release, and what is left there."""
    from dppl.statement.words import figures

    book = account.to_dict()
    *_, last = guarantee.charges  # of a stream, the one of this task
    (charge,) = (one for one in book["releases"] if one["number"] == last.number)
    cost = ", ".join(figures(charge["cost"]))
    name = printable(book["dataset"])
    echo(
        f"Charged: {cost}, to {name} in {place(file)}, release {charge['number']}: {balance(book)}."
    )


def balance(book: dict[str, Any]) -> str:
    """Return what an account may spend, has spent and has left."""
    from dppl.statement.words import in_words, rounded_down

    adds = ""
    if book["accounting"] == "gdp" and "mu" not in book["budget"]:
        adds = _SQUARES
    left = rounded_down(book["left"], book["budget"])
    if not book["releases"]:
        return f"nothing spent; budget {in_words(book['budget'])}"
    if len({one["partition"] for one in book["releases"]} - {None}) > 1:
        adds += ", of the part that spent most: parts share no record, so their costs do not add up"
    return f"budget {in_words(book['budget'])}; spent {in_words(book['spent'])}; left {left}{adds}"


def place(file: str) -> str:
    """Return where a ledger is."""
    return "URL" if "://" in file else printable(file)  # a URL may hold a password


def tell_owner(what: str, where: str, *, err: bool = False) -> None:
    """Say last, in the same words whatever the records are, where their owner finds how many were used."""
    echo(
        f"Before you trust {what}, the owner of the records must read {where}: it names the records that cannot be "
        "used. How many they are is private, so it is not printed here.",
        err=err,
    )
