"""A report in Markdown: blocks of text, tables, and pictures whose files are next to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Part", "Picture", "slug", "table", "to_markdown"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with its title; its files are ``stem`` with .png and .svg."""

    stem: str
    title: str
    note: str
    figure: Any


Part: TypeAlias = str | Picture


def slug(*names: str) -> str:
    """Make part of a file's name.

    >>> slug("CIFAR-10", "ViT, 14")
    'cifar-10-vit-14'
    """
    return "-".join(re.findall(r"[^\W_]+", "-".join(names).lower()))


def table(title: str, note: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with its title."""
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for cells in (header, ["---"] * len(header), *rows)
    ]
    return f"**{title}** {note}".strip() + "\n\n" + "\n".join(lines)


def to_markdown(parts: Iterable[Part]) -> str:
    """Return the report as Markdown."""
    blocks = []
    for part in parts:
        if isinstance(part, Picture):
            blocks += [f"![{part.title}]({part.stem}.png)", f"**{part.title}** {part.note} Also as `{part.stem}.svg`."]
        else:
            blocks.append(part)
    return "\n\n".join(blocks) + "\n"
