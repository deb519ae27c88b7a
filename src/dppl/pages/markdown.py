r"""Texts of others in Markdown, where they must not become markup, and tables.

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

import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["markdown_table", "markdown_text"]

_MARKS = re.compile(r"([\\`*_\[\]|~])")


def markdown_text(value: Any) -> str:
    """Keep a text on its line, inside its cell, and without markup."""
    text = "".join(char if char.isprintable() else " " for char in str(value))
    return _MARKS.sub(r"\\\1", text.replace("&", "&amp;")).replace("<", "&lt;")


def markdown_table(rows: Iterable[Sequence[Any]], header: Sequence[str] = ("", "")) -> str:
    """Return a table of texts.

    Parameters
    ----------
    rows : iterable of sequences
    header : sequence of str
        As long as each row.
    """
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(markdown_text, row))} |" for row in rows)])
