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


def slug(*names: str) -> str:
    """Make part of a file's name.

    >>> slug("CIFAR-10", "ViT, 14")
    'cifar-10-vit-14'
    """
    return "-".join(re.findall(r"[^\W_]+", "-".join(names).lower()))


def to_markdown(parts: Sequence[Part]) -> str:
    """Return the report as Markdown."""
    blocks = []
    for part in parts:
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
    # A long page has links to its headings and tables, before the first of them.
    contents: dict[int, str] = {}
    if sum(isinstance(part, Table) for part in parts) > _FEW:
        heading = ""
        for place, part in enumerate(parts):
            if isinstance(part, Heading) and part.level > 1:
                contents[place] = heading = part.text
            elif isinstance(part, Table):
                contents[place] = part.title.removesuffix(".").replace(f": {heading}, ", ": ")

    def inline(text: str) -> Markup:
        escaped = re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", str(escape(text)))
        return Markup(re.sub(r"`(.*?)`", r"<code>\1</code>", escaped))

    return rendered(
        "dppl.lab.experiments",
        "report.html",
        title=next((part.text for part in parts if isinstance(part, Heading)), ""),
        parts=[(type(part).__name__, part) for part in parts],
        contents=contents,
        first=min(contents, default=None),
        inline=inline,
        png=lambda stem: base64.b64encode((folder / f"{stem}.png").read_bytes()).decode("ascii"),
    )
