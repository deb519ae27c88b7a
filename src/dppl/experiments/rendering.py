"""A report as data, and its two forms: Markdown beside its figures, and one HTML file with everything inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

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


def slug(*names: str) -> str:
    """Make part of a file's name.

    Examples
    --------
    >>> slug("CIFAR-10", "ViT, 14")
    'cifar-10-vit-14'
    """
    text = "-".join(names).lower()
    return "-".join("".join(char if char.isalnum() else " " for char in text).split())


def to_markdown(parts: Iterable[Part]) -> str:
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


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; }
img { max-width: 100%; } figure { margin: 1.5em 0; } figcaption, caption { text-align: left; color: #444; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; margin: 1em 0; }
th, td { padding: 3px 9px; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
caption { padding: 4px 0; } code { background: #f3f3f3; }
"""


def to_html(parts: Iterable[Part], folder: Path) -> str:
    """Return the report as one HTML page, with the figures' PNG files in `folder` inside."""
    blocks = []
    for part in parts:
        match part:
            case Heading(text, level):
                blocks.append(f"<h{level}>{_inline(text)}</h{level}>")
            case Text(text):
                blocks.append(f"<p>{_inline(text)}</p>")
            case Table(title, note, header, rows):
                head = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in header)
                body = "\n".join(
                    "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in rows
                )
                caption = f"<caption><b>{_inline(title)}</b> {_inline(note)}</caption>"
                table = f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
                blocks.append(f'<div class="wide">{table}</div>')
            case Picture(stem, title, note, _):
                image = base64.b64encode((folder / f"{stem}.png").read_bytes()).decode("ascii")
                caption = f"<figcaption><b>{_inline(title)}</b> {_inline(note)}</figcaption>"
                blocks.append(
                    f'<figure><img alt="{html.escape(title)}" src="data:image/png;base64,{image}">{caption}</figure>'
                )
    head = f'<meta charset="utf-8"><title>Private classifiers compared</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(blocks) + "\n</body></html>\n"


def _inline(text: str) -> str:
    """Turn the little Markdown that the report uses, bold and code, into HTML."""
    escaped = html.escape(text)
    for mark, tag in (("**", "b"), ("`", "code")):
        pieces = escaped.split(mark)
        escaped = "".join(piece if place % 2 == 0 else f"<{tag}>{piece}</{tag}>" for place, piece in enumerate(pieces))
    return escaped
