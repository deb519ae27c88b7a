"""A picture of the public images that a model selected."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from dppl._optional import optional

_TILE, _GAP, _NAME_WIDTH = 96, 6, 180
_INK, _PAPER = (0, 0, 0), (255, 255, 255)


def contact_sheet(rows: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    """Return a PNG with one row a class: its name, and its images.

    Parameters
    ----------
    rows : sequence of (name, images)
        Images are those of Pillow.

    Raises
    ------
    MissingExtra
        If Pillow is not installed.
    """
    image, draw, ops, font = (optional(f"PIL.{name}", "pillow", "vision") for name in _MODULES)
    columns = max((len(images) for _, images in rows), default=0)
    step = _TILE + _GAP
    sheet = image.new("RGB", (_NAME_WIDTH + columns * step + _GAP, len(rows) * step + _GAP), _PAPER)
    pen = draw.Draw(sheet)
    letters = font.load_default(14)
    for row, (name, images) in enumerate(rows):
        top = _GAP + row * step
        pen.text((_GAP, top + _TILE // 2), _fitting(name, pen, letters), _INK, letters, anchor="lm")
        for column, picture in enumerate(images):
            tile = ops.contain(picture, (_TILE, _TILE))
            left = _NAME_WIDTH + column * step
            sheet.paste(tile, (left + (_TILE - tile.width) // 2, top + (_TILE - tile.height) // 2))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


_MODULES = ("Image", "ImageDraw", "ImageOps", "ImageFont")


def _fitting(name: str, pen: Any, letters: Any) -> str:
    """Cut a long name where the images begin."""
    text = name
    while len(text) > 1 and pen.textlength(text, letters) > _NAME_WIDTH - 2 * _GAP:
        text = text[:-2] + "…"
    return text
