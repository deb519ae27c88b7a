"""What notebooks show of an object: a sentence, and a table of names and values."""

from collections.abc import Iterable
from html import escape


def summary(text: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a paragraph and a table as HTML; texts are shown as they are.

    >>> summary("a < b", [("mu", "1")])
    '<p>a &lt; b</p><table><tr><th style="text-align: left">mu</th><td style="text-align: left">1</td></tr></table>'
    """
    left = ' style="text-align: left"'
    cells = "".join(f"<tr><th{left}>{escape(name)}</th><td{left}>{escape(value)}</td></tr>" for name, value in rows)
    return f"<p>{escape(text)}</p><table>{cells}</table>"
