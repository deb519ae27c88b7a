"""A report as data, and its two forms: Markdown beside its figures, and one HTML file with everything inside."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup, escape

from dppl.statement.rendering import rendered

__all__ = ["Heading", "Part", "Picture", "Table", "Text", "slug", "to_html", "to_markdown"]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; ``**`` makes bold, and a backquote code."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its title."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with its title; its files are ``stem`` with .png and .svg."""

    stem: str
    title: str
    note: str
    figure: Any


Part: TypeAlias = Heading | Text | Table | Picture

# So many tables need no table of contents.
_FEW = 5
_LINK_MARKS, _ESCAPED = re.compile(r"([\[\]])"), r"\\\1"


def slug(*names: str) -> str:
    """Make part of a file's name.

    >>> slug("CIFAR-10", "ViT, 14")
    'cifar-10-vit-14'
    """
    text = "-".join(names).lower()
    return "-".join("".join(char if char.isalnum() else " " for char in text).split())


def _contents(parts: Sequence[Part]) -> dict[int, str]:
    """Return where headings and tables stand, with their titles; nothing of a report that has few tables."""
    if sum(isinstance(part, Table) for part in parts) <= _FEW:
        return {}
    titles: dict[int, str] = {}
    heading = ""
    for place, part in enumerate(parts):
        match part:
            case Heading(text, level) if level > 1:
                titles[place] = heading = text
            case Table(title):
                titles[place] = title.removesuffix(".").replace(f": {heading}, ", ": ")
    return titles


def to_markdown(parts: Sequence[Part]) -> str:
    """Return the report as Markdown."""
    contents = _contents(parts)
    links = [
        f"{'  ' * isinstance(parts[place], Table)}- [{_LINK_MARKS.sub(_ESCAPED, title)}](#part-{place})"
        for place, title in contents.items()
    ]
    # A long report has links to its tables, before the first of them.
    blocks = []
    for place, part in enumerate(parts):
        if place in contents:
            if place == min(contents):
                blocks.append("\n".join(links))
            blocks.append(f'<a id="part-{place}"></a>')
        match part:
            case Heading(text, level):
                blocks.append(f"{'#' * level} {text}")
            case Text(text):
                blocks.append(text)
            case Table(title, note, header, rows):
                lines = [_pipes(header), _pipes(["---"] * len(header)), *map(_pipes, rows)]
                blocks += [f"**{title}** {note}".strip(), "\n".join(lines)]
            case Picture(stem, title, note, _):
                blocks += [f"![{title}]({stem}.png)", f"**{title}** {note} Also as `{stem}.svg`."]
    return "\n\n".join(blocks) + "\n"


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def to_html(parts: Sequence[Part], folder: Path) -> str:
    """Return the report as one HTML page, with the figures' PNG files in `folder` inside."""
    contents = _contents(parts)
    return rendered(
        "dppl.lab.experiments",
        "report.html",
        title=next((part.text for part in parts if isinstance(part, Heading)), ""),
        parts=[(type(part).__name__, part) for part in parts],
        contents=contents,
        first=min(contents, default=None),
        inline=_inline,
        narrowed=_without_constants,
        png=lambda stem: base64.b64encode((folder / f"{stem}.png").read_bytes()).decode("ascii"),
    )


def _without_constants(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]], str]:
    """Take columns that say the same in every row out of a table, and say it once.

    >>> _without_constants(("method", "rows", "mu 1"), [("one", "9", "0.5"), ("two", "9", "0.6")])
    (['method', 'mu 1'], [['one', '0.5'], ['two', '0.6']], 'In all rows: rows 9.')
    """
    constant = [place > 0 and len(rows) > 1 and len({row[place] for row in rows}) == 1 for place in range(len(header))]
    same = [
        f"{name} {cell}" for name, cell, drop in zip(header, rows[0] if rows else (), constant, strict=False) if drop
    ]
    kept = [place for place, drop in enumerate(constant) if not drop]
    return (
        [header[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        f"In all rows: {'; '.join(same)}." if same else "",
    )


def _inline(text: str) -> Markup:
    """Turn the little Markdown that the report uses, bold and code, into HTML."""
    escaped = str(escape(text))
    for mark, tag in (("**", "b"), ("`", "code")):
        pieces = escaped.split(mark)
        escaped = "".join(piece if place % 2 == 0 else f"<{tag}>{piece}</{tag}>" for place, piece in enumerate(pieces))
    return Markup(escaped)
