"""The public images or texts that a model selected: in their pool, on one picture, and small for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dppl._optional import optional
from dppl.errors import InputError
from dppl.io import Source
from dppl.io.decoding import decode, quiet
from dppl.io.records import BadRecord

__all__ = ["GAP", "NAME_WIDTH", "TILE", "contact_sheet", "gallery_of", "selected_items"]

TILE, GAP, NAME_WIDTH = 96, 6, 180
_INK, _PAPER = (0, 0, 0), (255, 255, 255)
# Bytes of all items of a gallery, so that its page stays under 500 kB, and letters of a text in it.
_MOST_BYTES, _LETTERS = 100_000, 400


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
    modules = ("Image", "ImageDraw", "ImageOps", "ImageFont")
    image, draw, ops, font = (optional(f"PIL.{name}", "pillow", "images") for name in modules)
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


def _fitting(name: str, pen: Any, letters: Any) -> str:
    """Put a name on one line, and cut a long one where the images begin."""
    text = " ".join(name.split())
    while len(text) > 1 and pen.textlength(text, letters) > NAME_WIDTH - 2 * GAP:
        text = text[:-2] + "…"
    return text


def selected_items(source: Source, ids: set[str], path: Path) -> dict[str, Any]:
    """Return the images or texts of a public pool with these ids, each of which it must hold once."""
    items: dict[str, Any] = {}
    with quiet():
        for record in source:
            if record.id in items:
                raise InputError(f"{path} must have one record of each id that the model selected; some have more.")
            # Only what was selected is decoded; a pool may hold millions.
            if record.id in ids:
                with suppress(BadRecord):
                    items[record.id] = decode(record.load(), source.modality)
                    if source.modality == "image":
                        items[record.id].thumbnail((TILE, TILE))  # whole photographs of all classes may be too many
    if len(items) < len(ids):
        raise InputError(
            f"{path} must hold the public records that the model selected; some are missing or cannot be read."
        )
    return items


def gallery_of(
    classes: Sequence[Any], ids: Sequence[Sequence[str]], items: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    """Return what was selected for each class, images or texts by id, for as many classes as fit."""
    rows: list[dict[str, Any]] = []
    left = _MOST_BYTES
    for name, several in zip(classes, ids, strict=True):
        shown = [_jpeg(items[one]) if kind == "image" else _clipped(items[one]) for one in several]
        # At least one class is shown, however large its items are.
        left -= sum(len(one.encode("utf-8")) for one in shown)
        if left < 0 and rows:
            break
        rows.append(
            {"class": str(name), "items": [{"id": one, kind: what} for one, what in zip(several, shown, strict=True)]}
        )
    return {"kind": kind, "classes": rows, "n_left_out": len(classes) - len(rows)}


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LETTERS else line[: _LETTERS - 1] + "…"


def _jpeg(picture: Any) -> str:
    """Return a small image as a data URI, on white where it is transparent."""
    pillow = optional("PIL.Image", "pillow", "images")
    tile = picture.convert("RGBA")
    tile.thumbnail((TILE, TILE))
    paper = pillow.new("RGB", tile.size, (255, 255, 255))
    paper.paste(tile, mask=tile.getchannel("A"))
    buffer = io.BytesIO()
    paper.save(buffer, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
