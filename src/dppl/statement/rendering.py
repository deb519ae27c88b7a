r"""Jinja templates and their filters, with foreign text escaped: a page is one file without scripts or network.

Examples
--------
>>> markdown_text("a|b <i>\n*")
'a\\|b &lt;i> \\*'
>>> print(markdown_table([("x", 1)], ("name", "n")))
| name | n |
|---|---|
| x | 1 |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

__all__ = ["at_most", "markdown_table", "markdown_text", "name", "percent", "rendered", "short"]

_MARKS = re.compile(r"([\\`*_\[\]|~])")
_LETTERS = 60  # of a name on a page


def rendered(package: str, template: str, **values: Any) -> str:
    """Fill a template of a package, which can import ``parts.html`` and extend ``page.html``.

    Text is escaped in .html, and in .md where the filter ``md`` is used.
    """
    return _environment(package).get_template(template).render(**values)


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("dppl.statement")]),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "md": markdown_text,
        "md_table": markdown_table,
        "name": name,
        "short": short,
        "percent": percent,
        "at_most": at_most,
    }
    return environment


def markdown_text(value: Any) -> str:
    """Keep text on its line, inside its cell, and without markup, links or images, which a hub would load."""
    text = "".join(char if char.isprintable() else " " for char in str(value))
    return _MARKS.sub(r"\\\1", text.replace("&", "&amp;")).replace("<", "&lt;")


def markdown_table(rows: Iterable[Sequence[Any]], header: Sequence[str] = ("", "")) -> str:
    """Return a table of texts, each row as long as the header."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(markdown_text, row))} |" for row in rows)])


def name(text: str) -> Markup:
    """Write the name of a class, in its own direction, whose lines may end at its underscores.

    >>> name("a_b < c")
    Markup('<bdi dir="auto">a_<wbr>b &lt; c</bdi>')
    """
    return Markup('<bdi dir="auto">{}</bdi>').format(escape(short(text)).replace("_", Markup("_<wbr>")))


def short(text: str) -> str:
    """Cut a long name in its middle, since names often begin or end alike; the JSON form has all of it."""
    half = _LETTERS // 2
    return text if len(text) <= _LETTERS else f"{text[: half - 1]}…{text[-half:]}"


def percent(share: float | None) -> str:
    """Write a share with one digit; a dash where there is none.

    >>> percent(0.9876), percent(1.0), percent(None)
    ('98.8 %', '100 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f}".removesuffix(".0") + " %"


def at_most(share: float) -> str:
    """Write a bound, rounded up to a hundredth of a per cent.

    >>> at_most(0.018251), at_most(0.9999999)
    ('1.83 %', '100 %')
    """
    return f"{min(math.ceil(10_000 * share), 10_000) / 100:g} %"
