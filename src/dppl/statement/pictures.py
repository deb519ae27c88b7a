"""The public images or texts that a model selected: in their pool, on one picture, and small for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dppl._optional import optional
from dppl.errors import InputError, ParameterError
from dppl.io import Source
from dppl.io.decoding import decode, quiet
from dppl.io.records import BadRecord

__all__ = ["GAP", "NAME_WIDTH", "TILE", "contact_sheet", "gallery_of", "selected_items"]

TILE, GAP, NAME_WIDTH = 96, 6, 180
_INK, _PAPER = (0, 0, 0), (255, 255, 255)
# Bytes of all items of a gallery, so that its page stays under 500 kB, and letters of a text in it.
_MOST_BYTES, _LETTERS = 100_000, 400


def contact_sheet(rows: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    """Return a PNG with one row a class: its name, and its images of Pillow in squares of `TILE` pixels."""
    modules = ("Image", "ImageDraw", "ImageOps", "ImageFont")
    image, draw, ops, font = (optional(f"PIL.{name}", "pillow", "images") for name in modules)
    columns = max((len(images) for _, images in rows), default=0)
    step = TILE + GAP
    sheet = image.new("RGB", (NAME_WIDTH + columns * step + GAP, len(rows) * step + GAP), _PAPER)
    pen = draw.Draw(sheet)
    letters = font.load_default(14)
    for row, (name, images) in enumerate(rows):
        top = GAP + row * step
        text = " ".join(name.split())
        while len(text) > 1 and pen.textlength(text, letters) > NAME_WIDTH - 2 * GAP:
            text = text[:-2] + "…"  # a long name ends where the images begin
        pen.text((GAP, top + TILE // 2), text, _INK, letters, anchor="lm")
        for column, picture in enumerate(images):
            tile = ops.contain(picture, (TILE, TILE))
            left = NAME_WIDTH + column * step
            sheet.paste(tile, (left + (TILE - tile.width) // 2, top + (TILE - tile.height) // 2))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def selected_items(
    description: Mapping[str, Any], source: Source, path: Path
) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return for each class the images or texts of a public pool that a model selected, with their ids."""
    if description.get("public_indices") is None:
        raise ParameterError(
            f"is for models that select public rows (PublicPrototypes); {description['estimator']} selects none.",
            parameter="public",
        )
    # Positions would be of the table that was embedded, whose order the pool need not have.
    ids: list[list[str]] | None = description.get("public_ids")
    if ids is None:
        raise ParameterError(
            "needs a model that was fitted on public rows with ids, which `dppl embed` and `dppl train` write.",
            parameter="public",
        )
    missing = {one for several in ids for one in several}
    items: dict[str, Any] = {}
    with quiet():
        for record in source:
            if record.id in items:
                raise InputError(f"{path} must have one record of each id that the model selected; some have more.")
            # Only what was selected is decoded; a pool may hold millions.
            if record.id in missing:
                with suppress(BadRecord):
                    items[record.id] = decode(record.load(), source.modality)
                    if source.modality == "image":
                        items[record.id].thumbnail((TILE, TILE))  # whole photographs of all classes may be too many
    if len(items) < len(missing):
        raise InputError(
            f"{path} must hold the public records that the model selected; some are missing or cannot be read."
        )
    names = map(str, description["classes"])
    return [(name, [(one, items[one]) for one in several]) for name, several in zip(names, ids, strict=True)]


def gallery_of(selected: Sequence[tuple[str, Sequence[tuple[str, Any]]]], kind: str) -> dict[str, Any]:
    """Return what was selected for each class, images or texts by id, for as many classes as fit."""
    rows: list[dict[str, Any]] = []
    left = _MOST_BYTES
    for name, several in selected:
        items = [{"id": one, kind: _jpeg(item) if kind == "image" else _clipped(item)} for one, item in several]
        # At least one class is shown, however large its items are.
        left -= sum(len(one[kind].encode("utf-8")) for one in items)
        if left < 0 and rows:
            break
        rows.append({"class": name, "items": items})
    return {"kind": kind, "classes": rows, "n_left_out": len(selected) - len(rows)}


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
