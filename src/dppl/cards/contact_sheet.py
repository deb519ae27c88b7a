"""A picture of the public images that a model selected."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from dppl._optional import optional

TILE, GAP, NAME_WIDTH = 96, 6, 180
_INK, _PAPER = (0, 0, 0), (255, 255, 255)


def contact_sheet(rows: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    """Return a PNG with one row a class: its name, and its images.

    Parameters
    ----------
    rows : sequence of (name, images)
        Images are those of Pillow. They are fitted into squares of `TILE` pixels.

    Raises
    ------
    MissingExtra
        If Pillow is not installed.
    """
    image, draw, ops, font = (optional(f"PIL.{name}", "pillow", "images") for name in _MODULES)
    columns = max((len(images) for _, images in rows), default=0)
    step = TILE + GAP
    sheet = image.new("RGB", (NAME_WIDTH + columns * step + GAP, len(rows) * step + GAP), _PAPER)
    pen = draw.Draw(sheet)
    letters = font.load_default(14)
    for row, (name, images) in enumerate(rows):
        top = GAP + row * step
        pen.text((GAP, top + TILE // 2), _fitting(name, pen, letters), _INK, letters, anchor="lm")
        for column, picture in enumerate(images):
            tile = ops.contain(picture, (TILE, TILE))
            left = NAME_WIDTH + column * step
            sheet.paste(tile, (left + (TILE - tile.width) // 2, top + (TILE - tile.height) // 2))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


_MODULES = ("Image", "ImageDraw", "ImageOps", "ImageFont")


def _fitting(name: str, pen: Any, letters: Any) -> str:
    """Put a name on one line, and cut a long one where the images begin."""
    text = " ".join(name.split())
    while len(text) > 1 and pen.textlength(text, letters) > NAME_WIDTH - 2 * GAP:
        text = text[:-2] + "…"
    return text
